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
_HEADINGS = {
    **dict.fromkeys(("train", "validation", "data", "input", "inputs", "calibrate"), "Data"),
    **dict.fromkeys(("texts", "index", "add", "query", "queries", "text_column", "id_column"), "Data"),
    **dict.fromkeys(("pair", "words", "context", "context_file", "question"), "Input"),
    **dict.fromkeys(("output", "html", "plot"), "Output"),
}
"""The headings of arguments of functions in the help."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False, repr=False)
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
    group: str = "Options"
    """The heading of the flag in the help."""
    is_rare: bool = False
    """Whether only `--help-all` shows the flag."""
    can_negate: bool = False
    """Whether there is also `--no-NAME`."""
    splits: type | None = None
    """The type of the parts of a value, if commas separate them."""
    variable: str | None = None
    """The environment variable that sets the flag."""

    @property
    def option(self) -> str:
        """The flag as it is typed, or the name of a positional argument."""
        return self.name.upper() if self.is_positional else f"--{self.name.replace('_', '-')}"

    def parameter(self, *, show_all: bool) -> inspect.Parameter:
        """Return the parameter of a signature that cyclopts reads."""
        completer = COMPLETIONS.get(self.name)
        settings = Parameter(
            name=self.option,
            help=self.help if show_all else first_sentence(self.help),
            negative=None if self.can_negate else (),
            group=group("Arguments" if self.is_positional else self.group),
            show=show_all or not self.is_rare,
            show_default=False if self.default in (None, False, BEST) else str(self.default),
            env_var=self.variable,
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
    match = re.match(r".+?\.(?=\s+[A-Z]|$)", text)
    return match[0] if match else text


def of_dataclass(
    kind: type, heading: str, *, common: Iterable[str] | None = None, default: str | None = None
) -> list[Flag]:
    """Return the flags of the plain fields of a dataclass, and of the dataclasses in it.

    Args:
        kind: the dataclass.
        heading: the heading of its flags in the help. Settings override a recipe, so all of their switches
            have a `--no-NAME`.
        common: the fields that `--help` shows; None for those that are not declared as rare.
        default: the default of all fields in words, if it is not that of the dataclass.
    """
    docs, flags = field_docs(kind), []
    for table, field in scalar_fields(kind):
        if field.metadata.get("only") == "python":
            continue
        owner = typing.get_type_hints(kind)[table] if table else kind
        known = None if default or field.default_factory is not dataclasses.MISSING else field.default
        flag = _flag(
            field.name,
            typing.get_type_hints(owner)[field.name],
            docs[field.name] + (f" Default: {default}." if default else ""),
            known,
            overrides=heading in ("Training", "Settings"),
            group=table.capitalize() or heading,
            is_rare=field.metadata.get("rare", False) if common is None else field.name not in common,
        )
        flags += [flag] if flag else []
    return flags


def of_function(
    path: str,
    *,
    positional: Sequence[str] = (),
    kinds: Mapping[str, Any] = {},
    rare: Sequence[str] = (),
) -> list[Flag]:
    """Return the flags of the arguments of a function, "package.module:name".

    Arguments without a description, or with a type that cannot be typed, such as callbacks, are only for
    Python. So is what follows "In Python" in a description.
    """
    definition, flags = _definition(path), []
    arguments = definition.args
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + [*arguments.defaults, *arguments.kw_defaults]
    docs = argument_docs(ast.get_docstring(definition) or "")
    for argument, default in zip([*plain, *arguments.kwonlyargs], defaults, strict=True):
        name = argument.arg
        if name not in docs:
            continue
        flag = _flag(
            name,
            kinds.get(name) or _evaluated(argument.annotation),
            docs[name],
            dataclasses.MISSING if default is None else _evaluated(default),
            is_positional=name in positional,
            group=_HEADINGS.get(name, "Options"),
            is_rare=name in rare,
        )
        flags += [flag] if flag else []
    return flags


def _flag(
    name: str, hint: Any, doc: str, default: Any, *, overrides: bool = False, **options: Any
) -> Flag | None:
    """Return a flag, or None if its value cannot be typed.

    With `overrides`, it overrides a recipe, so that a switch always has a `--no-NAME`.
    """
    kind, splits = _type_of(hint)
    if kind is None:
        return None
    if kind is Path and COMPLETIONS.get(name) is complete_models:
        kind = str  # it can be a name on the hub
    is_required = default is dataclasses.MISSING
    default = None if is_required else default
    help = " ".join(doc.split()).replace("`", "").partition(" In Python")[0]
    return Flag(
        name=name,
        kind=kind,
        help=help[:1].upper() + help[1:],
        default=(",".join(map(str, default)) or None) if isinstance(default, tuple) else default,
        is_required=is_required,
        can_negate=kind is bool and (overrides or default is not False),
        splits=splits,
        **options,
    )


@cache
def _definition(path: str) -> ast.FunctionDef:
    module, _, name = path.partition(":")
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    return next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)


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
    """Return the type of a flag's value, None if it cannot be typed; and the type of parts between commas.

    The parts are a dict for a flag that is a number, or NAME=NUMBER several times. An option that accepts a
    bool is a switch, whatever else it accepts in Python.
    """
    is_union = typing.get_origin(hint) in (types.UnionType, typing.Union)
    members = [*typing.get_args(hint)] if is_union else [hint]
    if bool in members:  # a switch; with `str | bool`, it may have a value, such as "no"
        return (str | bool if Sequence[str] in members else bool), None
    if Path in members:
        return Path, None
    for member in members:
        origin, arguments = typing.get_origin(member), typing.get_args(member)
        if origin is abc.Mapping and arguments == (str, float):
            return list[str], dict
        if origin in (Literal, list):
            return member, None
        if origin in (abc.Sequence, tuple) and arguments[0] in (str, int):
            return str, arguments[0]
    for kind in (float, int, str):
        if kind in members:
            return kind, None
    return (str, None) if Any in members else (None, None)


# --- completion


def _one_of(names: Iterable[str]) -> Complete:
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


def complete_models(incomplete: str) -> list[str]:
    """Offer the bundled models, the published models, and the model folders here, also after `NAME=`."""
    name, equals, value = incomplete.rpartition("=")
    parent, slash, begin = value.rpartition("/")
    try:
        folders = model_folders(Path(f"{parent}{slash}" or ".").expanduser())
    except OSError:  # the folder does not exist yet
        folders = []
    known = [*NAMES, *(f"{parent}{slash}{folder}" for folder in folders if folder.startswith(begin))]
    return [f"{name}{equals}{model}" for model in known if model.startswith(value)]


def _complete_tasks(incomplete: str) -> list[str]:
    name, equals, value = incomplete.rpartition("=")
    tasks = (*OPTIONS, *FINETUNING_TASKS[-1:])
    return [f"{name}{equals}{task}" for task in tasks if task.startswith(value)]


COMPLETIONS: dict[str, Complete] = {
    **dict.fromkeys(("init_from", "model", "source", "tokenizer"), complete_models),
    "device": _one_of(["cpu", "cuda", "mps"]),
    "engine": _one_of(ENGINES),
    "runner": _one_of(["local", "ray"]),
    "suite": _one_of(SUITES),
    "task": _complete_tasks,
}
"""Name of a flag -> the completion of its value."""
