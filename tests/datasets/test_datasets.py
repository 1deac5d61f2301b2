"""Readers of labeled data: the official layouts, tables of every format, labels, reports, errors."""

import gzip
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from albertkit import text_files
from albertkit.datasets.examples import ChoiceExample, QuestionExample, TextExample, WordsExample
from albertkit.datasets.glue import TASKS, GlueSplit
from albertkit.datasets.multiple_choice import ChoiceTable, RaceFolder
from albertkit.datasets.options import DataOptions
from albertkit.datasets.question_answering import QuestionTable, SquadFile
from albertkit.datasets.reader import ReadingReport, is_missing, text_of
from albertkit.datasets.sentence_embedding import GluePairs, PairTable
from albertkit.datasets.table import existing_file
from albertkit.datasets.text_classification import EntailmentFile, TextTable, read_label
from albertkit.datasets.token_classification import ConllFile, WordsTable
from albertkit.errors import ConfigError, DataError, MissingExtraError
from albertkit.extras import optional
from albertkit.tasks import loading
from albertkit.tasks.label_kinds import CLASS
from albertkit.tasks.labels import LabelSet
from albertkit.tasks.multiple_choice import MultipleChoice
from albertkit.tasks.question_answering import QuestionAnswering
from albertkit.tasks.task import Task
from albertkit.tasks.text_classification import TextClassification
from albertkit.tasks.token_classification import TokenClassification

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_text(name: str, content: str) -> Path:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8", newline="")
        return file

    return write_text


TASK_OF: dict[type, type[Task]] = {
    **dict.fromkeys((TextTable, GlueSplit, EntailmentFile), TextClassification),
    **dict.fromkeys((ConllFile, WordsTable), TokenClassification),
    **dict.fromkeys((SquadFile, QuestionTable), QuestionAnswering),
    **dict.fromkeys((ChoiceTable, RaceFolder), MultipleChoice),
}


def load_splits(readers: dict[str, Any], **options: Any) -> loading.Splits:
    """Load splits for the task of their readers."""
    (task,) = {TASK_OF[type(reader)] for reader in readers.values()}
    return loading.load_splits(task(), readers, **options)


def label_counts(splits: loading.Splits, name: str) -> Counter[str]:
    """How often each label is there: of texts, of words, or the numbers of right choices."""
    counts: Counter[str] = Counter()
    for example in splits.examples[name]:
        labels = example.labels if hasattr(example, "labels") else example.label
        counts.update(map(str, labels if isinstance(labels, tuple) else (labels,)))
    return counts


def report_of(reader) -> ReadingReport:
    report = ReadingReport(reader.source)
    assert len(list(reader.read(report))) == report.examples
    return report


# --- tables of texts


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
        assert list(TextTable(tmp_path / name, columns)) == expected, name
    assert list(TextTable(rows, columns)) == expected
    reader = TextTable(tmp_path / "a.csv", columns)
    assert list(reader) == list(reader)


def test_plain_files_need_no_library_of_the_extra(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "pa", optional("no_such_library", extra="train"))
    path = write("a.txt", "one\ntwo\n")
    lines = text_files.read_lines(path, None)
    assert next(lines)[1] == "one\n"
    lines.close()  # left alone, an error here would only be printed
    with pytest.raises(MissingExtraError, match="no_such_library"):
        next(text_files.read_lines(path, "gzip"))


def test_quotes_in_tsv_are_text(write: Write) -> None:
    file = write("a.tsv", 'sentence\tlabel\n"broken quote\t1\nfine\t0\n')
    assert [one.text for one in TextTable(file, DataOptions(text_column="sentence"))] == [
        '"broken quote',
        "fine",
    ]


def test_a_table_without_header_counts_its_columns(write: Write) -> None:
    file = write("a.csv", "0;good;better\n1;bad;worse\n")
    columns = DataOptions(text_column="1", pair_column="2", label_column="0", header=False, delimiter=";")
    examples = list(TextTable(file, columns))
    assert examples[1] == TextExample("bad", "worse", "1", f"{file}, line 2")


def test_rows_that_cannot_be_used_are_counted_and_named(write: Write) -> None:
    lines = ["text,label", "one,a", "two", ",a", "three,", '"four\nfour",b', "five,b,c", "six,a"]
    reader = TextTable(write("a.csv", "\n".join(lines) + "\n"))
    report = report_of(reader)
    assert (report.rows, report.examples) == (7, 3)
    assert {problem: rows.count for problem, rows in report.problems.items()} == {
        "malformed": 2,
        "empty": 1,
        "unlabeled": 1,
    }
    assert report.problems["malformed"].first == [
        f"{reader.source}, line 3: 1 cells, expected 2",
        f"{reader.source}, line 8: 3 cells, expected 2",
    ]
    assert report.lines()[:2] == [f"{reader.source}: 3 examples, 4 skipped", "  malformed: 2"]
    assert report.to_json()["problems"]["unlabeled"]["count"] == 1


