"""Tests of a task of your own: the example in the documentation, and data in memory."""

import json
import runpy
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from places import ROOT
from small_task import FAST, ROWS, Small, changed, train

from albertkit.datasets.examples import TextExample
from albertkit.datasets.rows import read_rows
from albertkit.errors import ConfigError, DataError
from albertkit.finetuning.evaluate import evaluate
from albertkit.finetuning.finetune import FinetuningRun, finetune
from albertkit.finetuning.predict import predict
from albertkit.pipelines import pipeline
from albertkit.tasks.labels import CLASS, NUMBER, SEVERAL, LabelSet
from albertkit.tasks.task import Metric

pytestmark = pytest.mark.usefixtures("blank_pictures")
OWN = runpy.run_path(str(ROOT / "examples" / "own_task.py"))


def test_the_example_learns_and_predicts(model: Path, tmp_path: Path) -> None:
    task, sentences = OWN["SeveralTags"](), OWN["sentences"]
    run = finetune(
        task, train=sentences(96, 0), validation=sentences(20, 1), model=model, output=tmp_path / "run",
        epochs=8, metrics=Metric(OWN["mistakes"], lower_is_better=True), **FAST,
    )  # fmt: skip
    assert run.report is not None
    assert run.report["main_metric"] == "mistakes"
    assert run.metrics["exact"] > 0.8
    assert run.metrics["mistakes"] < 1
    measured = evaluate(run.folder, data=sentences(20, 1), task=task, device="cpu")
    assert measured.metrics == {"exact": run.metrics["exact"]}
    found = predict(run.folder, input=[{"words": ["the", "bread"]}] * 3, task=task, device="cpu")
    assert [one["row"] for one in found] == [1, 2, 3]
    with pytest.raises(ConfigError, match=r"was fine-tuned for 'several-tags', a task of your own"):
        evaluate(run.folder, data=sentences(3, 1), device="cpu")
    for name in (None, "token-classification", "ner", "text-classification"):
        with pytest.raises(ConfigError, match=r"was fine-tuned for 'several-tags', a task of your own"):
            pipeline(name, run.folder, device="cpu")
    assert pipeline("feature-extraction", run.folder, device="cpu")("the")
    answer = pipeline(task, run.folder, device="cpu")
    with pytest.raises(ConfigError, match=r"the model was fine-tuned for 'several-tags'"):
        pipeline(None, answer.model, answer.tokenizer)
    assert answer({"words": ["the", "bread"]})["labels"] == found[0]["labels"]
    frame = pd.DataFrame({"words": [["the", "bread"], ["ships"]]})
    assert [one["words"] for one in answer(frame)] == [["the", "bread"], ["ships"]]
    assert run.pipeline(device="cpu")([{"words": ["the", "bread"]}])[0]["labels"] == found[0]["labels"]


def test_a_finetuning_task_in_the_config_is_no_task_of_your_own(
    classifier: FinetuningRun, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(classifier.folder, tmp_path / "copy"))
    config = json.loads((copy / "config.json").read_text())
    del config["task_settings"]
    (copy / "config.json").write_text(json.dumps(config | {"finetuning_task": "mrpc"}))
    expected = pipeline(None, classifier.folder, device="cpu")("the river")
    assert pipeline(None, copy, device="cpu")("the river") == expected
    assert pipeline("text-classification", copy, device="cpu")("the river") == expected


def test_predict_counts_rows_that_the_task_cannot_read(model: Path, tmp_path: Path) -> None:
    task = OWN["SeveralTags"]()
    sentences = OWN["sentences"](20, 0)
    run = finetune(task, train=sentences, model=model, output=tmp_path / "run", steps=1, **FAST)
    with pytest.raises(DataError, match=r"1 of 2 rows cannot be read.*input, row 2: no 'words'"):
        predict(run.folder, input=[{"words": ["the"]}, {"text": "the"}], task=task, device="cpu")


