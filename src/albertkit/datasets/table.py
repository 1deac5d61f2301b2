"""Rows of tables: CSV, TSV and JSON lines, compressed or not, and Python objects. All are streamed.

| source | a row is |
|---|---|
| `.csv` | a record; quoted cells may hold line ends |
| `.tsv` | a line split at tabs; quotes are text, as in GLUE's files. Several quoted cells cause a warning |
| `.jsonl` | an object |
| an object | a mapping: a `datasets.Dataset`, or any sequence of mappings |

`arrow_table.py` reads Parquet and the folders of `datasets`.
"""

import csv
import difflib
import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

from albertkit.errors import ConfigError, DataError, short
from albertkit.files import by_number
from albertkit.text_files import LINE_BYTES, cr_ends, file_format, lone_surrogate, read_lines, read_records

logger = logging.getLogger(__name__)

HEAD_ROWS = 1000
"""Number of objects that are searched for field names, because not every object needs to have all fields."""


class Row(NamedTuple):
    """A row by column, or the reason why it is invalid."""

    origin: str  # "file, line 12", for messages
    values: Mapping[str, Any]
    fault: str = ""


Problem = Literal["malformed", "empty", "unlabeled", "mislabeled", "moved"]
"""Reasons: the row does not match the layout; has no text; has no label; or has an impossible label. "moved":
the row is used, but an answer is not at its index in the context."""


class RowError(DataError):
    """A row that cannot be used as an example.

    Args:
        problem: the reason.
        detail: more about the problem.
    """

    def __init__(self, problem: Problem, detail: str = "") -> None:
        super().__init__(detail or problem)
        self.problem: Problem = problem
        self.detail = detail


class Table(ABC):
    """Rows with named columns, which can be read repeatedly."""

    name: str

    @abstractmethod
    def columns(self) -> list[str]:
        """Return the names of the columns."""

    @abstractmethod
    def rows(self) -> Iterator[Row]:
        """Yield the rows in order."""

    def class_names(self, column: str) -> tuple[str, ...] | None:
        """Return the names of the classes whose numbers are in a column, if the table defines them."""
        return None

    def check_columns(self, wanted: Mapping[str, str | Sequence[str] | None]) -> None:
        """Check that columns exist, and that only `--id-column` names a column that has another role.

        Args:
            wanted: the columns by the flag that names them; None if no column is wanted.

        Raises:
            DataError: a column does not exist, or has two roles.
        """
        columns = self.columns()
        roles: dict[str, str] = {}
        for flag, names in wanted.items():
            for name in [names] if isinstance(names, str) else names or ():
                if name not in columns:
                    raise DataError(
                        f"{self.name}: no column {name!r}. The columns are {', '.join(columns) or 'none'}. "
                        + self._hint(columns, flag)
                    )
                if columns.count(name) > 1:
                    raise DataError(
                        f"{self.name}: {columns.count(name)} columns are named {name!r}. Rename all but one."
                    )
                if flag != "--id-column" and roles.setdefault(name, flag) != flag:
                    raise DataError(
                        f"{self.name}: the column {name!r} is both {roles[name]} and {flag}. Expected two "
                        f"columns among {', '.join(columns)}."
                    )

    def _hint(self, columns: list[str], flag: str) -> str:
        """Return the advice for a column that does not exist."""
        argument = flag.removeprefix("--").replace("-", "_")
        return f"Set the right name with {flag} (in Python {argument}=)"


