"""A run keeps the best model by its metric, and early stopping ends a run that does not improve."""

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from quick_runs import quick_runs  # noqa: F401  # a fixture
from safetensors.torch import load_file
from training_runs import BadOnce, batches, objective, run, settings, tiny_model

from albertkit.errors import ConfigError, TrainingError
from albertkit.training.checkpoints import checkpoint_folder
from albertkit.training.loop import Training
from albertkit.training.state import LossWatch, RunState


def run_with(
    output: Path,
    values: Iterator[float],
    objective: Any = objective,
    *,
    metric: str = "accuracy",
    keep_untrained: bool = True,
    **changes: Any,
) -> Any:
    """Train with these values of the metric that selects the model."""
    model = tiny_model()
    return Training(
        model,
        objective,
        batches,
        settings(**{"evaluate_every": 2} | changes),
        output,
        save_model=model.save_pretrained,
        evaluate=lambda: {metric: next(values), "recall": math.nan},
        best_metric=metric,
        lower_is_better=metric == "mean_squared_error",
        keep_untrained=keep_untrained,
    ).run()


@pytest.mark.parametrize(
    ("scores", "early_stopping", "expected"),
    [
        # The checkpoint of step 4 does not know the evaluation of step 6, whose model is in best/.
        ([0.1, 0.2, 0.3, 0.9, 0.4, 0.35, 0.35, 0.35], 0, {"best": 0.9, "best_step": 6}),
        # The checkpoint of step 4 has one evaluation without improvement; step 6 is the best and is repeated.
        (
            [0.1, 0.5, 0.4, 0.9, 0.35, 0.3],
            2,
            {"finished": True, "step": 8, "stale_evaluations": 2, "best": 0.9, "best_step": 6},
        ),
        # Steps 4, 6 and 8 do not improve on step 2; step 6 is evaluated again after the rollback to step 4.
        ([0.1, 0.5, 0.4, 0.3, 0.3, 0.2], 3, {"finished": True, "step": 8, "stale_evaluations": 3}),
    ],
)
def test_the_best_model_and_early_stopping_after_a_rollback(
    tmp_path: Path, scores: list[float], early_stopping: int, expected: dict[str, Any]
) -> None:
    values = iter(scores)
    result = run_with(tmp_path, values, BadOnce(7, math.nan), early_stopping=early_stopping)
    assert {name: getattr(result, name) for name in expected} == expected
    assert result.best_metrics["accuracy"] == max(scores)
    assert result.metrics["accuracy"] == scores[-1]
    assert list(values) == []


def test_a_finished_run_keeps_its_metrics(tmp_path: Path) -> None:
    """A metric without a value is NaN before and after, but null in the file."""
    result = run_with(tmp_path, iter([0.1, 0.5, 0.4, 0.2, 0.2, 0.2, 0.2]))
    (tmp_path / "metrics.jsonl").unlink()
    again = run_with(tmp_path, iter([]))
    for found in (result, again):
        assert found.metrics == {"accuracy": 0.2, "recall": pytest.approx(math.nan, nan_ok=True)}
        assert found.best_metrics == {"accuracy": 0.5, "recall": pytest.approx(math.nan, nan_ok=True)}
    file = checkpoint_folder(tmp_path, 12) / "training_state.json"
    assert json.loads(file.read_text())["metrics"] == {"accuracy": 0.2, "recall": None}


def test_an_early_end_needs_a_metric_that_selects_the_model(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="early_stopping needs validation data"):
        run(tmp_path / "run", settings(early_stopping=2))
    assert not (tmp_path / "run").exists()


def test_the_best_model_is_kept_and_a_run_that_gets_no_better_ends(tmp_path: Path) -> None:
    def trained(output: Path, scores: list[float], **changes: Any) -> Any:
        return run_with(output, iter(scores), save_every=2, keep_checkpoints=99, **changes)

    scores = [0.1, 0.5, 0.7, 0.6, 0.65, 0.69]
    result = trained(tmp_path / "stopped", scores, early_stopping=3)
    assert (result.finished, result.step) == (True, 10)
    assert (result.best, result.best_step) == (0.7, 4)
    final, best, fourth = (
        load_file(tmp_path / "stopped" / folder / "model.safetensors")
        for folder in (".", "best", "checkpoints/step-0000004")
    )
    assert all(torch.equal(final[key], fourth[key]) and torch.equal(best[key], fourth[key]) for key in fourth)
    again = trained(tmp_path / "stopped", [], early_stopping=3)  # nothing is left to do
    assert (again.finished, again.step) == (True, 10)
    # Stopped by the clock after the first step, it remembers what was best.
    trained(tmp_path / "resumed", [0.9], early_stopping=3, max_minutes=1e-9)
    resumed = trained(tmp_path / "resumed", scores, early_stopping=3)
    assert (resumed.step, resumed.best, resumed.best_step) == (6, 0.9, 0)


def test_the_last_model_does_not_replace_a_missing_best_one(tmp_path: Path) -> None:
    run_with(tmp_path / "finished", iter([0.1, 0.5, 0.4, 0.3, 0.3, 0.2, 0.2]))
    best = load_file(tmp_path / "finished/model.safetensors")
    shutil.rmtree(tmp_path / "finished/best")
    assert run_with(tmp_path / "finished", iter([])).finished
    final = load_file(tmp_path / "finished/model.safetensors")
    assert all(torch.equal(final[name], best[name]) for name in best)
    run_with(tmp_path / "stopped", iter([0.9]), max_minutes=1e-9)
    shutil.rmtree(tmp_path / "stopped/best")
    with pytest.raises(TrainingError, match="the best model, is missing"):
        run_with(tmp_path / "stopped", iter([0.5, 0.4, 0.3, 0.3, 0.2, 0.2]))


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
    result = run_with(tmp_path, iter(scores), metric=metric, steps=4, evaluate_every=1, log_every=1)
    assert (result.best, result.best_step) == (best, scores.index(best))
    lines = (tmp_path / "metrics.jsonl").read_text()
    assert "NaN" not in lines
    assert '"eval/' + metric + '": null' in lines


@pytest.mark.parametrize(
    ("losses", "best_step"),
    [([3.0, 1.0, 2.0], 2), ([1.0, 2.0, 3.0], 1), ([3.0, 2.0, 1.0], 3)],
)
def test_of_equal_values_the_lowest_loss_wins_but_never_the_untrained_model(
    losses: list[float], best_step: int
) -> None:
    state = RunState(output=Path())
    state.is_best(0.7, lower=False)
    for step, loss in enumerate(losses, start=1):
        state.step, state.watch = step, LossWatch(seen=1, mean=loss)
        state.is_best(0.7, lower=False)
    assert (state.best, state.best_step, state.stale_evaluations) == (0.7, best_step, 3)


def test_early_stopping_waits_for_a_first_value_above_0(tmp_path: Path) -> None:
    """F1 is 0 until a model predicts its first rare label."""
    values = iter([0.1, 0.0, 0.0, 0.0, 0.2, 0.2, 0.1, 0.3])
    result = run_with(tmp_path, values, steps=20, early_stopping=2, keep_untrained=False)
    assert (result.finished, result.step, result.best) == (True, 12, 0.2)
