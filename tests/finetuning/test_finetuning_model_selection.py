"""Fine-tuning keeps the best checkpoint and seed, and reports if none beats the untrained model."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bound_tasks import unread
from finetuning_runs import FAST, same, texts, tune, weights
from json_lines import write_json_lines

from albertkit.datasets.examples import QuestionExample
from albertkit.errors import ConfigError, TrainingError
from albertkit.finetuning.finetune import best_run, finetune
from albertkit.metrics import (
    choice_scores,
    class_scores,
    multi_label_scores,
    number_scores,
    retrieval_scores,
    span_scores,
)
from albertkit.tasks.question_answering import Answer, Answered
from albertkit.tasks.registry import TASKS
from albertkit.training.progress import read_metrics

pytestmark = pytest.mark.usefixtures("blank_pictures")


def test_stops_early_with_the_best(
    model: Path, data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    settings = replace(FAST, epochs=50, early_stopping=2)
    result = tune("text-classification", settings, model, data, tmp_path)
    state = result.loop
    assert state.step < 50 * 8
    scores = [line["eval/accuracy"] for line in read_metrics(tmp_path) if line.get("eval/accuracy")]
    assert scores.index(1.0) == len(scores) - 3  # equal scores do not extend the run
    lines = [line for line in caplog.messages if line.startswith("stopped early")]
    assert lines == [f"stopped early at step {state.step}: accuracy did not improve in 2 evaluations"]
    assert result.report is not None
    assert result.report["metrics"]["accuracy"] == state.best == 1.0


def test_several_seeds_have_a_deviation(
    model: Path, data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    result = tune("text-classification", replace(FAST, epochs=3), model, data, tmp_path, seeds=2)
    reports = [json.loads((tmp_path / f"seed-{seed}" / "report.json").read_text()) for seed in (0, 1)]
    values = [report["metrics"]["accuracy"] for report in reports]
    assert result.report is not None
    found = result.report["seeds"]["accuracy"]
    assert found["values"] == values
    lines = caplog.messages
    assert [line for line in lines if line.startswith("run ")] == [
        f"run {number + 1} of 2, in {tmp_path}/seed-{number}" for number in (0, 1)
    ]
    best = int(values[1] > values[0])
    assert lines[-1] == f"best run: seed-{best}"
    assert found["mean"] == pytest.approx(np.mean(values))
    assert found["deviation"] == pytest.approx(np.std(values, ddof=1))
    assert same(weights(tmp_path), weights(tmp_path / f"seed-{int(np.argmax(values))}"))
    assert json.loads((tmp_path / "report.json").read_text()) == result.report
    # The same command finds its runs; one run does not go where several are.
    again = tune("text-classification", replace(FAST, epochs=3), model, data, tmp_path, seeds=2)
    assert again.report == result.report
    with pytest.raises(TrainingError, match=r"holds .*report\.json.*: a new run would overwrite it"):
        tune("text-classification", FAST, model, data, tmp_path)


def test_several_seeds_do_not_overwrite_a_model(model: Path, data: Path, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path / "model")
    before = weights(tmp_path / "model")
    with pytest.raises(TrainingError, match=r"holds .*model\.safetensors.*: a new run would overwrite it"):
        tune("text-classification", FAST, model, data, tmp_path / "model", seeds=2)
    assert same(weights(tmp_path / "model"), before)
    assert not (tmp_path / "model" / "seed-0").exists()


@pytest.mark.parametrize(("metric", "best"), [("mean_squared_error", 1), ("pearson", 0), ("accuracy", 0)])
def test_the_best_seed_is_that_of_the_lowest_error(metric: str, best: int) -> None:
    lower = TASKS["text-classification"]().directions[metric] == "lower"
    assert best_run([0.5, 0.3, 0.3, math.nan], lower=lower) == best


def test_a_model_is_not_chosen_by_a_count(model: Path, data: Path, tmp_path: Path) -> None:
    rows = [
        {"question": "what?", "context": "the river", "answers": {"text": ["river"], "answer_start": [4]}}
    ] * 8
    for split in ("train", "validation"):
        write_json_lines(tmp_path / f"{split}.jsonl", rows)
    with pytest.raises(ConfigError, match=r"best_metric is 'total'. Expected one of exact, f1, best_exact"):
        tune("question-answering", replace(FAST, best_metric="total"), model, tmp_path, tmp_path / "run")
    # Questions that all have an answer have no such metric.
    with pytest.raises(ConfigError, match=r"best_metric is 'best_f1'. Expected one of exact, f1\.$"):
        tune("question-answering", replace(FAST, best_metric="best_f1"), model, tmp_path, tmp_path / "run")


def test_an_unknown_metric_is_an_error_before_any_file_is_read(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(ConfigError, match=r"best_metric is 'acuracy' \(did you mean 'accuracy'\?\)"):
        tune("text-classification", replace(FAST, best_metric="acuracy"), missing, missing, missing)


def test_every_metric_can_choose_the_model() -> None:
    kinds = {
        "text-classification": [
            *(
                class_scores(["a", "b"], ["a", "b"], labels=labels)
                for labels in (["a", "b"], ["a", "b", "c"])
            ),
            multi_label_scores([("a",)], [("a",)], labels=["a", "b"]) | {"cross_entropy": 0.1},
            number_scores([1.0, 2.0], [1.0, 2.0]),
        ],
        "token-classification": [
            span_scores([["B-A"]], [["B-A"]]),
            class_scores(["a", "b", "c"], ["a", "b", "c"], labels=["a", "b", "c"]),
        ],
        "multiple-choice": [choice_scores([0, 0], [0, 0], ids=["middle1", "high1"])],
        "sentence-embedding": [retrieval_scores([1]), dict.fromkeys(("spearman", "pearson"), 1.0)],
    }
    for task, scores in kinds.items():
        assert {name for one in scores for name in one} == set(TASKS[task].metrics)
    questions = [
        QuestionExample(question="what?", context="the river", answers=(("river", 4),), id="a"),
        QuestionExample(question="what?", context="the river", is_impossible=True, id="b"),
    ]
    answered = [Answered([Answer("river", 4, 9, 0.5, 1.0)], Answer("", 0, 0, 0.5, 0.0))] * 2
    scores = unread("question-answering").scores(questions, answered)
    beside = {"total", "has_answer_total", "no_answer_total", "best_exact_threshold", "best_f1_threshold"}
    assert set(scores) - beside == set(TASKS["question-answering"].metrics)


@pytest.mark.parametrize(
    ("scores", "step", "beats"),
    [
        ([0.5, 0.4, 0.5], 2, False),
        ([1 / 3, 0.2, 1 / 3], 2, False),  # metrics.jsonl has 0.333333
        ([0.5, 0.4, 0.3], 1, False),
        ([0.5, 0.6, 0.5], 1, True),
    ],
)
def test_a_run_without_improvement_is_reported(
    model: Path,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    scores: list[float],
    step: int,
    beats: bool,
) -> None:
    values = iter(scores)
    monkeypatch.setattr(TASKS["text-classification"], "scores", lambda *_: {"accuracy": next(values, 0.5)})
    caplog.set_level("INFO")
    settings = replace(FAST, steps=2, evaluate_every=1)
    result = tune("text-classification", settings, model, data, tmp_path / "run")
    assert result.report is not None
    assert (result.report["step"], result.report["beats_untrained"]) == (step, beats)
    warning = f"no checkpoint beats the untrained model. The model of step {step} is kept."
    assert (warning in caplog.text) is not beats


def tagged(count: int, seed: int) -> list[dict[str, Any]]:
    """Return sentences in which one word in fifty is an entity."""
    rows = [{"tokens": row["text"].split()} for row in texts(count, seed)]
    for number, row in enumerate(rows):
        row["tags"] = ["O"] * len(row["tokens"])
        if number % 10 == 0:
            row["tags"][0] = "B-X"
    return rows


def test_an_untrained_tagger_is_not_kept_for_its_random_entities(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its F1 is above 0 by chance, and that of a model that begins to learn rare entities is 0."""
    run = finetune(
        "token-classification",
        recipe=replace(FAST, steps=40, evaluate_every=20),
        model=model,
        train=tagged(60, 0),
        validation=tagged(40, 1),
        output=tmp_path,
        text_column="tokens",
        label_column="tags",
        device="cpu",
    )
    scores = [line["eval/f1"] for line in read_metrics(tmp_path) if "eval/f1" in line]
    assert scores[0] > 0
    assert scores[1:] == [0, 0]
    assert run.report is not None
    assert run.report["step"] == 40  # of two equal F1, the lower loss
    assert run.metrics["accuracy"] > 0.95
    assert len([one for one in caplog.records if one.levelname == "WARNING"]) == 1