def test_data_in_memory_give_the_results_of_a_file(classifier: FinetuningRun, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    file = tmp_path / "rows.csv"
    frame = pd.DataFrame(ROWS)
    frame.to_csv(file, index=False)
    examples = [TextExample(row["text"], label=row["label"]) for row in ROWS]
    expected = evaluate(classifier.folder, data=file, device="cpu")
    for data in (
        ROWS, frame, pa.Table.from_pylist(ROWS), datasets.Dataset.from_list(ROWS), examples, iter(examples)
    ):  # fmt: skip
        found = evaluate(classifier.folder, data=data, device="cpu")
        assert found.metrics == expected.metrics
    labels = [one["label"] for one in predict(classifier.folder, input=frame, device="cpu")]
    assert labels == [one["label"] for one in predict(classifier.folder, input=file, device="cpu")]
    written = predict(classifier.folder, input=ROWS, output=tmp_path / "out.jsonl", device="cpu")
    assert (written.total, len((tmp_path / "out.jsonl").read_text().splitlines())) == (10, 10)
    assert list(frame.join(pd.DataFrame(list(predict(classifier.folder, input=frame)))[["score"]])) == [
        "text", "label", "score",
    ]  # fmt: skip
    for wrong in (3, {"train": ROWS}):
        with pytest.raises(DataError):
            evaluate(classifier.folder, data=wrong, device="cpu")


@pytest.mark.parametrize("data", [[], (), iter([]), pd.DataFrame(), pa.Table.from_pylist([]), ["the river"]])
def test_data_without_examples_are_an_error(classifier: FinetuningRun, data: Any) -> None:
    with pytest.raises(DataError, match=r"^input (has no examples|is an iterable of texts)"):
        predict(classifier.folder, input=data, device="cpu")


def test_examples_are_held_out_without_validation_data(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    settings = {**FAST, "steps": 1, "model": model}
    run = finetune("text-classification", train=ROWS * 2, output=tmp_path / "run", **settings)
    assert run.report is not None
    counts = [run.report["data"][name]["examples"] for name in ("training", "validation")]
    assert counts == [18, 2]
    lines = [line for line in caplog.messages if line.startswith(("train:", "train ("))]
    assert lines == ["train: 18 examples", "train (held out): 2 examples"]
    (warning,) = (one for one in caplog.records if one.message.startswith("no validation data"))
    assert warning.levelname == "WARNING"
    expected = "holds out 2 of 20 training examples. They have 1 distinct text. With fewer than 20 "
    assert expected in warning.message
    rows = [*ROWS[3:8], {"text": "", "label": "bad"}]
    with pytest.raises(DataError, match=r"train: 5 training examples are too few .*\n.*\n  empty: 1\n"):
        finetune("text-classification", train=rows, output=tmp_path / "other", **settings)


def test_skipped_rows_are_logged_with_their_file(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    class Named(Small):
        def reader(self, source: Any, options: Any, *, labeled: bool = True) -> Any:
            rows = [*ROWS, {"label": "bad"}] if isinstance(source, str) else source
            return super().reader(rows, options, labeled=labeled)

    train(Named(), model, tmp_path / "run", train="rows.txt")
    assert "the given examples: 10 examples, 1 skipped" in caplog.messages
    assert "    the given examples, row 11: no 'text'" in caplog.messages


def test_unlabeled_examples_are_skipped_and_counted(
    model: Path, small_run: FinetuningRun, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    rows = [*ROWS, {"text": "the key"}]
    examples = [TextExample(row["text"], label=row.get("label")) for row in rows]
    for number, data in enumerate((rows, examples)):
        train(Small(), model, tmp_path / str(number), train=data)
        assert "train: 10 examples, 1 skipped" in caplog.messages
        assert "  unlabeled: 1" in caplog.messages
        assert len(evaluate(small_run.folder, data=data, task=Small(), device="cpu").examples) == 10
        assert len(predict(small_run.folder, input=data, task=Small(), device="cpu")) == 11
        with pytest.raises(DataError, match=r"there are no usable examples:\n.*1 skipped\n  unlabeled: 1"):
            train(Small(), model, tmp_path / "none", train=data[-1:])


def test_notes_describe_labels_of_any_shape() -> None:
    several = LabelSet(SEVERAL, ("food", "plant"))
    assert several.notes([[["food", "plant"], []], [["food"], ["food"]]])[0].endswith(": food 3, plant 1")
    mixed = LabelSet(CLASS, ("film", "stars"))
    for labels in ([{"topic": "film"}] * 2, [("film", 4.0)] * 2):
        assert mixed.notes(labels) == ["2 labels (single-label classification): film, stars"]
    numbers = LabelSet(NUMBER, ("stars",))
    assert numbers.notes([[[0.5, float("nan")], [3.0]]]) == ["labels are numbers (regression): 0.5 to 3"]
    assert numbers.notes([[0.5, 3.0], [1.0], 2.0]) == ["labels are numbers (regression): 0.5 to 3"]
    for labels in (iter([0.5, [3.0]]), [iter([0.5, 3.0])], {0.5, 3.0}, [{0.5}, {3.0}]):
        assert numbers.notes(labels) == ["labels are numbers (regression): 0.5 to 3"]
    assert numbers.notes([{"stars": 3}]) == ["labels are numbers (regression)"]


def test_a_json_line_keeps_all_fields_for_your_task(small_run: FinetuningRun, tmp_path: Path) -> None:
    task = changed(
        example=lambda _, row: TextExample(row["text"], label=row["extra"]),
        record=lambda _, example, __: {"label": example.label},
    )
    (tmp_path / "rows.jsonl").write_text('{"text": "the river", "extra": "good"}\n')
    answers = pipeline(task, small_run.folder, device="cpu")(tmp_path / "rows.jsonl")
    assert list(answers) == [{"label": "good"}]


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
