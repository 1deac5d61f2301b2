"""The Rust library `tokenizers` as a cutter of plain text.

Rust's Unigram model finds the same best pieces as SentencePiece when it is given the same text and scores:

* user-defined symbols get the score with which SentencePiece always prefers them;
* SentencePiece's normalizer is done in Python (`character_map.py`): the library's own cuts at grapheme
  clusters, and so differs on decomposed text;
* control pieces must not be found in a text, so the model knows them under names that none can hold.

What remains: SentencePiece adds scores in single precision and Rust in double, so two cuts whose scores are
equal but for rounding (`n nn` and `nn n` in a run of letters) may be decided differently. No text of books,
Wikipedia or questions that was tried shows it; 1 in about 15,000 random strings does.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from albertkit.errors import TokenizerError
from albertkit.extras import optional
from albertkit.tokenization.character_map import CharacterMap
from albertkit.tokenization.decoding import MarkedStarts
from albertkit.tokenization.model_file import CONTROL, UNIGRAM, UNKNOWN, WORD_START, PieceTable
from albertkit.tokenization.normalization import Normalization
from albertkit.tokenization.offsets import Alignment, align
from albertkit.tokenization.rust_file import rust_scores
from albertkit.tokenization.unigram import DigitCommaRule, not_unicode

if TYPE_CHECKING:
    import tokenizers
else:
    tokenizers = optional("tokenizers", extra="tokenizers")


class RustPieceEncoder:
    """Cuts plain text into pieces; knows nothing of special tokens, pairs or padding."""

    spelling = MarkedStarts()

    def __init__(self, table: PieceTable, normalization: Normalization, *, source: str | Path) -> None:
        if table.algorithm != UNIGRAM or UNKNOWN not in table.kinds:
            raise TokenizerError(
                f"{source}: expected a Unigram vocabulary with an unknown piece; AlbertTokenizer reads others"
            )
        if not table.usual_spaces:
            raise TokenizerError(
                f"{source}: its NormalizerSpec treats spaces in an unusual way; AlbertTokenizer reads it"
            )
        self.normalization = normalization
        self.size = len(table.pieces)
        self._table = table
        self._load()

    def _load(self) -> None:
        table = self._table
        self._ids = {piece: piece_id for piece_id, piece in enumerate(table.pieces)}
        self._unknown_id = table.kinds.index(UNKNOWN)
        # No text holds a space once the normalizer has turned them into marks.
        names = [
            f" {piece}" if kind in (CONTROL, UNKNOWN) else piece
            for piece, kind in zip(table.pieces, table.kinds, strict=True)
        ]
        vocabulary = list(zip(names, rust_scores(table), strict=True))
        self._tokenizer = tokenizers.Tokenizer(
            tokenizers.models.Unigram(vocabulary, unk_id=self._unknown_id, byte_fallback=False)
        )
        if WORD_START in self._ids and not any(WORD_START in piece[1:] for piece in table.pieces):
            # No piece crosses the start of a word, so words can be cut one by one. The library remembers what
            # it cut, which would else be whole texts.
            self._tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split(WORD_START, "merged_with_next")
        self._character_map = CharacterMap(table)
        if table.character_map:
            tokenizers.normalizers.Precompiled(table.character_map)  # which checks it
        self._rule = DigitCommaRule(
            table.pieces, encode=self._encode, to_ids=self._to_ids, unknown_id=self._unknown_id
        )

    def __getstate__(self) -> dict[str, object]:
        return {"normalization": self.normalization, "size": self.size, "_table": self._table}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._load()

    def pieces(self, text: str) -> list[str]:
        """Return the pieces of one text; an unknown run of characters is its own piece."""
        return self._rule.pieces(self._encode(self.normalization(text)))

    def ids_batch(self, texts: list[str], num_threads: int | None = None) -> list[list[int]]:
        """Return the ids of many texts' pieces, in this thread alone where `num_threads` is 1."""
        encodings = self._cut([self.normalization(text) for text in texts], single=num_threads == 1)
        return self._rule.ids(
            [encoding.ids for encoding in encodings], pieces_of=lambda index: encodings[index].tokens
        )

    def spans(self, text: str) -> list[tuple[str, int, int]]:
        """Return (piece, start, end) for each piece of a text: its characters in the text as given."""
        return self.align(text).spans(self.pieces(text))

    def align(self, text: str) -> Alignment:
        """Return what the model cuts, each character with its place in the text as given."""
        normalized = align(text, self.normalization)
        return normalized.then(*self._character_map.with_offsets(normalized.text))

    def token_to_id(self, piece: str) -> int | None:
        """Return the id of a piece, None where it is not in the vocabulary."""
        return self._ids.get(piece)

    def id_to_token(self, piece_id: int) -> str:
        """Return the piece of an id."""
        return self._table.pieces[piece_id]

    def table(self) -> PieceTable:
        """Return all pieces with scores and kinds, and the normalizer's table."""
        return self._table

    def _encode(self, normalized: str) -> list[str]:
        return self._cut([normalized], single=True)[0].tokens

    def _cut(self, normalized: list[str], *, single: bool) -> "list[tokenizers.Encoding]":
        try:
            marked = [self._character_map(text) for text in normalized]
            if single:
                return [self._tokenizer.encode(text, add_special_tokens=False) for text in marked]
            return self._tokenizer.encode_batch_fast(marked, add_special_tokens=False)
        except (TypeError, UnicodeEncodeError) as error:
            raise not_unicode(normalized) from error

    def _to_ids(self, pieces: list[str]) -> list[int]:
        return [self._ids.get(piece, self._unknown_id) for piece in pieces]
