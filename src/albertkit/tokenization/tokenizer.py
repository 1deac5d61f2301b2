"""ALBERT's tokenizers, and `AutoTokenizer`, which chooses the class for the files of a folder."""

from pathlib import Path
from typing import Any, Unpack

import sentencepiece

from albertkit.config import CONFIG_FILE
from albertkit.errors import TokenizerError
from albertkit.hub import split_hub_options
from albertkit.tokenization import folder
from albertkit.tokenization.base import TokenizerBase
from albertkit.tokenization.folder import TokenizerSettings
from albertkit.tokenization.tokenizer_json import is_wordpiece
from albertkit.tokenization.unigram import UnigramModel
from albertkit.tokenization.wordpiece import AlbertWordPieceTokenizer

_CLASSES = ("AlbertTokenizer", "AlbertTokenizerFast", "PreTrainedTokenizerFast", "TokenizersBackend")
"""Values of `tokenizer_class` in `tokenizer_config.json` that mean ALBERT's own classes; `transformers`
writes the last two for a bare tokenizer.json."""
_WORDPIECE_CLASSES = ("AlbertWordPieceTokenizer", "BertTokenizer", "BertTokenizerFast", *_CLASSES)
"""The same values for a WordPiece vocabulary. Folders of Chinese models often name ALBERT's usual class."""


class AlbertTokenizer(TokenizerBase):
    """Converts texts to model inputs and ids back to text.

        tokenizer = AlbertTokenizer.from_pretrained("albert-base-v2")
        tokenizer("Plants create [MASK].", return_tensors="pt")

    SentencePiece splits the texts. A tokenizer.json is first converted to a SentencePiece model with the same
    ids and offsets.

    Args:
        vocab_file: The SentencePiece model (spiece.model, 30k-clean.model, .spm). It takes precedence over
            `tokenizer_file`.
        do_lower_case: Whether to lower-case texts. None uses the rule of the tokenizer.json, or True.
        remove_space: Whether to strip texts and collapse runs of spaces.
        keep_accents: Whether to keep accents and compatibility characters. None uses the rule of the
            tokenizer.json, or False.
        tokenizer_file: The tokenizer.json of a Unigram vocabulary.
        settings: See `TokenizerSettings`.

    Raises:
        ModelNotFoundError: The file does not exist.
        TokenizerError: No file was passed, the file is damaged or has another format, or its vocabulary lacks
            ALBERT's special tokens.
    """

    model_class = UnigramModel

    def __init__(
        self,
        vocab_file: str | Path | None = None,
        do_lower_case: bool | None = None,
        remove_space: bool = True,
        keep_accents: bool | None = None,
        tokenizer_file: str | Path | None = None,
        **settings: Unpack[TokenizerSettings],
    ) -> None:
        rules = {"do_lower_case": do_lower_case, "remove_space": remove_space, "keep_accents": keep_accents}
        super().__init__(vocab_file, tokenizer_file, rules, settings)

    @property
    def sp_model(self) -> sentencepiece.SentencePieceProcessor:
        """The SentencePiece processor that splits texts into pieces."""
        return self._model.processor

    @property
    def remove_space(self) -> bool:
        """Whether texts are stripped and runs of spaces collapsed."""
        return self._model.normalization.remove_space

    @property
    def keep_accents(self) -> bool:
        """Whether texts keep their accents."""
        return self._model.normalization.keep_accents


class AlbertTokenizerFast(AlbertTokenizer):
    """`AlbertTokenizer` with the name and argument order of the fast class of `transformers`."""

    def __init__(
        self,
        vocab_file: str | Path | None = None,
        tokenizer_file: str | Path | None = None,
        do_lower_case: bool | None = None,
        remove_space: bool = True,
        keep_accents: bool | None = None,
        **settings: Unpack[TokenizerSettings],
    ) -> None:
        super().__init__(
            vocab_file, do_lower_case, remove_space, keep_accents, tokenizer_file=tokenizer_file, **settings
        )


class AutoTokenizer:
    """Loads an AlbertTokenizer, AlbertTokenizerFast or AlbertWordPieceTokenizer, depending on the files."""

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
                sizes = f"{tokenizer.vocab_size:,} pieces, but its model has {embeddings:,} embeddings"
                raise TokenizerError(f"{path}: its tokenizer has {sizes}: they do not belong together.")
        return tokenizer


def _choose(path: Path, use_fast: bool | None) -> type[TokenizerBase]:
    """Return the tokenizer class for the files of a folder."""
    model_file, tokenizer_file, word_list = (
        folder.find(path, name) for name in (folder.MODEL_FILE, folder.TOKENIZER_FILE, folder.WORD_LIST_FILE)
    )
    if model_file is None and tokenizer_file is None and word_list is None:
        raise folder.missing(path, "a tokenizer: spiece.model, tokenizer.json or vocab.txt")
    has_words = model_file is None and (tokenizer_file is None or is_wordpiece(tokenizer_file))
    config = (path if path.is_dir() else path.parent) / folder.TOKENIZER_CONFIG_FILE
    named, known = (
        folder.read_json(config).get("tokenizer_class"),
        _WORDPIECE_CLASSES if has_words else _CLASSES,
    )
    if named is not None and named not in known:
        raise TokenizerError(f"{config} names the tokenizer class {named!r}, not one of {known}")
    if has_words:
        return AlbertWordPieceTokenizer
    return AlbertTokenizerFast if use_fast or (use_fast is None and model_file is None) else AlbertTokenizer