def test_without_labels_no_row_is_lost(write: Write) -> None:
    reader = TextTable(write("a.jsonl", '{"text": "one"}\n{"text": ""}\n{"text": 3}\n'), labeled=False)
    assert [(one.text, one.label) for one in reader] == [("one", None), ("", None), ("3", None)]
    broken = TextTable(write("b.jsonl", '{"text": "one"}\n{"text"\n'), labeled=False)
    with pytest.raises(DataError, match=r"b.jsonl, line 2: malformed \(not JSON"):
        list(broken)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "sentence,label\nx,1\n", "no column 'text'. The columns are sentence, label"),
        ("a.jsonl", '{"body": "x", "label": 1}\n', "no column 'text'. The columns are body, label"),
        ("a.csv", "sentence,label\nx,1\n", "no column 'text'.* --text-column"),
        ("a.csv", "text,lable\nx,1\n", "no column 'label'.* --label-column"),
        (
            "a.csv",
            "text;label\nx;1\n",
            r"a single cell that contains ';'. If it separates cells: --delimiter ';'",
        ),
        ("a.csv", "text\tlabel\nx\t1\n", r"--delimiter '\\t'"),
        ("a.tsv", "text,label\nx,1\n", r"--delimiter ','"),
        ("a.csv", "text,text,label\nx,y,1\n", "2 columns are named 'text'. Rename all but one"),
        ("a.jsonl", '[{"text": "x"}]', r"line 1: expected one JSON object per line.* jq -c '.\[\]'"),
        ("a.jsonl", '\n[\n{"text": "x"},\n', r"line 2: expected one JSON object per line.* begins with an"),
        (
            "a.csv",
            "a river,x\n",
            "no column 'text'. The columns are a river, x.* or --no-header if the first line is",
        ),
        ("a.jsonl", '{\n"text": "x"\n}\n', "a.jsonl, line 1: not JSON.* Expected one JSON object per line"),
        ("a.jsonl", "\n", "the file is empty"),
        ("a.json", "[]", r"unknown kind of file.* jq -c '.\[\]'"),
        ("a.xlsx", "", "unknown kind of file.* Save the sheet as .csv"),
        ("a.csv", "", "the file is empty"),
        ("a.txt", "x", "unknown kind of file. Expected .csv, .tsv"),
        ("a.parquet", "x", "not a readable .parquet file"),
        ("a.arrow", "", "not a readable .arrow file"),
    ],
)
def test_a_wrong_file_or_column_is_named(write: Write, name: str, content: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        TextTable(write(name, content))


def test_delimiters(write: Write) -> None:
    file = write("a.csv", "text\tlabel\nx, y\ta\n")
    for delimiter in ("\t", "\\t"):  # a shell passes a tab as two characters
        assert [(one.text, one.label) for one in TextTable(file, DataOptions(delimiter=delimiter))] == [
            ("x, y", "a")
        ]
    for delimiter in (";;", "", '"', "\n"):
        with pytest.raises(ConfigError, match="Expected one character"):
            TextTable(file, DataOptions(delimiter=delimiter))


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_columns_of_zeros_and_ones_are_labels(write: Write, kind: str) -> None:
    values = [("a", 1, 0, 1), ("b", 0, 0, 0), ("c", 0, 1.0, 0), ("d", 0, 0, 2), ("e", 1, "", 0)]
    names = ("text", "toxic", "rude", "spam")
    lines = {
        "csv": [",".join(names), *(",".join(map(str, row)) for row in values)],
        "jsonl": [json.dumps(dict(zip(names, row, strict=True))) for row in values],
    }
    file = write(f"a.{kind}", "\n".join(lines[kind]) + "\n")
    splits = load_splits({"train": TextTable(file, DataOptions(label_column="toxic,rude,spam"))})
    assert splits.labels is not None
    assert (splits.labels.kind.problem_type, splits.labels.names) == (SEVERAL, ("toxic", "rude", "spam"))
    assert [one.label for one in splits.examples["train"]] == [("toxic", "spam"), (), ("rude",)]
    problems = splits.reports["train"].problems
    assert problems["mislabeled"].first[0].endswith("in 'spam'. Expected 0 or 1.")
    assert problems["unlabeled"].count == 1
    with pytest.raises(DataError, match=r"no column 'scam'.* --label-column"):
        TextTable(file, DataOptions(label_column="toxic,scam"))


def test_one_column_of_ones_each_can_be_classes() -> None:
    rows = [{"text": "a", "x": 1, "y": 0}, {"text": "b", "x": 0, "y": 1}, {"text": "c", "x": 1, "y": 1}]
    table = TextTable(rows, DataOptions(label_column="x,y"))
    splits = load_splits({"train": table}, problem_type=CLASSES)
    assert [one.label for one in splits.examples["train"]] == ["x", "y"]
    assert "Expected exactly one" in splits.reports["train"].problems["mislabeled"].first[0]


def test_other_sources_that_cannot_be_read(tmp_path: Path, write: Write) -> None:
    write("data.csv", "text,label\n")
    with pytest.raises(DataError, match=r"no such file; the folder has data.csv"):
        TextTable(tmp_path / "date.csv")
    for name in [*(f"a{number}.csv" for number in range(12)), "train.csv"]:
        write(name, "text,label\n")
    with pytest.raises(DataError, match=r"no such file; the folder has train.csv, a"):
        TextTable(tmp_path / "trian.csv")
    with pytest.raises(DataError, match=r"/dev/null is a pipe or a device. Expected a regular file"):
        TextTable("/dev/null")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match=r"folder\.csv is a folder. Expected a regular file"):
        existing_file(tmp_path / "folder.csv")
    with pytest.raises(DataError, match="a folder that `datasets` has saved"):
        TextTable(tmp_path)
    with pytest.raises(DataError, match="can be read only once"):
        TextTable(iter([{"text": "a", "label": 1}]))
    with pytest.raises(DataError, match="several splits: train, test"):
        TextTable({"train": [], "test": []})
    with pytest.raises(ConfigError, match="header and delimiter are for CSV"):
        TextTable([{"text": "a", "label": 1}], DataOptions(header=False))
    with pytest.raises(DataError, match="record from line 2: not CSV"):
        list(TextTable(write("a.csv", 'text,label\n"never closed,1\n')))
    (tmp_path / "latin.csv").write_bytes(b"text,label\nf\xfcr,1\n")
    with pytest.raises(DataError, match=r"latin.csv, line 2: not UTF-8"):
        list(TextTable(tmp_path / "latin.csv"))


