"""Whole-word n-gram masking (Lan et al. 2020, section 4.1, after SpanBERT).

An n-gram of n <= 3 whole words is masked with p(n) = (1/n) / sum(1/k), until round(15%) of the tokens are
chosen. Each of these independently becomes [MASK] (80%), a random other token (10%), or stays (10%). The
original drops an n-gram that overlaps a masked one, which favors short ones; here it is placed elsewhere.
"""

import numpy as np

from albertkit.pretraining.settings import ExampleSettings
from albertkit.pretraining.words import WordTable

MASK_SHARE, RANDOM_SHARE = 0.8, 0.1  # the rest is kept
_TRIES = 8  # positions tried for an n-gram before it is shortened


def budget(num_tokens: int, settings: ExampleSettings) -> int:
    """Return how many of `num_tokens` tokens (including special tokens, as in the original) are masked."""
    return min(settings.most_predictions, max(1, round(num_tokens * settings.masked_lm_probability)))


def ngram_lengths(count: int, max_ngram: int, rng: np.random.Generator) -> list[int]:
    """Draw `count` lengths in words with p(n) = (1/n) / sum(1/k)."""
    weights = 1 / np.arange(1, max_ngram + 1)
    edges = np.cumsum(weights / weights.sum())[:-1]
    return (np.searchsorted(edges, rng.random(count), side="right") + 1).tolist()


def choose(
    ids: np.ndarray, words: WordTable, settings: ExampleSettings, rng: np.random.Generator
) -> tuple[np.ndarray, list[int]]:
    """Choose the positions to mask in a row of ids.

    Returns:
        The chosen positions [P] in ascending order, and the lengths in words of the n-grams chosen.
    """
    starts = np.flatnonzero(words.starts(ids))
    ends = np.append(starts[1:], len(ids))
    # Special tokens are separate words, so no n-gram spans one.
    ordinary = ~words.is_special[ids[starts]]
    free: list[bool] = ordinary.tolist()
    candidates: list[int] = np.flatnonzero(ordinary).tolist()
    if not candidates:
        return np.zeros(0, dtype=np.int64), []
    first, last = starts.tolist(), ends.tolist()
    remaining = budget(len(ids), settings)

    # Draw all random numbers of a row in two calls: an attempt needs one position, an n-gram one length.
    lengths = ngram_lengths(remaining, settings.max_ngram, rng)
    places = iter(rng.integers(len(candidates), size=remaining * _TRIES * settings.max_ngram).tolist())

    spans: list[tuple[int, int]] = []
    chosen: list[int] = []
    for drawn in lengths:
        if not remaining:
            break
        length = drawn
        while length:
            for _ in range(_TRIES):
                word = candidates[next(places)]
                end = word + length
                if end > len(free) or not all(free[word:end]):
                    continue
                if last[end - 1] - first[word] <= remaining:
                    break
            else:
                length -= 1
                continue
            free[word:end] = [False] * length
            spans.append((first[word], last[end - 1]))
            chosen.append(length)
            remaining -= last[end - 1] - first[word]
            break
    positions = [position for begin, stop in sorted(spans) for position in range(begin, stop)]
    return np.array(positions, dtype=np.int64), chosen


def hide(
    ids: np.ndarray,
    positions: np.ndarray,
    words: WordTable,
    rng: np.random.Generator,
    *,
    replace_with_any: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Mask the chosen positions [P] of a row of ids.

    Args:
        ids: [tokens] of the row.
        positions: the positions to mask [P].
        words: word boundaries in the vocabulary.
        rng: source of all random choices.
        replace_with_any: whether random tokens come from the whole vocabulary, including special tokens and
            the original token, as in the original code.

    Returns:
        The row as the model sees it (a copy), and the original ids at the positions [P].
    """
    labels = ids[positions]
    draw = rng.random(len(positions))
    if replace_with_any:
        random_ids = rng.integers(words.size, size=len(positions))
    else:
        # Draw one of the other ordinary ids with equal probability: skip the rank of the original.
        rank = rng.integers(len(words.ordinary_ids) - 1, size=len(positions))
        rank += rank >= words.ordinary_rank[labels]
        random_ids = words.ordinary_ids[rank]
    replaced = np.where(draw < MASK_SHARE, words.mask, random_ids)
    seen = ids.copy()
    seen[positions] = np.where(draw < MASK_SHARE + RANDOM_SHARE, replaced, labels)
    return seen, labels
