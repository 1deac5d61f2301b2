"""Build settings from dataclass defaults, recipes and flags.

A dataclass defines names, types and defaults. A TOML file (a recipe) overrides the defaults, and flags
override both.
"""

import ast
import dataclasses
import inspect
import math
import textwrap
import tomllib
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from albertkit.errors import ConfigError, short, suggestion

Settings = TypeVar("Settings")
Function = TypeVar("Function", bound=Callable[..., Any])

SHARE = "0 to 1"
"""Unit of shares and probabilities."""


def number(
    default: float | None, unit: str, *, minimum: float | None = None, above: float | None = None
) -> Any:
    """Declare a setting that is a number, with the unit for the reference, and limits for `check_numbers`."""
    return dataclasses.field(default=default, metadata={"unit": unit, "minimum": minimum, "above": above})


def check_numbers(settings: Any) -> None:
    """Check the numbers that have limits. None is allowed, and infinity if it is the default."""
    for field in dataclasses.fields(settings):
        name, value = field.name, getattr(settings, field.name)
        minimum, above = field.metadata.get("minimum"), field.metadata.get("above")
        is_share = field.metadata.get("unit") == SHARE
        if value is None or not (is_share or minimum is not None or above is not None):
            continue
        if is_share and not 0 <= value <= 1:
            expected = "between 0 and 1"
        elif minimum is not None and not value >= minimum:
            expected = f"{minimum} or more"
        elif above is not None and not value > above:
            expected = f"more than {above}"
        elif value == math.inf != field.default:
            expected = "finite"
        else:
            continue
        raise ConfigError(f"{name} must be {expected}, not {value}")


def recipes() -> dict[str, Path]:
    return {path.stem: path for path in sorted((Path(__file__).parent / "recipes").rglob("*.toml"))}


def read_recipe(path: Path) -> dict[str, Any]:
    """Read a TOML file, or the recipe of the package with this name."""
    if not path.is_file():
        path = recipes().get(str(path), path)
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        names = ", ".join(recipes())
        raise ConfigError(
            f"there is no recipe {path}. Expected a TOML file with settings, or one of {names}."
        ) from None
    except (ValueError, OSError, RecursionError) as error:  # also for numbers with thousands of digits
        raise ConfigError(f"recipe {path} is not valid TOML: {error}") from None


def build(settings: type[Settings], values: dict[str, Any], *, where: str) -> Settings:
    """Build the dataclass `settings` from plain values. Fields that are dataclasses need tables."""
    fields = {field.name: field for field in dataclasses.fields(settings)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(settings)
    arguments: dict[str, Any] = {}
    for name, value in values.items():
        if name not in fields:
            raise ConfigError(f"{where}: unknown setting {name!r}. {suggestion(name, fields)}")
        if dataclasses.is_dataclass(hints[name]) and isinstance(value, dict):
            value = build(hints[name], value, where=f"{where} [{name}]")  # type: ignore[arg-type]
        arguments[name] = _checked(value, hints[name], f"{where}: {name}")
    required = (
        name
        for name, field in fields.items()
        if field.default is field.default_factory is dataclasses.MISSING and name not in arguments
    )
    if missing := ", ".join(required):
        raise ConfigError(f"{where}: missing {missing}. Set the value in a recipe file or with a flag.")
    return settings(**arguments)


def settings_from(
    settings: type[Settings],
    recipe: "str | Path | Mapping[str, Any] | Settings | None",
    given: dict[str, Any],
) -> Settings:
    """Build settings from a recipe (a file, its content, or complete settings) and values that override it.

    `given` has the values by field name, including fields of tables.
    """
    where = "settings"
    if isinstance(recipe, str | Path):
        where, table = str(recipe), read_recipe(Path(recipe))
    elif isinstance(recipe, settings):
        table = dict(vars(recipe))
    elif recipe is None or isinstance(recipe, Mapping):
        table = dict(recipe or {})
    else:
        raise ConfigError(f"recipe is {short(recipe)}. Expected a file, a mapping or {settings.__name__}.")
    return build(settings, merge(table, given, settings), where=where)


def merge(recipe: dict[str, Any], overrides: dict[str, Any], settings: type) -> dict[str, Any]:
    """Return the recipe with each override in the table whose dataclass has the field."""

    def plain(value: Any) -> Any:  # settings are checked when all values have been overridden
        is_table = dataclasses.is_dataclass(value) or isinstance(value, dict)
        return dict(value if isinstance(value, dict) else vars(value)) if is_table else value

    merged = {key: plain(value) for key, value in recipe.items()}
    owners = {field.name: owner for owner, field in scalar_fields(settings)}
    tables = {field.name for field in dataclasses.fields(settings)} - owners.keys()
    for name, value in overrides.items():
        if name not in owners and name not in tables:
            raise ConfigError(f"unknown setting {name!r}. {suggestion(name, [*owners, *tables])}")
        table = merged.setdefault(owners[name], {}) if owners.get(name) else merged
        if not isinstance(table, dict):
            continue  # `build` raises
        if name in tables and isinstance(value, Mapping) and isinstance(table.get(name), dict):
            table[name] = table[name] | dict(value)
        else:
            table[name] = plain(value)
    return merged


def takes_settings(*settings: type) -> Callable[[Function], Function]:
    """Add the fields of dataclasses to the signature and docstring of a function with `**settings`."""

    def decorate(function: Function) -> Function:
        fields = {field.name: field for each in settings for _, field in scalar_fields(each)}
        signature = inspect.signature(function)
        named = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        added = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default,
                annotation=field.type,
            )
            for name, field in fields.items()
            if name not in signature.parameters
        ]
        added.sort(key=lambda parameter: parameter.default is not inspect.Parameter.empty)
        function.__signature__ = signature.replace(parameters=[*named, *added])  # type: ignore[attr-defined]
        docs = {name: doc for each in settings for name, doc in field_docs(each).items()}
        lines = [f"    {name}: {' '.join(docs[name].split())}" for name in fields if name in docs]
        parts = [inspect.cleandoc(function.__doc__ or ""), "", "Settings:", *lines]
        function.__doc__ = "\n".join(parts)
        return function

    return decorate


