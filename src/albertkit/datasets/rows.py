"""Read the rows of any source as dicts: `read_rows` for files, tables of other libraries, and Python objects.

| source | a row is |
|---|---|
| `.csv` | a record; quoted cells may contain line ends |
| `.tsv` | a line split at tabs; quotes are text, as in GLUE's files. Several quoted cells cause a warning |
| `.jsonl` | an object |
| `.txt` | a line, in the column "text" |
| `.parquet`, `.arrow`, a folder of `datasets` | a row |
| a DataFrame, an Arrow table, a `datasets.Dataset` | a row |
| a list or another iterable of dicts, a dict of columns | a dict |

Files are streamed, compressed or not.
"""

import csv
import difflib
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

from albertkit.errors import ConfigError, DataError, short
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
logger = logging.getLogger(__name__)

FORMATS = (".csv", ".tsv", ".jsonl", ".parquet", ".arrow")
ClassNames = tuple[str, ...] | None

_HEAD_ROWS = 1000  # objects that are searched for column names: not every object has all fields
_BATCH_ROWS = 1024
_QUOTED_CELLS = 3  # quoted cells in a .tsv file that cause a warning
_DELIMITERS = ("\t", ";", "|", ",")


class Row(NamedTuple):
    """A row by column, or the reason why it is invalid."""

    origin: str
    """The location for messages: "train.csv, line 12"."""
    values: Mapping[str, Any]
    fault: str = ""


Problem = Literal["malformed", "empty", "unlabeled", "mislabeled", "moved"]
"""Reasons: the row does not match the layout; has no text; has no label; or has an impossible label. "moved":
the row is used, but an answer is not at its index in the context."""


class RowError(DataError):
    """A row that cannot be used as an example."""

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
    """What to do if a column does not exist, instead of choosing another column."""
    has_header: bool = False
    """Whether the first line of the file is a header by the caller's choice."""

    def __iter__(self) -> Iterator[Row]:
        return self.read()

    def check_columns(self, wanted: Mapping[str, str | Sequence[str] | None]) -> None:
        """Check that columns exist, and that only `--id-column` names a column that has another role.

        Args:
            wanted: the columns by the flag that names them; None if no column is wanted.

        Raises:
            DataError: a column does not exist, or has two roles.
        """
        listed = ", ".join(self.columns) or "none"
        roles: dict[str, str] = {}
        for flag, names in wanted.items():
            for name in [names] if isinstance(names, str) else names or ():
                if name not in self.columns:
                    argument = flag.removeprefix("--").replace("-", "_")
                    advice = self.advice or (
                        f"Set the right name with {flag} (in Python {argument}=)"
                        + ", or --no-header if the first line is an example (in Python header=False)"
                        * self.has_header
                    )
                    raise DataError(f"{self.name}: no column {name!r}. The columns are {listed}. {advice}")
                if self.columns.count(name) > 1:
                    raise DataError(
                        f"{self.name}: {self.columns.count(name)} columns are named {name!r}. Rename all but "
                        "one."
                    )
                if flag != "--id-column" and roles.setdefault(name, flag) != flag:
                    raise DataError(
                        f"{self.name}: the column {name!r} is both {roles[name]} and {flag}. Expected two "
                        f"columns among {listed}."
                    )