class DelimitedTable(Table):
    """A CSV or TSV file.

    Args:
        path: the file.
        header: whether the first row has the column names; otherwise they are "0", "1" and so on, or `names`.
        names: the column names of a file without header.
        delimiter: separator between cells; None for a tab in .tsv and a comma in .csv.
    """

    def __init__(
        self,
        path: Path,
        *,
        header: bool = True,
        names: Sequence[str] | None = None,
        delimiter: str | None = None,
    ) -> None:
        self.path = path
        self.name = str(path)
        self.header = header and names is None
        self.names = names
        kind = file_format(path)[0]
        self.delimiter = _delimiter(delimiter) or ("\t" if kind == ".tsv" else ",")
        self._is_quoted = self.delimiter != "\t" or kind == ".csv"
        self._warns = delimiter is None  # GLUE's reader passes a tab, and no warning is needed

    def _hint(self, columns: list[str], flag: str) -> str:
        if columns[0].startswith("sep="):
            return "Delete the first line, which is for Excel."
        mark = next((one for one in _DELIMITERS if len(columns) == 1 and one in columns[0]), None)
        if mark is not None:
            return (
                f"The header is a single cell that contains {mark!r}. If it separates cells: --delimiter "
                f"{mark!r} (in Python delimiter={mark!r})"
            )
        no_header = ", or --no-header if the first line is an example (in Python header=False)"
        return super()._hint(columns, flag) + no_header * self.header

    def columns(self) -> list[str]:
        """Return the column names: those passed, those in the first row, or the indices of its cells."""
        if self.names is not None:
            return list(self.names)
        first = next(self._records(), None)
        if first is None:
            raise DataError(f"{self.path}: the file is empty. Add rows, or pass another file.")
        _, cells = first
        return [cell.strip() for cell in cells] if self.header else [str(n) for n in range(len(cells))]

    def rows(self) -> Iterator[Row]:
        """Yield the records that are not blank; another number of cells, or the header again, is a fault."""
        columns = self.columns()
        for line, cells in islice(self._records(), int(self.header), None):
            fault = f"{len(cells)} cells, expected {len(columns)}" if len(cells) != len(columns) else ""
            if self.header and cells == columns and len(cells) > 1:  # a single cell may be a text
                fault = "the header again, as in files that were joined"
            yield Row(f"{self.path}, line {line}", dict(zip(columns, cells, strict=False)), fault)

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the line number of each record's start, and its cells."""
        if not self._is_quoted:
            quoted = 0
            for number, line, _ in read_records(self.path):
                if line := line.rstrip("\r\n"):
                    cells = line.split(self.delimiter)
                    if self._warns and '""' in line:
                        quoted += sum(map(_is_quoted, cells))
                        if quoted >= _QUOTED_CELLS:
                            self._warn_of_quotes(number)
                    yield number, cells
            return
        csv.field_size_limit(LINE_BYTES)  # the library's default is 128 KB, but texts may be longer
        lines = (line for _, line, _ in read_lines(self.path))
        reader = csv.reader(lines, delimiter=self.delimiter, strict=True)
        begins = 1
        try:
            for cells in reader:
                if cells:
                    yield begins, cells
                begins = reader.line_num + 1
        except csv.Error as error:
            if "new-line character" in str(error):
                raise (cr_ends(self.name) if begins == 1 else self._cr_in_cell(begins)) from error
            hint = (
                ". If quotes are part of the text, rename the file to .tsv" if self.delimiter == "\t" else ""
            )
            raise DataError(f"{self.path}, record from line {begins}: not CSV ({error}){hint}") from error

    def _cr_in_cell(self, line: int) -> DataError:
        return DataError(
            f"{self.path}, record from line {line}: a cell without quotes contains a CR (carriage return). "
            "Expected lines that end in LF or CRLF. Remove the CR, or quote the cell."
        )

    def _warn_of_quotes(self, line: int) -> None:
        self._warns = False
        logger.warning(
            f"{self.path}, line {line}: at least {_QUOTED_CELLS} cells are quoted, as in files that Excel "
            "writes. In a .tsv file, quotation marks are part of the text. To remove them, rename "
            "the file so that it ends in .csv, and set --delimiter '\\t' (in Python delimiter='\\t')."
        )


_QUOTED_CELLS = 3
"""Number of quoted cells in a .tsv file that cause a warning."""


def _is_quoted(cell: str) -> bool:
    """Return whether a cell is quoted as in CSV, with doubled quotation marks inside."""
    inside = cell[1:-1]
    return cell[:1] == cell[-1:] == '"' and '""' in inside and '"' not in inside.replace('""', "")


_DELIMITERS = ("\t", ";", "|", ",")


def _delimiter(given: str | None) -> str | None:
    r"""Return the delimiter as one character. A shell passes a tab as the two characters \t."""
    if given == "\\t":
        return "\t"
    if given is not None and (len(given) != 1 or given in '"\r\n'):
        raise ConfigError(f"delimiter is {given!r}. Expected one character, such as ';' or '\\t' for a tab.")
    return given


