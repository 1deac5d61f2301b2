"""`tf_model.h5`: the weights of the former TensorFlow classes of `transformers`, as Keras 2 stored them.

Each top-level group is a layer. Its attribute `weight_names` lists the paths of its tensors below it, such as
"tf_albert_model/albert/encoder/embedding_hidden_mapping_in/kernel:0".

HDF5 files can refer to data in other files and declare sizes without data. Keras does neither, so both raise
an error before anything is read.
"""

import mmap
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
    try:
        _check_heaps(path)
        with h5py.File(path, "r") as file:
            tensors = _Reader(path, file).tensors()
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


def _check_heaps(path: Path) -> None:
    """Check the heaps of texts: HDF5 1.14 never returns from a heap with an object of size 0.

    A heap is "GCOL", its version, its size, and objects: 16 bytes and the content. Object 0 is free space.

    Raises:
        CheckpointError: a heap is damaged.
    """
    if not path.stat().st_size:
        return  # an empty file cannot be mapped
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        start = content.find(_HEAP)
        objects = 0
        while start >= 0:
            place, end = start + 16, start + int.from_bytes(content[start + 8 : start + 16], "little")
            while place + 16 <= min(end, len(content)):
                size = int.from_bytes(content[place + 8 : place + 16], "little")
                if content[place : place + 2] != b"\0\0":
                    size = 16 + -(-size // 8) * 8
                if size < 16 or place + size > end:
                    raise CheckpointError(
                        f"{path} is damaged: the heap at byte {start:,} has an object of {size:,} bytes at "
                        f"byte {place:,}. Download or save the file again."
                    )
                place += size
                objects += 1
                if objects * 16 > len(content):  # each has its own bytes, unless heaps overlap
                    raise CheckpointError(
                        f"{path} is damaged: the heap at byte {start:,} overlaps others. "
                        "Download or save the file again."
                    )
            start = content.find(_HEAP, start + 1)


_HEAP = b"GCOL\x01\0\0\0"


class _Reader:
    """Reads the tensors of an open file, at most as many bytes as the file has."""

    def __init__(self, path: Path, file: Any) -> None:
        self.path, self.file = path, file
        self.room = path.stat().st_size

    def tensors(self) -> dict[str, np.ndarray]:
        tensors: dict[str, np.ndarray] = {}
        for layer in self._names(self.file, "layer_names"):
            group = self._find(self.file, layer)
            for name in self._names(group, "weight_names"):
                tensor = self._tensor(self._find(group, name), name)
                # Layers that share a tensor each store it, under one name.
                if name in tensors and not np.array_equal(tensors[name], tensor):
                    raise self._refusal(name, "is stored twice, with different values")
                tensors[name] = tensor
        return tensors

    def _find(self, group: Any, name: str) -> Any:
        """Return the object at a path of hard links below a group."""
        for part in name.split("/"):
            if part in ("", "."):
                raise self._refusal(name, "is not a path below its group")
            link = group.get(part, getlink=True)
            if not isinstance(link, h5py.HardLink):
                raise self._refusal(name, f"is reached by a {type(link).__name__}. Expected the data itself")
            group = group[part]
        return group

    def _names(self, group: Any, attribute: str) -> list[str]:
        """Return a list of names. Lists over 64 kB, an attribute's limit, are in numbered parts from 0."""
        attributes = group.attrs
        parts = [attribute] if attribute in attributes else []
        while f"{attribute}{len(parts)}" in attributes and attribute not in attributes:
            parts.append(f"{attribute}{len(parts)}")
        names: list[str] = []
        for part in parts:
            stored = attributes.get_id(part)
            self._take(stored.shape, stored.get_type().get_size(), part)
            if 0 in stored.shape:  # a layer without weights: an empty list is stored as a list of numbers
                continue
            if stored.dtype.kind not in "SO":
                raise self._refusal(part, f"is of type {stored.dtype}. Expected names")
            names += [name.decode() if isinstance(name, bytes) else str(name) for name in attributes[part]]
        return names

    def _tensor(self, dataset: Any, name: str) -> np.ndarray:
        if not isinstance(dataset, h5py.Dataset) or dataset.dtype.kind not in "fiu":
            raise self._refusal(name, "is not an array of numbers")
        properties = dataset.id.get_create_plist()
        if dataset.is_virtual or properties.get_external_count() or properties.get_nfilters():
            raise self._refusal(name, "is virtual, external or compressed. Expected plain data in this file")
        self._take(dataset.shape, dataset.dtype.itemsize, name)
        if dataset.id.get_storage_size() < dataset.nbytes:
            raise self._refusal(name, f"claims {dataset.nbytes:,} bytes and has fewer")
        array = np.asarray(dataset)
        turned = array.T if array.ndim == 2 and is_turned(name) else array
        return np.ascontiguousarray(turned, turned.dtype.newbyteorder("="))

    def _take(self, shape: tuple[int, ...] | None, size: int, name: str) -> None:
        """Count declared bytes before memory is allocated for them."""
        for number in shape or ():
            size *= number
        self.room -= size
        if self.room < 0:
            raise self._refusal(name, f"claims {size:,} bytes, more than the file has")

    def _refusal(self, name: str, problem: str) -> CheckpointError:
        return CheckpointError(f"{self.path}: {name[:200]} {problem}. Download or save the file again.")
