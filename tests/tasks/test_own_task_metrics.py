"""Tests of your own metrics: which model they select, their values, and errors about them."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_task import FAST, ROWS, Small, changed, scores_of, train

from albertkit.errors import DataError, TrainingError
from albertkit.finetuning.evaluate import evaluate
from albertkit.finetuning.finetune import FinetuningRun, finetune
from albertkit.tasks.labels import NUMBER, LabelSet
from albertkit.tasks.task import Metric

pytestmark = pytest.mark.usefixtures("blank_pictures")


def test_your_metric_selects_the_best_model(model: Path, tmp_path: Path) -> None:
    values = iter([0.5, 0.7, 0.3, 0.6, 0.6])

    def error(true: list[str], predicted: list[str]) -> float:
        assert len(true) == len(predicted)
        return next(values)

    for lower, best in ((True, 2), (False, 1)):
        values = iter([0.5, 0.7, 0.3, 0.6] + [0.5] * 20)
        run = finetune(
            "text-classification", train=ROWS, validation=ROWS, model=model, output=tmp_path / str(lower),
            metrics=Metric(error, lower_is_better=lower), steps=3, evaluate_every=1, **FAST,
        )  # fmt: skip
        assert run.loop.best_step == best


def cost(true: list[str], predicted: list[str]) -> float:
    return float(sum(map(str.__ne__, true, predicted)))


def gain(true: list[str], predicted: list[str]) -> float:
    return -cost(true, predicted)


COST = Metric(cost, lower_is_better=True)


def costly(model: Path, output: Path, **changes: Any) -> FinetuningRun:
    settings = FAST | {"steps": 2, "evaluate_every": 1, "metrics": COST} | changes
    return finetune(
        "text-classification", train=ROWS, validation=ROWS, model=model, output=output, **settings
    )


@pytest.fixture(scope="module")
def costly_run(model: Path, tmp_path_factory: pytest.TempPathFactory) -> FinetuningRun:
    return costly(model, tmp_path_factory.mktemp("costly") / "run")


@pytest.mark.parametrize("stopped", [True, False])
def test_a_run_cannot_be_resumed_with_other_metrics(
    costly_run: FinetuningRun, model: Path, tmp_path: Path, stopped: bool
) -> None:
    folder = tmp_path / "run"
    if stopped:
        assert not costly(model, folder, max_minutes=1e-9).loop.finished
    else:
        shutil.copytree(costly_run.folder, folder)
    report = folder / "report.json"
    before = None if stopped else report.read_bytes()
    for metrics, message in (
        (None, "main_metric: saved 'cost', now 'accuracy'; own_metrics.cost: saved 'lower', now None"),
        (gain, "main_metric: saved 'cost', now 'gain'"),
        ([COST, gain], "own_metrics.gain: saved None, now 'higher'"),
        (cost, "own_metrics.cost: saved 'lower', now 'higher'"),
    ):
        with pytest.raises(TrainingError, match=f"cannot be resumed with these settings .*{message}"):
            costly(model, folder, metrics=metrics)
    assert stopped or report.read_bytes() == before
    assert costly(model, folder).loop.finished


def test_evaluate_names_the_metric_that_selected_the_model(
    costly_run: FinetuningRun, classifier: FinetuningRun, model: Path, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    caplog.set_level("INFO")
    folder = costly_run.folder
    assert evaluate(folder, data=ROWS, metrics=COST, device="cpu").main_metric == "cost"
    assert "does not measure" not in caplog.text
    assert evaluate(folder, data=ROWS, device="cpu").main_metric == "accuracy"
    note = "the model was selected by cost, but this evaluation does not measure cost"
    assert caplog.text.count(note) == 1
    assert evaluate(folder, data=ROWS, metrics=COST, main_metric="f1", device="cpu").main_metric == "f1"
    run = costly(model, tmp_path / "run", metrics=COST, best_metric="matthews")
    assert evaluate(run.folder, data=ROWS, device="cpu").main_metric == "matthews"
    assert evaluate(classifier.folder, data=ROWS, device="cpu").main_metric == "accuracy"
    assert caplog.text.count("does not measure") == 1


@pytest.mark.parametrize("value", [np.float32(0.5), np.mean([0.0, 1.0]), torch.tensor(0.5), 0.5])
def test_scores_may_be_numbers_of_any_library(value: Any) -> None:
    for scores in (
        scores_of(changed(scores=lambda *_: {"error": value})()),
        scores_of(Small().with_metrics(Metric(lambda *_: value, name="own"))),
    ):
        assert [*scores.values()][-1] == 0.5
        assert all(type(one) is float for one in scores.values())


def test_a_nan_score_ends_the_run_at_once(model: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the metric 'error' of small is nan"):
        train(changed(scores=lambda *_: {"error": float("nan")})(), model, tmp_path / "run")


def test_undefined_correlations_are_zero_and_errors_stay_nan(model: Path) -> None:
    nan = [float("nan")] * 3
    labels = LabelSet(NUMBER, ("LABEL_0",))
    assert labels.scores([1.0, 2.0, 3.0], [1.0, 1.0, 1.0])["pearson"] == 0
    found = labels.scores([1.0, 2.0, 3.0], nan)
    assert (found["pearson"], found["spearman"]) == (0, 0)
    assert np.isnan(found["mean_squared_error"])


def recall(true: list[str], predicted: list[str]) -> float:
    found = [answer == "good" for label, answer in zip(true, predicted, strict=True) if label == "good"]
    return sum(found) / len(found)


def recall_scores(_: Any, examples: Any, predictions: Any) -> dict[str, float]:
    return {"error": recall([one.label for one in examples], predictions)}


def test_a_metric_may_raise_for_a_part_of_the_data(small_run: FinetuningRun, tmp_path: Path) -> None:
    rows = [{"text": "the river " * (number + 1), "label": "bad"} for number in range(12)] + ROWS
    for task, options, name in (
        (Small(), {"metrics": recall}, "recall"),
        (changed(scores=recall_scores)(), {}, "error"),
        (Small(), {"metrics": Metric(recall, name="best_recall")}, "best_recall"),
    ):  # fmt: skip
        output = tmp_path / name
        found = evaluate(
            small_run.folder, data=rows, task=task, output=output, main_metric=name, device="cpu", **options
        )
        parts = [one["score"] for one in json.loads((output / "report.json").read_text())["by_length"]]
        assert None in parts
        assert any(one is not None for one in parts)
        assert 0 <= found.metrics[name] <= 1


def test_the_score_of_a_part_is_the_main_metric(small_run: FinetuningRun) -> None:
    metrics = [Metric(lambda *_: 0.25, name="recall"), Metric(lambda *_: 0.75, name="best_recall")]
    for name, value in (("recall", 0.25), ("best_recall", 0.75)):
        found = evaluate(
            small_run.folder, data=ROWS, task=Small(), metrics=metrics, main_metric=name, device="cpu"
        )
        assert found.score_of([0, 1]) == value
