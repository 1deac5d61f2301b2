"""The errors of a model, the scores of each label, and labels that are merged."""

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from bound_tasks import unread
from finetuning_runs import FAST, texts
from json_lines import read_json_lines
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from albertkit.config import AlbertConfig
from albertkit.datasets.examples import TextExample, WordsExample
from albertkit.datasets.options import DataOptions
from albertkit.errors import ConfigError, DataError
from albertkit.finetuning.evaluate import evaluate
from albertkit.finetuning.finetune import finetune
from albertkit.metrics import scores_by_label, token_f1
from albertkit.modeling import heads
from albertkit.tasks.loading import load_splits, open_reader
from albertkit.tasks.registry import TASKS
from albertkit.tasks.token_classification import Tagged

pytestmark = pytest.mark.usefixtures("blank_pictures")

WORDS = ["river", "house", "letters", "key", "secret", "harbour", "dinner", "morning"]


def rows(count: int, labels: list[Any]) -> list[dict[str, Any]]:
    return [
        {"ticket": f"T{n}", "text": f"{WORDS[n % 8]} {WORDS[n * 3 % 7]}", "label": labels[n % len(labels)]}
        for n in range(count)
    ]


@pytest.fixture(scope="module")
def three_classes(save_model: Callable[..., Path]) -> Path:
    return save_model(heads.AlbertForSequenceClassification, id2label={0: "a", 1: "b", 2: "c"})


def test_the_scores_of_each_label_are_those_of_scikit_learn() -> None:
    true, predicted = [*"aabbcccc"], [*"abbbccab"]
    pairs = list(zip(true, predicted, strict=True))
    counts = {pair: pairs.count(pair) for pair in pairs}
    names = [*"abcd"]
    expected = precision_recall_fscore_support(true, predicted, labels=names, zero_division=0.0)
    for name, *values in zip(names, *expected, strict=True):
        assert list(scores_by_label(counts, labels=names)[name].values()) == pytest.approx(values)


def test_errors_of_a_classifier(three_classes: Path, tmp_path: Path) -> None:
    """A record of the file may have several lines, and some records have no label."""
    data, output = tmp_path / "data.csv", tmp_path / "report"
    with data.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["ticket", "score", "text", "label"])
        writer.writerow(["none", 0, "the river", ""])
        for row in rows(30, [*"abc"]):
            writer.writerow([row["ticket"], 7, row["text"] + "\nagain", row["label"]])
    evaluation = evaluate(three_classes, data=data, output=output)
    lines = read_json_lines(output / "predictions.jsonl")
    assert [line["row"] for line in lines] == list(range(2, 32))
    assert lines[0]["text"] == "river river\nagain"
    assert "id" not in lines[0]
    wrong = [line for line in lines if line["label"] != line["true"]]
    wrong.sort(key=lambda line: -line["score"])
    errors = evaluation.errors()
    assert 0 < len(errors) < 30
    assert [(one["row"], one["true"], one["predicted"], one["score"], one["text"]) for one in errors] == [
        (line["row"], line["true"], line["label"], line["score"], line["text"]) for line in wrong
    ]
    assert list(errors[0]) == ["row", "ticket", "input_score", "text", "label", "true", "predicted", "score"]
    assert errors[0]["ticket"] == f"T{errors[0]['row'] - 2}"
    assert (output / "errors.csv").read_bytes().startswith(b"\xef\xbb\xbfrow,")  # for Excel
    with (output / "errors.csv").open(newline="", encoding="utf-8-sig") as file:
        assert list(csv.DictReader(file)) == [
            {name: str(value) for name, value in one.items()} for one in errors
        ]
    report = json.loads((output / "report.json").read_text())
    assert report["errors"] == len(errors)
    true, predicted = ([line[side] for line in lines] for side in ("true", "label"))
    matrix = confusion_matrix(true, predicted, labels=[*"abc"]).tolist()
    for name, counts in zip("abc", matrix, strict=True):
        assert [report["confusion"][name].get(other, 0) for other in "abc"] == counts
    f1 = [one["f1"] for one in report["classes"].values()]
    assert sum(f1) / 3 == pytest.approx(evaluation.metrics["f1_macro"])
    assert evaluation.classes == report["classes"]
    page = (output / "report.md").read_text()
    assert "| label | precision | recall | F1 | count |" in page
    assert "[errors.csv](errors.csv)" in page


