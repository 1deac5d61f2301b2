"""Read the inputs of pipelines and commands from lines of files and pipes, tables, datasets and iterables."""

import copy
import json
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from albertkit.datasets.columns import find_text_column
from albertkit.datasets.rows import CONVERT_ARRAY, is_query, named_row, read_rows
from albertkit.errors import AlbertKitError, DataError, did_you_mean, short
from albertkit.text_files import check_line_end, decode_line

InputFormat = Literal["lines", "tsv", "jsonl"]
"""A line is a text; or it has the tab-separated fields of an input, without header and quoting; or it is a
JSON string, or an object with the fields of an input."""
PAIR_FIELDS = ("text", "text_pair")
QUESTION_FIELDS = ("question", "context")
CHOICE_FIELDS = ("context", "question")
CHOICES_FIELD = "choices"
"""The field for all further columns of a line with CHOICE_FIELDS."""
_TABLES = (".csv", ".xlsx", ".parquet", ".arrow")  # have a header
_BY_SUFFIX: dict[str, InputFormat] = {".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
_UNREAD = {*_TABLES, ".feather", ".xls", ".ods", ".json", ".gz", ".zst", ".bz2", ".xz", ".zip"}
_FIELDS = {*PAIR_FIELDS, *QUESTION_FIELDS, CHOICES_FIELD}
_HEADER = {*_FIELDS, "sentence", "sentence1", "sentence2", "label", "id", "index"}
_LISTED = 10  # number of inputs listed in an error
_COUNTED_FROM_0 = range(sys.maxsize)


@dataclass(frozen=True)
class NumberedInputs:
    """Inputs with their numbers for error messages: a list, or an iterator that reads them one by one."""

    items: Iterable[Any]
    name: str
    """The name of the file or stream; empty for arguments of a command."""
    numbers: Sequence[int]
    """The number of each input, from 1. The sequence grows while inputs are read."""
    kind: str = "line"
    """The unit that the numbers count, such as "line" or "text"."""

    @classmethod
    def read(
        cls,
        source: Path | Iterable[bytes],
        name: str = "",
        *,
        format: InputFormat | None = None,
        fields: Sequence[str] = (),
        rest: str | None = None,
    ) -> "NumberedInputs":
        """Return an iterator of the inputs, one per line that is not blank.

        Args:
            source: a file, which is opened when the first input is requested, or its lines.
            name: the name of the source in messages; empty for the path of the file.
            format: the format of each line; None for the format that the ending of the file means.
            fields: the fields of an input, in the order of the columns; empty for any.
            rest: the field for all further columns; None if there may be none.
        """
        if isinstance(source, Path):
            suffix, name = source.suffix.lower(), name or str(source)
            if format is None and suffix in _UNREAD:
                raise DataError(
                    f"{source}: a {suffix} file cannot be read here. Expected one input per line: a text, "
                    ".tsv without a header, or .jsonl."
                )
            format = format or _BY_SUFFIX.get(suffix, "lines")
        numbers = array("q")

        def items() -> Iterator[Any]:
            with source.open("rb") if isinstance(source, Path) else nullcontext(source) as lines:
                for number, raw in enumerate(lines, start=1):
                    line = decode_line(raw, number, name)
                    check_line_end(line, number, name)
                    if not line.strip():
                        continue
                    where, is_first = f"{name}, line {number}", not numbers
                    numbers.append(number)
                    if format == "jsonl":
                        yield without_others(_from_json(line, where), fields)
                    elif format == "tsv":
                        yield _from_cells(line, where, fields, rest, is_first=is_first)
                    else:
                        yield line.strip()
            if not numbers:
                raise DataError(f"{name} has no text. Expected one input per line.")

        return cls(items(), name, numbers)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)

    @property
    def is_list(self) -> bool:
        """Whether all inputs are in memory."""
        return isinstance(self.items, list)

    def map(self, change: Callable[[Any], Any]) -> "NumberedInputs":
        """Return the inputs, each converted by `change`."""
        changed = map(change, self.items)
        return replace(self, items=list(changed) if self.is_list else changed)


def _from_json(line: str, where: str) -> Any:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        if not line.lstrip().startswith("["):
            raise DataError(f"{where}: not JSON ({error}). Expected one object per line.") from error
        value = [{}]  # the first line of an array
    # A list of strings on one line is an input of some pipelines.
    if isinstance(value, list) and dict in map(type, value):
        expected = f"Expected one object per line. {CONVERT_ARRAY.format('FILE')}."
        raise DataError(f"{where}: an array of objects begins here. {expected}")
    return value


