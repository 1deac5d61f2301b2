"""The interface of what is measured.

Shapes: B rows, K scores.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from albertkit.engines.engine import Row


class Side(ABC):
    """Something that computes rows and texts."""

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def compute_rows(self, rows: Sequence[Row]) -> Any:
        """Compute rows that are given at once."""

    @abstractmethod
    def compute_texts(self, texts: Sequence[str]) -> Any:
        """Cut texts into tokens and compute them all."""

    @abstractmethod
    def first_scores(self, rows: Sequence[Row]) -> np.ndarray:
        """Return the scores of each row's first token or of the whole row, (B, K): to compare the sides.

        Of question answering those of the start, (B, 1).
        """
