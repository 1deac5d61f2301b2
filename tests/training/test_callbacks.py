"""Tests of callbacks: their calls and arguments, and that they do not change the results of a run."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from places import SUPPORT
from quick_runs import quick_runs  # noqa: F401  # a fixture
from safetensors.torch import load_file
from training_runs import BadOnce, run, settings
from two_processes import in_two_processes

import albertkit
from albertkit import Callback, RunState
from albertkit.errors import ConfigError, TrainingError
from albertkit.training.checkpoints import checkpoint_folder, checkpoints
from albertkit.training.progress import read_metrics

EVENTS = ("on_start", "on_step", "on_evaluation", "on_checkpoint", "on_rollback", "on_end")


class Recorder(Callback):
    """Records each call, and calls a function at one of them."""

    def __init__(self, event: str = "", step: int = 0, then: Callable[[RunState], object] = repr) -> None:
        self.calls: list[tuple[str, int, Any]] = []
        self.at, self.then = (event, step), then
        self.finished: bool | None = None

    def _note(self, event: str, run: RunState, told: Any = None) -> None:
        self.calls.append((event, run.step, told))
        self.finished = run.finished
        if self.at == (event, run.step):
            self.then(run)

    def events(self, event: str) -> list[tuple[int, Any]]:
        return [(step, told) for name, step, told in self.calls if name == event]


for name in EVENTS:
    # One method for each event: `Recorder.on_step(run, metrics)` notes "on_step".
    setattr(Recorder, name, lambda self, run, told=None, name=name: self._note(name, run, told))


class Full(Exception):  # noqa: N818  # as the pruning of Optuna, which is none either
    """An exception of a library that the loop does not know."""


def fail(run: RunState) -> None:
    raise Full(f"at {run.step}")


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def same(one: Path, other: Path) -> bool:
    first, second = weights(one), weights(other)
    return first.keys() == second.keys() and all(torch.equal(first[key], second[key]) for key in first)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run without callbacks."""
    folder = tmp_path_factory.mktemp("whole")
    run(folder, settings())
    return folder


def test_callbacks_get_the_metrics_and_change_no_result(tmp_path: Path, whole: Path) -> None:
    told, losses = Recorder(), []

    class Losses(Callback):
        def on_step(self, run: RunState, metrics: dict[str, float]) -> None:
            torch.manual_seed(7)  # the seed of a step is the loop's
            losses.append(run.loss)

    run(tmp_path / "run", settings(log_every=5), callbacks=[told, Losses()])
    run(tmp_path / "each", settings(log_every=1))
    assert same(tmp_path / "run", whole)
    names = [name for name, _, _ in told.calls]
    assert names[:4] == ["on_start", "on_evaluation", "on_checkpoint", "on_step"]
    assert names[-4:] == ["on_step", "on_evaluation", "on_checkpoint", "on_end"]
    assert [step for step, _ in told.events("on_step")] == list(range(1, 13))
    assert [step for step, metrics in told.events("on_step") if metrics] == [5, 10, 12]
    assert [step for step, _ in told.events("on_evaluation")] == [0, 6, 12]
    assert told.events("on_checkpoint") == [
        (step, checkpoint_folder(tmp_path / "run", step)) for step in (0, 4, 8, 12)
    ]
    assert told.finished
    lines = {(line["step"], "train/loss" in line): line for line in read_metrics(tmp_path / "run")}
    assert len(lines) == 6
    for step, metrics in told.events("on_step") + told.events("on_evaluation"):
        if metrics:
            line = lines[step, "train/loss" in metrics]
            assert {name: round(value, 6) for name, value in metrics.items()}.items() <= line.items()
    logged = [line["train/loss"] for line in read_metrics(tmp_path / "each") if "train/loss" in line]
    assert losses == pytest.approx(logged, abs=1e-6)


