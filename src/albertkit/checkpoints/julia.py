"""ALBERT in the files of Julia's BSON.jl: a `.tfbson` with `config`, `weights` and `vocab`.

BSON.jl writes Julia values as documents whose field "tag" gives their kind (see its src/extensions.jl):
arrays with type, size and bytes, structs with type and fields, a Dict as the struct of its keys and values.
The article of TextAnalysis.jl's ALBERT loads `config` (Google's), `weights` (by Google's names) and `vocab`
(the lines of 30k-clean.vocab). Julia's arrays are column-major and those files hold the transpose of
TensorFlow's tensors, so the bytes are TensorFlow's own, with the sizes in reverse order; vectors are 1 x n.

A type in a file is only a name, which is compared with known names. Nothing in a file is looked up or run.
"""

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from albertkit.checkpoints import bson, google
from albertkit.checkpoints.checkpoint import Checkpoint
from albertkit.checkpoints.cursor import Cursor, possible_sizes
from albertkit.checkpoints.names import from_google
from albertkit.config import AlbertConfig
from albertkit.errors import CheckpointError
from albertkit.files import atomic_path, made_folder

ENDINGS = (".bson", ".tfbson")

_DTYPES = {
    **{f"Int{bits}": np.dtype(f"<i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"UInt{bits}": np.dtype(f"<u{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"Float{bits}": np.dtype(f"<f{bits // 8}") for bits in (16, 32, 64)},
    "Bool": np.dtype(np.bool_),
}


def load(path: str | Path) -> dict[str, Any]:
    """Return the variables in a file of BSON.jl by name.

    Dicts, numbers and arrays become those of Python and NumPy (column-major, so `array.T` is contiguous).
    Values of other types, such as structs, remain the documents of the file.

    Raises:
        CheckpointError: The file is damaged, or a value refers to itself.
    """
    path = Path(path)
    if not path.is_file() or not path.stat().st_size:
        raise CheckpointError(
            f"{path} is {'empty' if path.is_file() else 'not a file'}. Expected a file of BSON.jl."
        )
    # Mapped copy-on-write: arrays remain views of the file until they are changed.
    data = memoryview(np.memmap(path, dtype=np.uint8, mode="c"))  # type: ignore[arg-type]
    source = Cursor(path, data)
    try:
        document = bson.decode(source)
        if source.remaining:
            raise source.error(f"{source.remaining:,} bytes follow the document")
        backrefs = document.pop("_backrefs", [])
        if not isinstance(backrefs, list):
            raise CheckpointError(f"{path} is damaged: its back references are not a list. Copy it again.")
        return _Raising(path, backrefs).value(document)
    except RecursionError as error:
        raise CheckpointError(
            f"{path} is damaged: its values are nested too deeply. Copy it again."
        ) from error


class _Raising:
    """Converts tagged documents to values, which BSON.jl calls raising."""

    def __init__(self, path: Path, backrefs: list[Any]) -> None:
        self._path = path
        self._backrefs = backrefs
        self._raised: dict[int, Any] = {}
        self._open: set[int] = set()
        self._entries_left = path.stat().st_size

    def value(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if not isinstance(value, dict):
            return value
        match value.get("tag"):
            case None:
                return {name: self.value(one) for name, one in value.items()}
            case "symbol":
                return self._field(value, "name", str)
            case "tuple":
                return tuple(self.value(self._field(value, "data", list)))
            case "backref":
                return self._backref(value)
            case "array":
                return self._array(value)
            case "struct":
                return self._struct(value)
        return value

    def _backref(self, value: dict[str, Any]) -> Any:
        """Return a value that occurs several times but is stored once; references are counted from 1."""
        number = self._field(value, "ref", int)
        if not 1 <= number <= len(self._backrefs):
            raise self._error(f"back reference {number} of {len(self._backrefs)}")
        if number in self._open:
            raise self._error(f"back reference {number} refers to itself")
        if number not in self._raised:
            self._open.add(number)
            self._raised[number] = self.value(self._backrefs[number - 1])
            self._open.remove(number)
        return self._raised[number]

    def _struct(self, value: dict[str, Any]) -> Any:
        kind, data = self._kind(value.get("type")), value.get("data")
        if kind in _DTYPES and isinstance(data, memoryview):
            return self._numbers(data, kind, []).item()
        if kind not in ("Dict", "IdDict"):
            return value
        data = self.value(data)
        if not (isinstance(data, list) and len(data) == 2):
            raise self._error("a Dict does not have a list of keys and a list of values")
        keys, entries = data
        if not isinstance(keys, list) or not isinstance(entries, list) or len(keys) != len(entries):
            raise self._error("the keys and values of a Dict are not two lists of one length")
        # A small file could exhaust the memory with many Dicts that share one list.
        self._entries_left -= len(keys)
        if self._entries_left < 0 or not all(isinstance(key, str) for key in keys):
            raise self._error("a Dict has keys other than texts, or there are more entries than bytes")
        return dict(zip(keys, entries, strict=True))

    def _array(self, value: dict[str, Any]) -> Any:
        kind, data = self._kind(value.get("type")), value.get("data")
        sizes = self._field(value, "size", list)
        if not all(type(size) is int for size in sizes) or not possible_sizes(sizes):
            raise self._error(f"an array has the {len(sizes)} sizes {sizes[:8]}")
        if kind in _DTYPES and isinstance(data, memoryview):
            return self._numbers(data, kind, sizes)
        if isinstance(data, memoryview):
            return value
        if not isinstance(data, list) or len(data) != prod(sizes):
            raise self._error(f"an array of {kind} has the sizes {sizes}, which do not match its data")
        items = np.empty(len(data), dtype=object)
        items[:] = self.value(data)
        return items.reshape(sizes, order="F")

    def _numbers(self, data: memoryview, kind: str, sizes: list[int]) -> np.ndarray:
        dtype = _DTYPES[kind]
        if prod(sizes) * dtype.itemsize != len(data):
            raise self._error(f"an array of {kind} has the sizes {sizes} but {len(data):,} bytes")
        return np.frombuffer(data, dtype=dtype).reshape(sizes, order="F")

    def _kind(self, kind: Any) -> str:
        """Return the name of a type, without modules and parameters; "" for a type without a name."""
        kind = self.value(kind)
        if isinstance(kind, dict) and kind.get("tag") == "unionall":
            return self._kind(kind.get("body"))  # a type that contains itself raises RecursionError
        name = kind.get("name") if isinstance(kind, dict) else None
        return str(name[-1]) if isinstance(name, list) and name else ""

    def _field(self, value: dict[str, Any], name: str, kind: type) -> Any:
        found = value.get(name)
        if type(found) is not kind:
            raise self._error(f"the field {name!r} of a {value['tag']} is missing or not a {kind.__name__}")
        return found

    def _error(self, what: str) -> CheckpointError:
        return CheckpointError(f"{self._path} is damaged, or not written by Julia's BSON.jl: {what}.")


# --- writing ------------------------------------------------------------------------------------


def save(path: str | Path, variables: Mapping[str, Any]) -> None:
    """Write variables as `BSON.@save` does: dicts as Dict, NumPy arrays as Array, lists as Vector.

    Raises:
        CheckpointError: a value has another kind, or the file would exceed two gigabytes.
        OSError: the file cannot be written.
    """
    pieces = bson.encode({name: _lower(value) for name, value in variables.items()})
    with atomic_path(path) as new, new.open("wb") as file:
        file.writelines(pieces)


def _lower(value: Any) -> Any:
    """Return a value as documents of BSON.jl."""
    if isinstance(value, np.ndarray):
        name = next((name for name, dtype in _DTYPES.items() if dtype == value.dtype), None)
        if name is None:
            raise CheckpointError(
                f"Files of BSON.jl do not support {value.dtype}. Choose float32 or float16."
            )
        return {
            "tag": "array",
            "type": _datatype("Main", "Core", name),
            "size": list(value.shape),
            "data": memoryview(np.ascontiguousarray(value.T).reshape(-1).view(np.uint8)),  # type: ignore[arg-type]
        }
    if isinstance(value, Mapping):
        of_arrays = all(isinstance(one, np.ndarray) for one in value.values())
        parameters = [_datatype("Main", "Core", name) for name in ("String", "Array" if of_arrays else "Any")]
        return {
            "tag": "struct",
            "type": _datatype("Main", "Base", "Dict") | {"params": parameters},
            "data": [[str(key) for key in value], [_lower(one) for one in value.values()]],
        }
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_lower(one) for one in value]
    return value


def _datatype(*name: str) -> dict[str, Any]:
    return {"tag": "datatype", "params": [], "name": list(name)}


# --- ALBERT -------------------------------------------------------------------------------------


def read(path: Path) -> Checkpoint:
    """Read a file with the variables `config`, `weights` and `vocab`.

    Raises:
        CheckpointError: the file is damaged, or has other variables.
        ConfigError: the config describes no possible model.
    """
    variables = load(path)
    config, weights, pieces = (variables.get(name) for name in ("config", "weights", "vocab"))
    if not isinstance(config, dict) or not isinstance(weights, dict):
        raise CheckpointError(
            f"{path} has the variables {', '.join(variables) or 'none'}. Expected 'config' and 'weights', "
            "each a Dict, as `BSON.@save path config weights vocab` writes them."
        )
    tensors = {}
    for name, array in weights.items():
        if not hasattr(array, "dtype") or array.dtype.kind not in "fiu":
            raise CheckpointError(f"{path}: weights[{name!r}] is not an array of numbers.")
        known = from_google(name)
        tensor = tensor_of(array, is_vector=known is not None and known[1].is_vector)
        tensors[name] = google.turned(name, tensor)
    config = google.with_labels(config, tensors)
    config.pop("filename", None)
    lines = [line for line in pieces if isinstance(line, str)] if isinstance(pieces, list) else []
    return Checkpoint("julia", AlbertConfig.from_google_dict(config).to_dict(), tensors, [path], pieces=lines)


def write(path: Path, checkpoint: Checkpoint) -> list[Path]:
    """Write a checkpoint as a file for Julia, in a folder that is created if missing; return the path.

    Raises:
        CheckpointError: Google's models do not have a tensor, or Julia's files do not support its data type.
        ConfigError: see `google.google_config`.
        OSError: the file cannot be written.
    """
    weights = google.google_tensors(checkpoint.tensors)
    variables = {
        "config": google.google_config(checkpoint.config),
        "weights": {name: array_of(tensor) for name, tensor in weights.items()},
        "vocab": checkpoint.pieces,
    }
    with made_folder(path.parent):
        save(path, variables)
    return [path]


def tensor_of(array: np.ndarray, *, is_vector: bool) -> np.ndarray:
    """Return a weight in TensorFlow's layout, from the transpose in Julia's files."""
    array = array.T
    if is_vector and array.shape[1:] == (1,):
        array = array[:, 0]
    # Values in a BSON file can have odd addresses, but some instructions need even ones.
    return np.require(array, requirements=["C", "ALIGNED", "WRITEABLE"])


def array_of(tensor: np.ndarray) -> np.ndarray:
    """Return the reverse of `tensor_of`: the transpose of TensorFlow's tensor, vectors as 1 x n."""
    return tensor[None, :] if tensor.ndim == 1 else np.ascontiguousarray(tensor).T
