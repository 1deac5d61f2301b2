"""ALBERT in the files of Julia's BSON.jl: a `.tfbson` with `config`, `weights` and `vocab`.

BSON.jl writes Julia values as documents whose field "tag" gives their kind (see its src/extensions.jl):
arrays with type, size and bytes, structs with type and fields, a Dict as the struct of its keys and values.
The article of TextAnalysis.jl's ALBERT loads `config` (Google's), `weights` (by Google's names) and `vocab`
(the lines of 30k-clean.vocab). Julia's arrays are column-major and those files hold the transpose of
TensorFlow's tensors, so the bytes are TensorFlow's own, with the sizes in reverse order; vectors are 1 x n.

A type in a file is only a name, which is compared with known names. Nothing in a file is looked up or run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from albertkit.checkpoints import bson, google
from albertkit.checkpoints.arrays import BFLOAT16
from albertkit.checkpoints.checkpoint import Checkpoint
from albertkit.checkpoints.cursor import Cursor, possible_sizes
from albertkit.checkpoints.names import from_google
from albertkit.config import AlbertConfig
from albertkit.errors import CheckpointError
from albertkit.files import atomic_path, made_folder

ENDINGS = (".bson", ".tfbson")

_DTYPES: dict[str, Any] = {
    **{f"Int{bits}": f"<i{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"UInt{bits}": f"<u{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"Float{bits}": f"<f{bits // 8}" for bits in (16, 32, 64)},
    "Bool": "?",
}
_COMPLEX = {"Float32": "<c8", "Float64": "<c16"}


@dataclass(frozen=True, slots=True)
class JuliaType:
    """The name of a Julia type and its parameters, as text and values; never the type itself."""

    name: str
    parameters: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class JuliaStruct:
    """A Julia value of an unknown type."""

    type: JuliaType
    fields: Any


def load(path: str | Path) -> dict[str, Any]:
    """Return the variables in a file of BSON.jl by name.

    Dicts, arrays and numbers become those of Python and NumPy (column-major, so `array.T` is contiguous);
    other structs become `JuliaStruct`.

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
        return _Raising(path, backrefs).values(document)
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

    def values(self, document: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self.value(one) for name, one in document.items()}

    def value(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if not isinstance(value, dict):
            return value
        match value.get("tag"):
            case "symbol":
                return self._field(value, "name", str)
            case "tuple" | "svec":
                return tuple(self.value(self._field(value, "data", list)))
            case "datatype":
                return self._datatype(value)
            case "unionall":
                return self.value(value.get("body"))
            case "ref":  # a module or a function by its path
                return JuliaType(".".join(map(str, self._field(value, "path", list))))
            case "backref":
                return self._backref(value)
            case "array":
                return self._array(value)
            case "struct":
                return self._struct(value)
        return self.values(value)

    def _datatype(self, value: dict[str, Any]) -> JuliaType:
        name = self._field(value, "name", list)
        if not name or not all(isinstance(part, str) for part in name):
            raise self._error(f"a type has the name {name[:4]!r}. Expected its modules and its own name")
        return JuliaType(name[-1], tuple(self.value(self._field(value, "params", list))))

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
        kind = self._type(value)
        data = value.get("data")
        if kind.name in _DTYPES and isinstance(data, memoryview):
            return self._numbers(data, kind, ()).item()
        data = self.value(data)
        if kind.name in ("Dict", "IdDict"):
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
        return JuliaStruct(kind, data)

    def _array(self, value: dict[str, Any]) -> Any:
        kind = self._type(value)
        sizes = self._field(value, "size", list)
        if not all(type(size) is int for size in sizes) or not possible_sizes(sizes):
            raise self._error(f"an array has the {len(sizes)} sizes {sizes[:8]}")
        data = value.get("data")
        if isinstance(data, memoryview):
            return self._numbers(data, kind, tuple(sizes))
        if not isinstance(data, list) or len(data) != prod(sizes):
            raise self._error(f"an array of {kind.name} has the sizes {sizes}, which do not match its data")
        items = np.empty(len(data), dtype=object)
        items[:] = [self.value(item) for item in data]
        return items.reshape(sizes, order="F")

    def _numbers(self, data: memoryview, kind: JuliaType, sizes: tuple[int, ...]) -> np.ndarray:
        dtype = self._dtype(kind)
        if prod(sizes) * dtype.itemsize != len(data):
            raise self._error(f"an array of {kind.name} has the sizes {sizes} but {len(data):,} bytes")
        return np.frombuffer(data, dtype=dtype).reshape(sizes, order="F")

    def _dtype(self, kind: JuliaType) -> np.dtype:
        if kind.name in _DTYPES:
            return np.dtype(_DTYPES[kind.name])
        if kind.name == "Complex" and len(kind.parameters) == 1 and isinstance(kind.parameters[0], JuliaType):
            part = kind.parameters[0].name
            if part in _COMPLEX:
                return np.dtype(_COMPLEX[part])
            if part in _DTYPES:
                return np.dtype([("re", _DTYPES[part]), ("im", _DTYPES[part])])
        raise self._error(f"arrays of {kind.name} are not supported. Expected numbers")

    def _type(self, value: dict[str, Any]) -> JuliaType:
        kind = self.value(value.get("type"))
        if not isinstance(kind, JuliaType):
            raise self._error("a value has no type")
        return kind

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
        name = next((name for name, code in _DTYPES.items() if np.dtype(code) == value.dtype), None)
        if name is None:
            raise CheckpointError(f"Files of BSON.jl cannot have arrays of {value.dtype}. Choose float32.")
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
    if BFLOAT16 in {tensor.dtype for tensor in weights.values()}:
        raise CheckpointError("Julia's files do not support bfloat16. Pass dtype 'float32' or 'float16'.")
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
