"""Tests of the thresholds of labels: predictions, records, metrics and errors."""

import math
from typing import Any

import numpy as np
import pytest

from albertkit.config import THRESHOLDS_KEY, AlbertConfig
from albertkit.datasets.examples import TextExample
from albertkit.engines.engine import Row
from albertkit.errors import ConfigError
from albertkit.tasks.settings import TaskSettings
from albertkit.tasks.text_classification import Classified, SentenceOrder, TextClassification
from albertkit.tasks.token_classification import TokenClassification

SEVERAL, CLASSES = "multi_label_classification", "single_label_classification"


def task_for(names: str, kind: str, threshold: Any = None, **entries: Any) -> TextClassification:
    """Return a task for labels of one letter, with a threshold as a setting and entries of the config."""
    config = AlbertConfig(id2label=dict(enumerate(names)), problem_type=kind, **entries)
    return TextClassification().bind(None, config, TaskSettings(threshold=threshold))  # type: ignore[arg-type]


def decided(task: TextClassification, *shares: float) -> Classified:
    """Return the prediction for these probabilities."""
    values = np.array(shares)
    odds = 1.0 if task.config.problem_type == CLASSES else 1 - values
    row = Row(input_ids=[], token_type_ids=[], example=0)
    return task.decode(TextExample(""), [(row, np.log(values / odds))])


@pytest.mark.parametrize(
    ("threshold", "shares", "expected"),
    [
        (0.7, (0.71, 0.2, 0.09), "a"),
        (0.7, (0.69, 0.2, 0.11), None),
        (0.0, (0.3, 0.4, 0.3), "b"),
        ({"a": 0.3}, (0.35, 0.6, 0.05), "a"),  # a label with a threshold is predicted above it
        ({"a": 0.3}, (0.25, 0.6, 0.15), "b"),
        ({"a": 0.9}, (0.8, 0.15, 0.05), None),  # no other label, which would have a low probability
        ({"a": 0.9}, (0.45, 0.5, 0.05), "b"),
        ({"a": 0.2, "b": 0.2}, (0.3, 0.6, 0.1), "b"),  # the most probable label above its threshold
        ({"a": 0.2, "b": 0.7, "c": 0.2}, (0.3, 0.6, 0.1), "a"),
        (None, (0.34, 0.33, 0.33), "a"),
    ],
)
def test_a_class(threshold: Any, shares: tuple[float, ...], expected: str | None) -> None:
    task = task_for("abc", CLASSES, threshold)
    prediction = decided(task, *shares)
    assert prediction.label == expected
    record = task.record(TextExample(""), prediction)
    score = max(shares) if expected is None else shares["abc".index(expected)]
    assert (record["label"], record["score"]) == (expected, pytest.approx(score))


@pytest.mark.parametrize(
    ("threshold", "shares", "expected"),
    [
        (None, (0.51, 0.49, 0.9), ("a", "c")),
        (0.5, (0.51, 0.49, 0.9), ("a", "c")),
        (0.95, (0.51, 0.49, 0.9), ()),
        ({"b": 0.4, "c": 0.95}, (0.51, 0.49, 0.9), ("a", "b")),
    ],
)
def test_several_labels(threshold: Any, shares: tuple[float, ...], expected: tuple[str, ...]) -> None:
    assert decided(task_for("abc", SEVERAL, threshold), *shares).label == expected


def test_thresholds_of_two_classes_with_a_sum_of_one_never_abstain() -> None:
    for share in (0.3, 0.31, 0.5, math.nextafter(0.3, 0), math.nextafter(0.3, 1)):
        label = decided(task_for("ab", CLASSES, {"a": 0.7, "b": 0.3}), 1 - share, share).label
        assert label == ("b" if share > 0.3001 else label)
        assert label is not None


def test_the_config_has_thresholds_that_the_setting_overrides() -> None:
    entries = {THRESHOLDS_KEY: {"a": 0.9}}
    assert decided(task_for("ab", CLASSES, **entries), 0.8, 0.2).label is None
    assert decided(task_for("ab", CLASSES, 0.7, **entries), 0.8, 0.2).label == "a"
    assert decided(task_for("ab", CLASSES, "auto", **entries), 0.8, 0.2).label is None


