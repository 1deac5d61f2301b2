"""Labeled texts: tables, and the files of the PASCAL challenges of recognizing textual entailment.

GLUE's RTE consists of these challenges. RTE-1 writes value="FALSE"; labels get GLUE's names.

    <pair id="8" entailment="NO" task="IE"><t>text</t><h>hypothesis</h></pair>
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from numbers import Integral, Real
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from albertkit.datasets.examples import Label, TextExample
from albertkit.datasets.options import columns_in
from albertkit.datasets.reader import (
    Reader,
    ReadingReport,
    TableReader,
    as_list,
    is_missing,
    nested,
    number_of,
    text_of,
)
from albertkit.datasets.table import Row, RowError, existing_file
from albertkit.errors import DataError, short


class TextTable(TableReader[TextExample]):
    """The examples of a table of texts, with labels as written; `LabelSet.read` interprets them.

    Several columns of labels contain 0 or 1 each, and are the labels of a multi-label task. Without labels, a
    row with an empty text is an example too, so that predictions match the rows.
    """

    def check_columns(self) -> None:
        """Raise DataError if the table lacks a column."""
        options = self.options
        names = columns_in(options.label_column or "label", self.table.columns())
        self._label: str | tuple[str, ...] = names[0] if len(names) == 1 else names
        self.table.check_columns(
            {
                "--text-column": options.text_column,
                "--pair-column": options.pair_column,
                "--label-column": self._label if self.labeled else None,
            }
        )
        self._class_names = (
            self.table.class_names(self._label) if isinstance(self._label, str) else self._label
        )

    def example(self, row: Row, report: ReadingReport) -> TextExample:
        """Return the text, or the pair, with its label."""
        options = self.options
        columns = list(filter(None, (options.text_column, options.pair_column)))
        text, *pair = self.texts(row, columns, report)
        label = None
        if self.labeled:
            if isinstance(self._label, str):
                value, separator = row.values.get(self._label), options.label_separator
                label = read_label(value, separator=separator, names=self._class_names)
            else:
                label = read_indicators(row.values, self._label)
            if label is None:
                raise RowError("unlabeled")
        return TextExample(text, pair[0] if pair else None, label, self.name_of(row))


def read_label(value: Any, *, separator: str | None, names: tuple[str, ...] | None) -> Label | None:
    """Return the label in a cell, or None if the cell has none.

    With a separator, or for a list or a list written as text, the label is a tuple. An empty tuple means that
    no label applies.

    Raises:
        RowError: a number is not the index of a name, or a value is not a label.
    """
    value = as_list(value)
    if isinstance(value, str) and LIST.fullmatch(value.strip()):
        value = nested(value)
    if isinstance(value, (list, tuple)):
        # A list may be empty: no label applies. Only a missing list means a missing label.
        return _several(value, tuple(_one_label(one, names) for one in value))
    if isinstance(value, str):
        value = value.strip()
        if separator:
            return _several(value, tuple(filter(None, map(str.strip, value.split(separator)))))
    if is_missing(value):
        return None
    if names and value == -1:
        return None  # how `datasets` writes a missing label
    return _one_label(value, names)


def _several(value: Any, labels: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the labels of a text; raise `RowError` if they are 0 or 1 for each label of the data."""
    if len({*labels}) < len(labels) and {str(one).lower() for one in labels} <= _INDICATORS.keys():
        raise RowError(
            "mislabeled",
            f"{short(value)} repeats a label. Expected the labels of the text. If the list has 0 or 1 for "
            "each label, use one column per label (--label-column A,B).",
        )
    return labels


def read_indicators(values: Mapping[str, Any], columns: Sequence[str]) -> Label | None:
    """Return the names of the columns that contain 1 (of those with 0 or 1), or None if a cell is empty.

    Raises:
        RowError: a cell has another value.
    """
    found: list[str] = []
    for column in columns:
        if is_missing(values.get(column)):
            return None
        written = str(values[column]).strip().lower()
        if written not in _INDICATORS:
            raise RowError("mislabeled", f"{short(values[column])} in {column!r}. Expected 0 or 1.")
        if _INDICATORS[written]:
            found.append(column)
    return tuple(found)


