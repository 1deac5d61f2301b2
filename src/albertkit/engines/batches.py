"""Packed batches: choose the rows of each batch, and give the positions of their concatenated tokens."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from albertkit.engines.engine import Read, Row


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

    def inputs(self) -> tuple[list[int], list[int], list[int]]:
        """Return the ids, the segments and the positions of all tokens, each (M,)."""
        ids, segments, positions = [], [], []
        for row in self.rows:
            ids += row.input_ids
            segments += row.token_type_ids
            positions += range(length_of(row))
        return ids, segments, positions

    def read_tokens(self) -> list[int]:
        """Return the indices (P,) of all read tokens among the tokens of the batch."""
        places, start = [], 0
        for row, positions in zip(self.rows, self.positions, strict=True):
            places += [start + position for position in positions]
            start += length_of(row)
        return places

    def split(self, scores: np.ndarray) -> list[np.ndarray]:
        """Split the scores (P, K) of all read tokens by row: (R, K) for each row."""
        return np.split(scores, np.cumsum([len(positions) for positions in self.positions])[:-1])


def plan(rows: Sequence[Row], read: Read, budget: int, max_rows: int | None) -> Iterator[Batch]:
    """Yield batches of at most `budget` tokens and `max_rows` rows, the longest rows first.

    A row with more than `budget` tokens is a batch of its own. None allows any number of rows.
    """
    positions = [read(row) for row in rows]
    order = sorted(range(len(rows)), key=lambda number: (-length_of(rows[number]), len(positions[number])))
    start = tokens = 0
    for stop, number in enumerate([*order, None]):
        length = length_of(rows[number]) if number is not None else 0
        tokens += length
        is_full = number is None or tokens > budget or stop - start == max_rows
        if is_full and stop > start:
            numbers = order[start:stop]
            yield Batch(numbers, [rows[one] for one in numbers], [positions[one] for one in numbers])
            start, tokens = stop, length


def length_of(row: Row) -> int:
    """Return the number of tokens of a row."""
    return len(row.input_ids)
