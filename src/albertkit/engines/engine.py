"""The interface of engines, which compute scores from rows of token ids.

A task asks an engine for one output of a model, and says which tokens of each row it reads. The engine
computes only the scores of these tokens.

Shapes: T tokens of a row, R read tokens of a row, H hidden, V vocabulary, K scores of a token (labels; V for
masked words; 2 for start and end; H for hidden states).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np

from albertkit.errors import CheckpointError, ConfigError, DataError, short
from albertkit.heads import Head, Output

_Answer = TypeVar("_Answer")
_Row = TypeVar("_Row", bound="Row")


BATCH_TOKENS = 1024
"""Default number of tokens in a batch on a CPU; larger batches do not fit into its caches."""

Read = Callable[[Any], Sequence[int]]
"""A function that returns the positions of the tokens to read in a row; heads for texts read [CLS] (0)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A sequence of T tokens for the model, with its labels."""

    input_ids: list[int]
    """Ids of the tokens, including special tokens: (T,)."""
    token_type_ids: list[int]
    """Segment of each token, 0 or 1: (T,)."""
    example: int
    """Index of the example that the row belongs to."""
    labels: Any = None
    """The labels for the task's loss; None if the example has no labels."""
    cut: int = 0
    """Number of the example's tokens that truncation removed."""


def first_token(row: Row) -> Sequence[int]:
    """Return the position of [CLS]."""
    del row
    return (0,)


def every_token(row: Row) -> Sequence[int]:
    """Return the positions of all tokens of a row."""
    return range(len(row.input_ids))


@dataclass(frozen=True, slots=True)
class Job:
    """The output to compute and the batch size: the arguments of `Engine.run`."""

    output: Output = "logits"
    read: Read = first_token
    batch_tokens: int | None = None
    batch_size: int | None = None

    def __post_init__(self) -> None:
        for name in ("batch_tokens", "batch_size"):
            size = getattr(self, name)
            if size is not None and size < 1:
                raise ConfigError(f"{name} is {size}. Expected at least 1, or None.")

    def positions(self, row: Row) -> Sequence[int]:
        """Return the positions of the tokens to read in a row.

        Raises:
            DataError: The row has no token at a position. Among packed rows, it would be a token of another
                row.
        """
        positions, length = self.read(row), len(row.input_ids)
        if len(positions) and not 0 <= min(positions) <= max(positions) < length:
            raise DataError(
                f"`read` returned the positions {short(positions)} for a row of {length} tokens. Expected 0 "
                f"to {length - 1}: count from the start of the row."
            )
        return positions


BatchScores = Iterator[tuple[Sequence[int], Sequence[np.ndarray]]]
"""For each batch, the indices of its rows and the scores (R, K) of each row."""


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
        """Compute the scores of rows without dropout and gradients; return `then(scores)` of each row.

        Args:
            rows: Rows of any lengths.
            output: The output to compute.
            read: Function that returns the positions of the tokens to read in a row.
            then: Function of the scores (R, K) of a row, float32. Only its result is kept.
            batch_tokens: Maximum number of tokens in a batch; None for the default of the device. A longer
                row is a batch of its own.
            batch_size: Maximum number of rows in a batch; None for as many as `batch_tokens` allows.

        Raises:
            CheckpointError: A score is NaN or infinite.
            ConfigError: The model does not have the output, or a batch would be empty.
            DataError: A row is empty, its `token_type_ids` have another length, or it has no token at a
                position to read.
        """
        return self.compute(rows, Job(output, read, batch_tokens, batch_size), then)

    def compute(self, rows: Sequence[Row], job: Job, then: Callable[[np.ndarray], Any]) -> list[Any]:
        """Return the result of `run` for a job."""
        for number, row in enumerate(rows):
            tokens, segments = len(row.input_ids), len(row.token_type_ids)
            if not tokens or tokens != segments:
                raise DataError(
                    f"row {number} has {tokens} input_ids and {segments} token_type_ids. Expected equal "
                    "numbers above 0."
                )
        answers: dict[int, Any] = {}
        for numbers, scores in self.batches(rows, job):
            if not all(np.isfinite(of_row).all() for of_row in scores):
                raise CheckpointError(
                    "the model's scores are NaN or infinite. Expected finite numbers. Check its weights: "
                    "`albertkit convert MODEL TARGET --verify` names those that are NaN or infinite."
                )
            answers.update(zip(numbers, map(then, scores), strict=True))
        return [answers[number] for number in range(len(rows))]

    @abstractmethod
    def batches(self, rows: Sequence[Row], job: Job) -> BatchScores:
        """Yield the scores of all rows, float32, in batches in any order."""


def check_output(output: str, head: Head, *, model: str) -> None:
    """Raise ConfigError if a model with this head does not have an output."""
    known = dict.fromkeys([*head.scores, "hidden_states"])
    if output not in known:
        raise ConfigError(f"{model} has no output {output!r}. Expected one of {', '.join(known)}.")


def by_example(
    rows: Sequence[_Row], outputs: Sequence[_Answer], *, count: int
) -> list[list[tuple[_Row, _Answer]]]:
    """Return the rows of each of `count` examples in order; each row is paired with its output."""
    found: list[list[tuple[_Row, _Answer]]] = [[] for _ in range(count)]
    for row, output in zip(rows, outputs, strict=True):
        found[row.example].append((row, output))
    return found


def runs_of_examples(rows: Iterable[_Row]) -> list[list[_Row]]:
    """Group consecutive rows that belong to the same example."""
    return [list(run) for _, run in groupby(rows, key=attrgetter("example"))]
