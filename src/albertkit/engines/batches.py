"""Which rows are computed together, and where their tokens stand: one after the other, without padding."""

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
    asking: int
    """Tokens of each row that ask."""

    def whole(self) -> "Group":
        """Return these rows with all their tokens asking."""
        return replace(self, asking=self.length)


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
        return [Group(len(list(some)), *size) for size, some in groupby(sizes)]

    def inputs(self) -> tuple[list[int], list[int], list[int]]:
        """Return the ids, the segments and the positions of all tokens, (M,) each."""
        ids, segments, places = [], [], []
        for row in self.rows:
            ids += row.input_ids
            segments += row.token_type_ids
            places += range(length_of(row))
        return ids, segments, places

    def places(self) -> list[int]:
        """Return where the tokens that are read stand in the batch, (P,)."""
        found, start = [], 0
        for row, positions in zip(self.rows, self.positions, strict=True):
            found += [start + position for position in positions]
            start += length_of(row)
        return found

    def split(self, scores: np.ndarray) -> list[np.ndarray]:
        """Return scores (P, K) of the tokens that are read, by row, (R, K) each."""
        return np.split(scores, np.cumsum([len(own) for own in self.positions])[:-1])


def plan(rows: Sequence[Row], read: Read, budget: int, most_rows: int | None) -> Iterator[Batch]:
    """Yield batches of at most so many tokens and rows, the longest rows first."""
    positions = [read(row) for row in rows]
    order = sorted(range(len(rows)), key=lambda number: (-length_of(rows[number]), len(positions[number])))
    some: list[int] = []
    tokens = 0
    for number in order:
        tokens += length_of(rows[number])
        if some and (tokens > budget or len(some) == most_rows):
            yield _batch(some, rows, positions)
            some, tokens = [], length_of(rows[number])
        some.append(number)
    if some:
        yield _batch(some, rows, positions)


def _batch(numbers: list[int], rows: Sequence[Row], positions: list[Sequence[int]]) -> Batch:
    return Batch(numbers, [rows[number] for number in numbers], [positions[number] for number in numbers])


def length_of(row: Row) -> int:
    """Return the number of tokens of a row."""
    return len(row.input_ids)
