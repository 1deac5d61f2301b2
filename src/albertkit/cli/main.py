"""The `albertkit` command: its subcommands, and errors as one line."""

import codecs
import inspect
import io
import logging
import sys
import warnings
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from albertkit import __version__
from albertkit.errors import AlbertKitError, ConfigError, TooLongError, nearest
from albertkit.logs import lines_shown

if TYPE_CHECKING:
    from albertkit.cli.verbs import Command

logger = logging.getLogger("albertkit")


def make_app(verbs: Iterable[str] | None = None, *, show_all: bool = False) -> Any:
    """Return the command line with the flags of some subcommands, and only the help of the others.

    Args:
        verbs: the subcommands with flags; None for all.
        show_all: whether the help shows the flags that are rarely used.
    """
    from cyclopts import App, Group

    from albertkit.cli.parameters import group
    from albertkit.cli.verbs import COMMANDS

    panels = dict.fromkeys(command.panel for command in COMMANDS.values())
    groups = {panel: Group(panel, sort_key=number) for number, panel in enumerate(panels)}
    common: dict[str, Any] = {"help_format": "plaintext", "help_flags": ["--help", "-h"]}
    root = App(
        name="albertkit",
        help="Pretrain, fine-tune, run and serve ALBERT models. Without --model, commands use a bundled "
        'model, which needs no download.\n\nExample: albertkit fill-mask "She opened the [MASK] and went '
        'into the room."',
        version=__version__,
        version_flags=["--version"],
        **common,
    )
    apps = {"": root}
    wanted = {*(COMMANDS if verbs is None else verbs)}
    for name, command in COMMANDS.items():
        parent, _, last = name.rpartition(" ")
        is_short = name not in wanted  # then only the root's help shows it
        help = command.help.partition(". ")[0].removesuffix(".") + "."
        if not is_short:
            rest = "\n\n--help-all shows further options and details."
            rest = "" if command.function is None or show_all else rest
            help = f"{command.help}\n\nExample: albertkit {command.example}{rest}"
        app = App(
            name=last,
            help=help,
            group="Commands" if parent else groups[command.panel],
            sort_key=len(apps),
            group_arguments=group("Arguments"),
            version_flags=[],
            **common,
        )
        app["--help"].show = False
        if not is_short and command.function is not None:
            app.default(_function_of(command, show_all=show_all))
        apps[parent].command(app)
        apps[name] = app
    return root


def _function_of(command: "Command", *, show_all: bool) -> Any:
    """Return the function that runs a command, with the signature that cyclopts reads."""
    flags = sorted(command.flags(), key=lambda flag: not flag.is_positional)
    signature = inspect.Signature([flag.parameter(show_all=show_all) for flag in flags])
    splits = {flag.name: flag.splits for flag in flags if flag.splits}

    def call(*args: Any, **kwargs: Any) -> None:
        given = signature.bind(*args, **kwargs).arguments
        given = {name: value for name, value in given.items() if value is not None}
        command.run(given | {name: _split(name, given[name], splits[name]) for name in splits.keys() & given})

    call.__signature__ = signature  # type: ignore[attr-defined]
    return call


def _split(name: str, value: Any, kind: type) -> Any:
    """Return the parts of a value between commas, or the numbers by name of values NAME=NUMBER."""
    flag = f"--{name.replace('_', '-')}"
    if kind is dict:
        return _numbers(flag, value)
    try:
        return [kind(part.strip()) for part in value.split(",") if part.strip()]
    except ValueError as error:
        raise ConfigError(f"{flag} is {value!r}. Expected whole numbers separated by commas.") from error


def _numbers(flag: str, values: list[str]) -> Any:
    """Return a dict for values NAME=NUMBER; otherwise the last value, as a number if it is one."""
    has_names = any("=" in value for value in values)
    with suppress(ValueError):
        if not has_names:
            return float(values[-1])
        parts = [value.rpartition("=") for value in values]
        if all(equals for _, equals, _ in parts):
            return {name: float(number) for name, _, number in parts}
    if not has_names:
        return values[-1]
    raise ConfigError(
        f"{flag} is {', '.join(values)}. Expected NAME=NUMBER for each label, or only a number."
    )


