"""Garbage collection for the server.

Failed requests leave reference cycles that keep their bodies in memory. Python's collector counts objects,
not bytes, and a call of a tokenizer resets its count. Therefore the server collects garbage itself after
every 20 MB of requests. It skips the models and modules, which stay in memory.
"""

import gc

from albertkit.allocator import return_memory

_EACH = 10_000  # approximate bytes that a request leaves, without its body
_TOKENIZED = 100  # bytes that an error keeps for each byte of a tokenized text
_MOST = 20_000_000


class GarbageCollector:
    """Counts the bytes of requests, and collects garbage. It does nothing before `settle` is called."""

    def __init__(self) -> None:
        self._settled = self._released = False
        self._bytes = 0

    def settle(self) -> None:
        """Return the memory that loading took, and exclude the existing objects from later collections."""
        if self._released:
            return  # the models were reloaded while the server stopped
        gc.disable()
        gc.unfreeze()
        gc.collect()
        return_memory()
        gc.freeze()
        self._settled = True

    def release(self) -> None:
        """Undo `settle` permanently: Python collects garbage itself again."""
        self._released = True
        if self._settled:
            self._settled = False
            gc.unfreeze()
            gc.enable()

    def note(self, body_bytes: int, *, failed: bool) -> None:
        """Count a finished request."""
        self._bytes += _EACH + body_bytes * (_TOKENIZED if failed else 1)
        if self._settled and self._bytes > _MOST:
            self._bytes = 0
            gc.collect()
