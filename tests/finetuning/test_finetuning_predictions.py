"""Prediction resumes after a kill, writes each file format, and uses the lengths saved with the model."""

import csv
import re
import shutil
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pandas
import pyarrow
import pytest
import torch
from finetuning_runs import FAST, texts
from json_lines import read_json_lines, write_json_lines

from albertkit import devices
from albertkit.config import AlbertConfig
from albertkit.datasets.examples import TextExample
from albertkit.datasets.options import DataOptions
from albertkit.datasets.rows import read_rows
from albertkit.errors import ConfigError, DataError
from albertkit.finetuning.evaluate import evaluate
from albertkit.finetuning.finetune import finetune
from albertkit.finetuning.predict import Item, Predictor, predict
from albertkit.finetuning.prepared import prepare, starting_model
from albertkit.finetuning.trained import task_settings
from albertkit.modeling import auto
from albertkit.modeling.heads import AlbertForTokenClassification
from albertkit.pipelines import pipeline
from albertkit.tasks.registry import TASKS
from albertkit.tasks.settings import TaskSettings
from albertkit.tokenization.tokenizer import AlbertTokenizer

pytestmark = pytest.mark.usefixtures("blank_pictures")


def test_an_engine_of_the_cpu_loads_the_model_there_by_default(
    classifier: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "best_device", lambda: torch.device("meta"))  # in place of a GPU
    rows = texts(6, 7)
    assert len(predict(classifier, input=rows, engine="onnx").records) == 6
    assert evaluate(classifier, data=rows, engine="onnx").metrics["accuracy"] >= 0
    for call in (lambda: predict(classifier, input=rows), lambda: evaluate(classifier, data=rows)):
        with pytest.raises(ConfigError, match="no device 'meta'"):
            call()


