"""Hashes of a model and of an input, which show whether interrupted predictions can continue."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from albertkit.checkpoints.arrays import to_numpy
from albertkit.config import AlbertConfig
from albertkit.datasets.example_objects import ExampleReader
from albertkit.datasets.reader import Reader
from albertkit.datasets.table import ObjectTable
from albertkit.engines.light_model import LightModel, Model
from albertkit.files import file_sha256


def content_sha256(path: Path) -> str | None:
    """Return the hash of a file, or of all names and contents in a folder, or None for neither."""
    if path.is_file():
        return file_sha256(path)
    if not path.is_dir():
        return None
    found = hashlib.sha256()
    for file in sorted(one for one in path.rglob("*") if one.is_file()):
        found.update(f"{file.relative_to(path)}\0{content_sha256(file)}\0".encode())
    return found.hexdigest()


def input_sha256(reader: Reader[Any]) -> str | None:
    """Return the hash of the content of a reader's source."""
    if not isinstance(reader, ExampleReader) and not isinstance(getattr(reader, "table", None), ObjectTable):
        return content_sha256(Path(reader.source))
    found = hashlib.sha256()
    for row in reader.rows():
        found.update(repr(row.values).encode())
    return found.hexdigest()


def model_sha256(model: Model, config: AlbertConfig) -> str:
    """Return the hash of all weights and the config, because a folder may contain another model by now."""
    found = hashlib.sha256(config.to_json_string().encode())
    if isinstance(model, LightModel):
        parameters: dict[int, tuple[str, np.ndarray]] = {}
        for name, array in model.weights.items():
            parameters.setdefault(id(array), (name, array))  # tied ones once, as in a module
        named = iter(parameters.values())
    else:
        named = ((name, to_numpy(parameter)) for name, parameter in model.named_parameters())
    for name, array in named:
        found.update(name.encode())
        found.update(np.ascontiguousarray(array).view(np.uint8).data)
    return found.hexdigest()
