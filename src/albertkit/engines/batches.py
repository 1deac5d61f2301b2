"""Packed batches: which rows are computed together, and the positions of their concatenated tokens."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from albertkit.engines.engine import Read, Row


@dataclass(frozen=True, slots=True)
class Group:
    """Rows of one length that stand next to each other."""

    rows: int
    length: int
    queries: int
    """Tokens of each row for which attention is computed."""

    def full(self) -> "Group":
        """Return these rows with all their tokens as queries."""
        return replace(self, queries=self.length)


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows one after the other, the longest first."""

    numbers: list[int]
    """Of each row, among those that were given."""
    rows: list[Row]
    positions: list[Sequence[int]]
    """The tokens of each row that are read."""

    def groups(self) -> list[Group]:
        """Return the rows of equal length, and of equally many tokens read."""
        sizes = zip(map(length_of, self.rows), map(len, self.positions), strict=True)
        return [Group(len(list(same)), *size) for size, same in groupby(sizes)]

    def inputs(self) -> tuple[list[int], list[int], list[int]]:
        """Return the ids, the segments and the positions of all tokens, (M,) each."""
        ids, segments, positions = [], [], []
        for row in self.rows:
            ids += row.input_ids
            segments += row.token_type_ids
            positions += range(length_of(row))
        return ids, segments, positions

    def read_tokens(self) -> list[int]:
        """Return the places in the batch of the tokens that are read, (P,)."""
        places, start = [], 0
        for row, positions in zip(self.rows, self.positions, strict=True):
            places += [start + position for position in positions]
            start += length_of(row)
        return places

    def split(self, scores: np.ndarray) -> list[np.ndarray]:
        """Return scores (P, K) of the tokens that are read, by row, (R, K) each."""
        return np.split(scores, np.cumsum([len(positions) for positions in self.positions])[:-1])


def plan(rows: Sequence[Row], read: Read, budget: int, max_rows: int | None) -> Iterator[Batch]:
    """Yield batches of at most `budget` tokens and `max_rows` rows, the longest rows first."""
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
