"""Read the rows of any source as dicts: `read_rows`.

| source | a row is |
|---|---|
| `.csv` | a record; quoted cells may contain line ends |
| `.tsv` | a line split at tabs; quotes are text, as in GLUE's files. Several quoted cells cause a warning |
| `.jsonl` | an object |
| `.txt` | a line, in the column "text" |
| `.xlsx` | a row of a sheet |
| `.parquet`, `.arrow`, a folder of `datasets` | a row |
| a DataFrame, an Arrow table, a `datasets.Dataset` | a row |
| a list or another iterable of dicts, a dict of columns | a dict |
| a cursor of a database, rows of SQLAlchemy, named tuples | a row |

Files are streamed, compressed or not.
"""

import csv
import difflib
import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, time
from functools import cache
from itertools import chain, islice
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple

from albertkit.errors import ConfigError, DataError, reading, short
from albertkit.extras import optional
from albertkit.files import by_number, read_json
from albertkit.text_files import (
    COMPRESSIONS,
    LINE_BYTES,
    cr_ends,
    decompressed,
    file_format,
    lone_surrogate,
    read_lines,
    read_records,
)

pa = optional("pyarrow", extra="arrow")
parquet = optional("pyarrow.parquet", extra="arrow")
openpyxl = optional("openpyxl", extra="excel")
logger = logging.getLogger(__name__)

FORMATS = (".csv", ".tsv", ".xlsx", ".jsonl", ".parquet", ".arrow")
ClassNames = tuple[str, ...] | None

_HEAD_ROWS = 1000  # objects that are searched for column names: not every object has all fields
_BATCH_ROWS = 1024
_QUOTED = re.compile(r'"[^"]*(?:""[^"]*)+"')  # a cell with doubled quotation marks inside, as in CSV
_QUOTED_CELLS = 3  # quoted cells in a .tsv file that cause a warning
_DELIMITERS = ("\t", ";", "|", ",")
_TITLE_ROWS = 10  # rows above the header of a sheet that are searched for it
_SHEET_ERRORS = {"#NULL!", "#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!", "#N/A"}
CONVERT_ARRAY = "To convert an array of objects: jq -c '.[]' {} > lines.jsonl"


class Row(NamedTuple):
    """A row by column, or the reason why it is invalid."""

    origin: str
    """The location for messages: "train.csv, line 12"."""
    values: Mapping[str, Any]
    fault: str = ""
    number: int = 0
    """The number of the record in the data, from 1; 0 before a `Reader` has counted it."""


Problem = Literal["malformed", "empty", "unlabeled", "invalid label", "changed answer"]
"""Reasons: the row does not match the layout; has no text; has no label; or has an impossible label.
"changed answer": the row is used, but an answer is not at its offset in the context."""


class RowError(DataError):
    """A row that cannot be used as an example."""

    counts_from_1 = False
    """Whether the label would be the last choice if labels counted from 1."""

    def __init__(self, problem: Problem, detail: str = "") -> None:
        super().__init__(detail or problem)
        self.problem: Problem = problem
        self.detail = detail


@dataclass(repr=False)
class Rows:
    """The rows of a source. They can be iterated repeatedly, except those of an iterator."""

    name: str
    """The source in messages."""
    read: Callable[[], Iterator[Row]]
    columns: Sequence[str] = ()
    """The names of the columns; empty for files that are no tables."""
    class_names: Callable[[str], ClassNames] = lambda _: None
    """Returns the names of the classes whose numbers are in a column, if the source defines them."""
    advice: str = ""
    """What else to do if a column does not exist: the end of the message."""

    def __iter__(self) -> Iterator[Row]:
        return self.read()

    def check_columns(self, **wanted: str | Sequence[str] | None) -> None:
        """Check that columns exist, and that only `id_column` names a column that has another role.

        Args:
            wanted: the columns by the option that names them; None or "" if no column is wanted.

        Raises:
            DataError: a column does not exist, or has two roles.
        """
        listed = ", ".join(self.columns) or "none"
        roles: dict[str, str] = {}
        for option, names in wanted.items():
            flag = f"--{option.replace('_', '-')}"
            for name in filter(None, [names] if isinstance(names, str) else names or ()):
                count = self.columns.count(name)
                if count > 1:
                    raise DataError(f"{self.name}: {count} columns are named {name!r}. Rename all but one.")
                if not count:
                    what = f"no column {name!r}. The columns are {listed}"
                    advice = f"Set the right name with {flag} (in Python {option}=){self.advice}"
                    raise DataError(f"{self.name}: {what}. {advice}")
                if option != "id_column" and roles.setdefault(name, flag) != flag:
                    what = f"the column {name!r} is both {roles[name]} and {flag}"
                    raise DataError(f"{self.name}: {what}. Expected two columns among {listed}.")


