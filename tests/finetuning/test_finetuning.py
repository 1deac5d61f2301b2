"""Fine-tuning: tasks are learnt, runs go on exactly, collapse is noticed, reports say what was measured."""

import csv
import itertools
import json
import math
import os
import pickle
import random
import shutil
import signal
from collections import Counter
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from two_processes import in_two_processes

from albertkit.config import AlbertConfig
from albertkit.datasets.examples import ChoiceExample, QuestionExample, TextExample, WordsExample
from albertkit.datasets.options import DataOptions
from albertkit.engines.choosing import make_engine
from albertkit.engines.engine import Row
from albertkit.errors import ConfigError, TrainingError
from albertkit.files import write_json
from albertkit.finetuning import run as run_module
from albertkit.finetuning.batches import Epochs
from albertkit.finetuning.collapse import CollapseWatch, prior_loss
from albertkit.finetuning.evaluate import evaluate
from albertkit.finetuning.objectives import balanced_weights
from albertkit.finetuning.predict import predict_file
from albertkit.finetuning.predictor import Asked, Predictor
from albertkit.finetuning.prepared import make_units, prepare, starting_model
from albertkit.finetuning.run import FinetuningRun
from albertkit.finetuning.settings import FinetuningSettings
from albertkit.finetuning.train import best_run, finetune
from albertkit.finetuning.trained import load_task, task_settings
from albertkit.metrics.classification import class_scores, multi_label_scores, number_scores
from albertkit.metrics.multiple_choice import choice_scores
from albertkit.metrics.sentence_embedding import retrieval_scores
from albertkit.metrics.token_classification import span_scores
from albertkit.modeling import auto
from albertkit.modeling.pretraining_heads import AlbertForPreTraining
from albertkit.modeling.task_heads import AlbertForQuestionAnswering
from albertkit.pipelines import pipeline
from albertkit.tasks.loading import CHUNK, RowCounts
from albertkit.tasks.multiple_choice import MultipleChoice
from albertkit.tasks.question_answering import THRESHOLD_KEY, Answer, Answered, QuestionAnswering
from albertkit.tasks.registry import TASKS
from albertkit.tasks.settings import TaskSettings, saved_lengths
from albertkit.tasks.text_classification import Classified, TextClassification
from albertkit.tokenization.tokenizer import AlbertTokenizer
from albertkit.training.callbacks import Callback, RunProgress
from albertkit.training.curves import read_metrics
from albertkit.training.progress import MetricsFile
from albertkit.training.run_state import LossWatch, RunState
from albertkit.training.state import checkpoints

pytestmark = pytest.mark.usefixtures("blank_pictures")

CPU = torch.device("cpu")
FAST = FinetuningSettings(
    epochs=6,
    batch_size=8,
    learning_rate=3e-3,
    dropout=0.0,
    attention_dropout=0.0,
    classifier_dropout=0.0,
    precision="fp32",
    evaluate_every=24,
)


@pytest.fixture(scope="module")
def model(tiny_vocabulary: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a random model with the pretraining heads."""
    tokenizer = AlbertTokenizer(tiny_vocabulary)
    config = AlbertConfig(
        vocab_size=len(tokenizer),
        embedding_size=16,
        hidden_size=32,
        num_attention_heads=2,
        intermediate_size=64,
        num_hidden_layers=2,
        max_position_embeddings=48,
        initializer_range=0.2,
    )
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("model")
    AlbertForPreTraining(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def texts(count: int, seed: int) -> list[dict[str, Any]]:
    """Texts whose class is a word in them."""
    draw = random.Random(seed)
    words = ["river", "house", "letters", "key", "secret", "harbour", "dinner", "morning"]
    rows = []
    for number in range(count):
        label = ["bad", "good"][number % 2]
        mark = {"good": "painted", "bad": "lost"}[label]
        rest = draw.choices(words, k=draw.randint(1, 6))
        rest.insert(draw.randrange(len(rest)), mark)
        rows.append({"text": " ".join(rest), "label": label})
    return rows


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write(folder / "train.jsonl", texts(64, 0))
    write(folder / "validation.jsonl", texts(20, 1))
    return folder


def unread(task: str, **config: Any) -> Any:
    """A task for a config, without a tokenizer."""
    return TASKS[task]().bind(None, AlbertConfig(**config))  # type: ignore[arg-type]


def tune(
    task: str,
    settings: FinetuningSettings,
    model: Path,
    data: Path,
    output: Path,
    *,
    seeds: int = 1,
    **options: Any,
) -> FinetuningRun:
    return finetune(
        task,
        recipe=settings,
        model=model,
        train=data / "train.jsonl",
        validation=data / "validation.jsonl",
        output=output,
        seeds=seeds,
        device="cpu",
        **options,
    )


@pytest.fixture(scope="module")
def classifier(model: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a task that is easily learnt."""
    output = tmp_path_factory.mktemp("run") / "classifier"
    result = tune("text-classification", FAST, model, data, output)
    assert result.report is not None
    assert result.report["metrics"]["accuracy"] == 1.0
    return output


def test_a_class_is_learnt(classifier: Path) -> None:
    report = json.loads((classifier / "report.json").read_text())
    assert report["main_metric"] == "accuracy"
    assert report["restarts"] == 0
    assert report["data"]["training"]["examples"] == 64
    assert AlbertConfig.from_pretrained(classifier).id2label == {0: "bad", 1: "good"}
    for name in ("report.md", "predictions.jsonl", "confusion.png", "calibration.png", "by_length.png"):
        assert (classifier / name).stat().st_size > 0


def test_the_report_is_of_the_predictions(classifier: Path, data: Path) -> None:
    report = json.loads((classifier / "report.json").read_text())
    said = [json.loads(line)["label"] for line in (classifier / "predictions.jsonl").read_text().splitlines()]
    true = [json.loads(line)["label"] for line in (data / "validation.jsonl").read_text().splitlines()]
    assert report["metrics"] == class_scores(true, said, labels=["bad", "good"])
    assert sum(one["examples"] for one in report["by_length"]) == len(true)


def test_a_measurement_takes_paths_and_strings(classifier: Path, data: Path, tmp_path: Path) -> None:
    def figures(source: str | Path, output: str | Path) -> dict[str, Any]:
        return evaluate(classifier, data=source, task="text-classification", output=output).metrics

    file = data / "validation.jsonl"
    assert figures(str(file), str(tmp_path / "one")) == figures(file, tmp_path / "two")
    assert (tmp_path / "one" / "report.json").is_file()
    assert read_metrics(str(classifier)) == read_metrics(classifier) != []


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def same(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


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
    write(other / "train.jsonl", texts(64, 9))
    write(other / "validation.jsonl", texts(20, 1))
    with pytest.raises(TrainingError, match="training_data"):
        tune("text-classification", settings, model, other, tmp_path / "parts")
    for _ in range(2):
        tune("text-classification", replace(settings, max_minutes=1e-9), model, data, tmp_path / "parts")
    result = tune("text-classification", settings, model, data, tmp_path / "parts")
    assert result.step == 16
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "parts"))