_INDICATORS = {
    **dict.fromkeys(("1", "1.0", "true"), True),
    **dict.fromkeys(("0", "0.0", "false"), False),
}


def _one_label(value: Any, names: tuple[str, ...] | None) -> Any:
    if isinstance(value, (bool, str)) and not is_missing(value):
        return str(value).strip()
    if isinstance(value, Real | Decimal) and (number := number_of(value)) is not None:
        if names and number.is_integer():  # a table with gaps writes 1 as 1.0
            if 0 <= number < len(names):
                return names[int(number)]
            listed = ", ".join(names)
            raise RowError("mislabeled", f"the class {value} is not one of 0 to {len(names) - 1} ({listed})")
        return str(value) if isinstance(value, Integral) else number
    raise RowError(
        "mislabeled", f"{short(value)} is not a label. Expected text, a finite number or a list of them."
    )


class EntailmentFile(Reader[TextExample]):
    """The pairs of one XML file: text and hypothesis.

    Args:
        path: the file.
        labeled: whether to read labels, and leave out pairs without labels.
    """

    def __init__(self, path: str | Path, *, labeled: bool = True) -> None:
        self.path = existing_file(path)
        super().__init__(str(path), labeled=labeled)

    def label_names(self) -> tuple[str, ...]:
        """Return the two labels in GLUE's order."""
        return ("entailment", "not_entailment")

    def rows(self) -> Iterator[Row]:
        """Yield the pairs."""
        number = 0
        try:
            for _, element in ElementTree.iterparse(self.path):
                if element.tag != "pair":
                    continue
                number += 1
                values = {
                    "id": element.get("id", str(number)),
                    "text": element.findtext("t"),
                    "hypothesis": element.findtext("h"),
                    "label": element.get("entailment") or element.get("value"),
                }
                yield Row(f"{self.path}, pair {values['id']}", values)
                element.clear()
        except ElementTree.ParseError as error:
            raise DataError(f"{self.path}, after pair {number}: not XML ({error}). {_LAYOUT}") from error
        if not number:
            raise DataError(f"{self.path} has no <pair>. {_LAYOUT}")

    def example(self, row: Row, report: ReadingReport) -> TextExample:
        """Return the pair with its label."""
        text, hypothesis = text_of(row.values["text"]), text_of(row.values["hypothesis"])
        if text is None or hypothesis is None:
            raise RowError("empty")
        label, written = None, row.values["label"]
        if self.labeled:
            if written is None:
                raise RowError("unlabeled")
            label = _ENTAILMENT.get(written)
            if label is None:
                raise RowError("mislabeled", f"{written!r}, expected {', '.join(_ENTAILMENT)}")
        return TextExample(text, hypothesis, label, row.values["id"])


_LAYOUT = (
    "Files that end in .xml are read as those of the PASCAL challenges of textual entailment: "
    '<pair id="8" entailment="NO"><t>text</t><h>hypothesis</h></pair>. In Python, pass the texts of other '
    "files as an iterable of dicts."
)
_ENTAILMENT = {
    **dict.fromkeys(("YES", "TRUE"), "entailment"),
    **dict.fromkeys(("NO", "FALSE"), "not_entailment"),
}


def class_name(label: str | float) -> str:
    """Return the name of a class; a whole number is written without a fraction, 1.0 as 1."""
    return whole_name(label) or str(label)


def whole_name(label: str | float) -> str | None:
    """Return the name of a whole number, "1" for 1.0 and "1.0", or None for any other label.

    Text with leading zeros is a code and not a number: "007" and "7" are two classes.
    """
    if isinstance(label, str):
        number = _WHOLE.fullmatch(label)
        return str(int(number[1])) if number else None
    return str(int(label)) if float(label).is_integer() else None  # an int has is_integer from Python 3.12


LIST = re.compile(r"""\[(["'].*["']|\s*\d[\d., ]*)?\]""", re.DOTALL)
"""A list that is written as text: as JSON, in Python syntax, or as NumPy does, which `nested` refuses."""
_WHOLE = re.compile(r"([+-]?(?:0|[1-9][0-9]{0,17}))(?:\.0+)?")
