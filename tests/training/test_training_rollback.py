"""A run with a bad loss rolls back to its last checkpoint, and a run that cannot recover stops."""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from quick_runs import quick_runs  # noqa: F401  # a fixture
from safetensors.torch import load_file
from training_runs import BadOnce, Rows, batches, objective, run, settings, tiny_model

from albertkit.errors import TrainingError
from albertkit.training.loop import Training
from albertkit.training.progress import read_metrics
from albertkit.training.state import RunState


@pytest.mark.parametrize("optimizer", ["lamb", "muon"])
def test_a_bad_loss_rolls_back_and_its_data_is_skipped(tmp_path: Path, optimizer: str) -> None:
    changed = settings(optimizer=optimizer)
    result = run(tmp_path / "bad", changed, objective=BadOnce(7, math.nan))
    assert result.finished
    # Batches 5 to 7 are gone (the last checkpoint was that of step 4), so step 12 takes batch 15.
    assert result.position == {"step": 15}
    (event,) = [line for line in read_metrics(tmp_path / "bad") if "rolled_back_from" in line]
    assert (event["step"], event["rolled_back_from"], event["bad_loss"]) == (4, 7, "nan")
    logged = [line["step"] for line in read_metrics(tmp_path / "bad") if "train/loss" in line]
    assert logged == [2, 4, 6, 8, 10, 12]

    def without(position: dict[str, int] | None) -> Iterator[tuple[Rows, dict[str, int]]]:
        for batch, after in batches(position):
            if after["step"] not in (5, 6, 7):
                yield batch, after

    model = tiny_model()
    Training(model, objective, without, changed, tmp_path / "plain", save_model=model.save_pretrained).run()
    bad, plain = (load_file(tmp_path / name / "model.safetensors") for name in ("bad", "plain"))
    assert all(torch.equal(bad[key], plain[key]) for key in plain)


def test_a_loss_spike_rolls_back(tmp_path: Path) -> None:
    result = run(tmp_path, settings(steps=120, save_every=50), objective=BadOnce(110, 100.0))
    (event,) = [line for line in read_metrics(tmp_path) if "rolled_back_from" in line]
    assert (event["step"], event["rolled_back_from"]) == (100, 110)
    assert result.position == {"step": 130}
    assert result.metrics["loss"] < 4


def test_a_rollback_returns_to_the_metrics_of_its_checkpoint() -> None:
    saved = RunState(output=Path(), step=4, metrics={"accuracy": 0.4}, best_metrics={"accuracy": 0.5})
    state = RunState(output=Path(), step=6, metrics={"accuracy": 0.9}, best_metrics={"accuracy": 0.9})
    state.stop("enough")
    state.roll_back_to(saved, {"step": 7})
    assert state.stopped == "enough"
    assert (state.metrics, state.best_metrics) == ({"accuracy": 0.4}, {"accuracy": 0.9})


def test_losses_that_stay_bad_stop_the_run(tmp_path: Path) -> None:
    expected = (
        r"step 1 is out of range \(loss nan.* after 3 rollbacks to .*step-0000000.* "
        "check the data and the objective"
    )
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
        Training(
            model,
            objective,
            batches,
            settings(evaluate_every=2, save_every=1),
            tmp_path,
            save_model=model.save_pretrained,
            evaluate=evaluate,
        ).run()

    if is_resumed:
        with pytest.raises(KeyboardInterrupt):
            trained()
    with pytest.raises(TrainingError, match=r"no longer depend on the input: .* 1e-05 at step 8"):
        trained()


def test_tensorboard_drops_the_steps_that_a_rollback_repeats(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run(tmp_path, settings(log_every=1), objective=BadOnce(7, math.nan))
    board = EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    shown = [(event.step, event.value) for event in board.Scalars("train/loss")]
    lines = [(line["step"], line["train/loss"]) for line in read_metrics(tmp_path) if "train/loss" in line]
    assert [step for step, _ in shown] == list(range(1, 13))
    assert dict(shown) == pytest.approx(dict(lines), abs=1e-5)
