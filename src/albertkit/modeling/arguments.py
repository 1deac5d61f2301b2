"""Checks of a model's inputs, with errors that name the argument, before PyTorch raises one that does not."""

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from albertkit.errors import DataError

IDS = (torch.int64, torch.int32)
CLASSES = (torch.int64, torch.uint8)


def check_tensors(arguments: Mapping[str, Any], *, dtypes: tuple[torch.dtype, ...] = ()) -> None:
    """Check that each argument is None or a tensor, and has one of the data types if any are given.

    Raises:
        DataError: an argument is neither, or has another data type.
    """
    for name, value in arguments.items():
        if value is None:
            continue
        if not isinstance(value, Tensor):
            raise DataError(
                f"{name} must be a tensor, got {type(value).__name__}. Use "
                f"torch.tensor({name}); for texts, tokenizer(texts, return_tensors='pt')."
            )
        if dtypes and value.dtype not in dtypes:
            raise DataError(
                f"{name} must be whole numbers ({dtypes[0]}), got {value.dtype}. Use {name}.long()."
            )


READ_MULTIPLE = 4  # few different R: CPU libraries keep code and buffers for every shape they have seen


def select_tokens(hidden_states: Tensor, positions: Tensor) -> Tensor:
    """Return the states (B, R, H) of (B, T, H) at these positions of each row, (B, R) or (1, R)."""
    rows = torch.arange(len(hidden_states), device=hidden_states.device)[:, None]
    return hidden_states[rows, positions]


def first_token(*inputs: Tensor | None) -> Tensor:
    """Return the position of [CLS] for any row, (1, 1), on the device of the first input that is a tensor."""
    device = next((tensor.device for tensor in inputs if isinstance(tensor, Tensor)), None)
    return torch.zeros(1, 1, dtype=torch.long, device=device)


def query_positions(flat: Tensor, *, batch: int, length: int) -> tuple[Tensor, Tensor]:
    """Split positions (P,) in the B * T flattened tokens by row, with [CLS] first.

    Shorter rows are filled up with [CLS]. This is fastest if `flat` is on the CPU: R depends on its values.

    Returns:
        The positions (B, R), and the index of each of the P positions in the B * R flattened ones.
    """
    row, column = flat // length, flat % length
    others = column != 0  # [CLS] always comes first
    counts = torch.bincount(row[others], minlength=batch)  # (B,)
    most = 1 + (int(counts.max()) if len(counts) else 0)
    reads = most + -most % READ_MULTIPLE
    order = row[others].argsort(stable=True)
    starts = F.pad(counts.cumsum(0), (1, -1))
    slots = torch.zeros_like(flat)  # (P,)
    places = torch.arange(len(order), device=flat.device) - starts[row[others][order]] + 1
    slots[others.nonzero().flatten()[order]] = places
    positions = torch.zeros(batch, reads, dtype=torch.long, device=flat.device)
    positions[row, slots] = column
    return positions, row * reads + slots
