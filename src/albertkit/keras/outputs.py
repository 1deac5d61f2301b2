"""What call returns: the documented tuple, whose entries have names too.

Only what is there is counted, as documented: `outputs[0]`, `start, end = model(inputs)`, `outputs.logits`,
`outputs["logits"]`. Named tuples are what every backend carries through compiled functions, and
`predict` gives the same of NumPy arrays.
"""

from collections import namedtuple
from functools import cache
from typing import Any


class ModelOutput(tuple):
    """Base of all outputs: a tuple of tensors, or of tuples of tensors, that is read by name as well."""

    __slots__ = ()
    _fields: tuple[str, ...] = ()

    def keys(self) -> list[str]:
        """Names of the entries, in order."""
        return list(self._fields)

    def to_tuple(self) -> tuple[Any, ...]:
        """The entries as a plain tuple."""
        return tuple(self)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            if key not in self._fields:
                raise KeyError(f"{type(self).__name__} has no {key!r}; it holds {', '.join(self._fields)}")
            return getattr(self, key)
        return tuple.__getitem__(self, key)


def make_output(name: str, **entries: Any) -> Any:
    """An output of that class name with those of the entries that are not None."""
    there = {field: value for field, value in entries.items() if value is not None}
    return _output_class(name, tuple(there))(**there)


@cache  # structures of two calls are the same only where their classes are
def _output_class(name: str, fields: tuple[str, ...]) -> type:
    return type(name, (ModelOutput, namedtuple(name, fields)), {"__slots__": (), "_fields": fields})
