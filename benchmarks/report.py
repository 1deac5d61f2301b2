"""Side-by-side figures: a table for people, one JSON line per figure with --json."""

import json
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Figure:
    """One figure of ours beside another's, from the same run."""

    name: str
    value: float
    against: float
    ratio: float
    """value / against."""
    target: str
    met: bool


def compare(name: str, value: float, against: float, *, at_most: float = 0, at_least: float = 0) -> Figure:
    """Return a figure with its target: a ratio of at most or at least so much."""
    ratio = value / against
    target, met = (f"<= {at_most}x", ratio <= at_most) if at_most else (f">= {at_least}x", ratio >= at_least)
    return Figure(name, round(value, 4), round(against, 4), round(ratio, 3), target, met)


def state(name: str, value: float, against: float) -> Figure:
    """Return a figure that has no target."""
    return Figure(name, round(value, 4), round(against, 4), round(value / against, 3), "none", True)


def alternate(runs: int, *measure: Callable[[], list[float]], warm_up: bool = True) -> list[list[float]]:
    """Measure in turn, A B A B ..., after one warm-up of each; return the median of each one's figures."""
    for one in measure if warm_up else ():
        one()
    results: list[list[list[float]]] = [[] for _ in measure]
    for _ in range(runs):
        for index, one in enumerate(measure):
            results[index].append(one())
    return [[statistics.median(column) for column in zip(*rows, strict=True)] for rows in results]


def show(title: str, figures: list[Figure], *, as_json: bool, against: str = "transformers") -> None:
    """Print the figures; `against` names the other side."""
    if as_json:
        for figure in figures:
            print(json.dumps(asdict(figure)))
        return
    table = Table("figure", "albertkit", against, "ratio", "target", "met", title=title)
    for figure in figures:
        table.add_row(
            figure.name,
            f"{figure.value:g}",
            f"{figure.against:g}",
            f"{figure.ratio:.2f}",
            figure.target,
            "" if figure.target == "none" else "yes" if figure.met else "NO",
        )
    Console().print(table)
