"""Weights in the ONNX files that `albertkit export onnx` writes, in PyTorch's layout."""

from pathlib import Path
from typing import Any

import numpy as np

from albertkit.checkpoints.arrays import BFLOAT16
from albertkit.errors import AlbertKitError, CheckpointError
from albertkit.extras import optional

onnx = optional("onnx")

ONNX_FILE = "model.onnx"
SCALE = "/scale"
"""Ending of the names of int8 tensors' scales."""
PRODUCER = "albertkit"


def read_onnx(path: Path) -> dict[str, np.ndarray]:
    """Read every weight by its name in the state dict; int8 weights are converted to floats.

    Raises:
        CheckpointError: the file is damaged, or albertkit did not write it.
    """
    try:
        # Files with external data are not ours, and could refer to any file of the machine.
        model = onnx.load(str(path), load_external_data=False)
        if model.producer_name != PRODUCER:
            raise CheckpointError(
                f"{path} was written by {model.producer_name or 'an unknown program'}. Only files of "
                "`albertkit export onnx` have the names of the weights."
            )
        stored = {one.name: one for one in model.graph.initializer if not one.name.startswith("constants/")}
        return {name: _weight(stored, name) for name in stored if not name.endswith(SCALE)}
    except AlbertKitError:
        raise
    except Exception as error:  # protobuf's errors have no common base
        raise CheckpointError(
            f"{path} ({path.stat().st_size:,} bytes) is damaged or incomplete. Expected an ONNX file "
            f"({error})."
        ) from error


def _weight(stored: dict[str, Any], name: str) -> np.ndarray:
    """Return a tensor in PyTorch's layout: matrices are stored as inputs x outputs, tables are not."""
    tensor = _tensor(stored[name])
    if name + SCALE in stored:
        tensor = tensor.astype(np.float32) * _tensor(stored[name + SCALE])
    is_matrix = tensor.ndim == 2 and "embeddings." not in name
    return np.ascontiguousarray(tensor.T) if is_matrix else tensor


def _tensor(stored: Any) -> np.ndarray:
    if stored.data_location == onnx.TensorProto.EXTERNAL:
        raise CheckpointError(f"The ONNX file keeps {stored.name} in another file. Expected one file.")
    if stored.data_type == onnx.TensorProto.BFLOAT16:  # older versions of onnx return it as float32
        return np.frombuffer(bytearray(stored.raw_data), BFLOAT16).reshape(tuple(stored.dims))
    return onnx.numpy_helper.to_array(stored).copy()
