"""The interface of engines: rows of token ids in, scores out.

A task asks an engine for one output of a model, and names the tokens of each row at which it reads that
output. The engine need not compute anything else.

Shapes: T tokens of a row, R tokens read of a row, H hidden, V vocabulary, K scores of a token: labels, pieces
of the vocabulary (V), start and end (2), or hidden states (H).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np

from albertkit.heads import Output

_Answer = TypeVar("_Answer")
_Row = TypeVar("_Row", bound="Row")


BATCH_TOKENS = 1024
"""Default number of tokens per batch on a CPU; more do not fit into its caches."""

Read = Callable[[Any], Sequence[int]]
"""Which tokens of a row are read; heads for whole texts read [CLS], token 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A sequence of T tokens for the model, and its labels."""

    input_ids: list[int]
    """(T,) ids of the tokens, including special tokens."""
    token_type_ids: list[int]
    """(T,) the segment of each token, 0 or 1."""
    example: int
    """Number of the example that the row comes from."""
    labels: Any = None
    """The labels for the task's loss; None for an example without labels."""
    cut: int = 0
    """Number of the example's tokens that were removed by truncation."""


def first_token(row: Row) -> Sequence[int]:
    """Read only [CLS]."""
    del row
    return (0,)


def every_token(row: Row) -> Sequence[int]:
    """Read all tokens of a row."""
    return range(len(row.input_ids))


@dataclass(frozen=True, slots=True)
class Job:
    """The requested output of rows, and the batch size: arguments of `Engine.run`."""

    output: Output = "logits"
    read: Read = first_token
    batch_tokens: int | None = None
    batch_size: int | None = None


BatchScores = Iterator[tuple[Sequence[int], Sequence[np.ndarray]]]
"""The indices of the rows of each batch, and the scores (R, K) of each of these rows."""


class Engine(ABC):
    """Computes rows with one model."""

    def run(
        self,
        rows: Sequence[Row],
        *,
        output: Output = "logits",
        read: Read = first_token,
        then: Callable[[np.ndarray], Any] = lambda scores: scores,
        batch_tokens: int | None = None,
        batch_size: int | None = None,
    ) -> list[Any]:
        """Return a value for the scores of each row, computed without dropout and gradients.

        Args:
            rows: rows of any lengths.
            output: the output to compute.
            read: which tokens of a row are read.
            then: function of the scores (R, K) of a row, float32, which returns the value to keep.
            batch_tokens: maximum number of tokens per batch; None for a default that suits the device. A
                longer row is a batch of its own.
            batch_size: maximum number of rows per batch; None for as many as `batch_tokens` allows.
        """
        return self.compute(rows, Job(output, read, batch_tokens, batch_size), then)

    def compute(self, rows: Sequence[Row], job: Job, then: Callable[[np.ndarray], Any]) -> list[Any]:
        """Return the result of `run` for a job."""
        answers: dict[int, Any] = {}
        for numbers, scores in self.batches(rows, job):
            answers.update(zip(numbers, map(then, scores), strict=True))
        return [answers[number] for number in range(len(rows))]

    @abstractmethod
    def batches(self, rows: Sequence[Row], job: Job) -> BatchScores:
        """Yield the scores of all rows, float32, in batches in any order."""


def batches_by_length(
    rows: Sequence[Row], *, batch_tokens: int, batch_size: int | None = None
) -> Iterator[list[int]]:
    """Yield the indices of the rows of each batch, the longest rows first.

    Rows of similar length need little padding. With the longest rows first, a lack of memory shows
    immediately.

    Args:
        rows: rows of any lengths.
        batch_tokens: maximum number of tokens in a batch, including padding: B * T. A longer row is a batch
            of its own.
        batch_size: maximum number of rows in a batch, B; None for as many as `batch_tokens` allows.
    """
    order = sorted(range(len(rows)), key=lambda number: len(rows[number].input_ids), reverse=True)
    start = 0
    while start < len(order):
        longest = len(rows[order[start]].input_ids)
        count = max(1, batch_tokens // longest)
        stop = start + (count if batch_size is None else min(count, batch_size))
        yield order[start:stop]
        start = stop


def by_example(
    rows: Sequence[_Row], outputs: Sequence[_Answer], *, count: int
) -> list[list[tuple[_Row, _Answer]]]:
    """Return the rows of each of `count` examples in order, each row with its output."""
    found: list[list[tuple[_Row, _Answer]]] = [[] for _ in range(count)]
    for row, output in zip(rows, outputs, strict=True):
        found[row.example].append((row, output))
    return found


def runs_of_examples(rows: Iterable[_Row]) -> list[list[_Row]]:
    """Return neighboring rows of one example together."""
    return [list(run) for _, run in groupby(rows, key=attrgetter("example"))]