def test_a_report_is_replaced_only_with_overwrite(three_classes: Path, tmp_path: Path) -> None:
    evaluate(three_classes, data=rows(3, [*"abc"]), output=tmp_path)
    with pytest.raises(DataError, match=r"has the report of an earlier evaluation.*--overwrite"):
        evaluate(three_classes, data=rows(6, [*"abc"]), output=tmp_path)
    evaluate(three_classes, data=rows(6, [*"abc"]), output=tmp_path, overwrite=True)
    assert json.loads((tmp_path / "report.json").read_text())["examples"] == 6


def test_unknown_labels_can_be_skipped(three_classes: Path) -> None:
    data = rows(8, [*"abcd"])
    with pytest.raises(DataError, match=r"row 4: the label 'd' is unknown.*--skip-unknown-labels"):
        evaluate(three_classes, data=data)
    evaluation = evaluate(three_classes, data=data, skip_unknown_labels=True)
    known = [row for row in data if row["label"] != "d"]
    assert evaluation.metrics == evaluate(three_classes, data=known).metrics
    assert evaluation.report["data"]["problems"]["invalid label"]["count"] == 2
    with pytest.raises(DataError, match="there are no usable examples"):
        evaluate(three_classes, data=rows(2, ["d"]), skip_unknown_labels=True)


def test_errors_of_examples_in_memory(three_classes: Path) -> None:
    examples = [TextExample("the river", None, label, f"id of {label}") for label in "abc"]
    errors = evaluate(three_classes, data=examples).errors()
    assert {tuple(one) for one in errors} == {("row", "id", "text", "true", "predicted", "score")}
    assert [one["id"] for one in errors] == [f"id of {one['true']}" for one in errors]


def test_errors_of_several_labels(save_model: Callable[..., Path]) -> None:
    model = save_model(
        heads.AlbertForSequenceClassification,
        id2label={0: "a", 1: "b"},
        problem_type="multi_label_classification",
    )
    evaluation = evaluate(model, data=rows(24, [["a"], ["b"], ["a", "b"], []]))
    right = {"a": 0, "b": 0}
    severities = []
    for record in evaluation.records:
        true, predicted = {*record["true"]}, {*record["label"]}
        for name in true & predicted:
            right[name] += 1
        decisions = [1 - record["scores"][name] for name in true - predicted]
        decisions += [record["scores"][name] for name in predicted - true]
        severities += [max(decisions)] if decisions else []
    errors = evaluation.errors()
    assert [one["score"] for one in errors] == sorted(severities, reverse=True)
    for one in errors:
        assert {*one["true"]} - {*one["predicted"]} == {*one["missed"]}
        assert {*one["predicted"]} - {*one["true"]} == {*one["extra"]}
    for name, count in right.items():
        assert evaluation.confusion[name].get(name, 0) == count
        assert sum(evaluation.confusion[name].values()) == evaluation.classes[name]["count"] == 12
    f1 = [one["f1"] for one in evaluation.classes.values()]
    assert sum(f1) / 2 == pytest.approx(evaluation.metrics["f1_macro"])


def test_the_largest_deviation_comes_first(save_model: Callable[..., Path]) -> None:
    model = save_model(
        heads.AlbertForSequenceClassification, id2label={0: "LABEL_0"}, problem_type="regression"
    )
    evaluation = evaluate(model, data=rows(6, [0.5, 1.5, 2.0]))
    deviations = [record["label"] - record["true"] for record in evaluation.records]
    errors = evaluation.errors()
    assert [one["deviation"] for one in errors] == sorted(deviations, key=abs, reverse=True)
    assert evaluation.classes == evaluation.confusion == {}


def test_errors_of_entities(save_model: Callable[..., Path], tmp_path: Path) -> None:
    names = ["O", "B-PLACE", "I-PLACE", "B-THING", "I-THING"]
    model = save_model(heads.AlbertForTokenClassification, id2label=dict(enumerate(names)))
    sentences = ["the O\nriver O\nharbour B-PLACE\nmorning I-PLACE\nkey B-THING\n"] * 3
    (tmp_path / "data.conll").write_text("\n".join(sentences))
    evaluation = evaluate(model, data=tmp_path / "data.conll", task="token-classification")
    errors = evaluation.errors()
    sizes = {"missed": 0, "extra": 0, "label": 0, "boundaries": 0}
    for one in errors:
        sizes[one["error"]] += 1
        assert one["text"] == "the river harbour morning key"
        words = one["text"].split()[one["first_word"] - 1 :]
        assert words[: len(one["words"].split())] == one["words"].split()
        assert {"missed": one["predicted"] == "", "extra": one["true"] == ""}.get(one["error"], True)
    assert [one["score"] for one in errors] == sorted((one["score"] for one in errors), reverse=True)
    assert "labels" not in errors[0]
    classes = evaluation.classes
    assert {name: one["count"] for name, one in classes.items()} == {"PLACE": 3, "THING": 3}
    right = sum(evaluation.confusion[name].get(name, 0) for name in ("PLACE", "THING"))
    assert right / 6 == pytest.approx(evaluation.metrics["recall"])