@pytest.mark.parametrize(
    ("event", "step"),
    [("on_step", 5), ("on_step", 6), ("on_evaluation", 6), ("on_checkpoint", 4), ("on_evaluation", 0)],
)
def test_an_exception_ends_the_run_with_a_checkpoint_and_the_same_call_continues(
    event: str, step: int, tmp_path: Path, whole: Path, caplog: pytest.LogCaptureFixture
) -> None:
    failing, other = Recorder(event, step, fail), Recorder()
    with pytest.raises(Full, match=f"^at {step}$"):
        run(tmp_path, settings(), callbacks=[failing, other])
    assert f"Recorder.{event} failed at step {step}, so the run ends: Full('at {step}')" in caplog.text
    assert checkpoints(tmp_path)[-1] == checkpoint_folder(tmp_path, step)
    assert same(tmp_path, checkpoint_folder(tmp_path, step))
    # The one that failed is called once more, for it to close what it opened; the other one as ever.
    assert failing.calls[-1][:2] == ("on_end", step)
    assert failing.calls[-2][:2] == (event, step)
    assert other.calls[-2][:2] == ("on_checkpoint", step)
    assert other.calls[-1][:2] == ("on_end", step)
    assert other.finished is False
    again = Recorder()
    assert run(tmp_path, settings(), callbacks=[again]).finished
    assert again.calls[0][:2] == ("on_start", step)
    assert same(tmp_path, whole)
    told = [
        [line["step"] for line in read_metrics(folder) if "eval/loss" in line] for folder in (tmp_path, whole)
    ]
    assert told[0] == told[1] == [0, 6, 12]


def test_a_callback_that_cannot_start_ends_the_run_before_any_work(tmp_path: Path, whole: Path) -> None:
    first, failing, last = Recorder(), Recorder("on_start", 0, fail), Recorder()
    with pytest.raises(Full):
        run(tmp_path, settings(), callbacks=[first, failing, last])
    assert [name for name, _, _ in first.calls] == ["on_start", "on_end"]
    assert [name for name, _, _ in failing.calls] == ["on_start"]
    assert checkpoints(tmp_path) == []
    run(tmp_path, settings())
    assert same(tmp_path, whole)


def test_an_exception_at_the_end_leaves_a_finished_run(tmp_path: Path, whole: Path) -> None:
    first, second = Recorder("on_end", 12, fail), Recorder()
    with pytest.raises(Full):
        run(tmp_path, settings(), callbacks=[first, second])
    assert second.finished
    assert same(tmp_path, whole)
    assert run(tmp_path, settings()).step == 12


def test_callbacks_end_where_the_run_itself_fails(tmp_path: Path) -> None:
    told = Recorder("on_end", 0, fail)
    with pytest.raises(TrainingError, match="after 3 rollbacks"):
        run(tmp_path, settings(), objective=BadOnce(1, math.nan, always=True), callbacks=[told])
    assert told.calls[-1][:2] == ("on_end", 0)
    assert told.finished is False


def test_callbacks_are_called_for_a_rollback(tmp_path: Path) -> None:
    told = Recorder()
    run(tmp_path, settings(), objective=BadOnce(7, math.nan), callbacks=[told])
    assert told.events("on_rollback") == [(4, {"rolled_back_from": 7, "bad_loss": "nan"})]
    assert [step for step, _ in told.events("on_step")] == [1, 2, 3, 4, 5, 6, *range(5, 13)]


@pytest.mark.parametrize(
    ("event", "at", "ended"),
    [("on_step", 5, 5), ("on_evaluation", 6, 6), ("on_checkpoint", 4, 5), ("on_start", 0, 0)],
)
def test_a_callback_stops_the_run(
    event: str, at: int, ended: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "albertkit")
    told = Recorder(event, at, lambda run: run.stop("good enough"))
    result = run(tmp_path, settings(), callbacks=[told])
    assert (result.finished, result.step, result.stopped) == (True, ended, "good enough")
    assert f"a callback stopped the run at step {at}: good enough" in caplog.text
    assert told.events("on_evaluation")[-1] == (ended, {"eval/loss": result.metrics["loss"]})
    assert told.finished
    assert same(tmp_path, checkpoint_folder(tmp_path, ended))
    again = run(tmp_path, settings())  # has nothing left to do
    assert (again.finished, again.step) == (True, ended)