def read_rows(
    source: Any,
    *,
    header: bool = True,
    delimiter: str | None = None,
    encoding: str | None = None,
    sheet: str | None = None,
    name: str = "the given examples",
) -> Rows:
    """Return the rows of a source.

    Args:
        source: the path of a file, or of a folder of `datasets`; or rows in memory.
        header: whether the first row of a CSV, TSV or XLSX file names the columns; without, they are "0", ...
        delimiter: separator between the cells of a CSV or TSV file, if it differs from the default of the
            ending.
        encoding: encoding of a text file; None for UTF-8, or UTF-16 with a byte order mark.
        sheet: name of the sheet of an XLSX file; None for the first sheet.
        name: the name of rows in memory in messages.
    """
    path = Path(source) if isinstance(source, str | Path) else None
    kind = file_format(path)[0] if path else None
    if encoding is not None:
        try:
            "".encode(encoding)
        except (LookupError, ValueError):
            known = "utf-8-sig, cp1252 or utf-16"
            raise ConfigError(f"encoding is {encoding!r}. Expected a name such as {known}.") from None
    if delimiter == "\\t":  # a shell passes a tab as two characters
        delimiter = "\t"
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise ConfigError(f"delimiter is {delimiter!r}. Expected one character, or '\\t' for a tab.")
    if sheet is not None and kind != ".xlsx":
        raise ConfigError("sheet is for XLSX files. Omit it for this source.")
    if path and kind in (".csv", ".tsv"):
        return delimited_rows(existing_file(path), header=header, delimiter=delimiter, encoding=encoding)
    if path and kind == ".xlsx":
        return _sheet_rows(existing_file(path), sheet, header=header)
    if not header:
        raise ConfigError("header is for CSV, TSV and XLSX files. Omit it for this source.")
    if path is None:
        return source if isinstance(source, Rows) else object_rows(source, name)
    if path.is_dir():
        return _arrow_rows(_files_of_folder(path), name=str(path))
    path = existing_file(path)
    if kind == ".jsonl":
        return _json_rows(path, encoding)
    if kind == ".txt":

        def read() -> Iterator[Row]:
            for number, line, _ in read_records(path, encoding):
                yield Row(f"{path}, line {number}", {"text": line.rstrip("\r\n")})

        first = [row.values["text"] for row in islice(read(), 2)]
        if first and all("\t" in text for text in first):
            what = "each line is read as one text, but the lines have tabs"
            _inform(f"{path}: {what}. If the file is a table, rename it so that it ends in .csv.")
        return Rows(str(path), read, ["text"])
    if kind in (".parquet", ".arrow"):
        return _arrow_rows([path], name=str(path))
    todo = {".json": f". {CONVERT_ARRAY.format(path)}", ".xls": ". Save the workbook as .xlsx"}
    raise DataError(
        f"{path}: unknown kind of file. Expected {', '.join(FORMATS)}, optionally followed by "
        f"{', '.join(COMPRESSIONS)}, or a folder saved by `datasets`{todo.get(kind or '', '')}."
    )


