"""Pairs of similar texts, for tests of sentence embedding."""

import random

from albertkit.datasets.examples import PairExample

WORDS = ["river", "house", "letters", "key", "secret", "harbour", "dinner", "morning", "painted", "lost"]


def text_pairs(count: int, seed: int, words: int = 3) -> list[PairExample]:
    """Return pairs of texts with the same words in another order."""
    draw = random.Random(seed)
    drawn = [draw.sample(WORDS, words) for _ in range(count)]
    return [PairExample(" ".join(text), " the ".join(reversed(text))) for text in drawn]
