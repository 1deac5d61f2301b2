"""Readers: yield the examples of labeled data, with a report of the rows left out and why.

| source | read as |
|---|---|
| the path of a file or folder | its format, by its name |
| a list of dicts, a DataFrame, an Arrow table, a `datasets.Dataset` | a table |
| any other iterable | the examples themselves |
"""

import ast
import json
import math
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from numbers import Number
from pathlib import Path
from typing import Any, Generic, TypeVar

from albertkit.datasets.arrow_table import ArrowTable, arrow_categories
from albertkit.datasets.options import DataOptions
from albertkit.datasets.table import (
    DelimitedTable,
    JsonLinesTable,
    ObjectTable,
    Problem,
    Row,
    RowError,
    Table,
    existing_file,
)
from albertkit.errors import ConfigError, DataError, short
from albertkit.text_files import COMPRESSIONS, file_format

ExampleT = TypeVar("ExampleT")
FORMATS = (".csv", ".tsv", ".jsonl", ".parquet", ".arrow")

UNANSWERED = "so it has no prediction"
"""End of the detail of a row without text that is an example, because predictions must match the rows."""

SHOWN = 5
"""Number of rows listed per problem."""


@dataclass
class ProblemRows:
    """The rows with one problem: their number, and the first of them with details."""

    count: int = 0
    first: list[str] = field(default_factory=list)


@dataclass
class ReadingReport:
    """The report of one reading of one source. `examples` counts the used rows, `rows` all rows."""

    source: str
    rows: int = 0
    examples: int = 0
    problems: dict[Problem, ProblemRows] = field(default_factory=dict)
    counts_all: bool = False
    """Whether to count unreadable rows without labels instead of raising an error for the first."""

    def add(self, problem: Problem, origin: str, detail: str = "") -> None:
        """Count a row that is left out, or whose answers have moved.

        Args:
            problem: the reason.
            origin: the row: "train.csv, line 12".
            detail: more about the problem.
        """
        rows = self.problems.setdefault(problem, ProblemRows())
        rows.count += 1
        if len(rows.first) < SHOWN:
            rows.first.append(f"{origin}: {detail}" if detail else origin)

    def lines(self) -> list[str]:
        """Return the lines of the report, which is shown before training."""
        left_out = self.rows - self.examples
        also = f", {left_out:,} skipped" if left_out else ""
        lines = [f"{self.source}: {self.examples:,} example{'s' * (self.examples != 1)}{also}"]
        for problem, rows in self.problems.items():
            lines.append(f"  {problem}: {rows.count:,}")
            lines += [f"    {one}" for one in rows.first]
            if rows.count > len(rows.first):
                lines.append("    ...")
        return lines

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        report = asdict(self)
        del report["counts_all"]
        return report


class Reader(ABC, Generic[ExampleT]):
    """The examples of a source, streamed if its format allows.

    With `labeled`, rows that cannot be used are left out and counted in the report. Otherwise labels are not
    read, and every row must be an example, in order, because predictions must match the rows.

    Args:
        source: the name of the source in error messages.
        labeled: whether examples must have labels.
    """

    def __init__(self, source: str, *, labeled: bool) -> None:
        self.source = source
        self.labeled = labeled

    @abstractmethod
    def rows(self) -> Iterator[Row]:
        """Yield the rows of the source.

        Raises:
            DataError: the source is invalid.
        """

    @abstractmethod
    def example(self, row: Row, report: ReadingReport) -> ExampleT:
        """Return the example of a row.

        Raises:
            RowError: the row cannot be used.
        """

    def read(self, report: ReadingReport) -> Iterator[tuple[str, ExampleT]]:
        """Yield each example after its origin ("train.csv, line 12"), and count rows and examples.

        Raises:
            DataError: the source is invalid, or (without `labeled`) a row cannot be used.
        """
        for row in self.rows():
            report.rows += 1
            try:
                if row.fault:
                    raise RowError("malformed", row.fault)
                example = self.example(row, report)
            except RowError as error:
                if not self.labeled and not report.counts_all:
                    detail = f" ({error.detail})" if error.detail else ""
                    raise DataError(f"{row.origin}: {error.problem}{detail}") from error
                report.add(error.problem, row.origin, error.detail)
            else:
                report.examples += 1
                yield row.origin, example

    def label_names(self) -> tuple[str, ...] | None:
        """Return all labels in order if the source itself defines them."""
        return None

    def __iter__(self) -> Iterator[ExampleT]:
        """Yield only the examples."""
        for _, example in self.read(ReadingReport(self.source)):
            yield example

    def texts(self, row: Row, columns: Sequence[str], report: ReadingReport) -> list[str]:
        """Return the texts of a row.

        Without labels, an empty text is counted in the report, so that predictions match the rows.

        Raises:
            RowError: a text is empty, and the row needs a label.
        """
        texts = [text_of(row.values.get(column)) or "" for column in columns]
        if "" in texts:
            empty = columns[texts.index("")]
            value = row.values.get(empty)
            detail = f"no text in {empty!r}" + ("" if is_missing(value) else f", but {short(value)}")
            if self.labeled:
                raise RowError("empty", detail)
            report.add("empty", row.origin, f"{detail}, {UNANSWERED}")
        return texts


