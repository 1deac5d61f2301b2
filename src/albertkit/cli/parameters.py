"""Flags from functions and dataclasses: their names, types, defaults and help texts.

Nothing here imports the function, because `--help` and a Tab must not import NumPy or PyTorch: the signature
and the docstring are parsed from the source file.
"""

import ast
import dataclasses
import importlib.util
import inspect
import re
import types
import typing
from collections import abc
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter

from albertkit.files import model_folders
from albertkit.hub import BUNDLED, NAMES
from albertkit.options import BEST, ENGINES, OPTIONS
from albertkit.recipe import field_docs, scalar_fields

Complete = Callable[[str], Iterable[str]]
"""The typed part of a word -> the possible words."""

FINETUNING_TASKS = (
    "text-classification",
    "token-classification",
    "question-answering",
    "multiple-choice",
    "sentence-embedding",
)
SUITES = ("glue", "squad", "race", "all")
_NAMESPACE = {
    **{"Any": Any, "Literal": Literal, "Path": Path, "Sequence": Sequence, "Mapping": Mapping},
    **{"str": str, "int": int, "float": float, "bool": bool, "list": list},
    "Device": str | None,
    "BUNDLED": BUNDLED,
}
"""The names in annotations and defaults that the command line knows."""


@dataclasses.dataclass(frozen=True)
class Flag:
    """A parameter of a command."""

    name: str
    """The name of the argument that receives the value."""
    kind: Any
    """The type of a value: str, int, float, bool, Path, list[str] or a Literal."""
    help: str
    default: Any = None
    """None if the function decides, or if the flag is required."""
    is_required: bool = False
    is_positional: bool = False
    metavar: str | None = None
    group: str = "Options"
    """The heading of the flag in the help."""
    is_rare: bool = False
    """Whether only `--help-all` shows the flag."""
    can_negate: bool = False
    """Whether there is also `--no-NAME`."""
    splits: type | None = None
    """The type of the parts of a value, if commas separate them."""

    @property
    def option(self) -> str:
        """The flag as it is typed, or the name of a positional argument."""
        return (
            (self.metavar or self.name.upper()) if self.is_positional else f"--{self.name.replace('_', '-')}"
        )

    def parameter(self, *, show_all: bool) -> inspect.Parameter:
        """Return the parameter of a signature that cyclopts reads."""
        negative = None if self.can_negate else ()
        completer = COMPLETIONS.get(self.name)
        settings = Parameter(
            name=self.option,
            help=self.help if show_all else first_sentence(self.help),
            negative=negative,
            group=group("Arguments" if self.is_positional else self.group),
            show=show_all or not self.is_rare,
            show_default=False if self.default in (None, False, BEST) else str(self.default),
            metavar=self.metavar,
            allow_repeating=True,  # the last value counts
            completer=None if completer is None else (lambda context: [*completer(context.incomplete)]),
        )
        kinds = inspect.Parameter
        default = kinds.empty if self.is_required else None  # the function has the defaults
        kind = kinds.POSITIONAL_ONLY if self.is_positional else kinds.KEYWORD_ONLY
        hint = self.kind if self.is_required else self.kind | None
        return kinds(self.name, kind, default=default, annotation=Annotated[hint, settings])


@cache
def group(name: str) -> Group:
    """Return the heading of flags in the help."""
    first = ("Arguments", "Input", "Data", "Options", "Training", "Output")
    return Group(name, sort_key=first.index(name) if name in first else len(first))


def first_sentence(text: str) -> str:
    """Return the first sentence of a help text, with the default in parentheses after it."""
    match = re.match(r".+?\.(?=\s+[A-Z]|$)", text)
    return match[0] if match else text


def of_dataclass(
    kind: type,
    *,
    group: str = "Options",
    common: Iterable[str] | None = None,
    default: str | None = None,
    overrides: bool = False,
) -> list[Flag]:
    """Return the flags of the plain fields of a dataclass, and of the dataclasses in it.

    With `overrides`, the flags override a recipe, so that all switches have a `--no-NAME`.
    """
    docs, flags = field_docs(kind), []
    for table, field in scalar_fields(kind):
        if field.metadata.get("only") == "python":
            continue
        owner = typing.get_type_hints(kind)[table] if table else kind
        hint, splits = _type_of(typing.get_type_hints(owner)[field.name])
        rare = field.metadata.get("rare", False) if common is None else field.name not in common
        known = None if field.default is dataclasses.MISSING or default else field.default
        flags.append(
            Flag(
                name=field.name,
                kind=hint,
                help=_help(docs[field.name]) + (f" Default: {default}." if default else ""),
                default=",".join(known) if isinstance(known, tuple) else known,
                is_required=field.default is field.default_factory is dataclasses.MISSING,
                group=table.capitalize() or group,
                is_rare=rare,
                can_negate=hint is bool and (overrides or known is not False),
                splits=splits,
            )
        )
    return flags


