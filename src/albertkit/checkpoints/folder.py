"""The Hugging Face folder: config.json and the weights, read and written as (config dict, named tensors).

Weights are read from safetensors (one file or shards), from `pytorch_model.bin` with torch's weights-only
unpickler, from the `tf_model.h5` of the former TensorFlow classes of `transformers`, or from the `model.onnx`
of an export. Code in a file never runs. The first two are mapped into memory, not copied.
"""

import pickle
import re
import zipfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from math import prod
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from albertkit.checkpoints.arrays import BFLOAT16, is_equal, map_safetensors, to_arrays
from albertkit.checkpoints.names import TIED, is_turned
from albertkit.config import CONFIG_FILE
from albertkit.errors import CheckpointError, ConfigError, DataError, DiskFullError, reading, warn_caller
from albertkit.extras import optional
from albertkit.files import atomic_path, contents, hint_of_models, json_bytes, made_folder, read_json
from albertkit.hub import MODULES_FILE, HubOptions, resolve

h5py = optional("h5py", extra="convert")
onnx = optional("onnx")
torch: Any = optional("torch", extra="torch")

WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = f"{WEIGHTS_FILE}.index.json"
ONNX_FILE = "model.onnx"
PRODUCER = "albertkit"
"""The producer of the ONNX files that `albertkit export onnx` writes."""
SCALE = "/scale"
"""Ending of the names of int8 tensors' scales in these files."""
SENTENCE_FILES = (
    MODULES_FILE,
    "config_sentence_transformers.json",
    "sentence_*_config.json",
    "[0-9]*_*/config.json",
    "[0-9]*_Dense/model.safetensors",
)
"""The files of sentence-transformers as patterns, for downloads; see `sentence_modules.py`."""
_WRITTEN_WEIGHTS = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors|model\.safetensors\.index\.json")