def as_source(data: Any, *, name: str) -> str | Rows | list[Any]:
    """Return data as a path, as rows, or as a list of objects that are not dicts.

    Args:
        data: a path, a table, or an iterable of dicts or of examples.
        name: the name of data in memory in messages.
    """
    if isinstance(data, Rows):
        return data
    if isinstance(data, str | Path):
        return str(data)
    data = _as_table(data, name)
    is_table = isinstance(data, Mapping) or hasattr(data, "columns") or hasattr(data, "column_names")
    if not is_table and not isinstance(data, Iterable):
        return object_rows(data, name)  # raises
    features = getattr(data, "features", None)
    if isinstance(data, Iterator) or not hasattr(data, "__len__"):  # such as an IterableDataset
        data, is_table = list(data), False
    if not len(data):  # type: ignore[arg-type]
        raise DataError(f"{name} has no examples. Expected at least one.")
    if is_table:
        return object_rows(data, name)
    first = next(iter(data))
    if isinstance(first, str):
        expected = "Expected dicts or examples. To read a file, pass only its path."
        raise DataError(f"{name} is an iterable of texts, such as {short(first)}. {expected}")
    is_row = isinstance(named_row(first), Mapping)
    return object_rows(data, name, features=features) if is_row else list(data)


# --- text files


def delimited_rows(
    path: Path,
    *,
    header: bool = True,
    names: Sequence[str] | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
) -> Rows:
    """Return the rows of a CSV or TSV file; `names` are the columns of a file without header."""
    is_tsv, header = file_format(path)[0] == ".tsv", header and names is None
    mark = delimiter or ("\t" if is_tsv else _delimiter(path, encoding) if header else ",")
    warns = [delimiter is None]  # once for all readings
    skipped = 0  # rows above the header: the line "sep=;", which tells Excel the delimiter, and titles

    def records() -> Iterator[tuple[int, list[str]]]:
        if is_tsv and mark == "\t":
            return islice(_tab_records(path, warns, encoding), skipped, None)
        return islice(_quoted_records(path, mark, encoding), skipped, None)

    columns, advice, width, names_again = list(names or ()), "", len(names or ()), [""]
    if names is None:
        _, cells = next(records(), (0, None))
        if cells is None:
            raise DataError(f"{path}: the file is empty. Add rows, or pass another file.")
        if delimiter is None and not is_tsv:
            if written := re.fullmatch(r"sep=(.)?", mark.join(cells)):
                mark, skipped = written[1] or ",", 1
            elif header and len(cells) == 1:
                mark = next((char for char in ";\t" if char in cells[0]), mark)
            _, cells = next(records(), (0, [""]))
        if header and len(cells) > 2 and cells[0].strip() and not any(map(_is_filled, cells[1:])):
            for titles, (line, row) in enumerate(islice(records(), _TITLE_ROWS)):
                if sum(map(_is_filled, row)) > 1:
                    _inform(f"{path}: the header is on line {line}. The lines above it are skipped.")
                    cells, skipped = row, skipped + titles
                    break
        width, names_again = len(cells), [cell.strip() for cell in cells]
        columns = _column_names(cells) if header else [str(n) for n in range(len(cells))]
        other = next((char for char in _DELIMITERS if len(columns) == 1 and char in columns[0]), None)
        if other is not None:
            if delimiter is not None and _divides(path, other, encoding):
                separated = f"the cells are separated by {other!r}, not by {delimiter!r}"
                raise DataError(f"{path}: {separated}. Omit the delimiter.")
            advice = (
                f", or --delimiter {other!r} (in Python delimiter={other!r}): the header is a single cell"
            )
        elif header:
            advice = ", or --no-header if the first line is an example (in Python header=False)"
            advice += ". If the line is a title, delete it" if len(columns) == 1 else ""

    def read() -> Iterator[Row]:
        rows = _without_blank_end(islice(records(), int(header), None))
        for number, (line, cells) in enumerate(rows, start=1):
            fault = f"{len(cells)} cells, expected {width}" if len(cells) != width else ""
            if any(map(_is_filled, cells[len(columns) :])):
                fault = fault or f"cells to the right of the last named column, {_letter(len(columns))}"
            if header and cells == names_again and len(cells) > 1:  # a single cell may be a text
                fault = "a repeated header, as in concatenated files"
            shift = line - number - skipped - int(header)  # by line breaks in cells, or blank lines
            place = f"row {number}, line {line}" if shift else f"line {line}"
            yield Row(f"{path}, {place}", dict(zip(columns, cells, strict=False)), fault)

    return Rows(str(path), read, columns, advice=advice)


