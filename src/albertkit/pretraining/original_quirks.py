"""Examples with the rules of the original's create_pretraining_data.py, for comparisons.

It differs from `chunks` and `masking` in that

* a chunk of a single sentence takes B from a random position of another document and is labeled as
  swapped, so the label distinguishes topics, not orders;
* no chunk is too short to be used;
* one document in ten, not one chunk in ten, is split into shorter sequences;
* word boundaries are decided piece by piece (`WordTable.original_starts`): a piece after a symbol belongs to
  its word, and an apostrophe and every piece with a digit or an accent begin a word;
* an n-gram that overlaps a masked word is dropped, which favors short ones;
* n-grams may span the [SEP] between the segments, and <unk> is predicted too;
* a random replacement may be any piece: [MASK], the padding, or the original token.

Not reproduced: the original draws the masks of 40 copies once, before training, and each n from a random
stream that its seed does not control.
"""

import numpy as np

from albertkit.pretraining.chunks import IN_ORDER, SWAPPED, Chunk, fit
from albertkit.pretraining.masking import budget, ngram_lengths
from albertkit.pretraining.settings import ExampleSettings
from albertkit.pretraining.shards import ShardSet
from albertkit.pretraining.words import WordTable


def plan(
    document: int, shards: ShardSet, rng: np.random.Generator, *, max_tokens: int, short_probability: float
) -> list[Chunk]:
    """Split a document into chunks of two segments of at most `max_tokens` tokens together.

    Args:
        document: index of the document.
        shards: all documents; B may come from any.
        rng: source of all random choices.
        max_tokens: maximum number of tokens of both segments together, without special tokens.
        short_probability: share of documents with a random shorter target.
    """
    _, sentence_ends = shards.tokens(document)
    ends: list[int] = sentence_ends.tolist()
    target = max_tokens
    if rng.random() < short_probability:
        target = int(rng.integers(2, max_tokens, endpoint=True))
    chunks: list[Chunk] = []
    sentence, begin = 0, 0
    while sentence < len(ends):
        last = min(int(np.searchsorted(sentence_ends, begin + target)), len(ends) - 1)
        end = ends[last]
        if last == sentence:
            other, second = _elsewhere(document, shards, rng, target - (end - begin))
            first, second = fit((begin, end), second, max_tokens, rng)
            chunks.append(Chunk(first, second, SWAPPED, other))
        else:
            middle = ends[int(rng.integers(sentence, last))]
            first, second, label = (begin, middle), (middle, end), IN_ORDER
            if rng.random() < 0.5:
                first, second, label = second, first, SWAPPED
            first, second = fit(first, second, max_tokens, rng)
            chunks.append(Chunk(first, second, label))
        sentence, begin = last + 1, end
    return chunks


def _elsewhere(
    document: int, shards: ShardSet, rng: np.random.Generator, target: int
) -> tuple[int, tuple[int, int]]:
    """Return another document (the same if it is the only one) and a range of sentences in it.

    They have at least `target` tokens, unless the document ends before, and at least one sentence.
    """
    other = document
    if len(shards) > 1:
        other = int(rng.integers(len(shards) - 1))
        other += other >= document
    _, ends = shards.tokens(other)
    first = int(rng.integers(len(ends)))
    begin = int(ends[first - 1]) if first else 0
    last = min(max(first, int(np.searchsorted(ends, begin + target))), len(ends) - 1)
    return other, (begin, int(ends[last]))


def choose(
    ids: np.ndarray, words: WordTable, settings: ExampleSettings, rng: np.random.Generator
) -> tuple[np.ndarray, list[int]]:
    """Choose the positions to mask in a row of ids.

    Returns:
        The chosen positions [P] in ascending order, and the lengths in words of the n-grams chosen.
    """
    positions = np.flatnonzero((ids != words.cls) & (ids != words.sep))
    begins = words.original_starts(ids[positions])
    begins[:1] = True
    firsts: list[int] = [*np.flatnonzero(begins).tolist(), len(positions)]  # of each word, into positions
    num_words = len(firsts) - 1
    lengths = ngram_lengths(num_words, settings.max_ngram, rng)
    free = [True] * num_words
    spans: list[tuple[int, int]] = []
    chosen: list[int] = []
    remaining = budget(len(ids), settings)
    for word, drawn in zip(rng.permutation(num_words).tolist(), lengths, strict=True):
        if not remaining:
            break
        length = min(drawn, num_words - word)
        while length and firsts[word + length] - firsts[word] > remaining:
            length -= 1
        if length and all(free[word : word + length]):
            free[word : word + length] = [False] * length
            spans.append((firsts[word], firsts[word + length]))
            chosen.append(length)
            remaining -= firsts[word + length] - firsts[word]
    indices = [index for begin, stop in sorted(spans) for index in range(begin, stop)]
    return positions[indices], chosen
