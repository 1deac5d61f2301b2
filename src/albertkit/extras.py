"""Libraries of the optional extras, imported when first used.

    pa = optional("pyarrow", extra="train")

A module that names one imports with the base dependencies alone; only using it needs the extra.
"""

import importlib
from typing import Any

from albertkit.errors import MissingExtraError


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
