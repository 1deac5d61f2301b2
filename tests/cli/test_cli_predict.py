"""Tests of `predict`: its input, its tables of predictions, and interrupted runs."""

import csv
import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from command_line import TEXT, Run, assert_one_line_error, run_predict
from json_lines import read_json_lines, write_json_lines
from pyarrow import parquet

from albertkit.finetuning.predict import Item, Predictor
from albertkit.logs import ProgressBar
from albertkit.tasks.loading import CHUNK

pytestmark = pytest.mark.usefixtures("blank_pictures")


def test_empty_texts_are_predicted_and_counted(classifier: Path, tmp_path: Path, run: Run) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "the house"}\n{"text": ""}\n')
    result = run(
        "predict", "--model", classifier, "--input", rows, "--device", "cpu",
        "--output", tmp_path / "answers.jsonl",
    )  # fmt: skip
    assert len((tmp_path / "answers.jsonl").read_text().splitlines()) == 2
    assert "  empty: 1\n" in result.errors
    assert "rows.jsonl, line 2: no text in 'text', so the row has no prediction" in result.errors


def test_predict_uses_the_columns_of_the_fine_tuning(classifier: Path, tmp_path: Path, run: Run) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("sentence,kind\nthe house,old\nthe river,new\n")
    output = tmp_path / "answers.csv"
    result = run_predict(run, classifier, rows, output)
    assert result.status == 0, result.errors
    assert "options from the fine-tuning run: --text-column sentence\n" in result.errors
    result = run("evaluate", "--model", classifier, "--data", rows, "--device", "cpu")
    assert result.status == 0, result.errors
    assert "options from the fine-tuning run: --text-column sentence --label-column kind\n" in result.errors
    # A flag overrides these columns, and albertkit ignores them if a file does not have them.
    output.unlink()
    result = run_predict(run, classifier, rows, output, "--text-column", "kind")
    assert (result.status, "options from the fine-tuning run" in result.errors) == (0, False)
    other = tmp_path / "other.jsonl"
    other.write_text('{"text": "the house"}\n')
    output.unlink()
    result = run_predict(run, classifier, other, output)
    assert (result.status, "options from the fine-tuning run" in result.errors) == (0, False)
    result = run_predict(run, classifier, other, output, "--text-column", "sentence")
    assert_one_line_error(result, "no column 'sentence'. The columns are text", "--text-column")


def test_a_file_of_excel_and_named_columns(classifier: Path, tmp_path: Path, run: Run) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_bytes("Nr;sentence;Kanal\r\n7;the house f\xfcr;mail\r\n;;\r\n".encode("cp1252"))
    output = tmp_path / "answers.csv"
    result = run_predict(run, classifier, rows, output)
    assert "rows.csv, line 2: not UTF-8" in result.errors
    assert "--encoding cp1252" in result.errors
    flags = ("--encoding", "cp1252", "--keep-columns", "Kanal,Nr")
    result = run_predict(run, classifier, rows, output, *flags)
    assert result.status == 0, result.errors
    (record,) = csv.DictReader(output.read_text(encoding="cp1252").splitlines())
    assert [*record.items()][:3] == [("row", "1"), ("Kanal", "mail"), ("Nr", "7")]
    result = run_predict(
        run, classifier, output, tmp_path / "b.xlsx", "--keep-columns=no", "--text-column", "Kanal"
    )
    assert_one_line_error(result, "no column 'no'", "--keep-columns")
    result = run_predict(run, classifier, rows, tmp_path / "b.csv", "--sheet", "a")
    assert_one_line_error(result, "sheet is for XLSX files")