def scalar_fields(settings: type) -> list[tuple[str, dataclasses.Field[Any]]]:
    """Return (table, field) for each field with a plain value; the table is "" for top-level fields.

    Inherited fields come after the dataclass's own fields.
    """
    result: list[tuple[str, dataclasses.Field[Any]]] = []
    hints = typing.get_type_hints(settings)
    declared = inspect.get_annotations(settings)
    for field in sorted(dataclasses.fields(settings), key=lambda field: field.name not in declared):
        if dataclasses.is_dataclass(hints[field.name]):
            result += [(field.name, inner) for _, inner in scalar_fields(hints[field.name])]  # type: ignore[arg-type]
        elif typing.get_origin(hints[field.name]) is not dict:
            result.append(("", field))
    return result


def scalar_values(settings: Any) -> dict[str, Any]:
    return {
        field.name: getattr(getattr(settings, table) if table else settings, field.name)
        for table, field in scalar_fields(type(settings))
    }


def field_docs(settings: type) -> dict[str, str]:
    """Return the docstrings of a dataclass's fields, including inherited fields and fields of tables."""
    docs: dict[str, str] = {}
    for base in settings.__bases__:
        if dataclasses.is_dataclass(base):
            docs |= field_docs(base)
    for hint in typing.get_type_hints(settings).values():
        if dataclasses.is_dataclass(hint):
            docs |= field_docs(hint)  # type: ignore[arg-type]
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(settings))).body
    assert isinstance(definition, ast.ClassDef)
    for statement, following in zip(definition.body, definition.body[1:], strict=False):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
        ):
            docs[statement.target.id] = inspect.cleandoc(str(following.value.value))
    return docs


def _checked(value: Any, hint: Any, where: str) -> Any:
    """Return `value` if it has the type `hint`. An integer is also accepted as a float."""
    is_union = typing.get_origin(hint) in (types.UnionType, typing.Union)
    for kind in typing.get_args(hint) if is_union else (hint,):
        if typing.get_origin(kind) is typing.Literal:
            is_valid = value in typing.get_args(kind)
        elif isinstance(value, bool):
            is_valid = kind is bool
        else:
            is_valid = isinstance(value, (int, float) if kind is float else typing.get_origin(kind) or kind)
        if is_valid:
            try:
                return float(value) if kind is float else value
            except OverflowError as error:
                raise ConfigError(f"{where} is too large: it has {len(str(value)):,} digits.") from error
    expected = hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")
    raise ConfigError(f"{where} is {value!r}. Expected {expected}.")
