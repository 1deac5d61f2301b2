"""The group inspect: its verbs look into a model."""

import typer

from albertkit.cli import groups, inspecting, inspecting_texts

app = typer.Typer(
    cls=groups.DefaultVerbGroup,
    help="Look into a model: its shape and cost, its attention, the words it prefers.\n\n"
    "albertkit inspect MODEL is short for albertkit inspect model MODEL.\n\n"
    "Example: albertkit inspect bundled",
    no_args_is_help=True,
    subcommand_metavar="MODEL | VERB ...",
)
app.command("model")(inspecting.inspect)
app.command("attention")(inspecting_texts.attention)
app.command("bias")(inspecting_texts.bias)
