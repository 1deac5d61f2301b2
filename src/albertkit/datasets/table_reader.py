"""What the readers of tables share: rows by column -> examples, or what is wrong with a row."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from albertkit.datasets.reader import ExampleT, Reader, is_missing
from albertkit.datasets.report import ReadingReport
from albertkit.datasets.sources import Source, open_table
from albertkit.datasets.table import Row


class Columns(Protocol):
    """Which column is what."""

    @property
    def id(self) -> str | None:
        """What examples are called; without it they are called after file and line."""


ColumnsT = TypeVar("ColumnsT", bound=Columns)


class TableReader(Reader[ExampleT], Generic[ExampleT, ColumnsT]):
    """The examples of a table, one for each row that can be used.

    Args:
        source: file, folder, table or rows.
        columns: which is what; None for the usual ones.
        labelled: whether to read labels, and leave out what has none.
        header, delimiter: as in `open_table`.

    Raises:
        DataError: no such source, or no such column.
    """

    def __init__(
        self,
        source: Source,
        columns: ColumnsT | None = None,
        *,
        labelled: bool = True,
        header: bool = True,
        delimiter: str | None = None,
    ) -> None:
        self.table = open_table(source, header=header, delimiter=delimiter)
        super().__init__(self.table.name, labelled=labelled)
        self.columns = self.checked_columns(columns)

    @abstractmethod
    def checked_columns(self, columns: ColumnsT | None) -> ColumnsT:
        """Return the columns to read; raise DataError for one that the table does not have."""

    @abstractmethod
    def example(self, row: Row, report: ReadingReport) -> ExampleT | None:
        """Return the example of a row without fault, or None for one that is left out and counted."""

    def read(self, report: ReadingReport) -> Iterator[tuple[str, ExampleT]]:
        """Yield the examples."""
        for row in self.table.rows():
            report.rows += 1
            if row.fault:
                self.leave_out(report, "malformed", row.origin, row.fault)
                continue
            example = self.example(row, report)
            if example is not None:
                report.examples += 1
                yield row.origin, example

    def name_of(self, row: Row) -> str:
        """Return what the example of a row is called."""
        name = row.values.get(self.columns.id) if self.columns.id else None
        return row.origin if is_missing(name) else str(name)
