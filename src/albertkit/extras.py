"""Libraries of the optional extras, imported when first used.

    pa = optional("pyarrow", extra="train")

A module that names one imports with the base dependencies alone; only using it needs the extra.
"""

import importlib
import importlib.metadata
import importlib.util
from typing import Any

from albertkit.errors import MissingExtraError


def version_of(library: str) -> str | None:
    """Return the version of a library by the name that it is imported as, None where it is not installed."""
    if importlib.util.find_spec(library) is None:
        return None
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        pass  # its distribution has another name, as onnxruntime-gpu, or it is on PYTHONPATH alone
    try:
        return getattr(importlib.import_module(library), "__version__", "unknown")
    except ImportError:
        return "unknown"


class optional:  # noqa: N801 - reads as the function it stands for
    """Stands for a module until an attribute is asked for."""

    def __init__(self, module: str, *, extra: str) -> None:
        self._module = module
        self._extra = extra

    def __getattr__(self, name: str) -> Any:
        try:
            module = importlib.import_module(self._module)
        except ImportError as error:
            library = (error.name or self._module).partition(".")[0]  # what it needs may be what is missing
            raise MissingExtraError(
                f"{library} is not installed, and this needs it: pip install 'albertkit[{self._extra}]'"
            ) from error
        return getattr(module, name)
