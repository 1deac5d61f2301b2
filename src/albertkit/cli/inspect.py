"""The verbs inspect: a model's shape and cost, its attention, and its word preferences for groups."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from albertkit.cli import inspect_texts
from albertkit.cli.completing import models_and_shapes
from albertkit.cli.options import JsonReport
from albertkit.cli.printing import new_console, print_json


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
        _print(report)


def _print(report: dict[str, Any]) -> None:
    from rich.table import Table

    from albertkit.inspection.model import LENGTHS, TOKENS

    console = new_console()
    console.print(f"{report['model']}  {report['class']}", style="bold", markup=False)
    shape, memory, flops = report["shape"], report["memory"], report["flops"]
    facts = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
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
        ", ".join(f"{flops[f'per_token_at_{length}'] / 1e6:,.1f} at {length} tokens" for length in LENGTHS)
        + (f"; {flops['per_masked_word'] / 1e6:,.1f} per masked word" if flops["per_masked_word"] else ""),
    )
    if report.get("tokenizer"):
        facts.add_row("tokenizer", _describe(report["tokenizer"]))
    console.print(facts)
    table = Table("parameters", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("stored", justify="right")
    table.add_column("as executed", justify="right")
    for part, one in report["parameters"].items():
        style = "bold" if part == "total" else None
        table.add_row(part, f"{one['distinct']:,}", f"{one['executed']:,}", style=style)
    console.print()
    console.print(table)


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


app = typer.Typer(
    cls=DefaultVerbGroup,
    help="Inspect a model: its size and cost, its attention, and its predictions for groups of people.\n\n"
    "`albertkit inspect MODEL` is short for `albertkit inspect model MODEL`.\n\n"
    "Example: albertkit inspect bundled",
    no_args_is_help=True,
    subcommand_metavar="MODEL | VERB ...",
)
app.command("model")(inspect)
app.command("attention")(inspect_texts.attention)
app.command("bias")(inspect_texts.bias)
