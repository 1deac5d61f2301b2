"""Chunks of consecutive sentences, and the two segments A and B of each (Lan et al. 2020, section 3.1).

Sentence order is pure here: B always follows A in the same document, and half of the pairs are swapped. The
original takes B from another document whenever a chunk has a single sentence and labels that as swapped,
which teaches topic, not order. A chunk of a single sentence is split in two at a word.

Legend: M tokens, S sentences, D documents, C chunks.
"""

from dataclasses import dataclass

import numpy as np

from albertkit.pretraining.masking import WordTable

IN_ORDER, SWAPPED = 0, 1  # the labels, as in the original and in `sentence_order_label` elsewhere
MIN_TOKENS = 8  # a shorter chunk has nothing to learn from


@dataclass(frozen=True)
class Chunks:
    """Chunks of some documents; segments are half-open ranges of token indices."""

    first: np.ndarray  # [C, 2] segment A; the whole chunk without sentence order
    second: np.ndarray  # [C, 2] segment B; empty ranges without sentence order
    order_labels: np.ndarray  # [C]

    def __len__(self) -> int:
        return len(self.first)

    def take(self, chosen: np.ndarray) -> "Chunks":
        return Chunks(self.first[chosen], self.second[chosen], self.order_labels[chosen])

    def lengths(self) -> np.ndarray:
        """Return the number of tokens of each chunk without special tokens, [C]."""
        return np.diff(self.first)[:, 0] + np.diff(self.second)[:, 0]


def plan(
    ids: np.ndarray,
    sentence_ends: np.ndarray,
    document_ends: np.ndarray,
    words: WordTable,
    rng: np.random.Generator,
    *,
    max_tokens: int,
    short_probability: float,
    sentence_order: bool = True,
) -> Chunks:
    """Split documents into chunks of at most `max_tokens` tokens.

    Sentences are collected until the target length is reached: `max_tokens`, or with `short_probability` a
    random shorter one. Excess tokens are then removed from the front or the back, at random. Each iteration
    takes one chunk of every document.

    `ids` [M] are those of all documents, `sentence_ends` [S] are indices of `ids`, and `document_ends` [D]
    are indices of sentences.
    """
    word_starts = np.flatnonzero(words.starts(ids))
    sentence, final = np.append(0, document_ends[:-1]), document_ends - 1  # [D] next and last sentences
    begin = np.append(0, sentence_ends[final[:-1]])  # [D] first token of the next chunk
    parts: list[np.ndarray] = []
    while len(sentence):
        is_short, short_target, cut, swap = rng.random((4, len(sentence)))
        target = np.where(
            is_short < short_probability, 2 + (short_target * (max_tokens - 1)).astype(int), max_tokens
        )
        # The first sentence that reaches the target is the chunk's last.
        last = np.minimum(np.searchsorted(sentence_ends, begin + target), final)
        end = sentence_ends[last]
        # B begins after a random sentence, or inside a single sentence at a random word.
        num_sentences = last - sentence
        word = np.searchsorted(word_starts, begin, side="right")
        num_words = np.searchsorted(word_starts, end) - word
        at_word = word_starts[np.minimum(word + (cut * num_words).astype(int), len(word_starts) - 1)]
        at_sentence = sentence_ends[sentence + (cut * num_sentences).astype(int)]
        middle = np.where(num_sentences > 0, at_sentence, at_word)
        usable = end - begin >= MIN_TOKENS
        if sentence_order:
            usable &= (num_sentences > 0) | (num_words > 0)
        parts.append(np.stack([begin, middle, end, swap < 0.5])[:, usable])
        more = last < final
        sentence, final, begin = last[more] + 1, final[more], end[more]
    begin, middle, end, swapped = np.concatenate(parts, axis=1)  # [C] each
    if not sentence_order:
        first = _trim(begin, end, np.minimum(end - begin, max_tokens), rng)
        return Chunks(first, np.stack([end, end], axis=1), np.full(len(first), IN_ORDER))
    first, second = fit(begin, middle, middle, end, max_tokens, rng)
    is_swapped = swapped.astype(bool)[:, None]
    return Chunks(np.where(is_swapped, second, first), np.where(is_swapped, first, second), swapped)


def fit(
    begin: np.ndarray,
    end: np.ndarray,
    second_begin: np.ndarray,
    second_end: np.ndarray,
    max_tokens: int,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Shorten the longer segment, then both in turn, like the original one token at a time.

    Takes the ends [C] of segments A and B, and returns the ranges of A and of B, [C, 2] each. At random, a
    token is removed from the front or the back.
    """
    a, b = end - begin, second_end - second_begin
    excess = np.maximum(a + b - max_tokens, 0)
    shared = np.maximum(0, excess - abs(a - b))  # once they have equal lengths, each gives half
    from_a = np.where(a > b, excess - shared, 0) + shared // 2
    return _trim(begin, end, a - from_a, rng), _trim(second_begin, second_end, b - (excess - from_a), rng)


def _trim(begin: np.ndarray, end: np.ndarray, lengths: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Cut ranges [C] to `lengths` by removing tokens from the front or the back, at random: [C, 2]."""
    begin = begin + rng.binomial(end - begin - lengths, 0.5)
    return np.stack([begin, begin + lengths], axis=1)