def _without_blank_end(records: Iterable[tuple[int, Sequence[Any]]]) -> Iterator[tuple[int, Any]]:
    """Leave out the rows of several empty cells at the end, which spreadsheets write."""
    blank = []
    for number, cells in records:
        if len(cells) > 1 and not any(map(_is_filled, cells)):
            blank.append((number, cells))
            continue
        yield from blank
        blank.clear()
        yield number, cells


def _tab_records(path: Path, warns: list[bool], encoding: str | None) -> Iterator[tuple[int, list[str]]]:
    quoted = 0
    for number, line, _ in read_records(path, encoding):
        if not (line := line.rstrip("\r\n")):
            continue
        cells = line.split("\t")
        if warns[0] and '""' in line:
            quoted += sum(_QUOTED.fullmatch(cell) is not None for cell in cells)
            if quoted >= _QUOTED_CELLS:
                warns[0] = False
                logger.warning(
                    f"{path}, line {number}: at least {_QUOTED_CELLS} cells are in quotes, as in files "
                    "that Excel writes, but albertkit reads quotes in a .tsv file as text. To remove them, "
                    "rename the file so that it ends in .csv, and set --delimiter '\\t' (in Python "
                    "delimiter='\\t')."
                )
        yield number, cells


def _delimiter(path: Path, encoding: str | None) -> str:
    """Return the delimiter that divides all first rows into equal numbers of cells, otherwise a comma."""
    return next((mark for mark in ",;\t" if _divides(path, mark, encoding)), ",")


def _divides(path: Path, mark: str, encoding: str | None) -> bool:
    try:
        widths = {len(cells) for _, cells in islice(_quoted_records(path, mark, encoding), _TITLE_ROWS)}
    except DataError:
        return False
    return len(widths) == 1 and widths != {1}


def _quoted_records(path: Path, delimiter: str, encoding: str | None) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(LINE_BYTES)  # the library's default is 128 KB, but texts may be longer
    lines = (line for _, line, _ in read_lines(path, encoding))
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    begins = 1
    try:
        for cells in reader:
            if cells:
                yield begins, cells
            begins = reader.line_num + 1
    except csv.Error as error:
        reason = f"not CSV ({error}). Perhaps a quotation mark is not closed"
        if "new-line character" in str(error):
            if begins == 1:
                raise cr_ends(str(path)) from error
            reason = "a cell without quotes contains a CR (carriage return). Remove the CR, or quote the cell"
        elif delimiter == "\t":
            reason += ". If quotes are part of the text, rename the file to .tsv"
        raise DataError(f"{path}, record from line {begins}: {reason}") from error


# --- workbooks


def _sheet_rows(path: Path, sheet: str | None, *, header: bool) -> Rows:
    """Return the rows of a sheet of a workbook.

    Rows with a single cell above the header are titles, unless most rows have a single cell.
    """
    with reading(path, DataError), path.open("rb") as file:
        workbook = openpyxl.load_workbook(file, read_only=True, data_only=True)
        sheets = {each.title: each for each in workbook.worksheets}  # without charts
        if sheet is not None and sheet not in sheets:
            raise DataError(f"{path}: no sheet {sheet!r}. The sheets are {', '.join(sheets)}.")
        visible = (name for name, each in sheets.items() if each.sheet_state == "visible")
        opened = sheets[sheet or next(visible)]
        opened.reset_dimensions()  # some programs write wrong ones
        table = [[*map(_cell_value, row)] for row in opened.iter_rows(values_only=True)]
    filled = [sum(map(_is_filled, cells)) for cells in table]
    rows = [number for number, count in enumerate(filled, start=1) if count]
    if not rows:
        raise DataError(f"{path}: the sheet is empty. Add rows, or pass another sheet.")
    table, start, width = table[: rows[-1]], rows[0] - 1, max(map(len, table))
    columns = [str(number) for number in range(width)]
    if header:
        start = rows[0]
        if median(filter(None, filled)) > 1:
            start = next((row for row, count in enumerate(filled[:_TITLE_ROWS], 1) if count > 1), start)
        if start > rows[0]:
            _inform(f"{path}: the header is in row {start}. The rows above it are skipped.")
        columns = _column_names(table[start - 1])
        width = len(columns)

    def read() -> Iterator[Row]:
        for number, cells in enumerate(table[start:], start=start + 1):
            fault = f"cells after column {width}" if any(map(_is_filled, cells[width:])) else ""
            values = [*cells[:width], *[None] * (width - len(cells))]
            yield Row(f"{path}, row {number}", dict(zip(columns, values, strict=True)), fault)

    return Rows(str(path), read, columns)