def test_parts_of_a_batch_take_the_same_step(
    model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = replace(FAST, steps=4, best_metric="f1_macro", log_every=1)
    monkeypatch.setattr(run_module, "MOST_RESTARTS", 0)
    tune("text-classification", settings, model, data, tmp_path / "whole")
    tune("text-classification", replace(settings, accumulation=3), model, data, tmp_path / "parts")
    one, two = (
        [line["train/loss"] for line in read_metrics(tmp_path / name) if "train/loss" in line]
        for name in ("whole", "parts")
    )
    assert one == pytest.approx(two, abs=1e-5)
    one, two = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    assert all(torch.allclose(one[name], two[name], atol=1e-5) for name in one)


def test_stops_early_with_the_best(
    model: Path, data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    result = finetune(
        "text-classification", recipe=replace(FAST, epochs=50, early_stopping=2), model=model, device="cpu",
        train=data / "train.jsonl", validation=data / "validation.jsonl", output=tmp_path,
    )  # fmt: skip
    state = result.loop.state
    assert state.step < 50 * 8
    assert state.step == state.best_step + 2 * 24
    lines = [line for line in caplog.messages if line.startswith("ended early")]
    assert lines == [f"ended early: 2 evaluations without improvement since step {state.best_step}"]
    assert result.report is not None
    assert result.report["metrics"]["accuracy"] == state.best == 1.0


def test_collapse_is_restarted(
    model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rate that ruins the model; the third one is low enough."""
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


def test_a_run_is_not_given_up_too_soon() -> None:
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


def test_the_prior_is_the_best_guess_without_looking(model: Path) -> None:
    """Of weighted classes too: what gradient descent on the logits alone ends at."""
    labels = [0] * 45 + [1] * 4 + [2]
    rows = [Row(input_ids=[1], token_type_ids=[0], example=n, labels=one) for n, one in enumerate(labels)]
    task = TextClassification().bind(AlbertTokenizer.from_pretrained(model), AlbertConfig(num_labels=3))
    prepared = SimpleNamespace(task=task, rows=rows)
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
        assert prior_loss(prepared, class_weights) == pytest.approx(float(loss().detach()), abs=1e-4)  # type: ignore[arg-type]


def test_the_prior_of_questions_guesses_a_place(model: Path) -> None:
    task = QuestionAnswering().bind(
        AlbertTokenizer.from_pretrained(model), AlbertConfig.from_pretrained(model)
    )
    examples = [
        QuestionExample("1", "what?", "the key was lost", (("lost", 12),)),
        QuestionExample("2", "what?", "the river", (), True),
    ]
    rows = task.features(examples)
    known = SimpleNamespace(task=task, rows=rows)
    guess = -math.log(0.5) + math.log(len(rows[0].context)) / 2
    assert prior_loss(known, None) == pytest.approx(guess)  # type: ignore[arg-type]


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
    assert task.constant_answer(examples, [Classified(one, [0.6, 0.4]) for one in predicted]) == answer


def test_a_collapse_says_how_good_the_model_is(
    model: Path, data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What the loss calls a collapse may be above chance all the same."""
    caplog.set_level("INFO")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_module, "collapse", lambda *_, **__: "for a test")
        patch.setattr(run_module, "MOST_RESTARTS", 0)
        result = finetune(
            "text-classification",
            recipe=replace(FAST, epochs=3),
            model=model,
            device="cpu",
            train=data / "train.jsonl",
            validation=data / "validation.jsonl",
            output=tmp_path,
        )
    assert result.report is not None
    accuracy, baseline = result.report["metrics"]["accuracy"], result.report["baseline"]["accuracy"]
    assert f"collapsed again: for a test. The model in {tmp_path} has accuracy {accuracy:.4f} (baseline " in (
        caplog.text
    )
    assert accuracy > baseline >= 0.5
    assert f"| baseline of accuracy | {baseline:.4f} |" in (tmp_path / "report.md").read_text()


def test_several_seeds_have_a_deviation(
    model: Path, data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    result = finetune(
        "text-classification",
        recipe=replace(FAST, epochs=3),
        model=model,
        device="cpu",
        train=data / "train.jsonl",
        validation=data / "validation.jsonl",
        output=tmp_path,
        seeds=2,
    )
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
    with pytest.raises(TrainingError, match=r"holds .*seed-0/.*: a new run would overwrite it"):
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
        write(tmp_path / f"{split}.jsonl", rows)
    with pytest.raises(ConfigError, match=r"best_metric is 'total'. Expected one of exact, f1, best_exact"):
        tune("question-answering", replace(FAST, best_metric="total"), model, tmp_path, tmp_path / "run")
    # Questions that all have an answer have no such metric.
    with pytest.raises(ConfigError, match=r"best_metric is 'best_f1'. Expected one of exact, f1\.$"):
        tune("question-answering", replace(FAST, best_metric="best_f1"), model, tmp_path, tmp_path / "run")


def test_an_unknown_metric_is_refused_before_any_file_is_read(tmp_path: Path) -> None:
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
            multi_label_scores([("a",)], [("a",)], labels=["a", "b"]),
            number_scores([1.0, 2.0], [1.0, 2.0]),
        ],
        "token-classification": [
            span_scores([["B-A"]], [["B-A"]]).summary(),
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
        ([0.5, 0.4, 0.4], 0, False),
        ([0.5, 0.6, 0.5], 1, True),
    ],
)
def test_a_run_that_improves_nothing_says_so(
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
    result = finetune(
        "text-classification", recipe=replace(FAST, steps=2, evaluate_every=1), model=model, device="cpu",
        train=data / "train.jsonl", validation=data / "validation.jsonl", output=tmp_path / "run",
    )  # fmt: skip
    assert result.report is not None
    assert (result.report["step"], result.report["beats_untrained"]) == (step, beats)
    warning = f"no checkpoint beats the untrained model. The model of step {step} is kept."
    assert (warning in caplog.text) is not beats


@pytest.mark.parametrize(("scores", "beats"), [([0.5, 0.5, 0.4], False), ([0.5, 0.6, 0.4], True)])
def test_a_run_of_the_first_version_continues(
    model: Path,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    scores: list[float],
    beats: bool,
) -> None:
    values = iter(scores)
    monkeypatch.setattr(TASKS["text-classification"], "scores", lambda *_: {"accuracy": next(values, 0.5)})
    settings = replace(FAST, steps=2, evaluate_every=1)
    stopped = tune("text-classification", replace(settings, max_minutes=1e-9), model, data, tmp_path)
    assert stopped.step == 1
    file = checkpoints(tmp_path)[-1] / "training_state.json"
    keys = "step tokens seconds schedule_factor position best best_step stale_evaluations given_up watch"
    document = json.loads(file.read_text())
    write_json(file, {key: document[key] for key in (*keys.split(), "fingerprint")})
    result = tune("text-classification", settings, model, data, tmp_path)
    assert result.report is not None
    assert (result.report["step"], result.report["beats_untrained"]) == (1, beats)


@pytest.mark.parametrize(
    ("before", "best", "step", "lower", "expected"),
    [
        (math.nan, 0.5, 4, False, True),
        (math.nan, 0.5, 4, True, True),
        (math.nan, None, 0, False, False),
        (0.5, 0.5, 0, False, False),
        (0.5, 0.4, 4, True, True),
        (2 / 3, 2 / 3, 4, True, False),  # 0.666667 in the file
        (None, 0.5, 4, False, None),
    ],
)
def test_any_value_beats_an_untrained_model_without_one(
    tmp_path: Path, before: float | None, best: float | None, step: int, lower: bool, expected: bool | None
) -> None:
    start = RunProgress(output=tmp_path, settings={})
    MetricsFile().on_evaluation(start, {"eval/error": 0.1} | ({} if before is None else {"eval/f1": before}))
    MetricsFile().on_evaluation(replace(start, step=4), {"eval/f1": 0.9})
    state = RunState(step=8, best=best, best_step=step)
    assert run_module._beats_untrained(state, tmp_path, "f1", lower) is expected


def test_without_any_value_the_last_model_is_kept(
    classifier: Path, model: Path, data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Evaluations of earlier versions could be NaN."""
    caplog.set_level("INFO")
    shutil.copytree(classifier, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "best")
    file = checkpoints(tmp_path / "run")[-1] / "training_state.json"
    document = json.loads(file.read_text())
    write_json(file, document | {"best": None, "best_step": 0, "best_metrics": {}})
    result = tune("text-classification", FAST, model, data, tmp_path / "run")
    assert result.report is not None
    assert (result.report["step"], result.report["beats_untrained"]) == (result.step, False)
    assert f"The model of step {result.step} is kept." in caplog.text


def test_a_finished_run_needs_its_figures(classifier: Path, model: Path, data: Path, tmp_path: Path) -> None:
    shutil.copytree(classifier, tmp_path / "run")
    (tmp_path / "run" / "metrics.jsonl").unlink()
    with pytest.raises(TrainingError, match=r"metrics\.jsonl is missing"):
        tune("text-classification", FAST, model, data, tmp_path / "run")


def test_rare_classes_weigh_more(model: Path, data: Path, tmp_path: Path) -> None:
    """At a rate of nothing the weighted loss is that of the frequencies evened out."""
    rows = texts(64, 0)
    write(tmp_path / "train.jsonl", [row for number, row in enumerate(rows) if number % 8 in (0, 1, 2, 4, 6)])
    write(tmp_path / "validation.jsonl", texts(20, 1))
    settings = replace(FAST, steps=1, batch_size=64, learning_rate=1e-12, log_every=1)
    losses = {}
    for weights_of in ("none", "balanced"):
        output = tmp_path / weights_of
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(run_module, "MOST_RESTARTS", 0)
            tune("text-classification", replace(settings, class_weights=weights_of), model, tmp_path, output)  # type: ignore[arg-type]
        losses[weights_of] = next(line["train/loss"] for line in read_metrics(output) if "train/loss" in line)
    task, loaded = load_task("text-classification", tmp_path / "none", TaskSettings(), device=CPU)
    examples = list(task.reader(str(tmp_path / "train.jsonl"), DataOptions()))
    found = task.features(examples)
    logits = torch.from_numpy(np.stack(task.run(make_engine(loaded, "torch"), found)))
    labels = torch.tensor([row.labels for row in found])
    each = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    mean_of_classes = (each[labels == 0].mean() + each[labels == 1].mean()) / 2
    assert losses["none"] == pytest.approx(float(each.mean()), abs=1e-4)
    assert losses["balanced"] == pytest.approx(float(mean_of_classes), abs=1e-4)


# --- Batches -------------------------------------------------------------------------------------


def units(count: int, width: int = 1, seed: int = 0) -> list[list[Row]]:
    draw = random.Random(seed)
    return [
        [Row(input_ids=[1] * draw.randint(1, 40), token_type_ids=[], example=number) for _ in range(width)]
        for number in range(count)
    ]


def test_every_unit_once_an_epoch() -> None:
    mixed = [*units(75), *units(20, width=3)]
    epochs = Epochs(mixed, 8, seed=3)
    assert epochs.steps == 10 + 3
    taken = list(itertools.islice(epochs.stream(None), 2 * epochs.steps))
    orders = []
    for epoch in (0, 1):
        batches = [batch for batch, _ in taken[epoch * epochs.steps : (epoch + 1) * epochs.steps]]
        assert all(len({len(unit) for unit in batch.units}) == 1 for batch in batches)
        seen = [id(unit) for batch in batches for unit in batch.units]
        assert sorted(seen) == sorted(map(id, mixed))
        orders.append(seen)
    assert orders[0] != orders[1]
    assert taken[12][1] == {"epoch": 1, "batch": 0}


def test_the_stream_starts_anywhere() -> None:
    epochs = Epochs(units(50), 4, seed=1)
    taken = list(itertools.islice(epochs.stream(None), 30))
    for start in (0, 5, 12, 25):
        position = taken[start][1]
        again = list(itertools.islice(epochs.stream(position), 4))
        assert again == taken[start + 1 : start + 5]


def test_processes_share_each_batch() -> None:
    everything = units(50)
    alone = list(itertools.islice(Epochs(everything, 8, seed=0).stream(None), 12))
    shared = [
        list(itertools.islice(Epochs(everything, 8, seed=0, rank=rank, world_size=2).stream(None), 12))
        for rank in (0, 1)
    ]
    for (whole, _), (first, _), (second, _) in zip(alone, *shared, strict=True):
        assert sorted(map(id, whole.units)) == sorted(map(id, [*first.units, *second.units]))


# --- Predictions ---------------------------------------------------------------------------------


def test_predictions_go_on_after_a_kill(
    classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = texts(50, 7)
    source = write(
        tmp_path / "input.jsonl", [{"text": row["text"], "name": str(n)} for n, row in enumerate(rows)]
    )
    task, loaded = load_task("text-classification", classifier, TaskSettings(), device=CPU)
    reader = task.reader(str(source), DataOptions(id_column="name"), labeled=False)
    computed: list[int] = []

    def predict(output: Path, *, stop_after: int | None = None) -> int:
        def progress(count: int, total: int) -> None:
            assert total == 50
            computed.append(count)
            if stop_after is not None and count >= stop_after:
                raise KeyboardInterrupt

        return predict_file(
            task, loaded, reader, output,
            about={"run": 1}, part_size=8, progress=progress,
        ).total  # fmt: skip

    with pytest.raises(KeyboardInterrupt):
        predict(tmp_path / "out.jsonl", stop_after=24)
    assert not (tmp_path / "out.jsonl").exists()
    computed.clear()
    assert predict(tmp_path / "out.jsonl") == 50
    assert computed == [32, 40, 48, 50]
    said = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [one["id"] for one in said] == [str(number) for number in range(50)]
    assert [one["row"] for one in said] == [*range(1, 51)]
    right = sum(one["label"] == row["label"] for one, row in zip(said, rows, strict=True))
    assert right >= 48
    assert predict(tmp_path / "out.csv") == 50
    with (tmp_path / "out.csv").open(newline="") as file:
        assert [row["label"] for row in csv.DictReader(file)] == [one["label"] for one in said]
    assert predict(tmp_path / "out.parquet") == 50
    from pyarrow import parquet

    tabular = [
        {name: value for name, value in one.items() if name != "scores"}
        | {f"score_{label}": score for label, score in one["scores"].items()}
        for one in said
    ]
    assert parquet.read_table(tmp_path / "out.parquet").to_pylist() == tabular
    assert list(tabular[0]) == ["row", "id", "label", "score", "cut", "score_bad", "score_good"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "input.jsonl", "out.csv", "out.jsonl", "out.parquet",
    ]  # fmt: skip


def test_other_processes_can_have_a_predictor(classifier: Path) -> None:
    """It is pickled without its engine, also after it has predicted."""
    task, model = load_task("text-classification", classifier, TaskSettings())
    predictor = Predictor(task, model)
    asked = [Asked(TextExample(text), 1) for text in ("river", "the house was lost")]
    lines = predictor(asked)
    assert pickle.loads(pickle.dumps(predictor))(asked) == lines
    assert set(predictor.__getstate__()) == {field.name for field in fields(predictor)}


def test_predictions_say_what_was_not_read(classifier: Path, tmp_path: Path) -> None:
    source = write(
        tmp_path / "in.jsonl", [{"text": "river"}, {"text": "river " * 100}, {"text": "river " * 60}]
    )
    task, loaded = load_task("text-classification", classifier, TaskSettings(), device=CPU)
    reader = task.reader(str(source), DataOptions(), labeled=False)
    made = predict_file(task, loaded, reader, str(tmp_path / "out.jsonl"), about={})
    lengths = [len(task.tokenizer(example.text)["input_ids"]) for example in reader]
    expected = [max(0, length - 48) for length in lengths]
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["cut"] for line in lines] == expected
    assert made.cut == expected[1:]


@pytest.mark.parametrize(
    ("task", "row", "options", "expected"),
    [
        (
            "question-answering",
            {"question": "what was lost?", "context": "the key was lost"},
            {},
            {"row", "answer", "start", "end", "score", "no_answer_difference", "cut"},
        ),
        ("token-classification", {"tokens": ["the", "key"]}, {}, {"row", "tokens", "labels"}),
        (
            "multiple-choice",
            {"sent1": "the key", "sent2": "was", "choices": ["lost", "found"]},
            {"choice_columns": "choices"},
            {"row", "choice", "text", "score", "scores", "cut"},
        ),
    ],
)
def test_each_task_predicts_for_a_file(
    task: str, row: dict[str, Any], options: dict[str, Any], expected: set[str], model: Path, tmp_path: Path
) -> None:
    loaded = getattr(auto, TASKS[task].architecture)(AlbertConfig.from_pretrained(model))
    own = TASKS[task]().bind(AlbertTokenizer.from_pretrained(model), loaded.config)
    reader = own.reader(str(write(tmp_path / "in.jsonl", [row] * 3)), DataOptions(**options), labeled=False)
    for kind in ("jsonl", "csv", "parquet"):
        output = tmp_path / f"out.{kind}"
        assert predict_file(own, loaded, reader, output, about={}, part_size=2).total == 3
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert all(set(line) == expected for line in lines)
    assert [line["row"] for line in lines] == [1, 2, 3]


# --- The other tasks -----------------------------------------------------------------------------


def test_texts_over_the_limit_are_counted(model: Path, data: Path, tmp_path: Path) -> None:
    rows = texts(20, 1)
    rows[3]["text"] = "river " * 100
    write(tmp_path / "train.jsonl", [*rows, {"text": "", "label": "good"}, {"text": "key", "label": None}])
    write(tmp_path / "validation.jsonl", texts(6, 1))
    settings = replace(FAST, steps=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_module, "MOST_RESTARTS", 0)
        report = tune("text-classification", settings, model, tmp_path, tmp_path / "run").report
    assert report is not None
    found = report["data"]["training"]
    assert (found["rows"], found["examples"], found["examples_cut"]) == (22, 20, 1)
    assert {name: one["count"] for name, one in found["problems"].items()} == {"empty": 1, "unlabeled": 1}


def test_rows_shorter_than_asked_for_are_announced(
    model: Path, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for length, expected in (
        (64, ["max_length is 64, but the model's maximum is 48 tokens: using 48"]),
        (48, []),
        (None, []),
    ):
        caplog.clear()
        prepared = prepare(
            TASKS["text-classification"](),
            replace(FAST, task=TaskSettings(max_length=length)),
            model=model,
            train=data / "train.jsonl",
            validation=data / "validation.jsonl",
            options=DataOptions(),
        )
        assert prepared.task.max_length == 48
        assert [line for line in caplog.messages if line.startswith("max_length")] == expected


def test_whole_numbers_that_may_be_amounts_are_named(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for count, named in ((11, True), (10, False)):
        file = write(tmp_path / "a.jsonl", [{"text": "a", "label": number % count} for number in range(12)])
        caplog.clear()
        prepare(
            TASKS["text-classification"](), FAST, model=model, train=file, validation=file,
            options=DataOptions(),
        )  # fmt: skip
        expected = f"the labels are {count} whole numbers, which are read as classes. If they are amounts, "
        found = [line for line in caplog.messages if line.startswith(expected)]
        assert ["--problem-type regression" in line for line in found] == [True] * named


def test_numbers_with_a_comma_are_named(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The note must fit a decimal comma and a thousands separator: 1,080 may be 1.08 or 1080."""
    caplog.set_level("INFO")
    for labels, named in (
        (["2,53", "1,08", "3"], True),
        (["1,080", "2,530", "1,200,000.5"], True),
        (["a,b", "1,08", "c"], False),
    ):
        file = write(tmp_path / "a.jsonl", [{"text": "a", "label": label} for label in labels * 2])
        caplog.clear()
        prepare(
            TASKS["text-classification"](), FAST, model=model, train=file, validation=file,
            options=DataOptions(),
        )  # fmt: skip
        expected = (
            "look like numbers, but are read as classes. If they are amounts, write them with a decimal "
            "point and no thousands separator"
        )
        found = [line for line in caplog.messages if line.startswith("labels such as '1,08")]
        assert [expected in line for line in found] == [True] * named


@pytest.mark.parametrize(
    ("labels", "note"),
    [
        (["o", "B-PER", "I-PER", "I-LOC"], "no tagging scheme: 'o' (did you mean 'O'?)."),
        (["O", "B-PER", "I-PER"], None),
        (["-LRB-", "B-X", "NN"], None),
    ],
)
def test_a_label_that_keeps_spans_from_being_scored_is_named(labels: list[str], note: str | None) -> None:
    said = unread("token-classification", id2label=dict(enumerate(labels))).check([], [], 8)
    assert said is None if note is None else note in (said or "")


def test_numbers_are_learnt(model: Path, tmp_path: Path) -> None:
    values = {"good": 1.5, "bad": -0.5}
    for name, seed, count in (("train", 0, 64), ("validation", 1, 20)):
        rows = [row | {"label": values[row["label"]]} for row in texts(count, seed)]
        write(tmp_path / f"{name}.jsonl", rows)
    report = tune("text-classification", replace(FAST, epochs=12), model, tmp_path, tmp_path / "run").report
    assert report is not None
    assert report["main_metric"] == "pearson"
    assert report["metrics"]["pearson"] > 0.95
    assert AlbertConfig.from_pretrained(tmp_path / "run").problem_type == "regression"


def test_several_labels_are_learnt(model: Path, tmp_path: Path) -> None:
    for name, seed, count in (("train", 0, 64), ("validation", 1, 20)):
        rows = [
            {"text": row["text"], "label": {"good": ["good", "any"], "bad": ["any"]}[row["label"]]}
            for row in texts(count, seed)
        ]
        rows[0]["label"] = []
        write(tmp_path / f"{name}.jsonl", rows)
    report = tune("text-classification", FAST, model, tmp_path, tmp_path / "run").report
    assert report is not None
    assert report["main_metric"] == "f1_micro"
    assert report["metrics"]["f1_micro"] > 0.95


def test_words_are_learnt(model: Path, tmp_path: Path) -> None:
    """CoNLL columns: some words are of a type."""
    kinds = {"river": "B-PLACE", "harbour": "B-PLACE", "key": "B-THING"}
    for name, seed, count in (("train.conll", 0, 64), ("validation.conll", 1, 20)):
        sentences = [row["text"].split() for row in texts(count, seed)]
        lines = ["".join(f"{word} {kinds.get(word, 'O')}\n" for word in words) for words in sentences]
        (tmp_path / name).write_text("\n".join(lines))
    report = finetune(
        "token-classification",
        recipe=replace(FAST, epochs=12),
        model=model,
        device="cpu",
        train=tmp_path / "train.conll",
        validation=tmp_path / "validation.conll",
        output=tmp_path / "run",
    ).report
    assert report is not None
    assert report["main_metric"] == "f1"
    assert report["metrics"]["f1"] > 0.85
    assert set(AlbertConfig.from_pretrained(tmp_path / "run").id2label.values()) == {
        "O", "B-PLACE", "B-THING",
    }  # fmt: skip


def test_answers_and_their_absence_are_learnt(model: Path, tmp_path: Path) -> None:
    """The answer is the word painted or lost; without either there is none."""
    for name, seed, count in (("train", 0, 96), ("validation", 1, 20)):
        asked = []
        for number, row in enumerate(texts(count, seed)):
            mark = {"good": "painted", "bad": "lost"}[row["label"]]
            text = row["text"].replace("lost", "word") if number % 2 == 0 else row["text"]
            given = [] if number % 2 == 0 else [mark]
            answers = {"text": given, "answer_start": [text.index(one) for one in given]}
            asked.append({"question": "what happened?", "context": text, "answers": answers})
        write(tmp_path / f"{name}.jsonl", asked)
    report = tune("question-answering", replace(FAST, epochs=8), model, tmp_path, tmp_path / "run").report
    assert report is not None
    assert report["main_metric"] == "best_f1"
    assert report["metrics"]["best_f1"] > 0.9
    assert report["metrics"]["f1"] == report["metrics"]["best_f1"]
    assert AlbertConfig.from_pretrained(tmp_path / "run").null_score_diff_threshold == pytest.approx(
        _middle_of_the_gap(tmp_path / "run" / "predictions.jsonl", report["metrics"]["best_f1_threshold"])
    )


def test_a_threshold_is_not_inherited(model: Path, tmp_path: Path) -> None:
    """A model of SQuAD 2 that is fine-tuned on SQuAD 1.1 answers every question."""
    shutil.copytree(model, tmp_path / "model")
    config = AlbertConfig.from_pretrained(model)
    config.extra[THRESHOLD_KEY] = -3.0
    config.save_pretrained(tmp_path / "model")
    row = {"question": "what?", "context": "the key was lost"}
    answered = row | {"answers": {"text": ["key"], "answer_start": [4]}}
    unanswered = row | {"answers": {"text": [], "answer_start": []}}
    for rows, metric in (([answered] * 2, "f1"), ([answered, unanswered], "best_f1")):
        prepared = prepare(
            TASKS["question-answering"](),
            FAST,
            model=tmp_path / "model",
            train=write(tmp_path / "train.jsonl", rows),
            validation=write(tmp_path / "validation.jsonl", rows),
            options=DataOptions(),
        )
        assert THRESHOLD_KEY not in prepared.config.extra
        assert prepared.validation.main_metric == metric


QUESTIONS = [{"question": "what?", "context": "the key was lost " * 9, "answers": "key"}] * 2
SENTENCES = [{"tokens": ["the", "key"] * 15, "ner_tags": ["O", "B-X"] * 15}] * 2
CHOICES = [{"sent1": "the key " * 12, "sent2": "was", "choices": ["lost", "found"], "label": 0}] * 2


@pytest.mark.parametrize(
    ("task", "rows", "options"),
    [
        ("text-classification", [row | {"text": "the key was lost " * 3} for row in texts(4, 0)], {}),
        ("token-classification", SENTENCES, {}),
        ("question-answering", QUESTIONS, {}),
        ("multiple-choice", CHOICES, {"choice_columns": "choices"}),
    ],
)
def test_a_model_is_used_with_the_lengths_of_its_training(
    task: str, rows: list[dict[str, Any]], options: dict[str, Any], model: Path, tmp_path: Path
) -> None:
    """Its config.json has them, so that a pipeline reads as `predict` does, wherever the folder goes."""
    given = TaskSettings(max_length=16, doc_stride=3, max_question_length=5, max_answer_length=2)
    prepared = prepare(
        TASKS[task](),
        replace(FAST, task=given),
        model=model,
        train=write(tmp_path / "train.jsonl", rows),
        validation=tmp_path / "train.jsonl",
        options=DataOptions(**options),
    )
    is_questions = task == "question-answering"
    others = {"doc_stride": 3, "max_question_length": 5, "max_answer_length": 2} if is_questions else {}
    folder = tmp_path / "tuned"
    starting_model(prepared, FAST).save_pretrained(folder)
    prepared.tokenizer.save_pretrained(folder)
    assert AlbertConfig.from_pretrained(folder).extra["task_settings"] == {"max_length": 16, **others}
    found = task_settings(folder, {})
    assert found == replace(TaskSettings(max_length=16), **others)
    assert task_settings(folder, {"max_length": 20}).max_length == 20
    # The same answers as `predict` gives, without a word about lengths.
    pipe: Any = pipeline(task, folder)
    own, loaded = load_task(task, folder, found, device=CPU)
    reader = own.reader(str(tmp_path / "train.jsonl"), DataOptions(**options), labeled=False)
    example = next(iter(reader))
    made = own.features([example])
    (predicted,) = own.predictions([example], made, own.run(make_engine(loaded, "plain"), made))
    assert max(len(row.input_ids) for row in made) == 16
    if task == "text-classification":
        assert pipe(example.text, truncation=True)[0]["score"] == pytest.approx(max(predicted.scores))
        assert "cut" not in pipe(example.text)[0]  # without truncation all that the model reads
    elif task == "token-classification":
        said = pipe(list(example.words), is_split_into_words=True, ignore_labels=())
        assert [one["score"] for one in said] == pytest.approx(
            [max(scores) for scores in predicted.scores.tolist()], abs=1e-5
        )
    elif is_questions:
        answer = pipe(question=example.question, context=example.context)
        best = predicted.answers[0]
        assert (answer["start"], answer["end"]) == (best.start, best.end)
        assert answer["score"] == pytest.approx(best.score)
    else:
        asked = {"context": example.context, "question": example.question, "choices": example.choices}
        assert pipe(asked, truncation=True)["scores"] == pytest.approx(predicted.scores)


@pytest.mark.parametrize("damaged", [[1], {"max_length": "16"}, {"max_length": True}, {"max_length": -1}])
def test_lengths_that_are_none_are_named(damaged: Any) -> None:
    config = AlbertConfig(num_hidden_layers=1)
    assert saved_lengths(config) == {}  # of a folder from before
    config.extra["task_settings"] = damaged
    with pytest.raises(ConfigError, match=r"task_settings in the config is .* Expected lengths"):
        saved_lengths(config)


def test_a_context_without_a_token_is_answered_in_json(model: Path, tmp_path: Path) -> None:
    """One combining mark is a text, and nothing is left of it when it is normalized."""
    torch.manual_seed(0)
    AlbertForQuestionAnswering(AlbertConfig.from_pretrained(model)).save_pretrained(tmp_path / "model")
    AlbertTokenizer.from_pretrained(model).save_pretrained(tmp_path / "model")
    task, loaded = load_task("question-answering", tmp_path / "model", TaskSettings(), device=CPU)
    write(tmp_path / "in.jsonl", [{"question": "what?", "context": text} for text in ("\u0301", "the key")])
    reader = task.reader(str(tmp_path / "in.jsonl"), DataOptions(), labeled=False)
    for threshold in (None, 0.0):
        loaded.config.extra[THRESHOLD_KEY] = threshold
        output = tmp_path / f"{threshold}.jsonl"
        predict_file(task, loaded, reader, output, about={})
        first, second = (json.loads(line) for line in output.read_text().splitlines())
        assert "Infinity" not in output.read_text()
        assert (first["answer"], first["no_answer_difference"]) == ("", None)
        assert isinstance(second["no_answer_difference"], float)


@pytest.mark.parametrize("rate", [0.0, -1e-3, math.nan, math.inf])
def test_a_rate_that_teaches_nothing_is_refused(rate: float) -> None:
    for name in ("learning_rate", "epochs"):
        with pytest.raises(ConfigError, match=f"{name} must be more than 0 and finite, not"):
            replace(FAST, **{name: rate})
    assert replace(FAST, learning_rate=1e-9).rate(768) == 1e-9
    assert replace(FAST, learning_rate=None).rate(768) == 3e-5


def test_answers_that_cannot_be_learnt_are_counted(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One is longer than any window, one longer than an answer may be, one question is cut."""
    filler = "river house letters " * 20
    asked = [
        {"question": "what?", "context": filler + "the key was lost", "answers": "the key"},
        {"question": "what?", "context": filler, "answers": filler.strip()},
        {"question": "what?", "context": "the key was lost in the river", "answers": "the key was lost in"},
        {"question": "what was lost " * 9, "context": "the key was lost", "answers": "key"},
    ]
    write(tmp_path / "train.jsonl", asked)
    write(tmp_path / "validation.jsonl", asked[:2])
    caplog.set_level("INFO")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_module, "MOST_RESTARTS", 0)
        report = finetune(
            "question-answering",
            device="cpu",
            recipe=replace(FAST, steps=1, task=TaskSettings(max_answer_length=9, max_question_length=10)),
            model=model, train=tmp_path / "train.jsonl", validation=tmp_path / "validation.jsonl",
            output=tmp_path / "run",
        ).report  # fmt: skip
    assert report is not None
    assert report["data"]["training"]["examples_cut"] == 1
    unseen = "answers exceed a window of 48 tokens and are not used in training"
    assert report["data"]["training"]["troubles"] == {
        unseen: 1,
        "answers are longer than 9 tokens and cannot be predicted": 1,
    }
    assert report["data"]["validation"]["troubles"] == report["troubles"] == {unseen: 1}
    assert f"* 1 {unseen}" in (tmp_path / "run" / "report.md").read_text()
    for line in (
        "training: 1 of 4 questions are longer than 10 tokens and are truncated",
        f"training: 1 of 4 {unseen}",
        f"validation: 1 of 2 {unseen}",
    ):
        assert line in caplog.text


def test_questions_without_answer_are_counted() -> None:
    task = unread("question-answering")
    examples = [QuestionExample(str(n), "q", "a key", (), is_impossible=n > 0) for n in range(3)]

    def said(training: list[QuestionExample]) -> str | None:
        return task.check(training, [], 8)

    assert said(examples) == "2 of 3 training questions have no answer"
    assert said(examples[:1]) is None


def test_where_silence_is_best_nothing_is_answered() -> None:
    task = unread("question-answering")
    examples = [QuestionExample(str(n), "q", "a key", (), True) for n in range(3)]
    examples.append(QuestionExample("3", "q", "a key", (("key", 2),)))
    predictions = [
        Answered([Answer("a", 0, 1, 0.5, logit)], Answer("", 0, 0, 0.5, 0.0))
        for logit in (2.1, 1.7, 0.3, 1.9)
    ]
    task.config.extra |= task.tuned(examples, predictions)
    assert task.threshold == pytest.approx(-2.11)
    scores = task.scores(examples, predictions)
    assert scores["f1"] == scores["best_f1"] == 0.75


@pytest.mark.parametrize(("threshold", "silent"), [(None, False), (0.0, False), (-1.0, True)])
def test_what_is_reported_is_what_is_measured(threshold: float | None, silent: bool) -> None:
    """With questions without answer a model without threshold is used at 0, in figures and in records."""
    given = unread("question-answering")
    examples = [
        QuestionExample("same id", "q", "a key", (("key", 2),)),
        QuestionExample("same id", "q", "a key", (), True),
    ]
    sure = Answered([Answer("key", 2, 5, 0.7, 2.0)], Answer("", 0, 0, 0.2, 1.5))
    unsure = Answered([Answer("key", 2, 5, 0.1, 0.5)], Answer("", 0, 0, 0.6, 1.5))
    if threshold is not None:
        given.config.extra["null_score_diff_threshold"] = threshold
    task = given.for_examples(examples)
    assert given.threshold == threshold
    said = [task.record(*pair)["answer"] for pair in zip(examples, (sure, unsure), strict=True)]
    assert said == ["" if silent else "key", ""]
    judged = [task.judge(*pair)[0] for pair in zip(examples, (sure, unsure), strict=True)]
    assert [one.predicted for one in judged] == said
    scores = task.scores(examples, [sure, unsure])
    assert scores["exact"] == sum(one.right for one in judged) / 2 == (0.5 if silent else 1.0)
    assert (scores["total"], scores["no_answer_exact"], scores["best_exact"]) == (2, 1.0, 1.0)
    # Where every question has an answer, and the model was not tuned for more, it always answers.
    alone = unread("question-answering").for_examples(examples[:1])
    assert alone.record(examples[0], unsure)["answer"] == "key"
    assert alone.scores(examples[:1], [unsure])["exact"] == 1.0


def _middle_of_the_gap(predictions: Path, threshold: float) -> float:
    lines = [json.loads(line) for line in predictions.read_text().splitlines()]
    above = [line["no_answer_difference"] for line in lines if line["no_answer_difference"] > threshold]
    assert all((line["answer"] == "") == (line["no_answer_difference"] > threshold) for line in lines)
    return (threshold + min(above)) / 2


def test_choices_are_learnt(model: Path, tmp_path: Path) -> None:
    """The right choice is the one with a certain word; some questions have a choice more."""
    draw = random.Random(0)
    for name, count in (("train", 64), ("validation", 20)):
        asked = []
        for number in range(count):
            choices = ["lost", "lost", "painted"][-2 - number % 2 :]
            draw.shuffle(choices)
            asked.append(
                {"sent1": "the river", "sent2": "was", "choices": choices, "label": choices.index("painted")}
            )
        write(tmp_path / f"{name}.jsonl", asked)
    report = tune("multiple-choice", FAST, model, tmp_path, tmp_path / "run", choice_columns="choices").report
    assert report is not None
    assert report["metrics"] == {"accuracy": 1.0}


def test_examples_of_several_chunks_stay_apart(model: Path) -> None:
    """The first of one chunk beside the first of another: two examples, and not one of four choices."""
    task = MultipleChoice().bind(AlbertTokenizer.from_pretrained(model), AlbertConfig.from_pretrained(model))
    examples = [ChoiceExample(str(n), "river", None, ("key", "house"), 0) for n in range(CHUNK + 1)]
    units = make_units(task, examples, RowCounts(task))
    assert len(task.units([*units[0], *units[CHUNK]])) == 2


# --- Several processes ---------------------------------------------------------------------------


def test_two_processes_are_one(model: Path, data: Path, tmp_path: Path, warm_shell: dict[str, str]) -> None:
    """Words: the items of a batch are spread unevenly over the processes."""
    for name in ("train", "validation"):
        rows = [json.loads(line) for line in (data / f"{name}.jsonl").read_text().splitlines()]
        tags = {"painted": "B-GOOD", "lost": "B-BAD"}
        for row in rows:
            row["tokens"] = row["text"].split()
            row["ner_tags"] = [tags.get(word, "O") for word in row["tokens"]]
        write(tmp_path / f"{name}.jsonl", rows)
    settings = replace(FAST, steps=12, log_every=1, accumulation=2, evaluate_every=None)
    tune("token-classification", settings, model, tmp_path, tmp_path / "run1")
    errors = in_two_processes(
        [
            "albertkit", "finetune", "token-classification", "--model", model, "--train",
            tmp_path / "train.jsonl", "--validation", tmp_path / "validation.jsonl", "--output",
            tmp_path / "run2", "--device", "cpu", "--precision", "fp32", "--steps", 12, "--batch-size", 8,
            "--log-every", 1, "--learning-rate", 3e-3, "--dropout", 0, "--attention-dropout", 0,
            "--classifier-dropout", 0, "--accumulation", 2,
        ],
        warm_shell,
    )  # fmt: skip
    assert errors.count("64 examples") == 1  # one process speaks
    one, two = (
        [line["train/loss"] for line in read_metrics(tmp_path / f"run{processes}") if "train/loss" in line]
        for processes in (1, 2)
    )
    assert len(one) == 12
    assert one == pytest.approx(two, abs=1e-4)
    one, two = (
        json.loads((tmp_path / f"run{processes}" / "report.json").read_text()) for processes in (1, 2)
    )
    assert one["metrics"] == pytest.approx(two["metrics"], abs=0.05)
