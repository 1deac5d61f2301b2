"""`tf_model.h5`: the weights of the former TensorFlow classes of `transformers`, as Keras 2 stored them.

Each top-level group is a layer. Its tensors are data sets, and their paths below it are their names, such as
"tf_albert_model/albert/encoder/embedding_hidden_mapping_in/kernel:0".

HDF5 files can refer to other files and declare sizes without data. Keras does neither. Links are not
followed, and other references and wrong sizes raise an error before data is read. Attributes and texts are
not read, because HDF5 1.14 never returns from some damaged heaps of texts.
"""

from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from albertkit.checkpoints.names import is_turned
from albertkit.errors import AlbertKitError, CheckpointError
from albertkit.extras import optional

h5py = optional("h5py", extra="convert")


def read_h5(path: Path) -> dict[str, np.ndarray]:
    """Read every tensor by its Keras name, in PyTorch's layout.

    Raises:
        CheckpointError: the file is damaged, has another format, or refers to data outside itself.
    """
    stored: dict[str, Any] = {}

    def collect(place: str, found: Any) -> None:
        if isinstance(found, h5py.Dataset):
            stored[place] = found

    try:
        with h5py.File(path, "r") as file:
            file.visititems(collect)
            tensors = _tensors(path, stored)
    except AlbertKitError:
        raise
    except Exception as error:  # a damaged file can make the library raise almost any exception
        raise CheckpointError(
            f"{path} ({path.stat().st_size:,} bytes) is damaged, or is not a file of Keras weights "
            f"({type(error).__name__}: {error})."
        ) from error
    if not tensors:
        raise CheckpointError(f"{path} has no weights of Keras layers.")
    return tensors


def _tensors(path: Path, stored: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return the tensors by name, from data sets by path. Layers that share a tensor each store it."""
    tensors: dict[str, np.ndarray] = {}
    room = path.stat().st_size
    for place, dataset in stored.items():
        name = place.partition("/")[2] or place
        size = prod(dataset.shape or ()) * dataset.dtype.itemsize
        room -= size
        problem = _problem(dataset, size, room)
        if problem is None:
            tensor = np.asarray(dataset)
            tensor = tensor.T if tensor.ndim == 2 and is_turned(name) else tensor
            tensor = np.ascontiguousarray(tensor, tensor.dtype.newbyteorder("="))
            if name in tensors and not np.array_equal(tensors[name], tensor):
                problem = "is stored twice, with different values"
            tensors[name] = tensor
        if problem is not None:
            raise CheckpointError(f"{path}: {name[:200]} {problem}. Download or save the file again.")
    return tensors


def _problem(dataset: Any, size: int, room: int) -> str | None:
    """Return why a data set of `size` bytes cannot be read, or None; it leaves `room` bytes of the file."""
    if dataset.dtype.kind not in "fiu":
        return "is not an array of numbers"
    properties = dataset.id.get_create_plist()
    if dataset.is_virtual or properties.get_external_count() or properties.get_nfilters():
        return "is virtual, external or compressed. Expected plain data in this file"
    if room < 0:
        return f"claims {size:,} bytes, more than the file has"
    if dataset.id.get_storage_size() < size:
        return f"claims {size:,} bytes and has fewer"
    return None
