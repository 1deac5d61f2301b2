"""`evaluate` and `predict` use the columns of the fine-tuning, and `evaluate` knows its texts."""

import csv
from pathlib import Path
from typing import Any

import pytest
from finetuning_runs import FAST, texts

from albertkit.finetuning.evaluate import evaluate
from albertkit.finetuning.predict import predict
from albertkit.finetuning.train import finetune

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
