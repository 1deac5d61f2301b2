"""AutoTokenizer: load the tokenizer of a model folder, whichever class it has."""

from pathlib import Path
from typing import Any, NoReturn

from albertkit.config import CONFIG_FILE
from albertkit.errors import TokenizerError
from albertkit.hub import split_hub_options
from albertkit.tokenization import folder
from albertkit.tokenization.base import TokenizerBase

_CLASSES = ("AlbertTokenizer", "AlbertTokenizerFast", "PreTrainedTokenizerFast", "TokenizersBackend")
"""Values of `tokenizer_class` in `tokenizer_config.json` that mean ALBERT's own classes; `transformers`
writes the last two for a bare tokenizer.json."""
_WORDPIECE_CLASSES = ("AlbertWordPieceTokenizer", "BertTokenizer", "BertTokenizerFast", *_CLASSES)
"""The same values for a WordPiece vocabulary. Folders of Chinese models often name ALBERT's usual class."""


class AutoTokenizer:
    """Loads an AlbertTokenizer, AlbertTokenizerFast or AlbertWordPieceTokenizer, depending on the files."""

    def __init__(self) -> NoReturn:
        raise TypeError(
            "AutoTokenizer cannot be instantiated. Use AutoTokenizer.from_pretrained(name_or_folder)."
        )

    @staticmethod
    def from_pretrained(
        pretrained_model_name_or_path: str | Path, *, use_fast: bool | None = None, **options: Any
    ) -> TokenizerBase:
        """Load the tokenizer of a model folder, a vocabulary file, the hub, or the bundled model.

        Args:
            pretrained_model_name_or_path: A folder, a vocabulary file, a hub name, or "bundled".
            use_fast: True for AlbertTokenizerFast, False for AlbertTokenizer; both return the same ids. A
                vocab.txt always loads AlbertWordPieceTokenizer.
            options: See `from_pretrained` of the tokenizer classes.

        Raises:
            ModelNotFoundError: The folder, file or name does not exist.
            TokenizerError: The tokenizer is damaged, belongs to another type of model, or has more pieces
                than the model in the same folder has embeddings.
        """
        hub_options, overrides = split_hub_options(options)
        path = folder.locate(pretrained_model_name_or_path, also=(CONFIG_FILE,), **hub_options)
        file = overrides.get("vocab_file") or overrides.get("tokenizer_file")
        tokenizer_class = _choose(path if file is None else Path(file), use_fast)
        tokenizer = tokenizer_class.load(path, name=pretrained_model_name_or_path, **overrides)
        if file is None:
            # Added tokens do not count: the model may still be resized for them.
            embeddings = folder.read_json(path / CONFIG_FILE).get("vocab_size")
            if isinstance(embeddings, int) and tokenizer.vocab_size > embeddings:
                raise TokenizerError(
                    f"{path}: its tokenizer has {tokenizer.vocab_size:,} pieces, but its model has "
                    f"{embeddings:,} embeddings ({CONFIG_FILE}): they do not belong together."
                )
        return tokenizer


def _choose(path: Path, use_fast: bool | None) -> type[TokenizerBase]:
    """Return the tokenizer class for the files of a folder.

    Each class imports its own library, so only the chosen class is imported.
    """
    model_file, tokenizer_file = folder.find_model_file(path), folder.find(path, folder.TOKENIZER_FILE)
    if model_file is None and tokenizer_file is None and folder.find(path, folder.WORD_LIST_FILE) is None:
        raise folder.missing(
            path, f"a tokenizer: {folder.MODEL_FILE}, {folder.TOKENIZER_FILE} or {folder.WORD_LIST_FILE}"
        )
    is_wordpiece = model_file is None and (
        tokenizer_file is None or folder.has_wordpiece_vocabulary(tokenizer_file)
    )
    config = (path if path.is_dir() else path.parent) / folder.TOKENIZER_CONFIG_FILE
    named = folder.read_json(config).get("tokenizer_class")
    known = _WORDPIECE_CLASSES if is_wordpiece else _CLASSES
    if named is not None and named not in known:
        raise TokenizerError(
            f"{config} names the tokenizer class {named!r}, which does not match the files in the folder. "
            f"Expected one of {', '.join(known)}."
        )
    if is_wordpiece:
        from albertkit.tokenization.wordpiece import AlbertWordPieceTokenizer

        return AlbertWordPieceTokenizer
    from albertkit.tokenization.tokenizer import AlbertTokenizer, AlbertTokenizerFast

    return AlbertTokenizerFast if use_fast or (use_fast is None and model_file is None) else AlbertTokenizer
