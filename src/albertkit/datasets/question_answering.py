"""Questions about texts: the JSON files of SQuAD 1.1 and 2.0, and tables with the columns of `datasets`.

An answer is a text and the index of its first character in the context. Files with shifted indices are common
(other line ends, translated data). If the text is elsewhere in the context, the reader uses the closest
match, if possible between word borders, and the report counts it.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
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

# Han with its extensions and iteration marks, Hiragana and Katakana
CHARACTER_WORD = re.compile(
    r"[\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)


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
        return read_question(
            **row.values, labeled=self.labeled, moved=partial(report.add, "moved", row.origin)
        )


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
            moved=partial(report.add, "moved", row.origin),
        )


def _answers(given: Any) -> tuple[list[tuple[str, int | None]], bool]:
    """Return the answers in a cell, and whether the cell says that there is none."""
    if isinstance(given, str) and given.startswith(("{'", '{"')):
        try:
            given = nested(given)
        except RowError as error:
            raise RowError("mislabeled", error.detail) from error
    if isinstance(given, str) or is_missing(given):
        return ([] if is_missing(given) else [(given, None)]), False
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
    answers: Sequence[tuple[str, int | None]],
    *,
    is_impossible: bool,
    labeled: bool,
    moved: Callable[[str], None] = lambda _: None,
) -> QuestionExample:
    """Return a question with its answers, each at its closest occurrence in the context.

    Args:
        name: the id of the question.
        question: its text.
        context: the context.
        answers: texts with the index of the first character, or None if it is not known.
        is_impossible: whether the context has no answer.
        labeled: whether to return the answers.
        moved: function that is called with a description of answers that are not at their index.

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
    found, notes = [], list[str]()
    for answer, near in answers:
        start = nearest(context, answer, near or 0)
        if start is None:
            notes.append(f"{short(answer)} is not in the context")
            continue
        found.append((answer, start))
        if near not in (start, None):
            notes.append(f"{short(answer)} is at {start}, not at {near}")
        elif near is None and not _between_words(context, start, start + len(answer)):
            notes.append(f"{short(answer)} is only inside a word, at {start}")
    if not found:
        raise RowError("mislabeled", f"{short(answers[0][0])} is not in the context")
    if notes:
        moved("; ".join(notes))
    return QuestionExample(name, text, context, tuple(found))


def is_answer(text: Any, start: Any) -> bool:
    """Return whether an answer is a text and the index of a character."""
    return isinstance(text, str) and isinstance(start, Integral) and not isinstance(start, bool)


def nearest(context: str, text: str, near: int) -> int | None:
    """Return the index of the occurrence of a text in the context closest to the expected index.

    Occurrences that begin and end between words come first.
    """
    if not text.strip():
        return None
    if near >= 0 and context.startswith(text, near):
        return near
    starts = [match.start() for match in re.finditer(f"(?={re.escape(text)})", context)]
    return min(
        starts,
        key=lambda start: (not _between_words(context, start, start + len(text)), abs(start - near)),
        default=None,
    )


def _between_words(context: str, start: int, end: int) -> bool:
    """Return whether a span of the context begins and ends between words."""
    return not (joined(context, start) or joined(context, end))


def joined(text: str, place: int) -> bool:
    """Return whether the characters before and at an index belong to one word: both are letters or digits.

    In scripts without spaces, every character is a word.
    """
    pair = text[place - 1 : place + 1]
    return len(pair) == 2 and pair.isalnum() and not CHARACTER_WORD.search(pair)
