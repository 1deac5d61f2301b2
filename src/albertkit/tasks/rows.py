"""Rows of ids: what a model reads at once. Rows of about one length share a batch; answers keep the order.

Every task and every pipeline batches here. A row always has its segments: without them a model reads a pair
as one text, and no error says so.

Shapes: B batch, T tokens of the longest row.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, TypeVar

_Answer = TypeVar("_Answer")
_Row = TypeVar("_Row", bound="Row")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What the model reads at once, (T,) each, and what it is to learn from that."""

    input_ids: list[int]
    token_type_ids: list[int]
    example: int
    """Number of the example that the row comes from, among those given."""
    labels: Any = None
    """What the task's loss needs; None for an example without labels."""
    cut: int = 0
    """Tokens of the example that no row shows, because its text was too long and was to be cut."""


def batches_by_length(
    rows: Sequence[Row], *, batch_tokens: int, batch_size: int | None = None
) -> Iterator[list[int]]:
    """Yield the numbers of the rows of each batch, the longest rows first.

    Rows of about one length pad each other little; with the longest first, what does not fit into memory
    shows at once.

    Args:
        rows: of any lengths.
        batch_tokens: most tokens of a batch, padding included: B * T. A longer row is a batch of its own.
        batch_size: most rows of a batch, B; None for as many as `batch_tokens` allows.
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
    """Return for each of `count` examples its rows in order, each with what the model said about it."""
    found: list[list[tuple[_Row, _Answer]]] = [[] for _ in range(count)]
    for row, output in zip(rows, outputs, strict=True):
        found[row.example].append((row, output))
    return found


def runs_of_examples(rows: Iterable[_Row]) -> list[list[_Row]]:
    """Return neighbouring rows of one example together."""
    return [list(run) for _, run in groupby(rows, key=attrgetter("example"))]