def test_the_kinds_of_errors_of_entities() -> None:
    names = ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
    task = unread("token-classification", id2label=dict(enumerate(names)))
    words = ("Anne", "saw", "New", "York", "and", "Rome", "in", "May")
    true = ("B-PER", "O", "B-LOC", "I-LOC", "-100", "B-LOC", "O", "O")
    predicted = ["B-PER", "O", "B-LOC", "O", "B-LOC", "B-PER", "O", "B-LOC"]
    scores = np.full((8, 5), 0.1)
    scores[np.arange(8), [3, 0, 1, 0, 1, 3, 0, 1]] = [0.9, 0.9, 0.8, 0.4, 0.9, 0.7, 0.9, 0.5]
    example = WordsExample(words, true)
    tagged = Tagged(predicted, [5] * 8, [*range(8)], [(0, 1)] * 8, scores)
    found = [
        (one.true, one.predicted, one.details["error"], one.details["words"], one.details["first_word"])
        for one in task.errors(example, tagged)
    ]
    assert found == [
        ("", "LOC", "boundaries", "New", 3),
        ("LOC", "", "boundaries", "New York", 3),
        ("LOC", "PER", "label", "Rome", 6),
        ("", "LOC", "extra", "May", 8),
    ]
    assert [one.confidence for one in task.errors(example, tagged)] == pytest.approx([0.8, 0.6, 0.7, 0.5])


def test_errors_of_words_without_a_scheme(save_model: Callable[..., Path]) -> None:
    model = save_model(heads.AlbertForTokenClassification, id2label=dict(enumerate(["DT", "NN"])))
    data = [{"tokens": ["the", "river"], "ner_tags": ["DT", "NN"], "page": 7}] * 2
    evaluation = evaluate(model, data=data, task="token-classification")
    errors = evaluation.errors()
    assert len(errors) == round(4 * (1 - evaluation.metrics["accuracy"])) > 0
    assert errors[0]["words"] == errors[0]["text"].split()[errors[0]["first_word"] - 1]
    assert (errors[0]["page"], errors[0]["error"]) == (7, "label")


def test_errors_of_answers(save_model: Callable[..., Path]) -> None:
    model = save_model(heads.AlbertForQuestionAnswering)
    asked = [("the river was lost", "the river", 0), ("a key to the house", "house", 13)]
    data = [
        {
            "id": str(number),
            "question": "where was it",
            "context": context,
            "answers": {"text": [answer] * 2, "answer_start": [start] * 2},
        }
        for number, (context, answer, start) in enumerate(asked)
    ]
    errors = evaluate(model, data=data, id_column="id").errors()
    for one in errors:
        assert one["true"] == [data[int(one["id"])]["answers"]["text"][0]]
        assert one["f1"] == token_f1(one["true"][0], one["predicted"])
    severities = [one["score"] * (1 - one["f1"]) for one in errors]
    assert severities == sorted(severities, reverse=True)
    assert errors


def test_errors_of_choices(save_model: Callable[..., Path]) -> None:
    model = save_model(heads.AlbertForMultipleChoice)
    data = [
        {"sent1": "the river", "sent2": "was", "choices": ["lost", "painted"], "label": n} for n in (0, 1)
    ]
    (error,) = evaluate(model, data=data, choice_columns="choices").errors()
    other = 1 - error["true"]
    assert error["predicted"] == other
    assert [error["true_text"], error["predicted_text"]] == [
        ["lost", "painted"][n] for n in (error["true"], other)
    ]
    assert error["row"] == error["true"] + 1