def test_metrics_of_a_model_that_abstains() -> None:
    task = task_for("ab", CLASSES, 0.7)
    shares = [0.9, 0.6, 0.2, 0.75]
    examples = [TextExample("", label=label) for label in "aabb"]
    predictions = [decided(task, share, 1 - share) for share in shares]
    assert [one.label for one in predictions] == ["a", None, "b", "a"]
    metrics = task.measure(examples, predictions)
    assert metrics["accuracy"] == 2 / 4
    assert metrics["coverage"] == 3 / 4
    assert metrics["accuracy_answered"] == pytest.approx(2 / 3)
    assert metrics["f1"] == pytest.approx(2 / 3)  # of b: one of two, and no other
    pairs = zip(examples, predictions, strict=True)
    decisions = [decision for pair in pairs for decision in task.decisions(*pair)]
    assert [decision.confidence is None for decision in decisions] == [False, True, False, False]
    assert [decision.error()[1]["score"] for decision in decisions] == pytest.approx([0.9, 0.6, 0.8, 0.75])
    assert "coverage" not in task_for("ab", CLASSES).measure(examples, predictions[:1] * 4)
    none = [decided(task, 0.6, 0.4)] * 4
    assert task.measure(examples, none)["accuracy_answered"] == 0
    assert task.constant_answer(examples, none) == "'a'"  # the threshold is not the reason


def test_tuned_thresholds_beat_one_half() -> None:
    """Two rare labels whose probabilities are too low or too high."""
    true = [("a",), ("a", "b"), ("b",), (), (), ("a",)]
    shares = [(0.3, 0.2), (0.4, 0.9), (0.1, 0.8), (0.2, 0.7), (0.1, 0.6), (0.6, 0.65)]
    examples = [TextExample("", label=label) for label in true]
    task = task_for("ab", SEVERAL, "auto")
    before = [decided(task, *row) for row in shares]
    tuned = task.tuned(examples, before)
    assert tuned == {THRESHOLDS_KEY: {"a": 0.25, "b": 0.75}}
    task = task_for("ab", SEVERAL, "auto", **tuned)
    after = task.measure(examples, [decided(task, *row) for row in shares])
    assert (after["f1_micro"], after["accuracy"]) == (1.0, 1.0)
    assert task.measure(examples, before)["f1_micro"] == pytest.approx(2 * 3 / (5 + 6))


def test_tuned_thresholds_of_two_classes() -> None:
    """The second class is the positive one."""
    shares = [0.1, 0.2, 0.3, 0.35, 0.4, 0.45]
    examples = [TextExample("", label=label) for label in "aaaabb"]
    task = task_for("ab", CLASSES, "auto")
    tuned = task.tuned(examples, [decided(task, 1 - share, share) for share in shares])
    assert tuned == {THRESHOLDS_KEY: {"a": 0.62, "b": 0.38}}
    task = task_for("ab", CLASSES, **tuned)
    metrics = task.measure(examples, [decided(task, 1 - share, share) for share in shares])
    assert (metrics["f1"], metrics["accuracy"], "coverage" in metrics) == (1.0, 1.0, False)


@pytest.mark.parametrize(
    ("threshold", "message"),
    [
        (1.5, "threshold is 1.5. Expected a number from 0 to 1"),
        (math.nan, "threshold is nan"),
        ("high", "threshold is 'high'"),
        (True, "threshold is True"),
        ({"a": "0.5"}, "threshold is {'a': '0.5'}"),
        ({"c": 0.5}, r"threshold has the label 'c', which the model does not have.* The labels are a, b"),
    ],
)
def test_wrong_thresholds(threshold: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        task_for("ab", CLASSES, threshold)
    with pytest.raises(ConfigError, match=f"thresholds in the config {message.removeprefix('threshold ')}"):
        task_for("ab", CLASSES, **{THRESHOLDS_KEY: threshold})


def test_labels_without_thresholds() -> None:
    with pytest.raises(ConfigError, match=r"threshold is 0\.5, but the model predicts numbers"):
        task_for("a", "regression", 0.5)
    for names, kind, what in (("abc", CLASSES, "3 classes"), ("a", "regression", "numbers")):
        with pytest.raises(ConfigError, match=f"'auto', which is for several labels or .* predicts {what}"):
            task_for(names, kind, "auto")
    settings = TaskSettings(threshold=0.5)
    with pytest.raises(
        ConfigError, match="threshold is for text-classification, not for token-classification"
    ):
        TokenClassification().bind(None, AlbertConfig(), settings)  # type: ignore[arg-type]
    config = AlbertConfig(id2label={0: "a"}, **{THRESHOLDS_KEY: {"a": 0.5}})  # type: ignore[arg-type]
    assert SentenceOrder().bind(None, config).labels.thresholds == {}  # type: ignore[arg-type]
