"""The type of the labels is inferred or set, and missing, invalid or unknown labels are reported."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from labeled_files import CLASSES, NUMBERS, SEVERAL, Write, label_counts, load_splits, report_of

from albertkit.datasets.cells import is_missing, read_label, text_of
from albertkit.datasets.examples import ChoiceExample, PairExample, QuestionExample, TextExample, WordsExample
from albertkit.datasets.options import DataOptions
from albertkit.errors import DataError
from albertkit.tasks.labels import CLASS, LabelSet


def loaded_labels(labels: list, **options):
    rows = [{"text": f"text {number}", "label": label} for number, label in enumerate(labels)]
    separator = options.pop("separator", None)
    splits = load_splits({"train": TextExample.read(rows, DataOptions(label_separator=separator))}, **options)
    assert splits.labels is not None
    return (
        splits.labels.kind.problem_type,
        splits.labels.names,
        [one.label for one in splits.examples["train"]],
    )


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
        ([np.True_, np.False_], CLASSES, ("False", "True"), ["True", "False"]),
        ([np.array(1), np.array(0)], CLASSES, ("0", "1"), ["1", "0"]),  # torch's tensors of one number, too
        ([Decimal("3.50"), Decimal(4), Decimal("NaN")], NUMBERS, ("LABEL_0",), [3.5, 4.0]),
        (["1", "2", "none"], CLASSES, ("1", "2", "none"), ["1", "2", "none"]),
        (["3.5", "4", "1e-1"], NUMBERS, ("LABEL_0",), [3.5, 4.0, 0.1]),
        ([0.25, 1.0], NUMBERS, ("LABEL_0",), [0.25, 1.0]),
        (["3.5", "4", "n/a"], NUMBERS, ("LABEL_0",), [3.5, 4.0]),
        ([["y", "x"], [], ["z"]], SEVERAL, ("x", "y", "z"), [("x", "y"), (), ("z",)]),
        ([[2, 10], [2]], SEVERAL, ("2", "10"), [("2", "10"), ("2",)]),
        ([["y ", " x"], ["x"]], SEVERAL, ("x", "y"), [("x", "y"), ("x",)]),
        (["['y', 'x']", '["x"]', "[]", "[1]"], SEVERAL, ("1", "x", "y"), [("x", "y"), ("x",), (), ("1",)]),
    ],
)
def test_the_kind_of_labels_is_inferred(given: list, kind: str, names: tuple, read: list) -> None:
    assert loaded_labels(given) == (kind, names, read)


def test_the_kind_of_labels_can_be_set() -> None:
    assert loaded_labels(["1", "2", "5"], problem_type=NUMBERS) == (NUMBERS, ("LABEL_0",), [1.0, 2.0, 5.0])
    for given in (["0.5", "1.0", "0.5"], [0.5, 1.0, 0.5]):
        assert loaded_labels(given, problem_type=CLASSES) == (CLASSES, ("0.5", "1.0"), ["0.5", "1.0", "0.5"])
    assert loaded_labels(["b; a", "", "a"], separator=";") == (SEVERAL, ("a", "b"), [("a", "b"), (), ("a",)])


def test_labels_without_information_are_an_error() -> None:
    with pytest.raises(DataError, match="every row has the label 'a'"):
        loaded_labels(["a", "a"])
    with pytest.raises(DataError, match="each of the 30 rows has a different label"):
        loaded_labels([f"id{number}" for number in range(30)])
    assert len(loaded_labels([[f"{number}", f"{(number + 1) % 30}"] for number in range(30)])[1]) == 30
    with pytest.raises(DataError, match="there are no usable examples"):
        loaded_labels(["", ""])
    with pytest.raises(DataError, match="no example has a label"):
        loaded_labels([[], []])


def test_an_unknown_label_is_an_error_with_its_row(write: Write) -> None:
    train = TextExample.read(write("train.csv", "text,label\na,positive\nb,negative\n"))
    test = TextExample.read(write("test.csv", "text,label\na,positive\nb,postive\n"))
    with pytest.raises(DataError) as caught:
        load_splits({"train": train, "validation": test})
    assert "test.csv, line 3: the label 'postive' is unknown (did you mean 'positive'?)" in str(caught.value)
    assert "The training data has the labels negative, positive" in str(caught.value)
    several = TextExample.read(write("several.csv", "text,label\na,positive\nb,x\nc,negative\nd,y\n"))
    with pytest.raises(DataError, match=r"line 3: the label 'x' is unknown \(2 rows have an unknown label\)"):
        load_splits({"train": train, "validation": several})
    # The labels of a model are checked against likewise, in every split.
    labels = load_splits({"train": train}).labels
    with pytest.raises(DataError, match=r"'postive' is unknown.* model has the labels negative, positive"):
        load_splits({"test": test}, labels=labels)
    unnamed = LabelSet(CLASS, ("LABEL_0", "LABEL_1"))
    with pytest.raises(DataError, match=r"'positive' is unknown.* or give the model's labels their names"):
        load_splits({"test": test}, labels=unnamed)


def test_errors_about_labels_list_unreadable_rows(write: Write) -> None:
    file = write("train.jsonl", '{"text": "a", "label": "x"}\n{"text": "b", "la\n')
    with pytest.raises(DataError) as caught:
        load_splits({"train": TextExample.read(file)})
    assert "every row has the label 'x'" in str(caught.value)
    assert "train.jsonl, line 2" in str(caught.value)


def test_labels_written_otherwise_are_the_same_class(write: Write) -> None:
    train = TextExample.read(write("train.csv", "text,label\na,1\nb,0\n"))
    test = TextExample.read(write("test.csv", "text,label\na,1.0\nb,0.0\n"))
    splits = load_splits({"train": train, "validation": test})
    assert [one.label for one in splits.examples["validation"]] == ["1", "0"]
    assert label_counts(splits, "validation") == {"1": 1, "0": 1}


def test_nan_and_infinite_labels_are_invalid_labels(write: Write) -> None:
    train = TextExample.read(write("train.csv", "text,label\na,1.5\nb,2.5\nc,?\n"))
    splits = load_splits({"train": train, "validation": train})
    assert splits.reports["validation"].problems["invalid label"].first == [
        f"{train.source}, line 4: the label '?' is not a number"
    ]
    assert splits.reports["validation"].examples == len(splits.examples["validation"]) == 2


@pytest.mark.parametrize("label", [[0, 1, 0], np.array([1.0, 1.0]), [True, False, False], "[0.0, 0.0]"])
def test_a_list_of_zeros_and_ones_is_an_invalid_label(label: object) -> None:
    """The list has a number for each label. Otherwise its items are the labels."""
    report = report_of(TextExample.read([{"text": "a", "label": label}, {"text": "b", "label": [0, 1]}]))
    assert report.examples == 1
    assert (
        report.problems["invalid label"].first[0].endswith("use one column per label (--label-column A,B).")
    )


@pytest.mark.parametrize("separator", [" ", ", "])
def test_zeros_and_ones_with_a_separator_are_invalid_labels(separator: str) -> None:
    rows = [{"text": "a", "label": separator.join(label)} for label in ("100", "011")]
    report = report_of(TextExample.read(rows, DataOptions(label_separator=separator)))
    assert report.examples == 0
    assert (
        report.problems["invalid label"].first[0].endswith("use one column per label (--label-column A,B).")
    )


@pytest.mark.parametrize(
    ("labels", "separator"),
    [
        ([[1, 0], [0, 1], [0, 0]], None),
        ([[1.0, 0.0], [0.0, 1.0]], None),
        ([[True, False], [False, True]], None),
        (["[1, 0]", "[0, 1]"], None),
        (["1 0", "0 1"], " "),
        ([["b", "a"], ["a", "b"]], None),
        ([["a"], ["a"], ["a"]], None),
    ],
)
def test_several_labels_that_every_row_has_are_an_error(labels: list, separator: str | None) -> None:
    """A list of 0 or 1 for each of two labels looks like a list of the labels "0" and "1"."""
    with pytest.raises(DataError, match=r"every row has the labels? '") as caught:
        loaded_labels(labels, separator=separator)
    assert ("--label-column A,B" in str(caught.value)) is ("a" not in labels[0])
    assert loaded_labels([[0, 1], [1], [2, 0]]) == (
        SEVERAL,
        ("0", "1", "2"),
        [("0", "1"), ("1",), ("0", "2")],
    )


def test_a_single_class_is_an_error_if_the_source_has_more() -> None:
    """The first rows of a sorted data set have a single class."""
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])}
    )
    rows = datasets.Dataset.from_dict({"text": ["a", "b", "c"], "label": [0, 0, 1]}, features=features)
    assert load_splits({"train": TextExample.read(rows)}).labels == LabelSet(CLASS, ("neg", "pos"))
    with pytest.raises(DataError, match="every row has the label 'neg'"):
        load_splits({"train": TextExample.read(rows.select([0, 1]))})


def test_ordered_categories_keep_their_order(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    pa = pytest.importorskip("pyarrow")

    def labels_of(source: Any) -> tuple[tuple[str, ...], list[Any]]:
        splits = load_splits({"train": TextExample.read(source)})
        assert splits.labels is not None
        return splits.labels.names, [one.label for one in splits.examples["train"]]

    order = ["low", "mid", "high"]
    frame = pd.DataFrame({"text": list("abcd")})
    frame["label"] = pd.Categorical(["mid", "low", "high", None], categories=order, ordered=True)
    frame.to_parquet(tmp_path / "a.parquet", row_group_size=1)
    table = pa.Table.from_pandas(frame)
    for source in (frame, table, table.to_batches()[0], tmp_path / "a.parquet"):
        assert labels_of(source) == (("low", "mid", "high"), ["mid", "low", "high"])
    unordered = pd.Categorical(["mid", "low", "high", None], categories=order)
    assert labels_of(frame.assign(label=unordered))[0] == ("high", "low", "mid")
    numbers = frame.assign(label=pd.Categorical([1, 3, 1, 2], categories=[3, 2, 1], ordered=True))
    for source in (numbers, pa.Table.from_pandas(numbers)):
        assert labels_of(source) == (("3", "2", "1"), ["1", "3", "1", "2"])
    ranges = frame.assign(label=pd.cut([11.0, 2.0, 4.0, 9.0], [0, 5, 10, 20]))
    assert labels_of(ranges)[0] == ("(0, 5]", "(5, 10]", "(10, 20]")


@pytest.mark.parametrize("label", ["[1 0]", "[ 1 10]", "[0. 1.]", "['a' 'b']"])
def test_arrays_written_as_text_are_malformed(label: str) -> None:
    """pandas writes them if the column of a .csv file has arrays."""
    report = report_of(TextExample.read([{"text": "a", "label": label}]))
    assert report.problems["malformed"].first[0].endswith("is neither a JSON list nor a JSON object")


def test_nothing_in_a_cell_is_never_a_text() -> None:
    """pandas writes NaN (or NA) for a cell without content."""
    pd = pytest.importorskip("pandas")
    missing = [float("nan"), None, " ", np.float32("nan"), pd.NA, pd.NaT]
    for value in missing:
        assert is_missing(value)
        assert text_of(value) == ""
    assert [text_of(value) for value in ("nan", 3, 0.5, np.int64(3), True)] == ["nan", "3", "0.5", "3", ""]
    for value in missing:
        texts = TextExample.read(
            [{"text": value, "label": "a", "id": value}, {"text": "b", "label": value, "id": value}]
        )
        assert report_of(texts).examples == 0
        assert set(report_of(texts).problems) == {"empty", "unlabeled"}
        (_, second) = TextExample.read(texts.rows, DataOptions(id_column="id"), labeled=False)
        assert second.id == "the given examples, row 2"
        pairs = PairExample.read(
            [{"text": "a", "text_pair": "b", "score": value}, {"text": "a", "text_pair": value, "score": 1}]
        )
        assert set(report_of(pairs).problems) == {"empty", "unlabeled"}
        indicators = TextExample.read([{"text": "a", "x": value, "y": 0}], DataOptions(label_column="x,y"))
        assert set(report_of(indicators).problems) == {"unlabeled"}
        choices = ChoiceExample.read(
            [{"sent1": "a", "sent2": "b", "ends": ["c", "d"], "label": value}],
            DataOptions(choice_columns="ends"),
        )
        assert set(report_of(choices).problems) == {"unlabeled"}
        questions = QuestionExample.read([{"question": "a", "context": "b", "answers": value}])
        assert set(report_of(questions).problems) == {"unlabeled"}
    words = WordsExample.read(
        [
            {"tokens": ["a", one], "ner_tags": ["O", other]}
            for one, other in ((float("nan"), "O"), ("b", None))
        ]
    )
    assert {problem: rows.count for problem, rows in report_of(words).problems.items()} == {
        "malformed": 1,
        "unlabeled": 1,
    }
    several = TextExample.read(
        [{"text": "a", "label": one} for one in (["x", float("nan")], ["x", ""], [" "])]
    )
    assert report_of(several).problems["invalid label"].count == 3


@pytest.mark.parametrize("number", [10**400, float("inf")])
def test_numbers_that_are_not_finite_are_invalid_labels(number: float) -> None:
    for label in (number, [number]):
        report = report_of(TextExample.read([{"text": "a", "label": label}]))
        assert (
            report.problems["invalid label"]
            .first[0]
            .endswith("Expected text, a finite number or a list of them.")
        )
    report = report_of(PairExample.read([{"text": "a", "text_pair": "b", "score": number}]))
    assert report.problems["invalid label"].first[0].endswith("in 'score' is not a number")


def test_classes_of_columns_with_gaps() -> None:
    """A column of whole numbers in which one is missing is a column of floats."""
    rows = [{"tokens": ["a", "b"], "ner_tags": [1.0, 0.0]}]
    assert next(iter(WordsExample.read(rows))).labels == ("1", "0")
    assert LabelSet(CLASS, ("0", "1")).read(1) == "1"
    assert read_label(1.0, separator=None, names=("no", "yes")) == "yes"
    assert read_label(-1.0, separator=None, names=("no", "yes")) is None
    with pytest.raises(DataError, match=r"the class 2\.0 is not one of 0 to 1"):
        read_label(2.0, separator=None, names=("no", "yes"))


def test_labels_that_may_stand_for_a_missing_label_are_named_with_their_counts() -> None:
    labels = ["good", "-", "N/A", "bad", "-", "nan", "?", "good", "bad"]
    notes = LabelSet(CLASS, tuple(sorted({*labels}))).notes(labels)
    assert any(
        "stand for a missing label" in note and "'-' (2), '?' (1), 'N/A' (1)" in note for note in notes
    )
    assert not any(
        "missing label" in note for note in LabelSet(CLASS, ("bad", "good")).notes(["good", "bad"])
    )
