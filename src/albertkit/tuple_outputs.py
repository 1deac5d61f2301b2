"""Outputs that are tuples with named entries.

Keras passes such tuples through compiled functions with every backend, and so do `torch.jit.trace` and
`nn.DataParallel`. As documented, entries that are None are skipped: `outputs[0]`, `start, end =
model(inputs)`, `outputs.logits`, `outputs["logits"]`.
"""

from collections import namedtuple
from functools import cache
from typing import Any


class TupleOutput(tuple):
    """Base class of the outputs: a tuple of tensors, or of tuples of tensors, with access by name."""

    __slots__ = ()
    _fields: tuple[str, ...] = ()

    def keys(self) -> list[str]:
        """Return the names of the entries, in order."""
        return list(self._fields)

    def values(self) -> list[Any]:
        """Return the entries, in order."""
        return list(self)

    def items(self) -> list[tuple[str, Any]]:
        """Return (name, entry) for each entry, in order."""
        return list(zip(self._fields, self, strict=True))

    def get(self, name: str, default: Any = None) -> Any:
        """Return the entry with this name, or the default if it does not exist."""
        return getattr(self, name) if name in self._fields else default

    def to_tuple(self) -> tuple[Any, ...]:
        """Return the entries as a plain tuple."""
        return tuple(self)

    def __contains__(self, name: object) -> bool:
        return name in self._fields

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            if key not in self._fields:
                raise KeyError(f"{type(self).__name__} has no {key!r}. It has {', '.join(self._fields)}.")
            return getattr(self, key)
        return tuple.__getitem__(self, key)


def make_output(name: str, **entries: Any) -> Any:
    """Create an output with this class name. Entries that are None are only attributes."""
    there = {field: value for field, value in entries.items() if value is not None}
    absent = tuple(field for field in entries if field not in there)
    return _output_class(name, tuple(there), absent)(**there)


@cache  # two calls have the same structure only if their outputs have the same class
def _output_class(name: str, fields: tuple[str, ...], absent: tuple[str, ...]) -> type:
    attributes = {"__slots__": (), "_fields": fields, **dict.fromkeys(absent)}
    return type(name, (TupleOutput, namedtuple(name, fields)), attributes)
