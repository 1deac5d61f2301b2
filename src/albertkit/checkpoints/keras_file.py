"""`tf_model.h5`: the weights of the former TensorFlow classes of `transformers`, as Keras 2 stored them.

Each top-level group is a layer. Its tensors are data sets, and their paths below it are their names, such as
"tf_albert_model/albert/encoder/embedding_hidden_mapping_in/kernel:0".

HDF5 files can refer to other files and declare sizes without data, which Keras never does: both are errors.
Attributes and texts are not read, because HDF5 1.14 never returns from some damaged heaps of texts.
"""

from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from albertkit.checkpoints.names import is_turned
from albertkit.errors import CheckpointError, reading
from albertkit.extras import optional

h5py = optional("h5py", extra="convert")


def read_h5(path: Path) -> dict[str, np.ndarray]:
    """Read every tensor by its Keras name, in PyTorch's layout."""
    stored: dict[str, Any] = {}
    tensors: dict[str, np.ndarray] = {}
    bytes_left = path.stat().st_size

    def collect(name: str, value: Any) -> None:
        if isinstance(value, h5py.Dataset):
            stored[name] = value

    with reading(path, CheckpointError), h5py.File(path, "r") as file:
        file.visititems(collect)  # follows no links
        for full_name, dataset in stored.items():
            name = full_name.partition("/")[2] or full_name
            size = prod(dataset.shape or ()) * dataset.dtype.itemsize
            bytes_left -= size
            properties = dataset.id.get_create_plist()
            if dataset.is_virtual or properties.get_external_count() or properties.get_nfilters():
                raise ValueError(f"{name} is virtual, external or compressed")
            if dataset.dtype.kind not in "fiu" or bytes_left < 0 or dataset.id.get_storage_size() < size:
                raise ValueError(f"{name} is not an array of numbers, or claims more bytes than the file has")
            tensor = np.asarray(dataset)
            tensor = tensor.T if tensor.ndim == 2 and is_turned(name) else tensor
            tensor = np.ascontiguousarray(tensor, tensor.dtype.newbyteorder("="))
            # Layers that share a tensor each store it.
            if name in tensors and not np.array_equal(tensors[name], tensor):
                raise ValueError(f"{name} is stored twice, with different values")
            tensors[name] = tensor
        if not tensors:
            raise ValueError("it has no weights of Keras layers")
    return tensors