def test_long_cells_are_read(write: Write) -> None:
    (example,) = TextTable(write("a.csv", "text,label\n" + "word " * 100_000 + ",1\n"))
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
        texts = TextTable(source)
        assert [one.label for one in texts] == ["all stars", "zero stars"]
        assert report_of(texts).problems["unlabeled"].count == 1
        loaded = load_splits({"train": texts})
        assert loaded.labels is not None
        assert loaded.labels.config_arguments()["id2label"] == {0: "zero stars", 1: "all stars"}
        words = WordsTable(source)
        assert next(iter(words)).labels == ("B-PER", "O")
        assert words.label_names() == ("O", "B-PER", "I-PER")
    with pytest.raises(DataError, match=r"several splits. Pass one of them: .*train"):
        TextTable(tmp_path / "splits")
    with pytest.raises(DataError, match="several splits: train, test"):
        TextTable(datasets.DatasetDict({"train": data, "test": data}))


def test_half_a_character_is_a_fault(write: Write) -> None:
    lines = [r'{"text": "\ud83d", "label": 1}', r'{"text": "\ud83d\ude00", "label": 0}']
    reader = TextTable(write("a.jsonl", "\n".join(lines)))
    assert [one.text for one in reader] == ["\U0001f600"]
    assert r"line 1: \ud83d is a lone surrogate" in report_of(reader).problems["malformed"].first[0]


# --- labels


def loaded_labels(labels: list, **options):
    rows = [{"text": f"text {number}", "label": label} for number, label in enumerate(labels)]
    separator = options.pop("separator", None)
    splits = load_splits({"train": TextTable(rows, DataOptions(label_separator=separator))}, **options)
    assert splits.labels is not None
    return (
        splits.labels.kind.problem_type,
        splits.labels.names,
        [one.label for one in splits.examples["train"]],
    )


CLASSES, NUMBERS, SEVERAL = "single_label_classification", "regression", "multi_label_classification"


@pytest.mark.parametrize(
    ("given", "kind", "names", "read"),
    [
        (["b", "a", "b"], CLASSES, ("a", "b"), ["b", "a", "b"]),
        (["10", "9", "1"], CLASSES, ("1", "9", "10"), ["10", "9", "1"]),
        ([10, 9, 1], CLASSES, ("1", "9", "10"), ["10", "9", "1"]),
        (["1.0", "0.0", "1.0"], CLASSES, ("0", "1"), ["1", "0", "1"]),
        ([1.0, 0.0, float("nan")], CLASSES, ("0", "1"), ["1", "0"]),
        ([True, False], CLASSES, ("False", "True"), ["True", "False"]),
        (["007", "7", "10"], CLASSES, ("007", "10", "7"), ["007", "7", "10"]),
        (["01", "02.0", "1"], CLASSES, ("01", "02.0", "1"), ["01", "02.0", "1"]),
        (["+1", "-1"], CLASSES, ("-1", "1"), ["1", "-1"]),
        (
            ["9007199254740993", "9007199254740992"],
            CLASSES,
            ("9007199254740992", "9007199254740993"),
            ["9007199254740993", "9007199254740992"],
        ),
        ([np.int64(1), np.float32(0.0), np.nan], CLASSES, ("0", "1"), ["1", "0"]),
        (["1", "2", "none"], CLASSES, ("1", "2", "none"), ["1", "2", "none"]),
        (["3.5", "4", "1e-1"], NUMBERS, ("LABEL_0",), [3.5, 4.0, 0.1]),
        ([0.25, 1.0], NUMBERS, ("LABEL_0",), [0.25, 1.0]),
        (["3.5", "4", "n/a"], NUMBERS, ("LABEL_0",), [3.5, 4.0]),
        ([["y", "x"], [], ["z"]], SEVERAL, ("x", "y", "z"), [("x", "y"), (), ("z",)]),
        ([[2, 10], [2]], SEVERAL, ("2", "10"), [("2", "10"), ("2",)]),
    ],
)
def test_what_labels_mean_is_inferred(given: list, kind: str, names: tuple, read: list) -> None:
    assert loaded_labels(given) == (kind, names, read)


def test_what_labels_mean_can_be_said() -> None:
    assert loaded_labels(["1", "2", "5"], problem_type=NUMBERS) == (NUMBERS, ("LABEL_0",), [1.0, 2.0, 5.0])
    assert loaded_labels(["0.5", "1.5"], problem_type=CLASSES)[1] == ("0.5", "1.5")
    assert loaded_labels(["b; a", "", "a"], separator=";") == (
        SEVERAL,
        ("a", "b"),
        [("a", "b"), (), ("a",)],
    )
    with pytest.raises(ConfigError, match="problem_type is 'classes'"):
        loaded_labels(["a", "b"], problem_type="classes")


def test_labels_that_teach_nothing_are_refused() -> None:
    with pytest.raises(DataError, match="every row has the label 'a'"):
        loaded_labels(["a", "a"])
    with pytest.raises(DataError, match="each of the 30 rows has a different label"):
        loaded_labels([f"id{number}" for number in range(30)])
    with pytest.raises(DataError, match="there are no usable examples"):
        loaded_labels(["", ""])
    with pytest.raises(DataError, match="no example has a label"):
        loaded_labels([[], []])