def test_predictions_go_on_after_a_kill(
    classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = texts(50, 7)
    source = write_json_lines(
        tmp_path / "input.jsonl", [{"text": row["text"], "name": str(n)} for n, row in enumerate(rows)]
    )
    monkeypatch.setattr("albertkit.finetuning.predict.CHUNK", 8)
    computed: list[int] = []

    def predicted(output: Path, *, stop_after: int | None = None) -> int:
        def progress(count: int, total: int) -> None:
            assert total == 50
            computed.append(count)
            if stop_after is not None and count >= stop_after:
                raise KeyboardInterrupt

        return predict(classifier, input=source, output=output, id_column="name", progress=progress).total

    with pytest.raises(KeyboardInterrupt):
        predicted(tmp_path / "out.jsonl", stop_after=24)
    assert not (tmp_path / "out.jsonl").exists()
    computed.clear()
    assert predicted(tmp_path / "out.jsonl") == 50
    assert computed == [32, 40, 48, 50]
    said = read_json_lines(tmp_path / "out.jsonl")
    assert [one["id"] for one in said] == [str(number) for number in range(50)]
    assert [one["row"] for one in said] == [*range(1, 51)]
    right = sum(one["label"] == row["label"] for one, row in zip(said, rows, strict=True))
    assert right >= 48
    assert predicted(tmp_path / "out.csv") == 50
    with (tmp_path / "out.csv").open(newline="") as file:
        assert [row["label"] for row in csv.DictReader(file)] == [one["label"] for one in said]
    assert predicted(tmp_path / "out.parquet") == 50
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


def test_the_same_values_are_the_same_input(
    classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large arrays are compared as a whole, and objects by their values."""
    monkeypatch.setattr("albertkit.finetuning.predict.CHUNK", 2)

    class Item:
        def __init__(self, value: int) -> None:
            self.value = value

    def rows(changed: int = 0, value: int = 7) -> list[dict[str, Any]]:
        vector = np.arange(5000)
        vector[2500] += changed
        return [{"text": row["text"], "vector": vector, "item": Item(value)} for row in texts(6, 7)]

    def start(given: list[dict[str, Any]], progress: Any = lambda *_: None) -> int:
        return predict(classifier, input=given, output=tmp_path / "out.jsonl", progress=progress).total

    def stop(*_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start(rows(), stop)
    for other in (rows(changed=1), rows(value=8)):
        with pytest.raises(DataError, match="an interrupted run with different content of the input"):
            start(other)
    counts: list[int] = []
    assert start(rows(), lambda done, _: counts.append(done)) == 6
    assert counts == [4, 6]


def test_predictions_in_int8_go_on_in_int8(
    classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_json_lines(tmp_path / "input.jsonl", texts(6, 7))
    monkeypatch.setattr("albertkit.finetuning.predict.CHUNK", 2)

    def stop(*_: int) -> None:
        raise KeyboardInterrupt

    def predicted(engine: str, progress: Any = None) -> int:
        output = tmp_path / "out.jsonl"
        return predict(classifier, input=source, output=output, engine=engine, progress=progress).total

    monkeypatch.setattr(Predictor, "__call__", lambda self, asked: b"{}\n" * len(asked))
    with pytest.raises(KeyboardInterrupt):
        predicted("onnx-int8", stop)
    with pytest.raises(DataError, match="an interrupted run with different engine"):
        predicted("onnx")
    assert predicted("onnx-int8") == 6


def test_the_tsv_file_is_read_as_it_was_written(
    classifier: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    said = ['the "lost" river', '"painted" key', 'the\tlost\r\n"house"', '"a secret" painted']
    rows = [{"text": text, "label": label} for text, label in zip(said, ["bad", "good"] * 2, strict=True)]
    source = write_json_lines(tmp_path / "in.jsonl", rows)
    predict(classifier, input=source, output=tmp_path / "out.tsv", keep_columns=True)
    assert [one.getMessage() for one in caplog.records if one.levelname == "WARNING"] == [
        "replaced the tabs and line breaks in 1 cell with spaces, because a .tsv file cannot contain them. "
        "To keep them, write a .jsonl, .csv or .parquet file."
    ]
    read = [row.values["text"] for row in read_rows(tmp_path / "out.tsv")]
    assert read == [*said[:2], 'the lost  "house"', said[3]]
    again = predict(classifier, input=tmp_path / "out.tsv", text_column="text")
    before = predict(classifier, input=source)
    assert [one["scores"] for one in again] == [one["scores"] for one in before]
    scores = evaluate(classifier, data=tmp_path / "out.tsv", label_column="input_label").metrics
    assert scores == evaluate(classifier, data=source).metrics


def test_kept_columns_have_json_values() -> None:
    """pandas reads lists as arrays, and has its own values for missing cells."""
    pd = pytest.importorskip("pandas")
    vector = np.arange(2000, dtype=np.float32)
    kept = {
        "a": vector,
        "b": {"c": np.array([1.5, np.nan])},
        "d": np.int64(3),
        "e": pd.NaT,
        "f": pd.NA,
        "g": " ",
    }
    found = Item(None, 1, kept=kept).columns_beside({})
    assert found == {
        **{"row": 1, "a": vector.tolist(), "b": {"c": [1.5, None]}, "d": 3},
        **{"e": None, "f": None, "g": " "},
    }


def test_a_lone_surrogate_in_a_kept_column_is_an_error(classifier: Path, tmp_path: Path) -> None:
    rows = [{"text": "the river"}, {"text": "the key", "note": "\ud800"}]
    with pytest.raises(DataError, match=r"row 2: \\ud800 is a lone surrogate"):
        predict(classifier, input=rows, output=tmp_path / "out.csv", keep_columns=True)
    assert not list(tmp_path.iterdir())


def sources(folder: Path, rows: list[dict[str, Any]]) -> list[Any]:
    """Return the same rows as a list, a DataFrame and in files of each format."""
    frame = pandas.DataFrame(rows)
    frame.to_csv(folder / "in.csv", index=False)
    frame.to_parquet(folder / "in.parquet")
    files = [write_json_lines(folder / "in.jsonl", rows), folder / "in.csv", folder / "in.parquet"]
    return [rows, iter(rows), frame, pyarrow.Table.from_pandas(frame), *files]


def test_the_same_rows_have_the_same_predictions_in_every_form(classifier: Path, tmp_path: Path) -> None:
    rows = [{"text": "the river", "id": 1, "mark": "a"}, {"text": "lost", "id": 2, "mark": None}]
    expected = predict(classifier, input=rows, id_column="id", keep_columns=True).records
    assert [(one["id"], one["text"], one["mark"]) for one in expected] == [
        ("1", "the river", "a"),
        ("2", "lost", None),
    ]
    for source in sources(tmp_path, rows):
        found = predict(classifier, input=source, id_column="id", keep_columns=True)
        records = [one | {"mark": one["mark"] or None} for one in found]  # a .csv file has no None
        assert records == expected
    for name in ("out.jsonl", "out.csv", "out.tsv", "out.parquet"):
        output = tmp_path / name
        found = predict(classifier, input=rows, id_column="id", keep_columns=True, output=output)
        assert [(str(one["row"]), one["id"], one["mark"] or None, one["label"]) for one in found] == [
            (str(one["row"]), one["id"], one["mark"], one["label"]) for one in expected
        ]
        score = found[0]["scores"]["bad"] if name == "out.jsonl" else found[0]["score_bad"]
        assert float(score) == expected[0]["scores"]["bad"]
    gap = pandas.DataFrame([{"text": "a", "id": 1}, {"text": "b", "id": None}])
    assert [one.get("id") for one in predict(classifier, input=gap, id_column="id")] == ["1", None]


def test_the_column_of_ids_is_remembered(model: Path, tmp_path: Path) -> None:
    rows = [row | {"key": f"k{number}"} for number, row in enumerate(texts(8, 0))]
    settings = replace(FAST, epochs=1)
    run = tmp_path / "run"
    finetune(
        "text-classification", recipe=settings, model=model, train=rows, validation=rows, output=run,
        id_column="key", device="cpu",
    )  # fmt: skip
    ids = [row["key"] for row in rows]
    assert [one["id"] for one in predict(run, input=rows)] == ids
    assert "id" not in predict(run, input=[{"text": "the key"}])[0]


def test_an_unfinished_run_names_its_best_model(
    classifier: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    run = tmp_path / "run"
    shutil.copytree(classifier, run)
    (run / "best").mkdir()
    predict(run, input=texts(1, 0))
    assert "has not finished" not in caplog.text
    (run / "report.json").unlink()  # written when the run finishes
    predict(run, input=texts(1, 0))
    assert f"has not finished. This is its last model; its best is {run / 'best'}." in caplog.text


def test_predictions_in_a_workbook(
    classifier: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [
        {
            "text": "the river",
            "when": date(2026, 3, 2),
            "at": datetime(2026, 3, 2, 9, 30),
            "=n": 2.5,
            "key": 10**17,
        },
        {"text": "=1+1\nkey", "when": None, "at": datetime(2026, 3, 3), "=n": None, "key": 3},
    ]
    book = openpyxl.Workbook()
    for cells in ([*rows[0]], *(row.values() for row in rows)):
        book.active.append([*cells])
    book.active["A3"].data_type = book.active["D1"].data_type = "s"
    book.active["E2"] = str(10**17)
    book.save(tmp_path / "in.xlsx")
    for source in (rows, tmp_path / "in.xlsx"):
        output = tmp_path / f"{type(source).__name__}.xlsx"
        made = predict(classifier, input=source, output=output, keep_columns=True)
        sheet = openpyxl.load_workbook(output).active
        head, first, second = sheet.iter_rows(values_only=True)
        assert head[:7] == ("row", "text", "when", "at", "=n", "key", "label")
        assert first[:6] == (
            1,
            "the river",
            datetime(2026, 3, 2),
            datetime(2026, 3, 2, 9, 30),
            2.5,
            str(10**17),
        )
        assert second[:6] == (2, "=1+1\nkey", None, datetime(2026, 3, 3), None, 3)
        assert (sheet["B3"].data_type, sheet["E1"].data_type, sheet["C2"].is_date) == ("s", "s", True)
        expected = predict(classifier, input=rows)
        assert [one["label"] for one in made] == [one["label"] for one in expected]
        assert made[1]["score_bad"] == pytest.approx(expected[1]["scores"]["bad"], rel=1e-15)
    assert not caplog.messages or "control characters" not in caplog.text
    strange = [{"text": "the river", "note": note} for note in ("a\x07b", "c" * 40_000, "2026-02-30")]
    predict(classifier, input=strange, output=tmp_path / "b.xlsx", keep_columns="note")
    notes = [row[1] for row in openpyxl.load_workbook(tmp_path / "b.xlsx").active.iter_rows(values_only=True)]
    assert notes == ["note", "a b", "c" * 32_767, "2026-02-30"]
    assert "changed 2 texts, because a cell in Excel" in caplog.text


def test_some_columns_are_kept(classifier: Path, tmp_path: Path) -> None:
    rows = [{"text": "the river", "a,b": 1, "label": "x", "c": 2}]
    for names, kept in (("c,a,b", None), ("a,b", ["a,b"]), (["c", "label"], ["c", "input_label"]), ((), [])):
        if kept is None:
            with pytest.raises(DataError, match=r"no column 'a'.* --keep-columns"):
                predict(classifier, input=rows, keep_columns=names)
            continue
        (record,) = predict(classifier, input=rows, keep_columns=names)
        assert [*record] == ["row", *kept, "label", "score", "scores", "cut"]


def test_the_delimiter_of_the_output_for_sources_without_one(classifier: Path, tmp_path: Path) -> None:
    rows = [{"text": "the river"}]
    for number, name in enumerate(("in.xlsx", "in.jsonl", None)):
        source: Any = rows if name is None else tmp_path / name
        if name is not None:
            predict(classifier, input=rows, keep_columns=True, output=source)
        output = tmp_path / f"{number}.csv"
        options = {"text_column": "text", "delimiter": ";"}
        made = predict(classifier, input=source, output=output, keep_columns="text", **options)
        assert output.read_text().startswith("row;text;label;")
        assert made[0]["text"] == "the river"


def test_the_encoding_of_the_output(classifier: Path, tmp_path: Path) -> None:
    for encoding, mark in (("utf-8-sig", b"\xef\xbb\xbfrow"), ("utf-16", b"\xff\xfe"), ("cp1252", b"row")):
        (tmp_path / "in.csv").write_text("text;note\nthe river;gr\u00fcn\n", encoding=encoding)
        for suffix in (".csv", ".tsv"):
            output = tmp_path / f"{encoding}{suffix}"
            made = predict(
                classifier, input=tmp_path / "in.csv", output=output, encoding=encoding, keep_columns=True
            )
            assert output.read_bytes().startswith(mark)
            assert "gr\u00fcn" in output.read_text(encoding=encoding)
            assert made[0]["note"] == "gr\u00fcn"
    rows = [{"text": "the river", "note": "\u6cb3"}]
    with pytest.raises(
        ConfigError, match=r"out\.csv: cp1252 cannot encode '\u6cb3'\. Choose another --encoding"
    ):
        predict(classifier, input=rows, output=tmp_path / "out.csv", encoding="cp1252", keep_columns=True)
    made = predict(
        classifier, input=rows, output=tmp_path / "out.csv", encoding="utf-8-sig", keep_columns=True
    )
    assert made[0]["note"] == "\u6cb3"


def test_a_csv_file_has_the_delimiter_of_the_input(classifier: Path, tmp_path: Path) -> None:
    for delimiter, mark in ((";", ";"), ("\\t", "\t")):
        (tmp_path / "in.csv").write_text(f"text{mark}note\nthe river{mark}a,b\n")
        output = tmp_path / f"{len(delimiter)}.csv"
        made = predict(
            classifier, input=tmp_path / "in.csv", output=output, delimiter=delimiter, keep_columns="note"
        )
        assert output.read_text().startswith(f"row{mark}note{mark}label")
        assert made[0]["note"] == "a,b"


def test_a_row_without_text_has_no_prediction(
    classifier: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    rows = [{"text": "the river"}, {"text": " "}, {"text": None}, {"text": "\u200b"}]
    first, *others = predict(classifier, input=rows)
    assert "problem" not in first
    for record, problem in zip(others, ("empty", "empty", "no tokens"), strict=True):
        assert record["label"] is record["score"] is None
        assert record["scores"] == dict.fromkeys(first["scores"])
        assert record["problem"] == problem
    predict(classifier, input=rows, output=tmp_path / "out.csv")
    assert re.findall(r"(\d+) predictions in .*: (\d+)", caplog.text) == [("1", "3")]
    predict(classifier, input=rows, output=tmp_path / "abstained.csv", threshold=1.0)
    found = re.findall(r"(\d+) predictions in .*prediction: (\d+).*threshold: (\d+)", caplog.text)
    assert found == [("0", "3", "1")]
    predict(classifier, input=[{"text": "the river " * 300}], output=tmp_path / "cut.csv", threshold=1.0)
    assert "1 of 1 examples were truncated" in caplog.text
    with (tmp_path / "out.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [(one["label"], one["problem"]) for one in lines] == [
        (first["label"], ""), ("", "empty"), ("", "empty"), ("", "no tokens"),
    ]  # fmt: skip
    pairs = [{"text": "the river", "other": ""}, {"text": "the river", "other": "a"}]
    records = predict(classifier, input=pairs, keep_columns=True, text_column="other").records
    assert [one.get("problem") for one in records] == ["empty", None]
    examples = [TextExample(""), TextExample("the river")]
    assert [one.get("problem") for one in predict(classifier, input=examples)] == ["empty", None]


@pytest.mark.parametrize("name", ["out.jsonl", "out.csv", "out.parquet"])
def test_predictions_in_a_file_are_a_sequence_too(classifier: Path, tmp_path: Path, name: str) -> None:
    rows = [{"text": "the river"}, {"text": "the key"}]
    made, expected = predict(classifier, input=rows, output=tmp_path / name), predict(classifier, input=rows)
    assert len(made) == made.total == len(expected) == 2
    assert [one["label"] for one in made] == [one["label"] for one in expected]
    assert made[1]["label"] == expected[1]["label"]
    assert f"label: {expected[0]['label']}" in str(made)


def test_kept_columns_with_one_name_are_an_error(classifier: Path, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("text,a,a\nthe river,1,2\n")
    assert len(predict(classifier, input=tmp_path / "in.csv")) == 1
    with pytest.raises(DataError, match=r"2 columns are named 'a'\. Rename all but one"):
        predict(classifier, input=tmp_path / "in.csv", keep_columns=True)


def test_predictions_in_memory_refuse_options_without_effect(classifier: Path) -> None:
    with pytest.raises(ConfigError, match=r"runner is 'ray'.* Pass output"):
        predict(classifier, input=[{"text": "the river"}], runner="ray")
    with pytest.raises(ConfigError, match="keep_columns is for tables, but input has no columns"):
        predict(classifier, input=[TextExample("the river")], keep_columns=True)


def test_predictions_count_truncated_tokens(classifier: Path, tmp_path: Path) -> None:
    source = write_json_lines(
        tmp_path / "in.jsonl", [{"text": "river"}, {"text": "river " * 100}, {"text": "river " * 60}]
    )
    made = predict(classifier, input=source, output=tmp_path / "out.jsonl")
    tokenizer = AlbertTokenizer.from_pretrained(classifier)
    lengths = [len(tokenizer(text)["input_ids"]) for text in ("river", "river " * 100, "river " * 60)]
    expected = [max(0, length - 48) for length in lengths]
    lines = read_json_lines(tmp_path / "out.jsonl")
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
    loaded.save_pretrained(tmp_path / "model")
    AlbertTokenizer.from_pretrained(model).save_pretrained(tmp_path / "model")
    for kind in ("jsonl", "csv", "parquet"):
        output = tmp_path / f"out.{kind}"
        made = predict(tmp_path / "model", task=task, input=[row] * 3, output=output, **options)
        assert made.total == 3
    lines = read_json_lines(tmp_path / "out.jsonl")
    assert all(set(line) == expected for line in lines)
    assert [line["row"] for line in lines] == [1, 2, 3]


def test_a_sentence_without_words_has_no_labels(model: Path, tmp_path: Path) -> None:
    loaded = AlbertForTokenClassification(AlbertConfig.from_pretrained(model))
    loaded.save_pretrained(tmp_path / "model")
    AlbertTokenizer.from_pretrained(model).save_pretrained(tmp_path / "model")
    rows = [{"tokens": []}, {"tokens": ["the", "key"]}, {"tokens": []}]
    found = predict(tmp_path / "model", task="token-classification", input=rows)
    assert [(one["tokens"], one.get("problem")) for one in found.records] == [
        (None, "empty"),
        (["the", "key"], None),
        (None, "empty"),
    ]
    assert [one["labels"] and len(one["labels"]) for one in found.records] == [None, 2, None]


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
    """config.json contains the lengths, so pipelines and `predict` truncate alike."""
    given = TaskSettings(max_length=16, doc_stride=3, max_question_length=5, max_answer_length=2)
    prepared = prepare(
        TASKS[task](),
        replace(FAST, task=given),
        model=model,
        train=write_json_lines(tmp_path / "train.jsonl", rows),
        validation=tmp_path / "train.jsonl",
        options=DataOptions(**options),
    )
    is_questions = task == "question-answering"
    others = {"doc_stride": 3, "max_question_length": 5, "max_answer_length": 2} if is_questions else {}
    folder = tmp_path / "tuned"
    starting_model(prepared, FAST).save_pretrained(folder)
    prepared.task.tokenizer.save_pretrained(folder)
    assert AlbertConfig.from_pretrained(folder).extra["task_settings"] == {"max_length": 16, **others}
    found = task_settings(folder, {})
    assert found == replace(TaskSettings(max_length=16), **others)
    assert task_settings(folder, {"max_length": 20}).max_length == 20
    # The same answers as `predict` gives, without a word about lengths.
    pipe: Any = pipeline(task, folder)
    record, row = predict(folder, input=rows, **options)[0], rows[0]
    if task == "text-classification":
        (answer,) = pipe(row["text"])
        assert answer["cut"] == record["cut"] > 0
        assert pipe(row["text"], truncation=True) == [answer]
        with pytest.raises(DataError, match="but the maximum is 16"):
            pipe(row["text"], truncation=False)
        assert "cut" not in pipe(row["text"], max_length=48)[0]
        with pytest.raises(DataError, match="but the maximum is 17"):
            pipe(row["text"], max_length=17)
    elif task == "token-classification":
        said = pipe(row["tokens"], is_split_into_words=True, ignore_labels=())
        first = [one["entity"] for one in said if one["word"].startswith("\N{LOWER ONE EIGHTH BLOCK}")]
        assert first == record["labels"]
        return
    elif is_questions:
        answer = pipe(question=row["question"], context=row["context"])
        assert (answer["start"], answer["end"]) == (record["start"], record["end"])
    else:
        asked = {"context": row["sent1"], "question": row["sent2"], "choices": row["choices"]}
        answer = pipe(asked)
        assert answer["cut"] == record["cut"] > 0
        assert pipe(asked, truncation=True) == answer
        with pytest.raises(DataError, match="maximum is 16"):
            pipe(asked, truncation=False)
    assert answer["score"] == pytest.approx(record["score"], rel=1e-4)