def _column_names(header: Sequence[Any]) -> list[str]:
    """Return the names in a header up to the last one; a column without a name is "column C"."""
    width = max((number for number, cell in enumerate(header, start=1) if _is_filled(cell)), default=0)
    return [
        str(cell).strip() if _is_filled(cell) else f"column {_letter(number)}"
        for number, cell in enumerate(header[:width], start=1)
    ]


def _letter(number: int) -> str:
    """Return the letters of a column in spreadsheets, counted from 1: A, ..., Z, AA, ..."""
    before, last = divmod(number - 1, 26)
    return (_letter(before) if before else "") + chr(ord("A") + last)


def _is_filled(cell: Any) -> bool:
    return cell is not None and str(cell).strip() != ""


def _cell_value(value: Any) -> Any:
    if isinstance(value, str):
        return None if value in _SHEET_ERRORS else value.replace("_x000D_", "")  # the CR of a line break
    if isinstance(value, datetime) and value.time() == time():
        return value.date()
    return value


@cache
def _inform(message: str) -> None:
    """Log a message only once: a command opens its files several times."""
    logger.info(message)


def _json_rows(path: Path, encoding: str | None) -> Rows:
    def read() -> Iterator[Row]:
        is_first = True
        for number, line, _ in read_records(path, encoding):
            if not line.strip():
                continue
            origin, record, fault = f"{path}, line {number}", {}, ""
            if is_first and line.lstrip().startswith("["):
                expected = f"expected one JSON object per line. {CONVERT_ARRAY.format(path)}"
                raise DataError(f"{origin}: {expected}.")
            is_first = False
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:  # also for a number with thousands of digits
                fault = f"not JSON: {error}"
            if not isinstance(record, dict):
                fault = f"not an object: {line.strip():.40}"
            elif "\\u" in line and (lone := lone_surrogate(json.dumps(record, ensure_ascii=False))):
                fault = f"{lone} is a lone surrogate, which no text can contain"
            yield Row(origin, {} if fault else record, fault)

    head = list(islice(read(), _HEAD_ROWS))
    if not head:
        raise DataError(f"{path}: the file is empty. Add rows, or pass another file.")
    if all(row.fault for row in head):
        raise DataError(f"{head[0].origin}: {head[0].fault}. Expected one JSON object per line.")
    return Rows(str(path), read, _keys(row.values for row in head))


