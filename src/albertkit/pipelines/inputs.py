"""Read the inputs of a pipeline from lists, datasets, tables, iterables and files."""

import copy
import sys
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from albertkit.datasets.rows import TABLES, InputFormat, NumberedInputs, is_query, named_row, read_rows
from albertkit.errors import AlbertKitError, DataError, short

_LISTED = 10  # number of inputs listed in an error
_COUNTED_FROM_0 = range(sys.maxsize)


def read_inputs(
    inputs: Any, *, fields: Sequence[str], rest: str | None = None, format: InputFormat | None = None
) -> NumberedInputs:
    """Return several inputs: a list if they are in memory, otherwise an iterator."""
    if isinstance(inputs, NumberedInputs):
        return inputs
    if isinstance(inputs, PathLike):
        path = Path(inputs)
        if not path.exists():  # raise now, not when the first answer is requested
            raise DataError(f"{inputs}: no such file")
        if path.is_dir():
            raise DataError(f"{inputs} is a folder. Expected a file with one input per line.")
        if format is None and path.suffix.lower() in TABLES:
            return _table_inputs(read_rows(path), fields, rest)
        return NumberedInputs.read(path, format=format, fields=fields, rest=rest)
    if is_table(inputs, rest):
        return _table_inputs(read_rows(inputs, name="the table"), fields, rest)
    if hasattr(inputs, "to_pylist"):  # a column of PyArrow, whose items are not Python strings
        inputs = inputs.to_pylist()
    is_scalar = getattr(inputs, "shape", None) == ()  # an array or tensor without dimensions
    if _is_dataset(inputs):
        inputs = iter(inputs) if isinstance(inputs, Iterable) else map(inputs.__getitem__, range(len(inputs)))
    elif not isinstance(inputs, Iterable) or isinstance(inputs, str | bytes | Mapping) or is_scalar:
        expected = f"an input ({', '.join(fields)}), an iterable of inputs, a table, or the path of a file"
        raise DataError(f"received {short(inputs)} ({type(inputs).__name__}). Expected {expected}.")
    items = list(inputs) if hasattr(inputs, "__len__") else iter(inputs)
    return NumberedInputs(items, "", _COUNTED_FROM_0, "input")


def is_table(inputs: Any, rest: str | None) -> bool:
    """Return whether inputs are a table: a DataFrame, an Arrow table, a query, or a dict of columns.

    The value of the field `rest` is a list in single inputs too.
    """
    if isinstance(inputs, Mapping):
        columns = [
            hasattr(column, "__len__") and not isinstance(column, str | bytes | Mapping)
            for name, column in inputs.items()
            if name != rest
        ]
        return bool(columns) and all(columns)
    if isinstance(inputs, list):  # perhaps the rows of a query
        return any(named_row(row) is not row for row in inputs[:1])
    is_stream = hasattr(inputs, "__arrow_c_stream__") and not hasattr(inputs, "__len__")
    is_lazy = hasattr(inputs, "collect_schema")
    # A dataset of `datasets` has rows.
    return is_stream or is_lazy or is_query(inputs) or hasattr(inputs, "columns")


def _table_inputs(table: Any, fields: Sequence[str], rest: str | None) -> NumberedInputs:
    """Return the rows of a table, with only the columns that have the name of a field, in any case.

    If no column has the name of the first field, the only column is the text.
    """
    columns = table.columns
    by_name = {str(column).casefold(): column for column in columns}
    wanted = {name: by_name[name] for name in (*fields, *filter(None, [rest])) if name in by_name}
    if fields and fields[0] not in wanted:
        if len(columns) > 1 or (len(fields) > 1 and fields[1] != "text_pair"):
            names = ", ".join(map(str, columns))
            raise DataError(f"{table.name}: the columns are {names}. Expected {', '.join(fields)}.")
        wanted[fields[0]] = columns[0]
    items = []
    for row in table:
        if row.fault:
            raise DataError(f"{row.origin}: {row.fault}")
        values = {name: row.values.get(column) for name, column in wanted.items()} if fields else row.values
        items.append(values[fields[0]] if len(wanted) == 1 and fields else values)
    return NumberedInputs(items, table.name, range(1, len(items) + 1), "row")


def inputs_error(
    inputs: NumberedInputs, problems: Mapping[int, AlbertKitError], *, count: int
) -> AlbertKitError:
    """Return a single error for all inputs that cannot be answered."""
    first = problems[min(problems)]
    numbers = [inputs.numbers[index] for index in problems]
    counted = " (counted from 0)" if inputs.numbers is _COUNTED_FROM_0 else ""
    where = f"{inputs.name}, " if inputs.name else ""
    if len(problems) == 1:
        where += f"{inputs.kind} {numbers[0]}{counted}: "
    else:
        listed = ", ".join(map(str, numbers[:_LISTED])) + (", ..." if len(numbers) > _LISTED else "")
        where += (
            f"{len(problems):,} of {count:,} inputs cannot be answered: {inputs.kind}s {listed}{counted}. "
            "The first: "
        )
    error = copy.copy(first)  # of the same class, with its further attributes
    error.args = (f"{where}{first.args[0]}", *first.args[1:])
    error.inputs = tuple(problems)
    error.__cause__ = first
    return error


def _is_dataset(inputs: Any) -> bool:
    """Return whether this is a dataset of torch or `datasets`, which may be larger than memory."""
    is_array = hasattr(inputs, "shape") and not hasattr(inputs, "column_names")
    if isinstance(inputs, Sequence | Mapping) or is_array:
        return False
    return hasattr(inputs, "__len__") and hasattr(inputs, "__getitem__")
