"""Rows of ids through a model in batches: short ones together, padded on the right, answers in order.

Shapes: B batch, T tokens of the longest row.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn

_Answer = TypeVar("_Answer")


def run_rows(
    rows: Sequence[Sequence[int]],
    forward: Callable[[list[int], Tensor, Tensor], Iterable[_Answer]],
    *,
    batch_size: int,
    pad_token_id: int,
    device: torch.device,
) -> list[_Answer]:
    """Return the answer for each row.

    Args:
        rows: ids of any lengths.
        forward: is given the numbers of the rows of a batch, their `input_ids` and `attention_mask`, both
            (B, T); returns the answer for each of these rows.
        batch_size: rows of a batch, B.
        pad_token_id: fills the shorter rows.
        device: where the batches go.
    """
    answers: dict[int, _Answer] = {}
    for numbers in batches_by_length(rows, batch_size):
        batch = pad_batch([rows[number] for number in numbers], pad_token_id=pad_token_id, device=device)
        answers.update(zip(numbers, forward(numbers, *batch), strict=True))
    return [answers[number] for number in range(len(rows))]


def batches_by_length(rows: Sequence[Sequence[int]], batch_size: int) -> Iterator[list[int]]:
    """Yield the numbers of the rows of each batch, the longest rows first.

    Rows of about one length pad each other little; with the longest first, what does not fit into memory
    shows at once.
    """
    order = sorted(range(len(rows)), key=lambda number: len(rows[number]), reverse=True)
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]


def pad_batch(
    rows: Sequence[Sequence[int]], *, pad_token_id: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return `input_ids` and `attention_mask`, both (B, T), of rows of any lengths."""
    length = max(map(len, rows))
    ids = torch.tensor([[*row, *[pad_token_id] * (length - len(row))] for row in rows])
    lengths = torch.tensor([[len(row)] for row in rows])
    return ids.to(device), (torch.arange(length) < lengths).long().to(device)  # (T,) < (B, 1) -> (B, T)


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