@cache
def _definition(path: str) -> ast.FunctionDef:
    """Return the source of a function, "package.module:name", without importing its module."""
    module, _, name = path.partition(":")
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    return next(one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == name)


def of_function(
    path: str,
    *,
    positional: Sequence[str] = (),
    groups: Mapping[str, str] = {},
    kinds: Mapping[str, Any] = {},
    rare: Iterable[str] = (),
) -> list[Flag]:
    """Return the flags of the arguments of a function.

    Arguments with a type that cannot be typed, such as callbacks, are only for Python.
    """
    definition, flags = _definition(path), []
    arguments = definition.args
    plain, keyword = [*arguments.posonlyargs, *arguments.args], arguments.kwonlyargs
    defaults = [None] * (len(plain) - len(arguments.defaults)) + [*arguments.defaults, *arguments.kw_defaults]
    docs = argument_docs(ast.get_docstring(definition) or "")
    for argument, default in zip([*plain, *keyword], defaults, strict=True):
        name = argument.arg
        hint, splits = _type_of(kinds.get(name) or _evaluated(argument.annotation))
        if hint is None:
            continue
        known = None if default is None else _evaluated(default)
        known = None if known == () else known
        flags.append(
            Flag(
                name=name,
                kind=hint,
                help=_help(docs[name]),
                default=",".join(map(str, known)) if splits and known else known,
                is_required=default is None,
                is_positional=name in positional,
                group=groups.get(name, "Options"),
                is_rare=name in rare,
                can_negate=hint is bool and known is not False,
                splits=splits,
            )
        )
    return flags


def argument_docs(docstring: str) -> dict[str, str]:
    """Return the descriptions in the section "Args" of a docstring."""
    section = re.search(r"^Args:\n(.*?)(?=^\S|\Z)", docstring, flags=re.DOTALL | re.MULTILINE)
    entries = re.findall(r"^    (\w+): (.*?)(?=^    \S|\Z)", section[1] if section else "", re.DOTALL | re.M)
    return dict(entries)


def _evaluated(node: Any) -> Any:
    """Return the value of an annotation or a default; None for names that only the module knows.

    Of a union, the known types are used.
    """
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        sides = [side for side in (_evaluated(node.left), _evaluated(node.right)) if side is not None]
        return sides[0] if len(sides) == 1 else sides[0] | sides[1] if sides else None
    try:
        return eval(ast.unparse(node), {"__builtins__": {}}, _NAMESPACE)
    except (NameError, TypeError):
        return None


def _type_of(hint: Any) -> tuple[Any, type | None]:
    """Return the type of a flag's value, and the type of its parts if commas separate them.

    An option that accepts a bool is a switch, whatever else it accepts in Python. The type is None if the
    value cannot be typed.
    """
    is_union = typing.get_origin(hint) in (types.UnionType, typing.Union)
    members = [*typing.get_args(hint)] if is_union else [hint]
    members = [one for one in members if one not in (types.NoneType, None)]
    if bool in members:
        return bool, None
    for one in members:
        origin, arguments = typing.get_origin(one), typing.get_args(one)
        if origin in (Literal, list):
            return one, None
        if origin in (abc.Sequence, tuple) and arguments[0] in (str, int):
            return str, arguments[0]
    for kind in (float, int, str, Path):
        if kind in members:
            return kind, None
    return (str, None) if Any in members else (None, None)


def _help(doc: str) -> str:
    """Return a description as the help text of a flag: one line that begins with a capital letter."""
    text = " ".join(doc.split()).replace("`", "")
    return text[:1].upper() + text[1:]


# --- completion


def one_of(names: Iterable[str]) -> Complete:
    """Return a completion function for these names."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


def complete_models(incomplete: str) -> list[str]:
    """Offer the bundled models, the published models, and the model folders here, also after `NAME=`."""
    name, equals, value = incomplete.rpartition("=")
    parent, slash, begin = value.rpartition("/")
    try:
        folders = model_folders(Path(f"{parent}{slash}" or ".").expanduser())
    except OSError:  # the folder does not exist yet
        folders = []
    known = [*NAMES, *(f"{parent}{slash}{one}" for one in folders if one.startswith(begin))]
    return [f"{name}{equals}{one}" for one in known if one.startswith(value)]


def _complete_tasks(incomplete: str) -> list[str]:
    name, equals, value = incomplete.rpartition("=")
    return [f"{name}{equals}{one}" for one in (*OPTIONS, *FINETUNING_TASKS[-1:]) if one.startswith(value)]


COMPLETIONS: dict[str, Complete] = {
    "device": one_of(["cpu", "cuda", "mps"]),
    "engine": one_of(ENGINES),
    "init_from": complete_models,
    "model": complete_models,
    "runner": one_of(["local", "ray"]),
    "source": complete_models,
    "suite": one_of(SUITES),
    "task": _complete_tasks,
    "tokenizer": complete_models,
}
"""Name of a flag -> the completion of its value."""
