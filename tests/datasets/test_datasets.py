"""Text tables of every format give the same examples, and errors name the file and the row or column."""

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from labeled_files import CLASSES, SEVERAL, Write, label_counts, load_splits, report_of

from albertkit import text_files
from albertkit.datasets.examples import ChoiceExample, QuestionExample, TextExample, WordsExample
from albertkit.datasets.options import DataOptions
from albertkit.datasets.rows import as_source, read_rows
from albertkit.errors import ConfigError, DataError, MissingExtraError
from albertkit.extras import optional


def test_every_format_gives_the_same_examples(tmp_path: Path, write: Write) -> None:
    texts = ['He said "no", then\nleft.', "Fünf  Äpfel\t7"]
    rows = [{"body": texts[0], "stars": 1, "key": "a"}, {"body": texts[1], "stars": 0, "key": "b"}]
    table = pa.Table.from_pylist(rows)
    parquet.write_table(table, tmp_path / "a.parquet")
    with pa.ipc.new_stream(str(tmp_path / "a.arrow"), table.schema) as stream:
        stream.write_table(table)
    write("a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    quoted = 'body,stars,key\r\n"He said ""no"", then\nleft.",1,a\r\n\r\nFünf  Äpfel\t7,0,b\r\n'
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(write("a.csv", quoted).read_bytes()))
    (tmp_path / "a.parquet.gz").write_bytes(gzip.compress((tmp_path / "a.parquet").read_bytes()))
    columns = DataOptions(text_column="body", label_column="stars", id_column="key")
    expected = [TextExample(texts[0], None, "1", "a"), TextExample(texts[1], None, "0", "b")]
    for name in ("a.csv", "a.csv.gz", "a.jsonl", "a.parquet", "a.parquet.gz", "a.arrow"):
        assert list(TextExample.read(tmp_path / name, columns)) == expected, name
    assert list(TextExample.read(rows, columns)) == expected
    reader = TextExample.read(tmp_path / "a.csv", columns)
    assert list(reader) == list(reader)