def test_a_label_that_training_does_not_have_is_named_with_its_row(write: Write) -> None:
    train = TextTable(write("train.csv", "text,label\na,positive\nb,negative\n"))
    test = TextTable(write("test.csv", "text,label\na,positive\nb,postive\n"))
    with pytest.raises(DataError) as caught:
        load_splits({"train": train, "validation": test})
    assert "test.csv, line 3: the label 'postive' is unknown (did you mean 'positive'?)" in str(caught.value)
    assert "Training has negative, positive" in str(caught.value)
    several = TextTable(write("several.csv", "text,label\na,positive\nb,x\nc,negative\nd,y\ne,x\n"))
    with pytest.raises(
        DataError, match=r"line 3: the label 'x' is unknown \(and 2 more rows with an unknown"
    ):
        load_splits({"train": train, "validation": several})
    # The labels of a model are checked against likewise, in every split.
    labels = load_splits({"train": train}).labels
    with pytest.raises(DataError, match=r"'postive' is unknown.* The model has negative, positive"):
        load_splits({"test": test}, labels=labels)


def test_rows_that_could_not_be_read_are_named_where_the_rest_is_of_no_use(write: Write) -> None:
    file = write("train.jsonl", '{"text": "a", "label": "x"}\n{"text": "b", "la\n')
    with pytest.raises(DataError) as caught:
        load_splits({"train": TextTable(file)})
    assert "every row has the label 'x'" in str(caught.value)
    assert "train.jsonl, line 2" in str(caught.value)


def test_labels_written_otherwise_are_the_same_class(write: Write) -> None:
    train = TextTable(write("train.csv", "text,label\na,1\nb,0\n"))
    test = TextTable(write("test.csv", "text,label\na,1.0\nb,0.0\n"))
    splits = load_splits({"train": train, "validation": test})
    assert [one.label for one in splits.examples["validation"]] == ["1", "0"]
    assert label_counts(splits, "validation") == {"1": 1, "0": 1}


def test_numbers_that_are_none_are_mislabeled(write: Write) -> None:
    train = TextTable(write("train.csv", "text,label\na,1.5\nb,2.5\nc,?\n"))
    splits = load_splits({"train": train, "validation": train})
    assert splits.reports["validation"].problems["mislabeled"].first == [
        f"{train.source}, line 4: the label '?' is not a number"
    ]
    assert splits.reports["validation"].examples == len(splits.examples["validation"]) == 2


def test_nothing_in_a_cell_is_never_a_text() -> None:
    """pandas writes NaN (or NA) for a cell without content."""
    pd = pytest.importorskip("pandas")
    missing = [float("nan"), None, " ", np.float32("nan"), pd.NA, pd.NaT]
    for value in missing:
        assert is_missing(value)
        assert text_of(value) is None
    assert [text_of(value) for value in ("nan", 3, 0.5, np.int64(3), True)] == ["nan", "3", "0.5", "3", None]
    for value in missing:
        texts = TextTable(
            [{"text": value, "label": "a", "id": value}, {"text": "b", "label": value, "id": value}]
        )
        assert report_of(texts).examples == 0
        assert set(report_of(texts).problems) == {"empty", "unlabeled"}
        (_, second) = TextTable(texts.table, DataOptions(id_column="id"), labeled=False)
        assert second.id == "the given examples, row 2"
        pairs = PairTable(
            [{"text": "a", "text_pair": "b", "score": value}, {"text": "a", "text_pair": value, "score": 1}]
        )
        assert set(report_of(pairs).problems) == {"empty", "unlabeled"}
        indicators = TextTable([{"text": "a", "x": value, "y": 0}], DataOptions(label_column="x,y"))
        assert set(report_of(indicators).problems) == {"unlabeled"}
        choices = ChoiceTable(
            [{"sent1": "a", "sent2": "b", "ends": ["c", "d"], "label": value}],
            DataOptions(choice_columns="ends"),
        )
        assert set(report_of(choices).problems) == {"unlabeled"}
        questions = QuestionTable([{"question": "a", "context": "b", "answers": value}])
        assert set(report_of(questions).problems) == {"unlabeled"}
    words = WordsTable(
        [
            {"tokens": ["a", one], "ner_tags": ["O", other]}
            for one, other in ((float("nan"), "O"), ("b", None))
        ]
    )
    assert {problem: rows.count for problem, rows in report_of(words).problems.items()} == {
        "malformed": 1,
        "unlabeled": 1,
    }
    several = TextTable([{"text": "a", "label": ["x", float("nan")]}])
    assert report_of(several).problems["mislabeled"].count == 1


def test_classes_of_columns_with_gaps() -> None:
    """A column of whole numbers in which one is missing is a column of floats."""
    rows = [{"tokens": ["a", "b"], "ner_tags": [1.0, 0.0]}]
    assert next(iter(WordsTable(rows))).labels == ("1", "0")
    assert LabelSet(CLASS, ("0", "1")).read(1) == "1"
    assert read_label(1.0, separator=None, names=("no", "yes")) == "yes"
    assert read_label(-1.0, separator=None, names=("no", "yes")) is None
    with pytest.raises(DataError, match=r"the class 2\.0 is not one of 0 to 1"):
        read_label(2.0, separator=None, names=("no", "yes"))


# --- GLUE

