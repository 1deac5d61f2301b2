"""Rows of ids through a model in batches: short ones together, padded on the right, answers in order.

Every task and every pipeline batches here. A row always carries its segments, and a batch always hands them
to the model: without them a pair is read as one text, and nothing tells.

Shapes: B batch, T tokens of the longest row.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any, TypedDict, TypeVar

import torch
from torch import Tensor, nn

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


class Batch(TypedDict):
    """What every model takes, (B, T) each."""

    input_ids: Tensor
    attention_mask: Tensor
    token_type_ids: Tensor


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


def pad_batch(
    rows: Sequence[Row], *, pad_token_id: int, device: torch.device, length: int | None = None
) -> Batch:
    """Return rows of any lengths as one batch: T is `length`, or without it the longest row's."""
    length = length or max(len(row.input_ids) for row in rows)
    lengths = torch.tensor([[len(row.input_ids)] for row in rows])
    return {
        "input_ids": pad([row.input_ids for row in rows], pad_token_id, length).to(device),
        "attention_mask": (torch.arange(length) < lengths).long().to(device),  # (T,) < (B, 1) -> (B, T)
        "token_type_ids": pad([row.token_type_ids for row in rows], 0, length).to(device),
    }


def pad(lists: Sequence[list[int]], value: int, length: int) -> Tensor:
    """Return lists of up to `length` numbers as (B, T), filled up on the right to T = `length`."""
    return torch.tensor([[*one, *[value] * (length - len(one))] for one in lists])


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


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Without dropout and gradients; a model in training goes on with training afterwards."""
    training = model.training
    if training:
        model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        if training:
            model.train()