class TableReader(Reader[ExampleT]):
    """The examples of a table, one per usable row.

    Args:
        source: the path of a file or folder, a table, or an iterable of mappings.
        options: columns and layout. Column names that are not given have the usual defaults.
        labeled: whether to read labels, and leave out rows without labels.

    Raises:
        DataError: the source or a column does not exist.
    """

    _class_names: tuple[str, ...] | None = None

    def __init__(self, source: Any, options: DataOptions | None = None, *, labeled: bool = True) -> None:
        self.options = options or DataOptions()
        self.table = open_table(source, header=self.options.header, delimiter=self.options.delimiter)
        super().__init__(self.table.name, labeled=labeled)
        self.check_columns()
        self.table.check_columns({"--id-column": self.options.id_column})

    @abstractmethod
    def check_columns(self) -> None:
        """Raise DataError if the table lacks a required column."""

    def rows(self) -> Iterator[Row]:
        """Yield the rows of the table."""
        return self.table.rows()

    def label_names(self) -> tuple[str, ...] | None:
        """Return the names of the classes if the table defines them."""
        return self._class_names

    def rename(self, name: str) -> None:
        """Change the name of a table in memory, for reports and errors."""
        if isinstance(self.table, ObjectTable):
            self.source = self.table.name = name

    def name_of(self, row: Row) -> str:
        """Return the id of the example of a row; without a column of ids, the file and the line."""
        name = row.values.get(self.options.id_column) if self.options.id_column else None
        if isinstance(name, float) and name.is_integer():  # a column with gaps
            name = int(name)
        return row.origin if is_missing(name) else str(name)


class MappingTable(TableReader[Any]):
    """The rows of any table, converted to examples by a function.

    Args:
        source: see `TableReader`.
        make: returns the example of a row, see `made_example`. If it raises DataError, the row is left out
            and counted.
        options: columns and layout.
        labeled: whether examples must have labels.
    """

    def __init__(
        self,
        source: Any,
        make: Callable[[Mapping[str, Any]], Any],
        options: DataOptions | None = None,
        *,
        labeled: bool = True,
    ) -> None:
        self.make = make
        super().__init__(source, options, labeled=labeled)

    def check_columns(self) -> None:
        """Check nothing: the function reads the columns."""

    def example(self, row: Row, report: ReadingReport) -> Any:
        """Return the function's example of a row."""
        try:
            return made_example(self.make, row.values)
        except DataError as error:
            raise RowError("malformed", str(error)) from error


def made_example(make: Callable[[Mapping[str, Any]], Any], values: Mapping[str, Any]) -> Any:
    """Return a function's example of a row, a mapping from column to value.

    Raises:
        DataError: the function raised DataError, LookupError, TypeError or ValueError.
    """
    try:
        return make(values)
    except KeyError as error:
        raise DataError(f"no {error}") from error
    except (LookupError, TypeError, ValueError) as error:
        raise DataError(str(error)) from error


