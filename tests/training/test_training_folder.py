"""A run leaves only complete checkpoints in its folder, and does not overwrite other files."""

import errno
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from filelock import FileLock
from quick_runs import pictures, quick_runs  # noqa: F401  # fixtures
from safetensors.torch import load_file
from training_runs import batches, objective, run, settings, tiny_model

from albertkit.errors import DiskFullError, TrainingError
from albertkit.files import complete_files
from albertkit.modeling.heads import AlbertForMaskedLM
from albertkit.training.checkpoints import checkpoint_folder, checkpoint_step, checkpoints, written_folder
from albertkit.training.loop import Training
from albertkit.training.progress import read_metrics


@pytest.mark.usefixtures("pictures")
def test_checkpoints_are_model_folders_and_the_last_are_kept(tmp_path: Path) -> None:
    run(tmp_path, settings(steps=12, save_every=2, keep_checkpoints=2))
    assert [folder.name for folder in checkpoints(tmp_path)] == ["step-0000010", "step-0000012"]
    for folder in checkpoints(tmp_path):
        assert AlbertForMaskedLM.from_pretrained(folder).config.hidden_size == 16
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_two_runs_cannot_share_a_folder(tmp_path: Path) -> None:
    tmp_path.joinpath("checkpoints").mkdir()
    with FileLock(tmp_path / ".lock"), pytest.raises(TrainingError, match="is in use by another run"):
        run(tmp_path, settings())
    assert run(tmp_path, settings()).finished


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    model = tiny_model()

    def save(folder: Path) -> None:
        model.save_pretrained(folder)
        if "0000008" in folder.name:
            raise OSError(errno.ENOSPC, "No space left on device", str(folder / "model.safetensors"))

    with pytest.raises(OSError, match="No space left on device"):
        Training(model, objective, batches, settings(), tmp_path, save_model=save).run()
    assert checkpoints(tmp_path)[-1].name == "step-0000004"
    assert [file.name for file in (tmp_path / "checkpoints").glob(".*")] == []
    run(tmp_path, settings())
    run(tmp_path / "whole", settings())
    resumed, whole = (load_file(folder / "model.safetensors") for folder in (tmp_path, tmp_path / "whole"))
    assert all(torch.equal(resumed[key], whole[key]) for key in whole)


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_full_disk_ends_the_run_at_its_figures_for_tensorboard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("tensorboard.summary.writer.record_writer.RecordWriter.write", full)
        with pytest.raises(DiskFullError, match=r"tensorboard/events\S+: no space left on the disk"):
            run(tmp_path, settings())
    assert run(tmp_path, settings()).finished


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_text("precious")
    with pytest.raises(TrainingError, match=r"holds model\.safetensors: a new run would overwrite it"):
        run(tmp_path, settings())
    assert (tmp_path / "model.safetensors").read_text() == "precious"


def test_checkpoints_are_in_the_order_of_their_steps(tmp_path: Path) -> None:
    """At 10,000,000 steps the names get longer, and no longer sort as text."""
    steps = (9_999_999, 10_000_000, 500, 123_456_789)
    for step in steps:
        checkpoint_folder(tmp_path, step).mkdir(parents=True)
    for other in ("step-", "step-9.old", ".step-0000007.tmp"):
        (tmp_path / "checkpoints" / other).mkdir()
    assert [checkpoint_step(folder) for folder in checkpoints(tmp_path)] == sorted(steps)


