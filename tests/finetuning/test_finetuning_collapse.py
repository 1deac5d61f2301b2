"""A collapsed run is reported, and the report has the metrics of a baseline."""

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from bound_tasks import unread
from finetuning_runs import FAST, texts, tune
from json_lines import write_json_lines

from albertkit.config import AlbertConfig
from albertkit.datasets.examples import ChoiceExample, QuestionExample, TextExample, WordsExample
from albertkit.engines.engine import Row
from albertkit.finetuning.finetune import collapse, prior_loss
from albertkit.finetuning.losses import balanced_weights
from albertkit.modeling.heads import AlbertForPreTraining
from albertkit.tasks.question_answering import QuestionAnswering
from albertkit.tasks.text_classification import Classified, TextClassification
from albertkit.tokenization.tokenizer import AlbertTokenizer

pytestmark = pytest.mark.usefixtures("blank_pictures")


def dull(model: Path, folder: Path) -> Path:
    """Save a model whose weights are almost 0, so that all texts have almost the same vector."""
    config = AlbertConfig.from_pretrained(model).replace(initializer_range=1e-4)
    AlbertForPreTraining(config).save_pretrained(folder)
    AlbertTokenizer.from_pretrained(model).save_pretrained(folder)
    return folder


def test_a_collapsed_run_warns_once_and_keeps_its_model(
    model: Path, data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It runs to its end, because a later step may learn, and is not repeated."""
    settings = replace(FAST, steps=60, evaluate_every=30, learning_rate=1e-12)
    result = tune("text-classification", settings, dull(model, tmp_path / "dull"), data, tmp_path / "run")
    assert (result.step, result.baseline["accuracy"]) == (60, 0.5)
    assert result.report is not None
    assert result.report["collapsed"].startswith("the best model predicts '")
    assert len([one for one in caplog.records if one.levelname == "WARNING"]) == 1


@pytest.mark.parametrize(("late", "collapsed"), [(0.6861, False), (0.6930, True)])
def test_only_the_last_losses_of_a_run_count(tmp_path: Path, late: float, collapsed: bool) -> None:
    """The first steps of a new head have high losses."""
    losses = [(20, 9.0), (40, 0.7), (60, 0.7), (80, late), (100, late)]
    write_json_lines(
        tmp_path / "metrics.jsonl", [{"step": step, "train/loss": loss} for step, loss in losses]
    )
    evaluation: Any = SimpleNamespace(
        task=SimpleNamespace(constant_answer=lambda *_: None), examples=[], predictions=[]
    )
    assert (collapse(evaluation, tmp_path, prior=0.6931) is not None) is collapsed


def test_the_prior_is_the_loss_without_inputs(model: Path) -> None:
    """Compare with gradient descent on the logits, also for weighted classes."""
    labels = [0] * 45 + [1] * 4 + [2]
    rows = [Row(input_ids=[1], token_type_ids=[0], example=n, labels=one) for n, one in enumerate(labels)]
    task = TextClassification().bind(AlbertTokenizer.from_pretrained(model), AlbertConfig(num_labels=3))
    for class_weights in (None, balanced_weights(Counter(labels), 3), torch.tensor([1.0, 3.0, 0.5])):
        logits = torch.zeros(3, requires_grad=True)
        optimizer = torch.optim.LBFGS([logits], max_iter=200, line_search_fn="strong_wolfe")

        def loss(optimizer: Any = optimizer, logits: Any = logits, given: Any = class_weights) -> Any:
            optimizer.zero_grad()
            total = torch.nn.functional.cross_entropy(
                logits.expand(50, 3), torch.tensor(labels), weight=given, reduction="sum"
            )
            (total / 50).backward()
            return total / 50

        optimizer.step(loss)
        prepared: Any = SimpleNamespace(task=task, rows=rows, class_weights=class_weights)
        assert prior_loss(prepared) == pytest.approx(float(loss().detach()), abs=1e-4)


def test_the_prior_of_questions_guesses_a_place(model: Path) -> None:
    task = QuestionAnswering().bind(
        AlbertTokenizer.from_pretrained(model), AlbertConfig.from_pretrained(model)
    )
    examples = [
        QuestionExample("1", "what?", "the key was lost", (("lost", 12),)),
        QuestionExample("2", "what?", "the river", (), True),
    ]
    rows = task.features(examples)
    known: Any = SimpleNamespace(task=task, rows=rows, class_weights=None)
    guess = -math.log(0.5) + math.log(len(rows[0].context)) / 2
    assert prior_loss(known) == pytest.approx(guess)


def test_baselines_do_not_look_at_the_input() -> None:
    def baseline(task: str, examples: list[Any], **config: Any) -> dict[str, float]:
        return unread(task, **config).baseline(examples)

    classes = [TextExample("t", None, label) for label in ("bad", "good", "bad", "fair", "bad")]
    assert baseline("text-classification", classes, num_labels=3) == {"accuracy": 0.6}
    numbers = [TextExample("t", None, number) for number in (0.5, 1.5)]
    assert baseline("text-classification", numbers, num_labels=1, problem_type="regression") == {}
    words = [WordsExample(("a", "b"), ("O", "B-X")), WordsExample(("c",), ("O",))]
    assert baseline("token-classification", words) == {"accuracy": pytest.approx(2 / 3)}
    asked = [ChoiceExample(str(n), "c", "q", ("x",) * n, 0) for n in (2, 4)]
    assert baseline("multiple-choice", asked) == {"accuracy": 0.375}
    questions = [QuestionExample(str(n), "q", "key", (("key", 0),), n == 0) for n in range(4)]
    assert baseline("question-answering", questions)["best_f1"] == 0.25
    assert baseline("question-answering", questions[1:]) == {}


@pytest.mark.parametrize(
    ("settings", "predicted", "answer"),
    [
        ({"num_labels": 1, "problem_type": "regression"}, (0.7, 0.7001), "0.7"),
        ({"num_labels": 1, "problem_type": "regression"}, (0.7, 0.9), None),
        ({"num_labels": 2}, ("LABEL_0", "LABEL_0"), "'LABEL_0'"),
        ({"num_labels": 2}, ("LABEL_0", "LABEL_1"), None),
    ],
)
def test_answers_that_hardly_differ_are_constant(
    settings: dict[str, Any], predicted: tuple[Any, Any], answer: str | None
) -> None:
    task = unread("text-classification", **settings)
    labels = ("LABEL_0", "LABEL_1") if settings["num_labels"] == 2 else (0.5, 1.5)
    examples = [TextExample("t", None, label) for label in labels]
    scores = [0.6, 0.4][: settings["num_labels"]]
    assert task.constant_answer(examples, [Classified(one, scores) for one in predicted]) == answer


@pytest.mark.parametrize(
    ("scores", "answer"),
    [
        ([[0.051, 0.02], [0.049, 0.02]], None),  # begins to learn a rare label
        ([[0.05, 0.0202], [0.05, 0.0198]], None),
        ([[0.05, 0.02], [0.05001, 0.02]], "the same probabilities"),
    ],
)
def test_rare_labels_are_constant_only_if_their_probabilities_are(
    scores: list[list[float]], answer: str | None
) -> None:
    """The model predicts no label for any example."""
    task = unread("text-classification", num_labels=2, problem_type="multi_label_classification")
    examples = [TextExample("t", None, label) for label in (("LABEL_0",), ())]
    assert task.constant_answer(examples, [Classified((), one) for one in scores]) == answer
    alike = [TextExample("t", None, ())] * 2
    assert task.constant_answer(alike, [Classified((), one) for one in scores]) is None


def test_rare_labels_are_no_collapse(model: Path, tmp_path: Path) -> None:
    """The model predicts no label for any example, but its probabilities depend on the text."""
    for name, seed, count in (("train", 0, 96), ("validation", 1, 48)):
        rows = texts(count, seed)
        for number, row in enumerate(rows):
            row["label"] = [row["label"]] if number % 12 < 2 else []
        write_json_lines(tmp_path / f"{name}.jsonl", rows)
    settings = replace(FAST, steps=60, evaluate_every=30, learning_rate=3e-4)
    report = tune("text-classification", settings, model, tmp_path, tmp_path / "run").report
    assert report is not None
    assert (report["collapsed"], report["step"]) == (None, 60)
    metrics, baseline = report["metrics"], report["baseline"]
    assert (metrics["f1_micro"], metrics["accuracy"]) == (0.0, pytest.approx(5 / 6))
    assert baseline["accuracy"] == pytest.approx(5 / 6)
    assert baseline["f1_micro"] == pytest.approx(2 * 8 / (2 * 48 + 8))  # both labels for every example
    share = 1 / 12
    entropy = -share * math.log(share) - (1 - share) * math.log(1 - share)
    assert baseline["cross_entropy"] == pytest.approx(entropy)
    assert metrics["cross_entropy"] < 0.6


def test_equal_probabilities_of_several_labels_are_a_collapse(model: Path, tmp_path: Path) -> None:
    for name, seed in (("train", 0), ("validation", 1)):
        rows = [row | {"label": [row["label"]]} for row in texts(32, seed)]
        write_json_lines(tmp_path / f"{name}.jsonl", rows)
    settings = replace(FAST, steps=30, evaluate_every=30, learning_rate=1e-12)
    start = dull(model, tmp_path / "dull")
    report = tune("text-classification", settings, start, tmp_path, tmp_path / "run").report
    assert report is not None
    assert report["collapsed"] == "the best model predicts the same probabilities for every example"
