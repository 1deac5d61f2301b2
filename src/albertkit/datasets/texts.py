"""Tables of labelled texts -> examples; which column is what is said by name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from albertkit.datasets.labels import Label
from albertkit.datasets.reader import is_missing, text_of
from albertkit.datasets.report import ANSWERED, ReadingReport
from albertkit.datasets.table import Row
from albertkit.datasets.table_reader import TableReader
from albertkit.errors import DataError
from albertkit.tasks.examples import TextExample


@dataclass(frozen=True, kw_only=True)
class TextColumns:
    """The columns of a table of texts."""

    text: str = "text"
    pair: str | None = None
    """The second text, of a task on pairs."""
    label: str | tuple[str, ...] | None = "label"
    """The column of labels. Several columns hold 0 or 1 each, and are the labels of a multi-label task. None
    for pairs that belong together."""
    id: str | None = None
    """What examples are called; without it they are called after file and line."""
    separator: str | None = None
    """What stands between the labels of one cell, if a text can have several: ";" """


class TextTable(TableReader[TextExample, TextColumns]):
    """The examples of a table of texts. Labels are as they are read; `LabelSet.read` says what they mean.

    Without labels an empty text is an example too, so that predictions match the rows.
    """

    def checked_columns(self, columns: TextColumns | None) -> TextColumns:
        """Return the columns; labels only where they are read."""
        columns = columns or TextColumns()
        label = columns.label if self.labelled else None
        self.table.check_columns(
            {
                "--text-column": columns.text,
                "--pair-column": columns.pair,
                "--id-column": columns.id,
                "--label-column": label,
            }
        )
        self._class_names = (
            self.table.class_names(columns.label) if isinstance(columns.label, str) else columns.label
        )
        return columns

    def label_names(self) -> tuple[str, ...] | None:
        """Return the names of the classes where the table says them."""
        return self._class_names

    def example(self, row: Row, report: ReadingReport) -> TextExample | None:
        """Return the text, or the pair, with its label."""
        columns, values = self.columns, row.values
        text = text_of(values.get(columns.text))
        pair = text_of(values.get(columns.pair)) if columns.pair else None
        if text is None or (columns.pair and pair is None):
            empty = columns.text if text is None else columns.pair
            if self.labelled:
                return self.leave_out(report, "empty", row.origin, f"no text in {empty!r}")
            report.add("empty", row.origin, f"no text in {empty!r}, and {ANSWERED}")
            text, pair = text or "", (pair or "") if columns.pair else None
        label = None
        if self.labelled and columns.label:
            try:
                label = (
                    read_label(
                        values.get(columns.label), separator=columns.separator, names=self._class_names
                    )
                    if isinstance(columns.label, str)
                    else read_indicators(values, columns.label)
                )
            except DataError as error:
                return self.leave_out(report, "mislabelled", row.origin, str(error))
            if label is None:
                return self.leave_out(report, "unlabelled", row.origin)
        return TextExample(text, pair, label, self.name_of(row))


def read_label(value: Any, *, separator: str | None, names: tuple[str, ...] | None) -> Label | None:
    """Return the label in a cell, or None for a cell without any.

    With a separator, or for a list, it is a tuple; empty it says that none of the labels is true.

    Raises:
        DataError: a number that is none of `names`, or a value that is no label.
    """
    if isinstance(value, (list, tuple)):
        # A list may be empty: none of the labels. Only where there is no list is there no label.
        return tuple(_one_label(one, names) for one in value)
    if isinstance(value, str):
        value = value.strip()
        if separator:
            return tuple(part for one in value.split(separator) if (part := one.strip()))
    if is_missing(value):
        return None
    if names and value == -1:
        return None  # so `datasets` writes that there is no label
    return _one_label(value, names)


def read_indicators(values: Mapping[str, Any], columns: Sequence[str]) -> Label | None:
    """Return the names of the columns that hold 1 (of those that hold 0 or 1), or None if a cell is empty.

    Raises:
        DataError: a cell holds another value.
    """
    found: list[str] = []
    for column in columns:
        if is_missing(values.get(column)):
            return None
        written = str(values[column]).strip().lower()
        if written not in _INDICATORS:
            raise DataError(f"{values[column]!r:.40} in {column!r}; expected 0 or 1")
        if _INDICATORS[written]:
            found.append(column)
    return tuple(found)


_INDICATORS = {
    **dict.fromkeys(("1", "1.0", "true"), True),
    **dict.fromkeys(("0", "0.0", "false"), False),
}


def _one_label(value: Any, names: tuple[str, ...] | None) -> Any:
    if isinstance(value, (bool, str)):
        return str(value)
    if isinstance(value, Real) and not is_missing(value):
        number = float(value)
        if names and number.is_integer():  # a table with gaps writes 1 as 1.0
            if 0 <= number < len(names):
                return names[int(number)]
            raise DataError(f"the class {value} is none of 0 to {len(names) - 1} ({', '.join(names)})")
        return str(value) if isinstance(value, Integral) else number
    raise DataError(f"{value!r:.60} is no label; expected text, a number or a list of them")