def test_pandas_reads_lists_of_parquet_as_arrays(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    row = {
        **{"text": "t", "label": ["a", "b"], "tokens": ["The", "ship"], "ner_tags": [0, 1]},
        **{"question": "Who?", "context": "Anne left.", "answers": {"text": ["Anne"], "answer_start": [0]}},
        **{"sent1": "It left.", "sent2": "What?", "endings": ["fox", "ship"]},
    }
    parquet.write_table(pa.Table.from_pylist([row]), tmp_path / "a.parquet")
    (read,) = pd.read_parquet(tmp_path / "a.parquet").to_dict("records")
    assert isinstance(read["tokens"], np.ndarray)
    choices = DataOptions(choice_columns="endings", label_column="place")
    read["place"] = row["place"] = 1
    for reader, options in (
        (TextExample.read, None),
        (WordsExample.read, None),
        (QuestionExample.read, None),
        (ChoiceExample.read, choices),
    ):
        (example,) = reader([read], options)
        assert [example] == list(reader([row], options))


def test_columns_without_names_have_their_numbers() -> None:
    """pandas numbers the columns of a file without a header."""
    pd = pytest.importorskip("pandas")
    source = as_source(pd.DataFrame([["a", "x"], ["b", "y"]]), name="train")
    with pytest.raises(DataError, match=r"no column .text.\. The columns are 0, 1"):
        TextExample.read(source)
    (first, _) = TextExample.read(source, DataOptions(text_column="0", label_column="1"))
    assert first == TextExample("a", None, "x", "train, row 1")


def test_names_of_columns_are_text() -> None:
    """`csv.DictReader` stores additional cells under None."""
    rows = list(csv.DictReader(["text,label", "a,x", "b,y,z"]))
    with pytest.raises(DataError, match=r"row 2: expected a mapping from column names"):
        list(TextExample.read(rows))


def test_plain_files_need_no_library_of_the_extra(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "pa", optional("no_such_library", extra="train"))
    path = write("a.txt", "one\ntwo\n")
    lines = text_files.read_lines(path)
    assert next(lines)[1] == "one\n"
    lines.close()  # left alone, an error here would only be printed
    with pytest.raises(MissingExtraError, match="no_such_library"):
        next(text_files.read_lines(write("a.txt.gz", "one\n")))


def test_quotes_in_tsv_are_text(write: Write) -> None:
    file = write("a.tsv", 'sentence\tlabel\n"broken quote\t1\nfine\t0\n')
    assert [one.text for one in TextExample.read(file, DataOptions(text_column="sentence"))] == [
        '"broken quote',
        "fine",
    ]


def test_a_table_without_header_counts_its_columns(write: Write) -> None:
    file = write("a.csv", "0;good;better\n1;bad;worse\n")
    columns = DataOptions(text_column="1", pair_column="2", label_column="0", header=False, delimiter=";")
    examples = list(TextExample.read(file, columns))
    assert examples[1] == TextExample("bad", "worse", "1", f"{file}, line 2")


@pytest.mark.parametrize("delimiter", [";", ","])
def test_titles_above_the_header_are_skipped(write: Write, delimiter: str) -> None:
    lines = ["Export of June;;;", ";;;", "Nr;Message;Label;", "1;one;a;", '2;"two\ntwo";b;', "3;three;;"]
    file = write("a.csv", "\n".join(lines).replace(";", delimiter))
    rows = read_rows(file)
    assert rows.columns == ["Nr", "Message", "Label"]
    assert [row.values["Message"] for row in rows] == ["one", "two\ntwo", "three"]
    assert [row.origin for row in rows] == [
        f"{file}, line 4",
        f"{file}, line 5",
        f"{file}, row 3, line 7",
    ]
    assert not any(row.fault for row in rows)
    # As in pandas' files with an index: no title.
    assert list(read_rows(write("b.csv", ",text,\n0,one,\n1,two,\n")).columns) == ["column A", "text"]


def test_columns_without_a_name(write: Write) -> None:
    rows = read_rows(write("a.csv", "Nr;;Message;;\n1;x;one;;\n2;y;two;;z\nNr;;Message;;\n"))
    assert rows.columns == ["Nr", "column B", "Message"]
    first, second, again = rows
    assert again.fault == "a repeated header, as in concatenated files"
    assert (dict(first.values), first.fault) == ({"Nr": "1", "column B": "x", "Message": "one"}, "")
    assert second.fault == "cells to the right of the last named column, C"


def test_unusable_rows_are_counted(write: Write) -> None:
    lines = ["text,label", "one,a", "two", ",a", "three,", '"four\nfour",b', "five,b,c", "six,a"]
    reader = TextExample.read(write("a.csv", "\n".join([*lines, lines[0], ""])))
    report = report_of(reader)
    assert (report.rows, report.examples) == (8, 3)
    assert {problem: rows.count for problem, rows in report.problems.items()} == {
        "malformed": 3,
        "empty": 1,
        "unlabeled": 1,
    }
    assert report.problems["malformed"].first == [
        f"{reader.source}, line 3: 1 cells, expected 2",
        f"{reader.source}, row 6, line 8: 3 cells, expected 2",
        f"{reader.source}, row 8, line 10: a repeated header, as in concatenated files",
    ]
    assert report.lines()[:2] == [f"{reader.source}: 3 examples, 5 skipped", "  malformed: 3"]
    assert report.to_json()["problems"]["unlabeled"]["count"] == 1


def test_without_labels_no_row_is_lost(write: Write) -> None:
    reader = TextExample.read(write("a.jsonl", '{"text": "one"}\n{"text": ""}\n{"text": 3}\n'), labeled=False)
    assert [(one.text, one.label) for one in reader] == [("one", None), ("", None), ("3", None)]
    broken = TextExample.read(write("b.jsonl", '{"text": "one"}\n{"text"\n'), labeled=False)
    with pytest.raises(DataError, match=r"b.jsonl, line 2: malformed \(not JSON"):
        list(broken)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.csv",
            "sentence,label\nx,1\n",
            "no column .text.. The columns are sentence, lab.* --text-column",
        ),
        ("a.jsonl", '{"body": "x", "label": 1}\n', "no column 'text'. The columns are body, label"),
        ("a.csv", "text,lable\nx,1\n", r"no column 'label'.* --label-column \(in Python label_column=\)"),
        ("a.csv", "text|label\nx|1\n", r"a single cell that contains '|'.*: --delimiter '|'"),
        ("a.tsv", "text,label\nx,1\n", r"--delimiter ','"),
        ("a.csv", "text,text,label\nx,y,1\n", "2 columns are named 'text'"),
        ("a.jsonl", '\n[\n{"text": "x"},\n', r"line 2: expected one JSON object per line.* jq -c '.\[\]'"),
        ("a.csv", "a river,x\n", "no column 'text'.* or --no-header if the first line is"),
        ("a.csv", "Export of 2026-11-01\nid;text;label\n1;x;1\n", "If the line is a title, delete it"),
        ("a.jsonl", '{\n"text": "x"\n}\n', "a.jsonl, line 1: not JSON.* Expected one JSON object per line"),
        ("a.jsonl", "\n", "the file is empty"),
        ("a.json", "[]", r"unknown kind of file.* jq -c '.\[\]'"),
        ("a.csv", "", "the file is empty"),
        ("a.txt", "x", "no column 'label'. The columns are text"),
        ("a.parquet", "x", "a.parquet is damaged"),
        ("a.arrow", "", "a.arrow is damaged"),
    ],
)
def test_wrong_files_and_columns_are_an_error(write: Write, name: str, content: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        TextExample.read(write(name, content))


def test_a_column_with_two_roles_is_an_error(write: Write) -> None:
    file, columns = write("a.csv", "a,b\nx,y\n"), {"text_column": "a", "label_column": "b"}
    for wrong, flag in (({"text_column": "b"}, "--label-column"), ({"pair_column": "a"}, "--pair-column")):
        with pytest.raises(DataError, match=f"the column '.' is both --text-column and {flag}"):
            TextExample.read(file, DataOptions(**columns | wrong))
    assert TextExample.read(file, DataOptions(**columns, id_column="a"))


def test_tables_in_memory_with_two_columns_of_one_name_are_an_error() -> None:
    pd = pytest.importorskip("pandas")
    names, cells = ["text", "text", "label"], [["x", "y", "a"]]
    tables = (pa.table([[cell] for cell in cells[0]], names=names), pd.DataFrame(cells, columns=names))
    for table in tables:
        with pytest.raises(DataError, match=r"train: 2 columns are named 'text'. Rename all but one"):
            as_source(table, name="train")


def test_delimiters(write: Write) -> None:
    file = write("a.csv", "text\tlabel\nx, y\ta\n")
    for delimiter in ("\t", "\\t"):  # a shell passes a tab as two characters
        assert [
            (one.text, one.label) for one in TextExample.read(file, DataOptions(delimiter=delimiter))
        ] == [("x, y", "a")]
    with pytest.raises(DataError, match=r"line 2: not CSV.*rename the file to \.tsv"):
        list(TextExample.read(write("b.csv", 'text\tlabel\n"Yes" or no\ta\n'), DataOptions(delimiter="\t")))
    for delimiter in (";;", "", '"', "\n"):
        with pytest.raises(ConfigError, match="Expected one character"):
            TextExample.read(file, DataOptions(delimiter=delimiter))


def test_quoted_cells_of_a_tsv_file_warn_once(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    rows = ['"The food was ""really"" lovely."\tgood\n', '"""Never"" again."\tbad\n', '"So, ""so""."\tbad\n']
    lines = ["text\tlabel\n", *rows, *rows]
    table = TextExample.read(write("a.tsv", "".join(lines)))
    assert next(iter([*table, *table])).text.startswith('"The food')
    (warning,) = caplog.messages
    assert "a.tsv, line 4: at least 3 cells are in quotes" in warning
    # The advice of the warning works.
    renamed = TextExample.read(write("a.csv", "".join(lines)), DataOptions(delimiter="\\t"))
    assert [one.text for one in renamed][:2] == ['The food was "really" lovely.', '"Never" again.']
    caplog.clear()
    stray = ['"Yes."', 'He said "yes".', '"Yes," he said, "yes."', '""', '"""', '""Yes""', '"Yes" or ""No""']
    list(TextExample.read(write("b.tsv", "text\tlabel\n" + "".join(f"{one}\tx\n" for one in stray * 3))))
    list(TextExample.read(write("a.tsv", "".join(lines)), DataOptions(delimiter="\t")))  # as GLUE's files
    assert not caplog.messages


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_columns_of_zeros_and_ones_are_labels(write: Write, kind: str) -> None:
    values = [("a", 1, 0, 1), ("b", 0, 0, 0), ("c", 0, 1.0, 0), ("d", 0, 0, 2), ("e", 1, "", 0)]
    names = ("text", "toxic", "rude", "spam")
    lines = {
        "csv": [",".join(names), *(",".join(map(str, row)) for row in values)],
        "jsonl": [json.dumps(dict(zip(names, row, strict=True))) for row in values],
    }
    file = write(f"a.{kind}", "\n".join(lines[kind]) + "\n")
    splits = load_splits({"train": TextExample.read(file, DataOptions(label_column="toxic,rude,spam"))})
    assert splits.labels is not None
    assert (splits.labels.kind.problem_type, splits.labels.names) == (SEVERAL, ("toxic", "rude", "spam"))
    assert [one.label for one in splits.examples["train"]] == [("toxic", "spam"), (), ("rude",)]
    problems = splits.reports["train"].problems
    assert problems["invalid label"].first[0].endswith("in 'spam'. Expected 0 or 1.")
    assert problems["unlabeled"].count == 1
    with pytest.raises(DataError, match=r"no column 'scam'.* --label-column"):
        TextExample.read(file, DataOptions(label_column="toxic,scam"))


def test_columns_with_a_single_one_may_be_classes() -> None:
    rows = [{"text": "a", "x": 1, "y": 0}, {"text": "b", "x": 0, "y": 1}, {"text": "c", "x": 1, "y": 1}]
    table = TextExample.read(rows, DataOptions(label_column="x,y"))
    splits = load_splits({"train": table}, problem_type=CLASSES)
    assert [one.label for one in splits.examples["train"]] == ["x", "y"]
    assert "Expected exactly one" in splits.reports["train"].problems["invalid label"].first[0]


def test_other_sources_that_cannot_be_read(tmp_path: Path, write: Write) -> None:
    for name in [*(f"a{number}.csv" for number in range(12)), "train.csv"]:
        write(name, "text,label\n")
    (tmp_path / "folder.csv").mkdir()
    sources: list[tuple[Any, str]] = [
        (tmp_path / "trian.csv", "no such file; the folder has train.csv, a"),
        ("/dev/null", "/dev/null is a pipe or a device"),
        (tmp_path / "folder.csv", "folder.csv is a folder"),
        (tmp_path, "a folder that `datasets` has saved"),
        ({"train": [], "test": []}, r"mapping with the keys train, test\. .* pass one of them"),
        ({"text": ["a", "b"], "label": [1]}, "lists of the same length"),
    ]
    for source, message in sources:
        with pytest.raises(DataError, match=message):
            TextExample.read(source)
    with pytest.raises(ConfigError, match="header is for CSV"):
        TextExample.read([{"text": "a", "label": 1}], DataOptions(header=False))
    with pytest.raises(DataError, match="record from line 2: not CSV"):
        list(TextExample.read(write("a.csv", 'text,label\n"never closed,1\n')))
    (tmp_path / "latin.csv").write_bytes(b"text,label\nf\xfcr,1\n")
    with pytest.raises(DataError, match=r"latin.csv, line 2: not UTF-8"):
        list(TextExample.read(tmp_path / "latin.csv"))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "text,label\rx,1\ry,0\r"),
        ("a.csv", "text,label\rx,1\ry,0"),
        ("a.csv", 'text,label\r"two\nlines",1\ry,0\r'),
        ("a.tsv", "text\tlabel\rx\t1\ry\t0\r"),
        ("a.jsonl", '{"text": "x", "label": "1"}\r{"text": "y", "label": "0"}'),
    ],
)
def test_lines_that_end_in_cr_are_an_error(write: Write, name: str, content: str) -> None:
    path = write(name, content)
    with pytest.raises(DataError, match="the lines end in CR"):
        list(TextExample.read(path))
    for ending in ("\n", "\r\n"):
        path = write(name, content.replace("\n", " ").replace("\r", ending))
        assert [one.label for one in TextExample.read(path)] == ["1", "0"]


