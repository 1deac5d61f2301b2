"""Tensors of torch as NumPy arrays, in the same memory."""

from collections.abc import Mapping

import ml_dtypes
import numpy as np
import torch
from torch import Tensor


def to_numpy(tensor: Tensor) -> np.ndarray:
    """Return a tensor on the CPU as an array of the same type; bfloat16, which NumPy lacks, is ml_dtypes'."""
    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def to_arrays(tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """Return tensors on the CPU as arrays of the same types and names."""
    return {name: to_numpy(tensor) for name, tensor in tensors.items()}
