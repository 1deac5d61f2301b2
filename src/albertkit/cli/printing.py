"""Print answers as text for people, and as JSON for programs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_UNLIMITED = 1 << 20  # larger than the width of any cell
_LONG_WORD = 20  # in a narrow terminal, longer words are split
_LONG_BAR = 30
_SHORT_BAR = 10  # bars are shorter only if a name would be split in a word


def print_json(value: dict[str, Any]) -> None:
    """Print a value as one line of JSON."""
    from albertkit.files import finite, json_text

    typer.echo(json_text(finite(value), ensure_ascii=False))


def print_result(result: Any, as_json: bool) -> None:
    """Print the result of a public function as lines, or as one line of JSON."""
    if as_json:
        print_json(result.to_json())
    else:
        typer.echo(str(result))


def print_metrics(report: dict[str, Any], as_json: bool) -> None:
    """Print the metrics of a report as lines, each with its baseline, or as one line of JSON."""
    metrics, baseline = report["metrics"], report["baseline"]
    if as_json:
        print_json(metrics)
        return
    width = max(map(len, metrics))
    for name, value in metrics.items():
        shown = f"{value:.4f}" if isinstance(value, float) else f"{value:,}"
        beside = f"  (baseline {baseline[name]:.4f})" if name in baseline else ""
        typer.echo(f"{name:<{width}}  {shown}{beside}")


def as_fields(given: Any) -> dict[str, Any]:
    """Return an input in the form for repeating it with its answer: by the names of its fields."""
    if isinstance(given, tuple):
        return dict(zip(("text", "text_pair"), given, strict=True))
    return dict(given) if isinstance(given, dict) else {"text": given}


def new_console() -> "Console":
    """Return the console, which prints texts as they are: without markup, colors of numbers, or emojis."""
    from rich.console import Console

    return Console(markup=False, highlight=False, emoji=False)


def new_table(*columns: str, padding: tuple[int, ...] = (0, 2, 0, 0), **options: Any) -> "Table":
    """Return a table without lines; `options` are those of Rich."""
    from rich.table import Table

    return Table(*columns, box=None, pad_edge=False, padding=cast(Any, padding), **options)


def print_title(console: "Console", given: Any) -> None:
    """Print an input above its answer."""
    for name, value in as_fields(given).items():
        if value and name != "choices":
            console.print(str(value), style="bold")


def print_table(console: "Console", table: "Table") -> None:
    """Print a table without cutting its cells.

    If the terminal is too narrow, columns wrap at words, except those with `no_wrap`. If that is not enough,
    the lines of the table are longer than the terminal. A column is cut only if it has a `max_width`.
    """
    from rich.measure import measure_renderables

    options = console.options.update_width(_UNLIMITED)
    for column in table.columns:
        needed = measure_renderables(console, options, [column.header, *column.cells])
        width = needed.maximum if column.no_wrap else min(needed.minimum, _LONG_WORD)
        column.min_width = min(width, column.max_width or width)
        if not column.no_wrap:
            column.overflow = "fold"
    _, right, _, left = table.padding
    needed_width = sum(column.min_width or 0 for column in table.columns)
    needed_width += (left + right) * (len(table.columns) - 1)
    if needed_width > console.width:
        table.width = needed_width
    console.print(table, crop=False)


def print_bars(console: "Console", shares: Sequence[tuple[str, float]]) -> None:
    """Print one line per name, with a bar whose length is its probability relative to the best.

    A single bar is relative to 100%. In a narrow terminal, the bars become shorter before the names wrap.
    """
    from rich.bar import Bar
    from rich.measure import measure_renderables

    names = [name for name, _ in shares]
    percents = [f"{100 * score:.3g}%" for _, score in shares]
    name_width = measure_renderables(console, console.options.update_width(_UNLIMITED), names)
    rest = console.width - max(map(len, percents)) - 4  # two spaces after each of two columns
    shortest = min(_SHORT_BAR, rest - min(name_width.minimum, _LONG_WORD))
    bar_width = min(_LONG_BAR, max(rest - name_width.maximum, shortest))
    table = new_table(show_header=False)
    table.add_column()
    table.add_column(justify="right", no_wrap=True)
    if bar_width > 0:
        table.add_column(no_wrap=True)
    best = max(score for _, score in shares) if len(shares) > 1 else 1.0
    for name, percent, (_, score) in zip(names, percents, shares, strict=True):
        bar = Bar(size=best, begin=0, end=score, width=bar_width, color="cyan")
        table.add_row(name, percent, *([bar] if bar_width > 0 else []))
    print_table(console, table)


def print_places(console: "Console", places: Sequence[tuple[str, str, dict[str, Any]]]) -> None:
    """Print one line per span: its label, its text, its probability, its characters."""
    if not places:
        console.print("nothing found", style="dim")
    else:
        table = new_table(show_header=False)
        for name, text, place in places:
            cells = [name, text] if text else [name]
            table.add_row(*cells, f"{100 * place['score']:.3g}%", f"{place['start']}:{place['end']}")
        print_table(console, table)
    console.print()


def print_cut(console: "Console", answer: dict[str, Any]) -> None:
    """Report the truncated tokens."""
    if "cut" in answer:
        console.print(f"truncated: the last {answer['cut']:,} tokens", style="dim")
