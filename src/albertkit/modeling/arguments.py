"""Check and select a model's inputs; errors name the argument, unlike those that PyTorch would raise."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from albertkit import model_inputs
from albertkit.config import AlbertConfig
from albertkit.errors import DataError

IDS = (torch.int64, torch.int32)
CLASSES = (torch.int64, torch.uint8)


def check_tensors(arguments: Mapping[str, Any], *, dtypes: tuple[torch.dtype, ...] = ()) -> None:
    """Check that each argument is None or a tensor, and has one of the data types, if any are given."""
    for name, value in arguments.items():
        if value is None:
            continue
        if not isinstance(value, Tensor):
            raise DataError(
                f"{name} must be a tensor, got {type(value).__name__}. Use "
                f"torch.tensor({name}); for texts, tokenizer(texts, return_tensors='pt')."
            )
        if dtypes and value.dtype not in dtypes:
            hint = ", or pass word embeddings as inputs_embeds" if name == "input_ids" else ""
            raise DataError(
                f"{name} must be whole numbers ({dtypes[0]}), got {value.dtype}. Use {name}.long(){hint}."
            )


def named_inputs(
    *inputs: Tensor | None, config: AlbertConfig, choices: bool = False
) -> dict[str, Tensor | None]:
    """Return the inputs of a model, which are in the documented order, by their names."""
    named = dict(zip(model_inputs.NAMES, inputs, strict=True))
    for name, value in named.items():
        check_tensors({name: value}, dtypes=IDS if name in model_inputs.LIMITS else ())
    shapes = {name: tuple(value.shape) for name, value in named.items() if value is not None}
    model_inputs.check_shapes(shapes, config, choices=choices)
    return named


READ_MULTIPLE = 4  # R is rounded up to it: CPU libraries keep code and buffers for every shape they compute


def select_tokens(hidden_states: Tensor, positions: Tensor) -> Tensor:
    """Return the hidden states (B, R, H) at the positions (B, R) or (1, R) of hidden states (B, T, H)."""
    # `len(hidden_states)` would be a constant in a traced graph.
    rows = torch.arange(hidden_states.shape[0], device=hidden_states.device)[:, None]
    return hidden_states[rows, positions]


def query_positions(flat: Tensor, *, batch: int, length: int) -> tuple[Tensor, Tensor]:
    """Group positions (P,) in the flattened B * T tokens by row, with [CLS] first in each row.

    Shorter rows are filled up with [CLS]. Keep `flat` on the CPU if you can: R depends on its values, which
    would have to be copied from the GPU.

    Returns:
        The positions (B, R), and for each of the P positions its index in the flattened B * R positions.
    """
    if flat.dim() != 1:
        raise DataError(
            f"masked_positions must have shape (P,), got {tuple(flat.shape)}. For positions by row, add "
            f"row * {length} and flatten them."
        )
    if len(flat) and not torch.compiler.is_compiling():
        first, last = torch.stack(torch.aminmax(flat)).tolist()
        if not 0 <= first <= last < batch * length:
            raise DataError(
                f"masked_positions has values from {first} to {last}. Expected 0 to {batch * length - 1}, "
                f"indices into the {batch} * {length} tokens."
            )
    flat = flat.long()
    row, column = flat // length, flat % length
    others = column != 0  # [CLS] is always in the first column
    counts = torch.bincount(row[others], minlength=batch)  # (B,)
    most = 1 + (int(counts.max()) if len(counts) else 0)
    reads = most + -most % READ_MULTIPLE
    order = row[others].argsort(stable=True)
    starts = counts.cumsum(0) - counts
    slots = torch.zeros_like(flat)  # (P,)
    ranks = torch.arange(len(order), device=flat.device) - starts[row[others][order]] + 1
    slots[others.nonzero().flatten()[order]] = ranks
    positions = torch.zeros(batch, reads, dtype=torch.long, device=flat.device)
    positions[row, slots] = column
    return positions, row * reads + slots
