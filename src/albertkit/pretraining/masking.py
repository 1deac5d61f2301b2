"""Whole-word n-gram masking (Lan et al. 2020, section 4.1, after SpanBERT), for all rows of a batch at once.

An n-gram of n <= 3 whole words is masked with p(n) = (1/n) / sum(1/k), until round(15%) of the tokens are
chosen. Each of these independently becomes [MASK] (80%), a random other token (10%), or stays (10%). The
original drops an n-gram that overlaps a masked one, which favors short ones. Here all words are first divided
into n-grams, of which random ones are chosen. So they cannot overlap.

A new word begins at a piece with SentencePiece's word-start mark, at punctuation and symbols, and after
them. In scripts that are written without spaces (Chinese, Japanese, Thai ...), every piece is a
word, as in the original: there the pieces of a unigram vocabulary are the most common words of the text.
Apostrophes stay inside their word ("don't" is one word). A lone word-start mark belongs to the next piece. A
special token is a word of its own.

Legend: M tokens of all rows without padding, B rows, W words, G n-grams.
"""

import string
import unicodedata
from pathlib import Path

import numpy as np

from albertkit.errors import TokenizerError
from albertkit.pretraining.settings import ExampleSettings
from albertkit.tokenization.model_file import WORD_START, load_processor

MASK_SHARE, RANDOM_SHARE = 0.8, 0.1  # the rest is kept