GLUE_FILES = {
    "CoLA/train.tsv": "gj04\t1\t\tThe car honked.\ngj04\t0\t*\tCar the honked.\n",
    "CoLA/test.tsv": "index\tsentence\n0\tBill whistled.\n",
    "SST-2/train.tsv": 'sentence\tlabel\na "fine film \t1\ndull \t0\n',
    "MRPC/train.tsv": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    "1\t7\t8\tOne.\tUno.\n0\t9\t10\tTwo.\tTen.\n",
    "QQP/train.tsv": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    "5\t1\t2\tWhy?\tHow?\t0\n6\t3\t4\tEh?\n7\t5\t6\tA?\tB?\t1\n",
    "STS-B/train.tsv": "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\t"
    "score\n0\tnews\tf\t2012\t1\tn\tn\tOne.\tUno.\t5.000\n1\tnews\tf\t2012\t1\tn\tn\tOne.\tTwo.\t0.2\n",
    "MNLI/train.tsv": "index\tgenre\tsentence1\tsentence2\tlabel1\tgold_label\n"
    "0\tx\tA.\tB.\tneutral\tneutral\n1\tx\tA.\tB.\tneutral\t-\n2\tx\tA.\tB.\tneutral\tcontradiction\n",
    "QNLI/train.tsv": "index\tquestion\tsentence\tlabel\n0\tQ?\tA.\tentailment\n1\tQ?\tB.\tnot_entailment\n",
    "RTE/train.tsv": "index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\tnot_entailment\n1\tA.\tA.\tentailment\n",
    "WNLI/train.tsv": "index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\t1\n1\tA.\tC.\t0\n",
}


@pytest.mark.parametrize(
    ("task", "first", "count"),
    [
        ("cola", TextExample("The car honked.", None, "1"), 2),
        ("sst2", TextExample('a "fine film', None, "1"), 2),
        ("mrpc", TextExample("One.", "Uno.", "1"), 2),
        ("qqp", TextExample("Why?", "How?", "0", "5"), 2),
        ("stsb", TextExample("One.", "Uno.", 5.0, "0"), 2),
        ("mnli", TextExample("A.", "B.", "neutral", "0"), 2),
        ("qnli", TextExample("Q?", "A.", "entailment", "0"), 2),
        ("rte", TextExample("A.", "B.", "not_entailment", "0"), 2),
        ("wnli", TextExample("A.", "B.", "1", "0"), 2),
    ],
)
def test_the_tasks_of_glue(tmp_path: Path, write: Write, task: str, first: TextExample, count: int) -> None:
    for name, content in GLUE_FILES.items():
        write(name, content)
    splits = load_splits({"train": GlueSplit(tmp_path, task, "train")})
    example = splits.examples["train"][0]
    assert (example.text, example.text_pair, example.label) == (first.text, first.text_pair, first.label)
    assert example.id == first.id or not first.id
    assert len(splits.examples["train"]) == count
    assert splits.labels is not None
    assert splits.labels.kind.problem_type == (CLASSES if TASKS[task].names else NUMBERS)
    assert splits.labels.names == (TASKS[task].names or ("LABEL_0",))


def test_faults_and_splits_of_glue(tmp_path: Path, write: Write) -> None:
    for name, content in GLUE_FILES.items():
        write(name, content)
    assert (
        report_of(GlueSplit(tmp_path / "QQP", "qqp", "train"))
        .problems["malformed"]
        .first[0]
        .endswith("line 3: 4 cells, expected 6")
    )
    assert report_of(GlueSplit(tmp_path, "mnli", "train")).problems["unlabeled"].count == 1
    assert list(GlueSplit(tmp_path, "cola", "test")) == [TextExample("Bill whistled.", None, None, "0")]
    write("MNLI/dev_mismatched.tsv", "index\tsentence1\tsentence2\tgold_label\n0\tA.\tB.\tentailment\n")
    assert len(list(GlueSplit(tmp_path, "mnli", "validation_mismatched"))) == 1
    with pytest.raises(ConfigError, match="Expected one of train, validation_matched, validation_mismatched"):
        GlueSplit(tmp_path, "mnli", "validation")
    with pytest.raises(ConfigError, match="Did you mean 'sst2'"):
        GlueSplit(tmp_path, "sst-2", "train")
    with pytest.raises(DataError, match=r"dev.tsv: no such file. Expected the folder RTE"):
        GlueSplit(tmp_path, "rte", "validation")
    with pytest.raises(DataError, match=r"no column 'question'. The columns are index, sentence1"):
        GlueSplit(tmp_path / "RTE", "qnli", "train")


def test_predicting_for_glue_loses_no_row(tmp_path: Path, write: Write) -> None:
    content = GLUE_FILES["QQP/train.tsv"]
    write("QQP/dev.tsv", content)
    read, reader = TextClassification().reader, DataOptions(glue="qqp")
    source = str(tmp_path / "QQP" / "validation")
    assert len(list(read(source, reader))) == 2
    with pytest.raises(DataError, match=r"dev\.tsv, line 3: malformed \(4 cells, expected 6\)"):
        list(read(source, reader, labeled=False))
    with pytest.raises(DataError, match=r"dev\.tsv, line 3: malformed \(4 cells, expected 6\)"):
        list(GluePairs(tmp_path, "qqp", "validation", labeled=False))
    write("QQP/dev.tsv", content.replace("\t3\t4\tEh?\n", "\t3\t4\tEh?\t\t-\n"))
    found = list(read(source, reader, labeled=False))
    assert [(one.text, one.text_pair, one.label) for one in found] == [
        ("Why?", "How?", None), ("Eh?", "", None), ("A?", "B?", None)
    ]  # fmt: skip


def test_mrpc_as_microsoft_distributes_it(tmp_path: Path, write: Write) -> None:
    content = GLUE_FILES["MRPC/train.tsv"]
    write("MRPC/msr_paraphrase_train.txt", content)
    write("MRPC/msr_paraphrase_test.txt", content)
    with pytest.raises(DataError, match=r"Put GLUE's dev_ids.tsv into the folder"):
        GlueSplit(tmp_path, "mrpc", "train")
    write("MRPC/dev_ids.tsv", "9\t10\n")
    assert [one.text for one in GlueSplit(tmp_path, "mrpc", "train")] == ["One."]
    assert [one.text for one in GlueSplit(tmp_path, "mrpc", "validation")] == ["Two."]
    assert [one.label for one in GlueSplit(tmp_path, "mrpc", "test")] == ["1", "0"]


