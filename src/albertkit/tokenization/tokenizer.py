"""ALBERT's tokenizers, which compute the ids of the original from a spiece.model or a tokenizer.json."""

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self, Unpack

import sentencepiece

from albertkit.errors import TokenizerError, reading
from albertkit.tokenization import folder
from albertkit.tokenization.base import TokenizerBase
from albertkit.tokenization.normalization import Normalization
from albertkit.tokenization.settings import TokenizerSettings
from albertkit.tokenization.special_tokens import token_texts
from albertkit.tokenization.tokenizer_json import read_unigram_json
from albertkit.tokenization.unigram import UnigramModel


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

    _model: UnigramModel

    def __init__(
        self,
        vocab_file: str | Path | None = None,
        do_lower_case: bool | None = None,
        remove_space: bool = True,
        keep_accents: bool | None = None,
        tokenizer_file: str | Path | None = None,
        **settings: Unpack[TokenizerSettings],
    ) -> None:
        source = tokenizer_file if vocab_file is None else vocab_file
        if source is None:
            raise TokenizerError(
                "received no file. Expected vocab_file (spiece.model) or tokenizer_file (.json)."
            )
        vocabulary, rules, saved = source, {}, {}
        if vocab_file is None:
            vocabulary, rules, saved = read_unigram_json(Path(source))
        given = {"do_lower_case": do_lower_case, "remove_space": remove_space, "keep_accents": keep_accents}
        rules |= {name: value for name, value in given.items() if value is not None}
        with reading(source, TokenizerError):
            model = UnigramModel(vocabulary, Normalization(**rules))
        self.vocab_file = None if vocab_file is None else str(vocab_file)
        super().__init__(model, source=source, saved=saved, settings=settings)

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

    def train_new_from_iterator(
        self,
        text_iterator: Iterable[str] | Iterable[list[str]],
        vocab_size: int,
        length: int | None = None,  # noqa: ARG002  # of a progress bar that we do not show
        new_special_tokens: Iterable[Any] | None = None,
        special_tokens_map: Mapping[str, str] | None = None,
    ) -> Self:
        """Train a vocabulary on other texts and return a tokenizer with the same settings.

        Args:
            text_iterator: Texts, or batches of texts. It is iterated over once.
            vocab_size: Number of pieces, including special tokens.
            length: Has no effect; accepted for compatibility with `transformers`.
            new_special_tokens: Additional special tokens. Like this tokenizer's added tokens, they get ids
                after the vocabulary.
            special_tokens_map: Must be None: the vocabulary always has ALBERT's special tokens.

        Raises:
            TokenizerError: `special_tokens_map` was passed, or `text_iterator` has other values than texts.
            ConfigError: `vocab_size` is not a whole number of at least 1.
            DataError: The text is too short for this vocabulary size.
        """
        if special_tokens_map:
            raise TokenizerError(
                "special_tokens_map is not supported: a trained vocabulary has ALBERT's special tokens. "
                "Rename a role afterwards, such as tokenizer.pad_token = ..."
            )
        # Import here: reading a vocabulary does not need the training modules.
        from albertkit.tokenization.trainer import train_model

        model, *_ = train_model(text_iterator, vocab_size=vocab_size, normalization=self._model.normalization)
        extra = [*self.extra_special_tokens, *token_texts(new_special_tokens or ())]
        settings: dict[str, Any] = {**self.init_kwargs, "additional_special_tokens": extra}
        with tempfile.TemporaryDirectory() as folder_name:
            file = Path(folder_name) / folder.MODEL_FILE
            file.write_bytes(model)
            trained = type(self)(vocab_file=file, **settings)
        trained.add_tokens(list(self._special.words.values()))
        trained.name_or_path = self.name_or_path
        return trained


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
