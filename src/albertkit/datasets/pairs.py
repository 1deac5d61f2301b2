"""Tables of texts that belong together, or that are more or less alike -> examples."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from albertkit.datasets.glue import GlueSplit
from albertkit.datasets.reader import Reader, is_missing, text_of
from albertkit.datasets.report import ANSWERED, ReadingReport
from albertkit.datasets.table import Row, Table
from albertkit.datasets.table_reader import TableReader
from albertkit.errors import ConfigError, DataError
from albertkit.tasks.examples import PairExample

GLUE_TASKS = ("stsb", "mrpc", "qqp")
"""Tasks of GLUE whose labels are numbers that say how alike two texts are."""


@dataclass(frozen=True, kw_only=True)
class PairColumns:
    """The columns of a table of pairs; None for one of the usual names, where the table has it."""

    text: str | None = None
    pair: str | None = None
    negative: str | None = None
    score: str | None = None
    id: str | None = None
    """What examples are called; without it they are called after file and line."""

    def found_in(self, table: Table, *, labelled: bool) -> "PairColumns":
        """Return the columns that there are; of negatives and scores only with `labelled`.

        Raises:
            DataError: there is no column of texts, not one of those given, or both negatives and scores.
        """
        present = table.columns()
        named = {
            role: getattr(self, role) or next((name for name in names if name in present), None)
            for role, names in USUAL.items()
        }
        if not labelled or named["pair"] is None:
            named["negative"] = named["score"] = None
        table.check_columns(
            {
                "--text-column": named["text"] or USUAL["text"][0],
                "--pair-column": named["pair"],
                "--negative-column": named["negative"],
                "--label-column": named["score"],
                "--id-column": self.id,
            }
        )
        if named["negative"] and named["score"]:
            raise DataError(
                f"{table.name}: the column {named['negative']!r} has texts that do not belong to the first, "
                f"and {named['score']!r} says how alike two are; remove or rename one of the two"
            )
        return PairColumns(**named, id=self.id)


USUAL = {
    "text": ("text", "sentence1", "anchor", "query", "question"),
    "pair": ("text_pair", "sentence2", "positive", "answer"),
    "negative": ("negative",),
    "score": ("score", "label", "similarity"),
}


class PairTable(TableReader[PairExample, PairColumns]):
    """The examples of a table of pairs, or of texts alone.

    Without labels an empty text is an example too, so that predictions match the rows.
    """

    def checked_columns(self, columns: PairColumns | None) -> PairColumns:
        """Return the columns that there are."""
        return (columns or PairColumns()).found_in(self.table, labelled=self.labelled)

    def example(self, row: Row, report: ReadingReport) -> PairExample | None:
        """Return the texts, with their score."""
        columns, values = self.columns, row.values
        names = [name for name in (columns.text, columns.pair, columns.negative) if name is not None]
        texts = {name: text_of(values.get(name)) or "" for name in names}
        empty = next((name for name, text in texts.items() if not text), None)
        if empty is not None:
            if self.labelled:
                return self.leave_out(report, "empty", row.origin, f"no text in {empty!r}")
            report.add("empty", row.origin, f"no text in {empty!r}, and {ANSWERED}")
        score = None
        if columns.score is not None:
            value = values.get(columns.score)
            if is_missing(value):
                return self.leave_out(report, "unlabelled", row.origin)
            score = number_of(value)
            if score is None:
                detail = f"{value!r:.60} in {columns.score!r} is no number that says how alike two texts are"
                return self.leave_out(report, "mislabelled", row.origin, detail)
        return PairExample(
            text=texts[names[0]],
            pair=texts.get(columns.pair or ""),
            negative=texts.get(columns.negative or ""),
            score=score,
            id=self.name_of(row),
        )


class GluePairs(Reader[PairExample]):
    """A split of a task of GLUE whose label is a number.

    Args:
        folder, task, split: as of `GlueSplit`; a task of `GLUE_TASKS`.
        labelled: whether to read the scores.

    Raises:
        ConfigError, DataError: as `GlueSplit`, or another task.
    """

    def __init__(self, folder: str | Path, task: str, split: str, *, labelled: bool = True) -> None:
        if task not in GLUE_TASKS:
            raise ConfigError(
                f"the task is {task!r}; expected one of {', '.join(GLUE_TASKS)}, whose labels say how alike "
                "two texts are"
            )
        self.split = GlueSplit(folder, task, split, labelled=labelled)
        super().__init__(self.split.source, labelled=self.split.labelled)

    def read(self, report: ReadingReport) -> Iterator[tuple[str, PairExample]]:
        """Yield the examples."""
        for origin, one in self.split.read(report):
            score = number_of(one.label) if self.labelled else None
            if self.labelled and score is None:
                report.examples -= 1
                self.leave_out(report, "mislabelled", origin, f"{one.label!r:.60} is no number")
                continue
            yield origin, PairExample(one.text, one.text_pair, score=score, id=one.id)


def number_of(value: Any) -> float | None:
    """Return a cell as a finite number, or None."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
