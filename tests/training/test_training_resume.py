"""A resumed run gives bitwise the same weights, and rejects damaged checkpoints and changed settings."""

import errno
import json
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from one_thread import one_thread  # noqa: F401  # a fixture
from places import SUPPORT
from quick_runs import quick_runs  # noqa: F401  # a fixture
from safetensors.torch import load_file
from training_runs import batches, objective, run, settings, tiny_model

from albertkit.errors import TrainingError
from albertkit.training.checkpoints import checkpoint_folder, checkpoints
from albertkit.training.distributed import stop_signals
from albertkit.training.loop import Training
from albertkit.training.progress import read_metrics


@pytest.mark.parametrize(
    ("optimizer", "precision"),
    [("lamb", "fp32"), ("adamw", "fp32"), ("adamw-corrected", "fp32"), ("muon", "fp32"), ("muon", "bf16")],
)
def test_an_interrupted_run_has_the_weights_of_an_uninterrupted_run(
    tmp_path: Path, optimizer: str, precision: str
) -> None:
    changes: dict[str, Any] = {"optimizer": optimizer, "precision": precision}
    if optimizer == "muon":
        changes["adamw_learning_rate"] = 0.003
    run(tmp_path / "whole", settings(**changes))
    first = run(tmp_path / "pieces", settings(**changes, max_minutes=1e-9))
    assert (first.finished, first.step) == (False, 1)
    second = run(tmp_path / "pieces", settings(**changes))
    assert (second.finished, second.step, second.tokens) == (True, 12, 12 * 32)
    for name in ("model.safetensors", "training_state.safetensors"):
        whole = load_file(checkpoint_folder(tmp_path / "whole", 12) / name)
        pieces = load_file(checkpoint_folder(tmp_path / "pieces", 12) / name)
        assert whole.keys() == pieces.keys()
        assert all(torch.equal(whole[key], pieces[key]) for key in whole), name


SLOW_RUN = """
import sys, time
from pathlib import Path
sys.path.insert(0, {support!r})
import torch
import training_runs as t
torch.set_num_threads(1)
class Slow(t.Objective):
    def __call__(self, *arguments):
        time.sleep(0.05)
        return super().__call__(*arguments)
t.run(Path({output!r}), t.settings(steps=40), objective=Slow())
"""


def slow_run(output: Path, shell: dict[str, str], *, step: int) -> subprocess.Popen[bytes]:
    """Start a run in a separate process, and return when it has written the metrics of a step."""
    program = output.with_suffix(".py")
    program.write_text(SLOW_RUN.format(support=str(SUPPORT), output=str(output)))
    command = [str(shutil.which("python", path=shell["PATH"])), str(program)]
    process = subprocess.Popen(command, env=shell, stderr=subprocess.DEVNULL)
    metrics = output / "metrics.jsonl"
    deadline = time.monotonic() + 60
    while not (metrics.exists() and f'"step": {step},' in metrics.read_text()):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)
    return process


@pytest.mark.usefixtures("one_thread")
def test_killed_run_goes_on_from_its_checkpoint_bitwise(tmp_path: Path, warm_shell: dict[str, str]) -> None:
    run(tmp_path / "whole", settings(steps=40))
    process = slow_run(tmp_path / "killed", warm_shell, step=10)
    process.send_signal(signal.SIGUSR1)  # SIGKILL of the run, somewhere after step 10
    process.wait()
    saved = [int(folder.name.split("-")[1]) for folder in checkpoints(tmp_path / "killed")]
    assert saved
    assert saved[-1] < 40
    run(tmp_path / "killed", settings(steps=40))
    whole = load_file(tmp_path / "whole" / "model.safetensors")
    killed = load_file(tmp_path / "killed" / "model.safetensors")
    assert all(torch.equal(whole[key], killed[key]) for key in whole)
    losses = [
        {line["step"]: line["train/loss"] for line in read_metrics(tmp_path / name) if "train/loss" in line}
        for name in ("whole", "killed")
    ]
    assert losses[0] == losses[1]


def test_sigterm_writes_a_checkpoint_and_ends(tmp_path: Path, warm_shell: dict[str, str]) -> None:
    output = tmp_path / "run"
    process = slow_run(output, warm_shell, step=2)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 0
    last = read_metrics(output)[-1]["step"]
    assert last < 40
    assert checkpoints(output)[-1] == checkpoint_folder(output, int(last))


def test_only_a_second_ctrl_c_ends_the_process_immediately() -> None:
    """`torchrun` forwards SIGTERM to processes that may have received it already."""
    with stop_signals() as received:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert received == [signal.SIGTERM] * 2


def test_a_signal_during_the_first_evaluation_is_not_lost(tmp_path: Path) -> None:
    model = tiny_model()

    def evaluate() -> dict[str, float]:
        signal.raise_signal(signal.SIGTERM)
        return {"loss": 1.0}

    result = Training(
        model,
        objective,
        batches,
        settings(),
        tmp_path,
        save_model=model.save_pretrained,
        evaluate=evaluate,
    ).run()
    assert (result.finished, result.signal, result.step) == (False, signal.SIGTERM, 1)
    assert checkpoints(tmp_path)[-1] == checkpoint_folder(tmp_path, 1)