_APOSTROPHES = {"'", "\N{RIGHT SINGLE QUOTATION MARK}"}
_UNSPACED_SCRIPTS = ("CJK", "HIRAGANA", "KATAKANA", "BOPOMOFO", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")

# The original: a piece begins a word if it is one of these symbols, or has any character that is neither one
# of them nor an English letter (the word-start mark, a digit, an apostrophe, an accented letter).
_ORIGINAL_SYMBOLS = frozenset(string.punctuation) - frozenset("'<=>")
_ORIGINAL_INSIDE = _ORIGINAL_SYMBOLS | frozenset(string.ascii_lowercase)


class WordTable:
    """Properties of every id of a vocabulary, as arrays indexed by id."""

    def __init__(self, model_file: str | Path) -> None:
        self.model_file = Path(model_file)
        processor = load_processor(self.model_file.read_bytes(), source=self.model_file)
        self.size: int = processor.get_piece_size()
        self.pieces = pieces = [processor.id_to_piece(index) for index in range(self.size)]
        special = ("[CLS]", "[SEP]", "[MASK]", "<pad>")
        if missing := [name for name in special if name not in pieces]:
            raise TokenizerError(f"{model_file} lacks {', '.join(missing)}, which pretraining needs")
        self.cls, self.sep, self.mask, self.pad = map(processor.piece_to_id, special)
        self.is_special = np.array(
            [
                processor.is_control(index) or processor.is_unknown(index) or processor.is_unused(index)
                for index in range(self.size)
            ]
        )
        self.is_special[[self.cls, self.sep, self.mask, self.pad]] = True
        symbols = np.array([_is_symbol(piece) for piece in pieces]) | self.is_special
        self._begins = symbols | [piece.startswith(WORD_START) or _is_unspaced(piece[0]) for piece in pieces]
        self._next_begins = symbols | [_is_unspaced(piece[-1]) for piece in pieces]
        self._next_continues = np.array([piece == WORD_START for piece in pieces])
        self._original_begins = np.array(
            [
                piece in _ORIGINAL_SYMBOLS or any(char.lower() not in _ORIGINAL_INSIDE for char in piece)
                for piece in pieces
            ]
        )
        # For drawing a random ordinary id that differs from a given one.
        self.ordinary_ids = np.flatnonzero(~self.is_special)
        self.ordinary_rank = np.cumsum(~self.is_special) - 1

    def __reduce__(self) -> tuple[type["WordTable"], tuple[Path]]:
        # Small, for the same reason as in `ShardSet`.
        return WordTable, (self.model_file,)

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


def _is_unspaced(char: str) -> bool:
    return unicodedata.name(char, "").startswith(_UNSPACED_SCRIPTS)


def _is_symbol(piece: str) -> bool:
    text = piece.removeprefix(WORD_START)
    if not text or text in _APOSTROPHES:
        return False
    return not any(unicodedata.category(char)[0] in "LNM" for char in text)


def budget(lengths: np.ndarray, settings: ExampleSettings) -> np.ndarray:
    """Return how many tokens are masked in rows of these lengths, which include special tokens."""
    share = np.round(lengths * settings.masked_lm_probability).astype(np.int64)
    return np.clip(share, 1, settings.most_predictions)


def ngram_lengths(count: int, max_ngram: int, rng: np.random.Generator) -> np.ndarray:
    """Draw lengths in words with p(n) = (1/n) / sum(1/k)."""
    weights = 1 / np.arange(1, max_ngram + 1)
    edges = np.cumsum(weights / weights.sum())[:-1]
    return np.searchsorted(edges, rng.random(count), side="right") + 1


def choose(
    ids: np.ndarray,
    lengths: np.ndarray,
    words: WordTable,
    settings: ExampleSettings,
    rng: np.random.Generator,
) -> np.ndarray:
    """Return whether each token of `ids` [M] is chosen to be masked, [M].

    The rows have `lengths` [B] and special tokens, and are one after the other.
    """
    starts = np.flatnonzero(words.starts(ids))  # [W]
    sizes = np.diff(starts, append=len(ids))  # [W] in tokens
    special = words.is_special[ids[starts]]
    remaining = budget(lengths, settings)

    # Divide the words into n-grams. Special tokens, which begin and end each row, are cut out. An n-gram that
    # this cuts comes last in its row, because an n-gram needs room.
    drawn = ngram_lengths(len(starts), settings.max_ngram, rng)
    drawn = drawn[: np.searchsorted(np.cumsum(drawn), len(starts)) + 1]
    begins = np.zeros(len(starts), dtype=bool)
    begins[np.cumsum(drawn)[:-1]] = True
    begins[0] = True
    drawn = np.repeat(drawn, drawn)[: len(starts)]  # [W] length of the n-gram of each word as drawn
    begins |= special
    begins[1:] |= special[:-1]
    first = np.flatnonzero(begins)  # [G] first word
    num_words = np.diff(first, append=len(starts))
    first_token = starts[first]
    num_tokens = np.diff(first_token, append=len(ids))
    row = np.searchsorted(np.cumsum(lengths), first_token, side="right")  # [G]
    is_cut = num_words < drawn[first]

    # Of each row, take n-grams in random order while the budget suffices.
    order = np.argsort(2 * row + rng.random(len(first)) + is_cut)
    order = order[~special[first[order]]]
    tokens = num_tokens[order]
    row = row[order]
    total = np.cumsum(tokens)
    before = np.where(np.diff(row, prepend=-1) != 0, total - tokens, 0)
    total -= np.maximum.accumulate(before)  # of the row
    fits = total <= remaining[row]
    chosen = np.zeros(len(first), dtype=bool)
    chosen[order[fits]] = True
    masked = np.repeat(chosen, num_words)  # [W]
    remaining -= np.bincount(row[fits], weights=tokens[fits], minlength=len(lengths)).astype(np.int64)

    # Fill the rest of the budgets with words of the n-grams that did not fit.
    rest = order[~fits]
    word = spread(first[rest], num_words[rest])
    row = np.repeat(row[~fits], num_words[rest])
    while len(word):
        fits = sizes[word] <= remaining[row]
        word, row = word[fits], row[fits]
        is_next = np.diff(row, prepend=-1) != 0  # the first word of each row
        masked[word[is_next]] = True
        remaining[row[is_next]] -= sizes[word[is_next]]
        word, row = word[~is_next], row[~is_next]
    return np.repeat(masked, sizes)


def spread(begins: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the indices in all ranges that have these beginnings and lengths, one range after the other."""
    return np.arange(lengths.sum()) + np.repeat(begins - np.cumsum(lengths) + lengths, lengths)


def hide(
    ids: np.ndarray,
    masked: np.ndarray,
    words: WordTable,
    rng: np.random.Generator,
    *,
    replace_with_any: bool = False,
) -> np.ndarray:
    """Return the ids [M] as the model sees them: the chosen tokens are masked, replaced or kept.

    With `replace_with_any`, random tokens come from the whole vocabulary, including special tokens and the
    original token, as in the original code.
    """
    labels = ids[masked]
    draw = rng.random(len(labels))
    if replace_with_any:
        random_ids = rng.integers(words.size, size=len(labels))
    else:
        # Draw one of the other ordinary ids with equal probability: skip the rank of the original.
        rank = rng.integers(len(words.ordinary_ids) - 1, size=len(labels))
        rank += rank >= words.ordinary_rank[labels]
        random_ids = words.ordinary_ids[rank]
    replaced = np.where(draw < MASK_SHARE, words.mask, random_ids)
    seen = ids.copy()
    seen[masked] = np.where(draw < MASK_SHARE + RANDOM_SHARE, replaced, labels)
    return seen
