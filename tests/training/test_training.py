"""The loop: exact resume, clean endings, refused resumes, nothing half-written."""

import errno
import json
import math
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from filelock import FileLock
from places import SUPPORT
from quick_runs import pictures, quick_runs  # noqa: F401  # fixtures
from safetensors.torch import load_file
from training_runs import BadOnce, Rows, batches, objective, run, settings, tiny_model

from albertkit.errors import ConfigError, DiskFullError, TrainingError
from albertkit.files import complete_files
from albertkit.modeling.pretraining_heads import AlbertForMaskedLM
from albertkit.training import loop, throughput
from albertkit.training.curves import read_metrics
from albertkit.training.folder import written_folder
from albertkit.training.loop import train
from albertkit.training.run_state import RunState
from albertkit.training.state import checkpoint_folder, checkpoint_step, checkpoints


@pytest.mark.parametrize(
    ("optimizer", "precision"),
    [("lamb", "fp32"), ("adamw", "fp32"), ("adamw-corrected", "fp32"), ("muon", "fp32"), ("muon", "bf16")],
)
def test_interrupted_run_is_bitwise_the_uninterrupted_one(
    tmp_path: Path, optimizer: str, precision: str
) -> None:
    changes: dict[str, Any] = {"optimizer": optimizer, "precision": precision}
    if optimizer == "muon":
        changes["adamw_learning_rate"] = 0.003
    run(tmp_path / "whole", settings(**changes))
    first = run(tmp_path / "pieces", settings(**changes, max_minutes=1e-9))
    assert (first.finished, first.state.step) == (False, 1)
    second = run(tmp_path / "pieces", settings(**changes))
    assert (second.finished, second.state.step, second.state.tokens) == (True, 12, 12 * 32)
    for name in ("model.safetensors", "training_state.safetensors"):
        whole = load_file(checkpoint_folder(tmp_path / "whole", 12) / name)
        pieces = load_file(checkpoint_folder(tmp_path / "pieces", 12) / name)
        assert whole.keys() == pieces.keys()
        assert all(torch.equal(whole[key], pieces[key]) for key in whole), name


SLOW_RUN = """
import sys, time
from pathlib import Path
sys.path.insert(0, {support!r})
import training_runs as t
class Slow(t.Objective):
    def __call__(self, *arguments):
        time.sleep(0.05)
        return super().__call__(*arguments)
t.run(Path({output!r}), t.settings(steps=40), objective=Slow())
"""


def slow_run(output: Path, shell: dict[str, str], *, step: int) -> subprocess.Popen[bytes]:
    """Start a run in a process of its own, and return when its figures of a step are written."""
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


def test_a_signal_during_the_first_evaluation_is_not_lost(tmp_path: Path) -> None:
    model = tiny_model()

    def evaluate() -> dict[str, float]:
        signal.raise_signal(signal.SIGTERM)
        return {"loss": 1.0}

    result = train(
        model, objective, batches, settings(), tmp_path, save_model=model.save_pretrained, evaluate=evaluate
    )
    assert (result.finished, result.signal, result.state.step) == (False, signal.SIGTERM, 1)
    assert checkpoints(tmp_path)[-1] == checkpoint_folder(tmp_path, 1)


def test_any_seed_will_do(tmp_path: Path) -> None:
    assert run(tmp_path, settings(steps=3, warmup_steps=1, seed=2**63)).finished


