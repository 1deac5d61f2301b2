"""Tests of weights in shards: writing, reading in albertkit and `transformers`, and conversion."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from checkpoint_models import names_in
from command_line import Run
from conversion_models import SIZES
from safetensors.torch import load_file
from torch_files import read_folder, write_folder

from albertkit.checkpoints.folder import split, weight_files
from albertkit.config import AlbertConfig
from albertkit.conversion import convert
from albertkit.errors import ConfigError, DataError, DiskFullError
from albertkit.modeling.heads import AlbertForPreTraining

LIMIT = 4_000


@pytest.fixture
def model() -> AlbertForPreTraining:
    torch.manual_seed(0)
    return AlbertForPreTraining(AlbertConfig(**SIZES)).eval()


def assert_equal(model: torch.nn.Module, other: torch.nn.Module) -> None:
    for name, tensor in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor), name


def test_shards_are_bounded_and_loaded(model: AlbertForPreTraining, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path, max_shard_size=LIMIT)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    files = sorted(set(index["weight_map"].values()))
    count = len(files)
    assert count > 2
    assert files == [f"model-{at:05}-of-{count:05}.safetensors" for at in range(1, count + 1)]
    assert names_in(tmp_path) == ["config.json", *files, "model.safetensors.index.json"]
    parts = {file: load_file(tmp_path / file) for file in files}
    assert all(sum(tensor.nbytes for tensor in part.values()) <= LIMIT for part in parts.values())
    assert index["metadata"]["total_size"] == sum(parameter.numel() * 4 for parameter in model.parameters())
    assert {name: file for file, part in parts.items() for name in part} == index["weight_map"]
    assert_equal(model, AlbertForPreTraining.from_pretrained(tmp_path))
    assert_equal(model, transformers.AlbertForPreTraining.from_pretrained(tmp_path))
    assert weight_files(tmp_path)[1:] == [tmp_path / file for file in files]


def test_a_large_limit_gives_one_file(model: AlbertForPreTraining, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path, max_shard_size="5GB")
    assert names_in(tmp_path) == ["config.json", "model.safetensors"]


def test_a_tensor_over_the_limit_has_its_own_shard() -> None:
    tensors = {"a": torch.zeros(1), "big": torch.zeros(100), "b": torch.zeros(1), "c": torch.zeros(1)}
    assert [list(part) for part in split(tensors, size=8).values()] == [["a"], ["big"], ["b", "c"]]
    assert list(split(tensors, size=None)) == ["model.safetensors"]


def test_one_file_and_shards_replace_each_other(model: AlbertForPreTraining, tmp_path: Path) -> None:
    """Files of an older save would be read instead of the new ones, or waste space on the disk."""
    model.save_pretrained(tmp_path)
    (tmp_path / "model-best.safetensors").touch()  # not written by albertkit
    for limit in (LIMIT, LIMIT // 2, None, LIMIT):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(1)
        model.save_pretrained(tmp_path, max_shard_size=limit)
        assert_equal(model, AlbertForPreTraining.from_pretrained(tmp_path))
        written = {path.name for path in weight_files(tmp_path)}
        assert set(names_in(tmp_path)) == {"config.json", "model-best.safetensors", *written}


def test_a_failed_save_keeps_the_older_model(
    model: AlbertForPreTraining, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.save_pretrained(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    calls = []

    def full_disk(*args: object, **options: object) -> None:
        calls.append(args)
        if len(calls) == 3:
            raise OSError("No space left on device")

    monkeypatch.setattr("albertkit.checkpoints.folder.save_file", full_disk)
    with pytest.raises(DiskFullError, match=r"no space left on the disk\. Complete files were kept"):
        model.save_pretrained(tmp_path, max_shard_size=LIMIT)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("size", "expected"),
    [(7, 7), ("7", 7), ("500MB", 500_000_000), ("1.5 kB", 1500), ("2GiB", 2 << 30), ("3gb", 3 * 10**9)],
)
def test_sizes(size: int | str, expected: int) -> None:
    for spare, num_files in ((1, 1), (0, 2)):
        fills = np.broadcast_to(np.uint8(0), expected - spare)  # takes no memory
        assert len(split({"a": fills, "b": np.zeros(1, np.uint8)}, size=size)) == num_files


@pytest.mark.parametrize("size", ["", "MB", "-5MB", "5 bananas", 0, True, "0.1B"])
def test_invalid_sizes(size: object, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="max_shard_size is"):
        write_folder(tmp_path / "m", {}, {}, max_shard_size=size)  # type: ignore[arg-type]
    assert not (tmp_path / "m").exists()


def test_conversion(model: AlbertForPreTraining, tmp_path: Path, run: Run) -> None:
    model.save_pretrained(tmp_path / "in")
    done = run("convert", tmp_path / "in", tmp_path / "out", "--max-shard-size", "4kB", "--verify", "--json")
    assert done.status == 0, done.errors
    (report,) = done.json
    assert report["largest_difference"] == 0
    assert {Path(path).name for path in report["checksums"]} == {
        *names_in(tmp_path / "out"),
        "model.safetensors",
    }
    convert(tmp_path / "out", tmp_path / "back")
    for tensor, converted in zip(
        *(read_folder(tmp_path / name)[1].values() for name in ("in", "back")), strict=True
    ):
        assert torch.equal(converted, tensor)
    with pytest.raises(DataError, match=r"out holds .*. Choose another folder"):
        convert(tmp_path / "in", tmp_path / "out")
    with pytest.raises(ConfigError, match="max_shard_size is for the format 'hf' only"):
        convert(tmp_path / "in", tmp_path / "tf1", to="tf1", max_shard_size="4kB")