def test_figures_without_their_checkpoints_are_not_overwritten(tmp_path: Path) -> None:
    run(tmp_path / "run", settings(max_minutes=1e-9))
    left = tmp_path / "left"
    left.mkdir()
    figures = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    (left / "metrics.jsonl").write_bytes(figures)
    with pytest.raises(TrainingError, match=r"metrics\.jsonl has metrics, but .* has no checkpoint"):
        run(left, settings())
    assert (left / "metrics.jsonl").read_bytes() == figures
    # A run that was killed before its first checkpoint leaves the evaluation of step 0, or half of it.
    first = figures.splitlines(keepends=True)[0]
    for content in (first, first + first[:20]):
        (left / "metrics.jsonl").write_bytes(content)
        (left / ".best.tmp").mkdir(exist_ok=True)
        assert run(left, settings()).finished
        assert [line["step"] for line in read_metrics(left)][:2] == [0, 2]
        shutil.rmtree(left)
        left.mkdir()
    (left / "best").mkdir()  # of no run, since a run writes figures before it
    with pytest.raises(TrainingError, match="holds best/: a new run would overwrite it"):
        run(left, settings())
    file = tmp_path / "file"
    file.write_text("precious")
    for output in (file, file / "run"):
        with pytest.raises(TrainingError, match="file is a file"):
            run(output, settings())
    assert file.read_text() == "precious"


def test_the_newest_checkpoint_is_kept_at_any_step(tmp_path: Path) -> None:
    run(tmp_path, settings(steps=4))
    for step, renamed in ((0, 9_999_998), (4, 9_999_999)):
        folder = checkpoint_folder(tmp_path, step).rename(checkpoint_folder(tmp_path, renamed))
        state = json.loads((folder / "training_state.json").read_text())
        (folder / "training_state.json").write_text(json.dumps(state | {"step": renamed}))
    longer = settings(steps=10_000_001, save_every=1, keep_checkpoints=2, schedule="trapezoid")
    for folder in checkpoints(tmp_path):
        state = json.loads((folder / "training_state.json").read_text())
        state |= {"fingerprint": longer.fingerprint(), "schedule_factor": 1.0}
        (folder / "training_state.json").write_text(json.dumps(state))
    assert run(tmp_path, longer).step == 10_000_001
    assert [folder.name for folder in checkpoints(tmp_path)] == ["step-10000000", "step-10000001"]


def test_files_of_inner_folders_are_on_the_disk_before_the_folder_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[str] = []
    for module in ("albertkit.training.checkpoints", "albertkit.files"):
        monkeypatch.setattr(f"{module}.flush_to_disk", lambda path: flushed.append(path.name))
    for write in (lambda: written_folder(tmp_path / "one"), lambda: complete_files(tmp_path / "other")):
        with write() as folder:
            (folder / "1_Pooling").mkdir()
            (folder / "1_Pooling" / "config.json").write_text("{}")
        assert {"1_Pooling", "config.json"} <= set(flushed)
        flushed.clear()


@pytest.mark.parametrize("step", [2, 4])
def test_a_full_disk_leaves_no_incomplete_best_model(
    tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full at step 2 for the new best model, and at the end for its copy."""
    model, scores, saved = tiny_model(), iter([0.1, 0.2, 0.3]), []

    def no_space(_: object, target: Path) -> None:
        target.write_text("incomplete")
        raise OSError(errno.ENOSPC, "No space left on device")

    def save(folder: Path) -> None:
        model.save_pretrained(folder)
        saved.append(folder.name)
        if step == 2 and saved.count(".best.tmp") == 2:
            raise DiskFullError(f"{folder}: no space left on the disk")

    def go_on() -> Any:
        return Training(
            model, objective, batches, settings(steps=4, evaluate_every=2, save_every=2), tmp_path,
            save_model=save, evaluate=lambda: {"accuracy": next(scores)}, best_metric="accuracy",
        ).run()  # fmt: skip

    with monkeypatch.context() as patched:
        if step == 4:
            patched.setattr(shutil, "copyfile", no_space)
        with pytest.raises(DiskFullError, match="no space left on the disk"):
            go_on()
    assert [file.name for file in tmp_path.rglob("*.tmp")] == []
    assert not (tmp_path / "model.safetensors").exists()
    scores = iter([0.2, 0.3])
    assert go_on().finished