def read_folder(
    folder: str | Path, *, needs_config: bool = True
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read a model folder: the object in config.json, and every tensor by its name in the file.

    `needs_config=False` also reads a folder without a config.json; its config is then empty. Only the first
    existing file of `_FILES` is read. The tensors are mapped copy-on-write: changing a tensor does not change
    the file, and replacing the file by a rename does not change a tensor.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise CheckpointError(f"There is no folder {folder}. Expected one with {CONFIG_FILE} and weights.")
    has_config = (folder / CONFIG_FILE).is_file()
    weights = weights_in(folder)
    if needs_config and not has_config:
        hint = " Pass config=..., or write the file with config.save_pretrained(folder)." if weights else ""
        raise CheckpointError(
            f"{folder} has no {CONFIG_FILE}: it {contents(folder)}." + hint_of_models(folder) + hint
        )
    if weights is None:
        names = " or ".join(_FILES)
        raise CheckpointError(f"{folder} has no weights. Expected {names}; it {contents(folder)}.")
    config = read_json(folder / CONFIG_FILE, CheckpointError) if has_config else {}
    path = folder / weights
    return config, READERS[path.suffix](path)


def read_variant(
    name_or_folder: str | Path, variant: str, **hub: Unpack[HubOptions]
) -> dict[str, np.ndarray]:
    names = [f"{stem}.{variant}.{ending}" for stem, _, ending in (file.rpartition(".") for file in _FILES)]
    shards = (f"model*{variant}*.safetensors", f"pytorch_model*{variant}*.bin")
    folder = resolve(name_or_folder, patterns=(CONFIG_FILE, *names, *shards), **hub)
    for name in names:
        if (folder / name).is_file():
            return READERS[Path(name).suffix](folder / name)
    raise CheckpointError(
        f"{folder} has no weights of the variant {variant!r}. Expected {names[0]}; it {contents(folder)}."
    )


def write_folder(
    folder: str | Path,
    config: Mapping[str, Any],
    tensors: Mapping[str, np.ndarray],
    *,
    beside: Mapping[str, bytes] | None = None,
    max_shard_size: int | str | None = None,
) -> None:
    """Write config.json and model.safetensors into `folder`, which is created if it is missing.

    If the config ties tensors (`names.TIED`) and both have the same values, only one is stored, as in the
    files of `transformers`. All files are complete on the disk before any is renamed, so a crash leaves the
    old model intact, except between two of these renames: then the folder has files of both models.

    `beside` are further files by their paths in the folder. `max_shard_size` is a number of bytes, or text
    such as "500MB": larger weights are split into files of at most that size, with an index.
    """
    folder = Path(folder)
    tied = TIED if config.get("tie_word_embeddings", True) else {}
    stored = {
        name: np.asarray(tensor, order="C")
        for name, tensor in tensors.items()
        if name not in tied or not is_equal(tensor, tensors.get(tied[name]))
    }
    files = split(stored, size=max_shard_size)
    documents: dict[str, Any] = {CONFIG_FILE: config}
    if len(files) > 1:
        documents[INDEX_FILE] = {
            "metadata": {"total_size": sum(tensor.nbytes for tensor in stored.values())},
            "weight_map": {name: file for file, part in files.items() for name in part},
        }
    small = {
        name: json_bytes(document, sort_keys=True, ensure_ascii=True) for name, document in documents.items()
    } | dict(beside or {})
    try:
        with made_folder(folder), ExitStack() as stack:
            # Renamed in reverse order, so that files that name others come last.
            for name, content in small.items():
                stack.enter_context(made_folder((folder / name).parent))
                stack.enter_context(atomic_path(folder / name)).write_bytes(content)
            for name, part in files.items():
                save_file(part, stack.enter_context(atomic_path(folder / name)), metadata={"format": "pt"})
        for path in folder.iterdir():  # an older model's weights, in one file or in shards
            if path.name not in {*files, *small} and _WRITTEN_WEIGHTS.fullmatch(path.name):
                path.unlink()
        if MODULES_FILE not in small:  # an older model's, which would change what this one computes
            (folder / MODULES_FILE).unlink(missing_ok=True)
    except DiskFullError:
        raise
    except (OSError, DataError, SafetensorError) as error:
        raise CheckpointError(f"Could not save the model in {folder}: {str(error).rstrip('.')}.") from error


_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def split(tensors: Mapping[str, np.ndarray], *, size: int | str | None) -> dict[str, dict[str, np.ndarray]]:
    """Return the tensors of each file by file name, in their order.

    `size` is a number of bytes, or text such as "500MB" or "2GiB"; None for one file. A file is larger only
    if a single tensor is. (The function of huggingface_hub uses another order for such a tensor, and does not
    know "GiB".)
    """
    limit = float("inf")
    if size is not None:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", str(size).strip())
        limit = int(float(match[1]) * _UNITS.get(match[2].upper(), 0)) if match else 0
    if limit < 1:
        raise ConfigError(f"max_shard_size is {size!r}. Expected a number of bytes, or text such as '500MB'.")
    parts: list[dict[str, np.ndarray]] = [{}]
    for name, tensor in tensors.items():
        if parts[-1] and sum(other.nbytes for other in parts[-1].values()) + tensor.nbytes > limit:
            parts.append({})
        parts[-1][name] = tensor
    if len(parts) == 1:
        return {WEIGHTS_FILE: parts[0]}
    return {
        f"model-{number:05}-of-{len(parts):05}.safetensors": part
        for number, part in enumerate(parts, start=1)
    }


def _read_pickle(path: Path) -> dict[str, np.ndarray]:
    with reading(path, CheckpointError):
        # Files from before torch 1.6, such as the first released models, are not zip and cannot be mapped.
        mapped = zipfile.is_zipfile(path)
        try:
            value = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
        except pickle.UnpicklingError as error:  # the message of torch advises to run the code in the file
            raise ValueError("it contains other objects than tensors saved by torch") from error
        if isinstance(value, Mapping):
            others = [str(name) for name, entry in value.items() if not isinstance(entry, torch.Tensor)]
            if others and len(others) < len(value):
                warn_caller(f"{path}: ignored entries that are not tensors: {', '.join(others[:4])}")
                value = {name: entry for name, entry in value.items() if isinstance(entry, torch.Tensor)}
        return to_arrays(value, source=str(path))


def _read_shards(path: Path) -> dict[str, np.ndarray]:
    """Read the shards that an index lists; each must have the tensors that the index names."""
    read = map_safetensors if "safetensors" in path.name else _read_pickle
    tensors: dict[str, np.ndarray] = {}
    with reading(path, CheckpointError):
        weight_map = _weight_map(path)
        names = {child.name for child in path.parent.iterdir() if child.is_file()}
        for file in sorted(set(weight_map.values())):
            # An index from the internet must not refer to files outside its folder.
            if file not in names:
                raise ValueError(f"it names the shard {file!r:.200}, which is not in the folder")
            shard = read(path.parent / file)
            listed = [name for name, shard_name in weight_map.items() if shard_name == file]
            if absent := sorted(set(listed) - set(shard)):
                raise ValueError(f"it lists {', '.join(absent[:4])} in the shard {file}, which lacks them")
            tensors |= {name: shard[name] for name in listed}
    return tensors


def _weight_map(path: Path) -> dict[str, str]:
    with reading(path, CheckpointError):
        return {name: str(file) for name, file in read_json(path, CheckpointError)["weight_map"].items()}


def read_h5(path: Path) -> dict[str, np.ndarray]:
    """Read every tensor by its Keras name, in PyTorch's layout.

    Each group is a layer of Keras 2. Its tensors are data sets, and their paths below it are their names,
    such as "tf_albert_model/albert/encoder/embedding_hidden_mapping_in/kernel:0".

    HDF5 files can refer to other files and declare sizes without data, which Keras never does: both are
    errors. Attributes and texts are not read, because HDF5 1.14 never returns from some damaged heaps.
    """
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


_FILES = (
    WEIGHTS_FILE,
    INDEX_FILE,
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "tf_model.h5",
    ONNX_FILE,
)
"""Weight files in the order of preference."""

READERS: dict[str, Callable[[Path], dict[str, np.ndarray]]] = {
    ".safetensors": map_safetensors,
    ".bin": _read_pickle,
    ".pt": _read_pickle,
    ".pth": _read_pickle,
    ".h5": read_h5,
    ".onnx": read_onnx,
    ".json": _read_shards,
}
"""The endings of weight files, each with its reader."""


def weight_files(folder: Path) -> list[Path]:
    """Return the files that `read_folder` reads weights from: one file, an index and its shards, or none."""
    name = weights_in(folder)
    if name is None:
        return []
    if not name.endswith(".index.json"):
        return [folder / name]
    return [folder / name, *sorted({folder / file for file in _weight_map(folder / name).values()})]


def weights_in(folder: Path) -> str | None:
    return next((name for name in _FILES if (folder / name).is_file()), None)