def _from_cells(line: str, where: str, fields: Sequence[str], rest: str | None, *, is_first: bool) -> Any:
    cells = [cell.strip() for cell in line.split("\t")]
    if is_first and len(cells) > 1 and {cell.lower() for cell in cells} <= _HEADER:
        raise DataError(
            f"{where}: {', '.join(map(repr, cells))} are column names, but each line must be an input. "
            "Remove the line, or write the table as .csv."
        )
    if len(cells) > len(fields) and rest is None:
        raise DataError(f"{where}: {len(cells)} columns. Expected {', '.join(fields)}, separated by tabs.")
    named: dict[str, Any] = dict(zip(fields, cells, strict=False))
    return without_others(named if rest is None else named | {rest: cells[len(fields) :]}, fields)


def without_others(given: Any, fields: Sequence[str]) -> Any:
    """Return an input without fields that no pipeline has, such as an id; a text if it is the only field."""
    if not isinstance(given, Mapping) or not fields or fields[0] not in given:
        return given
    known = {name: value for name, value in given.items() if name in _FIELDS}
    for name in given.keys() - _FIELDS:
        if meant := did_you_mean(name, {*fields} - known.keys()):
            raise DataError(f"received an input with the unknown field {name!r}{meant}. Correct or omit it.")
    return known[fields[0]] if len(fields) == 1 and [*known] == [*fields] else known


def read_texts(path: Path) -> list[str]:
    """Return the texts of a file: lines, the first column of a .tsv, or the field "text" of .jsonl."""
    inputs = NumberedInputs.read(path, fields=("text",), rest="others")
    texts: list[Any] = [value.get("text") if isinstance(value, dict) else value for value in inputs]
    for number, text in zip(inputs.numbers, texts, strict=True):
        if not isinstance(text, str):
            raise DataError(f"{path}, line {number}: {short(text)}. Expected a text.")
    return texts


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
        if format is not None or path.suffix.lower() not in _TABLES:
            return NumberedInputs.read(path, format=format, fields=fields, rest=rest)
        return _table_inputs(read_rows(path), fields, rest)
    if is_table(inputs, rest):
        return _table_inputs(read_rows(inputs, name="the table"), fields, rest)
    if hasattr(inputs, "to_pylist"):  # a column of PyArrow, whose items are not Python strings
        inputs = inputs.to_pylist()
    is_array = hasattr(inputs, "shape") and not hasattr(inputs, "column_names")
    is_sized = hasattr(inputs, "__len__")
    is_indexed = is_sized and hasattr(inputs, "__getitem__")
    if is_indexed and not is_array and not isinstance(inputs, Sequence | Mapping):
        # A dataset of torch or `datasets` may be larger than memory.
        items = iter(inputs) if isinstance(inputs, Iterable) else map(inputs.__getitem__, range(len(inputs)))
        return NumberedInputs(items, "", _COUNTED_FROM_0, "input")
    is_scalar = getattr(inputs, "shape", None) == ()  # an array or tensor without dimensions
    if not isinstance(inputs, Iterable) or isinstance(inputs, str | bytes | Mapping) or is_scalar:
        expected = f"an input ({', '.join(fields)}), an iterable of inputs, a table, or the path of a file"
        raise DataError(f"received {short(inputs)} ({type(inputs).__name__}). Expected {expected}.")
    return NumberedInputs(list(inputs) if is_sized else iter(inputs), "", _COUNTED_FROM_0, "input")


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

    If no column has the name of the first field, the text is the only column, or the one with clearly the
    longest texts.
    """
    columns = table.columns
    by_name = {str(column).casefold(): column for column in columns}
    wanted = {name: by_name[name] for name in (*fields, rest) if name in by_name}
    if fields and fields[0] not in wanted:
        found = None
        if len(fields) == 1 or fields[1] == "text_pair":
            if len(columns) == 1:
                found = columns[0]
            elif fields[0] == "text" and not wanted:
                found = find_text_column(table)
        if found is None:
            names = ", ".join(map(str, columns))
            raise DataError(f"{table.name}: the columns are {names}. Expected {', '.join(fields)}.")
        wanted[fields[0]] = found
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
    listed = ", ".join(str(inputs.numbers[index]) for index in [*problems][:_LISTED])
    counted = " (counted from 0)" if inputs.numbers is _COUNTED_FROM_0 else ""
    where = f"{inputs.kind} {listed}{counted}: "
    if len(problems) > 1:
        listed += ", ..." if len(problems) > _LISTED else ""
        of_all = f"{len(problems):,} of {count:,} inputs cannot be answered"
        where = f"{of_all}: {inputs.kind}s {listed}{counted}. The first: "
    error = copy.copy(first)  # of the same class, with its further attributes
    error.args = (f"{inputs.name}{', ' * bool(inputs.name)}{where}{first.args[0]}", *first.args[1:])
    error.inputs = tuple(problems)
    error.__cause__ = first
    return error