def test_a_cr_inside_a_line(write: Write) -> None:
    """In CSV, it needs quotes. In TSV, it is part of the text."""
    path = write("a.csv", "text,label\nx,1\ny\rz,0\n")
    with pytest.raises(DataError, match="record from line 3: a cell without quotes contains a CR"):
        list(TextExample.read(path))
    for name, content in (("b.csv", 'text,label\n"y\rz",0\n'), ("a.tsv", "text\tlabel\ny\rz\t0\n")):
        assert [one.text for one in TextExample.read(write(name, content))] == ["y\rz"]


def test_long_cells_are_read(write: Write) -> None:
    (example,) = TextExample.read(write("a.csv", "text,label\n" + "word " * 100_000 + ",1\n"))
    assert len(example.text) == 499_999


def test_the_names_of_classes_come_from_the_library_datasets(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {
            "text": datasets.Value("string"),
            "label": datasets.ClassLabel(names=["zero stars", "all stars"]),
            "tokens": datasets.Sequence(datasets.Value("string")),
            "ner_tags": datasets.Sequence(datasets.ClassLabel(names=["O", "B-PER", "I-PER"])),
        }
    )
    rows = {
        "text": ["good", "bad", "unknown"],
        "label": [1, 0, -1],
        "tokens": [["Al", "ran"], ["No"], ["It"]],
        "ner_tags": [[1, 0], [0], [0]],
    }
    data = datasets.Dataset.from_dict(rows, features=features)
    data.save_to_disk(tmp_path / "saved")
    data.to_parquet(tmp_path / "data.parquet")
    datasets.DatasetDict({"train": data, "test": data}).save_to_disk(tmp_path / "splits")
    sources = (data, tmp_path / "saved", tmp_path / "data.parquet", tmp_path / "splits" / "test")
    for source in sources:
        texts = TextExample.read(source)
        assert [one.label for one in texts] == ["all stars", "zero stars"]
        assert report_of(texts).problems["unlabeled"].count == 1
        loaded = load_splits({"train": texts})
        assert loaded.labels is not None
        assert loaded.labels.config_arguments()["id2label"] == {0: "zero stars", 1: "all stars"}
        words = WordsExample.read(source)
        assert next(iter(words)).labels == ("B-PER", "O")
        assert words.columns.class_names == ("O", "B-PER", "I-PER")
    in_memory = [data.with_format("arrow")[:], *data.with_format("arrow").iter(3)]
    for table in (as_source(one, name="train") for one in in_memory):  # the schema has the names
        assert [one.label for one in TextExample.read(table)] == ["all stars", "zero stars"]
        assert TextExample.read(table).columns.class_names == ("zero stars", "all stars")
        assert WordsExample.read(table).columns.class_names == ("O", "B-PER", "I-PER")
    with pytest.raises(DataError, match=r"several splits. Pass one of them: .*train"):
        TextExample.read(tmp_path / "splits")
    with pytest.raises(DataError, match=r"mapping with the keys train, test\. .* pass one of them"):
        TextExample.read(datasets.DatasetDict({"train": data, "test": data}))


def test_half_a_character_is_a_fault(write: Write) -> None:
    lines = [r'{"text": "\ud83d", "label": 1}', r'{"text": "\ud83d\ude00", "label": 0}']
    reader = TextExample.read(write("a.jsonl", "\n".join(lines)))
    assert [one.text for one in reader] == ["\U0001f600"]
    assert r"line 1: \ud83d is a lone surrogate" in report_of(reader).problems["malformed"].first[0]


def test_sst2(shared: Path) -> None:
    columns = DataOptions(text_column="0", label_column="1", header=False)
    readers = {
        name: TextExample.read(shared / "data" / "sst2" / f"{name}.tsv", columns)
        for name in ("train", "dev", "test")
    }
    splits = load_splits(readers)
    assert {name: len(examples) for name, examples in splits.examples.items()} == {
        "train": 6920,
        "dev": 872,
        "test": 1821,
    }
    assert splits.labels is not None
    assert splits.labels.names == ("0", "1")
    assert label_counts(splits, "train") == {"1": 3610, "0": 3310}
    assert not any(report.problems for report in splits.reports.values())
