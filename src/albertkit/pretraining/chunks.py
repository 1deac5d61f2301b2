"""Chunks of consecutive sentences, and the two segments A and B of each (Lan et al. 2020, section 3.1).

Sentence order is pure here: B always follows A in the same document, and half of the pairs are swapped. The
original takes B from another document whenever a chunk has a single sentence and labels that as swapped,
which teaches topic, not order. A chunk of a single sentence is split in two at a word.

In an excerpt, B consists of some words of A in their order. In half of the excerpts, some of these words are
replaced by words of the following text, and the order head predicts which half it is. The order of sentences
can be guessed without comparing words, and a small model did not learn to find the words of one text in the
other. Excerpts can only be solved by that, and so can questions and entailment (the lab notes have figures).
"""

from dataclasses import dataclass

import numpy as np

from albertkit.pretraining.words import WordTable

IN_ORDER, SWAPPED = 0, 1  # the labels, as in the original and in `sentence_order_label` elsewhere
MIN_TOKENS = 8  # a shorter chunk has nothing to learn from

TRUE, ALTERED = 0, 1  # labels of excerpts; 0 is also the label of segments in order, which belong together
_FIRST = (0.3, 0.85)  # share of the text that is segment A
_KEPT = (0.4, 0.95)  # share of the excerpt's words that are kept
_REPLACED = (0.15, 1.0)  # share of an altered excerpt's words that are replaced; at least one


@dataclass(frozen=True, slots=True)
class Chunk:
    """A range of one document: half-open ranges into its ids."""

    first: tuple[int, int]  # segment A; the whole chunk without sentence order
    second: tuple[int, int] | None  # segment B
    label: int
    second_document: int | None = None  # the document of B, if it is another: only in `original_quirks`

    def __len__(self) -> int:
        """Return the number of tokens, without special ones."""
        begin, end = self.first
        return end - begin + (self.second[1] - self.second[0] if self.second else 0)


def plan(
    ids: np.ndarray,
    sentence_ends: np.ndarray,
    words: WordTable,
    rng: np.random.Generator,
    *,
    max_tokens: int,
    short_probability: float,
    sentence_order: bool = True,
) -> list[Chunk]:
    """Split a document into chunks of at most `max_tokens` tokens.

    Sentences are collected until the target length is reached: `max_tokens`, or with `short_probability` a
    random shorter one. Excess tokens are then removed from the front or the back, at random.

    Args:
        ids: [tokens] of the document.
        sentence_ends: [sentences], the end of each sentence in `ids`.
        words: word boundaries in the vocabulary.
        rng: source of all random choices.
        max_tokens: maximum number of tokens of both segments together, without special tokens.
        short_probability: share of chunks with a random shorter target.
        sentence_order: whether to split the chunks into two segments.
    """
    ends: list[int] = sentence_ends.tolist()
    draws = iter(rng.random((len(ends), 4)).tolist())  # at most one chunk per sentence
    chunks: list[Chunk] = []
    sentence, begin = 0, 0
    while sentence < len(ends):
        is_short, short_target, cut, swap = next(draws)
        target = max_tokens
        if is_short < short_probability:
            target = 2 + int(short_target * (max_tokens - 1))
        # The first sentence that reaches the target is the chunk's last.
        last = min(int(np.searchsorted(sentence_ends, begin + target)), len(ends) - 1)
        end = ends[last]
        if end - begin >= MIN_TOKENS:
            if not sentence_order:
                chunks.append(Chunk(_trim((begin, end), max_tokens, rng), None, IN_ORDER))
            else:
                middle = _middle(ids, ends[sentence:last], begin, end, words, cut)
                if middle is not None:
                    first, second = fit((begin, middle), (middle, end), max_tokens, rng)
                    swapped = swap < 0.5
                    chunks.append(
                        Chunk(second, first, SWAPPED) if swapped else Chunk(first, second, IN_ORDER)
                    )
        sentence, begin = last + 1, end
    return chunks


def _middle(
    ids: np.ndarray, inner_ends: list[int], begin: int, end: int, words: WordTable, cut: float
) -> int | None:
    """Return where B begins: after a random sentence, or inside a single sentence at a random word."""
    if inner_ends:
        return inner_ends[int(cut * len(inner_ends))]
    places = np.flatnonzero(words.starts(ids[begin:end]))[1:]
    return begin + int(places[int(cut * len(places))]) if len(places) else None


def fit(
    first: tuple[int, int], second: tuple[int, int], max_tokens: int, rng: np.random.Generator
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Shorten the longer segment, then both in turn, like the original one token at a time.

    Args:
        first: range of segment A.
        second: range of segment B.
        max_tokens: maximum number of tokens of both together.
        rng: decides for each token whether it is removed from the front or the back.
    """
    a, b = first[1] - first[0], second[1] - second[0]
    excess = a + b - max_tokens
    if excess <= 0:
        return first, second
    shared = max(0, excess - abs(a - b))  # once they have equal lengths, each gives half
    from_a = (excess - shared if a > b else 0) + shared // 2
    return _trim(first, a - from_a, rng), _trim(second, b - (excess - from_a), rng)


def _trim(segment: tuple[int, int], length: int, rng: np.random.Generator) -> tuple[int, int]:
    """Cut a segment to `length` tokens by removing tokens from the front or the back, at random."""
    begin, end = segment
    excess = end - begin - length
    if excess <= 0:
        return segment
    from_front = int(rng.binomial(excess, 0.5))
    return begin + from_front, end - (excess - from_front)


def excerpt(
    text: np.ndarray, words: WordTable, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, int] | None:
    """Make an excerpt pair from a text's ids [tokens].

    Returns:
        Segment A, segment B and the label, at most as many tokens together as the text; None if the text is
        too short to be split at a word.
    """
    parts = np.split(text, np.flatnonzero(words.starts(text))[1:])
    ends = np.cumsum([len(part) for part in parts])
    split = int(np.searchsorted(ends, rng.uniform(*_FIRST) * len(text))) + 1
    if split >= len(parts):
        return None
    first, rest = parts[:split], parts[split:]
    room = len(text) - int(ends[split - 1])

    # A run of A's words that fits into the rest.
    begin = int(rng.integers(split))
    before = int(ends[begin - 1]) if begin else 0
    run = first[begin : max(begin + 1, int(np.searchsorted(ends, before + room, side="right")))]
    second = [
        part for part, kept in zip(run, rng.random(len(run)) < rng.uniform(*_KEPT), strict=True) if kept
    ]
    second = second or run[:1]

    label = ALTERED if rng.random() < 0.5 else TRUE
    if label == ALTERED:
        replaced = rng.random(len(second)) < rng.uniform(*_REPLACED)
        replaced[rng.integers(len(second))] = True
        others = rng.integers(len(rest), size=len(second))
        second = [
            rest[other] if gone else part
            for part, gone, other in zip(second, replaced.tolist(), others.tolist(), strict=True)
        ]
    return np.concatenate(first), np.concatenate(second)[:room], label
