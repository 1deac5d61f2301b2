"""A collapsed run restarts with a lower learning rate, and the report has the metrics of a baseline."""

import math
import os
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from bound_tasks import unread
from finetuning_runs import FAST, same, texts, tune, weights
from json_lines import write_json_lines

from albertkit.config import AlbertConfig
from albertkit.datasets.examples import ChoiceExample, QuestionExample, TextExample, WordsExample
from albertkit.engines.engine import Row
from albertkit.finetuning import run as run_module
from albertkit.finetuning.collapse import CollapseWatch, prior_loss
from albertkit.finetuning.objectives import balanced_weights
from albertkit.finetuning.settings import FinetuningSettings
from albertkit.modeling.pretraining_heads import AlbertForPreTraining
from albertkit.tasks.question_answering import QuestionAnswering
from albertkit.tasks.text_classification import Classified, TextClassification
from albertkit.tokenization.tokenizer import AlbertTokenizer
from albertkit.training.callbacks import Callback, RunProgress
from albertkit.training.run_state import LossWatch, RunState
from albertkit.training.state import checkpoints

pytestmark = pytest.mark.usefixtures("blank_pictures")


def test_collapse_is_restarted(
    model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first two learning rates ruin the model, and the third is low enough."""
    tried: list[tuple[float, int]] = []
    original = run_module._train

    def with_other_rates(prepared: Any, settings: FinetuningSettings, *rest: Any, **options: Any) -> Any:
        tried.append((settings.learning_rate or 0.0, settings.seed))
        rate = 3e-3 if len(tried) == 3 else 1e-12
        return original(prepared, replace(settings, learning_rate=rate), *rest, **options)

    monkeypatch.setattr(run_module, "_train", with_other_rates)
    result = tune("text-classification", FAST, model, data, tmp_path)
    assert tried == [(3e-3, 0), (1.5e-3, 1000), (7.5e-4, 2000)]
    assert result.restarts == 2
    assert result.report is not None
    assert result.report["collapsed"] is None
    assert result.report["metrics"]["accuracy"] == 1.0
    assert same(weights(tmp_path), weights(tmp_path / "restart-2"))


class TermAfter20Steps(Callback):
    """Ends the process's training by a signal."""

    def on_step(self, run: RunProgress, metrics: dict[str, float]) -> None:
        if run.step == 20:
            os.kill(os.getpid(), signal.SIGTERM)


def test_a_hopeless_run_ends_early(model: Path, data: Path, tmp_path: Path) -> None:
    """Weights and a rate of nothing: the same of all texts at the same loss; stopped, it goes on alike."""
    tokenizer = AlbertTokenizer.from_pretrained(model)
    config = AlbertConfig.from_pretrained(model).replace(initializer_range=1e-4)
    AlbertForPreTraining(config).save_pretrained(tmp_path / "dull")
    tokenizer.save_pretrained(tmp_path / "dull")
    model = tmp_path / "dull"
    settings = replace(FAST, steps=90, evaluate_every=30, learning_rate=1e-12)
    result = tune("text-classification", settings, model, data, tmp_path / "whole")
    assert result.restarts == 2
    for run, steps in ((".", 30), ("restart-1", 30), ("restart-2", 90)):
        assert checkpoints(tmp_path / "whole" / run)[-1].name == f"step-{steps:07d}"
    assert result.report is not None
    assert result.report["collapsed"] is not None
    for _ in range(3):  # once in each run
        stopped = tune(
            "text-classification", settings, model, data, tmp_path / "parts", callbacks=[TermAfter20Steps()]
        )
        assert stopped.report is None
    tune("text-classification", settings, model, data, tmp_path / "parts")
    for run in (".", "restart-1", "restart-2"):
        assert same(weights(tmp_path / "whole" / run), weights(tmp_path / "parts" / run))


def test_a_few_steps_are_no_collapse(model: Path, data: Path, tmp_path: Path) -> None:
    """They had no time to learn, and half the rate would leave less."""
    result = tune("text-classification", replace(FAST, steps=2, learning_rate=1e-12), model, data, tmp_path)
    assert result.report is not None
    assert (result.restarts, result.report["collapsed"]) == (0, None)


def test_no_collapse_is_reported_too_soon() -> None:
    training = FAST.training(steps_per_epoch=100, hidden_size=32)  # 600 steps, 60 of them warm-up
    says = {"constant": "'good'"}
    task = SimpleNamespace(constant_answer=lambda *_: says["constant"])
    watch = CollapseWatch(training, 0.6931)
    state = RunState(step=300, watch=LossWatch(seen=300, mean=0.6930))
    assert watch(state) is None  # nothing was evaluated
    watch.evaluation = SimpleNamespace(task=task, examples=[], predictions=[])  # type: ignore[assignment]
    assert "step 300" in (watch(state) or "")
    assert "'good'" in (watch(state) or "")
    assert watch(replace(state, step=199)) is None
    assert watch(replace(state, watch=LossWatch(seen=29, mean=0.6930))) is None
    assert watch(replace(state, watch=LossWatch(seen=300, mean=0.6861))) is None
    says["constant"] = None  # type: ignore[assignment]
    assert watch(state) is None
    late = replace(FAST, warmup=0.9).training(steps_per_epoch=100, hidden_size=32)
    assert CollapseWatch(late, 0.6931).first_step == 540


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
    assert (report["restarts"], report["collapsed"], report["step"]) == (0, None, 60)
    metrics, baseline = report["metrics"], report["baseline"]
    assert (metrics["f1_micro"], metrics["accuracy"]) == (0.0, pytest.approx(5 / 6))
    assert baseline["accuracy"] == pytest.approx(5 / 6)
    assert baseline["f1_micro"] == pytest.approx(2 * 8 / (2 * 48 + 8))  # both labels for every example
    share = 1 / 12
    entropy = -share * math.log(share) - (1 - share) * math.log(1 - share)
    assert baseline["cross_entropy"] == pytest.approx(entropy)
    assert metrics["cross_entropy"] < 0.6


def test_a_collapse_of_several_labels_is_restarted(model: Path, tmp_path: Path) -> None:
    for name, seed in (("train", 0), ("validation", 1)):
        rows = [row | {"label": [row["label"]]} for row in texts(32, seed)]
        write_json_lines(tmp_path / f"{name}.jsonl", rows)
    AlbertForPreTraining(AlbertConfig.from_pretrained(model).replace(initializer_range=1e-4)).save_pretrained(
        tmp_path / "dull"
    )
    AlbertTokenizer.from_pretrained(model).save_pretrained(tmp_path / "dull")
    settings = replace(FAST, steps=30, evaluate_every=30, learning_rate=1e-12)
    report = tune("text-classification", settings, tmp_path / "dull", tmp_path, tmp_path / "run").report
    assert report is not None
    assert report["restarts"] == 2
    assert report["collapsed"] == "the best model predicts the same probabilities for every example"


def test_a_collapse_reports_the_metrics_of_the_model(
    model: Path, data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A model may be better than the baseline although its loss collapsed."""
    caplog.set_level("INFO")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_module, "collapse", lambda *_, **__: "for a test")
        patch.setattr(run_module, "MOST_RESTARTS", 0)
        result = tune("text-classification", replace(FAST, epochs=3), model, data, tmp_path)
    assert result.report is not None
    accuracy, baseline = result.report["metrics"]["accuracy"], result.report["baseline"]["accuracy"]
    assert f"collapsed again: for a test. The model in {tmp_path} has accuracy {accuracy:.4f} (baseline " in (
        caplog.text
    )
    assert accuracy > baseline >= 0.5
    assert f"| baseline of accuracy | {baseline:.4f} |" in (tmp_path / "report.md").read_text()