def test_tables_have_a_column_for_each_score(classifier: Path, tmp_path: Path, run: Run) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text('name,sentence,score,more\nn1,the house,3,"a\tb"\nn2,the river,4,\n')
    records = {}
    for kind in ("jsonl", "csv", "tsv", "parquet"):
        output = tmp_path / f"answers.{kind}"
        result = run_predict(run, classifier, rows, output, "--keep-columns", "--id-column", "name")
        assert result.status == 0, result.errors
        if kind == "jsonl":
            records[kind] = read_json_lines(output)
        elif kind == "parquet":
            records[kind] = parquet.read_table(output).to_pylist()
        else:
            with output.open(newline="") as stream:
                records[kind] = [*csv.DictReader(stream, delimiter="\t" if kind == "tsv" else ",")]
    first = records["jsonl"][0]
    names = ["row", "id", "sentence", "input_score", "more", "label", "score", "scores", "cut"]
    assert list(first) == names
    assert (first["row"], first["id"], first["input_score"], first["more"]) == (1, "n1", "3", "a\tb")
    assert list(first["scores"]) == ["new", "old"]
    assert first["score"] == max(first["scores"].values())
    flat = [{name: one[name] for name in names if name != "scores"} for one in records["jsonl"]]
    for one, record in zip(flat, records["jsonl"], strict=True):
        one |= {f"score_{name}": score for name, score in record["scores"].items()}
    assert records["parquet"] == flat
    cells = [{name: str(value) for name, value in one.items()} for one in flat]
    assert records["csv"] == cells
    assert records["tsv"] == [one | {"more": one["more"].replace("\t", " ")} for one in cells]


def test_all_unreadable_rows_are_counted_first(classifier: Path, tmp_path: Path, run: Run) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("text\na\nb,c\nd\n" + "e,f\n" * 6)
    result = run_predict(run, classifier, rows, tmp_path / "answers.csv", *TEXT)
    assert_one_line_error(result, "7 of 9 rows cannot be read", "line 3: 2 cells, expected 1; ")
    assert "line 8: 2 cells, expected 1; ..." in result.errors
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


