"""Fine-tuning from a fine-tuned model keeps its classifier for the same labels, and no other classifier."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from finetuning_runs import FAST, tune
from random_models import TWO_LAYERS

from albertkit.config import AlbertConfig
from albertkit.datasets.options import DataOptions
from albertkit.finetuning.prepared import Prepared, prepare, starting_model
from albertkit.modeling.heads import AlbertForSequenceClassification, AlbertForTokenClassification
from albertkit.tasks.registry import TASKS
from albertkit.training.progress import read_metrics

pytestmark = pytest.mark.usefixtures("blank_pictures")


def renamed(classifier: Path, names: list[str], rows: list[int], output: Path) -> Path:
    """Save a classifier with these labels; row i of its matrix is the former row `rows[i]`."""
    model = AlbertForSequenceClassification.from_pretrained(classifier)
    trained = model.classifier.weight[rows], model.classifier.bias[rows]
    model = AlbertForSequenceClassification.from_pretrained(
        classifier, id2label=dict(enumerate(names)), ignore_mismatched_sizes=True
    )
    with torch.no_grad():
        model.classifier.weight.copy_(trained[0])
        model.classifier.bias.copy_(trained[1])
    model.save_pretrained(output)
    for name in ("spiece.model", "tokenizer_config.json"):
        (output / name).write_bytes((classifier / name).read_bytes())
    return output


def prepared(
    start: Path, rows: list[dict[str, Any]], settings=FAST, task: str = "text-classification"
) -> Prepared:
    return prepare(TASKS[task](), settings, model=start, train=rows, validation=rows, options=DataOptions())


def labeled(*labels: str) -> list[dict[str, Any]]:
    return [{"text": f"the river {number}", "label": label} for number, label in enumerate(labels)]


def test_the_labels_keep_the_order_of_the_model(classifier: Path, data: Path, tmp_path: Path) -> None:
    start = renamed(classifier, ["good", "bad"], [1, 0], tmp_path / "start")
    tune("text-classification", replace(FAST, epochs=1), start, data, tmp_path / "run")
    assert AlbertConfig.from_pretrained(tmp_path / "run").id2label == {0: "good", 1: "bad"}
    assert read_metrics(tmp_path / "run")[0]["eval/accuracy"] == 1.0  # before the first step


def test_tags_keep_the_order_of_the_model(save_model: Callable[..., Path]) -> None:
    names = {0: "I-LOC", 1: "O", 2: "B-LOC"}
    start = save_model(AlbertForTokenClassification, id2label=names)
    rows = [{"tokens": ["the", "river", "house"], "ner_tags": ["O", "B-LOC", "I-LOC"]}] * 2
    assert prepared(start, rows, task="token-classification").task.config.id2label == names


@pytest.mark.parametrize(
    ("names", "labels", "is_kept"),
    [
        (["bad", "good"], ["good", "bad"], True),
        (["LABEL_0", "LABEL_1"], ["1", "0"], True),
        (["LABEL_0", "LABEL_1"], ["no", "yes"], False),
        (["bad", "good"], ["no", "yes"], False),
        (["bad", "good"], ["bad", "good", "fair"], False),
    ],
)
def test_a_classifier_is_kept_for_its_labels(
    classifier: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture,
    names: list[str], labels: list[str], is_kept: bool,
) -> None:  # fmt: skip
    caplog.set_level("INFO")
    start = renamed(classifier, names, [0, 1], tmp_path / "start")
    before = AlbertForSequenceClassification.from_pretrained(start)
    model = starting_model(prepared(start, labeled(*labels)), FAST)
    assert torch.equal(model.albert.pooler.weight, before.albert.pooler.weight)
    assert (model.classifier.bias.abs().sum().item() != 0) == is_kept  # a new bias is 0
    assert torch.equal(model.classifier.weight[:2], before.classifier.weight) == is_kept
    notes = [line for line in caplog.messages if line.startswith("the model's classifier is for")]
    assert len(notes) == (not is_kept)
    if notes:
        assert notes == [
            f"the model's classifier is for the labels {', '.join(names)}. Training starts with a new "
            f"classifier for {', '.join(sorted(labels))}."
        ]


def test_a_pretrained_model_has_no_classifier(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    starting_model(prepared(model, labeled("bad", "good")), FAST)
    assert not any("classifier is for" in line for line in caplog.messages)


QUESTIONS = [
    {"question": "Where?", "context": f"by the river {number}", "answers": "the river"} for number in range(2)
]
SENTENCES = [{"tokens": ["the", "river"], "ner_tags": ["O", "B-LOC"]} for _ in range(2)]
PAIRS = [{"text": f"the river {number}", "text_pair": f"a river {number}"} for number in range(2)]


@pytest.mark.parametrize(
    ("task", "rows", "names"),
    [
        ("question-answering", QUESTIONS, ["LABEL_0", "LABEL_1"]),
        ("sentence-embedding", PAIRS, ["LABEL_0", "LABEL_1"]),
        ("token-classification", SENTENCES, ["O", "B-LOC"]),
    ],
)
@pytest.mark.parametrize(
    "start",
    [
        {"id2label": {0: "a", 1: "b", 2: "c"}, "problem_type": "multi_label_classification"},
        {"num_labels": 1, "problem_type": "regression"},
    ],
)
def test_no_labels_of_another_head_are_kept(
    save_model: Callable[..., Path],
    task: str,
    rows: list[dict[str, Any]],
    names: list[str],
    start: dict[str, Any],
) -> None:
    """In `transformers`, the head of question answering has `num_labels` scores, so it needs two."""
    classifier = save_model(AlbertForSequenceClassification, **TWO_LAYERS, **start)
    config = prepared(classifier, rows, task=task).task.config
    assert (list(config.id2label.values()), config.problem_type) == (names, None)