@pytest.mark.usefixtures("pictures")
def test_every_checkpoint_is_a_model_folder_and_the_last_ones_are_kept(tmp_path: Path) -> None:
    run(tmp_path, settings(steps=12, save_every=2, keep_checkpoints=2))
    assert [folder.name for folder in checkpoints(tmp_path)] == ["step-0000010", "step-0000012"]
    for folder in checkpoints(tmp_path):
        assert AlbertForMaskedLM.from_pretrained(folder).config.hidden_size == 16
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("changes", "fingerprint", "named"),
    [
        ({"seed": 5}, {}, "seed: saved 0, now 5"),
        ({"learning_rate": 0.02}, {}, "learning_rate: saved 0.01, now 0.02"),
        ({"steps": 20}, {}, "steps: saved 12, now 20"),
        ({}, {"data": "other"}, "data: saved 'books', now 'other'"),
        ({}, {"task": {"length": 9, "depth": 2}}, r"\(task.length: saved 8, now 9\)"),
        ({}, {"task": {"length": 8, "depth": 2, "width": None}}, "task.width: saved nothing, now None"),
        ({}, {"task": {}}, "task.depth: saved 2, now nothing; task.length: saved 8, now nothing"),
        ({}, {"data": "0123456789abcdef" * 4}, "data: saved 'books', now '01234567'..."),
    ],
)
def test_resume_with_other_settings_is_refused(
    tmp_path: Path, changes: dict[str, Any], fingerprint: dict[str, Any], named: str
) -> None:
    same = {"data": "books", "task": {"length": 8, "depth": 2}}
    run(tmp_path, settings(max_minutes=1e-9), same)
    with pytest.raises(TrainingError, match=named):
        run(tmp_path, settings(**changes), same | fingerprint)


def test_a_checkpoint_without_a_new_setting_resumes_with_its_default(tmp_path: Path) -> None:
    saved = {"data": "books", "task": {"length": 8, "labelled_pieces": "all"}}
    run(tmp_path, settings(max_minutes=1e-9), saved)
    file = checkpoints(tmp_path)[-1] / "training_state.json"
    state = json.loads(file.read_text())
    del state["fingerprint"]["weight_decay"]  # its default is in TrainingSettings
    file.write_text(json.dumps(state))
    now = {"data": "books", "task": {"length": 8, "labeled_tokens": "all", "width": 2.0}, "mode": "fast"}
    defaults = {"task": {"width": 2.0, "depth": 3}, "mode": "fast"}
    for changes, other, named in (
        ({}, {"mode": "slow"}, r"\(mode: saved 'fast', now 'slow'\)"),
        ({}, {"task": now["task"] | {"width": 1.0}}, r"\(task\.width: saved 2\.0, now 1\.0\)"),
        ({"weight_decay": 0.5}, {}, r"\(weight_decay: saved 0\.01, now 0\.5\)"),
    ):
        with pytest.raises(TrainingError, match=named):
            run(tmp_path, settings(**changes), now | other, defaults=defaults)
    assert run(tmp_path, settings(), now, defaults=defaults).finished


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


@pytest.mark.parametrize("optimizer", ["lamb", "muon"])
def test_a_bad_loss_rolls_back_and_its_data_is_skipped(tmp_path: Path, optimizer: str) -> None:
    changed = settings(optimizer=optimizer)
    result = run(tmp_path / "bad", changed, objective=BadOnce(7, math.nan))
    assert result.finished
    # Batches 5 to 7 are gone (the last checkpoint was that of step 4), so step 12 takes batch 15.
    assert result.state.position == {"step": 15}
    (event,) = [line for line in read_metrics(tmp_path / "bad") if "rolled_back_from" in line]
    assert (event["step"], event["rolled_back_from"], event["bad_loss"]) == (4, 7, "nan")
    logged = [line["step"] for line in read_metrics(tmp_path / "bad") if "train/loss" in line]
    assert logged == [2, 4, 6, 8, 10, 12]

    def without(position: dict[str, int] | None) -> Iterator[tuple[Rows, dict[str, int]]]:
        for batch, after in batches(position):
            if after["step"] not in (5, 6, 7):
                yield batch, after

    model = tiny_model()
    train(model, objective, without, changed, tmp_path / "plain", save_model=model.save_pretrained)
    bad, plain = (load_file(tmp_path / name / "model.safetensors") for name in ("bad", "plain"))
    assert all(torch.equal(bad[key], plain[key]) for key in plain)


def test_a_loss_spike_rolls_back(tmp_path: Path) -> None:
    result = run(tmp_path, settings(steps=120, save_every=50), objective=BadOnce(110, 100.0))
    (event,) = [line for line in read_metrics(tmp_path) if "rolled_back_from" in line]
    assert (event["step"], event["rolled_back_from"]) == (100, 110)
    assert result.state.position == {"step": 130}
    assert result.metrics["loss"] < 4


