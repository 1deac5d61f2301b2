"""Questions about texts: the JSON files of SQuAD 1.1 and 2.0, and tables with the columns of `datasets`.

An answer is a text and the index of its first character in the context. Files with shifted indices are common
(other line ends, translated data). If the text is elsewhere in the context, the reader uses the closest
match.
"""

import json
from collections.abc import Iterator, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any

from albertkit.datasets.examples import QuestionExample
from albertkit.datasets.reader import (
    Reader,
    ReadingReport,
    TableReader,
    as_list,
    is_missing,
    nested,
    text_of,
)
from albertkit.datasets.table import Row, RowError, existing_file
from albertkit.errors import DataError, short
from albertkit.text_files import read_lines


class SquadFile(Reader[QuestionExample]):
    """The questions of a SQuAD file, compressed or not, in order. The file is read as a whole.

    In version 2.0, a question without answers has `is_impossible`. A question with neither has no label.

    Args:
        path: the file.
        labeled: whether to read answers, and leave out questions without answers.
    """

    def __init__(self, path: str | Path, *, labeled: bool = True) -> None:
        self.path = existing_file(path)
        super().__init__(str(path), labeled=labeled)

    def rows(self) -> Iterator[Row]:
        """Yield the questions.

        Raises:
            DataError: the file is not JSON or has another layout, or two questions have the same id.
        """
        text = "".join(line for _, line, _ in read_lines(self.path))
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{self.path}: damaged. Expected the JSON of SQuAD ({error}).") from error
        articles = document.get("data") if isinstance(document, dict) else None
        if not isinstance(articles, list):
            array = f" For an array of objects: jq -c '.[]' {self.path} > lines.jsonl."
            raise DataError(
                f"{self.path}: expected the JSON of SQuAD, an object with a list 'data'."
                + array * isinstance(document, list)
            )
        known: set[str] = set()
        for place, article in enumerate(articles):
            try:
                for paragraph in article["paragraphs"]:
                    for asked in paragraph["qas"]:
                        name = str(asked["id"])
                        if name in known:
                            raise DataError(
                                f"{self.path}: two questions have the id {name!r}. Expected unique ids."
                            )
                        known.add(name)
                        answers = [(one["text"], one["answer_start"]) for one in asked.get("answers", ())]
                        if not all(is_answer(*answer) for answer in answers):
                            raise TypeError(f"the answers are {short(answers)}. Expected texts with offsets.")
                        values = {
                            "name": name,
                            "question": asked["question"],
                            "context": paragraph["context"],
                            "answers": answers,
                            "is_impossible": bool(asked.get("is_impossible", False)),
                        }
                        yield Row(f"{self.path}, question {name}", values)
            except (KeyError, TypeError, AttributeError) as error:
                raise DataError(f"{self.path}, article {place}: not SQuAD's layout ({error!r})") from error

    def example(self, row: Row, report: ReadingReport) -> QuestionExample:
        """Return the question with its answers."""
        return read_question(**row.values, labeled=self.labeled)


class QuestionTable(TableReader[QuestionExample]):
    """The questions of a table.

    An answer is {"text": [...], "answer_start": [...]} as in `datasets`, where two empty lists mean that
    there is no answer; or the text of one answer, whose first occurrence in the context is used.
    """

    def check_columns(self) -> None:
        """Raise DataError if the table lacks a column."""
        options = self.options
        self._question = options.question_column or "question"
        self._context = options.context_column or "context"
        self.table.check_columns(
            {
                "--question-column": self._question,
                "--context-column": self._context,
                "--answers-column": options.answers_column if self.labeled else None,
            }
        )

    def example(self, row: Row, report: ReadingReport) -> QuestionExample:
        """Return the question with its answers."""
        answers, is_impossible = _answers(
            row.values.get(self.options.answers_column) if self.labeled else None
        )
        return read_question(
            self.name_of(row),
            row.values.get(self._question),
            row.values.get(self._context),
            answers,
            is_impossible=is_impossible,
            labeled=self.labeled,
        )


def _answers(given: Any) -> tuple[list[tuple[str, int]], bool]:
    """Return the answers in a cell, and whether the cell says that there is none."""
    if isinstance(given, str) and given.startswith(("{'", '{"')):
        try:
            given = nested(given)
        except RowError as error:
            raise RowError("mislabeled", error.detail) from error
    if isinstance(given, str) or is_missing(given):
        return ([] if is_missing(given) else [(given, 0)]), False
    if isinstance(given, dict) and {"text", "answer_start"} <= given.keys():
        texts, starts = as_list(given["text"]), as_list(given["answer_start"])
        if isinstance(texts, str):
            texts, starts = [texts], [starts]
        if isinstance(texts, list) and isinstance(starts, list) and len(texts) == len(starts):
            answers = list(zip(texts, starts, strict=True))
            if all(is_answer(*answer) for answer in answers):
                return answers, not answers
    raise RowError(
        "mislabeled",
        f"expected the text of an answer, or {{'text': [...], 'answer_start': [...]}}, found {short(given)}",
    )


def read_question(
    name: str,
    question: Any,
    context: Any,
    answers: Sequence[tuple[str, int]],
    *,
    is_impossible: bool,
    labeled: bool,
) -> QuestionExample:
    """Return a question with its answers, each at its closest occurrence in the context.

    Raises:
        RowError: the question or the context is empty; or it has no label, or none of the answers occurs.
    """
    # The context is not changed, because answers count its characters.
    text = text_of(question)
    if text is None or not isinstance(context, str) or not context.strip():
        raise RowError("empty", f"no {'question' if text is None else 'context'}")
    if not labeled or is_impossible:
        return QuestionExample(name, text, context, (), labeled and is_impossible)
    if not answers:
        raise RowError("unlabeled")
    placed = tuple(
        (answer, start) for answer, near in answers if (start := nearest(context, answer, near)) is not None
    )
    if not placed:
        raise RowError("mislabeled", f"{short(answers[0][0])} is not in the context")
    return QuestionExample(name, text, context, placed)


def is_answer(text: Any, start: Any) -> bool:
    """Return whether an answer is a text and the index of a character."""
    return isinstance(text, str) and isinstance(start, Integral) and not isinstance(start, bool)


def nearest(context: str, text: str, near: int) -> int | None:
    """Return the index of the occurrence of a text in the context closest to the expected index."""
    if not text.strip():
        return None
    if near >= 0 and context.startswith(text, near):
        return near
    before = context.rfind(text, 0, max(0, near) + len(text))
    after = context.find(text, max(0, near))
    places = [place for place in (before, after) if place >= 0]
    return min(places, key=lambda place: abs(place - near), default=None)