@pytest.mark.parametrize(
    ("changes", "fingerprint", "named"),
    [
        ({"seed": 5}, {}, "seed: saved 0, now 5"),
        ({"steps": 20}, {}, "steps: saved 12, now 20"),
        ({}, {"task": {"length": 9, "depth": 2}}, r"\(task.length: saved 8, now 9\)"),
        ({}, {"task": {}}, "task.depth: saved 2, now None; task.length: saved 8, now None"),
        ({}, {"data": "0123456789abcdef" * 4}, "data: saved 'books', now '01234567"),
        ({}, {"shards": ["a", "c"] * 10}, r"\(shards\[1\]: saved \['b'\], now \['c'\]\)"),
    ],
)
def test_a_run_cannot_be_resumed_with_other_settings(
    tmp_path: Path, changes: dict[str, Any], fingerprint: dict[str, Any], named: str
) -> None:
    same = {"data": "books", "task": {"length": 8, "depth": 2}, "shards": ["a", "b"] * 10}
    run(tmp_path, settings(max_minutes=1e-9), same)
    with pytest.raises(TrainingError, match=named):
        run(tmp_path, settings(**changes), same | fingerprint)


def test_trapezoid_takes_more_steps_until_its_decay_begins(tmp_path: Path) -> None:
    trapezoid = {
        "schedule": "trapezoid",
        "warmup_steps": 2,
        "decay_steps": 4,
        "save_every": 1,
        "keep_checkpoints": 99,
    }
    run(tmp_path / "long", settings(**trapezoid, steps=16))
    run(tmp_path / "grown", settings(**trapezoid, steps=12, max_minutes=1e-9))
    run(tmp_path / "grown", settings(**trapezoid, steps=16))
    long, grown = (load_file(tmp_path / name / "model.safetensors") for name in ("long", "grown"))
    assert all(torch.equal(long[key], grown[key]) for key in long)
    with pytest.raises(TrainingError, match="the decay had begun"):
        run(tmp_path / "long", settings(**trapezoid, steps=18))


def test_a_damaged_checkpoint_is_an_error(tmp_path: Path) -> None:
    run(tmp_path, settings())
    state = checkpoint_folder(tmp_path, 12) / "training_state.safetensors"
    state.write_bytes(state.read_bytes()[:100])
    with pytest.raises(TrainingError, match=r"step-0000012 is damaged .* Delete it"):
        run(tmp_path, settings())


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: [],
        lambda state: state | {"step": "12"},
        lambda state: state | {"watch": {"seen": 3, "other": 1}},
        lambda state: state | {"best_metrics": [3]},
        lambda state: {name: value for name, value in state.items() if name != "tokens"},
    ],
)
@pytest.mark.parametrize("precision", ["auto", "fp32"])
def test_a_damaged_state_is_an_error(tmp_path: Path, damage: Any, precision: str) -> None:
    run(tmp_path, settings(max_minutes=1e-9))
    file = checkpoint_folder(tmp_path, 1) / "training_state.json"
    file.write_text(json.dumps(damage(json.loads(file.read_text()))))
    with pytest.raises(TrainingError, match=r"step-0000001 (is damaged .* Delete it|cannot be resumed)"):
        run(tmp_path, settings(precision=precision))


def test_metrics_survive_a_resume_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "metrics.jsonl"
    run(tmp_path, settings(max_minutes=1e-9))
    with file.open("a") as stream:
        stream.write('not JSON\n{"step": 2, "tokens": 64}\n{"step": 3, "to')
    before = file.read_bytes()
    with pytest.raises(TrainingError, match="seed: saved 0, now 5"):
        run(tmp_path, settings(seed=5))
    assert file.read_bytes() == before

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", full)
        with pytest.raises(OSError, match="no space left on the disk"):
            run(tmp_path, settings())
    assert file.read_bytes() == before
    # A resume drops damaged lines and the steps that it takes again, and no other line.
    result = run(tmp_path, settings())
    assert result.finished
    assert [line["step"] for line in read_metrics(tmp_path)] == [0, 1, 2, 4, 6, 6, 8, 10, 12, 12]
    inode = file.stat().st_ino
    run(tmp_path, settings())
    assert file.stat().st_ino == inode  # nothing to drop: the file is not written again


@pytest.mark.parametrize("saved", ["fp32", "bf16"])
def test_a_resume_computes_in_the_saved_precision(
    tmp_path: Path, saved: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command goes on where the machine, or a new measurement of it, would choose otherwise."""
    monkeypatch.setattr("albertkit.training.checkpoints.computes_in_bf16", lambda _: saved == "bf16")
    run(tmp_path, settings(precision="auto", max_minutes=1e-9))
    monkeypatch.setattr("albertkit.training.checkpoints.computes_in_bf16", lambda _: saved != "bf16")
    assert run(tmp_path, settings(precision="auto")).finished
    state = json.loads((checkpoint_folder(tmp_path, 12) / "training_state.json").read_text())
    assert state["fingerprint"]["precision"] == saved
    other = {"fp32": "bf16", "bf16": "fp32"}[saved]
    with pytest.raises(TrainingError, match=f"precision: saved '{saved}', now '{other}'"):
        run(tmp_path, settings(precision=other))