# --- words


def test_conll_columns(write: Write) -> None:
    content = (
        "-DOCSTART- -X- -X- O\n\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\n\n\n# # I-NP O\n \n"
        "-DOCSTART- -X- -X- O\nLone NN B-NP\nword NN I-NP O\n\nLast NN B-NP B-LOC"
    )
    file = write("a.conll", content)
    entities = ConllFile(file)
    assert [(one.words, one.labels) for one in entities] == [
        (("EU", "rejects"), ("B-ORG", "O")),
        (("#",), ("O",)),
        (("Last",), ("B-LOC",)),
    ]
    assert report_of(entities).problems["malformed"].first == [
        f"{file}, line 10: line 10 has 3 columns, expected 4"
    ]
    chunks = ConllFile(file, label_column=2)
    assert next(iter(chunks)).labels == ("B-NP", "B-VP")
    with pytest.raises(DataError, match=r"no column 7 for the label. The columns are 0 'EU', 1 'NNP'"):
        list(ConllFile(file, label_column=7))
    with pytest.raises(DataError, match="word and label are the same column"):
        list(ConllFile(write("b.conll", "only\nwords\n")))
    assert [one.words for one in ConllFile(write("b.conll", "only\nwords\n"), labeled=False)] == [
        ("only", "words")
    ]
    tabbed = ConllFile(write("c.conll", "New York\tB-LOC\n10 000\tO\n"))
    (sentence,) = tabbed
    assert sentence == WordsExample(("New York", "10 000"), ("B-LOC", "O"), f"{tabbed.path}, line 1")


def test_labels_of_words_are_checked_between_splits(write: Write) -> None:
    train = ConllFile(write("train.txt", "a I-B\nb O\nc B-A\n"))
    splits = load_splits({"train": train})
    assert splits.labels is not None
    assert splits.labels.names == ("O", "B-A", "I-A", "B-B", "I-B")
    assert label_counts(splits, "train")["O"] == 1
    test = ConllFile(write("test.txt", "a O\n\nb E-A\n"))
    with pytest.raises(DataError, match=r"test.txt, line 3: the label 'E-A' is unknown"):
        load_splits({"train": train, "validation": test})
    parts_of_speech = load_splits({"train": ConllFile(write("pos.txt", "a NN\nb -LRB-\nc B-X\n"))})
    assert parts_of_speech.labels is not None
    assert parts_of_speech.labels.names == ("-LRB-", "B-X", "NN")


def test_training_rows_that_were_left_out_are_named_beside_an_unknown_label(write: Write) -> None:
    train = ConllFile(write("bad.conll", "a O\nb B-A\n\nc\nd B-B\n"))
    validation = ConllFile(write("validation.conll", "c O\nd B-B\n"))
    with pytest.raises(DataError, match=r"validation.conll, line 1: the label 'B-B' is unknown") as caught:
        load_splits({"training": train, "validation": validation})
    assert "bad.conll: 1 examples, 1 skipped" in str(caught.value)
    assert "malformed: 1" in str(caught.value)


def test_tables_of_words(write: Write) -> None:
    rows = [
        {"words": ["a", "b"], "tags": ["O", "B-X"]},
        {"words": "a b", "tags": "O B-X"},
        {"words": ["a", "b"], "tags": ["O"]},
        {"words": [], "tags": []},
        {"words": ["a"], "tags": None},
        {"words": ["a"], "tags": [None]},
    ]
    reader = WordsTable(rows, DataOptions(words_column="words", label_column="tags"))
    assert [(one.words, one.labels) for one in reader] == [(("a", "b"), ("O", "B-X"))] * 2
    problems = report_of(reader).problems
    assert {name: rows.count for name, rows in problems.items()} == {
        "mislabeled": 1,
        "empty": 1,
        "unlabeled": 2,
    }
    assert problems["mislabeled"].first[0].endswith("row 3: 2 words and 1 labels")


# --- questions


def squad(*questions: dict, context: str = "Rome is in Italy. Rome is old.") -> str:
    paragraph = {"context": context, "qas": list(questions)}
    return json.dumps({"data": [{"title": "t", "paragraphs": [paragraph]}]})


def asked(name: str, *answers: tuple[str, int], **more) -> dict:
    given = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": name, "question": "Where?", "answers": given, **more}


def test_squad_files(write: Write) -> None:
    content = squad(
        asked("a", ("Italy", 11), ("in Italy", 8)),
        asked("b", ("Rome", 17)),  # shifted by one
        asked("c", is_impossible=True, plausible_answers=[{"text": "Rome", "answer_start": 0}]),
        asked("d"),
        asked("e", ("Paris", 0)),
    )
    reader = SquadFile(write("dev.json", content))
    context = "Rome is in Italy. Rome is old."
    assert list(reader) == [
        QuestionExample("a", "Where?", context, (("Italy", 11), ("in Italy", 8))),
        QuestionExample("b", "Where?", context, (("Rome", 18),)),
        QuestionExample("c", "Where?", context, (), True),
    ]
    problems = report_of(reader).problems
    assert problems["unlabeled"].first == [f"{reader.source}, question d"]
    assert "'Paris' is not in the context" in problems["mislabeled"].first[0]
    assert len(list(SquadFile(reader.path, labeled=False))) == 5
    with pytest.raises(DataError, match="two questions have the id 'a'"):
        list(SquadFile(write("twice.json", squad(asked("a", ("Rome", 0)), asked("a", ("Rome", 0))))))
    with pytest.raises(DataError, match="expected the JSON of SQuAD"):
        list(SquadFile(write("other.json", '{"questions": []}')))
    with pytest.raises(DataError, match="article 0: not SQuAD's layout"):
        list(SquadFile(write("other.json", '{"data": [{}]}')))


