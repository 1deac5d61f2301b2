"""Tests of batches of rows: their order by length and their padding."""

import torch

from albertkit.engines.engine import Row, batches_by_length
from albertkit.engines.plain import pad_batch


def row(input_ids: list[int], token_type_ids: list[int] | None = None) -> Row:
    return Row(input_ids=input_ids, token_type_ids=token_type_ids or [0] * len(input_ids), example=0)


def test_batches_by_length() -> None:
    rows = [row([1] * length) for length in (3, 9, 1, 5, 5)]
    assert list(batches_by_length(rows, batch_tokens=100, batch_size=2)) == [[1, 3], [4, 0], [2]]
    assert list(batches_by_length(rows, batch_tokens=100)) == [[1, 3, 4, 0, 2]]
    # padding counts: three rows of 5 positions exceed 10, and a row that is too long is alone
    assert list(batches_by_length(rows, batch_tokens=10)) == [[1], [3, 4], [0, 2]]
    assert list(batches_by_length(rows, batch_tokens=2)) == [[1], [3], [4], [0], [2]]


def test_pad_batch() -> None:
    rows = [row([5, 6, 7], [0, 1, 1]), row([8], [1])]
    batch = pad_batch(rows, pad_token_id=9, device=torch.device("cpu"))
    assert {name: values.tolist() for name, values in batch.items()} == {
        "input_ids": [[5, 6, 7], [8, 9, 9]],
        "attention_mask": [[1, 1, 1], [1, 0, 0]],
        "token_type_ids": [[0, 1, 1], [1, 0, 0]],
    }
