"""Fuzz tests of checkpoint readers: random damage raises errors of albertkit, in bounded memory and time.

The tests bound the memory of Python, the address space of the process and the CPU time of each case. Only the
address space shows the memory that libraries allocate.
"""

import gzip
import json
import random
import struct
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from fuzzed_checkpoint import CONFIG, TENSORS
from safetensors.torch import save
from structural_fuzz import (
    CASES,
    WRONG,
    count_refused,
    damaged,
    damaged_json_files,
)

from albertkit.checkpoints import formats, julia
from albertkit.checkpoints.folder import read_folder
from albertkit.checkpoints.tensor_bundle import read_table, write_table
from albertkit.config import AlbertConfig


def test_tensorflow_files(bundle: Path) -> None:
    rng = random.Random(0)
    paths = [path for path in bundle.iterdir() if path.name.startswith("model.ckpt")]
    contents = {path: path.read_bytes() for path in paths}

    def cases() -> Iterator[None]:
        for _ in range(CASES):
            path = rng.choice(paths)
            path.write_bytes(damaged(contents[path], rng))
            yield
            path.write_bytes(contents[path])

    # The reader skips the state of the optimizer, so it misses damage there.
    assert count_refused(lambda: formats.read(bundle), cases()) > CASES * 0.8


def test_archives(bundle: Path) -> None:
    rng = random.Random(5)
    path = bundle.parent / f"{bundle.name}.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.add(bundle, "model")
    archive = path.read_bytes()
    plain = gzip.decompress(archive)

    def cases() -> Iterator[None]:
        for _ in range(CASES):
            # Half of the cases compress damaged content again, so that the checksum of gzip matches.
            inside = rng.random() < 0.5
            path.write_bytes(gzip.compress(damaged(plain, rng), 1) if inside else damaged(archive, rng))
            yield

    assert count_refused(lambda: formats.read(path), cases()) > CASES * 0.4


def test_tensorflow_index_with_right_checksums(bundle: Path) -> None:
    """The checksums match the damaged entries. Otherwise, the reader would stop at the checksums."""
    rng = random.Random(1)
    path = bundle / "model.ckpt.index"
    original = dict(read_table(path.read_bytes()))

    def cases() -> Iterator[None]:
        for _ in range(CASES):
            entries = dict(original)
            key = rng.choice(list(entries))
            if rng.random() < 0.2:
                entries[damaged(key, rng)] = entries.pop(key)
            else:
                entries[key] = damaged(entries[key], rng)
            write_table(path, entries)
            yield

    assert count_refused(lambda: formats.read(bundle), cases()) > CASES * 0.5


def test_julia_files(tmp_path: Path) -> None:
    rng = random.Random(2)
    path = tmp_path / "model.tfbson"
    numbers = {name: tensor for name, tensor in TENSORS.items() if tensor.dtype != torch.bfloat16}
    julia.save(
        path,
        {
            "config": CONFIG,
            "weights": {name: julia.array_of(tensor.numpy()) for name, tensor in numbers.items()},
            "vocab": [f"piece{number}\t0" for number in range(8)],
        },
    )
    content = path.read_bytes()

    def cases() -> Iterator[None]:
        for _ in range(CASES):
            path.unlink()  # arrays of an earlier case may still be mapped
            path.write_bytes(damaged(content, rng))
            yield

    assert count_refused(lambda: formats.read(path), cases()) > CASES * 0.5


def test_safetensors_headers(tmp_path: Path) -> None:
    rng = random.Random(3)
    path = tmp_path / "model.safetensors"
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "model_type": "albert"}))
    content = save({name: tensor for name, tensor in TENSORS.items() if tensor.numel()}, {"format": "pt"})
    length = 8 + int.from_bytes(content[:8], "little")

    def cases() -> Iterator[None]:
        for _ in range(CASES):
            header = damaged(content[8:length], rng)
            if rng.random() < 0.3:
                values = json.loads(content[8:length])
                tensor = values[rng.choice([name for name in values if name != "__metadata__"])]
                tensor[rng.choice(list(tensor))] = rng.choice(
                    [*WRONG, [1 << 62, 4], [0, 1 << 40], [1 << 63, 0], "BOOL"]
                )
                header = json.dumps(values).encode()
            size = struct.pack("<Q", len(header)) if rng.random() < 0.7 else damaged(content[:8], rng)
            path.unlink(missing_ok=True)
            path.write_bytes(size + header + content[length:])
            yield

    assert count_refused(lambda: read_folder(tmp_path), cases()) > CASES * 0.5


@pytest.mark.parametrize("name", ["config.json", "albert_config.json"])
def test_configs(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    settings = {"problem_type": "regression", "torch_dtype": "float16", "return_dict": True}
    path.write_text(json.dumps({**AlbertConfig().to_dict(), **CONFIG, **settings, "use_cache": False}))

    def read() -> None:
        config = AlbertConfig.from_pretrained(path)
        AlbertConfig.from_dict(json.loads(config.to_json_string()))

    assert count_refused(read, damaged_json_files(path, seed=4)) > CASES * 0.4