class JsonLinesTable(Table):
    """A file with one JSON object per line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = str(path)

    def columns(self) -> list[str]:
        """Return the fields of the first objects.

        Raises:
            DataError: there is no object.
        """
        rows = list(islice(self.rows(), HEAD_ROWS))
        if not rows:
            raise DataError(f"{self.path}: the file is empty. Add rows, or pass another file.")
        if all(row.fault for row in rows):
            raise DataError(f"{rows[0].origin}: {rows[0].fault}. Expected one JSON object per line.")
        return list(dict.fromkeys(name for row in rows for name in row.values))

    def rows(self) -> Iterator[Row]:
        """Yield the lines that are not blank; a line that is not an object has a fault.

        Raises:
            DataError: the file is a JSON array.
        """
        is_first = True
        for number, line, _ in read_records(self.path):
            if not line.strip():
                continue
            origin = f"{self.path}, line {number}"
            if is_first and line.lstrip().startswith("["):
                raise DataError(
                    f"{origin}: expected one JSON object per line, but the file begins with an array. To "
                    f"convert an array of objects: jq -c '.[]' {self.path} > lines.jsonl."
                )
            is_first = False
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:  # also for a number with thousands of digits
                yield Row(origin, {}, f"not JSON: {error}")
                continue
            if not isinstance(record, dict):
                yield Row(origin, {}, f"not an object: {line.strip():.40}")
            elif "\\u" in line and (lone := lone_surrogate(json.dumps(record, ensure_ascii=False))):
                yield Row(origin, {}, f"{lone} is a lone surrogate, which no text can contain")
            else:
                yield Row(origin, record)


class ObjectTable(Table):
    """Mappings in memory, or a `datasets.Dataset` (a single split, not a dictionary of splits).

    Args:
        rows: the mappings.
        name: what error messages call them.
        features: column -> its type in `datasets`; None for those of `rows`, if it has any.
        schema: the schema of an Arrow table, which may have class names.
        categories: the categories of each ordered column, in order.

    Raises:
        DataError: the object is a mapping.
    """

    def __init__(
        self,
        rows: Iterable[Mapping[str, Any]],
        *,
        name: str = "the given examples",
        features: Mapping[str, Any] | None = None,
        schema: Any = None,
        categories: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        if not isinstance(rows, Iterable):
            raise DataError(f"{name} is {short(rows)}. Expected a path, a table or an iterable of dicts.")
        if isinstance(rows, Mapping):
            raise DataError(
                f"{name} is a mapping with the keys {', '.join(map(str, rows))}. If these are splits, pass "
                "one of them. If they are columns, pass a list of dicts, one per row."
            )
        self._rows = rows
        self._features = features or getattr(rows, "features", None) or {}
        self._schema = schema
        self._categories = categories or {}
        self.name = name

    def columns(self) -> list[str]:
        """Return the column names of the data set, or the keys of the first rows."""
        names = getattr(self._rows, "column_names", None)
        if names is not None:
            return list(names)
        return list(dict.fromkeys(name for row in islice(self.rows(), HEAD_ROWS) for name in row.values))

    def rows(self) -> Iterator[Row]:
        """Yield the rows, counted from 1."""
        for number, row in enumerate(self._rows, start=1):
            origin = f"{self.name}, row {number}"
            if not isinstance(row, Mapping):
                raise DataError(f"{origin}: expected a mapping from column to value, found {short(row)}")
            if wrong := [key for key in row if not isinstance(key, str)]:
                raise DataError(
                    f"{origin}: the name of a column is {wrong[0]!r}. Expected text. Rename or remove the "
                    "column."
                )
            if self._categories:  # numbers would be read as indices of the class names
                row = {
                    name: str(value) if value in self._categories.get(name, ()) else value
                    for name, value in row.items()
                }
            yield Row(origin, row)

    def class_names(self, column: str) -> tuple[str, ...] | None:
        """Return the names of a `ClassLabel`, or of a list of them; or of ordered categories."""
        if column in self._categories:
            return tuple(map(str, self._categories[column]))
        if self._schema is not None:
            return schema_class_names(self._schema, column, source=self.name)
        feature = self._features.get(column)
        names = getattr(getattr(feature, "feature", feature), "names", None)
        return tuple(names) if names else None


def schema_class_names(schema: Any, column: str, *, source: str) -> tuple[str, ...] | None:
    """Return the names of the classes whose numbers are in a column of an Arrow table, if it has any.

    The library `datasets` stores the names in the schema. It need not be installed.

    Raises:
        DataError: the entry in the schema is damaged.
    """
    note = (schema.metadata or {}).get(b"huggingface")
    if note is None:
        return None
    try:
        feature = json.loads(note).get("info", {}).get("features", {}).get(column) or {}
        if isinstance(feature, list):  # older versions store a list like this
            feature = {"feature": feature[0]}
        names = feature.get("feature", feature).get("names")
        if names and not all(isinstance(name, str) for name in names):
            raise TypeError(f"the names are {short(names)}")
        return tuple(names) if names else None
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        raise DataError(
            f"{source}: the class names of {column!r} are damaged ({error}). Save the data again."
        ) from error


def existing_file(path: str | Path) -> Path:
    """Return the path of a file.

    Raises:
        DataError: the file does not exist, or the path leads to a pipe, a device or a folder.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "a pipe or a device"
        raise DataError(
            f"{path} is {kind}. Expected a regular file, because it is read more than once. Write the rows "
            "to a file first."
        )
    if path == Path("-") and not path.is_file():
        raise DataError(
            "-: no such file. Standard input cannot be read here, because the rows are read more than once. "
            "Write the rows to a file first. Commands for texts, such as `albertkit classify`, read standard "
            "input if --file is omitted."
        )
    if not path.is_file():
        names = sorted((one.name for one in path.parent.glob("*")), key=by_number)
        nearest = difflib.get_close_matches(path.name, names, n=3)
        beside = list(dict.fromkeys([*nearest, *names]))[:10]
        raise DataError(f"{path}: no such file" + (f"; the folder has {', '.join(beside)}" if beside else ""))
    return path
