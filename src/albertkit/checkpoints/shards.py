"""Weights in several safetensors files of bounded size, with the index that `transformers` knows."""

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from albertkit.errors import ConfigError
from albertkit.files import json_text

_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def number_of_bytes(size: int | str) -> int:
    """A size as a number, or as text such as "500MB" or "2GiB".

    Raises:
        ConfigError: it is neither, or below one byte.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", str(size).strip())
    if not found or found[2].upper() not in _UNITS or isinstance(size, bool):
        raise ConfigError(f"max_shard_size is {size!r}; expected a number of bytes, or text such as '500MB'")
    value = int(float(found[1]) * _UNITS[found[2].upper()])
    if value < 1:
        raise ConfigError(f"max_shard_size is {size!r}; expected at least one byte")
    return value


def split(
    tensors: Mapping[str, np.ndarray], weights_file: str, *, most: int | None
) -> dict[str, dict[str, np.ndarray]]:
    """File name -> its tensors, in their order; one file where all fit, or nothing says how much may.

    A file has more than `most` bytes of tensors only where a single tensor has.
    """
    parts: list[dict[str, np.ndarray]] = [{}]
    room = most
    for name, tensor in tensors.items():
        if room is not None and most is not None:
            if parts[-1] and tensor.nbytes > room:
                parts.append({})
                room = most
            room -= tensor.nbytes
        parts[-1][name] = tensor
    if len(parts) == 1:
        return {weights_file: parts[0]}
    stem, ending = weights_file.split(".")
    return {
        f"{stem}-{number:05}-of-{len(parts):05}.{ending}": part for number, part in enumerate(parts, start=1)
    }


def index_of(files: Mapping[str, Mapping[str, np.ndarray]]) -> str:
    """The content of the index: which file each tensor is in, and how many bytes they are."""
    total = sum(tensor.nbytes for part in files.values() for tensor in part.values())
    weight_map = {name: file for file, part in files.items() for name in part}
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    return json_text(index, indent=2, sort_keys=True) + "\n"


def stale(folder: Path, written: set[str], weights_file: str) -> list[Path]:
    """Weights of an older save under this name, in one file or in shards, that the new one must not leave."""
    stem, ending = weights_file.split(".")
    shard = re.compile(rf"{stem}-\d{{5}}-of-\d{{5}}\.{ending}")
    return [
        path
        for path in folder.iterdir()
        if path.name not in written
        and (path.name in (weights_file, f"{weights_file}.index.json") or shard.fullmatch(path.name))
    ]
