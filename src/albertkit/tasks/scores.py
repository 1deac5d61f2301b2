"""Probabilities from scores, in NumPy.

Shapes: ... any leading dimensions, K scores.
"""

import numpy as np


def softmax(scores: np.ndarray) -> np.ndarray:
    """(..., K) -> (..., K), each of which sums to 1."""
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def sigmoid(scores: np.ndarray) -> np.ndarray:
    """(..., K) -> (..., K), each between 0 and 1."""
    powers = np.exp(-np.abs(scores))  # never overflows
    return np.where(scores >= 0, 1.0, powers) / (1 + powers)


def log_sum_exp(scores: np.ndarray) -> np.ndarray:
    """(..., K) -> (...)."""
    largest = scores.max(axis=-1)
    return np.log(np.exp(scores - largest[..., None]).sum(axis=-1)) + largest


def normalize(vectors: np.ndarray) -> np.ndarray:
    """(..., K) -> (..., K) of length 1; a vector of zeros stays one."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def largest(scores: np.ndarray, count: int) -> np.ndarray:
    """(..., K) -> the places (..., count) of the largest scores, the largest first; at most K of them."""
    if count >= scores.shape[-1]:
        return np.argsort(-scores, axis=-1, kind="stable")
    places = np.sort(np.argpartition(-scores, count, axis=-1)[..., :count], axis=-1)
    found = np.take_along_axis(scores, places, axis=-1)
    return np.take_along_axis(places, np.argsort(-found, axis=-1, kind="stable"), axis=-1)
