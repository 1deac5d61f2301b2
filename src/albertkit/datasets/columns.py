"""Find the columns of the text and the label in a table that does not have the usual names."""

import logging
import re
from collections.abc import Collection
from itertools import islice
from typing import Any

from albertkit.datasets.cells import is_missing, number_of
from albertkit.datasets.rows import Rows
from albertkit.errors import DataError

logger = logging.getLogger(__name__)

_SAMPLE = 1000  # rows that are read
_MOST = 0.9  # share of the values that decides about a column
_NAME_LENGTH = 30  # maximum number of characters of the name of a column
_TEXT_LENGTH = 15  # mean number of characters of a column of texts
_CLEARLY = 1.5  # how much longer the texts are than those of the next column
_LABEL_LENGTH, _LABELS = 60, 50  # maximum length and number of labels
_LABEL_NAMES = ("label", "labels", "category", "class", "intent", "topic", "sentiment", "target")
_ID_NAME = re.compile(r"(?i:(^|.*[_\W])(id|ids|uuid|guid|nr|no|key|index|number|email|phone)|#)|.*[a-z]I[Dd]")
_CODE = re.compile(r"(?=.*[\d@])[!-~]+")  # without spaces, with a digit or @: an id, an amount, an address
_CLOCK = r"\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?(\s*[AaPp]\.?[Mm]\.?)?(\s*(Z|UTC|GMT|[+-]\d{2}:?\d{2}))?"
_MONTH = r"[A-Za-zÀ-ÿ]{3,9}\.?"
_DATE = re.compile(
    rf"(({_MONTH},? )?(\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}}|\d{{1,2}}[-/.]\d{{1,2}}[-/.]\d{{2,4}}"
    rf"|\d{{1,2}}\.?[ -]{_MONTH}[ -]\d{{2,4}}|{_MONTH} \d{{1,2}},? \d{{4}})([T,]? ?{_CLOCK})?|{_CLOCK})"
)


def find_columns(
    rows: Rows, *, text: bool, label: bool, taken: Collection[str | None] = ()
) -> dict[str, str]:
    """Return the columns of the text and of the label, by their options, as far as they are clear.

    Columns of dates, ids and amounts, and constant ones, are neither.

    Args:
        rows: the table.
        text: whether the column of the text is wanted.
        label: whether the column of the label is wanted.
        taken: columns that are something else.

    Raises:
        DataError: several columns may be the label.
    """
    sample = [row.values for row in islice(rows, _SAMPLE) if not row.fault]
    values: dict[str, list[Any]] = {}
    for name in (column for column in rows.columns if column not in taken):
        cells = [row[name] for row in sample if name in row and not is_missing(row[name])]
        is_value = len(name) > _NAME_LENGTH or name in map(str, cells)  # the header is missing
        if len({*map(str, cells)}) > 1 and not is_value and not _are_mostly(_DATE, cells):
            values[name] = cells
    lengths = {
        name: sum(map(len, map(str, cells))) / len(cells)
        for name, cells in values.items()
        if not _are_mostly(_CODE, cells)
    }
    columns: dict[str, str] = {}
    if text:
        longest, *others = [*sorted(lengths, key=lengths.__getitem__, reverse=True), "", ""][:2]
        minimum = max([_TEXT_LENGTH, *(_CLEARLY * lengths.get(name, 0) for name in others)])
        named = [name for name in values if name.casefold() == "text"]
        if named or lengths.get(longest, 0) >= minimum:
            columns["text_column"] = (named or [longest])[0]
    if label:
        others = values.keys() - {*columns.values()}
        possible = [name for name in values if name in others and _may_be_labels(name, values[name])]
        usual = [name for known in _LABEL_NAMES for name in possible if name.casefold() == known]
        if usual or len(possible) == 1:
            columns["label_column"] = (usual or possible)[0]
        elif possible:
            what = f"no column 'label', and several columns may have the labels: {', '.join(possible)}"
            raise DataError(f"{rows.name}: {what}. Choose one with --label-column (in Python label_column=).")
    return columns


def find_text_column(rows: Rows) -> str | None:
    """Return the column whose texts are clearly the longest, and log the choice; None if there is none."""
    found = find_columns(rows, text=True, label=False).get("text_column")
    if found is not None:
        logger.info(f"{rows.name}: the texts are in the column {found!r}")
    return found


def _are_mostly(pattern: re.Pattern[str], cells: list[Any]) -> bool:
    return sum(pattern.fullmatch(str(cell).strip()) is not None for cell in cells) >= _MOST * len(cells)


def _may_be_labels(name: str, values: list[Any]) -> bool:
    """Return whether a column has a few short values that repeat, and is neither an id nor an amount."""
    labels = {*map(str, values)}
    numbers = [number for value in values if (number := number_of(value)) is not None]
    are_amounts = len(labels) > 10 or not all(map(float.is_integer, numbers))
    has_amounts = len(numbers) > len(values) / 2 and are_amounts
    return (
        len(labels) <= min(_LABELS, len(values) / 2)
        and max(map(len, labels)) <= _LABEL_LENGTH
        and _ID_NAME.fullmatch(name) is None
        and not has_amounts
        and all(isinstance(value, str | int | float) for value in values)
    )
