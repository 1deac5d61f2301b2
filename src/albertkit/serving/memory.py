"""Memory that requests leave behind: who collects it, and when.

Requests that fail leave cycles that hold their bodies. Python's collector counts objects, not bytes, and a
call of a tokenizer resets its count. So the server collects garbage itself, each time that requests have
brought a certain number of bytes, and skips the models and modules, which stay.
"""

import ctypes
import gc
from contextlib import suppress

_ARENA_MAX = -8  # M_ARENA_MAX of glibc's malloc.h
_ARENAS = 2
_EACH = 10_000  # bytes that a request leaves beside its body, about
_TOKENIZED = 100  # bytes for one of a text, in what an error of the tokenized text holds
_MOST = 20_000_000


def share_arenas() -> None:
    """Have the threads that start from now on share their memory, where the C library is glibc.

    Else each of them keeps what its largest request took.
    """
    with suppress(AttributeError, OSError, TypeError):  # another library
        ctypes.CDLL(None).mallopt(_ARENA_MAX, _ARENAS)


def return_memory() -> None:
    """Give the system back what loading took and freed, where the C library is glibc."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


class GarbageCollector:
    """Counts traffic; does nothing before `settle`."""

    def __init__(self) -> None:
        self._settled = self._released = False
        self._bytes = 0

    def settle(self) -> None:
        """Give back what loading took, and keep the collector from walking what is there: models, modules."""
        if self._released:
            return  # models that were loaded anew while the server ended
        gc.disable()
        gc.unfreeze()
        gc.collect()
        return_memory()
        gc.freeze()
        self._settled = True

    def release(self) -> None:
        """Undo `settle`, for good: let Python collect garbage itself again."""
        self._released = True
        if self._settled:
            self._settled = False
            gc.unfreeze()
            gc.enable()

    def note(self, body_bytes: int, *, failed: bool) -> None:
        """Note the end of a request."""
        self._bytes += _EACH + body_bytes * (_TOKENIZED if failed else 1)
        if self._settled and self._bytes > _MOST:
            self._bytes = 0
            gc.collect()