def run_with(output: Path, values: Iterator[float], objective: Any = objective, **changes: Any) -> Any:
    """Train with these values of the metric that selects the model."""
    model = tiny_model()
    return train(
        model,
        objective,
        batches,
        settings(evaluate_every=2, **changes),
        output,
        save_model=model.save_pretrained,
        evaluate=lambda: {"accuracy": next(values), "recall": math.nan},
        best_metric="accuracy",
    )


def test_the_best_model_survives_a_rollback(tmp_path: Path) -> None:
    """The checkpoint of step 4 does not know the evaluation of step 6, whose model is in best/."""
    values = iter([0.1, 0.2, 0.3, 0.9, 0.4, 0.35, 0.35, 0.35])
    result = run_with(tmp_path, values, BadOnce(7, math.nan))
    assert (result.state.best, result.state.best_step) == (0.9, 6)
    assert list(values) == []


def test_early_stopping_counts_the_evaluations_before_a_rollback(tmp_path: Path) -> None:
    """The checkpoint of step 4 has one evaluation without improvement; step 6 is the best and is repeated."""
    values = iter([0.1, 0.5, 0.4, 0.9, 0.35, 0.3])
    result = run_with(tmp_path, values, objective=BadOnce(7, math.nan), early_stopping=2)
    state = result.state
    assert (result.finished, state.step, state.stale_evaluations) == (True, 8, 2)
    assert (state.best, state.best_step, state.best_metrics["accuracy"]) == (0.9, 6, 0.9)
    assert state.metrics == result.metrics
    assert result.metrics["accuracy"] == 0.3
    assert list(values) == []


def test_a_rollback_returns_to_the_metrics_of_its_checkpoint() -> None:
    state = RunState(step=4, metrics={"accuracy": 0.4}, best_metrics={"accuracy": 0.5})
    before = RunState(step=6, metrics={"accuracy": 0.9}, best_metrics={"accuracy": 0.9})
    state.keep_after_rollback(before, {"step": 7})
    assert (state.metrics, state.best_metrics) == ({"accuracy": 0.4}, {"accuracy": 0.9})


def test_a_finished_run_keeps_its_metrics(tmp_path: Path) -> None:
    """A metric without a value is NaN before and after, but null in the file."""
    result = run_with(tmp_path, iter([0.1, 0.5, 0.4, 0.2, 0.2, 0.2, 0.2]))
    (tmp_path / "metrics.jsonl").unlink()
    again = run_with(tmp_path, iter([]))
    for found in (result, again):
        assert found.metrics == {"accuracy": 0.2, "recall": pytest.approx(math.nan, nan_ok=True)}
        assert found.state.best_metrics == {"accuracy": 0.5, "recall": pytest.approx(math.nan, nan_ok=True)}
    file = checkpoint_folder(tmp_path, 12) / "training_state.json"
    document = json.loads(file.read_text())
    assert document["metrics"] == {"accuracy": 0.2, "recall": None}
    for name in ("metrics", "best_metrics"):  # checkpoints of earlier versions lack them
        del document[name]
    file.write_text(json.dumps(document))
    assert (run_with(tmp_path, iter([])).metrics, result.state.best) == ({}, 0.5)


def test_an_early_end_needs_a_metric_that_selects_the_model(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="early_stopping is 2, but the run keeps no best model"):
        run(tmp_path / "run", settings(early_stopping=2))
    assert not (tmp_path / "run").exists()


def test_losses_that_stay_bad_stop_the_run(tmp_path: Path) -> None:
    expected = r"step 1 is nan .* after 3 rollbacks to .*step-0000000.* check the data and the objective"
    with pytest.raises(TrainingError, match=expected):
        run(tmp_path, settings(), objective=BadOnce(1, math.nan, always=True))


@pytest.mark.parametrize("is_resumed", [False, True])
def test_constant_outputs_stop_the_run(tmp_path: Path, is_resumed: bool) -> None:
    spreads = iter([0.5, 1e-4, 0.3, 1e-4, 1e-5, 0.2])
    interruptions = iter([False] * 4 + [is_resumed])

    def evaluate() -> dict[str, float]:
        if next(interruptions, False):
            raise KeyboardInterrupt
        return {"output_spread": next(spreads)}

    def trained() -> None:
        model = tiny_model()
        train(
            model,
            objective,
            batches,
            settings(evaluate_every=2, save_every=1),
            tmp_path,
            save_model=model.save_pretrained,
            evaluate=evaluate,
        )

    if is_resumed:
        with pytest.raises(KeyboardInterrupt):
            trained()
    with pytest.raises(TrainingError, match=r"no longer depend on the input: .* 1e-05 at step 8"):
        trained()