def run() -> None:
    """Run the command line. Expected errors are one line on stderr with exit status 1, wrong usage 2."""
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        print(__version__)
        sys.exit(0)
    warnings.showwarning = lambda message, *_, **__: logger.warning("%s", message)
    _set_encoding()
    show_all = "--help-all" in arguments
    arguments = ["--help" if argument == "--help-all" else argument for argument in arguments]
    for index in range(len(arguments) - 1, 0, -1):  # cyclopts takes a hyphen alone for an option
        if arguments[index] == "-" and arguments[index - 1].startswith("--"):
            arguments[index - 1 : index + 1] = [f"{arguments[index - 1]}=-"]
    verb, arguments = _find_verb(arguments)
    try:
        with lines_shown(always=True):
            _run(verb, arguments, show_all=show_all)
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(130)
    except (AlbertKitError, OSError) as error:
        _print_error(_in_words(error))
        sys.exit(1)


def _find_verb(arguments: list[str]) -> tuple[str, list[str]]:
    """Return the subcommand that arguments name, or "", and the arguments with `model` after `inspect`."""
    from albertkit.cli.verbs import COMMANDS

    first, second = (*arguments, "", "")[:2]
    is_known = f"inspect {second}" in {*COMMANDS, "inspect --help", "inspect -h", "inspect "}
    if first == "inspect" and not is_known:
        arguments, second = [first, "model", *arguments[1:]], "model"
    verb = f"{first} {second}" if f"{first} {second}" in COMMANDS else first
    return (verb if verb in COMMANDS else ""), arguments


def _run(verb: str, arguments: list[str], *, show_all: bool) -> None:
    from cyclopts.exceptions import CycloptsError

    from albertkit.cli.verbs import COMMANDS

    if arguments[:1] in (["--show-completion"], ["--install-completion"], ["__complete"]):
        app = make_app(show_all=True)
        shell: Any = arguments[1] if len(arguments) > 1 else None
        if arguments[0] == "--show-completion":
            print(app.generate_completion(shell=shell))
        elif arguments[0] == "--install-completion":
            print(f"completion installed in {app.install_completion(shell=shell)}")
        else:
            app(arguments)
        return
    app = make_app([verb], show_all=show_all)
    if not arguments or (len(arguments) == 1 and verb and COMMANDS[verb].function is None):
        app.help_print(arguments)
        sys.exit(2 if arguments else 0)
    try:
        app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        _print_error(_usage_error(error, verb, COMMANDS.get(verb)))
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


def _print_error(message: str) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)
    console.print(f"[red]error:[/] {escape(message)}")


def _in_words(error: Exception) -> str:
    """Return the message of an error with the flag that helps; for errors of files, the file first."""
    if isinstance(error, TooLongError):
        return f"{error.reason} Split it into shorter texts, or pass --truncation."
    if type(error).__module__ == "builtins" and isinstance(error, OSError) and error.strerror:
        message = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        if isinstance(error, FileNotFoundError) and str(error.filename) == "-":
            message += ". Pass the name of a file: '-' does not mean standard input here."
        return message
    return str(error)


def _usage_error(error: Any, verb: str, command: "Command | None") -> str:
    """Return a usage error as one line: the mistake, the nearest flag, and how to get help."""
    token, argument = getattr(error, "token", None), getattr(error, "argument", None)
    if type(error).__name__ == "UnknownOptionError" and token is not None:
        message = f"Unknown option: {token.keyword or token.value}."
        flags = [] if command is None else command.flags()
        options = {flag.name: flag.option for flag in flags if not flag.is_positional}
        meant = nearest((token.keyword or token.value).lstrip("-").replace("-", "_"), options)
        message += f" Did you mean {options[meant]}?" if meant else ""
    elif type(error).__name__ == "MissingArgumentError" and argument and not error.keyword:
        message = f"{argument.name} is missing."
    else:
        message = " ".join(str(error).split())
    return f"{message} See albertkit {verb}".rstrip() + " --help"
