"""Damaged files for the tests of readers, and limits for the memory and time of reading.

`damaged` changes random bytes. `damaged_json` changes the structure of a JSON value: it removes and adds
keys, changes types, inserts huge numbers and strings, and nests values deeply. `count_refused` reads each
case. It fails the test if the reader raises an error that is not in `albertkit.errors`, or exceeds a limit of
Python's memory, the address space or CPU time.

    assert count_refused(lambda: read(path), damaged_json_files(path)) > CASES * 0.5

`ALBERTKIT_FUZZ_CASES` sets the number of cases for each reader.
"""

import copy
import json
import os
import random
import resource
import signal
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from albertkit.errors import AlbertKitError

CASES = int(os.environ.get("ALBERTKIT_FUZZ_CASES", "300"))
SLOW_CASES = int(os.environ.get("ALBERTKIT_FUZZ_CASES", "40"))
"""Number of cases for slow readers, such as readers that build a tokenizer."""
DATA_CASES = int(os.environ.get("ALBERTKIT_FUZZ_CASES", "60"))
"""Number of cases for each reader of data and state, because there are many of them."""
MEGABYTE = 1 << 20
DATA_GROWTH = 24 * MEGABYTE
"""Maximum growth of Python's memory for readers of data, some of which read blocks of a megabyte."""
LARGEST_GROWTH = 4 * MEGABYTE
"""Maximum growth of Python's memory in bytes while a file is read. The files have 1 to 30 kB."""
LARGEST_SPACE = 512 * MEGABYTE
"""Maximum growth of the address space in bytes during a test. Beyond it, Python raises MemoryError."""
LONGEST = 5.0
"""Maximum CPU time in seconds for a file. The slowest files take 0.02 seconds."""
WRONG = [
    *(None, True, False, -1, 0, 1, 0.5, 1 << 31, 1 << 70, -(1 << 70), 1e308, -1e308),
    *(float("nan"), float("inf"), "", "0", "gelu", "\0", "\ud800", "x" * 1000, "x" * 100_000),
    *([], [[]], [None], [1, "a"], [0] * 1000, {}, {"0": {}}, {"": None}),
]
EXTREMES = [
    *(b"\0", b"\xff", b"\x7f", b"\x80", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0" * 8, b"\xff" * 10)
]
_DEEP = {"[": "]", '{"a":': "}"}
_DEEP_MARK = "replaced by deep nesting"  # json.dumps cannot write nesting this deep


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Return a copy with one to four faults: truncated, flipped, overwritten, inserted, repeated, removed."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at, end = sorted((rng.randint(0, len(data)), rng.randint(0, len(data))))
        match rng.randrange(7):
            case 0:
                del data[at:]
            case 1 if data:
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            case 2:
                extreme = rng.choice(EXTREMES)
                data[at : at + len(extreme)] = extreme
            case 3:
                data[at:at] = rng.randbytes(rng.randint(1, 8))
            case 4:
                data[at:at] = data[at : min(end, at + 64)] * rng.randint(1, 3)
            case 5:
                del data[at : min(end, at + 64)]
            case _:
                data[at : at + 4] = rng.randbytes(4)
    return bytes(data)


def mutated(value: Any, rng: random.Random) -> Any:
    """Return a copy of a JSON value with one to three structural faults."""
    box = [copy.deepcopy(value)]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = list(_places(box))
        container, key = rng.choice(places)
        match rng.randrange(8):
            case 0 if container is not box:
                del container[key]
            case 1 if isinstance(container, dict):  # rename a key
                container[f"{key}{rng.choice(('', 's', '_'))}"] = container.pop(key)
            case 2 if isinstance(container[key], dict):
                container[key][rng.choice(("0", "-1", "x", "type", "a" * 1000))] = _wrong(rng)
            case 3 if isinstance(container[key], list):
                container[key].insert(rng.randint(0, len(container[key])), _wrong(rng))
            case 4:  # copy another value of the file
                other, name = rng.choice(places)
                container[key] = copy.deepcopy(other[name])
            case 5:
                container[key] = rng.choice(({"a": container[key]}, [container[key]], str(container[key])))
            case 6 if isinstance(container[key], int | float):
                container[key] = rng.choice((-container[key], container[key] + 1, container[key] * 10**9))
            case 7 if rng.random() < 0.2:
                container[key] = _DEEP_MARK
            case _:
                container[key] = _wrong(rng)
    return box[0]


def _wrong(rng: random.Random) -> Any:
    """Return a copy of a wrong value, because a later fault may change it."""
    return copy.deepcopy(rng.choice(WRONG))


def damaged_json(value: Any, rng: random.Random) -> bytes:
    """Return a damaged JSON file. Two of three cases change its structure, the others change bytes."""
    if rng.random() < 1 / 3:
        return damaged(json.dumps(value).encode(), rng)
    text = json.dumps(mutated(value, rng))
    start, end = rng.choice(list(_DEEP.items()))
    depth = rng.choice((300, 5_000, 50_000))
    return text.replace(json.dumps(_DEEP_MARK), start * depth + "0" + end * depth).encode()


def damaged_json_files(path: Path, *, seed: int = 0, cases: int = CASES) -> Iterator[bytes]:
    """Replace a JSON file by a damaged version for each case, and restore the file at the end."""
    value = json.loads(path.read_bytes())
    yield from _damaged(path, lambda rng: damaged_json(value, rng), seed, cases)


def damaged_files(path: Path, *, seed: int = 0, cases: int = CASES) -> Iterator[bytes]:
    """Replace a file by a version with damaged bytes for each case, and restore the file at the end."""
    original = path.read_bytes()
    yield from _damaged(path, lambda rng: damaged(original, rng), seed, cases)


def _damaged(path: Path, damage: Callable[[random.Random], bytes], seed: int, cases: int) -> Iterator[bytes]:
    rng = random.Random(seed)
    original = path.read_bytes()
    try:
        for _ in range(cases):
            content = damage(rng)
            path.write_bytes(content)
            yield content
    finally:
        path.write_bytes(original)


def rewritten(path: Path, contents: Iterator[bytes]) -> Iterator[bytes]:
    """Write each content to a new file at the same path. A file that a reader has mapped does not change."""
    for content in contents:
        path.unlink(missing_ok=True)
        path.write_bytes(content)
        yield content


def _places(box: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (container, key) for every value in a JSON value."""
    waiting = [box]
    while waiting:
        container = waiting.pop()
        for key, value in list(container.items() if isinstance(container, dict) else enumerate(container)):
            yield container, key
            if isinstance(value, dict | list):
                waiting.append(value)


def count_refused(
    read: Callable[[], Any], cases: Iterator[bytes | None], *, largest_growth: int = LARGEST_GROWTH
) -> int:
    """Return the number of cases that raised an error of `albertkit.errors`.

    Another error, or an exceeded limit, fails the test. `cases` prepares a case at each step and may yield
    its content, which the message of a failure contains.
    """

    def grown() -> int:
        """Read the case, and return the growth of memory in bytes. Count the case if it raised an error."""
        nonlocal refused
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST)
        try:
            read()
        except AlbertKitError:
            refused += 1
        except BaseException as error:
            error.add_note(f"case {number}: {content!r:.2000}")
            raise
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        return tracemalloc.get_traced_memory()[1] - before

    refused = 0
    with bounded_process():
        for number, content in enumerate(cases):
            counted = refused
            if grown() >= largest_growth:  # imports of modules may have caused the growth: read again
                refused = counted
                assert grown() < largest_growth, f"case {number}: {content!r:.2000}"
    return refused


@contextmanager
def little_memory(limit: int = 2 * MEGABYTE) -> Iterator[None]:
    """Fail if the block takes more of Python's memory than the limit."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


class TooSlowError(BaseException):
    """Reading took too long. It is not an Exception, because readers may catch exceptions."""


@contextmanager
def bounded_process() -> Iterator[None]:
    """Trace Python's memory, limit the address space, and raise an error when a timer expires."""

    def too_slow(*_: object) -> None:
        raise TooSlowError(f"reading one file took over {LONGEST} s of CPU time")

    handler = signal.signal(signal.SIGVTALRM, too_slow)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    if sys.platform == "linux":  # other systems ignore the limit or reserve address space in advance
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + LARGEST_SPACE, limits[1]))
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.signal(signal.SIGVTALRM, handler)