def test_a_resumed_run_starts_at_its_step(tmp_path: Path) -> None:
    steps: list[tuple[int, bool, int]] = []

    class Starts(Callback):
        def on_start(self, run: RunState) -> None:
            steps.append((run.step, run.resumed, run.tokens))

    run(tmp_path, settings(max_minutes=1e-9), callbacks=[Starts()])
    run(tmp_path, settings(), callbacks=[Starts()])
    assert steps == [(0, False, 0), (1, True, 32)]


def test_a_method_that_is_never_called_is_an_error(tmp_path: Path) -> None:
    class Mine(Callback):
        def on_evaluate(self, run: RunState, metrics: dict[str, float]) -> None:
            """Its name is not that of an event."""

    message = r"Mine has the method on_evaluate, which is never called \(did you mean 'on_evaluation'\?\)"
    given = [Recorder(), Mine()]
    with pytest.raises(ConfigError, match=message):
        albertkit.finetune("text-classification", train=[], output=tmp_path, callbacks=given)
    with pytest.raises(ConfigError, match=message):
        albertkit.pretrain(data=tmp_path, tokenizer="bundled", output=tmp_path, callbacks=given)


@pytest.mark.usefixtures("blank_pictures")
def test_callbacks_of_finetune_see_every_seed_and_the_settings(tmp_path: Path) -> None:
    rows = [{"text": text, "label": label} for text, label in [("A fine day.", "yes"), ("Rain.", "no")] * 4]
    seen: list[tuple[str, Any, Any, Any]] = []

    class Seen(Recorder):
        def on_start(self, run: RunState) -> None:
            seen.append((run.output.name, *(run.settings[name] for name in ("task", "batch_size", "seed"))))

    told = Seen("on_step", 1, lambda run: run.stop("seen"))
    result = albertkit.finetune(
        "text-classification", train=rows, validation=rows, output=tmp_path / "run", steps=3, seeds=2,
        precision="fp32", batch_size=4, max_length=16, device="cpu", callbacks=[told],
    )  # fmt: skip
    assert seen == [("seed-0", "text-classification", 4, 0), ("seed-1", "text-classification", 4, 1)]
    assert result.step == 1
    assert result.report
    # The last evaluation of each run has the metrics of its report.
    (_, last), name = told.events("on_evaluation")[-1], "eval/accuracy"
    assert json.loads((tmp_path / "run" / "seed-1" / "report.json").read_text())["metrics"]["accuracy"] in (
        last[name],
        told.events("on_evaluation")[-2][1][name],
    )


TWO = """
import sys
from pathlib import Path
sys.path.insert(0, {support!r})
import training_runs as t
from albertkit import Callback
from albertkit.training.distributed import join_world

class Ending(Callback):
    def on_step(self, run, metrics):
        with Path({output!r}, "called.txt").open("a") as file:
            file.write(f"{{run.step}} ")
        if run.step == 5:
            {ending}

with join_world("cpu") as world:
    try:
        result = t.run(Path({output!r}), t.settings(), world=world, callbacks=[Ending()])
        ended = f"{{result.finished}} at {{result.step}}"
    except Exception as error:
        ended = f"{{type(error).__name__}}: {{error}}"
    Path({output!r}, f"ended-{{world.rank}}.txt").write_text(ended)
"""


@pytest.mark.parametrize(
    ("ending", "main", "other"),
    [
        ("run.stop('enough')", "True at 5", "True at 5"),
        (
            "raise KeyError('gone')",
            "KeyError: 'gone'",
            "TrainingError: a callback failed in the main process. See the error in its log.",
        ),
    ],
)
def test_callbacks_of_the_main_process_end_both(
    ending: str, main: str, other: str, tmp_path: Path, warm_shell: dict[str, str]
) -> None:
    (tmp_path / "run.py").write_text(
        TWO.format(support=str(SUPPORT), output=str(tmp_path / "run"), ending=ending)
    )
    in_two_processes(["python", tmp_path / "run.py"], warm_shell)
    assert (tmp_path / "run" / "called.txt").read_text().split() == ["1", "2", "3", "4", "5"]
    assert [(tmp_path / "run" / f"ended-{rank}.txt").read_text() for rank in (0, 1)] == [main, other]
    assert checkpoints(tmp_path / "run")[-1].name == "step-0000005"
