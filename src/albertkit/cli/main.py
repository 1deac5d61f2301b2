"""The `albertkit` command: its verbs, and one line for every error."""

import sys
import warnings
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from albertkit import __version__
from albertkit.cli import (
    benching,
    choosing,
    converting,
    exporting,
    finding,
    finetuning,
    groups,
    inspecting,
    inspecting_texts,
    pretraining,
    serving,
    text,
)
from albertkit.cli.flags import old_names
from albertkit.cli.mistakes import is_usage_error, usage_error
from albertkit.errors import AlbertKitError

app = typer.Typer(
    name="albertkit",
    help="ALBERT, from raw text to a served model. Without --model, verbs use the bundled model, offline.\n\n"
    'Example: albertkit fill-mask "She opened the [MASK] and went into the room."',
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": old_names(backend="engine"),
    },
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


app.command("fill-mask", rich_help_panel="Use a model on text")(text.fill_mask)
app.command("classify", rich_help_panel="Use a model on text")(choosing.classify)
app.command("tag", rich_help_panel="Use a model on text")(finding.tag)
app.command("answer", rich_help_panel="Use a model on text")(finding.answer)
app.command("choose", rich_help_panel="Use a model on text")(choosing.choose)
app.command("order", rich_help_panel="Use a model on text")(choosing.order)
app.command("embed", rich_help_panel="Use a model on text")(text.embed)
app.command("serve", rich_help_panel="Use a model on text")(serving.serve)
app.command("playground", rich_help_panel="Use a model on text")(serving.playground)
app.command("train-tokenizer", rich_help_panel="From raw text to a model")(pretraining.train_tokenizer)
app.command(
    "prepare",
    rich_help_panel="From raw text to a model",
    context_settings={"token_normalize_func": old_names(engine="runner")},
)(pretraining.prepare)
app.command("pretrain", rich_help_panel="From raw text to a model")(pretraining.pretrain)
app.command("finetune", rich_help_panel="Labelled data")(finetuning.finetune)
app.command("evaluate", rich_help_panel="Labelled data")(finetuning.evaluate)
app.command("predict", rich_help_panel="Labelled data")(finetuning.predict)
app.command("convert", rich_help_panel="Checkpoints")(converting.convert)
app.add_typer(exporting.app, name="export", rich_help_panel="Checkpoints")
app.command("bench", rich_help_panel="Checkpoints")(benching.bench)
inspect = typer.Typer(
    cls=groups.DefaultVerbGroup,
    help="Look into a model: its shape and cost, its attention, the words it prefers.\n\n"
    "albertkit inspect MODEL is short for albertkit inspect model MODEL.\n\n"
    "Example: albertkit inspect bundled",
    no_args_is_help=True,
    subcommand_metavar="MODEL | VERB ...",
)
inspect.command("model")(inspecting.inspect)
inspect.command("attention")(inspecting_texts.attention)
inspect.command("bias")(inspecting_texts.bias)
app.add_typer(inspect, name="inspect", rich_help_panel="Checkpoints")


def _in_words(error: Exception) -> str:
    """Return the message of an error; the system's own name the file first and leave out their number."""
    if type(error).__module__ == "builtins" and isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def run() -> None:
    """Run the command line; an expected error is one line on stderr and exit status 1, wrong use 2."""
    warnings.showwarning = _print_warning
    try:
        # The name also where it is called as a module. The library itself would print a box for wrong use.
        status = app(prog_name="albertkit", standalone_mode=False)
        sys.exit(status if isinstance(status, int) else 0)
    except KeyboardInterrupt:
        sys.exit(130)
    except (AlbertKitError, OSError) as error:
        _print_error(_in_words(error))
        sys.exit(1)
    except Exception as error:
        if not is_usage_error(error):
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()  # type: ignore[attr-defined]  # the help, which is asked for by giving no arguments
        else:
            _print_error(usage_error(error))
        sys.exit(2)


def _print_warning(message: Warning | str, *_: object) -> None:
    """Print a warning as a line for readers of text, not of code."""
    typer.echo(f"warning: {message}", err=True)


def _print_error(message: str) -> None:
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"[red]error:[/] {escape(message)}")
