"""From a text to SentencePiece pieces and ids, exactly as the original ALBERT did.

A piece that ends in a digit and a comma is split: its digits are encoded again and the comma stands
alone, because the original vocabulary holds pieces such as `▁1990,` that its own tokenizer never used.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from albertkit.cores import usable_cores
from albertkit.errors import TokenizerError
from albertkit.tokenization.decoding import MarkedStarts
from albertkit.tokenization.model_file import (
    WORD_START,
    PieceTable,
    load_processor,
    read_model_file,
    read_piece_table,
)
from albertkit.tokenization.normalization import Normalization
from albertkit.tokenization.offsets import Alignment, align

# Below this many texts, starting threads costs more than it saves.
_TEXTS_WORTH_THREADS = 16
_TEXTS_OF_A_PART = 512


class DigitCommaRule:
    """Splits pieces that end in a digit and a comma.

    `pieces` is the rule as it reads. `ids` is its fast twin: what the rule makes of a piece depends on the
    piece alone, so all of its effects are a small table from one id to several.
    """

    def __init__(
        self,
        vocabulary: Iterable[str],
        *,
        encode: Callable[[str], list[str]],
        to_ids: Callable[[list[str]], list[int]],
        unknown_id: int,
    ) -> None:
        self._encode = encode
        self._to_ids = to_ids
        self._ids = {
            piece_id: to_ids(self._split(piece))
            for piece_id, piece in enumerate(vocabulary)
            if self.applies_to(piece)
        }
        # An unknown piece is a run of unknown characters; it can end in a comma only where the vocabulary
        # lacks the comma, and then its text, not its id, decides.
        self._undecided_id = unknown_id if to_ids([","]) == [unknown_id] else -1
        self._affected = frozenset([*self._ids, self._undecided_id])

    def pieces(self, pieces: list[str]) -> list[str]:
        """Apply the rule to the pieces of a text."""
        return [
            part for piece in pieces for part in (self._split(piece) if self.applies_to(piece) else [piece])
        ]

    def ids(self, rows: list[list[int]], *, pieces_of: Callable[[int], list[str]]) -> list[list[int]]:
        """Apply the rule to the ids of many texts; `pieces_of(row)` cuts a text whose ids do not decide."""
        for index, row in enumerate(rows):
            if self._affected.isdisjoint(row):
                continue
            if self._undecided_id in row:
                rows[index] = self._to_ids(self.pieces(pieces_of(index)))
            else:
                rows[index] = [part for one in row for part in self._ids.get(one, (one,))]
        return rows

    @staticmethod
    def applies_to(piece: str) -> bool:
        """Whether a piece is one that the rule splits."""
        return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()

    def _split(self, piece: str) -> list[str]:
        digits = self._encode(piece[:-1].replace(WORD_START, ""))
        if piece[0] != WORD_START and digits and digits[0][0] == WORD_START:
            # Encoded alone, the digits got a word start that they did not have.
            digits = digits[1:] if len(digits[0]) == 1 else [digits[0][1:], *digits[1:]]
        return [*digits, ","]


class UnigramModel:
    """Cuts plain text into pieces; knows nothing of special tokens, pairs or padding."""

    spelling = MarkedStarts()

    def __init__(self, model_file: str | Path, normalization: Normalization) -> None:
        self.normalization = normalization
        self.model = read_model_file(model_file)
        self._load(source=model_file)

    def _load(self, *, source: str | Path) -> None:
        self.processor = load_processor(self.model, source=source)
        self.size: int = self.processor.get_piece_size()
        self._rule = DigitCommaRule(
            self.processor.id_to_piece(list(range(self.size))),
            encode=self._encode,
            to_ids=self.processor.piece_to_id,
            unknown_id=self.processor.unk_id(),
        )

    def __getstate__(self) -> dict[str, object]:
        return {"normalization": self.normalization, "model": self.model}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._load(source="pickled tokenizer")

    def pieces(self, text: str) -> list[str]:
        """Return the pieces of one text; an unknown run of characters is its own piece."""
        return self._rule.pieces(self._encode(self.normalization(text)))

    def ids(self, text: str) -> list[int]:
        """Return the ids of one text's pieces."""
        return self.ids_batch([text])[0]

    def ids_batch(self, texts: list[str], num_threads: int | None = None) -> list[list[int]]:
        """Return the ids of many texts' pieces, computed in `num_threads` threads (all cores by default)."""
        if num_threads is None:
            num_threads = usable_cores() if len(texts) >= _TEXTS_WORTH_THREADS else 1
        try:
            if num_threads == 1 or len(texts) < 2 * _TEXTS_OF_A_PART:
                return self._ids(texts, num_threads)
            # While SentencePiece cuts one part without Python's lock, other threads normalize the next.
            parts = [
                texts[start : start + _TEXTS_OF_A_PART] for start in range(0, len(texts), _TEXTS_OF_A_PART)
            ]
            with ThreadPoolExecutor(num_threads) as threads:
                return [row for rows in threads.map(self._ids, parts) for row in rows]
        except (RuntimeError, TypeError) as error:  # of one text; of several
            raise not_unicode(texts) from error

    def _ids(self, texts: list[str], num_threads: int = 1) -> list[list[int]]:
        normalized = [self.normalization(text) for text in texts]
        if len(texts) < _TEXTS_WORTH_THREADS:
            rows = [self.processor.encode(text) for text in normalized]
        else:
            rows = self.processor.encode(normalized, num_threads=num_threads)
        return self._rule.ids(rows, pieces_of=lambda index: self._encode(normalized[index]))

    def spans(self, text: str) -> list[tuple[str, int, int]]:
        """Return (piece, start, end) for each piece of a text: its characters in the text as given."""
        return self.align(text).spans(self.pieces(text))

    def align(self, text: str) -> Alignment:
        """Return what SentencePiece cuts, each character with its place in the text as given."""
        normalized = align(text, self.normalization)
        return normalized.then(*self.processor.normalize(normalized.text, with_offsets=True))

    def token_to_id(self, piece: str) -> int | None:
        """Return the id of a piece, None where it is not in the vocabulary."""
        piece_id = self.processor.piece_to_id(piece)
        known = piece_id != self.processor.unk_id() or self.processor.id_to_piece(piece_id) == piece
        return piece_id if known else None

    def id_to_token(self, piece_id: int) -> str:
        """Return the piece of an id."""
        return self.processor.id_to_piece(piece_id)

    def table(self) -> PieceTable:
        """Return all pieces with scores and kinds, and the normalizer's table."""
        return read_piece_table(self.model)

    def _encode(self, normalized: str) -> list[str]:
        try:
            return self.processor.encode(normalized, out_type=str)
        except RuntimeError as error:
            raise not_unicode([normalized]) from error


def not_unicode(texts: list[str]) -> TokenizerError:
    """Quote what could not be handed to a tokenizer library: those take UTF-8.

    Callers number their texts themselves: these may be parts of texts.
    """
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            shown = text[max(0, error.start - 30) : error.start + 30]
            return TokenizerError(
                f"the text {shown!r} holds a lone surrogate ({text[error.start]!r}), which no UTF-8 text "
                "can; decode the original bytes with errors='replace'"
            )
    return TokenizerError("SentencePiece could not encode the texts")
