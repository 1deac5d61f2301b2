"""What a model is to answer, from a file or a pipe, a line each and as it is read.

    lines    the line is a text
    tsv      its columns, between tabs, are the fields of an input; no header, no quoting
    jsonl    a JSON object with the fields of an input, or a JSON string

A file says by its name which it is: .tsv, .jsonl or .ndjson; any other holds lines.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from albertkit.errors import DataError

InputFormat = Literal["lines", "tsv", "jsonl"]
_BY_SUFFIX: dict[str, InputFormat] = {".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}


def format_of(path: Path) -> InputFormat:
    """Return the format of a file by its name."""
    return _BY_SUFFIX.get(path.suffix.lower(), "lines")


def read_inputs(
    stream: Iterable[bytes],
    name: str,
    *,
    format: InputFormat = "lines",
    fields: Sequence[str] = (),
    rest: str | None = None,
) -> Iterator[Any]:
    """Yield the input of each line; blank lines are skipped.

    Args:
        stream: lines of UTF-8.
        name: what errors call the stream.
        format: see above.
        fields: what the columns of a TSV line are; the last ones may be left out. An input of one field is
            that field alone.
        rest: the field that takes all columns after those, as a list.

    Raises:
        DataError: not UTF-8, not JSON, too many columns, or nothing at all.
    """
    found = False
    for number, raw in enumerate(stream, start=1):
        where = f"{name}, line {number}"
        try:
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{where}: not UTF-8 (byte {error.object[error.start]:#04x} at column {error.start + 1}); "
                "convert the file first, for instance with iconv"
            ) from error
        if line.strip():
            found = True
            yield _read(line, where, format, fields, rest)
    if not found:
        raise DataError(f"there is no text in {name}: expected one on each line")


def _read(line: str, where: str, format: InputFormat, fields: Sequence[str], rest: str | None) -> Any:
    if format == "lines":
        return line.strip()
    result = _read_json(line, where) if format == "jsonl" else _read_columns(line, where, fields, rest)
    if isinstance(result, dict) and len(fields) == 1 and [*result] == [*fields]:
        return result[fields[0]]
    return result


def _read_json(line: str, where: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not JSON ({error}); expected an object on each line") from error


def _read_columns(line: str, where: str, fields: Sequence[str], rest: str | None) -> dict[str, Any]:
    columns = [column.strip() for column in line.split("\t")]
    if len(columns) > len(fields) and rest is None:
        raise DataError(f"{where}: {len(columns)} columns; expected {', '.join(fields)}, between tabs")
    result: dict[str, Any] = dict(zip(fields, columns, strict=False))
    if rest is not None:
        result[rest] = columns[len(fields) :]
    return result
