"""Resumed runs give the same weights and reports, and reject changed settings and data."""

import json
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from finetuning_runs import FAST, same, texts, tune, weights
from json_lines import write_json_lines

from albertkit.errors import TrainingError
from albertkit.files import write_json
from albertkit.tasks.registry import TASKS
from albertkit.training.callbacks import Callback
from albertkit.training.checkpoints import checkpoints
from albertkit.training.state import RunState

pytestmark = pytest.mark.usefixtures("blank_pictures")


def test_goes_on_exactly(model: Path, data: Path, tmp_path: Path) -> None:
    settings = replace(FAST, dropout=0.1, epochs=2, evaluate_every=8)
    tune("text-classification", settings, model, data, tmp_path / "whole")
    stopped = tune(
        "text-classification", replace(settings, max_minutes=1e-9), model, data, tmp_path / "parts"
    )
    assert stopped.report is None
    assert stopped.step == 1
    with pytest.raises(TrainingError, match="batch_size"):
        tune("text-classification", replace(settings, batch_size=4), model, data, tmp_path / "parts")
    other = tmp_path / "other"
    other.mkdir()
    write_json_lines(other / "train.jsonl", texts(64, 9))
    write_json_lines(other / "validation.jsonl", texts(20, 1))
    with pytest.raises(TrainingError, match="training_data"):
        tune("text-classification", settings, model, other, tmp_path / "parts")
    for _ in range(2):
        tune("text-classification", replace(settings, max_minutes=1e-9), model, data, tmp_path / "parts")
    result = tune("text-classification", settings, model, data, tmp_path / "parts")
    assert result.step == 16
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "parts"))


@pytest.mark.parametrize(("scores", "beats"), [([0.5, 0.5, 0.4], False), ([0.5, 0.6, 0.4], True)])
def test_a_resumed_run_is_compared_with_the_untrained_model(
    model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scores: list[float], beats: bool
) -> None:
    values = iter(scores)
    monkeypatch.setattr(TASKS["text-classification"], "scores", lambda *_: {"accuracy": next(values, 0.5)})
    settings = replace(FAST, steps=2, evaluate_every=1)
    stopped = tune("text-classification", replace(settings, max_minutes=1e-9), model, data, tmp_path)
    assert stopped.step == 1
    result = tune("text-classification", settings, model, data, tmp_path)
    assert result.report is not None
    assert (result.report["step"], result.report["beats_untrained"]) == (1, beats)


def test_without_any_value_the_last_model_is_kept(
    classifier: Path, model: Path, data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """All evaluations were NaN, so none is the best."""
    caplog.set_level("INFO")
    shutil.copytree(classifier, tmp_path / "run")
    file = checkpoints(tmp_path / "run")[-1] / "training_state.json"
    document = json.loads(file.read_text())
    write_json(file, document | {"best": None, "best_step": 0, "best_loss": None, "best_metrics": {}})
    result = tune("text-classification", FAST, model, data, tmp_path / "run")
    assert result.report is not None
    assert (result.report["step"], result.report["beats_untrained"]) == (result.step, False)
    assert f"The model of step {result.step} is kept." in caplog.text


def test_a_finished_run_keeps_the_best_and_the_last_weights(model: Path, data: Path, tmp_path: Path) -> None:
    settings = replace(FAST, evaluate_every=2, early_stopping=1, learning_rate=1e-12)
    stopped = tune("text-classification", replace(settings, max_minutes=1e-9), model, data, tmp_path)
    (checkpoint,) = checkpoints(tmp_path)
    assert stopped.report is None
    assert (checkpoint / "training_state.safetensors").is_file()
    result = tune("text-classification", settings, model, data, tmp_path)
    weights = sorted(str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.safetensors"))
    assert weights == [f"checkpoints/step-{result.step:07}/model.safetensors", "model.safetensors"]
    size = (tmp_path / "model.safetensors").stat().st_size
    assert sum(file.stat().st_size for file in tmp_path.rglob("*.safetensors")) == 2 * size
    # The same call evaluates the model again. Another one cannot extend the run.
    assert tune("text-classification", settings, model, data, tmp_path).report == result.report
    with pytest.raises(TrainingError, match=r"the run cannot be extended. Start a new run from this model"):
        tune("text-classification", replace(settings, early_stopping=0), model, data, tmp_path)


class SignalAtTheEnd(Callback):
    """Sends SIGTERM in the last step of a run."""

    def on_step(self, run: RunState, metrics: dict[str, float]) -> None:
        if run.step == run.settings["steps"]:
            signal.raise_signal(signal.SIGTERM)


def test_a_signal_in_the_last_step_of_a_seed_starts_no_further_seed(
    model: Path, data: Path, tmp_path: Path
) -> None:
    settings = replace(FAST, steps=2)
    callbacks = [SignalAtTheEnd()]
    stopped = tune("text-classification", settings, model, data, tmp_path, seeds=2, callbacks=callbacks)
    assert (stopped.signal, stopped.report, stopped.loop.finished) == (signal.SIGTERM, None, False)
    assert not (tmp_path / "seed-1").exists()
    result = tune("text-classification", settings, model, data, tmp_path, seeds=2)
    assert result.report is not None
    assert len(result.report["seeds"]["accuracy"]["values"]) == 2


def test_a_run_cannot_be_resumed_with_other_validation_data(model: Path, data: Path, tmp_path: Path) -> None:
    """The best value was measured on the earlier validation data."""
    settings = replace(FAST, steps=2, evaluate_every=1)
    tune("text-classification", replace(settings, max_minutes=1e-9), model, data, tmp_path / "run")
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(data / "train.jsonl", other)
    write_json_lines(other / "validation.jsonl", texts(20, 5))
    with pytest.raises(TrainingError, match="validation_data"):
        tune("text-classification", settings, model, other, tmp_path / "run")
    shutil.copy(data / "validation.jsonl", other)  # the same data elsewhere
    assert tune("text-classification", settings, model, other, tmp_path / "run").report


def test_a_run_cannot_be_resumed_with_renamed_labels(model: Path, data: Path, tmp_path: Path) -> None:
    """The ids of the labels are the same, but the saved models have the former names."""
    settings = replace(FAST, steps=2, evaluate_every=1)
    tune("text-classification", settings, model, data, tmp_path / "run")
    other = tmp_path / "other"
    other.mkdir()
    names = {"bad": "no", "good": "yes"}
    for file, rows in (("train.jsonl", texts(64, 0)), ("validation.jsonl", texts(20, 1))):
        write_json_lines(other / file, [row | {"label": names[row["label"]]} for row in rows])
    report = tmp_path / "run" / "report.json"
    before = report.read_text()
    with pytest.raises(TrainingError, match=r"labels\[0\]: saved \['bad'\], now \['no'\]"):
        tune("text-classification", settings, model, other, tmp_path / "run")
    assert report.read_text() == before
