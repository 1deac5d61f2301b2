"""ALBERT in the files of Julia's BSON.jl: a `.tfbson` with `config`, `weights` and `vocab`.

BSON.jl writes Julia values as documents whose field "tag" gives their kind (see its src/extensions.jl):
arrays with type, size and bytes, structs with type and fields, a Dict as the struct of its keys and values.
The article of TextAnalysis.jl's ALBERT loads `config` (Google's), `weights` (by Google's names) and `vocab`
(the lines of 30k-clean.vocab). Julia's arrays are column-major and those files hold the transpose of
TensorFlow's tensors, so the bytes are TensorFlow's own, with the sizes in reverse order; vectors are 1 x n.

A type in a file is only a name, which is compared with known names. Nothing in a file is looked up or run.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from albertkit.checkpoints import tensorflow
from albertkit.checkpoints.checkpoint import Checkpoint
from albertkit.checkpoints.names import from_google
from albertkit.config import AlbertConfig
from albertkit.errors import CheckpointError, reading
from albertkit.extras import optional
from albertkit.files import atomic_path, made_folder

bson: Any = optional("bson", extra="convert")

ENDINGS = (".bson", ".tfbson")

_DTYPES = {
    **{f"Int{bits}": np.dtype(f"<i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"UInt{bits}": np.dtype(f"<u{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"Float{bits}": np.dtype(f"<f{bits // 8}") for bits in (16, 32, 64)},
    "Bool": np.dtype(np.bool_),
}
_LARGEST_FILE = (1 << 31) - 1  # bytes of a BSON document


def load(path: str | Path) -> dict[str, Any]:
    """Return the variables in a file of BSON.jl by name.

    Dicts, numbers and arrays become those of Python and NumPy (column-major, so `array.T` is contiguous).
    Values of other types, such as structs, remain the documents of the file.
    """
    path = Path(path)
    with reading(path, CheckpointError):
        document = bson.decode(path.read_bytes())
        return _Values(document.pop("_backrefs", []), path.stat().st_size).read(document)


class _Values:
    """Converts tagged documents to values, which BSON.jl calls raising."""

    def __init__(self, backrefs: list[Any], file_size: int) -> None:
        self._backrefs = backrefs
        self._read: dict[int, Any] = {}
        self._open: set[int] = set()
        self._entries_left = file_size

    def read(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.read(item) for item in value]
        if isinstance(value, int) and not isinstance(value, bool):
            return int(value)  # the library has a class for 64 bits
        if not isinstance(value, dict):
            return value
        match value.get("tag"):
            case None:
                return {name: self.read(entry) for name, entry in value.items()}
            case "symbol":
                return value["name"]
            case "tuple":
                return tuple(self.read(value["data"]))
            case "backref":  # a value that occurs several times, stored once; numbers count from 1
                number = value["ref"]
                if number in self._open or number < 1:
                    raise ValueError(f"back reference {number} is not possible, or refers to itself")
                if number not in self._read:
                    self._open.add(number)
                    self._read[number] = self.read(self._backrefs[number - 1])
                    self._open.remove(number)
                return self._read[number]
            case "array":
                return self._array(value, self._kind(value["type"]))
            case "struct":
                return self._struct(value, self._kind(value["type"]))
        return value

    def _struct(self, value: dict[str, Any], kind: str) -> Any:
        data = value["data"]
        if kind in _DTYPES and isinstance(data, bytes):
            return np.frombuffer(data, _DTYPES[kind]).item()
        if kind not in ("Dict", "IdDict"):
            return value
        keys, entries = self.read(data)
        # A small file could exhaust the memory with many Dicts that share one list.
        self._entries_left -= len(keys)
        if self._entries_left < 0 or not all(isinstance(key, str) for key in keys):
            raise ValueError("a Dict has keys other than texts, or there are more entries than bytes")
        return dict(zip(keys, entries, strict=True))

    def _array(self, value: dict[str, Any], kind: str) -> Any:
        data, sizes = value["data"], value["size"]
        if isinstance(data, bytes) and kind not in _DTYPES:
            return value
        if min(sizes, default=0) < 0:  # NumPy would read -1 as "the rest"
            raise ValueError(f"an array of {kind} has the sizes {sizes}, which do not match its data")
        if isinstance(data, bytes):
            return np.frombuffer(data, _DTYPES[kind]).reshape(sizes, order="F")
        items = np.empty(len(data), dtype=object)
        items[:] = self.read(data)
        return items.reshape(sizes, order="F")

    def _kind(self, kind: Any) -> str:
        """Return the name of a type, without modules and parameters; "" for a type without a name."""
        kind = self.read(kind)
        if isinstance(kind, dict) and kind.get("tag") == "unionall":
            return self._kind(kind["body"])  # a type that contains itself raises RecursionError
        return str(kind["name"][-1]) if isinstance(kind, dict) and kind.get("name") else ""


def save(path: str | Path, variables: Mapping[str, Any]) -> None:
    """Write variables as `BSON.@save` does: dicts as Dict, NumPy arrays as Array, lists as Vector."""
    document = {name: _document(value) for name, value in variables.items()}
    with atomic_path(path) as file:
        file.write_bytes(bson.encode(document))


def _document(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        names = [name for name, dtype in _DTYPES.items() if dtype == value.dtype]
        if not names:
            raise CheckpointError(f"Files of BSON.jl do not support {value.dtype}. Choose float32.")
        return {
            "tag": "array",
            "type": _datatype("Main", "Core", names[0]),
            "size": [bson.Int64(size) for size in value.shape],
            "data": value.tobytes("F"),
        }
    if isinstance(value, Mapping):
        of_arrays = all(isinstance(entry, np.ndarray) for entry in value.values())
        parameters = [_datatype("Main", "Core", name) for name in ("String", "Array" if of_arrays else "Any")]
        return {
            "tag": "struct",
            "type": _datatype("Main", "Base", "Dict") | {"params": parameters},
            "data": [[str(key) for key in value], [_document(entry) for entry in value.values()]],
        }
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_document(item) for item in value]
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    return bson.Int64(value) if is_integer else value  # all integers of Julia have 64 bits


def _datatype(*name: str) -> dict[str, Any]:
    return {"tag": "datatype", "params": [], "name": list(name)}


# --- ALBERT -------------------------------------------------------------------------------------


def read(path: Path) -> Checkpoint:
    variables = load(path)
    config, weights, pieces = (variables.get(name) for name in ("config", "weights", "vocab"))
    if not isinstance(config, dict) or not isinstance(weights, dict):
        names = ", ".join(variables) or "none"
        raise CheckpointError(f"{path} has the variables {names}. Expected Dicts 'config' and 'weights'.")
    tensors = {}
    for name, array in weights.items():
        if not hasattr(array, "dtype") or array.dtype.kind not in "fiu":
            raise CheckpointError(f"{path}: weights[{name!r}] is not an array of numbers.")
        known, tensor = from_google(name), array.T  # the files have the transpose of TensorFlow's tensors
        if known is not None and known[1].is_vector and tensor.shape[1:] == (1,):
            tensor = tensor[:, 0]
        # Values in a BSON file can have odd addresses, but some instructions need even ones.
        tensor = np.require(tensor, requirements=["C", "ALIGNED", "WRITEABLE"])
        tensors[name] = tensorflow.transposed(name, tensor)
    config = tensorflow.with_labels(config, tensors)
    config.pop("filename", None)
    lines = [line for line in pieces if isinstance(line, str)] if isinstance(pieces, list) else []
    return Checkpoint("julia", AlbertConfig.from_google_dict(config).to_dict(), tensors, [path], pieces=lines)


def write(path: Path, checkpoint: Checkpoint) -> list[Path]:
    weights = tensorflow.google_tensors(checkpoint.tensors)
    if (size := sum(tensor.nbytes for tensor in weights.values())) > _LARGEST_FILE:
        raise CheckpointError(f"a BSON document has at most {_LARGEST_FILE:,} bytes, not {size:,}")
    variables = {
        "config": tensorflow.google_config(checkpoint.config),
        "weights": {name: array_of(tensor) for name, tensor in weights.items()},
        "vocab": checkpoint.pieces,
    }
    with made_folder(path.parent):
        save(path, variables)
    return [path]


def array_of(tensor: np.ndarray) -> np.ndarray:
    """Return a weight as Julia's files have it: the transpose of TensorFlow's tensor, vectors as 1 x n."""
    return tensor[None, :] if tensor.ndim == 1 else np.ascontiguousarray(tensor).T
