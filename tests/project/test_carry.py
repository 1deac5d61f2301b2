"""Tests of `scripts/carry.py`: it packs shards and runs into files for another machine, and resumes a run."""

import io
import json
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from pretraining_runs import short_recipe, write_pretraining_data

from albertkit.errors import DataError
from albertkit.files import file_sha256
from albertkit.modeling.pretraining_heads import AlbertForPreTraining
from albertkit.pretraining.shards import ShardSet
from albertkit.tokenization.tokenizer import AlbertTokenizer
from albertkit.training import loop
from albertkit.training.progress import read_metrics
from albertkit.training.state import checkpoint_folder

STEPS = 4


@pytest.fixture
def carry(script: Callable[[str], ModuleType]) -> ModuleType:
    return script("carry")


def call(carry, monkeypatch: pytest.MonkeyPatch, *words: object) -> None:
    monkeypatch.setattr(sys, "argv", ["carry.py", *map(str, words)])
    carry.main()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a text and 3,000 bytes that cannot be compressed."""
    folder = tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    noise = b"".join(hash(("seed", number)).to_bytes(8, "big", signed=True) for number in range(375))
    (folder / "inner" / "noise").write_bytes(noise)
    (folder / "text").write_text("the sea " * 1000)
    return folder


def test_packed_files_are_unpacked_unchanged(
    carry, folder: Path, tmp_path: Path, monkeypatch, capsys
) -> None:
    call(carry, monkeypatch, "pack", folder, tmp_path / "pieces", "--piece-megabytes", 0.001)
    sizes = [file.stat().st_size for file in sorted((tmp_path / "pieces").glob("pieces.*"))]
    assert sizes[:-1] == [1000] * (len(sizes) - 1)
    assert 3000 < sum(sizes) < 4000
    assert f"in {len(sizes) + 1} files" in capsys.readouterr().out
    call(carry, monkeypatch, "unpack", tmp_path / "pieces", tmp_path / "back")
    for name in ("inner/noise", "text"):
        assert (tmp_path / "back" / name).read_bytes() == (folder / name).read_bytes()
    # The same as in the shell: cat pieces.* | tar xJ
    joined = b"".join(file.read_bytes() for file in sorted((tmp_path / "pieces").glob("pieces.*")))
    with tarfile.open(fileobj=io.BytesIO(joined), mode="r:xz") as archive:
        assert archive.getnames() == ["inner/noise", "text"]
    # Packing into the same folder removes all old files.
    call(carry, monkeypatch, "pack", folder, tmp_path / "pieces")
    assert sorted(file.name for file in (tmp_path / "pieces").iterdir()) == ["contents.json", "pieces.00000"]
    assert (tmp_path / "pieces" / "pieces.00000").read_bytes() == joined
    # Packing into a folder with other files is an error.
    (folder / "contents.json").write_text("precious")
    with pytest.raises(
        SystemExit, match=r"holds contents\.json, inner/, text; choose a folder for the pieces"
    ):
        call(carry, monkeypatch, "pack", tmp_path / "pieces", folder)
    assert (folder / "contents.json").read_text() == "precious"


def test_errors_name_missing_and_damaged_files(carry, folder: Path, tmp_path: Path, monkeypatch) -> None:
    pieces = tmp_path / "pieces"
    call(carry, monkeypatch, "pack", folder, pieces, "--piece-megabytes", 0.001)
    (pieces / "pieces.00001").unlink()
    damaged = bytearray((pieces / "pieces.00002").read_bytes())
    damaged[500] ^= 1
    (pieces / "pieces.00002").write_bytes(damaged)
    with pytest.raises(SystemExit, match=r"pieces\.00001 is missing, pieces\.00002 is damaged; copy"):
        call(carry, monkeypatch, "unpack", pieces, tmp_path / "back")
    assert not (tmp_path / "back").exists()
    with pytest.raises(DataError, match="holds inner/, text; delete it or unpack into another"):
        carry.unpack(pieces, folder)
    (pieces / "contents.json").write_text(json.dumps({"format": "other", "version": 1}))
    with pytest.raises(DataError, match="found 'other' version 1"):
        carry.unpack(pieces, tmp_path / "back")
    (pieces / "contents.json").unlink()
    with pytest.raises(DataError, match=r"no contents\.json"):
        carry.unpack(pieces, tmp_path / "back")
    (tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit, match="no files to pack"):
        call(carry, monkeypatch, "pack", tmp_path / "empty", pieces)
    with pytest.raises(DataError, match="no checkpoint"):
        carry.run_files(tmp_path / "empty")


def test_a_carried_run_equals_an_uninterrupted_run(
    carry, tmp_path: Path, tiny_texts: list[str], tiny_vocabulary: Path, monkeypatch
) -> None:
    monkeypatch.setattr(loop, "peak_flops", lambda *_: 1e12)  # measuring takes a second each time
    write_pretraining_data(tmp_path, tiny_texts, tiny_vocabulary)
    (tmp_path / "recipe.toml").write_text(short_recipe(steps=STEPS))
    call(carry, monkeypatch, "pack", tmp_path / "shards", tmp_path / "carried", "--piece-megabytes", 0.01)
    assert len(list((tmp_path / "carried").glob("pieces.*"))) > 1
    common = ("train", "--recipe", tmp_path / "recipe.toml", "--tokenizer", tmp_path / "tokenizer")
    common = (*common, "--shards", tmp_path / "carried", "--piece-megabytes", 0.01)

    def train(machine: str, minutes: float, *more: object) -> Path:
        """Run the command in the folder of a "machine", and return the folder with its packed files."""
        work, back = tmp_path / machine, tmp_path / f"back-{machine}"
        words = ("--work", work, "--output", back, "--max-minutes", minutes, *more)
        with pytest.raises(SystemExit) as ended:
            call(carry, monkeypatch, *common, *words)
        assert ended.value.code == 0
        return back

    stopped = train("first", 1e-6, "--", "--device", "cpu")  # after one step
    for record in ShardSet(tmp_path / "first" / "shards" / "train").manifest.shards:
        assert file_sha256(tmp_path / "first" / "shards" / "train" / record.file) == record.sha256
    assert len(list(stopped.glob("pieces.*"))) > 1
    train("second", 5, "--resume", stopped)
    train("unbroken", 5)
    runs = [tmp_path / machine / "run" for machine in ("second", "unbroken")]
    assert [line["step"] for line in read_metrics(runs[0])] == [1, 2, 3, 4]
    for name in ("model.safetensors", "training_state.safetensors"):
        carried, unbroken = ((checkpoint_folder(run, STEPS) / name).read_bytes() for run in runs)
        assert carried == unbroken, name
    losses = [[line["train/masked_loss"] for line in read_metrics(run)] for run in runs]
    assert losses[0] == losses[1]

    # Without the training state, the files are a model folder with the metrics of the run.
    weights = carry.run_files(runs[0], weights_only=True)
    carry.pack(weights, tmp_path / "weights", megabytes=1, effort=0)
    carry.unpack(tmp_path / "weights", tmp_path / "model")
    assert not list((tmp_path / "model").glob("training_state*"))
    assert len(read_metrics(tmp_path / "model")) == STEPS
    AlbertTokenizer.from_pretrained(tmp_path / "model")
    opened = AlbertForPreTraining.from_pretrained(tmp_path / "model").state_dict()
    trained = AlbertForPreTraining.from_pretrained(runs[1]).state_dict()
    assert all(torch.equal(opened[name], trained[name]) for name in trained)