def test_tables_of_questions() -> None:
    rows = [
        {"question": "Q?", "context": "In Rome.", "answers": {"text": ["Rome"], "answer_start": [3]}},
        {"question": "Q?", "context": "In Rome.", "answers": {"text": [], "answer_start": []}},
        {"question": "Q?", "context": "In Rome.", "answers": "Rome"},
        {"question": "Q?", "context": "In Rome.", "answers": None},
    ]
    reader = QuestionTable(rows)
    assert [(one.answers, one.is_impossible) for one in reader] == [
        ((("Rome", 3),), False),
        ((), True),
        ((("Rome", 3),), False),
    ]
    assert report_of(reader).problems["unlabeled"].count == 1
    report = report_of(QuestionTable([{"question": "Q?", "context": "In Rome.", "answers": 5}]))
    assert "row 1: expected the text of an answer" in report.problems["mislabeled"].first[0]


# --- choices


def test_race_folders(tmp_path: Path, write: Write) -> None:
    text = {
        "article": " They met. ",
        "questions": ["Who met?", "They _ ."],
        "options": [["he", "she", "it", "they"], ["met", "ate", "ran", "sat"]],
        "answers": ["D", "A"],
        "id": "high2.txt",
    }
    write("train/high/2.txt", json.dumps(text))
    write("train/middle/1.txt", json.dumps({**text, "answers": ["E", "B"]}))
    reader = RaceFolder(tmp_path / "train")
    first, second, third = reader
    assert first == ChoiceExample("high/2-0", "They met.", "Who met?", ("he", "she", "it", "they"), 3)
    assert (second.label, third.id, third.label) == (0, "middle/1-1", 1)
    assert report_of(reader).problems["mislabeled"].count == 1
    assert len(list(RaceFolder(tmp_path / "train" / "middle"))) == 1
    with pytest.raises(DataError, match=r"has no .txt files. Expected a split of RACE"):
        RaceFolder(tmp_path / "test")
    write("train/high/3.txt", "{}")
    with pytest.raises(DataError, match=r"3.txt: not a text of RACE"):
        list(RaceFolder(tmp_path / "train"))


def test_tables_of_choices(write: Write) -> None:
    header = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label\n"
    rows = [
        '0,v,1,Al sat. He,Al sat.,He,gold,"stands, up.",eats.,sings.,flies.,2\n',
        "1,v,1,x,Al sat.,He,g,a,b,c,d,4\n",
    ]
    reader = ChoiceTable(write("train.csv", header + "".join(rows)))
    (example,) = reader
    assert example == ChoiceExample(
        f"{reader.source}, line 2", "Al sat.", "He", ("stands, up.", "eats.", "sings.", "flies."), 2
    )
    assert (
        report_of(reader)
        .problems["mislabeled"]
        .first[0]
        .endswith("line 3: the label is '4', but there are 4 choices")
    )
    columns = DataOptions(
        context_column="ctx", question_column="", choice_columns="endings", label_column="answer"
    )
    listed = [{"ctx": "A man", "endings": ["sits.", "eats."], "answer": letter} for letter in ("B", "", "C")]
    assert [(one.choices, one.label) for one in ChoiceTable(listed, columns)] == [(("sits.", "eats."), 1)]
    named = ChoiceTable([{**listed[0], "id": "first"}, listed[0]], replace(columns, id_column="id"))
    assert [one.id for one in named] == ["first", named.table.name + ", row 2"]
    # A column with gaps holds 1.0, and files of test splits -1.
    places = [1.0, "1.0", np.float32(0), 1.5, 2.0, -1, -1.0, "-1", float("nan")]
    reader = ChoiceTable([listed[0] | {"answer": place} for place in places], columns)
    assert [one.label for one in reader] == [1, 1, 0]
    assert {problem: rows.count for problem, rows in report_of(reader).problems.items()} == {
        "mislabeled": 2,
        "unlabeled": 4,
    }
    splits = load_splits({"train": ChoiceTable(listed, columns)})
    assert splits.labels is None
    assert label_counts(splits, "train") == {"1": 1}


# --- the real files