def test_errors_of_pairs_that_belong_together(encoder: Path) -> None:
    data = [{"text": WORDS[n], "pair": WORDS[(n + 3) % 8]} for n in range(8)]
    evaluation = evaluate(encoder, data=data, task="sentence-embedding", pair_column="pair")
    ranks = [one["rank"] for one in evaluation.errors()]
    assert ranks == sorted((one["rank"] for one in evaluation.records if one["rank"] > 1), reverse=True)


# --- labels that differ only in case or spaces


def misspelled(count: int, seed: int) -> list[dict[str, Any]]:
    """Return texts with some labels in other spellings."""
    others = {"good": [" Good", "go od", "GOOD"], "bad": ["Bad"]}
    found = texts(count, seed)
    for number, row in enumerate(found):
        if number % 9 == 0:
            row["label"] = others[row["label"]][number % len(others[row["label"]])]
    return found


def test_labels_are_merged(model: Path, tmp_path: Path) -> None:
    about = {"train": misspelled(64, 0), "validation": misspelled(20, 1), "model": model, "device": "cpu"}
    plain = {"train": texts(64, 0), "validation": texts(20, 1)}
    settings: dict[str, Any] = {"recipe": replace(FAST, epochs=1)}
    run = finetune("text-classification", output=tmp_path / "run", merge_labels=True, **about, **settings)
    clean = finetune("text-classification", output=tmp_path / "clean", **about | plain, **settings)
    assert AlbertConfig.from_pretrained(tmp_path / "run").id2label == {0: "bad", 1: "good"}
    assert run.metrics == clean.metrics
    assert run.report is not None
    merged = run.report["data"]["training"]["merged_labels"]
    assert {name: sum(counts.values()) for name, counts in merged.items()} == {"bad": 4, "good": 4}
    assert merged["bad"] == {"Bad": 4}
    assert run.report["columns"] == {"merge_labels": True}
    evaluation = evaluate(tmp_path / "run", data=misspelled(20, 1))  # the option is that of the run
    assert evaluation.metrics == run.metrics
    assert evaluation.report["data"]["merged_labels"]["bad"] == {"Bad": 2}
    with pytest.raises(DataError, match=r"is unknown.*but with --merge-labels"):
        evaluate(tmp_path / "clean", data=misspelled(20, 1))
    assert evaluate(tmp_path / "clean", data=misspelled(20, 1), merge_labels=True).metrics == clean.metrics


def test_the_types_of_tags_are_merged() -> None:
    data = [
        {"tokens": ["New", "York", "x"], "ner_tags": ["B-LOC", "I-loc", "O"]},
        {"tokens": ["Old", "York", "x"], "ner_tags": ["B-loc", "I-loc", "O"]},
        {"tokens": ["Rome", "and", "B"], "ner_tags": ["B-loc", "o", "O"]},
    ]
    task = TASKS["token-classification"]()
    reader = open_reader(task, data, DataOptions(), name="data")
    splits = load_splits(task, {"data": reader}, merge_labels=True)
    assert [one.labels for one in splits.examples["data"]] == [
        ("B-loc", "I-loc", "O"), ("B-loc", "I-loc", "O"), ("B-loc", "O", "O"),
    ]  # fmt: skip
    assert splits.reports["data"].merged_labels == {"loc": {"LOC": 1}, "O": {"o": 1}}
    assert splits.reports["data"].lines()[1:] == [
        "  merged into the label 'loc': 'LOC' (1)",
        "  merged into the label 'O': 'o' (1)",
    ]


def test_names_of_the_source_and_several_labels_are_merged() -> None:
    task = TASKS["text-classification"]()
    table = pa.table({"text": [*"pqrs"], "label": ["Sea;sea", "sea", "house", "House; sea"]})
    reader = open_reader(task, table, DataOptions(label_separator=";"), name="data")
    splits = load_splits(task, {"data": reader}, merge_labels=True)
    assert splits.labels is not None
    assert splits.labels.names == ("House", "sea") or splits.labels.names == ("house", "sea")
    assert [len(one.label) for one in splits.examples["data"]] == [1, 1, 1, 2]


def test_labels_of_choices_cannot_be_merged() -> None:
    task = TASKS["multiple-choice"]()
    data = [{"sent1": "p", "choices": ["q", "r"], "label": 0}]
    reader = open_reader(task, data, DataOptions(choice_columns="choices", question_column=""), name="data")
    with pytest.raises(ConfigError, match="merge_labels is for tasks with label names"):
        load_splits(task, {"data": reader}, merge_labels=True)