def test_the_best_model_is_kept_and_a_run_that_gets_no_better_ends(tmp_path: Path) -> None:
    def trained(output: Path, scores: list[float], **changes: Any) -> Any:
        model, values = tiny_model(), iter(scores)
        return train(
            model,
            objective,
            batches,
            settings(evaluate_every=2, save_every=2, keep_checkpoints=99, **changes),
            output,
            save_model=model.save_pretrained,
            evaluate=lambda: {"accuracy": next(values)},
            best_metric="accuracy",
        )

    scores = [0.1, 0.5, 0.7, 0.6, 0.65, 0.7]
    result = trained(tmp_path / "stopped", scores, early_stopping=3)
    assert (result.finished, result.state.step) == (True, 10)
    assert (result.state.best, result.state.best_step) == (0.7, 4)
    final, best, fourth = (
        load_file(tmp_path / "stopped" / folder / "model.safetensors")
        for folder in (".", "best", "checkpoints/step-0000004")
    )
    assert all(torch.equal(final[key], fourth[key]) and torch.equal(best[key], fourth[key]) for key in fourth)
    again = trained(tmp_path / "stopped", [], early_stopping=3)  # nothing is left to do
    assert (again.finished, again.state.step) == (True, 10)
    # Stopped by the clock after the first step, it remembers what was best.
    trained(tmp_path / "resumed", [0.9], early_stopping=3, max_minutes=1e-9)
    resumed = trained(tmp_path / "resumed", scores, early_stopping=3)
    assert (resumed.state.step, resumed.state.best, resumed.state.best_step) == (6, 0.9, 0)
    # Of equals the first is kept, but not a model before any training.
    equal = trained(tmp_path / "equal", [0.7, 0.7, 0.7, 0.6, 0.5, 0.4, 0.3])
    assert (equal.state.best, equal.state.best_step) == (0.7, 2)


@pytest.mark.parametrize(
    ("changes", "optimizer", "tolerance"),
    [
        ({"accumulation": 3}, "lamb", 1e-6),
        ({"gradient_checkpointing": True}, "lamb", 1e-6),
        ({"accumulation": 3}, "muon", 1e-5),
    ],
)
def test_less_memory_is_the_same_run(
    tmp_path: Path, changes: dict[str, Any], optimizer: str, tolerance: float
) -> None:
    run(tmp_path / "plain", settings(optimizer=optimizer), dropout=0.0)
    run(tmp_path / "less", settings(optimizer=optimizer, **changes), dropout=0.0)
    plain, less = (load_file(tmp_path / name / "model.safetensors") for name in ("plain", "less"))
    assert all(torch.allclose(plain[key], less[key], atol=tolerance) for key in plain)
    losses = [
        [line.get("train/loss") for line in read_metrics(tmp_path / name)] for name in ("plain", "less")
    ]
    assert losses[0] == pytest.approx(losses[1], abs=10 * tolerance, nan_ok=True)


