"""Functions for tests of the playground: wait for answers, fill in fields, read scores."""

from typing import Any

import numpy as np
from chromium import until

MASKED = "The captain opened the [MASK] before dinner."
SENTENCE = "Sentence; [MASK] stands for a word to predict"


def settle(page: Any) -> None:
    """Wait until every panel has its answer."""
    until(page, "document.querySelector('main > :not([hidden])') && !document.querySelector('[aria-busy]')")


def write(page: Any, label: str, text: str) -> None:
    page.get_by_label(label, exact=True).fill(text)
    settle(page)


def rows(page: Any, where: str) -> list[tuple[str, float]]:
    """Return the names and scores of bars."""
    names = page.locator(f"{where} .name").all_inner_texts()
    scores = page.locator(f"{where} .score").all_inner_texts()
    return [(name, float(score.removesuffix("%")) / 100) for name, score in zip(names, scores, strict=True)]


def same(shown: list[tuple[str, float]], expected: list[tuple[str, float]]) -> bool:
    return [name for name, _ in shown] == [name for name, _ in expected] and np.allclose(
        [score for _, score in shown], [score for _, score in expected], atol=6e-4
    )
