"""Values in the cells of a table: texts, numbers, lists and labels, however they are written."""

import ast
import json
import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from numbers import Integral, Number, Real
from typing import Any

from albertkit.datasets.rows import ClassNames, RowError
from albertkit.errors import short

Label = str | float | tuple[str, ...]
"""A class name, a number (regression), or several class names (multi-label)."""

_LIST = re.compile(r"""\[(["'].*["']|\s*\d[\d., ]*)?\]""", re.DOTALL)
_ADJACENT = re.compile(r"""['"]\s+['"]""")  # Python would join two strings without a comma between them
_WHOLE = re.compile(r"([+-]?(?:0|[1-9][0-9]{0,17}))(?:\.0+)?")
_INDICATORS = {
    **dict.fromkeys(("1", "1.0", "true"), True),
    **dict.fromkeys(("0", "0.0", "false"), False),
}


def is_missing(value: Any) -> bool:
    """Return whether a cell is empty: None, blank text, NaN, or NA or NaT of pandas."""
    if isinstance(value, str):
        return not value.strip()
    is_nan = isinstance(value, Number) and value != value
    return value is None or is_nan or type(value).__name__ in ("NAType", "NaTType")


def text_of(value: Any) -> str:
    """Return a cell as text, "" if it is empty or neither text nor a number."""
    if is_missing(value) or isinstance(value, bool):
        return ""
    return str(value).strip() if isinstance(value, str | Number) else ""


def number_of(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def as_list(value: Any) -> Any:
    """Return an array or a tensor as a list or a Python number: pandas reads lists as arrays."""
    return value.tolist() if hasattr(value, "tolist") else value


def nested(cell: str) -> Any:
    """Return the list or object in a text cell, written as JSON or as a Python literal."""
    for read in (json.loads, ast.literal_eval):
        try:
            value = read(cell)
        except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            continue
        if isinstance(value, list | dict) and (read is json.loads or not _ADJACENT.search(cell)):
            return value
    raise RowError("malformed", f"{short(cell)} is neither a JSON list nor a JSON object")


def parts_of(value: Any) -> list[Any]:
    """Return the items of a list, of a list written as text, or the parts of a text between spaces."""
    if isinstance(value, str):
        return list(nested(value)) if _LIST.fullmatch(value.strip()) else value.split()
    value = as_list(value)
    return list(value) if isinstance(value, list | tuple) else []


# --- labels


def read_label(value: Any, *, separator: str | None = None, names: ClassNames = None) -> Label | None:
    """Return the label in a cell, or None if the cell has none.

    With a separator, or for a list or a list written as text, the label is a tuple. An empty tuple means that
    no label applies.
    """
    value = as_list(value)
    if isinstance(value, str) and _LIST.fullmatch(value.strip()):
        value = nested(value)
    if isinstance(value, list | tuple):
        # A list may be empty: no label applies. Only a missing list means a missing label.
        return _several(value, tuple(_one_label(item, names) for item in value))
    if isinstance(value, str):
        value = value.strip()
        if separator:
            return _several(value, tuple(filter(None, map(str.strip, value.split(separator)))))
    if is_missing(value) or (names and value == -1):  # `datasets` writes a missing label as -1
        return None
    return _one_label(value, names)


def _several(value: Any, labels: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the labels of a text; raise `RowError` if they are 0 or 1 for each label of the data."""
    if len({*labels}) < len(labels) and {str(label).lower() for label in labels} <= _INDICATORS.keys():
        reason = "If the list has 0 or 1 for each label, use one column per label (--label-column A,B)."
        raise RowError("invalid label", f"{short(value)} repeats a label. {reason}")
    return labels


def _one_label(value: Any, names: ClassNames) -> Any:
    if isinstance(value, bool | str) and not is_missing(value):
        return str(value).strip()
    if isinstance(value, Real | Decimal) and (number := number_of(value)) is not None:
        if names and number.is_integer():  # a table with gaps writes 1 as 1.0
            if 0 <= number < len(names):
                return names[int(number)]
            raise RowError("invalid label", f"the class {value} is not one of 0 to {len(names) - 1}")
        return str(value) if isinstance(value, Integral) else number
    expected = "Expected text, a finite number or a list of them."
    raise RowError("invalid label", f"{short(value)} is not a label. {expected}")


def read_indicators(values: Mapping[str, Any], columns: Sequence[str]) -> Label | None:
    """Return the names of the columns that contain 1 (of those with 0 or 1), or None if a cell is empty."""
    labels: list[str] = []
    for column in columns:
        if is_missing(values.get(column)):
            return None
        written = str(values[column]).strip().lower()
        if written not in _INDICATORS:
            raise RowError("invalid label", f"{short(values[column])} in {column!r}. Expected 0 or 1.")
        if _INDICATORS[written]:
            labels.append(column)
    return tuple(labels)


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
