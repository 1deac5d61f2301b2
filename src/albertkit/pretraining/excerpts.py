"""Pairs whose second segment is an excerpt of the first: some of its words in their order, others left out.

In half of them some words are replaced by words of the text that follows, and the order head says which half
it is. The order of sentences can be guessed without comparing words, and a small model did not learn to look
for the words of one text in the other. Here nothing else helps; questions and entailment need the same
(docs/lab-notes.md has the figures).
"""

import numpy as np

from albertkit.pretraining.words import WordTable

TRUE, ALTERED = 0, 1  # the labels; 0 is that of segments in order, which also belong together
_FIRST = (0.3, 0.85)  # share of the text that is segment A
_KEPT = (0.4, 0.95)  # share of the excerpt's words that are not left out
_REPLACED = (0.15, 1.0)  # share of an altered excerpt's words that come from elsewhere; one at least


def excerpt(
    text: np.ndarray, words: WordTable, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, int] | None:
    """Make a pair of a text's ids [tokens].

    Returns:
        Segment A, segment B and the label, at most as many tokens together as the text; None for a text that
        is too short to be parted at a word.
    """
    parts = np.split(text, np.flatnonzero(words.starts(text))[1:])
    ends = np.cumsum([len(part) for part in parts])
    split = int(np.searchsorted(ends, rng.uniform(*_FIRST) * len(text))) + 1
    if split >= len(parts):
        return None
    first, rest = parts[:split], parts[split:]
    room = len(text) - int(ends[split - 1])

    # A run of A's words that fits beside it.
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
