"""Read several inputs of a pipeline from lists, datasets, iterables and files, and report their errors."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any

from albertkit.errors import AlbertKitError, DataError, short
from albertkit.inputs import NumberedInputs, format_of

_LISTED = 10  # number of inputs listed in an error


_COUNTED_FROM_0 = range(sys.maxsize)


def read_inputs(
    inputs: Any, *, expected: str, fields: Sequence[str], rest: str | None, others: bool = False
) -> NumberedInputs:
    """Return several inputs: a list if they are in memory, otherwise an iterator.

    Args:
        inputs: a list or another sized iterable, a dataset with `__len__` and `__getitem__`, any iterable, or
            the path of a file.
        expected: the description of one input in errors.
        fields: the keys of an input, the columns of a TSV file.
        rest: the field that receives all further columns.
        others: whether to keep the other fields of a JSON Lines file.

    Raises:
        DataError: the inputs are none of these, or the file does not exist.
    """
    if isinstance(inputs, NumberedInputs):
        return inputs
    if isinstance(inputs, PathLike):
        path = Path(inputs)
        if not path.exists():  # raise now, not when the first answer is requested
            raise DataError(f"{inputs}: no such file")
        if path.is_dir():
            raise DataError(f"{inputs} is a folder. Expected a file with one input per line.")
        return NumberedInputs.read(
            _lines(path), str(path), format=format_of(path), fields=fields, rest=rest, others=others
        )
    if hasattr(inputs, "to_pylist"):  # a column of PyArrow, whose items are not Python strings
        inputs = inputs.to_pylist()
    is_scalar = getattr(inputs, "shape", None) == ()  # an array or tensor without dimensions
    if _is_dataset(inputs):
        inputs = iter(inputs) if isinstance(inputs, Iterable) else map(inputs.__getitem__, range(len(inputs)))
    elif not isinstance(inputs, Iterable) or isinstance(inputs, str | bytes | Mapping) or is_scalar:
        raise DataError(
            f"received {short(inputs)} ({type(inputs).__name__}). Expected {expected} or an iterable of "
            "these, or the path of a file."
        )
    items = list(inputs) if hasattr(inputs, "__len__") else iter(inputs)
    return NumberedInputs(items, "", _COUNTED_FROM_0, "input")


def inputs_error(
    inputs: NumberedInputs, problems: Mapping[int, AlbertKitError], *, count: int
) -> AlbertKitError:
    """Return a single error for all inputs that cannot be answered.

    Args:
        inputs: the inputs.
        problems: the errors of the invalid inputs, by index from 0.
        count: number of inputs read so far.
    """
    error = next(iter(problems.values()))
    places = [inputs.numbers[number] for number in problems]
    counted = " (counted from 0)" if inputs.numbers is _COUNTED_FROM_0 else ""
    where = f"{inputs.name}, " if inputs.name else ""
    if len(problems) == 1:
        return type(error)(f"{where}{inputs.kind} {places[0]}{counted}: {error}")
    listed = ", ".join(map(str, places[:_LISTED])) + (", ..." if len(places) > _LISTED else "")
    return type(error)(
        f"{where}{len(problems):,} of {count:,} inputs cannot be answered: {inputs.kind}s {listed}{counted}. "
        f"The first: {error}"
    )


def check_table(inputs: Any, *, fields: Sequence[str], rest: str | None, is_text: bool) -> None:
    """Raise DataError for a table, because iterating over it yields column names.

    Args:
        inputs: the inputs of the pipeline.
        fields: the keys of an input.
        rest: the field that receives all further columns.
        is_text: whether a text alone is an input, so that one column is enough.
    """
    names = _column_names(inputs, rest)
    if names is None:
        return
    fields = [*fields, *([rest] if rest else [])]
    shown = ", ".join(map(repr, names[:_LISTED]))
    todo = f'one column, such as df["{_text_column(inputs, names, fields)}"]' if is_text else ""
    if len(fields) > 1:
        listed = ", ".join(f'"{name}"' for name in fields)
        todo += f'{" or " if todo else ""}its rows, such as df[[{listed}]].to_dict("records")'
        todo += "" if {*fields} <= {*names} else " (rename the columns first)"
    raise DataError(
        f"received a table ({type(inputs).__name__}) with the columns {shown}: it is not clear which of them "
        f"are the inputs. Pass {todo}, where df is the table."
    )


def _text_column(inputs: Any, names: Sequence[str], fields: Sequence[str]) -> str:
    """Return the column with the name of a field, in any case, otherwise that with the longest first text."""

    def rank(name: str) -> tuple[bool, int]:
        value = None
        with suppress(KeyError, TypeError):  # column names that are not strings; tables without values
            value = next(iter(inputs[name]), None)
        value = getattr(value, "as_py", lambda: value)()  # a value of PyArrow
        return name.casefold() in fields, len(value) if isinstance(value, str) else 0

    return max(names, key=rank, default="text")


def _column_names(inputs: Any, rest: str | None) -> list[str] | None:
    """Return a table's column names, or None for other objects. `rest` is a list in single inputs too."""
    if isinstance(inputs, Mapping):
        columns = [
            hasattr(one, "__len__") and not isinstance(one, str | bytes)
            for name, one in inputs.items()
            if name != rest
        ]
        return [*map(str, inputs)] if columns and all(columns) else None
    if not hasattr(inputs, "columns"):  # pandas, polars, PyArrow; a dataset of `datasets` has rows
        return None
    return [*map(str, getattr(inputs, "column_names", inputs.columns))]


def _is_dataset(inputs: Any) -> bool:
    """Return whether this is a dataset of torch or `datasets`, which may be larger than memory."""
    is_array = hasattr(inputs, "shape") and not hasattr(inputs, "column_names")
    if isinstance(inputs, Sequence | Mapping) or is_array:
        return False
    return hasattr(inputs, "__len__") and hasattr(inputs, "__getitem__")


def _lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, which is opened when the first line is requested."""
    with path.open("rb") as stream:
        yield from stream
