"""Weights in the ONNX files that `albertkit export onnx` writes, in PyTorch's layout."""

from pathlib import Path

import numpy as np

from albertkit.checkpoints.arrays import BFLOAT16
from albertkit.errors import CheckpointError, reading
from albertkit.extras import optional

onnx = optional("onnx")

ONNX_FILE = "model.onnx"
SCALE = "/scale"
"""Ending of the names of int8 tensors' scales."""
PRODUCER = "albertkit"


def read_onnx(path: Path) -> dict[str, np.ndarray]:
    """Read every weight by its name in the state dict; int8 weights are converted to floats."""
    with reading(path, CheckpointError):
        # Files with external data are not ours, and could refer to any file of the machine.
        model = onnx.load(str(path), load_external_data=False)
        if model.producer_name != PRODUCER:
            raise ValueError(f"it was written by {model.producer_name!r}, not by `albertkit export onnx`")
        arrays = {}
        for stored in model.graph.initializer:
            if stored.name.startswith("constants/"):
                continue
            if stored.data_location == onnx.TensorProto.EXTERNAL:
                raise ValueError(f"it keeps {stored.name} in another file. Expected one file")
            if stored.data_type == onnx.TensorProto.BFLOAT16:  # older versions of onnx return float32
                values = np.frombuffer(bytearray(stored.raw_data), BFLOAT16)
                arrays[stored.name] = values.reshape(tuple(stored.dims))
            else:
                arrays[stored.name] = onnx.numpy_helper.to_array(stored).copy()
        weights = {}
        for name, array in arrays.items():
            if name.endswith(SCALE):
                continue
            if name + SCALE in arrays:
                array = array.astype(np.float32) * arrays[name + SCALE]
            # Matrices are stored as inputs x outputs, tables are not.
            is_matrix = array.ndim == 2 and "embeddings." not in name
            weights[name] = np.ascontiguousarray(array.T) if is_matrix else array
        return weights
