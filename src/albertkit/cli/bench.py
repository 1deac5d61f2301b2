"""The verb bench: measure a model's speed on this machine, and compare it with the possible maximum."""

import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from albertkit.cli.options import Device, Model
from albertkit.cli.printing import new_console, new_table, print_json, print_table
from albertkit.errors import ConfigError
from albertkit.hub import BUNDLED

if TYPE_CHECKING:
    from collections.abc import Callable

    from albertkit.bench.measuring import Report, Timing


def bench(
    model: Model = BUNDLED,
    texts: Annotated[
        Path | None,
        typer.Option(
            help="Also measure the texts of this file: one per line, .tsv (first column) or .jsonl.",
            show_default=False,
        ),
    ] = None,
    against: Annotated[
        str,
        typer.Option(
            help="Other libraries to measure, separated by commas: transformers, onnxruntime (the model of "
            "transformers, exported to ONNX)."
        ),
    ] = "",
    minutes: Annotated[
        float,
        typer.Option(
            help="Approximate maximum time in minutes. Measurements that would take longer are skipped.",
            min=0.001,
        ),
    ] = 1.0,
    rounds: Annotated[int, typer.Option(help="Maximum number of timed calls per measurement.", min=1)] = 20,
    lengths: Annotated[str, typer.Option(help="Text lengths in tokens.")] = "16,64,128,512",
    batches: Annotated[str, typer.Option(help="Batch sizes in texts.")] = "1,8,32",
    plot: Annotated[
        Path | None,
        typer.Option(help="Write a plot of the results to this .png, .svg or .pdf file.", show_default=False),
    ] = None,
    dtype: Annotated[
        str,
        typer.Option(
            help="Data type of the weights: float32, bfloat16 or float16. The engines plain and torch also "
            "compute in this data type."
        ),
    ] = "float32",
    processor_time: Annotated[
        bool,
        typer.Option(
            "--processor-time", help="Measure CPU time instead of elapsed time. Use it on a busy machine."
        ),
    ] = False,
    device: Device = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print a JSON line for the machine, then one per measurement.")
    ] = False,
) -> None:
    """Measure a model's speed by engine, text length and batch size.

    The report also gives each speed as a share of the speed of a large matrix product on this machine.

    Example: albertkit bench --against transformers --plot bench.png
    """
    from albertkit.files import check_picture
    from albertkit.inputs import read_texts

    if plot is not None:
        check_picture(plot)
    sizes = {"lengths": _numbers("lengths", lengths), "batches": _numbers("batches", batches)}
    others = [name.strip() for name in against.split(",") if name.strip()]
    lines = [] if texts is None else read_texts(texts)

    from rich.console import Console

    from albertkit.bench.measuring import run
    from albertkit.bench.sides import load, other_sides, own_sides
    from albertkit.bench.summary import draw, figures

    loaded, tokenizer = load(model, device=device, dtype=dtype)
    sides, left_out = own_sides(loaded, tokenizer)
    with tempfile.TemporaryDirectory() as folder, Console(stderr=True).status("measuring") as status:
        all_sides = [*sides, *other_sides(others, loaded, tokenizer, Path(folder))]
        report = run(
            loaded,
            tokenizer,
            all_sides,
            name=model,
            texts=lines,
            minutes=minutes,
            rounds=rounds,
            clock=time.process_time if processor_time else None,
            progress=lambda what: status.update(f"measuring {what}"),
            **sizes,
        )
    if not report.grid and not report.texts:
        needed = "; ".join(f"{name} {reason}" for name, reason in report.left_out.items())
        raise ConfigError(
            f"nothing could be measured in {minutes:g} minutes ({needed}). Increase --minutes, or choose "
            "other --lengths and --batches."
        )
    report.left_out = left_out | report.left_out
    report.about["computed_in"] = {side.name: side.dtype for side in sides}
    if plot is not None:
        draw(report, plot)
    if json:
        print_json(
            {
                "model": model,
                **report.about,
                "tokens_per_text": report.tokens_per_text,
                "differences": report.differences,
                "left_out": report.left_out,
            }
        )
        for figure in figures(report, others):
            print_json(asdict(figure))
    else:
        _print(report, plot)


def _numbers(name: str, given: str) -> list[int]:
    numbers = [one.strip() for one in given.split(",")]
    if not all(one.isdecimal() and int(one) > 0 for one in numbers):
        raise ConfigError(f"{name} is {given!r}. Expected whole numbers separated by commas, such as 16,128.")
    return sorted({int(one) for one in numbers})


def _print(report: "Report", plot: Path | None) -> None:
    console, about = new_console(), report.about
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    device = "" if about["device"] == "cpu" else f"{about['device']}, "
    console.print(f"{report.model} ({about['class']}, {about['dtype']})", style="bold")
    console.print(
        f"{device}{about['processor']}, {about['threads']} threads on {about['cores']} cores; {versions}",
    )
    library = about["ceiling_library"]
    console.print(f"largest matrix product: {report.ceiling / 1e9:,.1f} GFLOP/s ({library})")
    console.print()
    sides = list(dict.fromkeys(one.side for one in (*report.texts, *report.grid)))
    _print_table("texts per second", report, sides, lambda one: f"{one.texts_per_second:,.4g}")
    _print_table(
        "operations per second, as a share of the largest matrix product's (without padding)",
        report,
        sides,
        lambda one: f"{100 * report.share(one):.0f}%",
    )
    for name, difference in report.differences.items():
        console.print(f"{name}: scores differ from {sides[0]} by at most {difference:.1e}", style="dim")
    for name, reason in report.left_out.items():
        console.print(f"not measured: {name}: {reason}", style="dim", soft_wrap=True)
    if plot is not None:
        console.print(f"plot written to {plot}", style="dim")


def _print_table(title: str, report: "Report", sides: list[str], show: "Callable[[Timing], str]") -> None:
    """Print a row for each length and batch, a column for each side."""
    table = new_table()
    for name in ("batch", "tokens", *sides):
        dtype = report.about["computed_in"].get(name, report.about["dtype"])
        other_type = "" if dtype == report.about["dtype"] else f" ({dtype})"
        table.add_column(name + other_type, justify="right")
    rows: dict[tuple[int, int], dict[str, str]] = {}
    for one in (*report.texts, *sorted(report.grid, key=lambda one: (one.length, one.batch))):
        rows.setdefault((one.length, one.batch), {})[one.side] = show(one)
    for (length, batch), own in rows.items():
        tokens = str(length) if length else f"{report.tokens_per_text:.0f} (file)"
        table.add_row(str(batch), tokens, *(own[side] for side in sides))
    console = new_console()
    console.print(title, style="italic")
    print_table(console, table)
    console.print()