def as_source(data: Any, *, name: str) -> str | Table | list[Any]:
    """Return data as a path, a table, or a list of examples.

    Args:
        data: a path; a list of dicts; a DataFrame of pandas or polars; an Arrow table; a `datasets.Dataset`;
            or any iterable of examples.
        name: the name of data in memory in error messages.

    Raises:
        DataError: the data has another type, no examples, or two columns with the same name.
    """
    if isinstance(data, Table):
        return data
    if isinstance(data, (str, Path)):
        return str(data)
    columns = getattr(data, "column_names", getattr(data, "columns", ()))
    for column, count in Counter(map(str, columns if isinstance(columns, Iterable) else ())).items():
        if count > 1:  # a row as a dict would have only one of them
            raise DataError(f"{name}: {count} columns are named {column!r}. Rename all but one.")
    schema, categories = None, {}
    if hasattr(data, "to_pylist"):
        schema, categories = getattr(data, "schema", None), arrow_categories(data)
        data = data.to_pylist()
    elif hasattr(data, "to_dicts"):
        data = data.to_dicts()
    elif hasattr(data, "to_dict") and hasattr(data, "columns"):
        data = data.set_axis([str(name) for name in data.columns], axis=1)
        dtypes = {name: data[name].dtype for name in data.columns}
        categories = {
            name: [*one.categories] for name, one in dtypes.items() if getattr(one, "ordered", False)
        }
        data = data.to_dict("records")
    if not isinstance(data, Iterable):
        raise DataError(
            f"{name} is {short(data)} ({type(data).__name__}). Expected a path, a table or an "
            "iterable of examples."
        )
    features = getattr(data, "features", None)  # the features of an IterableDataset, whose rows are read once
    if isinstance(data, Iterator) or not hasattr(data, "__len__"):
        data = list(data)
    if isinstance(data, Mapping) or hasattr(data, "column_names"):
        return ObjectTable(data, name=name)
    first = next(iter(data), None)
    if first is None:
        raise DataError(f"{name} has no examples. Expected at least one.")
    if isinstance(first, str):
        raise DataError(
            f"{name} is an iterable of texts, such as {short(first)}. Expected dicts, such as "
            '{"text": ...}, or examples. To read a file, pass only its path.'
        )
    if not isinstance(first, Mapping):
        return list(data)
    return ObjectTable(data, name=name, features=features, schema=schema, categories=categories)


def open_table(source: Any, *, header: bool = True, delimiter: str | None = None) -> Table:
    """Return the table of a source.

    Args:
        source: the path of a file, or of a folder of `datasets`; or rows in memory, see `as_source`.
        header: whether the first row of a CSV or TSV file names the columns; without, they are "0", "1", ...
        delimiter: separator between cells, if it differs from the default of the ending.

    Raises:
        DataError: the file does not exist, or has an unknown format.
        ConfigError: header or delimiter is set for a source that has none.
    """
    path = Path(source) if isinstance(source, (str, Path)) else None
    kind = file_format(path)[0] if path else None
    if path and kind in (".csv", ".tsv"):
        return DelimitedTable(existing_file(path), header=header, delimiter=delimiter)
    if not header or delimiter is not None:
        raise ConfigError("header and delimiter are for CSV and TSV files. Omit them for this source.")
    if path is None:
        # Other rows are not copied: a `datasets.IterableDataset` may be larger than memory.
        is_copied = isinstance(source, Iterator) or hasattr(source, "columns")
        rows: Any = as_source(source, name="the given examples") if is_copied else source
        return rows if isinstance(rows, Table) else ObjectTable(rows)
    if path.is_dir():
        return ArrowTable.folder(path)
    if kind == ".jsonl":
        return JsonLinesTable(existing_file(path))
    if kind in (".parquet", ".arrow"):
        return ArrowTable([existing_file(path)], name=str(path))
    todo = {
        ".json": f". If it is an array of objects: jq -c '.[]' {path} > lines.jsonl",
        ".xlsx": ". Save the sheet as .csv",
    }
    raise DataError(
        f"{existing_file(path)}: unknown kind of file. Expected {', '.join(FORMATS)}, optionally with "
        f"{', '.join(COMPRESSIONS)} after it, a folder saved by `datasets`, "
        f"or in Python an iterable of examples{todo.get(kind or '', '')}."
    )


def nested(cell: str) -> Any:
    """Return the list or object in a text cell, written as JSON or as a Python literal.

    Raises:
        RowError: the cell is neither. NumPy's notation does not count, because it has no commas.
    """
    for read in (json.loads, ast.literal_eval):
        try:
            found = read(cell)
        except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            continue
        if isinstance(found, (list, dict)) and (read is json.loads or not _ADJACENT.search(cell)):
            return found
    raise RowError("malformed", f"{short(cell)} is neither a JSON list nor a JSON object")


_ADJACENT = re.compile(r"""['"]\s+['"]""")  # Python would join two strings without a comma between them


def as_list(value: Any) -> Any:
    """Return an array or a tensor as a list or a Python number: pandas reads lists as arrays."""
    return value.tolist() if hasattr(value, "tolist") else value


def text_of(value: Any) -> str | None:
    """Return a cell as text, or None if it is empty or neither text nor a number."""
    if is_missing(value) or isinstance(value, bool):
        return None
    return str(value).strip() if isinstance(value, str | Number) else None


def number_of(value: Any) -> float | None:
    """Return a cell or a label as a finite number, or None."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def is_missing(value: Any) -> bool:
    """Return whether a cell is empty: None, blank text, NaN, or NA or NaT of pandas."""
    if isinstance(value, str):
        return not value.strip()
    return (
        value is None
        or type(value).__name__ in ("NAType", "NaTType")
        or (isinstance(value, Number) and value != value)
    )
