"""Progress messages for people: log lines of the logger "albertkit", and a progress bar.

Modules log with `logging.getLogger(__name__)`. If the program has configured logging, its handlers get the
lines. Otherwise `lines_shown` prints them on stderr, as the command line does.
"""

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

logger = logging.getLogger("albertkit")


class LineHandler(logging.Handler):
    """Prints each record as one line on stderr, above a progress bar.

    Rich's own handler formats records as a table, but people search logs line by line.
    """

    @cached_property
    def console(self) -> "Console":
        """The console for the lines. It is created for the first line, because importing Rich takes time."""
        return _stderr()

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record. Warnings and errors begin with their level."""
        level = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        self.console.print(f"{level}{self.format(record)}", highlight=False, markup=False, soft_wrap=True)


@contextmanager
def lines_shown(*, always: bool = False) -> Iterator[None]:
    """Print the library's log lines on stderr within the block."""
    handler, level = LineHandler(), logger.level
    if always or not logger.hasHandlers():
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class ProgressBar:
    """A progress bar in a terminal or notebook, if the work takes more than two seconds.

    Elsewhere, it logs a line every ten seconds.
    """

    SECONDS, DELAY = 10.0, 2.0

    def __init__(self, *, lines: bool = True) -> None:
        self._lines = lines
        self._shown_at = self._began = time.monotonic()
        self._is_started = False
        self._bar: Any = None  # Rich's progress bar
        self._display: Any = None  # a notebook's output

    def __enter__(self) -> "ProgressBar":
        return self

    def _start(self) -> None:
        self._is_started = True
        consoles = (handler.console for handler in logger.handlers if isinstance(handler, LineHandler))
        console = next(consoles, None) or _stderr()
        if console.is_terminal:
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
            from rich.progress import TimeRemainingColumn as Remaining

            columns = (BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), Remaining())
            text = TextColumn("{task.description}")
            # Rich would move what a program prints to the console of the bar, also from a pipe.
            moves = sys.stdout is not None and sys.stdout.isatty()
            self._bar = Progress(text, *columns, console=console, transient=True, redirect_stdout=moves)
            self._bar.add_task("", total=1.0)
            self._bar.start()
        elif console.is_jupyter:
            from IPython.display import display  # pyright: ignore[reportMissingImports]

            # Rich's bar would need ipywidgets.
            self._display = display({"text/plain": ""}, raw=True, display_id=True)

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()
        if self._display:
            self._display.update({"text/plain": ""}, raw=True)

    def update_count(self, done: int, total: int | None, what: str) -> None:
        """Show the number of finished items; `total` is None if it is unknown."""
        self.update(f"{done:,} {what}" if total is None else f"{done:,} of {total:,} {what}", done, total)

    def update(self, text: str, done: float, total: float | None = 1.0) -> None:
        """Show the progress; `total` is None if it is unknown."""
        now = time.monotonic()
        share = done / total if total else float(total is not None)
        if now - self._began < self.DELAY or (share == 1 and not self._is_started):
            return
        if not self._is_started:
            self._start()
        interval = 0.1 if self._bar else 0.2 if self._display else self.SECONDS
        if now - self._shown_at < interval:
            return
        self._shown_at = now
        if self._bar:
            known = None if total is None else 1.0
            self._bar.update(self._bar.task_ids[0], description=text, completed=share, total=known)
        elif self._display:
            bar = ("#" * round(30 * share)).ljust(30, ".")
            self._display.update({"text/plain": f"{bar} {share:4.0%}  {text}"}, raw=True)
        elif self._lines and share < 1:
            logger.info("%s", text)


def _stderr() -> "Console":
    from rich.console import Console

    return Console(stderr=True, emoji=False)
