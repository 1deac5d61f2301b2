"""Retrieval metrics: find the right texts among many by the cosine similarity of their vectors.

Shapes: N queries, M candidates, H dimensions of a vector.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np

from albertkit.metrics.comparing import check_same_length

BLOCK = 1024  # number of queries in one matrix product
EQUAL = 1e-6  # cosines with a smaller difference count as equal, because of rounding


@dataclass(frozen=True)
class Found:
    """The retrieval result of one query."""

    rank: int
    """Rank of the nearest right candidate, from 1. Wrong candidates with the same cosine rank before it, so a
    model that returns the same vector for everything finds nothing."""
    nearest: int
    """Index of the nearest candidate."""


def find(
    queries: np.ndarray,
    candidates: np.ndarray,
    right: Sequence[Set[int]],
    *,
    left_out: Sequence[Set[int]] | None = None,
) -> list[Found]:
    """Return the retrieval result of each query among all candidates.

    Args:
        queries: (N, H), the vectors of the queries.
        candidates: (M, H), the vectors of the candidates.
        right: for each query, the indices of its right candidates, at least one.
        left_out: for each query, the indices of candidates to ignore.
    """
    check_same_length(right, queries)
    queries, candidates = unit(queries), unit(candidates)
    found = []
    for begin in range(0, len(queries), BLOCK):
        block = queries[begin : begin + BLOCK] @ candidates.T  # (up to BLOCK, M)
        for number, cosines in enumerate(block, start=begin):
            if left_out is not None:
                cosines[list(left_out[number])] = -np.inf
            own = list(right[number])
            before = np.count_nonzero(cosines >= cosines[own].max() - EQUAL)
            before -= np.count_nonzero(cosines[own] >= cosines[own].max() - EQUAL)
            found.append(Found(rank=1 + int(before), nearest=int(cosines.argmax())))
    return found


def retrieval_scores(ranks: Sequence[int]) -> dict[str, float]:
    """Return `accuracy_at_1` and `accuracy_at_10`, the shares of ranks up to 1 and 10, and `mrr`.

    `mrr` is the mean reciprocal rank, the mean of 1 / rank.

    Args:
        ranks: the rank of the nearest right candidate of each query, from 1.
    """
    check_same_length(ranks, ranks)
    given = np.asarray(ranks)
    return {
        "accuracy_at_1": float((given <= 1).mean()),
        "accuracy_at_10": float((given <= 10).mean()),
        "mrr": float((1 / given).mean()),
    }


def unit(vectors: np.ndarray) -> np.ndarray:
    """Return the vectors (..., H), scaled to length 1; a vector of zeros remains zero."""
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True).clip(min=1e-12)
