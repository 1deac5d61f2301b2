"""Tests of the errors for damaged model folders and for weights of other kinds."""

import json
import os
import pickle
import random
from pathlib import Path

import pytest
import torch
from checkpoint_models import TINY, Tensors, write_shards
from safetensors.torch import load_file, save_file
from torch_files import read_folder, write_folder

import albertkit
from albertkit.errors import CheckpointError


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="There is no folder"):
        read_folder(tmp_path / "none")
    with pytest.raises(CheckpointError, match=r"no config.json: it is empty"):
        read_folder(tmp_path)
    for name in ("small", "large"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"models in sub-folders. Pass one of them: large, small"):
        read_folder(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(
        CheckpointError, match=r"no weights. Expected model.safetensors or .* holds config.json, large/"
    ):
        read_folder(tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b"null", b'"text"', b"\xff\xfe", b"[" * 100_000, b'{"a": ' * 100_000]
)
def test_damaged_config(tmp_path: Path, content: bytes) -> None:
    write_folder(tmp_path, {}, {"x": torch.zeros(1)})
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"config\.json is damaged"):
        read_folder(tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"short", b"\xff" * 8, b"\xff" * 100, b"<html>not found</html>", bytes(100)]
)
@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_damaged_weights(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=f"{name} is damaged"):
        read_folder(folder)


def test_every_truncation_of_safetensors_is_an_error(tmp_path: Path, tensors: Tensors) -> None:
    write_folder(tmp_path, {}, tensors)
    path = tmp_path / "model.safetensors"
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(CheckpointError, match=r"model\.safetensors is damaged"):
            read_folder(tmp_path)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "before torch 1.6"])
def test_damaged_bin_raises_only_checkpoint_errors(folder: Path, zipped: bool) -> None:
    path = folder / "pytorch_model.bin"
    torch.save({"x": torch.arange(6.0), "y": torch.ones(2, 2)}, path, _use_new_zipfile_serialization=zipped)
    content = path.read_bytes()
    rng = random.Random(0)
    raised = 0
    for case in range(300):
        damaged = bytearray(content[: rng.randrange(len(content))] if case % 2 else content)
        for _ in range(rng.randint(1, 3)):
            if damaged:
                damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            read_folder(folder)
        except CheckpointError:
            raised += 1
    assert raised > 150


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_code_in_a_file_is_not_run(folder: Path, tmp_path: Path) -> None:
    mark = tmp_path / "code was run"

    class Attack:
        def __reduce__(self) -> tuple:
            return (os.mkdir, (str(mark),))

    for write in (torch.save, lambda value, path: path.write_bytes(pickle.dumps(value))):
        write({"x": Attack()}, folder / "pytorch_model.bin")
        with pytest.raises(CheckpointError, match="contains other objects than tensors"):
            read_folder(folder)
    assert not mark.exists()


@pytest.mark.parametrize("value", [[torch.zeros(1)], {"model": {"x": torch.zeros(1)}}, {1: torch.zeros(1)}])
def test_bin_that_is_not_a_state_dict(folder: Path, value: object) -> None:
    torch.save(value, folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"not a state dict|is dict"):
        read_folder(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.bool, torch.float8_e4m3fn, torch.complex64])
def test_weights_that_are_not_floats(tmp_path: Path, name: str, dtype: torch.dtype) -> None:
    """Quantized weights are useless without their scales, which other programs store separately."""
    model = albertkit.AlbertModel(albertkit.AlbertConfig(**TINY))
    model.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    changed = "encoder.embedding_hidden_mapping_in.weight"
    tensors[changed] = tensors[changed].to(dtype)
    (tmp_path / "model.safetensors").unlink()
    (save_file if name.endswith("safetensors") else torch.save)(tensors, tmp_path / name)
    with pytest.raises(CheckpointError, match=f"{changed}.*Expected one of float32"):
        albertkit.AlbertModel.from_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=f"{changed}.*Expected one of float32"):
        albertkit.AlbertModel.from_pretrained(None, config=model.config, state_dict=tensors)


def test_wrong_index_of_shards(folder: Path, tensors: Tensors) -> None:
    weight_map = write_shards(folder, tensors)
    index = folder / "model.safetensors.index.json"

    def error_for(wrong_map: object) -> str:
        index.write_text(json.dumps({"weight_map": wrong_map}))
        with pytest.raises(CheckpointError) as error:
            read_folder(folder)
        return str(error.value)

    for outside in ("model-9.safetensors", "../config.json", "/etc/passwd"):
        assert f"names the shard {outside!r}, which is not in" in error_for({"x": outside})
    assert "lists absent in the shard model-1-of-2" in error_for(
        weight_map | {"absent": "model-1-of-2.safetensors"}
    )
    assert "is damaged" in error_for(None)
