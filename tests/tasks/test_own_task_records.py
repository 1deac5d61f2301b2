"""Tests of the predictions and the records of a task of your own."""

from pathlib import Path

import pytest
from small_task import ROWS, changed

from albertkit.datasets.rows import read_rows
from albertkit.finetuning.evaluate import evaluate
from albertkit.finetuning.finetune import FinetuningRun
from albertkit.finetuning.predict import predict

pytestmark = pytest.mark.usefixtures("blank_pictures")


def test_a_record_may_have_a_single_value_as_scores(small_run: FinetuningRun, tmp_path: Path) -> None:
    task = changed(record=lambda *_: {"label": "good", "scores": 0.5})()
    for name in ("rows.jsonl", "rows.csv"):
        predict(small_run.folder, input=ROWS, task=task, output=tmp_path / name, device="cpu")
        row = next(iter(read_rows(tmp_path / name)))
        assert float(row.values["scores"]) == 0.5


def test_reports_of_answers_of_any_type(small_run: FinetuningRun, tmp_path: Path) -> None:
    for number, (truth, answer) in enumerate((("other", "good"), ("other", 0.5), ({"a": [1]}, {"a": [2]}))):
        values = {"truth": lambda *_, value=truth: value, "baseline": lambda *_: {"error": 0.5}}
        task = changed(
            record=lambda *_, value=answer: {"label": value, "score": 0.5}, probability="score", **values
        )
        found = evaluate(
            small_run.folder, data=ROWS, task=task(), output=tmp_path / str(number), device="cpu"
        )
        assert found.baseline == {"error": 0.5}
        assert found.task.constant_answer(found.examples, found.predictions) is None
