"""Tests of the settings of the memory allocator of glibc."""

import ctypes
import platform
import subprocess
import sys

import pytest

from albertkit.allocator import keep_freed_memory, return_memory, share_arenas

# The code calls malloc directly. Libraries align their arrays, which changes how memory is reused.
FAULTS = """
import ctypes, resource, sys
from albertkit.allocator import keep_freed_memory
library = ctypes.CDLL(None)
library.malloc.restype, library.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
if sys.argv[1] == "keep":
    keep_freed_memory()
size = 64 << 20
for step in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    pointer = library.malloc(size)
    ctypes.memset(pointer, 1, size)
    library.free(pointer)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these settings")
def test_freed_memory_is_reused_without_page_faults() -> None:
    def faults(how: str) -> int:
        command = [sys.executable, "-c", FAULTS, how]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert faults("keep") < 16
    assert faults("default") >= 32  # with huge pages; otherwise 16,384


@pytest.mark.parametrize("error", [AttributeError, OSError, TypeError])
def test_other_libraries_are_left_alone(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    """Python raises AttributeError on macOS, and TypeError on Windows."""

    def raise_error(name: None) -> None:
        raise error

    monkeypatch.setattr(ctypes, "CDLL", raise_error)
    for function in (keep_freed_memory, share_arenas, return_memory):
        function()
