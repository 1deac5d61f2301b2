"""Questions with choices: the folders of RACE, and tables such as SWAG's CSV.

RACE (Lai et al. 2017) has a JSON file for each text, in the folders `middle` and `high` of each split:

    {"article": ..., "questions": [...], "options": [[4 texts], ...], "answers": ["A", ...]}
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from albertkit.datasets.examples import ChoiceExample
from albertkit.datasets.options import columns_in
from albertkit.datasets.reader import (
    Reader,
    ReadingReport,
    TableReader,
    as_list,
    is_missing,
    nested,
    text_of,
)
from albertkit.datasets.table import Row, RowError
from albertkit.datasets.text_classification import class_name, whole_name
from albertkit.errors import ConfigError, DataError, short


class RaceFolder(Reader[ChoiceExample]):
    """The questions of a split of RACE, or of one part of it. Ids begin with the part.

    Args:
        folder: `RACE/train`, or `RACE/train/middle`.
        labeled: whether to read answers.

    Raises:
        DataError: the folder has no texts.
    """

    def __init__(self, folder: str | Path, *, labeled: bool = True) -> None:
        super().__init__(str(folder), labeled=labeled)
        self.files = sorted(Path(folder).rglob("*.txt"))
        if not self.files:
            raise DataError(
                f"{folder} has no .txt files. Expected a split of RACE, with the folders middle and high."
            )

    def rows(self) -> Iterator[Row]:
        """Yield the questions of all texts."""
        for file in self.files:
            try:
                text = json.loads(file.read_text(encoding="utf-8"))
                questions, options = text["questions"], text["options"]
                answers = text["answers"] if self.labeled else [None] * len(questions)
                asked = list(zip(questions, options, answers, strict=True))
                context = text["article"].strip()
            except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise DataError(
                    f"{file}: not a text of RACE ({error!r}). Expected a JSON object with article, "
                    "questions, options and answers."
                ) from error
            for number, (question, choices, answer) in enumerate(asked):
                values = {
                    "id": f"{file.parent.name}/{file.stem}-{number}",
                    "context": context,
                    "question": question,
                    "choices": choices,
                    "answer": answer,
                }
                yield Row(f"{file}, question {number + 1}", values)

    def example(self, row: Row, report: ReadingReport) -> ChoiceExample:
        """Return the question with its choices, of which some may be empty."""
        values = row.values
        question, choices = values["question"], values["choices"]
        texts_only = isinstance(choices, list) and all(isinstance(choice, str) for choice in choices)
        if not isinstance(question, str) or not texts_only:
            raise RowError("malformed", "expected a question and choices as text")
        texts = tuple(choice.strip() for choice in choices)
        if not values["context"] or not any(texts):
            raise RowError("empty")
        label = None if values["answer"] is None else read_choice(values["answer"], texts)
        return ChoiceExample(values["id"], values["context"], question.strip(), texts, label)


class ChoiceTable(TableReader[ChoiceExample]):
    """The questions of a table; by default with the columns of SWAG.

    The label is the index of the right choice, from 0, or its letter, from A. Choices that are
    {"text": [...], "label": [...]}, or a list of {"text": ..., "label": ...}, have labels of their own.

    Raises:
        ConfigError: no column has choices.
        DataError: see `TableReader`.
    """

    _first = _beyond = False
    """Whether a label was 0, and whether one was the number of choices."""

    def check_columns(self) -> None:
        """Raise DataError if the table lacks a column."""
        options = self.options
        self._context = options.context_column or "sent1"
        self._question = "sent2" if options.question_column is None else options.question_column or None
        self._choices = columns_in(options.choice_columns, self.table.columns())
        self._label = options.label_column or "label"
        if not self._choices:
            raise ConfigError("choices names no column. Expected one per choice, or one column with lists.")
        self.table.check_columns(
            {
                "--context-column": self._context,
                "--question-column": self._question,
                "--choice-columns": self._choices,
                "--label-column": self._label if self.labeled else None,
            }
        )

    def example(self, row: Row, report: ReadingReport) -> ChoiceExample:
        """Return the question with its choices."""
        values = row.values
        context = text_of(values.get(self._context))
        question = text_of(values.get(self._question)) if self._question else None
        cells = [as_list(values.get(column)) for column in self._choices]
        names: list[str] = []
        if len(cells) == 1:
            cells, names = _listed(cells[0])
        if context is None:
            raise RowError("empty", f"no text in {self._context!r}")
        texts = read_choices(cells)
        label = None
        if self.labeled:
            written = values.get(self._label)
            if is_missing(written) or str(written).strip() in ("-1", "-1.0"):
                raise RowError("unlabeled")
            label = self._read_label(written, texts, names)
        return ChoiceExample(self.name_of(row), context, question, texts, label)

    def _read_label(self, written: Any, texts: tuple[str, ...], names: list[str]) -> int:
        """Return the index of the right choice, and note whether labels seem to count from 1."""
        label = class_name(str(written).strip())
        if label in names:
            return names.index(label)
        if any(map(whole_name, names)):  # then a number is no index
            raise RowError("mislabeled", f"the label is {short(written)}, not one of {', '.join(names)}")
        self._first |= label == "0"
        self._beyond |= label == str(len(texts))
        return read_choice(written, texts)

    def read(self, report: ReadingReport) -> Iterator[tuple[str, ChoiceExample]]:
        """Yield the examples; raise DataError at the end if the labels seem to count from 1."""
        self._first = self._beyond = False
        yield from super().read(report)
        if self._beyond and not self._first:
            raise DataError(
                f"{self.source}: the labels in {self._label!r} seem to count from 1: none is 0, and some are "
                "the number of choices. Expected the index of the right choice, from 0. Subtract 1 from each."
            )


def _listed(cell: Any) -> tuple[list[Any], list[str]]:
    """Return the choices in a cell, and their labels if they have any."""
    if isinstance(cell, str):
        cell = nested(cell)
    if isinstance(cell, Mapping) and "text" in cell:
        texts, names = as_list(cell["text"]), as_list(cell.get("label"))
    elif isinstance(cell, (list, tuple)) and all(isinstance(one, Mapping) for one in cell):
        texts, names = [one.get("text") for one in cell], [one.get("label") for one in cell]
    else:
        texts, names = cell, None
    if not isinstance(texts, (list, tuple)):
        return [texts], []
    named = isinstance(names, (list, tuple)) and len(names) == len(texts) and None not in names
    return list(texts), [class_name(one) for one in names or ()] if named else []


def read_choices(cells: Sequence[Any]) -> tuple[str, ...]:
    """Return the texts of the choices; raise `RowError` if there are fewer than two, or one is empty."""
    texts = tuple(text for cell in cells if (text := text_of(cell)) is not None)
    expected = max(2, len(cells))
    if len(texts) < expected:
        raise RowError("empty", f"{len(texts)} of {expected} choices have a text")
    return texts


def read_choice(written: Any, choices: tuple[str, ...]) -> int:
    """Return the index of the right choice from a label: a number from 0, or a letter from A.

    The number may be a float, because tables with gaps write 1 as 1.0.

    Raises:
        RowError: there is no such choice.
    """
    text, place = str(written).strip(), None
    if len(text) == 1 and text.isalpha() and text.isascii():
        place = ord(text.upper()) - ord("A")
    elif number := re.fullmatch(r"(\d{1,9})(\.0+)?", text):
        place = int(number[1])
    if place is None or place >= len(choices):
        raise RowError("mislabeled", f"the label is {short(written)}, but there are {len(choices)} choices")
    return place
