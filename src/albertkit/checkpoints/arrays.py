"""Weights as NumPy arrays: their data types, mapping of safetensors, conversion from and to torch."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors import safe_open

from albertkit.errors import CheckpointError, reading
from albertkit.extras import optional

torch: Any = optional("torch", extra="torch")

Arrays = Mapping[str, np.ndarray]

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
"""NumPy itself has no such type."""
DTYPES = {"float32": np.dtype(np.float32), "float16": np.dtype(np.float16), "bfloat16": BFLOAT16}
"""The types that weights are stored in, by name."""
_FLOATING = (*DTYPES.values(), np.dtype(np.float64))
EXPECTED = "Expected one of float32, float16, bfloat16 and float64"
"""For messages about other types."""

_SAFETENSORS = {
    **{"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": BFLOAT16, "BOOL": np.bool_},
    **{"I64": np.int64, "I32": np.int32, "I16": np.int16, "I8": np.int8},
    **{"U64": np.uint64, "U32": np.uint32, "U16": np.uint16, "U8": np.uint8},
}


def is_floating(array: np.ndarray) -> bool:
    return array.dtype in _FLOATING


def is_equal(first: np.ndarray, second: np.ndarray | None) -> bool:
    return second is not None and first.dtype == second.dtype and np.array_equal(first, second)


def check_finite(source: object, tensors: Arrays) -> None:
    """Raise CheckpointError for NaN and infinite values, with which outputs cannot be compared."""
    for name, tensor in tensors.items():
        if not np.isfinite(tensor).all():
            raise CheckpointError(f"{source}: {name} contains values that are NaN or infinite.")


def map_file(path: Path) -> np.ndarray:
    """Return the bytes of a file, mapped copy-on-write: changing the array does not change the file."""
    if not path.stat().st_size:  # an empty file cannot be mapped
        return np.empty(0, np.uint8)
    mapped: Any = np.memmap(path, np.uint8, mode="c")
    mapped.status = path.stat()  # for `place_in_file`
    return mapped.view(np.ndarray)


def map_safetensors(path: Path) -> dict[str, np.ndarray]:
    with reading(path, CheckpointError):
        with safe_open(path, framework="numpy"):  # checks the header against the size of the file
            pass
        with path.open("rb") as file:
            start = 8 + int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(start - 8))
        header.pop("__metadata__", None)
        content = map_file(path)[start:]
        tensors = {}
        for name, entry in header.items():
            if entry["dtype"] not in _SAFETENSORS:
                raise ValueError(f"{name} has the type {entry['dtype']}. {EXPECTED}")
            begin, end = entry["data_offsets"]
            array = content[begin:end].view(_SAFETENSORS[entry["dtype"]]).reshape(entry["shape"])
            tensors[name] = array if array.flags.aligned else array.copy()
        return tensors


def to_numpy(tensor: Any) -> np.ndarray:
    """Return a torch tensor as an array of the same data type, without a copy if it is on the CPU."""
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.uint16).numpy().view(BFLOAT16)
    return tensor.numpy()


def to_arrays(tensors: Mapping[str, Any], *, source: str = "the given tensors") -> dict[str, np.ndarray]:
    """Return torch tensors as arrays. Names that share a tensor share the memory."""
    if not isinstance(tensors, Mapping) or not all(isinstance(name, str) for name in tensors):
        raise CheckpointError(f"{source}: not a state dict. Expected a dictionary of tensors by name.")
    arrays = {}
    for name, tensor in tensors.items():
        try:
            arrays[name] = to_numpy(tensor)
        except (AttributeError, TypeError, RuntimeError) as error:
            kind = getattr(tensor, "dtype", type(tensor).__name__)
            raise CheckpointError(f"{source}: {name} is {kind}. {EXPECTED}, as a dense tensor.") from error
    return arrays


def to_torch(array: np.ndarray) -> Any:
    """Return an array as a torch tensor that shares its memory."""
    if array.dtype == BFLOAT16:
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def to_tensors(arrays: Arrays) -> dict[str, Any]:
    """Return arrays as torch tensors. Names that share an array share the tensor."""
    tensors = {id(array): to_torch(array) for array in arrays.values()}
    return {name: tensors[id(array)] for name, array in arrays.items()}


def place_in_file(array: np.ndarray) -> tuple[Path, int] | None:
    """Return the file and the byte offset of a mapped array.

    The result is None for an array in memory, or if the file was deleted or replaced since it was mapped.
    """
    owner: Any = array
    while owner is not None and not hasattr(owner, "status"):
        owner = getattr(owner, "base", None)
    if owner is None or not array.flags.c_contiguous:
        return None
    path = Path(str(owner.filename))
    if not path.exists() or not os.path.samestat(owner.status, path.stat()):
        return None
    return path, owner.offset + array.ctypes.data - owner.ctypes.data
