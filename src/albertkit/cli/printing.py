"""Print answers as text for people, and as JSON for programs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


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
        curve = {name: report[name] for name in ("early_exit_curve",) if name in report}
        print_json(metrics | curve)
        return
    width = max(map(len, metrics))
    for name, value in metrics.items():
        shown = f"{value:.4f}" if isinstance(value, float) else f"{value:,}"
        beside = f"  (baseline {baseline[name]:.4f})" if name in baseline else ""
        typer.echo(f"{name:<{width}}  {shown}{beside}")
    if points := report.get("early_exit_curve"):
        typer.echo(f"\npatience  {points[0]['metric_name']:>10}  mean layers   speedup")
        for one in points:
            patience = "all" if one["patience"] is None else one["patience"]
            faster = points[-1]["seconds"] / one["seconds"]
            typer.echo(f"{patience:>8}  {one['metric']:>10.4f}  {one['mean_depth']:>11.2f}  {faster:>8.2f}")


def as_fields(given: Any) -> dict[str, Any]:
    """Return an input in the form for repeating it with its answer: by the names of its fields."""
    if isinstance(given, tuple):
        return dict(zip(("text", "text_pair"), given, strict=True))
    return dict(given) if isinstance(given, dict) else {"text": given}


def new_console() -> "Console":
    """Return the console for tables, which neither colors numbers in texts nor replaces names of emojis."""
    from rich.console import Console

    return Console(highlight=False, emoji=False)


def new_table(*columns: str, padding: tuple[int, ...] = (0, 2, 0, 0), **options: Any) -> "Table":
    """Return a table without lines; `options` are those of Rich."""
    from rich.table import Table

    return Table(*columns, box=None, pad_edge=False, padding=cast(Any, padding), **options)


def print_title(console: "Console", given: Any) -> None:
    """Print an input above its answer."""
    for name, value in as_fields(given).items():
        if value and name != "choices":
            console.print(str(value), style="bold", markup=False)


def print_bars(console: "Console", shares: Sequence[tuple[str, float]]) -> None:
    """Print one line per name, with a bar whose length is its probability relative to the best."""
    from rich.bar import Bar
    from rich.text import Text

    table = new_table(show_header=False)
    table.add_column(overflow="fold")
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    best = max(score for _, score in shares)
    for name, score in shares:
        bar = Bar(size=best, begin=0, end=score, width=30, color="cyan")
        table.add_row(Text(name), f"{100 * score:.3g}%", bar)
    console.print(table)


def print_places(console: "Console", places: Sequence[tuple[str, str, dict[str, Any]]]) -> None:
    """Print one line per span: its label, its text, its probability, its characters."""
    from rich.text import Text

    table = new_table(show_header=False)
    for name, text, place in places:
        cells = [Text(name), *([Text(text)] if text else [])]
        table.add_row(*cells, f"{100 * place['score']:.3g}%", f"{place['start']}:{place['end']}")
    console.print(table if places else "nothing found", style=None if places else "dim")
    console.print()


def print_cut(console: "Console", answer: dict[str, Any]) -> None:
    """Report the truncated tokens."""
    if "cut" in answer:
        console.print(f"truncated: the last {answer['cut']:,} tokens", style="dim")
