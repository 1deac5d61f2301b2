"""Evaluations: the columns and the texts of the fine-tuning, and scores that are undefined."""

import csv
import shutil
from pathlib import Path
from typing import Any

import pytest
from finetuning_runs import FAST, texts

from albertkit.errors import DataError
from albertkit.finetuning.evaluate import evaluate
from albertkit.finetuning.finetune import finetune
from albertkit.finetuning.predict import predict

pytestmark = pytest.mark.usefixtures("blank_pictures")


def write_csv(file: Path, rows: list[dict[str, Any]]) -> Path:
    with file.open("w", encoding="utf-8", newline="") as target:
        writer = csv.DictWriter(target, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    return file


def test_columns_with_a_comma_in_their_names(model: Path, tmp_path: Path) -> None:
    rows = [{"Review, short": one["text"], "Mood, final": one["label"]} for one in texts(24, 3)]
    file = write_csv(tmp_path / "data.csv", rows)
    columns = {"text_column": "Review, short", "label_column": "Mood, final"}
    run = finetune(
        "text-classification", recipe=FAST, steps=2, model=model, train=file, validation=file,
        output=tmp_path / "run", device="cpu", **columns,
    )  # fmt: skip
    assert run.report is not None
    assert run.report["columns"] == columns
    assert evaluate(tmp_path / "run", data=file).metrics == run.report["metrics"]
    assert predict(tmp_path / "run", input=file).total == 24
    choices = [
        {"sent1": "the river", "sent2": "is", "ends, a": "old", "ends, b": "new", "label": 1},
        {"sent1": "the river", "sent2": "is", "ends, a": "a key", "ends, b": "lost", "label": 0},
    ]
    listed = [
        {"sent1": one["sent1"], "sent2": "is", "ends, all": [one["ends, a"], one["ends, b"]], "label": 0}
        for one in choices
    ]
    run = finetune(
        "multiple-choice", recipe=FAST, steps=1, model=model, train=listed, validation=listed,
        output=tmp_path / "choices", device="cpu", choice_columns="ends, all",
    )  # fmt: skip
    assert evaluate(tmp_path / "choices", data=listed).metrics == run.metrics


def test_an_unfinished_run_remembers_its_columns(model: Path, tmp_path: Path) -> None:
    rows = [{"text": "the same", "summary": one["text"], "label": one["label"]} for one in texts(24, 3)]
    file, run = write_csv(tmp_path / "data.csv", rows), tmp_path / "run"

    finetune(
        "text-classification", recipe=FAST, steps=4, evaluate_every=1, max_minutes=1e-9, model=model,
        train=file, validation=file, output=run, text_column="summary", device="cpu",
    )  # fmt: skip
    (checkpoint,) = (run / "checkpoints").iterdir()
    for folder in (run, run / "best", checkpoint):
        named, remembered = predict(folder, input=file, text_column="summary"), predict(folder, input=file)
        assert [*remembered] == [*named]
        assert (
            evaluate(folder, data=file).metrics == evaluate(folder, data=file, text_column="summary").metrics
        )


def test_the_encoding_is_used_again_for_files_that_are_not_in_utf8(model: Path, tmp_path: Path) -> None:
    rows = [{"text": f"f\xfcr {one['text']}", "label": one["label"]} for one in texts(24, 3)]
    content = write_csv(tmp_path / "data.csv", rows).read_text(encoding="utf-8")
    file = tmp_path / "excel.csv"
    file.write_text(content, encoding="cp1252")
    run = finetune(
        "text-classification", recipe=FAST, steps=1, model=model, train=file, validation=file,
        output=tmp_path / "run", device="cpu", encoding="cp1252",
    )  # fmt: skip
    assert run.report is not None
    assert run.report["columns"] == {"encoding": "cp1252"}
    assert evaluate(tmp_path / "run", data=file).metrics == run.report["metrics"]
    for encoding in ("cp1252", "utf-8", "utf-8-sig", "utf-16"):
        (tmp_path / "new.csv").write_text(content, encoding=encoding)
        predictions = predict(tmp_path / "run", input=tmp_path / "new.csv", keep_columns="text")
        assert [one["text"] for one in predictions] == [one["text"] for one in rows]
    output = tmp_path / "answers.csv"
    predict(tmp_path / "run", input=rows, keep_columns="text", output=output)
    assert rows[0]["text"] in output.read_text(encoding="utf-8")


def test_another_delimiter_and_names_with_spaces(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    rows = [{"Text": one["text"], "Mood": one["label"], "Nr": "1"} for one in texts(24, 3)]
    file, other = write_csv(tmp_path / "commas.csv", rows), tmp_path / "data.csv"
    other.write_text(file.read_text().replace(",", ";"))
    columns = {"text_column": "Text", "label_column": "Mood", "delimiter": ";"}
    run = finetune(
        "text-classification", recipe=FAST, steps=1, model=model, train=other, validation=other,
        output=tmp_path / "run", device="cpu", **columns,
    )  # fmt: skip
    spaced = [{"Text": row["Text"], "Mood ": row["Mood"], " Nr": row["Nr"]} for row in rows]
    for data in (other, file, rows, spaced):
        assert evaluate(tmp_path / "run", data=data).metrics == run.metrics
    with pytest.raises(DataError, match=r"commas\.csv: the cells are separated by ',', not by ';'"):
        predict(tmp_path / "run", input=file, delimiter=";")
    # A table without the columns of the fine-tuning.
    predict(
        tmp_path / "run",
        input=[{"body": "the river runs to the old house"}, {"body": "the key was lost again"}],
    )
    assert "has no column 'Text', which the fine-tuning run used" in caplog.text
    caplog.clear()
    predict(tmp_path / "run", input=[{"text": "the river", "body": "the river runs to the old house"}])
    assert "has no column 'Text', which the fine-tuning run used" in caplog.text
    assert "Using the column 'text' instead" in caplog.text
    table = tmp_path / "table.txt"
    table.write_text("Nr\tText\n1\tthe river\n")
    caplog.clear()
    assert predict(tmp_path / "run", input=table).total == 2
    assert "table.txt: each line is read as one text, but the lines have tabs" in caplog.text


def test_an_evaluation_counts_the_texts_of_the_training(
    classifier: Path, data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    note = "64 of 64 examples have the same text or context as a training example, so the metrics can be"
    train = data / "train.jsonl"
    assert evaluate(classifier, data=train).report["data"]["shared_with_training"] == 64
    assert f"{train}: {note}" in caplog.text
    report = evaluate(classifier, data=train, output=tmp_path / "report").report
    assert report["data"]["shared_with_training"] == 64
    assert (report["data"]["rows"], report["data"]["examples"]) == (64, 64)
    caplog.clear()
    new = [{"text": "a text of its own", "label": "good"}, {"text": "another text", "label": "bad"}]
    assert evaluate(classifier, data=new).report["data"]["shared_with_training"] == 0
    assert "training example" not in caplog.text
    # Only the folder of the run knows the training examples.
    shutil.copytree(classifier, tmp_path / "copy", ignore=shutil.ignore_patterns("*.jsonl"))
    assert evaluate(tmp_path / "copy", data=train).report["data"]["shared_with_training"] is None


def test_the_best_of_several_seeds_knows_its_training_texts(model: Path, tmp_path: Path) -> None:
    rows = texts(24, 3)
    output = tmp_path / "run"
    finetune(
        "text-classification", recipe=FAST, steps=1, seeds=2, model=model, train=rows[:20],
        validation=rows[20:], output=output, device="cpu",
    )  # fmt: skip
    known = {one["text"] for one in rows[:20]}
    shared = evaluate(output, data=rows).report["data"]["shared_with_training"]
    assert shared == sum(one["text"] in known for one in rows)


def test_an_undefined_correlation_is_null(model: Path, tmp_path: Path) -> None:
    """Of texts of one length, all have the same label, so they have no correlation."""
    rows = [{"text": "river " * (1 + count), "label": count + 0.5} for count in range(6) for _ in range(3)]
    rows += [{"text": f"{word} house", "label": label} for word, label in (("lost", 1.5), ("sold", 9.5))]
    run = finetune(
        "text-classification", recipe=FAST, steps=1, model=model, train=rows, validation=rows,
        output=tmp_path / "run", device="cpu",
    )  # fmt: skip
    for report in (run.report, evaluate(tmp_path / "run", data=rows, output=tmp_path / "report").report):
        assert report is not None
        scores = [one["score"] for one in report["by_length"]]
        assert None in scores
        assert any(isinstance(one, float) for one in scores)
        assert 0.0 not in scores
    assert "| undefined |" in (tmp_path / "report" / "report.md").read_text()
    assert '"score": null' in (tmp_path / "report" / "report.json").read_text()
    words = [{"text": one["text"], "label": "good" if one["label"] > 3 else "bad"} for one in rows]
    found = evaluate_by_matthews(model, words, tmp_path)
    assert None in found


def evaluate_by_matthews(model: Path, rows: list[dict[str, Any]], folder: Path) -> list[float | None]:
    run = finetune(
        "text-classification", recipe=FAST, steps=1, model=model, train=rows, validation=rows,
        output=folder / "classes", device="cpu", best_metric="matthews",
    )  # fmt: skip
    assert run.report is not None
    return [one["score"] for one in run.report["by_length"]]
