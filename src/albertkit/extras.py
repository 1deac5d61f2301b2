"""Import the libraries of the optional extras when they are first used.

    pa = optional("pyarrow", extra="arrow")

A module that uses `optional` imports with the base dependencies alone. Only using the library needs the
extra. Without an extra, the library belongs to the base install but takes long to import.
"""

import importlib
import importlib.util
import os
from typing import Any, NoReturn

from albertkit.errors import MissingExtraError

# Without it, importing ONNX Runtime writes an identifier of the machine into the home folder and sends
# events to its authors. The library reads the variable when it is imported.
_ENVIRONMENT = {"onnxruntime": {"ORT_DISABLE_TELEMETRY": "1"}}


def version_of(library: str) -> str | None:
    """Return the version of a library by its import name, or None if it is not installed."""
    from importlib import metadata  # takes longer than all else here

    if importlib.util.find_spec(library) is None:
        return None
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        pass  # its distribution has another name, such as onnxruntime-gpu, or it is only on PYTHONPATH
    try:
        return getattr(importlib.import_module(library), "__version__", "unknown")
    except ImportError:
        return "unknown"


def require(module: str, *, extra: str | None) -> Any:
    """Import a library and return it.

    Args:
        module: its name, such as "torch".
        extra: the extra of albertkit that installs it; None for the base install.

    Raises:
        MissingExtraError: the library is not installed. The message has the command that installs it.
    """
    for variable, value in _ENVIRONMENT.get(module, {}).items():
        os.environ.setdefault(variable, value)
    try:
        return importlib.import_module(module)
    except ImportError as error:
        library = (error.name or module).partition(".")[0]  # a dependency may be the missing library
        requirement = "albertkit" if extra is None else f"'albertkit[{extra}]'"
        raise MissingExtraError(
            f"{library} is not installed, and this needs it: pip install {requirement}"
        ) from error


class optional:  # noqa: N801 - reads as the function it stands for
    """A stand-in for a module, which is imported when an attribute is first used."""

    def __init__(self, module: str, *, extra: str | None = None) -> None:
        self._module = module
        self._extra = extra

    def __getattr__(self, name: str) -> Any:
        return getattr(require(self._module, extra=self._extra), name)


class MissingName(type):
    """A placeholder class for a public name whose extra is not installed.

    You can import it, check its attributes with `hasattr`, and use it in annotations and `isinstance`; no
    object is an instance of it. Calling, loading or deriving from it raises MissingExtraError. Its other
    attributes raise AttributeError, with the same message.
    """

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> "MissingName":
        """Return the class; `namespace` has the `message` of the error. A subclass raises the error."""
        for base in bases:
            if isinstance(base, MissingName):
                raise MissingExtraError(base.message)
        return super().__new__(cls, name, bases, namespace)

    def __call__(cls, *_: Any, **__: Any) -> NoReturn:
        """Raise MissingExtraError instead of making an instance."""
        raise MissingExtraError(cls.message)

    from_pretrained = from_config = __call__

    def __getattr__(cls, name: str) -> NoReturn:
        raise AttributeError(f"no attribute {name!r}: {cls.message}")
