"""Read inputs for a model from a file or a pipe, one input per line.

    lines    each line is a text
    tsv      the tab-separated columns of a line are the fields of an input; no header, no quoting
    jsonl    each line is a JSON string, or an object with the fields of an input; other fields are ignored

The ending of the file determines the format: .tsv, .jsonl or .ndjson. Tables (.csv, .parquet ...) and
archives raise an error. Other files have the format lines.
"""

import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from albertkit.errors import DataError, did_you_mean, short
from albertkit.text_files import check_line_end, decode_line

InputFormat = Literal["lines", "tsv", "jsonl"]
_BY_SUFFIX: dict[str, InputFormat] = {".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
TABLES = (".csv", ".parquet", ".arrow")
"""Endings of tables with a header, which `pipelines/inputs.py` reads."""
_UNREAD_TABLES = (*TABLES, ".feather", ".xlsx", ".xls", ".ods")
_UNREAD = (".json", ".gz", ".zst", ".bz2", ".xz", ".zip")
PAIR_FIELDS = ("text", "text_pair")
QUESTION_FIELDS = ("question", "context")
CHOICE_FIELDS = ("context", "question")
CHOICES_FIELD = "choices"
"""The field for all further columns of a line with CHOICE_FIELDS."""
_FIELDS = {*PAIR_FIELDS, *QUESTION_FIELDS, CHOICES_FIELD}
_HEADER = {*_FIELDS, "sentence", "sentence1", "sentence2", "label", "id", "index"}


def format_of(path: Path) -> InputFormat:
    """Return the format that the ending of a file means."""
    suffix = path.suffix.lower()
    if suffix in _UNREAD_TABLES:
        raise DataError(
            f"{path}: a {suffix} file cannot be read here. Expected one input per line: a text, .tsv without "
            "a header, or .jsonl."
        )
    if suffix in _UNREAD:
        raise DataError(
            f"{path}: a {suffix} file cannot be read. Expected one input per line: a text, .tsv without "
            "a header, or .jsonl. Unpack or convert the file first."
        )
    return _BY_SUFFIX.get(suffix, "lines")


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
        lines: Iterable[bytes],
        name: str,
        *,
        format: InputFormat,
        fields: Sequence[str] = (),
        rest: str | None = None,
        others: bool = False,
    ) -> "NumberedInputs":
        """Return an iterator of the inputs, one per line. Blank lines are skipped."""
        numbers = array("q")

        def items() -> Iterator[Any]:
            for number, raw in enumerate(lines, start=1):
                line = decode_line(raw, number, name)
                check_line_end(line, number, name)
                if line.strip():
                    where = f"{name}, line {number}"
                    if format == "tsv" and not numbers:
                        _check_no_header(line, where)
                    numbers.append(number)
                    yield _read(line, where, format, fields, rest, others=others)
            if not numbers:
                raise DataError(f"{name} has no text. Expected one input per line.")

        return cls(items(), name, numbers)

    @classmethod
    def read_file(
        cls, path: Path, *, format: InputFormat, fields: Sequence[str] = (), rest: str | None = None
    ) -> "NumberedInputs":
        """Return the inputs of a file as a list. For arguments and errors see `read`."""
        with path.open("rb") as file:
            read = cls.read(file, str(path), format=format, fields=fields, rest=rest)
            return replace(read, items=list(read))

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


def read_texts(path: Path) -> list[str]:
    """Return the texts of a file: lines, the first column of a .tsv, or the field "text" of .jsonl."""
    inputs = NumberedInputs.read_file(path, format=format_of(path), fields=("text",), rest="others")
    texts = []
    for number, value in zip(inputs.numbers, inputs, strict=True):
        text = value.get("text") if isinstance(value, dict) else value
        if not isinstance(text, str):
            raise DataError(f"{path}, line {number}: {short(value)}. Expected a text.")
        texts.append(text)
    return texts


def _read(
    line: str, where: str, format: InputFormat, fields: Sequence[str], rest: str | None, *, others: bool
) -> Any:
    if format == "lines":
        return line.strip()
    result = _read_json(line, where) if format == "jsonl" else _read_columns(line, where, fields, rest)
    return result if others else without_others(result, fields)


def without_others(given: Any, fields: Sequence[str]) -> Any:
    """Return an input without fields that no pipeline has, such as an id; a text if it is the only field."""
    if not isinstance(given, Mapping) or not fields or fields[0] not in given:
        return given
    known = {name: value for name, value in given.items() if name in _FIELDS}
    for name in given.keys() - _FIELDS:
        if meant := did_you_mean(name, {*fields} - known.keys()):
            raise DataError(f"received an input with the unknown field {name!r}{meant}. Correct or omit it.")
    return known[fields[0]] if len(fields) == 1 and [*known] == [*fields] else known


def _read_json(line: str, where: str) -> Any:
    try:
        value, error = json.loads(line), None
    except (ValueError, RecursionError) as cause:
        value, error = None, cause
    # A list of strings on one line is an input of some pipelines.
    if (error and line.lstrip().startswith("[")) or (isinstance(value, list) and dict in map(type, value)):
        raise DataError(
            f"{where}: an array of objects begins here. Expected one object per line. To convert the "
            "array: jq -c '.[]' FILE > lines.jsonl."
        ) from error
    if error:
        raise DataError(f"{where}: not JSON ({error}). Expected one object per line.") from error
    return value


def _check_no_header(line: str, where: str) -> None:
    columns = [column.strip() for column in line.split("\t")]
    if len(columns) > 1 and {column.lower() for column in columns} <= _HEADER:
        raise DataError(
            f"{where}: {', '.join(map(repr, columns))} are column names, but each line must be an input. "
            "Remove the line, or write the table as .csv."
        )


def _read_columns(line: str, where: str, fields: Sequence[str], rest: str | None) -> dict[str, Any]:
    columns = [column.strip() for column in line.split("\t")]
    if len(columns) > len(fields) and rest is None:
        raise DataError(f"{where}: {len(columns)} columns. Expected {', '.join(fields)}, separated by tabs.")
    result: dict[str, Any] = dict(zip(fields, columns, strict=False))
    if rest is not None:
        result[rest] = columns[len(fields) :]
    return result
