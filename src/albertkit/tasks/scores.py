"""Probabilities from scores, in NumPy.

Shapes: ... any leading dimensions, K scores.
"""

import numpy as np


def sigmoid(scores: np.ndarray) -> np.ndarray:
    """Return the independent probabilities (..., K) of scores (..., K)."""
    powers = np.exp(-np.abs(scores))  # never overflows
    return np.where(scores >= 0, 1.0, powers) / (1 + powers)


def log_sum_exp(scores: np.ndarray) -> np.ndarray:
    """Return the logarithm of the sum of exponentials: (..., K) -> (...)."""
    largest = scores.max(axis=-1)
    return np.log(np.exp(scores - largest[..., None]).sum(axis=-1)) + largest


def largest(scores: np.ndarray, count: int) -> np.ndarray:
    """Return the indices (..., count) of the largest of K scores in descending order; at most K of them."""
    if count >= scores.shape[-1]:
        return np.argsort(-scores, axis=-1, kind="stable")
    indices = np.sort(np.argpartition(-scores, count, axis=-1)[..., :count], axis=-1)
    found = np.take_along_axis(scores, indices, axis=-1)
    return np.take_along_axis(indices, np.argsort(-found, axis=-1, kind="stable"), axis=-1)