def _keys(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


# --- objects in memory


def object_rows(data: Any, name: str, *, features: Any = None, columns: Sequence[str] | None = None) -> Rows:
    """Return the rows of a table of another library, of dicts, or of a dict of columns.

    Args:
        data: the table or the dicts.
        name: its name in messages.
        features: column -> its type in `datasets`; None for those of the data, if it has any.
        columns: the names of the columns; None for those of the table or of the first rows.
    """
    schema, categories = None, dict[str, list[Any]]()  # of ordered columns of categories
    data = _from_columns(data, name) if isinstance(data, Mapping) else _as_table(data, name)
    given = getattr(data, "column_names", getattr(data, "columns", ()))
    _check_unique(given if isinstance(given, Iterable) else (), name)
    if hasattr(data, "to_pylist"):  # pyarrow
        schema = data.schema
        for field in schema:
            if _is_ordered(field.type):
                values = data.column(field.name)
                categories[field.name] = _categories(getattr(values, "chunks", [values]))
        data = data.to_pylist()
    elif hasattr(data, "to_dicts"):  # polars
        data = data.to_dicts()
    elif hasattr(data, "to_dict") and hasattr(data, "columns"):  # pandas
        data = data.set_axis([str(name) for name in data.columns], axis=1)
        for column, kind in data.dtypes.items():
            if getattr(kind, "ordered", False):
                categories[column] = [*kind.categories]
        data = data.to_dict("records")
    elif isinstance(data, Iterator):
        data = list(data)
    if not isinstance(data, Iterable):
        received = f"{short(data)} ({type(data).__name__})"
        raise DataError(f"{name} is {received}. Expected a path, a table or an iterable.")
    features = features or getattr(data, "features", None) or {}

    def read() -> Iterator[Row]:
        for number, row in enumerate(map(named_row, data), start=1):
            origin = f"{name}, row {number}"
            if not isinstance(row, Mapping) or not all(isinstance(key, str) for key in row):
                raise DataError(f"{origin}: expected a mapping from column names to values, not {short(row)}")
            if categories:  # numbers would be read as indices of the class names
                row = dict(row)
                for column in categories.keys() & row.keys():
                    if row[column] in categories[column]:
                        row[column] = str(row[column])
            yield Row(origin, row)

    def class_names(column: str) -> ClassNames:
        if column in categories:
            return tuple(map(str, categories[column]))
        if schema is not None:
            return _schema_class_names(schema, column, source=name)
        feature = features.get(column)
        names = getattr(getattr(feature, "feature", feature), "names", None)
        return tuple(names) if names else None

    columns = columns or getattr(data, "column_names", None)
    if not columns:
        columns = _keys(row.values for row in islice(read(), _HEAD_ROWS))
    return Rows(name, read, columns, class_names)


def is_query(data: Any) -> bool:
    """Return whether this is the cursor of a database (PEP 249) after a query."""
    return hasattr(data, "fetchall") and bool(getattr(data, "description", None))


def _as_table(data: Any, name: str) -> Any:
    """Return the rows of a query, a lazy frame or an Arrow stream as a table; other data unchanged."""
    if is_query(data):
        names = [column[0] for column in data.description]
        _check_unique(names, name)
        rows = data.fetchall()
        return [row if isinstance(row, Mapping) else dict(zip(names, row, strict=True)) for row in rows]
    if hasattr(data, "collect") and hasattr(data, "collect_schema"):  # polars
        return data.collect()
    if any(hasattr(data, method) for method in ("to_pylist", "to_dicts", "to_dict", "__len__")):
        return data
    return pa.table(data) if hasattr(data, "__arrow_c_stream__") else data


def named_row(row: Any) -> Any:
    """Return a row of SQLAlchemy or `sqlite3`, or a named tuple, as a mapping; other rows unchanged."""
    if hasattr(row, "_asdict") and not hasattr(row, "_mapping"):
        return row._asdict()  # a named tuple
    row = getattr(row, "_mapping", row)
    return dict(row) if hasattr(row, "keys") and not isinstance(row, Mapping) else row


def _check_unique(columns: Iterable[Any], name: str) -> None:
    for column, count in Counter(map(str, columns)).items():
        if count > 1:  # a row as a dict would have only one of them
            raise DataError(f"{name}: {count} columns are named {column!r}. Rename all but one.")


def _from_columns(data: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    columns = {
        column: list(values)
        for column, values in data.items()
        if isinstance(values, list | tuple) or hasattr(values, "tolist")
    }
    if len(columns) < len(data) or len(lengths := {*map(len, columns.values())}) != 1 or 0 in lengths:
        expected = "Expected lists of the same length. If these are splits, pass one of them."
        raise DataError(f"{name} is a mapping with the keys {', '.join(map(str, data))}. {expected}")
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


# --- Arrow


def _files_of_folder(path: Path) -> list[Path]:
    """Return the files of the split that `Dataset.save_to_disk` wrote into a folder."""
    if (path / "dataset_dict.json").is_file():
        splits = read_json(path / "dataset_dict.json", DataError).get("splits")
        first = path / str(splits[0]) if isinstance(splits, list) and splits else path
        raise DataError(f"{path} has several splits. Pass one of them: {first}, ...")
    state = path / "state.json"
    if not state.is_file():
        raise DataError(f"{path} is a folder. Expected a file, or a folder that `datasets` has saved.")
    with reading(state, DataError):
        names = [file["filename"] for file in read_json(state, DataError)["_data_files"]]
        if not names or any(Path(name).name != name for name in names):
            raise ValueError(f"the files are {short(names)}")
    return [path / name for name in names]


def _arrow_rows(files: list[Path], *, name: str) -> Rows:
    """Return the rows of files of one schema: Parquet, or Arrow streams as `datasets` writes them."""
    with ExitStack() as stack, reading(files[0], DataError):
        schema, _ = _open_arrow(files[0], stack)
        columns = list(schema.names)

    def read() -> Iterator[Row]:
        for file in files:
            values = chain.from_iterable(_batches(file, lambda batch: batch.to_pylist()))
            for number, row in enumerate(values, start=1):
                yield Row(f"{file}, row {number}", row)

    def class_names(column: str) -> ClassNames:
        names = _schema_class_names(schema, column, source=name)
        if names or column not in columns or not _is_ordered(schema.field(column).type):
            return names
        chunks = (_batches(file, lambda batch: batch.column(column)) for file in files)
        return tuple(map(str, _categories(chain.from_iterable(chunks))))

    return Rows(name, read, columns, class_names)


def _batches(file: Path, convert: Callable[[Any], Any]) -> Iterator[Any]:
    with ExitStack() as stack, reading(file, DataError):
        _, batches = _open_arrow(file, stack)
        for batch in batches:
            batch.validate(full=True)  # the offsets of a damaged stream may be invalid
            yield convert(batch)


def _open_arrow(file: Path, stack: ExitStack) -> tuple[Any, Iterator[Any]]:
    kind, compression = file_format(file)
    source = stack.enter_context(decompressed(file, compression)) if compression else file
    if kind == ".parquet":
        opened = stack.enter_context(parquet.ParquetFile(source))
        return opened.schema_arrow, opened.iter_batches(batch_size=_BATCH_ROWS)
    stream = stack.enter_context(pa.ipc.open_stream(stack.enter_context(pa.OSFile(str(file)))))
    return stream.schema, iter(stream)


def _is_ordered(kind: Any) -> bool:
    """Return whether this is the type of an ordered column of categories, as pandas writes it."""
    return pa.types.is_dictionary(kind) and kind.ordered


def _categories(chunks: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(value for chunk in chunks for value in chunk.dictionary.to_pylist()))


def _schema_class_names(schema: Any, column: str, *, source: str) -> ClassNames:
    """Return the names of the classes whose numbers are in a column; `datasets` stores them in the schema."""
    note = (schema.metadata or {}).get(b"huggingface")
    if note is None:
        return None
    with reading(source, DataError):
        feature = json.loads(note).get("info", {}).get("features", {}).get(column) or {}
        if isinstance(feature, list):  # older versions store a list like this
            feature = {"feature": feature[0]}
        names = feature.get("feature", feature).get("names")
        if names and not all(isinstance(name, str) for name in names):
            raise ValueError(f"the class names of {column!r} are {short(names)}")
        return tuple(names) if names else None


def existing_file(path: str | Path) -> Path:
    """Return the path of a regular file, or raise DataError with the names of similar files."""
    path = Path(path)
    if path.is_file():
        return path
    if path.exists():
        what = "a folder" if path.is_dir() else "a pipe or a device"
        raise DataError(f"{path} is {what}. Expected a regular file, because it is read more than once.")
    names = sorted((file.name for file in path.parent.glob("*")), key=by_number)
    nearest = difflib.get_close_matches(path.name, names, n=3)
    beside = list(dict.fromkeys([*nearest, *names]))[:10]
    raise DataError(f"{path}: no such file" + (f"; the folder has {', '.join(beside)}" if beside else ""))
