"""ALBERT's tokenizer on SentencePiece, with the answers of the original."""

from pathlib import Path
from typing import Any, Self, Unpack, cast

import sentencepiece

from albertkit.errors import TokenizerError
from albertkit.tokenization import folder
from albertkit.tokenization.base import TokenizerBase
from albertkit.tokenization.model_file import UNIGRAM
from albertkit.tokenization.normalization import Normalization
from albertkit.tokenization.rust_file import tokenizer_file
from albertkit.tokenization.tokens import TokenizerSettings
from albertkit.tokenization.unigram import UnigramModel


class AlbertTokenizer(TokenizerBase):
    """Turns texts into what the model reads, and back.

        tokenizer = AlbertTokenizer.from_pretrained("albert-base-v2")
        tokenizer("Plants create [MASK].", return_tensors="pt")

    From a tokenizer.json alone (`transformers` 5 saves such folders) it is an `AlbertTokenizerFast`: its
    answers are the same.

    Args:
        vocab_file: the SentencePiece model (spiece.model, 30k-clean.model, .spm).
        tokenizer_file: a tokenizer.json; without a `vocab_file`, what is built is an `AlbertTokenizerFast`.
        do_lower_case: lower-case texts.
        remove_space: strip texts and collapse runs of spaces.
        keep_accents: keep accents and compatibility characters as they are.
        settings: see `TokenizerSettings`.

    Raises:
        ModelNotFoundError: there is no such file.
        TokenizerError: the file is not a SentencePiece model, or lacks ALBERT's special tokens.
    """

    is_fast = False
    _cutter: UnigramModel

    def __new__(
        cls,
        vocab_file: str | Path | None = None,
        do_lower_case: bool | None = None,
        remove_space: bool = True,
        keep_accents: bool | None = None,
        tokenizer_file: str | Path | None = None,
        **settings: Any,
    ) -> Self:
        """Return the twin on the Rust library where a tokenizer.json is all there is."""
        if vocab_file is not None or tokenizer_file is None:
            return super().__new__(cls)
        # Loading the Rust library takes time that only such a file should cost. The type is not what
        # `Self` promises; the interface is.
        from albertkit.tokenization.fast import AlbertTokenizerFast

        rules = (do_lower_case, remove_space, keep_accents)
        return cast(Self, AlbertTokenizerFast(None, tokenizer_file, *rules, **settings))

    def __init__(
        self,
        vocab_file: str | Path | None = None,
        do_lower_case: bool = True,
        remove_space: bool = True,
        keep_accents: bool = False,
        tokenizer_file: str | Path | None = None,  # noqa: ARG002  # what `vocab_file` says is all
        **settings: Unpack[TokenizerSettings],
    ) -> None:
        if vocab_file is None:
            raise TokenizerError(
                "received no file; expected vocab_file (spiece.model) or tokenizer_file (.json)"
            )
        normalization = Normalization(
            do_lower_case=do_lower_case, remove_space=remove_space, keep_accents=keep_accents
        )
        with folder.named_damage(vocab_file):
            cutter = UnigramModel(vocab_file, normalization)
        super().__init__(cutter, source=vocab_file, **settings)
        self.vocab_file = str(vocab_file)

    @property
    def sp_model(self) -> sentencepiece.SentencePieceProcessor:
        """The SentencePiece processor that cuts texts into pieces."""
        return self._cutter.processor

    @property
    def remove_space(self) -> bool:
        """Whether texts are stripped and runs of spaces collapsed."""
        return self._cutter.normalization.remove_space

    @property
    def keep_accents(self) -> bool:
        """Whether texts keep their accents."""
        return self._cutter.normalization.keep_accents

    @classmethod
    def _from_path(cls, path: Path, settings: dict[str, Any]) -> Self:
        if settings.get("vocab_file") is None and settings.get("tokenizer_file") is None:
            vocab_file, tokenizer_file = folder.find_model_file(path), folder.find_rust_file(path)
            if vocab_file is None and tokenizer_file is None:
                raise folder.missing(
                    path, f"a SentencePiece model ({folder.MODEL_FILE}), or {folder.RUST_FILE} in its place"
                )
            settings = {**settings, "vocab_file": vocab_file, "tokenizer_file": tokenizer_file}
        return cls(**settings)

    def _vocabulary_files(self) -> dict[str, bytes]:
        files = {folder.MODEL_FILE: self._cutter.model}
        table = self._cutter.table()
        if table.algorithm == UNIGRAM and table.usual_spaces:
            with folder.named_damage(self.vocab_file):
                rust = tokenizer_file(table, self._cutter.normalization, self._special)
            files[folder.RUST_FILE] = rust.encode()
        return files
