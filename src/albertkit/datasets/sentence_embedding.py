"""Read tables of texts that belong together, or of pairs with similarity scores."""

from collections.abc import Iterator
from pathlib import Path

from albertkit.datasets.examples import PairExample
from albertkit.datasets.glue import GlueSplit
from albertkit.datasets.options import DataOptions
from albertkit.datasets.reader import Reader, ReadingReport, TableReader, is_missing, number_of
from albertkit.datasets.table import Row, RowError
from albertkit.errors import ConfigError, DataError, short

GLUE_TASKS = ("stsb", "mrpc", "qqp")
"""GLUE tasks whose labels are similarity scores."""

USUAL = {
    "text": ("text", "sentence1", "anchor", "query", "question"),
    "pair": ("text_pair", "sentence2", "positive", "answer"),
    "negative": ("negative",),
    "score": ("score", "label", "similarity"),
}
"""The usual names of columns, in order of preference."""


class PairTable(TableReader[PairExample]):
    """The examples of a table of pairs or of single texts.

    For columns that the options do not name, the table is searched for the names in `USUAL`. Negatives and
    scores are only read with `labeled`. Without labels, a row with an empty text is an example too, so that
    predictions match the rows.

    Raises:
        DataError: the table lacks the column of texts or a column of the options, or has both negatives and
            scores.
    """

    def check_columns(self) -> None:
        """Choose the columns, and raise DataError if the table lacks one."""
        options = self.options
        default_text = options.text_column == DataOptions().text_column
        given = {
            "text": None if default_text else options.text_column,
            "pair": options.pair_column,
            "negative": options.negative_column,
            "score": options.label_column,
        }
        free = {*self.table.columns()} - {*given.values()}
        self.columns = {
            role: given[role] or next((name for name in names if name in free), None)
            for role, names in USUAL.items()
        }
        columns = self.columns
        if not self.labeled or columns["pair"] is None:
            columns["negative"] = columns["score"] = None
            for role, flag in (("negative", "--negative-column"), ("score", "--label-column")):
                if self.labeled and given[role] is not None:
                    raise DataError(
                        f"{self.table.name}: {flag} {given[role]!r} needs a column of second texts. Set it "
                        "with --pair-column (in Python pair_column=)."
                    )
        self.table.check_columns(
            {
                "--text-column": columns["text"] or USUAL["text"][0],
                "--pair-column": columns["pair"],
                "--negative-column": columns["negative"],
                "--label-column": columns["score"],
            }
        )
        if columns["negative"] and columns["score"]:
            raise DataError(
                f"{self.table.name}: the file has a column of negatives, {columns['negative']!r}, and a "
                f"column of scores, {columns['score']!r}. Expected only one of them. Remove or rename the "
                "other."
            )

    def example(self, row: Row, report: ReadingReport) -> PairExample:
        """Return the texts with their score."""
        columns, values = self.columns, row.values
        names = {role: name for role in ("text", "pair", "negative") if (name := columns[role]) is not None}
        texts = self.texts(row, list(names.values()), report)
        score = None
        if columns["score"] is not None:
            value = values.get(columns["score"])
            if is_missing(value):
                raise RowError("unlabeled")
            score = number_of(value)
            if score is None:
                raise RowError("mislabeled", f"{short(value)} in {columns['score']!r} is not a number")
        return PairExample(**dict(zip(names, texts, strict=True)), score=score, id=self.name_of(row))


class GluePairs(Reader[PairExample]):
    """One split of a GLUE task whose labels are similarity scores.

    Args:
        folder, task, split: see `GlueSplit`; the task must be in `GLUE_TASKS`.
        labeled: whether to read the scores.

    Raises:
        ConfigError: the task or split is unknown, or the task is not in `GLUE_TASKS`.
        DataError: the file does not exist, or has other columns.
    """

    def __init__(self, folder: str | Path, task: str, split: str, *, labeled: bool = True) -> None:
        if task not in GLUE_TASKS:
            raise ConfigError(
                f"the task is {task!r}. Expected one of {', '.join(GLUE_TASKS)}, which label the "
                "similarity of two texts."
            )
        self.split = GlueSplit(folder, task, split, labeled=labeled)
        super().__init__(self.split.source, labeled=self.split.labeled)

    def rows(self) -> Iterator[Row]:
        """Yield the rows of the split."""
        return self.split.rows()

    def example(self, row: Row, report: ReadingReport) -> PairExample:
        """Return the texts with their score."""
        example = self.split.example(row, report)
        score = number_of(example.label) if self.labeled else None
        if self.labeled and score is None:
            raise RowError("mislabeled", f"{short(example.label)} is not a number")
        return PairExample(example.text, example.text_pair, score=score, id=example.id)