def test_a_run_counted_in_tokens_is_the_one_counted_in_steps(tmp_path: Path) -> None:
    run(tmp_path / "steps", settings())
    in_tokens = {"steps": None, "warmup_steps": 0, "tokens": 12 * 32, "warmup_tokens": 3 * 32}
    result = run(tmp_path / "tokens", settings(**in_tokens))
    assert (result.finished, result.state.step, result.state.tokens) == (True, 12, 12 * 32)
    steps, tokens = (load_file(tmp_path / name / "model.safetensors") for name in ("steps", "tokens"))
    assert all(torch.equal(steps[key], tokens[key]) for key in steps)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": 5}, "steps is 12 and tokens is 5. Set exactly one of them"),
        ({"steps": None}, "steps is None and tokens is None"),
        ({"warmup_tokens": 5}, "warmup_tokens is set, but the length of the run is in steps"),
        ({"warmup_steps": 13}, r"warm-up \(13\) and decay \(0\) together are longer than the run \(12 steps"),
        ({"accumulation": 0}, "accumulation must be 1 or more, not 0"),
        ({"spike": 0.0}, "spike must be more than 0"),
        ({"decay_steps": 2}, "decay_steps is 2, but the linear schedule decays over the whole run"),
    ],
)
def test_impossible_settings_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings(**changes)


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
        train(model, objective, batches, settings(), tmp_path, save_model=save)
    assert checkpoints(tmp_path)[-1].name == "step-0000004"
    assert [file.name for file in (tmp_path / "checkpoints").glob(".*")] == []
    run(tmp_path, settings())
    run(tmp_path / "whole", settings())
    resumed, whole = (load_file(folder / "model.safetensors") for folder in (tmp_path, tmp_path / "whole"))
    assert all(torch.equal(resumed[key], whole[key]) for key in whole)


@pytest.mark.parametrize("step", [2, 4])
def test_a_full_disk_leaves_no_half_of_the_best_model(
    tmp_path: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At step 2 there is no space for the new best model, at the end none for its copy."""
    model, scores, saved = tiny_model(), iter([0.1, 0.2, 0.3]), []

    def no_space(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def save(folder: Path) -> None:
        model.save_pretrained(folder)
        saved.append(folder.name)
        if step == 2 and saved.count(".best.tmp") == 2:
            raise DiskFullError(f"{folder}: no space left on the disk")

    def go_on() -> Any:
        return train(
            model, objective, batches, settings(steps=4, evaluate_every=2, save_every=2), tmp_path,
            save_model=save, evaluate=lambda: {"accuracy": next(scores)}, best_metric="accuracy",
        )  # fmt: skip

    with monkeypatch.context() as patched:
        if step == 4:
            patched.setattr(shutil, "copytree", no_space)
        with pytest.raises(DiskFullError, match="no space left on the disk"):
            go_on()
    assert [file.name for file in tmp_path.rglob("*.tmp")] == []
    scores = iter([0.2, 0.3])
    assert go_on().finished


def test_tensorboard_drops_the_steps_that_a_rollback_repeats(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run(tmp_path, settings(log_every=1), objective=BadOnce(7, math.nan))
    board = EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    shown = [(event.step, event.value) for event in board.Scalars("train/loss")]
    lines = [(line["step"], line["train/loss"]) for line in read_metrics(tmp_path) if "train/loss" in line]
    assert [step for step, _ in shown] == list(range(1, 13))
    assert dict(shown) == pytest.approx(dict(lines), abs=1e-5)


def test_tensorboard_has_the_figures(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run(tmp_path, settings())
    board = EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    shown = {event.step: event.value for event in board.Scalars("train/loss")}
    lines = {line["step"]: line["train/loss"] for line in read_metrics(tmp_path) if "train/loss" in line}
    assert shown == pytest.approx(lines, abs=1e-5)
    assert {"tokens_per_second", "memory_gb", "minutes_left", "learning_rate"} <= set(board.Tags()["scalars"])


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


def test_a_run_imports_neither_tensorflow_nor_the_compiler(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    for name in ("tensorflow", "sympy"):  # the second is of the compiler
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name} was imported')")
    program.write_text(
        f"import sys; sys.path.append({str(SUPPORT)!r})\n"
        "from pathlib import Path\n"
        "import training_runs as t\n"
        f"t.run(Path({str(tmp_path / 'run')!r}), t.settings(steps=1, warmup_steps=0, optimizer='adamw'))"
    )
    done = subprocess.run([sys.executable, program], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.slow
def test_a_compiled_run_is_the_plain_one(tmp_path: Path) -> None:
    run(tmp_path / "plain", settings(), dropout=0.0)
    run(tmp_path / "compiled", settings(compile=True), dropout=0.0)
    plain, compiled = (load_file(tmp_path / name / "model.safetensors") for name in ("plain", "compiled"))
    assert all(torch.allclose(plain[key], compiled[key], atol=1e-5) for key in plain)


def test_metrics_are_averages_over_the_steps_between(tmp_path: Path) -> None:
    run(tmp_path, settings(log_every=1))
    each = [line["train/loss"] for line in read_metrics(tmp_path) if "train/loss" in line]
    run(tmp_path / "pairs", settings(log_every=2))
    pairs = [line["train/loss"] for line in read_metrics(tmp_path / "pairs") if "train/loss" in line]
    assert len(each) == 12
    assert pairs == pytest.approx([(a + b) / 2 for a, b in zip(each[::2], each[1::2], strict=True)], abs=1e-5)
    rates = [
        json.loads(line)["learning_rate"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()
    ]
    assert rates[:2] == pytest.approx([0.0, 0.01 / 3])


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
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
        lambda state: state | {"watch": None},
        lambda state: state | {"watch": {"seen": 3, "other": 1}},
        lambda state: state | {"position": {"step": None}},
        lambda state: state | {"more": 1},
        lambda state: state | {"metrics": {"loss": "3"}},
        lambda state: state | {"best_metrics": [3]},
        lambda state: state | {"fingerprint": {"precision": "int8"}},
        lambda state: {name: value for name, value in state.items() if name != "tokens"},
    ],
)
@pytest.mark.parametrize("precision", ["auto", "fp32"])
def test_a_damaged_state_is_named(tmp_path: Path, damage: Any, precision: str) -> None:
    run(tmp_path, settings(max_minutes=1e-9))
    file = checkpoint_folder(tmp_path, 1) / "training_state.json"
    file.write_text(json.dumps(damage(json.loads(file.read_text()))))
    with pytest.raises(TrainingError, match=r"step-0000001 (is damaged .* Delete it|cannot be resumed)"):
        run(tmp_path, settings(precision=precision))


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_text("precious")
    with pytest.raises(TrainingError, match=r"holds model\.safetensors: a new run would overwrite it"):
        run(tmp_path, settings())
    assert (tmp_path / "model.safetensors").read_text() == "precious"


@pytest.mark.parametrize(
    ("has_instructions", "bf16", "expected"), [(True, 2e11, True), (True, 8e10, False), (False, 2e11, False)]
)
def test_bf16_is_chosen_where_it_is_faster(
    has_instructions: bool, bf16: float, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Instructions for it are not enough: on some CPUs products in fp32 are the faster ones."""
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: has_instructions)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    measured = {torch.bfloat16: bf16, torch.float32: 1.5e11}
    monkeypatch.setattr(throughput, "measured_flops", lambda device, dtype, sizes: measured[dtype])
    assert throughput.computes_in_bf16.__wrapped__(torch.device("cpu")) is expected