def test_an_interrupted_prediction_is_resumed(
    classifier: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C shows the number of kept predictions. Only a change of the input is an error."""
    rows, output = tmp_path / "rows.jsonl", tmp_path / "answers.jsonl"
    rows.write_text("".join(f'{{"text": "the house {number}"}}\n' for number in range(CHUNK + 3)))
    computed: list[int] = []
    whole = Predictor.__call__

    def stopped(self: Predictor, asked: list[Item]) -> bytes:
        if len(asked) < CHUNK:
            raise KeyboardInterrupt
        return whole(self, asked)

    def counted(self: Predictor, asked: list[Item]) -> bytes:
        computed.append(len(asked))
        return whole(self, asked)

    monkeypatch.setattr(ProgressBar, "SECONDS", 0.0)
    monkeypatch.setattr(ProgressBar, "DELAY", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(Predictor, "__call__", stopped)
        result = run_predict(run, classifier, rows, output, *TEXT)
    assert result.status == 130
    parts = tmp_path / "answers.jsonl.partial"
    assert result.errors.splitlines() == [
        "1,024 of 1,027 examples",
        f"interrupted: 1,024 of 1,027 predictions are kept in {parts}; the same command resumes the work",
    ]
    content = rows.read_text()
    rows.write_text(content + '{"text": "the key"}\n')
    result = run_predict(run, classifier, rows, output, *TEXT)
    assert_one_line_error(result, "run with different content of the input", "or delete the file")
    result = run_predict(run, classifier, rows, output, "--max-length", "8", "--keep-columns", *TEXT)
    assert "different max_length, keep_columns, content of the input." in result.errors.replace("  ", " ")
    rows.write_text(content)
    os.utime(rows, (0, 0))
    output.write_text("older")
    monkeypatch.setattr(Predictor, "__call__", counted)
    result = run_predict(run, classifier, rows, output, *TEXT)
    assert_one_line_error(result, f"{output} exists. Choose another name")
    assert output.read_text() == "older"
    output.unlink()
    result = run_predict(run, classifier, rows, output, *TEXT)
    assert result.status == 0, result.errors
    assert computed == [3]
    assert result.errors.splitlines() == [
        f"resuming after 1,024 of 1,027 predictions that an interrupted run kept in {parts}",
        f"1,027 predictions in {output}",
    ]
    assert len(output.read_text().splitlines()) == CHUNK + 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["answers.jsonl", "rows.jsonl"]


def test_a_folder_is_no_output(classifier: Path, tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "split"
    folder.mkdir()
    table = pa.Table.from_pylist([{"text": "the house"}])
    with pa.OSFile(str(folder / "data.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    (folder / "state.json").write_text('{"_data_files": [{"filename": "data.arrow"}]}')
    result = run_predict(run, classifier, folder, tmp_path / "answers.jsonl", *TEXT)
    assert result.status == 0, result.errors
    (tmp_path / "folder.csv").mkdir()
    result = run_predict(run, classifier, folder, tmp_path / "folder.csv", *TEXT)
    assert_one_line_error(result, "folder.csv exists. Choose another name")


def test_damaged_parts_are_an_error(classifier: Path, tmp_path: Path, run: Run) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "the house"}\n')
    partial = tmp_path / "answers.jsonl.partial"
    for content in ("{", "[1]", "null"):
        partial.write_text(content + "\n")
        result = run_predict(run, classifier, rows, tmp_path / "answers.jsonl", *TEXT)
        assert_one_line_error(result, str(partial), "is damaged")


def test_damaged_columns_of_a_report_are_an_error(classifier: Path, tmp_path: Path, run: Run) -> None:
    copy = tmp_path / "model"
    shutil.copytree(classifier, copy)
    rows = tmp_path / "rows.csv"
    rows.write_text("text\na\n")
    report = json.loads((copy / "report.json").read_text())
    for damaged in ([], "text", {"text_column": 3}, {"texts": "a"}):
        (copy / "report.json").write_text(json.dumps(report | {"columns": damaged}))
        result = run_predict(run, copy, rows, tmp_path / "answers.csv")
        assert_one_line_error(result, str(copy / "report.json"))


def test_a_prediction_that_cannot_start_leaves_nothing(classifier: Path, tmp_path: Path, run: Run) -> None:
    """`predict` leaves no file. Suffixes may be in capitals."""
    rows = tmp_path / "rows.CSV"
    rows.write_text("text\na\n")
    output = tmp_path / "answers.CSV"
    assert_one_line_error(
        run_predict(run, classifier, rows, output, "--engine", "onxx", *TEXT), "no engine 'onxx'"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["rows.CSV"]
    (tmp_path / "answers.CSV.partial").write_text("{")  # left by a process that was killed at its start
    result = run_predict(run, classifier, rows, output, "--max-length", "8", *TEXT)
    assert result.status == 0, result.errors
    assert output.read_text().startswith("row,label,score,score_new,score_old,cut\n1,")
    result = run_predict(run, classifier, rows, rows / "answers.csv", *TEXT)
    assert_one_line_error(result, "rows.CSV is a file. Expected a folder")


def test_a_failed_prediction_shows_the_number_of_kept_predictions(
    classifier: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "the house"}\n' * (CHUNK + 1))
    whole = Predictor.__call__

    def failing(self: Predictor, asked: list[Item]) -> bytes:
        if len(asked) < CHUNK:
            raise OSError(28, "No space left on device", "disk")
        return whole(self, asked)

    monkeypatch.setattr(Predictor, "__call__", failing)
    result = run_predict(run, classifier, rows, tmp_path / "answers.csv")
    assert result.status == 1
    assert "stopped: 1,024 of 1,025 predictions are kept in" in result.errors
    assert "the same command resumes the work" in result.errors


def test_columns_of_several_types_become_text_in_parquet(classifier: Path, tmp_path: Path, run: Run) -> None:
    rows = tmp_path / "rows.jsonl"
    values = [1, "one", {"x": [2]}, None, 2.5]
    lines = [{"text": "a", "mixed": value, "number": number} for number, value in enumerate(values)]
    write_json_lines(rows, lines)
    result = run_predict(run, classifier, rows, tmp_path / "answers.parquet", "--keep-columns")
    assert result.status == 0, result.errors
    found = parquet.read_table(tmp_path / "answers.parquet").to_pydict()
    assert found["mixed"] == ["1", "one", '{"x": [2]}', None, "2.5"]
    assert found["number"] == [0, 1, 2, 3, 4]
