"""Packed batches: choose the rows of each batch, and give the positions of their concatenated tokens."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

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


def length_of(row: Row) -> int:
    """Return the number of tokens of a row."""
    return len(row.input_ids)


def check_rows(rows: Sequence[Row], config: AlbertConfig) -> None:
    """Check that a model has embeddings for all tokens of all rows.

    Raises:
        DataError: A row is too long, or contains an id that has no embedding.
    """
    for number, row in enumerate(rows):
        if length_of(row) > config.max_position_embeddings:
            raise DataError(
                f"row {number} has {length_of(row)} tokens. Expected at most "
                f"{config.max_position_embeddings}, max_position_embeddings of the model: truncate it or "
                "split it into windows."
            )
        for name, ids, size in (
            ("input_ids", row.input_ids, config.vocab_size),
            ("token_type_ids", row.token_type_ids, config.type_vocab_size),
        ):
            if min(ids) < 0 or max(ids) >= size:
                wrong = next(one for one in ids if not 0 <= one < size)
                raise DataError(f"row {number} has {wrong} among its {name}. Expected 0 to {size - 1}.")