def test_sst2(shared: Path) -> None:
    columns = DataOptions(text_column="0", label_column="1", header=False)
    readers = {
        name: TextTable(shared / "data" / "sst2" / f"{name}.tsv", columns)
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


def test_rte(shared: Path) -> None:
    counts = {
        name: len(list(EntailmentFile(shared / "data" / "rte" / f"{name}.xml")))
        for name in ("rte1_dev", "rte1_test", "rte2_dev", "rte2_test", "rte3_dev", "rte3_test")
    }
    assert list(counts.values()) == [567, 800, 400, 800, 800, 800]
    first = next(iter(EntailmentFile(shared / "data" / "rte" / "rte1_dev.xml")))
    assert first == TextExample(
        "Crude oil for April delivery traded at $37.80 a barrel, down 28 cents",
        "Crude oil prices rose to $37.80 per barrel",
        "not_entailment",
        "8",
    )


def test_conll_2000(shared: Path) -> None:
    train, test = (ConllFile(shared / "data" / "conll2000" / f"{name}.txt") for name in ("train", "test"))
    splits = load_splits({"train": train, "test": test})
    words = {name: sum(len(one.words) for one in examples) for name, examples in splits.examples.items()}
    assert words == {"train": 211727, "test": 47377}  # as its README counts them
    assert [len(splits.examples[name]) for name in ("train", "test")] == [8936, 2012]
    assert splits.labels is not None
    assert len(splits.labels.names) == 1 + 2 * 11
    assert "I-LST" in splits.labels.names  # in the test part only


def test_xquad(shared: Path) -> None:
    for language in ("en", "de", "ru", "zh"):
        reader = SquadFile(shared / "data" / "xquad" / f"xquad.{language}.json")
        report = report_of(reader)
        assert (report.examples, report.problems) == (1190, {})
        for one in reader:
            for text, start in one.answers:
                assert one.context[start : start + len(text)] == text


# --- Lists in cells of text


def test_suffixes_in_capitals(tmp_path: Path) -> None:
    file = tmp_path / "A.CSV.GZ"
    file.write_bytes(gzip.compress(b"text,label\nx,1\n"))
    assert [one.text for one in TextTable(file)] == ["x"]


def test_lists_of_words_in_cells(write: Write) -> None:
    rows = [
        ("a river", "O B-X"),
        ('["a", "river bank"]', '["O", "B-X"]'),
        ("['a', \"river's\"]", "['O', 'B-X']"),
        ("[ a river ]", "O O O O"),
        ("['a' 'river']", "O B-X"),
        ("a river", "['O' 'B-X']"),
        ("", "O"),
    ]
    lines = [
        "tokens,ner_tags",
        *(",".join('"' + one.replace('"', '""') + '"' for one in row) for row in rows),
    ]
    reader = WordsTable(write("a.csv", "\n".join(lines) + "\n"))
    report = ReadingReport("")
    found = [(one.words, one.labels) for _, one in reader.read(report)]
    assert found == [
        (("a", "river"), ("O", "B-X")),
        (("a", "river bank"), ("O", "B-X")),
        (("a", "river's"), ("O", "B-X")),
        (("[", "a", "river", "]"), ("O", "O", "O", "O")),
    ]
    assert report.problems["malformed"].count == 2
    assert "['a' 'river']\" is neither a JSON list nor" in report.problems["malformed"].first[0]
    assert report.problems["empty"].first[0].endswith("no words in 'tokens'")


def test_lists_of_choices_in_cells(write: Write) -> None:
    cells = ['x,1,"[""p"", ""q""]"', "y,0,\"['p', 'q']\"", 'z,0,"p, q"', ",0,[]", 'v,0,"[""p""]"']
    file = write("a.csv", "\n".join(["sent1,label,c", *cells]) + "\n")
    reader = ChoiceTable(file, DataOptions(question_column="", choice_columns="c"))
    report = ReadingReport("")
    assert [one.choices for _, one in reader.read(report)] == [("p", "q")] * 2
    assert report.problems["malformed"].first == [
        f"{file}, line 4: 'p, q' is neither a JSON list nor a JSON object"
    ]
    assert report.problems["empty"].first == [
        f"{file}, line 5: no text in 'sent1'",
        f"{file}, line 6: 1 of 2 choices have a text",
    ]


@pytest.mark.parametrize(
    ("given", "answers"),
    [
        ({"text": ["Rome"], "answer_start": [0]}, (("Rome", 0),)),
        ({"text": "Rome", "answer_start": 0}, (("Rome", 0),)),
        ("{'text': ['Rome'], 'answer_start': [0]}", (("Rome", 0),)),
        ('{"text": [], "answer_start": []}', ()),
        ({"text": ["Rome"], "answer_start": []}, None),
        ({"text": ["Rome"], "answer_start": ["0"]}, None),
        ({"text": [3], "answer_start": [0]}, None),
        ({"text": None, "answer_start": 0}, None),
        ("{'text': array(['Rome']), 'answer_start': array([0])}", None),
        (["Rome"], None),
        (7, None),
    ],
)
def test_layouts_of_answers(given: object, answers: tuple | None) -> None:
    rows = [{"question": "where", "context": "Rome is old.", "answers": given}]
    report = ReadingReport("")
    found = [one.answers for _, one in QuestionTable(rows).read(report)]
    assert found == ([] if answers is None else [answers])
    assert ("mislabeled" in report.problems) is (answers is None)


@pytest.mark.parametrize("data", [5, {"a": 1}, "text", [3], [{"paragraphs": [{"context": "a", "qas": "q"}]}]])
def test_squad_files_of_other_layouts(write: Write, data: object) -> None:
    with pytest.raises(DataError, match=r"a.json.*(expected the JSON of SQuAD|not SQuAD's layout)"):
        list(SquadFile(write("a.json", json.dumps({"data": data}))))


@pytest.mark.parametrize(
    "answer", [{"text": 5, "answer_start": 0}, {"text": "a", "answer_start": "0"}, "a", {}]
)
def test_squad_answers_of_other_types(write: Write, answer: object) -> None:
    question = {"id": 1, "question": "q", "answers": [answer]}
    content = {"data": [{"paragraphs": [{"context": "a b", "qas": [question]}]}]}
    with pytest.raises(DataError, match=r"a.json, article 0: not SQuAD's layout"):
        list(SquadFile(write("a.json", json.dumps(content))))


@pytest.mark.parametrize(
    ("question", "options"), [(None, ["a", "b"]), ("q", ["a", 3]), (5, "ab"), ("q", [None])]
)
def test_questions_of_race_that_are_no_text(
    tmp_path: Path, write: Write, question: object, options: object
) -> None:
    content = {"article": "x", "questions": [question], "options": [options], "answers": ["A"]}
    write("1.txt", json.dumps(content))
    report = ReadingReport("")
    assert list(RaceFolder(tmp_path).read(report)) == []
    assert report.problems["malformed"].count == 1