def read_rows(
    source: Any, *, header: bool = True, delimiter: str | None = None, name: str = "the given examples"
) -> Rows:
    """Return the rows of a source.

    Args:
        source: the path of a file, or of a folder of `datasets`; or rows in memory.
        header: whether the first row of a CSV or TSV file names the columns; without, they are "0", "1", ...
        delimiter: separator between cells, if it differs from the default of the ending.
        name: the name of rows in memory in messages.
    """
    path = Path(source) if isinstance(source, str | Path) else None
    kind = file_format(path)[0] if path else None
    if path and kind in (".csv", ".tsv"):
        return delimited_rows(existing_file(path), header=header, delimiter=delimiter)
    if not header or delimiter is not None:
        raise ConfigError("header and delimiter are for CSV and TSV files. Omit them for this source.")
    if path is None:
        return source if isinstance(source, Rows) else object_rows(source, name)
    if path.is_dir():
        return _arrow_rows(_files_of_folder(path), name=str(path))
    path = existing_file(path)
    if kind == ".jsonl":
        return _json_rows(path)
    if kind in (".parquet", ".arrow"):
        return _arrow_rows([path], name=str(path))
    if kind == ".txt":
        return _text_rows(path)
    todo = {
        ".json": f". If it is an array of objects: jq -c '.[]' {path} > lines.jsonl",
        ".xlsx": ". Save the sheet as .csv",
    }
    raise DataError(
        f"{path}: unknown kind of file. Expected {', '.join(FORMATS)}, optionally with "
        f"{', '.join(COMPRESSIONS)} after it, a folder saved by `datasets`, "
        f"or in Python an iterable of examples{todo.get(kind or '', '')}."
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
    is_table = isinstance(data, Mapping) or hasattr(data, "columns") or hasattr(data, "column_names")
    if not is_table and not isinstance(data, Iterable):
        raise DataError(
            f"{name} is {short(data)} ({type(data).__name__}). Expected a path, a table or an "
            "iterable of examples."
        )
    features = getattr(data, "features", None)
    if isinstance(data, Iterator) or not hasattr(data, "__len__"):  # such as an IterableDataset
        data, is_table = list(data), False
    if not len(data):  # type: ignore[arg-type]
        raise DataError(f"{name} has no examples. Expected at least one.")
    if is_table:
        return object_rows(data, name)
    first = next(iter(data))
    if isinstance(first, str):
        raise DataError(
            f"{name} is an iterable of texts, such as {short(first)}. Expected dicts, such as "
            '{"text": ...}, or examples. To read a file, pass only its path.'
        )
    return object_rows(data, name, features=features) if isinstance(first, Mapping) else list(data)


# --- text files


def delimited_rows(
    path: Path, *, header: bool = True, names: Sequence[str] | None = None, delimiter: str | None = None
) -> Rows:
    """Return the rows of a CSV or TSV file.

    Args:
        path: the file.
        header: whether the first row has the column names; otherwise they are "0", "1" and so on, or `names`.
        names: the column names of a file without header.
        delimiter: separator between cells; None for a tab in .tsv and a comma in .csv.
    """
    if delimiter == "\\t":  # a shell passes a tab as two characters
        delimiter = "\t"
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise ConfigError(
            f"delimiter is {delimiter!r}. Expected one character, such as ';' or '\\t' for a tab."
        )
    kind, header = file_format(path)[0], header and names is None
    mark = delimiter or ("\t" if kind == ".tsv" else ",")
    if mark != "\t" or kind == ".csv":
        records = lambda: _quoted_records(path, mark)  # noqa: E731
    else:
        warns = [delimiter is None]  # once for all readings
        records = lambda: _tab_records(path, warns)  # noqa: E731
    columns, advice = names, ""
    if columns is None:
        first = next(records(), None)
        if first is None:
            raise DataError(f"{path}: the file is empty. Add rows, or pass another file.")
        cells = first[1]
        columns = [cell.strip() for cell in cells] if header else [str(n) for n in range(len(cells))]
        other = next((one for one in _DELIMITERS if len(columns) == 1 and one in columns[0]), None)
        if columns[0].startswith("sep="):
            advice = "Delete the first line, which is for Excel."
        elif other is not None:
            advice = (
                f"The header is a single cell that contains {other!r}. If it separates cells: --delimiter "
                f"{other!r} (in Python delimiter={other!r})"
            )

    def read() -> Iterator[Row]:
        for line, cells in islice(records(), int(header), None):
            fault = f"{len(cells)} cells, expected {len(columns)}" if len(cells) != len(columns) else ""
            if header and cells == columns and len(cells) > 1:  # a single cell may be a text
                fault = "the header again, as in files that were joined"
            yield Row(f"{path}, line {line}", dict(zip(columns, cells, strict=False)), fault)

    return Rows(str(path), read, list(columns), advice=advice, has_header=header)


def _tab_records(path: Path, warns: list[bool]) -> Iterator[tuple[int, list[str]]]:
    quoted = 0
    for number, line, _ in read_records(path):
        if not (line := line.rstrip("\r\n")):
            continue
        cells = line.split("\t")
        if warns[0] and '""' in line:
            quoted += sum(map(_is_quoted, cells))
            if quoted >= _QUOTED_CELLS:
                warns[0] = False
                logger.warning(
                    f"{path}, line {number}: at least {_QUOTED_CELLS} cells are quoted, as in files that "
                    "Excel writes. In a .tsv file, quotation marks are part of the text. To remove them, "
                    "rename the file so that it ends in .csv, and set --delimiter '\\t' (in Python "
                    "delimiter='\\t')."
                )
        yield number, cells


def _is_quoted(cell: str) -> bool:
    """Return whether a cell is quoted as in CSV, with doubled quotation marks inside."""
    inside = cell[1:-1]
    return cell[:1] == cell[-1:] == '"' and '""' in inside and '"' not in inside.replace('""', "")


def _quoted_records(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(LINE_BYTES)  # the library's default is 128 KB, but texts may be longer
    reader = csv.reader((line for _, line, _ in read_lines(path)), delimiter=delimiter, strict=True)
    begins = 1
    try:
        for cells in reader:
            if cells:
                yield begins, cells
            begins = reader.line_num + 1
    except csv.Error as error:
        where = f"{path}, record from line {begins}"
        if "new-line character" not in str(error):
            hint = ". If quotes are part of the text, rename the file to .tsv" if delimiter == "\t" else ""
            raise DataError(f"{where}: not CSV ({error}){hint}") from error
        if begins == 1:
            raise cr_ends(str(path)) from error
        raise DataError(
            f"{where}: a cell without quotes contains a CR (carriage return). Expected lines that end in LF "
            "or CRLF. Remove the CR, or quote the cell."
        ) from error


def _json_rows(path: Path) -> Rows:
    def read() -> Iterator[Row]:
        is_first = True
        for number, line, _ in read_records(path):
            if not line.strip():
                continue
            origin = f"{path}, line {number}"
            if is_first and line.lstrip().startswith("["):
                raise DataError(
                    f"{origin}: expected one JSON object per line, but the file begins with an array. To "
                    f"convert an array of objects: jq -c '.[]' {path} > lines.jsonl."
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

    head = list(islice(read(), _HEAD_ROWS))
    if not head:
        raise DataError(f"{path}: the file is empty. Add rows, or pass another file.")
    if all(row.fault for row in head):
        raise DataError(f"{head[0].origin}: {head[0].fault}. Expected one JSON object per line.")
    return Rows(str(path), read, _keys(row.values for row in head))


def _keys(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _text_rows(path: Path) -> Rows:
    def read() -> Iterator[Row]:
        for number, line, _ in read_records(path):
            yield Row(f"{path}, line {number}", {"text": line.rstrip("\r\n")})

    return Rows(str(path), read, ["text"])


# --- objects in memory


def object_rows(data: Any, name: str, *, features: Any = None, columns: Sequence[str] | None = None) -> Rows:
    """Return the rows of a table of another library, of dicts, or of a dict of columns.

    Args:
        data: the table or the dicts.
        name: its name in messages.
        features: column -> its type in `datasets`; None for those of the data, if it has any.
        columns: the names of the columns; None for those of the table or of the first rows.
    """
    schema, categories = None, dict[str, list[Any]]()
    if isinstance(data, Mapping):
        data = _from_columns(data, name)
    given = getattr(data, "column_names", getattr(data, "columns", ()))
    for column, count in Counter(map(str, given if isinstance(given, Iterable) else ())).items():
        if count > 1:  # a row as a dict would have only one of them
            raise DataError(f"{name}: {count} columns are named {column!r}. Rename all but one.")
    if hasattr(data, "to_pylist"):  # pyarrow
        schema = getattr(data, "schema", None)
        fields = [field for field in data.schema if _is_ordered(field.type)]
        for field in fields:
            column = data.column(field.name)
            categories[field.name] = _categories(getattr(column, "chunks", [column]))
        data = data.to_pylist()
    elif hasattr(data, "to_dicts"):  # polars
        data = data.to_dicts()
    elif hasattr(data, "to_dict") and hasattr(data, "columns"):  # pandas
        data = data.set_axis([str(name) for name in data.columns], axis=1)
        dtypes = {name: data[name].dtype for name in data.columns}
        categories = {
            name: [*one.categories] for name, one in dtypes.items() if getattr(one, "ordered", False)
        }
        data = data.to_dict("records")
    elif isinstance(data, Iterator):
        data = list(data)
    if not isinstance(data, Iterable):
        raise DataError(f"{name} is {short(data)}. Expected a path, a table or an iterable of dicts.")
    features = features or getattr(data, "features", None) or {}

    def read() -> Iterator[Row]:
        for number, row in enumerate(data, start=1):
            origin = f"{name}, row {number}"
            if not isinstance(row, Mapping):
                raise DataError(f"{origin}: expected a mapping from column to value, found {short(row)}")
            if wrong := [key for key in row if not isinstance(key, str)]:
                raise DataError(
                    f"{origin}: the name of a column is {wrong[0]!r}. Expected text. Rename or remove the "
                    "column."
                )
            if categories:  # numbers would be read as indices of the class names
                row = {
                    name: str(value) if value in categories.get(name, ()) else value
                    for name, value in row.items()
                }
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


def _from_columns(data: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    columns = {
        column: list(values)
        for column, values in data.items()
        if isinstance(values, list | tuple) or hasattr(values, "tolist")
    }
    if len(columns) < len(data) or len(lengths := {*map(len, columns.values())}) != 1 or 0 in lengths:
        raise DataError(
            f"{name} is a mapping with the keys {', '.join(map(str, data))}. If these are splits, pass "
            "one of them. If they are columns, pass lists of the same length."
        )
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
        raise DataError(
            f"{path}: a folder without state.json. Expected a file, or a folder that `datasets` has saved."
        )
    try:
        names = [one["filename"] for one in read_json(state, DataError)["_data_files"]]
        if not names or any(Path(name).name != name for name in names):
            raise ValueError(f"the files are {short(names)}")
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{state}: does not list the files of a split ({error}). Save the data again."
        ) from error
    return [path / name for name in names]


def _arrow_rows(files: list[Path], *, name: str) -> Rows:
    """Return the rows of files of one schema: Parquet, or Arrow streams as `datasets` writes them."""
    with ExitStack() as stack:
        schema, _ = _open_arrow(files[0], stack)
        try:
            columns = list(schema.names)
        except UnicodeDecodeError as error:
            raise DataError(f"{files[0]}: the name of a column is not UTF-8 ({error})") from error

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
    number = 0
    with ExitStack() as stack:
        _, batches = _open_arrow(file, stack)
        try:
            for batch in batches:
                batch.validate(full=True)  # the offsets of a damaged stream may be invalid
                yield convert(batch)
                number += len(batch)
        except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
            raise DataError(f"{file}, after row {number}: cannot be read ({error})") from error


def _open_arrow(file: Path, stack: ExitStack) -> tuple[Any, Iterator[Any]]:
    kind, compression = file_format(file)
    try:
        source = stack.enter_context(decompressed(file, compression)) if compression else file
        if kind == ".parquet":
            opened = stack.enter_context(parquet.ParquetFile(source))
            return opened.schema_arrow, opened.iter_batches(batch_size=_BATCH_ROWS)
        stream = stack.enter_context(pa.ipc.open_stream(stack.enter_context(pa.OSFile(str(file)))))
        return stream.schema, iter(stream)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{file}: not a readable {kind} file ({error})") from error


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
    """Return the path of a regular file, or raise DataError with the names of similar files."""
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
