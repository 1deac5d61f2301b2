"""Create command-line flags from the fields of a settings dataclass, so that both always agree."""

import dataclasses
import functools
import inspect
import re
import typing
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.markup import escape

from albertkit.cli.completing import COMPLETIONS
from albertkit.cli.options import TextOptions
from albertkit.recipe import field_docs, scalar_fields


def settings_flags(
    settings: type, *, parameter: str, panel: str | None = "run", default: str | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command one flag per plain field of `settings`, in place of its argument `parameter`.

    The command receives the flags that were set, by field name, as a dict. A flag that was not set is
    missing, so the recipe's value or the field's default applies.

    Args:
        settings: the dataclass.
        parameter: the argument of the command that receives them.
        panel: the title of the flags in the help, "Settings: PANEL"; flags of a table of a recipe get the
            table's name as title. None for no title, and for flags that cannot be negated.
        default: the default shown in the help, if the fields' defaults do not apply.
    """
    docs = field_docs(settings)
    flags: list[inspect.Parameter] = []
    for table, field in scalar_fields(settings):
        hint = _hint(settings, table, field.name)
        option = typer.Option(
            *([f"--{field.name}"] if panel is None and hint is bool else []),
            help=_help(docs[field.name], with_default=default is None),
            show_default=_shown(field.default, panel) if default is None else default,
            rich_help_panel=f"Settings: {table or panel}" if panel else None,
            autocompletion=COMPLETIONS.get(field.name),
        )
        annotation = Annotated[hint | None, option]
        kind = inspect.Parameter.KEYWORD_ONLY
        flags.append(inspect.Parameter(field.name, kind, default=None, annotation=annotation))

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def with_flags(**arguments: Any) -> None:
            values = {flag.name: arguments.pop(flag.name) for flag in flags}
            given = {name: value for name, value in values.items() if value is not None}
            command(**arguments, **{parameter: given})

        signature = inspect.signature(command)
        own = [argument for argument in signature.parameters.values() if argument.name != parameter]
        with_flags.__signature__ = signature.replace(parameters=[*own, *flags])  # type: ignore[attr-defined]
        return with_flags

    return decorate


def text_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the flags of `TextOptions` in place of its argument `options`."""

    @functools.wraps(command)
    def with_options(*, options: dict[str, Any], **arguments: Any) -> None:
        command(**arguments, options=TextOptions(**options))

    return settings_flags(TextOptions, parameter="options", panel=None)(with_options)


def _help(doc: str, *, with_default: bool) -> str:
    """Return the docstring of a field as the help of its flag, with or without "(default: ...)"."""
    text = " ".join(doc.split())
    return escape(
        text if with_default else re.sub(r" \(default: [^()]*\)", "", text)
    )  # "[model]" is not markup


def _shown(default: Any, panel: str | None) -> str | bool:
    """Return a default as the help shows it; if it is None or missing, the help text describes it."""
    if default is None or default is dataclasses.MISSING or (panel is None and default is False):
        return False
    return str(default)


def _hint(settings: type, table: str, name: str) -> Any:
    """Return the type of a flag: the type of the field without None."""
    owner = typing.get_type_hints(settings)[table] if table else settings
    hint = typing.get_type_hints(owner)[name]
    if typing.get_origin(hint) is not typing.Literal and type(None) in typing.get_args(hint):
        (hint,) = [kind for kind in typing.get_args(hint) if kind is not type(None)]
    return hint
