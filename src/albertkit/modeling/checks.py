"""Checks of what a model is called with, before PyTorch would raise an error that names no argument."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from albertkit.errors import DataError

IDS = (torch.int64, torch.int32)
CLASSES = (torch.int64, torch.uint8)


def check_tensors(arguments: Mapping[str, Any], *, dtypes: tuple[torch.dtype, ...] = ()) -> None:
    """Check that each argument is None or a tensor, and of one of the types where some are given.

    Raises:
        DataError: an argument is something else.
    """
    for name, value in arguments.items():
        if value is None:
            continue
        if not isinstance(value, Tensor):
            raise DataError(
                f"{name} must be a tensor, got {type(value).__name__}. Use "
                f"torch.tensor({name}); for texts, tokenizer(texts, return_tensors='pt')"
            )
        if dtypes and value.dtype not in dtypes:
            raise DataError(
                f"{name} must be whole numbers ({dtypes[0]}), got {value.dtype}. Use {name}.long()"
            )
