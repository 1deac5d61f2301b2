"""The verbs inspect: a model's shape and cost, and its attention."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from albertkit.cli.completing import models_and_shapes
from albertkit.cli.options import Device, JsonReport, Model, Truncate
from albertkit.cli.printing import new_console, new_table, print_cut, print_json, print_table, print_title
from albertkit.hub import BUNDLED

if TYPE_CHECKING:
    from albertkit.inspection.attention import AttentionReport

JsonOnce = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


class DefaultVerbGroup(TyperGroup):
    """Passes arguments that do not name one of its verbs to the first verb.

    A file or folder with the name of a verb needs its folder as prefix: `./attention`.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the name of the first verb before other arguments, except help."""
        if args and args[0] not in {*self.commands, *ctx.help_option_names}:
            args = [next(iter(self.commands)), *args]
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Offer the verbs, and the completions of the first verb's first argument."""
        first, *_ = self.commands.values()
        argument, *_ = first.params
        return [*super().shell_complete(ctx, incomplete), *argument.shell_complete(ctx, incomplete)]


def inspect(
    model: Annotated[
        str,
        typer.Argument(
            help="Model folder or file in any supported format, Hugging Face Hub name, 'bundled', or a "
            "published size such as base-v2.",
            autocompletion=models_and_shapes,
        ),
    ],
    json: JsonReport = False,
) -> None:
    """Show a model's dimensions, parameters, memory, operations and tokenizer.

    Example: albertkit inspect bundled
    """
    from albertkit.inspection.model import inspect_model

    report = inspect_model(model)
    if json:
        print_json(report)
    else:
        _print_model(report)


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


def _print_model(report: dict[str, Any]) -> None:
    from albertkit.inspection.model import TOKENS

    console = new_console()
    console.print(f"{report['model']}  {report['class']}", style="bold")
    shape, memory, flops = report["shape"], report["memory"], report["flops"]
    facts = new_table(show_header=False)
    facts.add_row("hidden size", f"{shape['hidden_size']:,}, embeddings {shape['embedding_size']:,}")
    facts.add_row(
        "layers",
        f"{shape['num_hidden_layers'] * shape['inner_group_num']} executed, "
        f"{shape['num_hidden_groups'] * shape['inner_group_num']} stored, "
        f"{shape['num_attention_heads']} heads, feed-forward {shape['intermediate_size']:,}, "
        f"{shape['hidden_act']}",
    )
    facts.add_row("vocabulary", f"{shape['vocab_size']:,} pieces")
    facts.add_row("maximum length", f"{shape['max_position_embeddings']:,} tokens")
    if "weights" in report:
        weights = report["weights"]
        facts.add_row("stored as", f"{weights['dtype']}, {_megabytes(weights['bytes'])}")
    facts.add_row(
        "memory",
        f"weights {_megabytes(memory['weights_fp32'])} in fp32, {_megabytes(memory['weights_fp16'])} in fp16",
    )
    facts.add_row(
        f"  for {TOKENS} tokens",
        f"about {_megabytes(memory[f'inference_per_{TOKENS}_tokens'])} in inference, "
        f"{_megabytes(memory[f'training_per_{TOKENS}_tokens'])} in training (fp32)",
    )
    facts.add_row(
        "MFLOP per token",
        ", ".join(
            f"{value / 1e6:,.1f} at {name.removeprefix('per_token_at_')} tokens"
            for name, value in flops.items()
            if name.startswith("per_token_at_")
        )
        + (f"; {flops['per_masked_word'] / 1e6:,.1f} per masked word" if flops["per_masked_word"] else ""),
    )
    if report.get("tokenizer"):
        facts.add_row("tokenizer", _describe(report["tokenizer"]))
    print_table(console, facts)
    table = new_table("parameters")
    table.add_column("stored", justify="right")
    table.add_column("as executed", justify="right")
    for part, one in report["parameters"].items():
        style = "bold" if part == "total" else None
        table.add_row(part, f"{one['distinct']:,}", f"{one['executed']:,}", style=style)
    console.print()
    print_table(console, table)


def _describe(tokenizer: dict[str, Any]) -> str:
    lower = tokenizer["do_lower_case"]
    strips = tokenizer.get("strip_accents")  # for WordPiece; None follows lower case
    kept = tokenizer.get("keep_accents", not (lower if strips is None else strips))
    return (
        f"{tokenizer['class']}, {tokenizer['pieces']:,} pieces, {'lower case' if lower else 'cased'}, "
        f"{'accents kept' if kept else 'accents removed'}"
    )


def _megabytes(number: int) -> str:
    return f"{number / 1e6:,.1f} MB"


def _print_attention(report: "AttentionReport", html: Path | None) -> None:
    console = new_console()
    print_title(console, report.text if report.text_pair is None else (report.text, report.text_pair))
    if report.cut:
        print_cut(console, {"cut": report.cut})
    table = new_table(title="mean cosine of the vectors", title_justify="left", padding=(0, 1))
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
    print_table(console, table)
    if html is None:
        console.print("--html FILE shows the attention of every layer and head", style="dim")
    else:
        console.print(
            f"{len(report.tokens)} tokens, written to {html} ({html.stat().st_size / 1e3:,.0f} kB): open it "
            "in a browser",
        )


app = typer.Typer(
    cls=DefaultVerbGroup,
    help="Inspect a model: its size and cost, and its attention.\n\n"
    "`albertkit inspect MODEL` is short for `albertkit inspect model MODEL`.\n\n"
    "Example: albertkit inspect bundled",
    no_args_is_help=True,
    subcommand_metavar="MODEL | VERB ...",
)
app.command("model")(inspect)
app.command("attention")(attention)
