"""Tests of writing and reading model folders, and of the formats of weights."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from checkpoint_models import Tensors, assert_same, names_in, write_shards
from safetensors.torch import save_file
from torch_files import read_folder, write_folder

from albertkit.checkpoints.formats import locate
from albertkit.errors import ModelNotFoundError

EMBEDDINGS = "albert.embeddings.word_embeddings.weight"
DECODER = "predictions.decoder.weight"


# --- writing and reading back -------------------------------------------------------------------


def test_round_trip_is_bitwise(tmp_path: Path, tensors: Tensors) -> None:
    config = {"hidden_size": 12, "id2label": {"0": "né", "1": "b"}, "unknown key": [1, None, 2.5]}
    write_folder(tmp_path / "deep" / "model", config, tensors)
    actual_config, actual = read_folder(tmp_path / "deep" / "model")
    assert actual_config == config
    assert_same(actual, tensors)
    assert names_in(tmp_path / "deep" / "model") == ["config.json", "model.safetensors"]


def test_same_tensors_give_the_same_bytes(tmp_path: Path, tensors: Tensors) -> None:
    write_folder(tmp_path / "a", {"x": 1, "y": 2}, tensors)
    write_folder(tmp_path / "b", {"y": 2, "x": 1}, dict(reversed(tensors.items())))
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_tied_tensors_are_stored_once_and_only_when_tied(tmp_path: Path) -> None:
    words, bias = torch.randn(6, 4), torch.randn(6)
    shared = {EMBEDDINGS: words, DECODER: words, "predictions.bias": bias, "predictions.decoder.bias": bias}
    write_folder(tmp_path / "tied", {}, shared)
    assert_same(read_folder(tmp_path / "tied")[1], {EMBEDDINGS: words, "predictions.bias": bias})

    copies = shared | {DECODER: words.clone(), "predictions.decoder.bias": bias.clone()}
    write_folder(tmp_path / "copies", {}, copies)
    assert_same(read_folder(tmp_path / "copies")[1], {EMBEDDINGS: words, "predictions.bias": bias})

    untied = shared | {DECODER: words + 1, "predictions.decoder.bias": bias + 1}
    write_folder(tmp_path / "untied", {}, untied)
    assert_same(read_folder(tmp_path / "untied")[1], untied)

    # A model with untied embeddings still shares the bias. `transformers` expects it under both names.
    one_bias = untied | {"predictions.decoder.bias": bias}
    write_folder(tmp_path / "one bias", {"tie_word_embeddings": False}, one_bias)
    assert_same(read_folder(tmp_path / "one bias")[1], one_bias)


def test_views_and_other_shared_tensors_keep_their_values(tmp_path: Path) -> None:
    base = torch.randn(6, 4)
    views = {"all": base, "again": base, "turned": base.T, "part": base[1:3], "column": base[:, 1]}
    write_folder(tmp_path, {}, views)
    assert_same(read_folder(tmp_path)[1], views)


def test_loaded_tensors_and_files_do_not_change_each_other(tmp_path: Path) -> None:
    """Weights are mapped into memory. Training in place and saving over the source must both be safe."""
    original = torch.randn(1_000)
    write_folder(tmp_path, {}, {"x": original})
    mapped, kept = read_folder(tmp_path)[1]["x"], read_folder(tmp_path)[1]["x"]
    mapped.zero_()
    assert torch.equal(read_folder(tmp_path)[1]["x"], original)
    write_folder(tmp_path, {}, {"x": mapped})
    assert torch.equal(kept, original)
    assert torch.equal(read_folder(tmp_path)[1]["x"], torch.zeros(1_000))


def test_a_process_killed_while_writing_keeps_the_old_model(tmp_path: Path, tensors: Tensors) -> None:
    write_folder(tmp_path, {"version": 1}, tensors)
    code = f"""
import os
import albertkit.checkpoints.folder as folder, numpy
def kill(tensors, path, metadata):
    path.write_bytes(b"half of the weights")
    os._exit(9)
folder.save_file = kill
folder.write_folder({str(tmp_path)!r}, {{"version": 2}}, {{"x": numpy.zeros(10)}})
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    config, actual = read_folder(tmp_path)
    assert config == {"version": 1}
    assert_same(actual, tensors)
    write_folder(tmp_path, {"version": 3}, tensors)
    assert read_folder(tmp_path)[0] == {"version": 3}


# --- the formats of weights ---------------------------------------------------------------------


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "before torch 1.6"])
def test_pytorch_bin(folder: Path, tensors: Tensors, zipped: bool) -> None:
    parameters = tensors | {"a.weight": torch.nn.Parameter(tensors["a.weight"])}
    torch.save(parameters, folder / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    config, actual = read_folder(folder)
    assert config == {"model_type": "albert"}
    assert_same(actual, tensors)
    assert not any(tensor.requires_grad for tensor in actual.values())


@pytest.mark.parametrize("kind", ["safetensors", "bin"])
def test_shards(folder: Path, tensors: Tensors, kind: str) -> None:
    write_shards(folder, tensors, kind)
    assert_same(read_folder(folder)[1], tensors)


def test_safetensors_has_priority_over_other_formats(folder: Path) -> None:
    torch.save({"x": torch.tensor([3.0])}, folder / "pytorch_model.bin")
    assert read_folder(folder)[1]["x"] == 3
    write_shards(folder, {"x": torch.tensor([2.0]), "y": torch.zeros(1), "z": torch.zeros(1)})
    assert read_folder(folder)[1]["x"] == 2
    save_file({"x": torch.tensor([1.0])}, folder / "model.safetensors")
    assert read_folder(folder)[1]["x"] == 1


def test_locate(folder: Path) -> None:
    assert locate(folder) == folder
    (folder / "config.json").unlink()
    with pytest.raises(ModelNotFoundError, match=r"config.json or model\*.safetensors"):
        locate(folder)


def test_a_failed_write_keeps_the_old_model(tmp_path: Path, tensors: Tensors) -> None:
    write_folder(tmp_path, {"version": 1}, tensors)
    # The limit on the size of files simulates a disk that fills up while the weights are written.
    code = f"""
import resource, numpy
from albertkit.checkpoints.folder import write_folder
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
write_folder({str(tmp_path)!r}, {{"version": 2}}, {{"x": numpy.zeros(100_000)}})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "DiskFullError: " in done.stderr
    config, actual = read_folder(tmp_path)
    assert config == {"version": 1}
    assert_same(actual, tensors)
    assert names_in(tmp_path) == ["config.json", "model.safetensors"]
