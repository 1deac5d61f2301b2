"""The `albertkit` command: its verbs, and errors as one line."""

import codecs
import importlib
import io
import logging
import re
import sys
import warnings
from collections.abc import Iterable
from typing import Annotated, Any

import typer
from rich.markup import escape

from albertkit import __version__
from albertkit.errors import AlbertKitError, did_you_mean, nearest
from albertkit.logs import lines_shown

PANELS = {
    "Use a model on text": (
        *("fill-mask", "classify", "tag", "answer", "choose", "order", "embed"),
        *("serve", "playground"),
    ),
    "Train a model from raw text": ("train-tokenizer", "prepare", "pretrain"),
    "Fine-tune and evaluate on labeled data": ("finetune", "evaluate", "predict"),
    "Convert, export and inspect models": ("convert", "export", "bench", "inspect"),
}
"""Panel in the help -> its verbs. A file has a function with the name of its verb, or a group `app`."""
VERBS = {verb: panel for panel, verbs in PANELS.items() for verb in verbs}
_FILES = {"playground": "serve"}


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


def make_app(verbs: Iterable[str] = VERBS) -> typer.Typer:
    """Return the command line with some verbs, and import only their files."""
    app = typer.Typer(
        name="albertkit",
        help="Pretrain, fine-tune, run and serve ALBERT models. "
        "Without --model, commands use a bundled model, which needs no download.\n\n"
        'Example: albertkit fill-mask "She opened the [MASK] and went into the room."',
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for verb in verbs:
        name = verb.replace("-", "_")
        module = importlib.import_module(f"albertkit.cli.{_FILES.get(name, name)}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=verb, rich_help_panel=VERBS[verb])
        else:
            app.command(verb, rich_help_panel=VERBS[verb])(getattr(module, name))
    return app


def _needed(arguments: list[str]) -> Iterable[str]:
    """Return the verbs to import: only the one that a command line names, because imports take long."""
    first = arguments[0] if arguments else ""
    if first == "--version":
        return []
    return [first] if first in VERBS else VERBS


def _in_words(error: Exception) -> str:
    """Return the message of an error; for operating system errors, the file comes first, without a number."""
    if type(error).__module__ == "builtins" and isinstance(error, OSError) and error.strerror:
        message = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        if isinstance(error, FileNotFoundError) and str(error.filename) == "-":
            message += ". Pass the name of a file: '-' does not mean standard input here."
        return message
    return str(error)


def run() -> None:
    """Run the command line. Expected errors are one line on stderr with exit status 1, wrong usage 2."""
    warnings.showwarning = _print_warning
    _set_encoding()
    try:
        # The name also applies to `python -m`. The library itself would print wrong usage in a box.
        with lines_shown(always=True):
            status = make_app(_needed(sys.argv[1:]))(prog_name="albertkit", standalone_mode=False)
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


def _set_encoding() -> None:
    """Write files and pipes in UTF-8. In a terminal, replace characters that its encoding does not have."""
    for stream in (sys.stdout, sys.stderr):
        if not isinstance(stream, io.TextIOWrapper):  # none, or a stream in memory
            continue
        if stream.isatty():
            if stream.errors == "strict":
                stream.reconfigure(errors="replace")
        elif codecs.lookup(stream.encoding).name != "utf-8":
            stream.reconfigure(encoding="utf-8", errors=stream.errors)


def _print_warning(message: Warning | str, *_: object) -> None:
    logging.getLogger("albertkit").warning("%s", message)


def _print_error(message: str) -> None:
    from rich.console import Console

    console = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)
    console.print(f"[red]error:[/] {escape(message)}")


def is_usage_error(error: Exception) -> bool:
    """Return whether an error comes from the command-line library, whichever copy of Click it uses."""
    return hasattr(error, "format_message") and hasattr(error, "exit_code")


def usage_error(error: Any) -> str:
    """Return a usage error as one line: the mistake, the nearest name or the usage, and how to get help."""
    if type(error).__name__ == "NoSuchOption":
        meant = _nearest_option(error)
        message = error.message + (f" (did you mean {meant}?)" if meant else _usage(error.ctx))
    else:
        message = " ".join(error.format_message().split()).rstrip(".")
        if choice := re.search(r"'([^']*)' is not one of (.*)", message):
            message += did_you_mean(choice[1], re.findall(r"'([^']*)'", choice[2]))
    command = error.ctx.command_path if getattr(error, "ctx", None) else "albertkit"
    return f"{message}{'' if message.endswith('?') else '.'} See {command} --help"


def _usage(context: Any) -> str:
    """Return how to call a command that has required positional arguments, as the end of an error."""
    parameters = context.command.params if context else []
    needed = [one.name.upper() for one in parameters if one.required and one.param_type_name == "argument"]
    return f". Usage: {context.command_path} {' '.join(needed)} [OPTIONS]" if needed else ""


def _nearest_option(error: Any) -> str | None:
    """Return the option that a mistaken one probably means."""
    parameters = error.ctx.command.get_params(error.ctx) if error.ctx else []
    options = {
        option.lstrip("-").replace("-", "_"): option
        for parameter in parameters
        for option in (*parameter.opts, *parameter.secondary_opts)
        if option.startswith("--")
    }
    wanted = error.option_name.lstrip("-").replace("-", "_")
    initials = {"".join(word[:1] for word in name.split("_")): name for name in options if "_" in name}
    return options.get(nearest(wanted, options) or initials.get(wanted, ""))
