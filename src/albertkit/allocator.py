"""Settings of glibc's memory allocator; with any other C library, the functions do nothing."""

import ctypes
from contextlib import suppress

# The parameters of `mallopt` in glibc's malloc.h.
_TRIM_THRESHOLD = -1
_TOP_PAD = -2
_MMAP_MAX = -4
_ARENA_MAX = -8

_PAD = 64 << 20
_NEVER = (1 << 31) - 1
_ARENAS = 2


def keep_freed_memory() -> None:
    """Make the process keep memory that it frees, for its next large array.

    By default, large arrays get fresh pages each time, which the system first fills with zeros. A
    training step allocates the same arrays as the one before, and takes about a tenth less time this way.
    """
    _call("mallopt", _MMAP_MAX, 0)
    _call("mallopt", _TRIM_THRESHOLD, _NEVER)
    _call("mallopt", _TOP_PAD, _PAD)


def share_arenas() -> None:
    """Make threads that start later share their memory arenas.

    Otherwise each thread keeps the memory of its largest request.
    """
    _call("mallopt", _ARENA_MAX, _ARENAS)


def return_memory() -> None:
    """Return freed memory to the system."""
    _call("malloc_trim", 0)


def _call(function: str, *arguments: int) -> None:
    with suppress(AttributeError, OSError, TypeError):  # another library; Windows raises TypeError
        getattr(ctypes.CDLL(None), function)(*arguments)
