"""What every reader is: a source of examples that can be read again and again."""

import ast
import difflib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from numbers import Real
from pathlib import Path
from typing import Any, Generic, TypeVar

from albertkit.datasets.report import Problem, ReadingReport
from albertkit.errors import DataError
from albertkit.files import by_number

ExampleT = TypeVar("ExampleT")


class Reader(ABC, Generic[ExampleT]):
    """The examples of a source, streamed where its format allows.

    With `labelled`, rows that cannot be used are left out and counted in the report. Without, labels are not
    looked at, and every row is an example, in order, or an error: predictions must match their rows.

    Args:
        source: what an error message calls it.
        labelled: whether examples are to have labels.
    """

    def __init__(self, source: str, *, labelled: bool) -> None:
        self.source = source
        self.labelled = labelled

    @abstractmethod
    def read(self, report: ReadingReport) -> Iterator[tuple[str, ExampleT]]:
        """Yield each example after its origin ("train.csv, line 12"), and count in the report.

        Raises:
            DataError: the source is not what it should be, or (not `labelled`) a row cannot be read.
        """

    def label_names(self) -> tuple[str, ...] | None:
        """Return all labels in their order where the source itself names them."""
        return None

    def __iter__(self) -> Iterator[ExampleT]:
        """Yield the examples alone."""
        for _, example in self.read(ReadingReport(self.source)):
            yield example

    def leave_out(self, report: ReadingReport, problem: Problem, origin: str, detail: str = "") -> None:
        """Count a row that cannot be used. Without labels no row may be left out: raise DataError."""
        if not self.labelled and not report.counts_all:
            raise DataError(f"{origin}: {problem}" + (f" ({detail})" if detail else ""))
        report.add(problem, origin, detail)


def nested(cell: str) -> Any:
    """Return the list or the object that a cell of text holds, as JSON or as Python writes it.

    Raises:
        DataError: neither; NumPy's notation is none, since it has no commas.
    """
    for read in (json.loads, ast.literal_eval):
        try:
            found = read(cell)
        except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            continue
        if isinstance(found, (list, dict)) and (read is json.loads or not _ADJACENT.search(cell)):
            return found
    raise DataError(f"{cell!r:.60} is neither a JSON list nor a JSON object")


_ADJACENT = re.compile(r"""['"]\s+['"]""")  # Python would join two strings that have no comma between


def text_of(value: Any) -> str | None:
    """Return a cell as text: None for what is empty, and for what is no text or number."""
    if is_missing(value) or isinstance(value, bool):
        return None
    return str(value).strip() if isinstance(value, str | Real) else None


def is_missing(value: Any) -> bool:
    """Return whether a cell holds nothing: None, blank text, NaN, or NA or NaT of pandas."""
    if isinstance(value, str):
        return not value.strip()
    return (
        value is None
        or type(value).__name__ in ("NAType", "NaTType")
        or (isinstance(value, Real) and value != value)
    )


def existing_file(path: str | Path) -> Path:
    """Return the path of a file.

    Raises:
        DataError: there is no such file.
    """
    path = Path(path)
    if not path.is_file():
        names = sorted((one.name for one in path.parent.glob("*")), key=by_number)
        nearest = difflib.get_close_matches(path.name, names, n=3)
        beside = list(dict.fromkeys([*nearest, *names]))[:10]
        raise DataError(f"{path}: no such file" + (f"; beside it are {', '.join(beside)}" if beside else ""))
    return path
