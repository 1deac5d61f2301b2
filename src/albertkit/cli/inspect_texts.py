"""The verbs inspect attention and inspect bias: how a model processes texts."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from albertkit.cli.options import Device, Model, Truncate
from albertkit.cli.printing import new_console, print_cut, print_json, print_title
from albertkit.hub import BUNDLED

if TYPE_CHECKING:
    from albertkit.inspection.attention import AttentionReport
    from albertkit.inspection.bias import GroupComparison

JsonOnce = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def attention(
    text: Annotated[str, typer.Argument(help="Text to inspect.")],
    pair: Annotated[
        str | None, typer.Option(help="Second text, to inspect a pair of texts.", show_default=False)
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            help="Write a page with the attention of every layer and head to this HTML file.",
            show_default=False,
            dir_okay=False,
        ),
    ] = None,
    model: Model = BUNDLED,
    truncate: Truncate = False,
    device: Device = None,
    json: JsonOnce = False,
) -> None:
    """Show the attention of each token by layer and head, and how the hidden states change by layer.

    The command prints a table of the layers. For the attention itself, use --html or --json.

    Example: albertkit inspect attention "The captain opened the door." --html attention.html
    """
    from albertkit.inspection.inspect import inspect_attention

    report = inspect_attention(text, pair, model=model, html=html, truncate=truncate, device=device)
    if json:
        print_json(report.to_json())
    else:
        _print_attention(report, html)


def bias(
    template: Annotated[
        str, typer.Option(help="Text with one [MASK], and with [X] in place of the words of --groups.")
    ],
    groups: Annotated[str, typer.Option(help="Words that replace [X], separated by commas; at least two.")],
    top_k: Annotated[int, typer.Option(help="Number of predicted words for each group.")] = 5,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Write a plot of the comparison to this .png, .svg or .pdf file.", show_default=False
        ),
    ] = None,
    model: Model = BUNDLED,
    device: Device = None,
    json: JsonOnce = False,
) -> None:
    """Compare the words that a model predicts for several groups of people.

    Example: albertkit inspect bias --template "The [X] worked as a [MASK]." --groups man,woman
    """
    from albertkit.inspection.inspect import compare_groups

    words = [word.strip() for word in groups.split(",") if word.strip()]
    report = compare_groups(template, words, top_k=top_k, plot=plot, model=model, device=device)
    if json:
        print_json(report.to_json())
    else:
        _print_bias(report, plot)


def _print_attention(report: "AttentionReport", html: Path | None) -> None:
    from rich.table import Table

    console = new_console()
    print_title(console, report.text if report.text_pair is None else (report.text, report.text_pair))
    if report.cut:
        print_cut(console, {"cut": report.cut})
    table = Table(title="mean cosine of the vectors", title_justify="left", box=None, pad_edge=False)
    for name in ("layer", "weights", "with the previous layer", "with the last layer"):
        table.add_column(name, justify="right")
    table.add_row("0", "", "", f"{report.cosine_to_last[0].mean():.3f}", style="dim")
    for number, layer in enumerate(report.layers, start=1):
        table.add_row(
            str(number),
            str(layer.stored),
            f"{report.cosine_to_previous[number - 1].mean():.3f}",
            f"{report.cosine_to_last[number].mean():.3f}",
        )
    console.print(table)
    if html is None:
        console.print("--html FILE shows the attention of every layer and head", style="dim")
    else:
        console.print(
            f"{len(report.tokens)} tokens, written to {html} ({html.stat().st_size / 1e3:,.0f} kB): open it "
            "in a browser",
            markup=False,
        )


def _print_bias(report: "GroupComparison", plot: Path | None) -> None:
    from rich.table import Table
    from rich.text import Text

    console = new_console()
    print_title(console, report.template)
    names = {word.token: word.name for word in report.words}
    best = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for group in report.groups:
        best.add_column(Text(group), overflow="fold")
        best.add_column("", justify="right", no_wrap=True)
    for answers in zip(*report.predictions.values(), strict=True):
        cells = ((Text(names[one["token"]]), f"{100 * one['score']:.3g}%") for one in answers)
        best.add_row(*(cell for pair in cells for cell in pair))
    console.print(best)
    first, *others = report.groups
    table = Table("word", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for group in report.groups:
        table.add_column(Text(group), justify="right")
    for group in others:
        table.add_column(Text(f"log2 {group} : {first}"), justify="right")
    for word in report.words:
        shares = (f"{100 * score:.3g}%" for score in word.scores.values())
        table.add_row(Text(word.name), *shares, *(f"{ratio:+.2f}" for ratio in word.log2_ratios.values()))
    console.print()
    console.print(table)
    console.print("log2 of the ratio: +1 is twice as probable, -1 half", style="dim")
    if plot is not None:
        console.print(f"plot written to {plot}", markup=False)
