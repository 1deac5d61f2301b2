"""ALBERT's tokenizer on SentencePiece, with the answers of the original."""

from pathlib import Path
from typing import Any, Self, Unpack, cast

import sentencepiece

from albertkit.tokenization import folder
from albertkit.tokenization.interface import TokenizerInterface
from albertkit.tokenization.model_file import UNIGRAM
from albertkit.tokenization.normalization import Normalization
from albertkit.tokenization.pieces import PieceEncoder
from albertkit.tokenization.tokens import TokenizerSettings


class AlbertTokenizer(TokenizerInterface):
    """Turns texts into what the model reads, and back.

        tokenizer = AlbertTokenizer.from_pretrained("albert-base-v2")
        tokenizer("Plants create [MASK].", return_tensors="pt")

    From a folder with a tokenizer.json and no SentencePiece model (`transformers` 5 saves such),
    `from_pretrained` returns an `AlbertTokenizerFast`: its answers are the same.

    Args:
        vocab_file: the SentencePiece model (spiece.model, 30k-clean.model, .spm).
        do_lower_case: lower-case texts.
        remove_space: strip texts and collapse runs of spaces.
        keep_accents: keep accents and compatibility characters as they are.
        settings: see `TokenizerSettings`.

    Raises:
        ModelNotFoundError: there is no such file.
        TokenizerError: the file is not a SentencePiece model, or lacks ALBERT's special tokens.
    """

    is_fast = False
    _cutter: PieceEncoder

    def __init__(
        self,
        vocab_file: str | Path,
        do_lower_case: bool = True,
        remove_space: bool = True,
        keep_accents: bool = False,
        **settings: Unpack[TokenizerSettings],
    ) -> None:
        normalization = Normalization(
            do_lower_case=do_lower_case, remove_space=remove_space, keep_accents=keep_accents
        )
        super().__init__(PieceEncoder(vocab_file, normalization), source=vocab_file, **settings)
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
        vocab_file = folder.find_model_file(path)
        if vocab_file is not None:
            return cls(vocab_file, **settings)
        if folder.find_rust_file(path) is None:
            raise folder.missing(
                path, f"a SentencePiece model ({folder.MODEL_FILE}), or {folder.RUST_FILE} in its place"
            )
        # Loading the Rust library takes time that only such a folder should cost. The type is not what
        # `Self` promises; the interface is.
        from albertkit.tokenization.fast import AlbertTokenizerFast

        return cast(Self, AlbertTokenizerFast._from_path(path, settings))

    def _vocabulary_files(self) -> dict[str, bytes]:
        files = {folder.MODEL_FILE: self._cutter.model}
        table = self._cutter.table()
        if table.algorithm == UNIGRAM and table.usual_spaces:
            # Loading the Rust library takes time that only saving should pay.
            from albertkit.tokenization.rust import build_tokenizer

            rust = build_tokenizer(table, self._cutter.normalization, self._special)
            files[folder.RUST_FILE] = rust.to_str(pretty=True).encode()
        return files
