"""Packed batches: choose the rows of each batch, and give the positions of their concatenated tokens."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby

import numpy as np

from albertkit.config import AlbertConfig
from albertkit.engines.engine import Read, Row
from albertkit.errors import DataError


@dataclass(frozen=True, slots=True)
class Group:
    """Consecutive rows with equal numbers of tokens and of queries."""

    rows: int
    length: int
    queries: int
    """Number of tokens of each row for which attention is computed."""

    def full(self) -> "Group":
        """Return the same rows, with attention for all tokens."""
        return replace(self, queries=self.length)


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows that are concatenated and computed together, the longest first."""

    numbers: list[int]
    """The index of each row in the list of all rows."""
    rows: list[Row]
    positions: list[Sequence[int]]
    """The positions of the tokens of each row that are read."""

    def groups(self) -> list[Group]:
        """Return groups of consecutive rows with equal length and an equal number of read tokens."""
        sizes = zip(map(length_of, self.rows), map(len, self.positions), strict=True)
        return [Group(len(list(same)), *size) for size, same in groupby(sizes)]

    def inputs(self, tokens: int) -> np.ndarray:
        """Return the ids, segments and positions (3, M) of M = `tokens` tokens; 0 after the rows."""
        inputs = np.zeros((3, tokens), dtype=np.int32)
        lengths = np.array(list(map(length_of, self.rows)))
        count = lengths.sum()
        inputs[0, :count] = _joined([row.input_ids for row in self.rows], count)
        inputs[1, :count] = _joined([row.token_type_ids for row in self.rows], count)
        inputs[2, :count] = np.arange(count) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return inputs

    def read_tokens(self) -> np.ndarray:
        """Return the indices (P,) of all read tokens among the tokens of the batch."""
        counts = np.array(list(map(len, self.positions)))
        starts = np.cumsum([0, *map(length_of, self.rows[:-1])])
        return _joined(self.positions, counts.sum()) + np.repeat(starts, counts)

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
    lengths, positions = list(map(length_of, rows)), [read(row) for row in rows]
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


def length_of(row: Row) -> int:
    """Return the number of tokens of a row."""
    return len(row.input_ids)


def check_rows(rows: Sequence[Row], config: AlbertConfig) -> None:
    """Check that a model has embeddings for all tokens of all rows.

    Raises:
        DataError: A row is too long, or contains an id that has no embedding.
    """
    longest = max(range(len(rows)), key=lambda number: length_of(rows[number]), default=0)
    if rows and length_of(rows[longest]) > config.max_position_embeddings:
        raise DataError(
            f"row {longest} has {length_of(rows[longest])} tokens. Expected at most "
            f"{config.max_position_embeddings}, max_position_embeddings of the model: truncate it or "
            "split it into windows."
        )
    count = sum(map(length_of, rows))
    for name, size in (("input_ids", config.vocab_size), ("token_type_ids", config.type_vocab_size)):
        ids = _joined([getattr(row, name) for row in rows], count)
        if wrong := np.flatnonzero((ids < 0) | (ids >= size)).tolist():
            number = np.repeat(np.arange(len(rows)), list(map(length_of, rows)))[wrong[0]]
            raise DataError(f"row {number} has {ids[wrong[0]]} among its {name}. Expected 0 to {size - 1}.")
