"""Word boundaries in a row of ids, and the ids that are not text; read once from a vocabulary.

A new word begins at a piece with SentencePiece's word-start mark, at punctuation and symbols, and after them.
In scripts that are written without spaces (Chinese, Japanese, Thai ...), every piece is a word, as in the
original: there the pieces of a unigram vocabulary are the most common words of the text. Apostrophes stay
inside their word ("don't" is one word). A lone word-start mark belongs to the next piece. A special token is
a word of its own.
"""

import string
import unicodedata
from pathlib import Path

import numpy as np
import sentencepiece

from albertkit.errors import TokenizerError
from albertkit.tokenization.model_file import WORD_START

_APOSTROPHES = {"'", "\N{RIGHT SINGLE QUOTATION MARK}"}
_UNSPACED_SCRIPTS = ("CJK", "HIRAGANA", "KATAKANA", "BOPOMOFO", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")

# The original: a piece begins a word if it is one of these symbols, or has any character that is neither one
# of them nor an English letter (the word-start mark, a digit, an apostrophe, an accented letter).
_ORIGINAL_SYMBOLS = frozenset(string.punctuation) - frozenset("'<=>")
_ORIGINAL_INSIDE = _ORIGINAL_SYMBOLS | frozenset(string.ascii_lowercase)


class WordTable:
    """Properties of every id of a vocabulary, as arrays indexed by id."""

    def __init__(self, model_file: str | Path) -> None:
        processor = sentencepiece.SentencePieceProcessor(model_file=str(model_file))
        self.model_file = Path(model_file)
        self.size: int = processor.get_piece_size()
        self.pieces = pieces = [processor.id_to_piece(index) for index in range(self.size)]
        self.cls, self.sep, self.mask, self.pad = (
            self._special(processor, pieces, name) for name in ("[CLS]", "[SEP]", "[MASK]", "<pad>")
        )
        self.is_special = np.array(
            [
                processor.is_control(index) or processor.is_unknown(index) or processor.is_unused(index)
                for index in range(self.size)
            ]
        )
        self.is_special[[self.cls, self.sep, self.mask, self.pad]] = True
        self._begins = np.array([_begins_word(piece) for piece in pieces]) | self.is_special
        self._next_begins = np.array([_ends_word(piece) for piece in pieces]) | self.is_special
        self._next_continues = np.array([piece == WORD_START for piece in pieces])
        self._original_begins = np.array([_begins_word_in_the_original(piece) for piece in pieces])
        # For drawing a random ordinary id that differs from a given one.
        self.ordinary_ids = np.flatnonzero(~self.is_special)
        self.ordinary_rank = np.cumsum(~self.is_special) - 1

    def __reduce__(self) -> tuple[type["WordTable"], tuple[Path]]:
        # Small, for the same reason as in `ShardSet`.
        return WordTable, (self.model_file,)

    def _special(self, processor: sentencepiece.SentencePieceProcessor, pieces: list[str], name: str) -> int:
        index: int = processor.piece_to_id(name)
        if pieces[index] != name:
            raise TokenizerError(
                f"{self.model_file}: the vocabulary has no piece {name!r}, which pretraining needs"
            )
        return index

    def starts(self, ids: np.ndarray) -> np.ndarray:
        """Return for each of `ids` [tokens] whether a word begins there; the first one always does."""
        result = self._begins[ids]
        before = ids[:-1]
        result[1:] |= self._next_begins[before]
        result[1:] &= ~self._next_continues[before] | self.is_special[ids[1:]]
        result[:1] = True
        return result

    def original_starts(self, ids: np.ndarray) -> np.ndarray:
        """Return the same [tokens] with the rule of the original, which depends on each piece alone."""
        return self._original_begins[ids]


def _begins_word(piece: str) -> bool:
    if piece.startswith(WORD_START) or _is_symbol(piece):
        return True
    return _is_unspaced(piece[0])


def _ends_word(piece: str) -> bool:
    return _is_symbol(piece) or _is_unspaced(piece[-1])


def _begins_word_in_the_original(piece: str) -> bool:
    return piece in _ORIGINAL_SYMBOLS or any(char.lower() not in _ORIGINAL_INSIDE for char in piece)


def _is_unspaced(char: str) -> bool:
    return unicodedata.name(char, "").startswith(_UNSPACED_SCRIPTS)


def _is_symbol(piece: str) -> bool:
    text = piece.removeprefix(WORD_START)
    if not text or text in _APOSTROPHES:
        return False
    return not any(unicodedata.category(char)[0] in "LNM" for char in text)