def test_checkpoints_are_in_the_order_of_their_steps(tmp_path: Path) -> None:
    """At 10,000,000 steps the names get longer, and no longer sort as text."""
    steps = (9_999_999, 10_000_000, 500, 123_456_789)
    for step in steps:
        checkpoint_folder(tmp_path, step).mkdir(parents=True)
    for other in ("step-", "step-9.old", ".step-0000007.tmp"):
        (tmp_path / "checkpoints" / other).mkdir()
    assert [checkpoint_step(folder) for folder in checkpoints(tmp_path)] == sorted(steps)


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
    assert run(tmp_path, longer).state.step == 10_000_001
    assert [folder.name for folder in checkpoints(tmp_path)] == ["step-10000000", "step-10000001"]


@pytest.mark.parametrize(
    ("metric", "scores", "best"),
    [
        ("mean_squared_error", [0.9, 0.5, 0.7, math.nan, 0.5], 0.5),
        ("accuracy", [math.nan, 0.5, 0.7, math.nan, 0.6], 0.7),
    ],
)
def test_the_best_of_an_error_is_the_lowest_and_nan_is_never_the_best(
    tmp_path: Path, metric: str, scores: list[float], best: float
) -> None:
    model, values = tiny_model(), iter(scores)
    result = train(
        model,
        objective,
        batches,
        settings(steps=4, evaluate_every=1, log_every=1),
        tmp_path,
        save_model=model.save_pretrained,
        evaluate=lambda: {metric: next(values)},
        best_metric=metric,
        lower_is_better=metric == "mean_squared_error",
    )
    assert (result.state.best, result.state.best_step) == (best, scores.index(best))
    lines = (tmp_path / "metrics.jsonl").read_text()
    assert "NaN" not in lines
    assert '"eval/' + metric + '": null' in lines


