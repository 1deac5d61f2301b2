"""AutoTokenizer: the tokenizer that a model folder was made with, whichever class that is."""

from pathlib import Path
from typing import Any, NoReturn

from albertkit import hub
from albertkit.errors import TokenizerError
from albertkit.tokenization import folder
from albertkit.tokenization.interface import TokenizerInterface

_CLASSES = ("AlbertTokenizer", "AlbertTokenizerFast", "PreTrainedTokenizerFast", "TokenizersBackend")
"""Names in `tokenizer_config.json` that the two classes here stand for; the last two are what `transformers`
calls a bare tokenizer.json."""
_WORDPIECE_FILE = "vocab.txt"
_MODEL_CONFIG_FILE = "config.json"


class AutoTokenizer:
    """Stands for AlbertTokenizer or AlbertTokenizerFast, by what the folder holds."""

    def __init__(self) -> NoReturn:
        raise TypeError(
            "AutoTokenizer is not instantiated; use AutoTokenizer.from_pretrained(name_or_folder)"
        )

    @staticmethod
    def from_pretrained(
        pretrained_model_name_or_path: str | Path,
        *,
        use_fast: bool | None = None,
        revision: str | None = None,
        cache_dir: str | Path | None = None,
        token: str | bool | None = None,
        local_files_only: bool = False,
        **overrides: Any,
    ) -> TokenizerInterface:
        """Load the tokenizer of a model folder, a vocabulary file, the hub, or the bundled model.

        Args:
            pretrained_model_name_or_path: as for the tokenizer classes.
            use_fast: True for AlbertTokenizerFast. Else AlbertTokenizer, the quicker one, where there is a
                SentencePiece model for it; their answers are the same.
            revision, cache_dir, token, local_files_only: for hub names, as in `albertkit.hub.resolve`.
            overrides: arguments of the class that win over what the folder says.

        Raises:
            ModelNotFoundError: nothing is found by that name.
            TokenizerError: the folder's tokenizer is damaged, or is none of ALBERT's.
        """
        path = Path(pretrained_model_name_or_path).expanduser()
        if not path.is_file():
            path = hub.resolve(
                pretrained_model_name_or_path,
                patterns=(*folder.PATTERNS, _MODEL_CONFIG_FILE, _WORDPIECE_FILE),
                revision=revision,
                cache_dir=cache_dir,
                token=token,
                local_files_only=local_files_only,
            )
        _check_class(path)
        if use_fast is None:
            use_fast = folder.find_model_file(path) is None
        # Each class loads a library of its own, and the unused one should cost nothing.
        if use_fast:
            from albertkit.tokenization.fast import AlbertTokenizerFast as TokenizerClass
        else:
            from albertkit.tokenization.tokenizer import AlbertTokenizer as TokenizerClass
        tokenizer = TokenizerClass.from_pretrained(path, **overrides)
        tokenizer.name_or_path = str(pretrained_model_name_or_path)
        return tokenizer


def _check_class(path: Path) -> None:
    """Raise TokenizerError for the folder of a tokenizer that is not ALBERT's."""
    parent = path if path.is_dir() else path.parent
    named = folder.read_json(parent / folder.CONFIG_FILE).get("tokenizer_class")
    has_vocabulary = folder.find_model_file(path) is not None or folder.find_rust_file(path) is not None
    if not has_vocabulary and (path / _WORDPIECE_FILE).is_file():
        raise TokenizerError(
            f"{path} has a WordPiece vocabulary ({_WORDPIECE_FILE}), which albertkit does not read; expected "
            f"a SentencePiece model ({folder.MODEL_FILE}) or {folder.RUST_FILE}"
        )
    if not has_vocabulary:
        raise folder.missing(path, f"a tokenizer: {folder.MODEL_FILE} or {folder.RUST_FILE}")
    if named is not None and named not in _CLASSES:
        raise TokenizerError(
            f"{parent / folder.CONFIG_FILE} names the tokenizer class {named!r}; albertkit has ALBERT's: "
            f"{', '.join(_CLASSES[:2])}"
        )
