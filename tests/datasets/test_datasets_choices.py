"""The readers for multiple choice accept RACE folders and tables, and report unusable rows."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from labeled_files import Write, label_counts, load_splits, report_of

from albertkit.datasets.examples import ChoiceExample
from albertkit.datasets.official import race
from albertkit.datasets.options import DataOptions
from albertkit.datasets.reader import ReadingReport
from albertkit.errors import DataError


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
    reader = race(tmp_path / "train")
    first, second, third = reader
    assert first == ChoiceExample("high/2-0", "They met.", "Who met?", ("he", "she", "it", "they"), 3)
    assert (second.label, third.id, third.label) == (0, "middle/1-1", 1)
    assert report_of(reader).problems["invalid label"].count == 1
    assert len(list(race(tmp_path / "train" / "middle"))) == 1
    with pytest.raises(DataError, match=r"has no .txt files. Expected a split of RACE"):
        race(tmp_path / "test")
    write("train/high/3.txt", "{}")
    with pytest.raises(DataError, match=r"3.txt is damaged"):
        list(race(tmp_path / "train"))


def test_tables_of_choices(write: Write) -> None:
    header = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label\n"
    rows = [
        '0,v,1,Al sat. He,Al sat.,He,gold,"stands, up.",eats.,sings.,flies.,2\n',
        "1,v,1,x,Al sat.,He,g,a,b,c,d,4\n",
        "2,v,1,x,Al sat.,He,g,a,b,c,d,0\n",
    ]
    reader = ChoiceExample.read(write("train.csv", header + "".join(rows)))
    example, last = reader
    assert last.label == 0
    assert example == ChoiceExample(
        f"{reader.source}, line 2", "Al sat.", "He", ("stands, up.", "eats.", "sings.", "flies."), 2
    )
    assert (
        report_of(reader)
        .problems["invalid label"]
        .first[0]
        .endswith("line 3: the label is '4', but there are 4 choices")
    )
    columns = DataOptions(
        context_column="ctx", question_column="", choice_columns="endings", label_column="answer"
    )
    listed = [{"ctx": "A man", "endings": ["sits.", "eats."], "answer": letter} for letter in ("B", "", "C")]
    assert [(one.choices, one.label) for one in ChoiceExample.read(listed, columns)] == [
        (("sits.", "eats."), 1)
    ]
    named = ChoiceExample.read([{**listed[0], "id": "first"}, listed[0]], replace(columns, id_column="id"))
    assert [one.id for one in named] == ["first", named.source + ", row 2"]
    # A column with gaps holds 1.0, and files of test splits -1.
    places = [1.0, "1.0", np.float32(0), 1.5, 2.0, -1, -1.0, "-1", float("nan")]
    reader = ChoiceExample.read([listed[0] | {"answer": place} for place in places], columns)
    assert [one.label for one in reader] == [1, 1, 0]
    assert {problem: rows.count for problem, rows in report_of(reader).problems.items()} == {
        "invalid label": 2,
        "unlabeled": 4,
    }
    splits = load_splits({"train": ChoiceExample.read(listed, columns)})
    assert splits.labels is None
    assert label_counts(splits, "train") == {"1": 1}


CHOICES = DataOptions(
    context_column="ctx", question_column="", choice_columns="choices", label_column="answer"
)


@pytest.mark.parametrize("labels", [[1, 2, 3, 1], ["1", "2", "3", "2"], [1.0, 3.0, 3.0, 2.0]])
def test_labels_that_count_from_1_are_an_error(labels: list) -> None:
    rows = [{"ctx": "A man", "choices": ["sits", "eats", "runs"], "answer": label} for label in labels]
    with pytest.raises(DataError, match="the labels in 'answer' seem to count from 1"):
        load_splits({"train": ChoiceExample.read(rows, CHOICES)})
    assert len(list(ChoiceExample.read(rows, CHOICES, labeled=False))) == 4
    # With a label of 0, they count from 0.
    reader = ChoiceExample.read([*rows, rows[0] | {"answer": 0}], CHOICES)
    assert report_of(reader).problems["invalid label"].count == sum(int(label) == 3 for label in labels)


@pytest.mark.parametrize(
    ("choices", "answer", "label"),
    [
        ({"text": ["sits", "eats"], "label": ["A", "B"]}, "B", 1),
        ({"label": ["1", "2"], "text": ["sits", "eats"]}, "2", 1),
        ({"label": np.array([1, 2]), "text": np.array(["sits", "eats"])}, 1, 0),
        ({"text": ["sits", "eats"], "label": ["C", "D"]}, "C", 0),
        ({"text": ["sits", "eats"], "label": ["A", "B"]}, 1, 1),
        ({"text": ["sits", "eats"]}, 1, 1),
        ([{"text": "sits", "label": "A"}, {"text": "eats", "label": "B"}], "B", 1),
        ([{"label": "1", "text": "sits"}, {"label": "2", "text": "eats"}], "1", 0),
        ("{'text': ['sits', 'eats'], 'label': ['A', 'B']}", "B", 1),
        ('{"text": ["sits", "eats"], "label": ["A", "B"]}', "A", 0),
        ({"text": ["sits", "eats"], "label": ["1", "2"]}, "0", None),
        ({"text": ["sits"], "label": ["A"]}, "A", None),
    ],
)
def test_choices_with_labels(choices: object, answer: object, label: int | None) -> None:
    reader = ChoiceExample.read([{"ctx": "A man", "choices": choices, "answer": answer}], CHOICES)
    found = [(one.choices, one.label) for one in reader]
    assert found == ([] if label is None else [(("sits", "eats"), label)])


def test_lists_of_choices_in_cells(write: Write) -> None:
    cells = ['x,1,"[""p"", ""q""]"', "y,0,\"['p', 'q']\"", 'z,0,"p, q"', ",0,[]", 'v,0,"[""p""]"']
    file = write("a.csv", "\n".join(["sent1,label,c", *cells]) + "\n")
    reader = ChoiceExample.read(file, DataOptions(question_column="", choice_columns="c"))
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
    ("question", "options"), [(None, ["a", "b"]), ("q", ["a", 3]), (5, "ab"), ("q", [None])]
)
def test_questions_of_race_that_are_no_text(
    tmp_path: Path, write: Write, question: object, options: object
) -> None:
    content = {"article": "x", "questions": [question], "options": [options], "answers": ["A"]}
    write("1.txt", json.dumps(content))
    report = ReadingReport("")
    assert list(race(tmp_path).read(report)) == []
    assert report.problems["malformed"].count == 1
