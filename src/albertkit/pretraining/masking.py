"""Whole-word n-gram masking (Lan et al. 2020, section 4.1, after SpanBERT).

An n-gram of n <= 3 whole words is hidden with p(n) = (1/n) / sum(1/k), until round(15%) of the tokens are
chosen. Of these, each by itself, 80% become [MASK], 10% a random other token and 10% stay. The original
gives up an n-gram that meets a masked one, which favors short ones; here it is placed elsewhere.
"""

import numpy as np

from albertkit.pretraining.settings import ExampleSettings
from albertkit.pretraining.words import WordTable

MASK_SHARE, RANDOM_SHARE = 0.8, 0.1  # the rest is kept
_TRIES = 8  # places tried for an n-gram before it is made shorter


def budget(num_tokens: int, settings: ExampleSettings) -> int:
    """Return how many of `num_tokens` tokens (special ones counted, as in the original) are hidden.

    The default maximum is 20 tokens for each 128 of the maximum sequence length.
    """
    most = settings.max_predictions
    if most is None:
        most = round(20 * settings.max_seq_length / 128)
    return min(most, max(1, round(num_tokens * settings.masked_lm_probability)))


def ngram_lengths(count: int, max_ngram: int, rng: np.random.Generator) -> list[int]:
    """Draw `count` lengths in words with p(n) = (1/n) / sum(1/k)."""
    weights = 1 / np.arange(1, max_ngram + 1)
    edges = np.cumsum(weights / weights.sum())[:-1]
    return (np.searchsorted(edges, rng.random(count), side="right") + 1).tolist()


def choose(
    ids: np.ndarray, words: WordTable, settings: ExampleSettings, rng: np.random.Generator
) -> tuple[np.ndarray, list[int]]:
    """Choose what to hide in a row of ids.

    Returns:
        The chosen positions [P] in ascending order, and the lengths in words of the n-grams chosen.
    """
    starts = np.flatnonzero(words.starts(ids))
    ends = np.append(starts[1:], len(ids))
    # Special tokens are words of their own, so no n-gram runs across one.
    ordinary = ~words.is_special[ids[starts]]
    free: list[bool] = ordinary.tolist()
    candidates: list[int] = np.flatnonzero(ordinary).tolist()
    if not candidates:
        return np.zeros(0, dtype=np.int64), []
    first, last = starts.tolist(), ends.tolist()
    remaining = budget(len(ids), settings)

    # All random numbers of a row in two calls: an attempt takes one place, an n-gram one length.
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
    """Hide the chosen positions [P] of a row of ids.

    Args:
        ids: [tokens] of the row.
        positions: what to hide [P].
        words: of the vocabulary.
        rng: source of all choices.
        replace_with_any: draw random tokens from the whole vocabulary, special ones and the original
            included, as the original does.

    Returns:
        The row as the model sees it (a copy), and the original ids at the positions [P].
    """
    labels = ids[positions]
    draw = rng.random(len(positions))
    if replace_with_any:
        random_ids = rng.integers(words.size, size=len(positions))
    else:
        # One of the other ordinary ids, each equally likely: skip over the rank of the original.
        rank = rng.integers(len(words.ordinary_ids) - 1, size=len(positions))
        rank += rank >= words.ordinary_rank[labels]
        random_ids = words.ordinary_ids[rank]
    replaced = np.where(draw < MASK_SHARE, words.mask, random_ids)
    seen = ids.copy()
    seen[positions] = np.where(draw < MASK_SHARE + RANDOM_SHARE, replaced, labels)
    return seen, labels
