"""Read examples: `read_examples` chooses between tables and data sets as they are distributed.

* SQuAD 1.1 and 2.0: a JSON file. In version 2.0, a question without answers has `is_impossible`.
* RACE (Lai et al. 2017): a JSON file for each text, in the folders `middle` and `high` of each split.
* CoNLL: one word per line with its columns, and a blank line after each sentence. Lines with `-DOCSTART-`
  separate documents. In CoNLL-2000, chunks are column 2, the last (-1); in CoNLL-2003 they are column 2, and
  entities are column 3, the last.
* GLUE (Wang et al. 2019): a folder of TSV files without quotes for each task.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any

from albertkit.datasets.examples import (
    ChoiceExample,
    PairExample,
    QuestionExample,
    TextExample,
    WordsExample,
    read_choice,
)
from albertkit.datasets.options import DataOptions
from albertkit.datasets.reader import Columns, Reader, Warn
from albertkit.datasets.rows import CONVERT_ARRAY, FORMATS, Row, RowError, Rows, delimited_rows, existing_file
from albertkit.errors import ConfigError, DataError, reading, short, suggestion
from albertkit.text_files import file_format, read_lines, read_records

WORD_TABLES = tuple(name for name in FORMATS if name != ".tsv")
"""Endings of tables of words. Other files, also .tsv, have CoNLL columns."""


def read_examples(
    example_class: Any, source: Any, options: DataOptions, *, labeled: bool = True
) -> Reader[Any]:
    """Return the reader of a data set as it is distributed, or else of a table.

    Args:
        example_class: the class of the examples.
        source: the path of a file or folder, a table, or an iterable of dicts.
        options: columns and layout of the source.
        labeled: whether to read labels, and leave out rows without labels.
    """
    if isinstance(source, str):
        path = Path(source)
        ending, is_folder = file_format(path)[0], path.is_dir()
        if options.glue is not None and issubclass(example_class, TextExample | PairExample):
            parts = (path.parent, options.glue, path.name)
            return glue(*parts, labeled=labeled, example_class=example_class)
        if issubclass(example_class, QuestionExample) and ending == ".json":
            return squad(path, labeled=labeled)
        if issubclass(example_class, ChoiceExample) and is_folder and not (path / "state.json").is_file():
            return race(path, labeled=labeled)
        if issubclass(example_class, WordsExample) and not is_folder and ending not in WORD_TABLES:
            words = _column_number("words_column", options.words_column or "0")
            labels = _column_number("label_column", options.label_column or "-1")
            return conll(path, word_column=words, label_column=labels, labeled=labeled)
    return example_class.read(source, options, labeled=labeled)


def squad(path: str | Path, *, labeled: bool = True) -> Reader[QuestionExample]:
    """Return the reader of a SQuAD file, compressed or not. The file is read as a whole.

    Args:
        path: the file.
        labeled: whether to read answers, and leave out questions without answers.

    Raises:
        DataError: the file does not exist. While reading: it is not JSON or has another layout, or two
            questions have the same id.
    """
    rows = Rows(str(path), partial(_squad_rows, existing_file(path)))
    names = {name: name for name in ("question", "context", "answers", "is_impossible")}
    return QuestionExample.reader(rows, Columns(names=names, labeled=labeled, id="id"))


def _squad_rows(path: Path) -> Iterator[Row]:
    text = "".join(line for _, line, _ in read_lines(path))
    known = set[str]()
    with reading(path, DataError):
        document = json.loads(text)
        if not isinstance(document, dict) or not isinstance(document.get("data"), list):
            expected = "expected the JSON of SQuAD, an object with a list 'data'."
            if isinstance(document, list):
                expected += f" {CONVERT_ARRAY.format(path)}."
            raise ValueError(expected)
        for article in document["data"]:
            for paragraph in article["paragraphs"]:
                for question in paragraph["qas"]:
                    name = str(question["id"])
                    if name in known:
                        raise DataError(f"{path}: two questions have the id {name!r}. Expected unique ids.")
                    known.add(name)
                    given = question.get("answers", ())
                    answers = [(answer["text"], answer["answer_start"]) for answer in given]
                    if not all(isinstance(text, str) and type(start) is int for text, start in answers):
                        raise ValueError(f"the answers to {name!r} are {short(answers)}")
                    values = {
                        "id": name,
                        "question": question["question"],
                        "context": paragraph["context"],
                        "answers": answers,
                        "is_impossible": bool(question.get("is_impossible", False)),
                    }
                    yield Row(f"{path}, question {name}", values)


def race(folder: str | Path, *, labeled: bool = True) -> Reader[ChoiceExample]:
    """Return the reader of a split of RACE, or of one part of it. Ids begin with the part.

    Args:
        folder: `RACE/train`, or `RACE/train/middle`.
        labeled: whether to read answers.

    Raises:
        DataError: the folder has no texts. While reading: a file has another layout.
    """
    files = sorted(Path(folder).rglob("*.txt"))
    if not files:
        expected = "Expected a split of RACE, with the folders middle and high."
        raise DataError(f"{folder} has no .txt files. {expected}")
    rows = Rows(str(folder), partial(_race_rows, files, labeled))
    columns = Columns(names={}, labeled=labeled, id="id")

    def example(row: Row, _: Warn) -> ChoiceExample:
        _, context, question, choices, answer = row.values.values()
        if not isinstance(choices, list) or not all(isinstance(text, str) for text in (question, *choices)):
            raise RowError("malformed", "expected a question and choices as text")
        choices = tuple(choice.strip() for choice in choices)
        if not context or not any(choices):  # some choices are empty
            raise RowError("empty")
        label = None if answer is None else read_choice(answer, choices)
        return ChoiceExample(columns.id_of(row), context, question.strip(), choices, label)

    return Reader(rows, example, columns)


def _race_rows(files: list[Path], labeled: bool) -> Iterator[Row]:
    for file in files:
        with reading(file, DataError):
            text = json.loads(file.read_text(encoding="utf-8"))
            asked = text["questions"]
            answers = text["answers"] if labeled else [None] * len(asked)
            questions = list(zip(asked, text["options"], answers, strict=True))
            context = text["article"].strip()
        for number, (question, choices, answer) in enumerate(questions):
            values = {"context": context, "question": question, "choices": choices, "label": answer}
            name = f"{file.parent.name}/{file.stem}-{number}"
            yield Row(f"{file}, question {number + 1}", {"id": name, **values})


# --- CoNLL


def _column_number(name: str, value: str) -> int:
    try:
        return int(value)
    except ValueError:
        expected = "Expected the number of a column of a CoNLL file, from 0, or from the end with -1"
        raise DataError(f"{name} is {value!r}. {expected}.") from None


DOCUMENT_START = "-DOCSTART-"
_BREAKS = ([], [DOCUMENT_START])  # the first words of the lines between sentences
_RANGE = re.compile(r"[0-9]+[-.][0-9]+")
_LABEL = re.compile(r"[A-Z]-\S+|[A-Z][A-Z0-9$_|-]*")  # B-PER, O, PRP$; plain text usually ends otherwise


def conll(
    path: str | Path, *, word_column: int = 0, label_column: int = -1, labeled: bool = True
) -> Reader[WordsExample]:
    """Return the reader of a CoNLL file, compressed or not.

    Args:
        path: the file.
        word_column: the index of the word in a line, from 0; negative counts from the end.
        label_column: the index of the label.
        labeled: whether to read labels.

    Raises:
        DataError: the file does not exist. While reading: the first line does not have a column or is a
            header, or a file without labels is plain text.
    """
    path = existing_file(path)
    if not labeled:
        _check_not_plain_text(path)

    def rows() -> Iterator[Row]:
        width = 0
        for lines in _blocks(path):
            origin, cells = f"{path}, line {lines[0][0]}", lines[0][1]
            is_first = not width
            if is_first:
                width = len(cells)
                if not cells[-1]:  # a column at the end that is empty in every line does not count
                    width = max(len(_without_end(each)) for block in _blocks(path) for _, each in block)
                _check_columns(cells, width, word_column, label_column if labeled else None, origin)
            uneven = [(number, cells) for number, cells in lines if len(_without_end(cells, width)) != width]
            if uneven:
                number, cells = uneven[0]
                detail = f"line {number} has {len(cells)} column{'s' * (len(cells) != 1)}, expected {width}"
                plain = " (each line is a word; for plain text: albertkit tag --file)"
                yield Row(origin, {}, detail if labeled else detail + plain)
                continue
            if word_column % width:
                lines = _without_ranges(lines)
            words = [cells[:width][word_column] for _, cells in lines]
            if is_first and width > 2 and words[1:] and words == list(map(str, range(1, len(words) + 1))):
                advice = "In CoNLL-U, set --words-column 1 and --label-column 3"
                what = f"column {word_column} counts the words, as in CoNLL-U files"
                raise DataError(f"{origin}: {what}. {advice}.")
            labels = [cells[:width][label_column] for _, cells in lines] if labeled else None
            yield Row(origin, {"words": words, "labels": labels})

    columns = Columns(names={"words": "words", "labels": "labels"}, labeled=labeled)
    return WordsExample.reader(Rows(str(path), rows), columns)


def _blocks(path: Path) -> Iterator[list[tuple[int, list[str]]]]:
    """Yield the lines of each sentence: their numbers and cells."""
    numbered = ((number, line.rstrip("\r\n")) for number, line, _ in read_records(path))
    for is_break, group in groupby(numbered, lambda line: line[1].split(maxsplit=1)[:1] in _BREAKS):
        if not is_break:
            lines = list(group)
            first = next((line for _, line in lines if not line.startswith("#")), lines[0][1])
            # If there are tabs, only they separate cells, which may then contain spaces.
            separator = "\t" if "\t" in first else None
            yield _without_comments([(number, line.split(separator)) for number, line in lines])


def _check_not_plain_text(path: Path) -> None:
    """Check that a sentence has several lines, or that the last column has labels."""
    first, ends_in_labels = "", True
    for lines in _blocks(path):
        number, cells = lines[0]
        if len(lines) > 1 or len(cells) == 1:
            return
        first = first or f"line {number}: {short(' '.join(cells))}"
        ends_in_labels = ends_in_labels and _LABEL.fullmatch(cells[-1]) is not None
    if not ends_in_labels:
        expected = "Expected one word per line. For plain text: albertkit tag --file"
        raise DataError(f"{path}, {first} looks like plain text. {expected}.")


def _check_columns(cells: list[str], width: int, word: int, label: int | None, origin: str) -> None:
    """Check the columns of the word and the label in the first line."""
    if "tokens" in cells[:-1] and not any(map(_LABEL.fullmatch, cells)):
        advice = "If the file is a table, rename it so that it ends in .csv, and set --delimiter '\\t'"
        raise DataError(f"{origin}: {', '.join(map(repr, cells))} are column names. {advice}.")
    for what, column in (("word", word), ("label", label)):
        if column is not None and not -width <= column < width:
            listed = ", ".join(f"{number} {cell!r}" for number, cell in enumerate(cells))
            raise DataError(f"{origin}: no column {column} for the {what}. The columns are {listed}.")
    if label is not None and word % width == label % width:
        advice = "Set the columns with --words-column and --label-column"
        raise DataError(f"{origin}: word and label are the same column. {advice}: {' '.join(cells)!r}.")


def _without_end(cells: list[str], width: int = 0) -> list[str]:
    while len(cells) > width and not cells[-1]:
        cells = cells[:-1]
    return cells


def _without_ranges(lines: list[tuple[int, list[str]]]) -> list[tuple[int, list[str]]]:
    """Return the words of a sentence in CoNLL-U, without ranges of words (1-2) and empty nodes (5.1)."""
    words = [line for line in lines if not _RANGE.fullmatch(line[1][0])]
    return words if words and all(cells[0].isdecimal() for _, cells in words) else lines


def _without_comments(block: list[tuple[int, list[str]]]) -> list[tuple[int, list[str]]]:
    """Return a sentence without the comments before it.

    A comment begins with "#" and has another number of columns than the first line that does not: "#" is also
    a word of CoNLL-2000.
    """
    width = next((len(cells) for _, cells in block if not cells[0].startswith("#")), None)
    comments = takewhile(lambda line: line[1][0].startswith("#") and len(line[1]) != width, block)
    return block if width is None else block[len(list(comments)) :]


# --- GLUE


@dataclass(frozen=True)
class GlueTask:
    """A task of GLUE: its files, columns, labels and metrics."""

    folder: str
    text: str
    pair: str | None
    label: str
    names: tuple[str, ...] | None
    """The labels in order; None for regression."""
    metrics: tuple[str, ...]
    """Keys of `class_scores` or `number_scores`. The first one selects the best model."""
    columns: tuple[str, ...] | None = None
    """The columns of train.tsv and dev.tsv if they have no header."""
    validation: tuple[str, ...] = ("validation",)
    """The splits for validation."""


_NLI = ("contradiction", "entailment", "neutral")
_ENTAILMENT = ("entailment", "not_entailment")
_YES = ("0", "1")

GLUE_TASKS: dict[str, GlueTask] = {
    "cola": GlueTask(
        *("CoLA", "sentence", None, "label", _YES, ("matthews", "accuracy")),
        columns=("source", "label", "mark", "sentence"),
    ),
    "sst2": GlueTask("SST-2", "sentence", None, "label", _YES, ("accuracy",)),
    "mrpc": GlueTask("MRPC", "#1 String", "#2 String", "Quality", _YES, ("accuracy", "f1")),
    "qqp": GlueTask("QQP", "question1", "question2", "is_duplicate", _YES, ("accuracy", "f1")),
    "stsb": GlueTask("STS-B", "sentence1", "sentence2", "score", None, ("pearson", "spearman")),
    "mnli": GlueTask(
        *("MNLI", "sentence1", "sentence2", "gold_label", _NLI, ("accuracy",)),
        validation=("validation_matched", "validation_mismatched"),
    ),
    "qnli": GlueTask("QNLI", "question", "sentence", "label", _ENTAILMENT, ("accuracy",)),
    "rte": GlueTask("RTE", "sentence1", "sentence2", "label", _ENTAILMENT, ("accuracy",)),
    "wnli": GlueTask("WNLI", "sentence1", "sentence2", "label", _YES, ("accuracy",)),
}

_SCORED = ("stsb", "mrpc", "qqp")  # their labels are similarity scores
_NO_CONSENSUS = "-"  # the label in MNLI's files if the annotators did not agree


def glue(
    folder: str | Path,
    task: str,
    split: str,
    *,
    labeled: bool = True,
    example_class: type[TextExample | PairExample] = TextExample,
) -> Reader[Any]:
    """Return the reader of one split of one task. Test splits have no labels.

    Args:
        folder: the folder of all tasks, or the folder of this task.
        task: its name in `GLUE_TASKS`.
        split: "train", "validation" or "test"; for MNLI "validation_matched", "validation_mismatched" and
            so on.
        labeled: whether to read labels, if the split has them.
        example_class: `PairExample` reads the labels as similarity scores.

    Raises:
        ConfigError: the task or split is unknown, or the labels of the task are no similarity scores.
        DataError: the file does not exist, or has other columns.
    """
    if example_class is PairExample and task not in _SCORED:
        expected = f"Expected one of {', '.join(_SCORED)}, which label the similarity of two texts."
        raise ConfigError(f"the task is {task!r}. {expected}")
    if task not in GLUE_TASKS:
        raise ConfigError(f"the task is {task!r}. {suggestion(task, GLUE_TASKS)}")
    official = GLUE_TASKS[task]
    tests = [name.replace("validation", "test") for name in official.validation]
    splits = ["train", *official.validation, *tests]
    if split not in splits:
        raise ConfigError(f"the split of {task} is {split!r}. Expected one of {', '.join(splits)}.")
    folder = Path(folder)
    if (folder / official.folder).is_dir():
        folder = folder / official.folder
    file = folder / f"{split.replace('validation', 'dev')}.tsv"
    if not file.is_file():
        raise DataError(f"{file}: no such file. Expected the folder {official.folder} of GLUE.")
    is_test = split.startswith("test")
    table = delimited_rows(file, names=None if is_test else official.columns, delimiter="\t")
    labeled = labeled and not is_test
    text, pair, label = official.text, official.pair, official.label if labeled else None
    table.check_columns(glue=[name for name in (text, pair, label) if name])

    def rows() -> Iterator[Row]:
        for row in table:
            if label and row.values.get(label, "").strip() == _NO_CONSENSUS:
                row = row._replace(values={**row.values, label: ""})
            yield row

    # The fields of both classes of examples.
    names = {"text": text, "text_pair": pair, "pair": pair, "label": label, "score": label}
    identity = next((name for name in ("index", "id") if name in table.columns), None)
    columns = Columns(names=names, labeled=labeled, id=identity, class_names=official.names)
    return example_class.reader(Rows(str(file), rows), columns)
