"""Tests that example objects are checked like rows of tables, and that errors name the example."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from albertkit.datasets.examples import ChoiceExample, PairExample, QuestionExample, TextExample, WordsExample
from albertkit.datasets.options import DataOptions
from albertkit.datasets.reader import ReadingReport
from albertkit.errors import DataError
from albertkit.tasks.loading import load_splits, open_reader
from albertkit.tasks.registry import task_of

TEXT = TextExample("the river", label="good")
PAIR = PairExample("the river", "the key", score=0.5)
WORDS = WordsExample(("the", "river"), ("O", "B-X"))
QUESTION = QuestionExample("q", "Who?", "An old fox.", (("fox", 7),))
CHOICE = ChoiceExample("c", "The river", "is", ("old", "new"), 1)
TASKS = {
    TextExample: "text-classification",
    PairExample: "sentence-embedding",
    WordsExample: "token-classification",
    QuestionExample: "question-answering",
    ChoiceExample: "multiple-choice",
}


def read(*examples: Any, labeled: bool = True, task: str | None = None) -> list[Any]:
    name = task or TASKS[type(examples[0])]
    return list(open_reader(task_of(name), list(examples), DataOptions(), name="train", labeled=labeled))


@pytest.mark.parametrize(
    ("good", "changes", "message"),
    [
        (TEXT, {"text": " "}, "no text"),
        (TEXT, {"text": None}, "no text"),
        (TEXT, {"text_pair": "b"}, "has a text_pair, but the first example has none"),
        (TEXT, {"label": None}, "unlabeled"),
        (TEXT, {"label": float("nan")}, "unlabeled"),
        (TEXT, {"label": ("a", None)}, "None is not a label"),
        (TEXT, {"label": {"a"}}, "not a label"),
        (PAIR, {"pair": ""}, "no text in 'pair'"),
        (PAIR, {"pair": None}, "no text in 'pair'"),
        (PAIR, {"score": None}, "unlabeled"),
        (PAIR, {"score": float("nan")}, "unlabeled"),
        (PAIR, {"score": "high"}, "'high' in 'score' is not a number"),
        (PAIR, {"negative": "the fox"}, "both a negative and a score"),
        (PairExample("the river"), {"negative": "the fox"}, "a negative or a score, but no pair"),
        (WORDS, {"words": ()}, "no words"),
        (WORDS, {"words": ("the", None)}, "word 2 is None"),
        (WORDS, {"labels": "OX"}, "2 words and 1 labels"),
        (WORDS, {"labels": None}, "unlabeled"),
        (WORDS, {"labels": ("O",)}, "2 words and 1 labels"),
        (WORDS, {"labels": ("O", None)}, "no label for word 2"),
        (QUESTION, {"answers": "here"}, "'here' is not in the context"),
        (QUESTION, {"answers": (("fox", "7"),)}, "expected the text of an answer"),
        (QUESTION, {"answers": ()}, "unlabeled"),
        (QUESTION, {"answers": (("dog", 7),)}, "'dog' is not in the context"),
        (QUESTION, {"question": ""}, "no question"),
        (QUESTION, {"context": " "}, "no context"),
        (CHOICE, {"context": ""}, "no text in 'context'"),
        (CHOICE, {"choices": ("old",)}, "1 of 2 choices have a text"),
        (CHOICE, {"choices": "old"}, "'old' is neither a JSON list"),
        (CHOICE, {"label": None}, "unlabeled"),
        (CHOICE, {"label": 2}, "the label is 2, but there are 2 choices"),
    ],
)  # fmt: skip
def test_an_example_that_cannot_be_used(good: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=f"^train, example 2: .*{message}"):
        read(good, replace(good, **changes))


def test_all_examples_are_of_the_class_of_the_task() -> None:
    for examples in ((TEXT, {"text": "a"}), (TEXT, ("a", "b")), (TEXT, WORDS)):
        with pytest.raises(DataError, match=r"^train, example 2: received .*Expected a `TextExample`"):
            read(*examples, task="text-classification")


def test_values_are_those_of_a_table() -> None:
    assert read(TextExample(" the river ", label=" good ")) == [TEXT]
    for label, expected in (
        (1, "1"), (np.int64(1), "1"), (0.5, 0.5), (np.float32(0.5), 0.5), (["a", "b"], ("a", "b")), ((), ()),
        (True, "True"),
    ):  # fmt: skip
        given: Any = label
        (found,) = read(TextExample("a", label=given))
        assert found.label == expected
        assert type(found.label) is type(expected)
    lists: Any = ["the", "river"], ["O", "B-X"]
    assert read(WordsExample(*lists)) == [WORDS]
    assert read(replace(QUESTION, answers=(("fox", 0),))) == [QUESTION]  # the nearest occurrence
    assert read(replace(QUESTION, answers=[["fox", 7]])) == [QUESTION]
    assert read(replace(CHOICE, choices=["old", "new"], label=np.int64(1))) == [CHOICE]
    assert read(replace(PAIR, score=1)) == [replace(PAIR, score=1.0)]


def test_labels_are_not_read_to_predict() -> None:
    assert read(replace(TEXT, label=float("nan")), labeled=False) == [replace(TEXT, label=None)]
    assert read(replace(WORDS, labels="OX"), labeled=False) == [replace(WORDS, labels=None)]
    assert read(replace(QUESTION, answers="here"), labeled=False) == [replace(QUESTION, answers=())]
    assert read(replace(CHOICE, label=7), labeled=False) == [replace(CHOICE, label=None)]
    assert read(replace(PAIR, score="x"), labeled=False) == [replace(PAIR, score=None)]


def test_a_text_without_characters_is_predicted_as_in_a_table() -> None:
    assert read(TextExample(" "), labeled=False) == [TextExample("")]
    assert read(WordsExample(()), labeled=False) == [WordsExample(())]
    reader = open_reader(
        task_of("text-classification"), [TextExample("")], DataOptions(), name="x", labeled=False
    )
    report = ReadingReport("x")
    assert len(list(reader.read(report))) == 1
    assert report.lines() == [
        "x: 1 example",
        "  empty: 1",
        "    x, example 1: no text in 'text', so the row has no prediction",
    ]


def test_answers_at_another_offset_are_counted() -> None:
    given = [QUESTION, replace(QUESTION, answers=(("fox", 0),))]
    reader = open_reader(task_of("question-answering"), given, DataOptions(), name="x")
    report = ReadingReport("x")
    assert [one.answers for _, one in reader.read(report)] == [QUESTION.answers] * 2
    assert report.problems["changed answer"].first == ["x, example 2: 'fox' is at offset 7, not 0"]


def test_data_without_labels_cannot_be_evaluated(tmp_path: Path) -> None:
    folder = tmp_path / "RTE"
    folder.mkdir()
    (folder / "test.tsv").write_text("index\tsentence1\tsentence2\n0\ta\tb\n")
    task = task_of("text-classification")
    reader = open_reader(task, str(folder / "test"), DataOptions(glue="rte"), name="data")
    with pytest.raises(DataError, match=r"there are no usable examples:\n.*\n  unlabeled: 1"):
        load_splits(task, {"data": reader})
