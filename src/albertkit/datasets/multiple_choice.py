"""Questions with choices: the folders of RACE, and tables such as SWAG's CSV.

RACE (Lai et al. 2017) has a JSON file for each text, in the folders `middle` and `high` of each split:

    {"article": ..., "questions": [...], "options": [[4 texts], ...], "answers": ["A", ...]}
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from albertkit.datasets.examples import ChoiceExample
from albertkit.datasets.reader import (
    Reader,
    ReadingReport,
    TableReader,
    as_list,
    is_missing,
    nested,
    text_of,
)
from albertkit.datasets.table import Row
from albertkit.errors import ConfigError, DataError


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

    def rows(self, report: ReadingReport) -> Iterator[tuple[str, ChoiceExample | None]]:
        """Yield the questions of all texts."""
        for file in self.files:
            try:
                text = json.loads(file.read_text(encoding="utf-8"))
                questions, options = text["questions"], text["options"]
                answers = text["answers"] if self.labeled else [None] * len(questions)
                asked = list(zip(questions, options, answers, strict=True))
                context = text["article"].strip()
            except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise DataError(f"{file}: not a text of RACE ({error!r})") from error
            for number, (question, choices, answer) in enumerate(asked):
                origin = f"{file}, question {number + 1}"
                name = f"{file.parent.name}/{file.stem}-{number}"
                yield origin, self._example(origin, report, name, context, question, choices, answer)

    def _example(
        self,
        origin: str,
        report: ReadingReport,
        name: str,
        context: str,
        question: str,
        choices: list[str],
        answer: str | None,
    ) -> ChoiceExample | None:
        texts_only = isinstance(choices, list) and all(isinstance(choice, str) for choice in choices)
        if not isinstance(question, str) or not texts_only:
            return self.leave_out(report, "malformed", origin, "expected a question and choices as text")
        texts = tuple(choice.strip() for choice in choices)
        if not context or not any(texts):
            return self.leave_out(report, "empty", origin)
        label = place_of(answer, texts)
        if answer is not None and label is None:
            detail = f"the answer is {answer!r}, but there are {len(texts)} choices"
            return self.leave_out(report, "mislabeled", origin, detail)
        return ChoiceExample(name, context, question.strip(), texts, label)


class ChoiceTable(TableReader[ChoiceExample]):
    """The questions of a table; by default with the columns of SWAG.

    The label is the index of the right choice, from 0, or its letter, from A.

    Raises:
        ConfigError: no column has choices.
        DataError: see `TableReader`.
    """

    def check_columns(self) -> None:
        """Raise DataError if the table lacks a column."""
        options = self.options
        self._context = options.context_column or "sent1"
        self._question = "sent2" if options.question_column is None else options.question_column or None
        self._choices = tuple(name.strip() for name in options.choice_columns.split(",") if name.strip())
        self._label = options.label_column or "label"
        if not self._choices:
            raise ConfigError("choices names no column. Expected one per choice, or one column with lists.")
        self.table.check_columns(
            {
                "--context-column": self._context,
                "--question-column": self._question,
                "--choice-columns": self._choices,
                "--id-column": options.id_column,
                "--label-column": self._label if self.labeled else None,
            }
        )

    def example(self, row: Row, report: ReadingReport) -> ChoiceExample | None:
        """Return the question with its choices."""
        values = row.values
        context = text_of(values.get(self._context))
        question = text_of(values.get(self._question)) if self._question else None
        cells = [as_list(values.get(column)) for column in self._choices]
        if len(cells) == 1 and isinstance(cells[0], str):
            try:
                cells = [nested(cells[0])]
            except DataError as error:
                return self.leave_out(report, "malformed", row.origin, str(error))
        if len(cells) == 1 and isinstance(cells[0], (list, tuple)):
            cells = list(cells[0])
        choices = [text_of(cell) for cell in cells]
        if context is None:
            return self.leave_out(report, "empty", row.origin, f"no text in {self._context!r}")
        if len(choices) < 2 or None in choices:
            detail = f"{len(choices) - choices.count(None)} of {max(2, len(choices))} choices have a text"
            return self.leave_out(report, "empty", row.origin, detail)
        texts = tuple(choice for choice in choices if choice is not None)
        label = None
        if self.labeled:
            written = values.get(self._label)
            if is_missing(written) or str(written).strip() in ("-1", "-1.0"):
                return self.leave_out(report, "unlabeled", row.origin)
            label = place_of(written, texts)
            if label is None:
                detail = f"the label is {written!r:.40}, but there are {len(texts)} choices"
                return self.leave_out(report, "mislabeled", row.origin, detail)
        return ChoiceExample(self.name_of(row), context, question, texts, label)


def place_of(written: Any, choices: tuple[str, ...]) -> int | None:
    """Return the index of the right choice from a label: a number from 0, or a letter from A.

    The number may be a float, because tables with gaps write 1 as 1.0.
    """
    text = str(written).strip()
    if len(text) == 1 and text.isalpha() and text.isascii():
        place = ord(text.upper()) - ord("A")
    elif number := re.fullmatch(r"(\d{1,9})(\.0+)?", text):
        place = int(number[1])
    else:
        return None
    return place if place < len(choices) else None
