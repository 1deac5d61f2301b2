"""Import libraries on first use, for optional extras and for libraries that take long to import.

    pa = optional("pyarrow", extra="arrow")

A module that uses `optional` can be imported with the base dependencies. Only using the library needs the
extra. `extra=None` means that the library belongs to the base install.
"""

import importlib
import importlib.util
import os
from typing import Any, NoReturn

from albertkit.errors import MissingExtraError

# Otherwise ONNX Runtime writes an identifier of the machine into the home folder and sends usage data. It
# reads the variable when it is imported.
_ENVIRONMENT = {"onnxruntime": {"ORT_DISABLE_TELEMETRY": "1"}}


def version_of(library: str) -> str | None:
    """Return the version of a library by its import name, or None if it is not installed."""
    from importlib import metadata  # takes longer to import than all else here

    if importlib.util.find_spec(library) is None:
        return None
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        pass  # the distribution has another name (onnxruntime-gpu), or the library is only on PYTHONPATH
    try:
        return getattr(importlib.import_module(library), "__version__", "unknown")
    except ImportError:
        return "unknown"


def require(module: str, *, extra: str | None) -> Any:
    """Import a library and return it."""
    for variable, value in _ENVIRONMENT.get(module, {}).items():
        os.environ.setdefault(variable, value)
    try:
        return importlib.import_module(module)
    except ImportError as error:
        library = (error.name or module).partition(".")[0]  # a dependency may be the missing library
        requirement = "albertkit" if extra is None else f"'albertkit[{extra}]'"
        advice = f"To install it: pip install {requirement}"
        raise MissingExtraError(f"{library} is not installed. {advice}") from error


class optional:  # noqa: N801 - used like a function
    """A stand-in for a module, which is imported when one of its attributes is first used."""

    def __init__(self, module: str, *, extra: str | None = None) -> None:
        self._module = module
        self._extra = extra

    def __getattr__(self, name: str) -> Any:
        return getattr(require(self._module, extra=self._extra), name)


class MissingName(type):
    """The placeholder class of a public name whose extra is not installed.

    You can import the placeholder, call `hasattr` on it, and use it in annotations and `isinstance` (no
    object is an instance of it). Calling it, loading with it or deriving from it raises MissingExtraError.
    Other attributes raise AttributeError with the same message.
    """

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> "MissingName":
        """Create a placeholder; `namespace` has the `message` of the error. Deriving from one raises it."""
        for base in bases:
            if isinstance(base, MissingName):
                raise MissingExtraError(base.message)
        return super().__new__(cls, name, bases, namespace)

    def __call__(cls, *_: Any, **__: Any) -> NoReturn:
        """Raise MissingExtraError instead of creating an instance."""
        raise MissingExtraError(cls.message)

    from_pretrained = from_config = __call__

    def __getattr__(cls, name: str) -> NoReturn:
        raise AttributeError(f"no attribute {name!r}: {cls.message}")
