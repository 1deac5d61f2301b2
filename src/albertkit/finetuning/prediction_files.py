"""Merge parts of predictions into one file: .jsonl, .csv, .tsv or .parquet.

A part has one JSON object per line. Tables have a column `score_LABEL` for each of the `scores`. In .csv and
.tsv, lists are JSON in their cells.
"""

import csv
import json
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import chain
from operator import ne
from pathlib import Path
from typing import Any

from albertkit.datasets.reader import open_table
from albertkit.errors import DataError, short
from albertkit.extras import optional
from albertkit.files import by_number, json_text

pa = optional("pyarrow", extra="arrow")
parquet = optional("pyarrow.parquet", extra="arrow")

logger = logging.getLogger(__name__)

SCORES = "scores"
SCORE_PREFIX = "score_"
_SPACES = str.maketrans("\t\r\n", "   ")


def part_files(folder: Path) -> list[Path]:
    """Return the parts of a folder in order."""
    return sorted(folder.glob("[0-9]*.jsonl"), key=by_number)


def checked_records(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of all parts, before they are written to a file.

    Raises:
        DataError: a part is damaged.
    """
    for part in part_files(folder):
        try:
            for line in part.read_bytes().splitlines():
                record = json.loads(line)
                if not isinstance(record.get("cut", 0), int):
                    raise TypeError(f"cut is {short(record['cut'])}")
                json_text(record, ensure_ascii=False).encode()  # fails for a lone surrogate
                yield record
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise DataError(
                f"{part} is damaged ({error}). Delete the folder {folder} to start again."
            ) from error


def read_records(file: Path, types: Mapping[str, Counter[type]]) -> Iterator[dict[str, Any]]:
    """Yield the predictions in a file as they were before they were written.

    Args:
        file: a file of predictions.
        types: the number of values of each type, by column.
    """
    total = max((counts.total() for counts in types.values()), default=0)
    # A column that is not in all records has no value in the others.
    kinds = {name: {*one, *([type(None)] if one.total() < total else [])} for name, one in types.items()}
    is_text = file.suffix.lower() in (".csv", ".tsv")
    for row in open_table(file).rows():
        scores: dict[str, Any] = {}
        record: dict[str, Any] = {}
        for name, value in row.values.items():
            is_score = name not in types and name.startswith(SCORE_PREFIX)
            if is_text:
                value = _value(value, {float, type(None)} if is_score else kinds[name])
            if is_score:
                scores[name.removeprefix(SCORE_PREFIX)] = value
            elif value is not None or types[name].total() == total:
                record[name] = value
        if scores:
            is_list = list in types[SCORES]  # another example may have more
            record[SCORES] = [one for one in scores.values() if one is not None] if is_list else scores
        yield record


def _value(cell: str, kinds: Collection[type]) -> Any:
    """Return the value in a cell, for the types of the values in its column."""
    if str in kinds and (cell or type(None) not in kinds):
        return cell
    if cell in ("True", "False"):
        return cell == "True"
    return json.loads(cell) if cell else None


def flat_records(part: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a part with one column per score; scores without names are numbered from 0."""
    for line in part.read_bytes().splitlines():
        result: dict[str, Any] = {}
        for name, value in json.loads(line).items():
            if name == SCORES and isinstance(value, dict | list):
                named = value.items() if isinstance(value, dict) else enumerate(value)
                result |= {f"{SCORE_PREFIX}{label}": score for label, score in named}
            else:
                result[name] = value
        yield result


def write_jsonl(parts: Path, file: Path) -> None:
    """Write the lines unchanged."""
    with file.open("wb") as target:
        for part in part_files(parts):
            target.write(part.read_bytes())


def write_csv(parts: Path, file: Path) -> None:
    """Write a row for each record. Records may have different columns."""
    with file.open("w", encoding="utf-8", newline="") as target:
        csv.writer(target).writerows(_cells(parts))


def write_tsv(parts: Path, file: Path) -> None:
    """Write a row for each record. Tabs and line breaks in cells become spaces.

    albertkit reads .tsv files without quoting, so a quoted cell would not be read as it was written.
    """
    changed = 0
    with file.open("w", encoding="utf-8", newline="") as target:
        for cells in _cells(parts):
            written = [cell.translate(_SPACES) for cell in cells]
            changed += sum(map(ne, written, cells))
            target.write("\t".join(written) + "\n")
    if changed:
        logger.warning(
            f"number of cells in which spaces replace tabs or line breaks: {changed:,}. A .tsv file cannot "
            "contain them. To keep them, write a .jsonl, .csv or .parquet file."
        )


def write_parquet(parts: Path, file: Path) -> None:
    """Write one row group per part. Types are merged, because a part may have only empty lists.

    Raises:
        DataError: a kept column has lists or objects without a common type.
    """
    columns = _columns(parts)
    try:
        schema = pa.unify_schemas(
            [_table(part, columns).schema for part in part_files(parts)], promote_options="permissive"
        )
        with parquet.ParquetWriter(file, schema) as writer:
            for part in part_files(parts):
                writer.write_table(_table(part, columns, schema))
    except (pa.ArrowException, OverflowError, ValueError) as error:
        raise DataError(
            f"the predictions do not fit into a Parquet file ({error}). Write them as .jsonl, or without "
            "--keep-columns."
        ) from error


def _cells(parts: Path) -> Iterator[list[str]]:
    """Yield the names of the columns, then the cells of each record."""
    columns = list(_columns(parts))
    yield columns
    for record in chain.from_iterable(map(flat_records, part_files(parts))):
        yield [_cell(record.get(name)) for name in columns]


def _cell(value: Any) -> str:
    if isinstance(value, list | dict):
        return json_text(value, ensure_ascii=False)
    return "" if value is None else str(value)


def _columns(folder: Path) -> dict[str, set[type]]:
    """Return the columns of all records, each with the types of its values; `cut` comes last."""
    columns: dict[str, set[type]] = {}
    for record in chain.from_iterable(map(flat_records, part_files(folder))):
        for name, value in record.items():
            kinds = columns.setdefault(name, set())
            if value is not None:
                kinds.add(float if type(value) is int else type(value))
    return dict(sorted(columns.items(), key=lambda one: one[0] == "cut"))


def _table(part: Path, columns: dict[str, set[type]], schema: Any = None) -> Any:
    """Return the table of a part. A kept column with values of several types becomes text."""
    rows = [{name: record.get(name) for name in columns} for record in flat_records(part)]
    for name in (name for name, kinds in columns.items() if len(kinds) > 1):
        for row in rows:
            if row[name] is not None and not isinstance(row[name], str):
                row[name] = json_text(row[name], ensure_ascii=False)
    return pa.Table.from_pylist(rows, schema=schema)


WRITERS: dict[str, Callable[[Path, Path], None]] = {
    ".jsonl": write_jsonl,
    ".csv": write_csv,
    ".tsv": write_tsv,
    ".parquet": write_parquet,
}