def test_figures_survive_a_resume_that_is_refused_or_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    with pytest.raises(TrainingError, match="file is a file"):
        run(file, settings())
    assert file.read_text() == "precious"


@pytest.mark.parametrize("saved", ["fp32", "bf16"])
def test_a_resume_computes_in_the_saved_precision(
    tmp_path: Path, saved: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command goes on where the machine, or a new measurement of it, would choose otherwise."""
    monkeypatch.setattr("albertkit.training.state.computes_in_bf16", lambda _: saved == "bf16")
    run(tmp_path, settings(precision="auto", max_minutes=1e-9))
    monkeypatch.setattr("albertkit.training.state.computes_in_bf16", lambda _: saved != "bf16")
    assert run(tmp_path, settings(precision="auto")).finished
    state = json.loads((checkpoint_folder(tmp_path, 12) / "training_state.json").read_text())
    assert state["fingerprint"]["precision"] == saved
    other = {"fp32": "bf16", "bf16": "fp32"}[saved]
    with pytest.raises(TrainingError, match=f"precision: saved '{saved}', now '{other}'"):
        run(tmp_path, settings(precision=other))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_evaluation_computes_in_the_precision_of_the_run(tmp_path: Path, precision: str) -> None:
    model, seen = tiny_model(), set()

    def evaluate() -> dict[str, float]:
        seen.add(model(input_ids=next(batches(None))[0].ids).logits.dtype)
        return {}

    train(
        model, objective, batches, settings(precision=precision), tmp_path,
        save_model=model.save_pretrained, evaluate=evaluate,
    )  # fmt: skip
    assert seen == {{"fp32": torch.float32, "bf16": torch.bfloat16}[precision]}


@pytest.mark.parametrize(
    ("name", "stated"),
    [
        ("NVIDIA H200", 989e12),
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA A100-SXM4-40GB", 312e12),
        ("NVIDIA L40S", 362e12),
        ("NVIDIA L4", 121e12),
        ("NVIDIA L40", None),
        ("NVIDIA RTX A1000", None),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA H200 NVL", None),
    ],
)
def test_the_peak_of_a_gpu_is_stated_or_measured(
    monkeypatch: pytest.MonkeyPatch, name: str, stated: float | None
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: name)
    monkeypatch.setattr(throughput, "measured_flops", lambda *_: 7.0)
    assert throughput.peak_flops(torch.device("cuda"), torch.bfloat16) == (stated or 7.0)


def test_files_of_inner_folders_are_on_the_disk_before_the_folder_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[str] = []
    for module in ("albertkit.training.folder", "albertkit.files"):
        monkeypatch.setattr(f"{module}.flush_to_disk", lambda path: flushed.append(path.name))
    for write in (lambda: written_folder(tmp_path / "one"), lambda: complete_files(tmp_path / "other")):
        with write() as folder:
            (folder / "1_Pooling").mkdir()
            (folder / "1_Pooling" / "config.json").write_text("{}")
        assert {"1_Pooling", "config.json"} <= set(flushed)
        flushed.clear()


def test_minutes_left_follow_the_speed_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resumed run once averaged over the time before the resume, on whatever machine that was."""
    now = [0.0]
    monkeypatch.setattr(throughput.time, "perf_counter", lambda: now[0])
    state = RunState(step=100, tokens=1_000, seconds=60_000.0)
    meter = throughput.Meter(torch.device("cpu"), 0.0, state, done=state.step)
    meter.start()
    now[0], state.step, state.tokens = 50.0, 110, 1_100
    figures = meter.figures(state, done=state.step, length=170)
    assert figures["tokens_per_second"] == pytest.approx(2.0)
    assert figures["minutes_left"] == pytest.approx(60 * 5 / 60)


def test_a_run_keeps_freed_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, steps are a fifth slower: dev/lab-notes.md, 2026-11-24."""
    called: list[None] = []
    monkeypatch.setattr(loop, "keep_freed_memory", lambda: called.append(None))
    run(tmp_path / "run", settings())
    assert len(called) == 1
