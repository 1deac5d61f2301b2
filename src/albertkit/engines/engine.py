"""The interface of engines, which compute scores from rows of token ids.

A task asks an engine for one output of a model, and says which tokens of each row it reads. The engine
computes only the scores of these tokens.

Shapes: T tokens of a row, R read tokens of a row, H hidden, V vocabulary, K scores of a token (labels; V for
masked words; 2 for start and end; H for hidden states).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np

from albertkit.config import AlbertConfig
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
    """Ids of the tokens, including special tokens: (T,). NumPy arrays in training."""
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
    stacks: bool = False
    """Whether `then` can also reduce the scores (B, R, K) of B rows at once."""

    def positions(self, row: Row) -> Sequence[int]:
        """Return the positions of the tokens to read in a row."""
        positions, length = self.read(row), len(row.input_ids)
        if len(positions) and not 0 <= min(positions) <= max(positions) < length:
            raise DataError(
                f"`read` returned the positions {short(positions)} for a row of {length} tokens. Expected 0 "
                f"to {length - 1}: count from the start of the row."
            )
        return positions


BatchScores = Iterator[tuple[Sequence[int], Sequence[np.ndarray]]]
"""For each batch, the indices of its rows and the scores (R, K) of each row."""


class Engine:
    """Computes rows with one model. A subclass has `batches`."""

    @property
    def batch_tokens(self) -> int:
        """Default number of tokens in a batch."""
        return BATCH_TOKENS

    def run(
        self,
        rows: Sequence[Row],
        *,
        output: Output = "logits",
        read: Read = first_token,
        then: Callable[[np.ndarray], Any] = lambda scores: scores,
        batch_tokens: int | None = None,
        batch_size: int | None = None,
        stacks: bool = False,
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
            stacks: Whether `then` can also reduce the scores (B, R, K) of B rows with equal numbers of read
                tokens at once, to B results.

        Raises:
            CheckpointError: A score is NaN or infinite.
            ConfigError: The model does not have the output.
            DataError: A row is empty, its `token_type_ids` have another length, or it has no token at a
                position to read.
        """
        job = Job(output, read, batch_tokens, batch_size, stacks)
        for number, row in enumerate(rows):
            tokens, segments = len(row.input_ids), len(row.token_type_ids)
            if not tokens or tokens != segments:
                raise DataError(
                    f"row {number} has {tokens} input_ids and {segments} token_type_ids. Expected equal "
                    "numbers above 0."
                )
        return self.compute(rows, job, then)

    def compute(self, rows: Sequence[Row], job: Job, then: Callable[[np.ndarray], Any]) -> list[Any]:
        """Return `then(scores)` of each row, from the token table if the model has one."""
        if job.output == "hidden_states" and (table := self.token_table()) is not None:
            return table.compute(rows, job, then, self._compute_batches)
        return self._compute_batches(rows, job, then)

    def _compute_batches(self, rows: Sequence[Row], job: Job, then: Callable[[np.ndarray], Any]) -> list[Any]:
        answers: dict[int, Any] = {}
        for numbers, scores in self.batches(rows, job):
            if not all(np.isfinite(of_row).all() for of_row in scores):
                raise CheckpointError(
                    "the model's scores are NaN or infinite. Expected finite numbers. Check its weights: "
                    "`albertkit convert MODEL TARGET --verify` names those that are NaN or infinite."
                )
            answers.update(zip(numbers, map(then, scores), strict=True))
        return [answers[number] for number in range(len(rows))]

    def batches(self, rows: Sequence[Row], job: Job) -> BatchScores:
        """Yield the scores of all rows, float32, in batches in any order."""
        raise NotImplementedError

    def token_table(self) -> Any:
        """Return the `TokenTable` of a model that mixes no tokens, None for other models."""
        return None


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


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows that are concatenated and computed together, the longest first."""

    numbers: list[int]
    """The index of each row in the list of all rows."""
    rows: list[Row]
    positions: list[Sequence[int]]
    """The positions of the tokens of each row that are read."""

    def sizes(self) -> np.ndarray:
        """Return the number of tokens and of read tokens of each row: (2, B)."""
        return np.array([[len(row.input_ids) for row in self.rows], list(map(len, self.positions))])

    def inputs(self, tokens: int) -> np.ndarray:
        """Return the ids, segments and positions (3, M) of M = `tokens` tokens; 0 after the rows."""
        inputs = np.zeros((3, tokens), dtype=np.int32)
        lengths, _ = self.sizes()
        count = lengths.sum()
        inputs[0, :count] = _joined([row.input_ids for row in self.rows], count)
        inputs[1, :count] = _joined([row.token_type_ids for row in self.rows], count)
        inputs[2, :count] = np.arange(count) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return inputs

    def read_tokens(self) -> np.ndarray:
        """Return the indices (P,) of all read tokens among the tokens of the batch."""
        lengths, counts = self.sizes()
        return _joined(self.positions, counts.sum()) + np.repeat(np.cumsum(lengths) - lengths, counts)

    def split(self, scores: np.ndarray) -> list[np.ndarray]:
        """Split the scores (P, K) of all read tokens by row: (R, K) for each row."""
        return np.split(scores, np.cumsum([len(positions) for positions in self.positions])[:-1])


def plan(
    rows: Sequence[Row], read: Read, budget: int, max_rows: int | None, *, padded: bool = False
) -> Iterator[Batch]:
    """Yield batches of at most `budget` tokens and `max_rows` rows, the longest rows first.

    Rows of similar length need little padding. The longest rows come first, so that a lack of memory shows at
    once. A row with more than `budget` tokens is a batch of its own. None allows any number of rows. If
    `padded`, padding counts as tokens.
    """
    lengths, positions = [len(row.input_ids) for row in rows], [read(row) for row in rows]
    numbers: list[int] = []
    tokens = 0

    def batch() -> Batch:
        return Batch(numbers, [rows[one] for one in numbers], [positions[one] for one in numbers])

    for number in sorted(range(len(rows)), key=lambda one: (-lengths[one], len(positions[one]))):
        tokens += lengths[(numbers or [number])[0]] if padded else lengths[number]
        if numbers and (tokens > budget or len(numbers) == max_rows):
            yield batch()
            numbers, tokens = [], lengths[number]
        numbers.append(number)
    if numbers:
        yield batch()


def _joined(parts: Sequence[Sequence[int]], count: int) -> np.ndarray:
    """Return the numbers of all parts in one array. It is much faster than an array of a nested list."""
    return np.fromiter(chain.from_iterable(parts), np.int64, count)


def check_rows(rows: Sequence[Row], config: AlbertConfig) -> None:
    """Check that a model has embeddings for all tokens of all rows."""
    lengths = [len(row.input_ids) for row in rows]
    if max(lengths, default=0) > config.max_position_embeddings:
        raise DataError(
            f"row {np.argmax(lengths)} has {max(lengths)} tokens. Expected at most "
            f"{config.max_position_embeddings}, max_position_embeddings of the model: truncate it or "
            "split it into windows."
        )
    for name, size in (("input_ids", config.vocab_size), ("token_type_ids", config.type_vocab_size)):
        ids = _joined([getattr(row, name) for row in rows], sum(lengths))
        if wrong := np.flatnonzero((ids < 0) | (ids >= size)).tolist():
            number = np.repeat(np.arange(len(rows)), lengths)[wrong[0]]
            raise DataError(f"row {number} has {ids[wrong[0]]} among its {name}. Expected 0 to {size - 1}.")
