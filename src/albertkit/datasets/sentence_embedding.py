"""Read tables of texts that belong together, or of pairs with similarity scores."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from albertkit.datasets.examples import PairExample, TextExample
from albertkit.datasets.glue import GlueSplit
from albertkit.datasets.options import DataOptions
from albertkit.datasets.reader import Reader, ReadingReport, TableReader, is_missing
from albertkit.datasets.table import Row
from albertkit.errors import ConfigError, DataError

GLUE_TASKS = ("stsb", "mrpc", "qqp")
"""GLUE tasks whose labels are similarity scores."""


USUAL = {
    "text": ("text", "sentence1", "anchor", "query", "question"),
    "pair": ("text_pair", "sentence2", "positive", "answer"),
    "negative": ("negative",),
    "score": ("score", "label", "similarity"),
}


class PairTable(TableReader[PairExample]):
    """The examples of a table of pairs, or of texts alone.

    Columns that are not named are those of the usual names that the table has; negatives and scores only with
    `labelled`. Without labels an empty text is an example too, so that predictions match the rows.

    Raises:
        DataError: there is no column of texts, not one of those given, or both negatives and scores.
    """

    def check_columns(self) -> None:
        """Choose the columns, and raise DataError if the table lacks one."""
        options, present = self.options, self.table.columns()
        default_text = options.text_column == DataOptions().text_column
        given = {
            "text": None if default_text else options.text_column,
            "pair": options.pair_column,
            "negative": options.negative_column,
            "score": options.label_column,
        }
        self.columns = {
            role: given[role] or next((name for name in names if name in present), None)
            for role, names in USUAL.items()
        }
        columns = self.columns
        if not self.labelled or columns["pair"] is None:
            columns["negative"] = columns["score"] = None
        self.table.check_columns(
            {
                "--text-column": columns["text"] or USUAL["text"][0],
                "--pair-column": columns["pair"],
                "--negative-column": columns["negative"],
                "--label-column": columns["score"],
                "--id-column": options.id_column,
            }
        )
        if columns["negative"] and columns["score"]:
            raise DataError(
                f"{self.table.name}: the column {columns['negative']!r} has texts that do not belong to the "
                f"first, and {columns['score']!r} says how alike two are; remove or rename one of the two"
            )

    def example(self, row: Row, report: ReadingReport) -> PairExample | None:
        """Return the texts, with their score."""
        columns, values = self.columns, row.values
        names = {role: name for role in ("text", "pair", "negative") if (name := columns[role]) is not None}
        texts = self.texts(report, row, list(names.values()))
        if texts is None:
            return None
        score = None
        if columns["score"] is not None:
            value = values.get(columns["score"])
            if is_missing(value):
                return self.leave_out(report, "unlabelled", row.origin)
            score = number_of(value)
            if score is None:
                detail = f"{value!r:.60} in {columns['score']!r} is not a similarity score, which is a number"
                return self.leave_out(report, "mislabelled", row.origin, detail)
        return PairExample(**dict(zip(names, texts, strict=True)), score=score, id=self.name_of(row))


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
                f"the task is {task!r}. Expected one of {', '.join(GLUE_TASKS)}, whose labels say how alike "
                "two texts are."
            )
        self.split = GlueSplit(folder, task, split, labelled=labelled)
        super().__init__(self.split.source, labelled=self.split.labelled)

    def rows(self, report: ReadingReport) -> Iterator[tuple[str, PairExample | None]]:
        """Yield the examples."""
        for origin, example in self.split.rows(report):
            yield origin, None if example is None else self._pair(example, origin, report)

    def _pair(self, example: TextExample, origin: str, report: ReadingReport) -> PairExample | None:
        score = number_of(example.label) if self.labelled else None
        if self.labelled and score is None:
            return self.leave_out(report, "mislabelled", origin, f"{example.label!r:.60} is no number")
        return PairExample(example.text, example.text_pair, score=score, id=example.id)


def number_of(value: Any) -> float | None:
    """Return a cell as a finite number, or None."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
