"""ALBERT's tokenizer on the Rust library `tokenizers`, with the same answers as `AlbertTokenizer`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

from albertkit.errors import TokenizerError
from albertkit.extras import optional
from albertkit.tokenization import folder
from albertkit.tokenization.base import TokenizerBase
from albertkit.tokenization.model_file import load_processor, read_model_file, read_piece_table
from albertkit.tokenization.normalization import Normalization
from albertkit.tokenization.options import take_settings
from albertkit.tokenization.rust import RustPieceEncoder
from albertkit.tokenization.rust_file import read_tokenizer_file, tokenizer_file
from albertkit.tokenization.tokens import TokenizerSettings

if TYPE_CHECKING:
    import tokenizers
else:
    tokenizers = optional("tokenizers", extra="tokenizers")


class AlbertTokenizerFast(TokenizerBase):
    """Turns texts into what the model reads, and back; needs spiece.model, or tokenizer.json alone.

    Same calls and same answers as `AlbertTokenizer`: offsets, words, special tokens and all. Choose it where
    only a tokenizer.json is at hand; on plain batches SentencePiece is the faster of the two.

    Args:
        vocab_file: the SentencePiece model; wins where both files are given.
        tokenizer_file: the tokenizer.json.
        do_lower_case: lower-case texts; None for what the tokenizer.json does (True where there is none).
        remove_space: strip texts and collapse runs of spaces.
        keep_accents: keep accents and compatibility characters; None as above (False where there is none).
        settings: see `TokenizerSettings`.

    Raises:
        MissingExtraError: the extra `tokenizers` is not installed.
        ModelNotFoundError: there is no such file.
        TokenizerError: neither file was named, it is damaged, or its vocabulary is not ALBERT's.
    """

    is_fast = True
    _cutter: RustPieceEncoder

    def __init__(
        self,
        vocab_file: str | Path | None = None,
        tokenizer_file: str | Path | None = None,
        do_lower_case: bool | None = None,
        remove_space: bool = True,
        keep_accents: bool | None = None,
        **settings: Unpack[TokenizerSettings],
    ) -> None:
        known: dict[str, Any] = {}
        self._model: bytes | None = None
        if vocab_file is not None:
            source = vocab_file
            self._model = read_model_file(vocab_file)
            load_processor(self._model, source=vocab_file)  # which checks it
            with folder.named_damage(vocab_file):
                table = read_piece_table(self._model)
        elif tokenizer_file is not None:
            source = tokenizer_file
            table, known = read_tokenizer_file(Path(tokenizer_file))
        else:
            raise TokenizerError(
                "received no file; expected vocab_file (spiece.model) or tokenizer_file (.json)"
            )
        lower, accents = known.pop("do_lower_case", True), known.pop("keep_accents", False)
        normalization = Normalization(
            do_lower_case=lower if do_lower_case is None else do_lower_case,
            remove_space=remove_space,
            keep_accents=accents if keep_accents is None else keep_accents,
        )
        self.vocab_file = None if vocab_file is None else str(vocab_file)
        with folder.named_damage(source):
            cutter = RustPieceEncoder(table, normalization, source=source)
        super().__init__(
            cutter,
            source=source,
            **cast(TokenizerSettings, {**known, **take_settings(settings)}),
        )

    @property
    def backend_tokenizer(self) -> "tokenizers.Tokenizer":
        """The Rust library's tokenizer as it is saved; it lacks the digit-comma rule."""
        return tokenizers.Tokenizer.from_str(self._rust_file())

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
                raise folder.missing(path, f"{folder.MODEL_FILE} or {folder.RUST_FILE}")
            settings = {**settings, "vocab_file": vocab_file, "tokenizer_file": tokenizer_file}
        return cls(**settings)

    def _vocabulary_files(self) -> dict[str, bytes]:
        files = {folder.RUST_FILE: self._rust_file().encode()}
        return files if self._model is None else {folder.MODEL_FILE: self._model, **files}

    def _rust_file(self) -> str:
        return tokenizer_file(self._cutter.table(), self._cutter.normalization, self._special)
