"""Shared code of the benchmarks: options, measurements in turn, and tables of figures of two sides."""

import argparse
import json
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.table import Table

from albertkit.cores import processor, usable_cores
from albertkit.files import atomic_path

__all__ = [
    "Figure",
    "alternate",
    "command_line",
    "compare",
    "conditions",
    "replace_table",
    "resident",
    "show",
    "state",
    "write_page",
]


@dataclass(frozen=True)
class Figure:
    """A figure, and the figure that it is compared with."""

    name: str
    value: float
    against: float | None
    """The figure of the other side; None if there is no other side."""
    ratio: float | None
    """value / against."""
    target: str = "none"
    met: bool | None = None
    """Whether the ratio reaches the target; None without a target."""


def compare(name: str, value: float, against: float, *, at_most: float = 0, at_least: float = 0) -> Figure:
    """Return a figure and its ratio to another. The target is a maximum or a minimum of the ratio."""
    ratio = value / against
    target, met = "none", None
    if at_most or at_least:
        target = f"<= {at_most:.3g}x" if at_most else f">= {at_least:.3g}x"
        met = ratio <= at_most if at_most else ratio >= at_least
    return Figure(name, _rounded(value), _rounded(against), round(ratio, 3), target, met)


def state(name: str, value: float, against: float | None = None) -> Figure:
    """Return a figure without a target, compared with another one if there is one."""
    return Figure(name, _rounded(value), None, None) if against is None else compare(name, value, against)


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


PAGES = Path(__file__).parents[1] / "dev"
END = "<!-- end of table -->"


def command_line(description: str | None, *, runs: int | None = None) -> argparse.ArgumentParser:
    """Return a parser for the docstring of a benchmark, with --json and, if there is a default, --runs."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if runs is not None:
        parser.add_argument("--runs", type=int, default=runs, help="measured runs of each side")
    parser.add_argument("--json", action="store_true", help="print one line of JSON per figure")
    return parser


def alternate(runs: int, *measure: Callable[[], list[float]], warm_up: bool = True) -> list[list[float]]:
    """Run measurements in turn (A B A B ...), after a warm-up of each; return the median of each figure."""
    for measurement in measure if warm_up else ():
        measurement()
    results: list[list[list[float]]] = [[] for _ in measure]
    for _ in range(runs):
        for index, measurement in enumerate(measure):
            results[index].append(measurement())
    return [[statistics.median(column) for column in zip(*rows, strict=True)] for rows in results]


def resident(process: int | None = None) -> float:
    """Return the resident memory of a process in MB, by default of this process. Needs Linux."""
    status = Path(f"/proc/{process or 'self'}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def show(title: str, figures: list[Figure], *, as_json: bool, against: str = "transformers") -> None:
    """Print the figures; `against` is the name of the other side."""
    if as_json:
        for figure in figures:
            print(json.dumps(asdict(figure)))
        return
    table = Table("figure", "albertkit", against, "ratio", "target", "met", title=title)
    for figure in figures:
        table.add_row(
            figure.name,
            f"{figure.value:g}",
            "" if figure.against is None else f"{figure.against:g}",
            "" if figure.ratio is None else f"{figure.ratio:.2f}",
            figure.target,
            "" if figure.target == "none" else "yes" if figure.met else "NO",
        )
    Console().print(table)


def conditions() -> str:
    """Return the processor, its cores, the versions of the libraries, and the date."""
    libraries = ", ".join(f"{library} {version(library)}" for library in ("torch", "transformers"))
    return f"{processor()}, {usable_cores()} cores, {libraries}, {date.today()}"


def write_page(name: str, script: str, tables: list[tuple[str, str, list[Figure]]]) -> None:
    """Write tables of two sides into a page.

    Args:
        name: Name of the page in dev/.
        script: Path of the script, as for `replace_table`.
        tables: Title, name of the other side, and figures of each table.
    """
    lines = [f"{conditions()}."]
    for title, against, figures in tables:
        lines += ["", f"| {title} | albertkit | {against} | ratio | target |", "|---|---|---|---|---|"]
        for figure in figures:
            cells = ["" if number is None else f"{number:.4g}" for number in (figure.value, figure.against)]
            ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
            target = "" if figure.met is None else f"{figure.target}, {'met' if figure.met else '**missed**'}"
            lines.append(f"| {figure.name} | {cells[0]} | {cells[1]} | {ratio} | {target} |")
    replace_table(PAGES / name, script, lines)


def replace_table(page: Path, script: str, lines: list[str]) -> None:
    """Replace the lines of a page between `<!-- table: script -->` and `<!-- end of table -->`."""
    begin = f"<!-- table: {script} -->"
    before, marker, rest = page.read_text(encoding="utf-8").partition(begin)
    if not marker or END not in rest:
        raise SystemExit(f"{page} must contain the lines {begin!r} and {END!r}. Nothing was written.")
    after = rest.partition(END)[2]
    with atomic_path(page) as file:
        file.write_text("\n".join([before + begin, *lines, END + after]), encoding="utf-8")
