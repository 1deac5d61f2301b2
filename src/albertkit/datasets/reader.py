"""Read examples from rows, with a report of the rows left out and why."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Generic, TypeVar

from albertkit.datasets.cells import is_missing
from albertkit.datasets.rows import ClassNames, Problem, Row, RowError, Rows
from albertkit.errors import DataError, short

ExampleT = TypeVar("ExampleT")
Warn = Callable[[Problem, str], None]
"""Counts a problem of a row that is still used, with a detail."""

_SHOWN = 5  # rows listed per problem
_ALL_OR_NONE = {"text_pair", "pair", "score"}  # fields that all examples in memory have, or none


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
    merged_labels: dict[str, dict[str, int]] = field(default_factory=dict)
    """Label -> the other spellings that were merged into it, with their numbers of occurrences."""

    def add(self, problem: Problem, origin: str, detail: str = "") -> None:
        """Count a row with a problem; the origin is its location: "train.csv, line 12"."""
        rows = self.problems.setdefault(problem, ProblemRows())
        rows.count += 1
        if len(rows.first) < _SHOWN:
            rows.first.append(f"{origin}: {detail}" if detail else origin)

    def leave_out(self, problem: Problem, origin: str, detail: str = "") -> None:
        """Count a row with a problem that was counted as an example."""
        self.add(problem, origin, detail)
        self.examples -= 1

    def lines(self) -> list[str]:
        """Return the lines of the report, which is shown before training."""
        left_out = self.rows - self.examples
        also = f", {left_out:,} skipped" if left_out else ""
        lines = [f"{self.source}: {self.examples:,} example{'s' * (self.examples != 1)}{also}"]
        for problem, rows in self.problems.items():
            lines.append(f"  {problem}: {rows.count:,}")
            lines += [f"    {row}" for row in rows.first]
            if rows.count > len(rows.first):
                lines.append("    ...")
        for label, others in self.merged_labels.items():
            spellings = ", ".join(f"{other!r} ({count:,})" for other, count in others.items())
            lines.append(f"  merged into the label {label!r}: {spellings}")
        return lines

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns of the rows, by the field of the example that they fill."""

    names: Mapping[str, Any]
    """Field -> column, columns, or None."""
    labeled: bool = True
    """Whether labels are read. Otherwise every row must be an example, because predictions match the rows."""
    id: str | None = None
    """Column of the ids; without, an id is the location of the row."""
    class_names: ClassNames = None
    """All labels in order, if the source defines them."""
    separator: str | None = None
    """Separator between the labels in one cell."""
    found: Mapping[str, str] = field(default_factory=dict)
    """Option -> the column that was found without it."""

    def id_of(self, row: Row) -> str:
        """Return the id of the example of a row."""
        name = row.values.get(self.id) if self.id else None
        if isinstance(name, float) and name.is_integer():  # a column with gaps
            name = int(name)
        return row.origin if is_missing(name) else str(name)


@dataclass
class Reader(Generic[ExampleT]):
    """The examples of a source, which are read when the reader is iterated.

    With labels, rows that cannot be used are left out and counted in the report. Without, every row must be
    an example, in order, because predictions must match the rows.
    """

    rows: Rows
    example: Callable[[Row, Warn], ExampleT]
    """Returns the example of a row, or raises `RowError`."""
    columns: Columns
    is_strict: bool = False
    """Whether an example that cannot be used is an error, also with labels."""
    after: Callable[[], None] = lambda: None
    """Checks all rows at the end of a reading."""

    @property
    def source(self) -> str:
        """The name of the source in messages."""
        return self.rows.name

    def read(self, report: ReadingReport, *, counts_all: bool = False) -> Iterator[tuple[str, ExampleT]]:
        """Yield each example after its origin ("train.csv, line 12"), and count rows and examples.

        Args:
            report: the report to fill.
            counts_all: whether to count rows that cannot be used, instead of raising an error for the first.

        Raises:
            DataError: the source is invalid, or (without labels) a row cannot be used.
        """
        return ((row.origin, example) for row, example in self.numbered(report, counts_all=counts_all))

    def numbered(self, report: ReadingReport, *, counts_all: bool = False) -> Iterator[tuple[Row, ExampleT]]:
        """Yield each example after its row, which has its number in the data; see `read`."""
        for row in self.rows:
            report.rows += 1

            def warn(problem: Problem, detail: str, origin: str = row.origin) -> None:
                report.add(problem, origin, detail)

            try:
                if row.fault:
                    raise RowError("malformed", row.fault)
                example = self.example(row, warn)
            except RowError as error:
                if self.is_strict or not (self.columns.labeled or counts_all):
                    detail = f" ({error.detail})" if error.detail else ""
                    raise DataError(f"{row.origin}: {error.problem}{detail}") from error
                report.add(error.problem, row.origin, error.detail)
            else:
                report.examples += 1
                yield row._replace(number=report.rows), example
        self.after()

    def __iter__(self) -> Iterator[ExampleT]:
        """Yield only the examples."""
        for _, example in self.read(ReadingReport(self.source)):
            yield example


def read_objects(
    examples: Sequence[Any], name: str, *, example_class: type | None, labeled: bool
) -> Reader[Any]:
    """Return the reader of examples in memory. An object that cannot be used is an error.

    Objects of the classes in `examples.py` are read like the rows of a table whose columns are their fields.
    All others are examples of a task of your own, which are not changed.
    """
    from_row = getattr(example_class, "from_row", None)
    expected: Any = example_class or object
    columns = Columns(names={}, labeled=labeled)
    if from_row is not None and isinstance(examples[0], expected):
        names = {item.name: item.name for item in fields(examples[0])}
        absent = {name: None for name in _ALL_OR_NONE & names.keys() if getattr(examples[0], name) is None}
        columns = replace(columns, names=names | absent, id="id")

    def read(row: Row, warn: Warn) -> Any:
        example = row.values[""]
        if isinstance(example, Mapping | str) or not isinstance(example, expected):
            kind = f"a `{example_class.__name__}`" if example_class else "an example"
            raise DataError(f"{row.origin}: received {short(example)}. Expected {kind}, or only dicts.")
        if from_row is None:
            return example
        values = {name: getattr(example, name) for name in columns.names}
        for name, column in columns.names.items():
            if column is None and values[name] is not None and (labeled or name != "score"):
                raise DataError(f"{row.origin}: the example has a {name}, but the first example has none.")
        given = columns
        if values.get("negative", "") is None:
            given = replace(columns, names={**columns.names, "negative": None})
        corrected = from_row(Row(row.origin, values), given, warn)
        return replace(example, **{name: getattr(corrected, name) for name in values if name != "id"})

    def rows() -> Iterator[Row]:
        for number, example in enumerate(examples, start=1):
            yield Row(f"{name}, example {number}", {"": example})

    return Reader(Rows(name, rows), read, columns, is_strict=True)
