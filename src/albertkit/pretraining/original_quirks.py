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

from albertkit.pretraining.chunks import IN_ORDER, SWAPPED, Chunks, fit
from albertkit.pretraining.masking import WordTable, budget, ngram_lengths
from albertkit.pretraining.settings import ExampleSettings
from albertkit.pretraining.shards import ShardSet


def plan(
    documents: np.ndarray,
    shards: ShardSet,
    rng: np.random.Generator,
    *,
    max_tokens: int,
    short_probability: float,
) -> tuple[np.ndarray, Chunks]:
    """Split documents into chunks of two segments of at most `max_tokens` tokens together.

    Return the ids of the documents and of all segments from elsewhere, and the chunks as ranges of these ids.
    """
    texts: list[np.ndarray] = []
    start = 0  # of the next text
    ranges: list[tuple[int, int, int, int, int]] = []  # begin and end of A and of B, label
    for document in documents.tolist():
        ids, sentence_ends = shards.tokens(document)
        ends: list[int] = (sentence_ends + start).tolist()
        target = max_tokens
        if rng.random() < short_probability:
            target = int(rng.integers(2, max_tokens, endpoint=True))
        texts.append(ids)
        begin, start = start, start + len(ids)
        sentence = 0
        while sentence < len(ends):
            last = min(int(np.searchsorted(ends, begin + target)), len(ends) - 1)
            end = ends[last]
            if last == sentence:
                other = _elsewhere(document, shards, rng, target - (end - begin))
                ranges.append((begin, end, start, start + len(other), SWAPPED))
                texts.append(other)
                start += len(other)
            else:
                middle = ends[int(rng.integers(sentence, last))]
                swapped = rng.random() < 0.5
                chunk = (middle, end, begin, middle) if swapped else (begin, middle, middle, end)
                ranges.append((*chunk, SWAPPED if swapped else IN_ORDER))
            sentence, begin = last + 1, end
    first_begins, first_ends, second_begins, second_ends, labels = np.array(ranges).T
    segments = fit(first_begins, first_ends, second_begins, second_ends, max_tokens, rng)
    return np.concatenate(texts), Chunks(*segments, labels)


def _elsewhere(document: int, shards: ShardSet, rng: np.random.Generator, target: int) -> np.ndarray:
    """Return some sentences of another document, or of the same if it is the only one.

    They have at least `target` tokens, unless the document ends before, and at least one sentence.
    """
    other = document
    if len(shards) > 1:
        other = int(rng.integers(len(shards) - 1))
        other += other >= document
    ids, ends = shards.tokens(other)
    first = int(rng.integers(len(ends)))
    begin = int(ends[first - 1]) if first else 0
    last = min(max(first, int(np.searchsorted(ends, begin + target))), len(ends) - 1)
    return ids[begin : int(ends[last])]


def choose(
    ids: np.ndarray,
    lengths: np.ndarray,
    words: WordTable,
    settings: ExampleSettings,
    rng: np.random.Generator,
) -> np.ndarray:
    """Choose the tokens to mask, row by row; for arguments and result see `masking.choose`."""
    stops = np.cumsum(lengths)
    budgets: list[int] = budget(lengths, settings).tolist()
    rows = zip(np.split(ids, stops[:-1]), budgets, strict=True)
    return np.concatenate([_choose_in_row(row, most, words, settings, rng) for row, most in rows])


def _choose_in_row(
    ids: np.ndarray, remaining: int, words: WordTable, settings: ExampleSettings, rng: np.random.Generator
) -> np.ndarray:
    positions = np.flatnonzero((ids != words.cls) & (ids != words.sep))
    begins = words.original_starts(ids[positions])
    begins[:1] = True
    firsts: list[int] = [*np.flatnonzero(begins).tolist(), len(positions)]  # of each word, into positions
    num_words = len(firsts) - 1
    lengths = ngram_lengths(num_words, settings.max_ngram, rng).tolist()
    free = [True] * num_words
    masked = np.zeros(len(ids), dtype=bool)
    for word, drawn in zip(rng.permutation(num_words).tolist(), lengths, strict=True):
        if not remaining:
            break
        length = min(drawn, num_words - word)
        while length and firsts[word + length] - firsts[word] > remaining:
            length -= 1
        if length and all(free[word : word + length]):
            free[word : word + length] = [False] * length
            masked[positions[firsts[word] : firsts[word + length]]] = True
            remaining -= firsts[word + length] - firsts[word]
    return masked
