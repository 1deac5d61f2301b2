"""Tests of the model that a pretraining run keeps: the mean of checkpoints, and early stopping."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pretraining_runs import SETTINGS, run
from quick_runs import quick_runs  # noqa: F401  # a fixture
from safetensors.torch import load_file

from albertkit.errors import ConfigError
from albertkit.modeling.heads import AlbertForPreTraining
from albertkit.pretraining.batches import fixed_batches
from albertkit.pretraining.loss import PretrainingObjective
from albertkit.pretraining.masking import WordTable
from albertkit.pretraining.shards import ShardSet
from albertkit.training.loop import StepOutput
from albertkit.training.progress import read_metrics


def test_the_model_is_the_mean_of_the_last_checkpoints(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    output = tmp_path / "run"
    training = replace(SETTINGS.training, optimizer="adamw", learning_rate=1e-2)
    alone = replace(SETTINGS, training=training)
    settings = replace(alone, average_checkpoints=2)
    with caplog.at_level("INFO"):
        result = run(data, output, settings)
    kept = [load_file(output / "checkpoints" / f"step-{step:07}" / "model.safetensors") for step in (6, 9)]
    mean = load_file(output / "model.safetensors")
    assert mean.keys() == kept[0].keys()
    for name, tensor in mean.items():
        torch.testing.assert_close(tensor, (kept[0][name] + kept[1][name]) / 2)
    # The metrics are those of the mean. A resumed run continues from its checkpoints.
    batches = fixed_batches(
        ShardSet(data / "shards/validation"),
        WordTable(data / "tokenizer/spiece.model"),
        SETTINGS.examples,
        8,
        limit=32,
    )
    model = AlbertForPreTraining.from_pretrained(output).eval()
    with torch.no_grad():
        expected = PretrainingObjective(SETTINGS).evaluate(model, batches)
    assert result.metrics == pytest.approx(expected, rel=1e-5)
    last = read_metrics(output)[-1]["eval/masked_loss"]
    assert abs(result.metrics["masked_loss"] - last) > 1e-3
    assert f"checkpoints at steps 6, 9: masked_loss {expected['masked_loss']:.4g}  " in caplog.text
    again = run(data, output, settings)
    assert again.metrics == pytest.approx(expected, rel=1e-5)
    one = run(data, output, alone)  # from the same checkpoints, without a mean
    assert one.metrics["masked_loss"] == pytest.approx(last, rel=1e-6)


def test_the_mean_excludes_the_untrained_model(data: Path, tmp_path: Path) -> None:
    training = replace(SETTINGS.training, steps=4, optimizer="adamw", learning_rate=1e-2)
    run(data, tmp_path, replace(SETTINGS, average_checkpoints=3, training=training))
    kept = [load_file(tmp_path / "checkpoints" / f"step-{step:07}" / "model.safetensors") for step in (3, 4)]
    for name, tensor in load_file(tmp_path / "model.safetensors").items():
        torch.testing.assert_close(tensor, (kept[0][name] + kept[1][name]) / 2)


def test_the_mean_is_evaluated_in_the_precision_of_the_run(data: Path, tmp_path: Path) -> None:
    training = replace(SETTINGS.training, steps=2, precision="bf16")
    run(data, tmp_path, replace(SETTINGS, training=training))
    last = read_metrics(tmp_path)[-1]
    alone = run(data, tmp_path, replace(SETTINGS, average_checkpoints=2, training=training))
    assert alone.metrics == {name: pytest.approx(last[f"eval/{name}"], abs=1e-6) for name in alone.metrics}


def test_the_mean_needs_checkpoints_that_are_kept() -> None:
    with pytest.raises(ConfigError, match="average_checkpoints must be at most keep_checkpoints"):
        replace(SETTINGS, average_checkpoints=4)
    training = replace(SETTINGS.training, early_stopping=1)
    with pytest.raises(ConfigError, match="average_checkpoints and early_stopping cannot be combined"):
        replace(SETTINGS, average_checkpoints=2, training=training)
    with pytest.raises(ConfigError, match="average_checkpoints must be 1 or more, not 0"):
        replace(SETTINGS, average_checkpoints=0)


def test_early_stopping_keeps_the_model_with_the_lowest_loss(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = iter([5.0, 4.0, 3.0, 3.5, 3.6])
    monkeypatch.setattr(
        PretrainingObjective, "evaluate", lambda *_: {"masked_loss": next(losses), "order_loss": 1.0}
    )
    training = replace(SETTINGS.training, steps=20, evaluate_every=2, save_every=2, keep_checkpoints=9)
    settings = replace(SETTINGS, training=replace(training, early_stopping=2))
    result = run(data, tmp_path, settings)
    assert (result.finished, result.step, result.best_step) == (True, 8, 4)
    assert result.metrics == {"masked_loss": 3.0, "order_loss": 1.0}
    assert run(data, tmp_path, settings).metrics == result.metrics  # the run is finished
    final, best = (
        load_file(tmp_path / name / "model.safetensors") for name in ("", "checkpoints/step-0000004")
    )
    assert all(torch.equal(final[name], best[name]) for name in best)


@pytest.mark.parametrize(
    ("losses", "best_step", "expected"), [([3.0, 4.0, 5.0], 0, 3.0), ([np.nan] * 3, 0, np.nan)]
)
def test_the_metrics_of_a_run_without_improvement(
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    losses: list[float],
    best_step: int,
    expected: float,
) -> None:
    """If every loss is NaN, the run keeps the last model."""
    values = iter(losses)
    monkeypatch.setattr(
        PretrainingObjective, "evaluate", lambda *_: {"masked_loss": next(values), "order_loss": next(steps)}
    )
    steps = iter([0.0, 2.0, 4.0])
    training = replace(SETTINGS.training, steps=4, evaluate_every=2, early_stopping=3)
    result = run(data, tmp_path, replace(SETTINGS, training=training))
    assert result.best_step == best_step
    assert result.metrics == {
        "masked_loss": pytest.approx(expected, nan_ok=True),
        "order_loss": 4.0 if np.isnan(expected) else 0.0,
    }


def test_a_rollback_keeps_the_metrics_of_the_best_model(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses = iter([5.0, 4.0, 3.5, 3.0, 3.6, 3.7])
    monkeypatch.setattr(PretrainingObjective, "evaluate", lambda *_: {"masked_loss": next(losses)})
    # The first call only counts operations.
    calls, call = iter(range(99)), PretrainingObjective.__call__

    def bad_at_step_7(*arguments: Any) -> StepOutput:
        output = call(*arguments)
        return replace(output, loss=output.loss * np.nan) if next(calls) == 7 else output

    monkeypatch.setattr(PretrainingObjective, "__call__", bad_at_step_7)
    training = replace(SETTINGS.training, evaluate_every=2, save_every=4, early_stopping=2)
    result = run(data, tmp_path, replace(SETTINGS, training=training))
    assert (result.finished, result.step, result.best_step) == (True, 8, 6)
    assert result.metrics == {"masked_loss": 3.0}
