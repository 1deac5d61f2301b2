"""Damaged files for the tests of readers, and the bounds that reading one must keep.

`damaged` changes bytes at random. `damaged_json` changes the structure of a JSON value: keys removed and
added, types swapped, huge numbers and strings, deep nesting. `count_refused` reads each case and fails the
test unless the reader returns or raises one of `albertkit.errors`, within bounds of Python's memory, address
space and CPU time.

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
"""For readers that take long, such as those that build a tokenizer."""
MEGABYTE = 1 << 20
LARGEST_GROWTH = 4 * MEGABYTE
"""Maximum growth of Python's memory while one file is read; the files have 1 to 30 kB."""
LARGEST_SPACE = 512 * MEGABYTE
"""Maximum growth of the address space during a test. A MemoryError is none of our errors."""
LONGEST = 5.0
"""Maximum CPU time in seconds for one file; the slowest take 0.02."""
WRONG = [
    *(None, True, False, -1, 0, 1, 0.5, 1 << 31, 1 << 70, -(1 << 70), 1e308, -1e308),
    *(float("nan"), float("inf"), "", "0", "gelu", "\0", "\ud800", "x" * 1000, "x" * 100_000),
    *([], [[]], [None], [1, "a"], [0] * 1000, {}, {"0": {}}, {"": None}),
]
EXTREMES = [
    *(b"\0", b"\xff", b"\x7f", b"\x80", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0" * 8, b"\xff" * 10),
]
_DEEP = {"[": "]", '{"a":': "}"}
_DEEP_MARK = "replaced by deep nesting"  # json.dumps itself cannot write it


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Return a copy with a few faults of any kind: cut, flipped, overwritten, inserted, repeated, removed."""
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
            case 1 if isinstance(container, dict):  # a key renamed
                container[f"{key}{rng.choice(('', 's', '_'))}"] = container.pop(key)
            case 2 if isinstance(container[key], dict):
                container[key][rng.choice(("0", "-1", "x", "type", "a" * 1000))] = _wrong(rng)
            case 3 if isinstance(container[key], list):
                container[key].insert(rng.randint(0, len(container[key])), _wrong(rng))
            case 4:  # a value from elsewhere in the file
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
    """Return a copy of a wrong value: a later fault may change it."""
    return copy.deepcopy(rng.choice(WRONG))


def damaged_json(value: Any, rng: random.Random) -> bytes:
    """Return a JSON file's content with damage: two times in three to its structure, else to its bytes."""
    if rng.random() < 1 / 3:
        return damaged(json.dumps(value).encode(), rng)
    text = json.dumps(mutated(value, rng))
    start, end = rng.choice(list(_DEEP.items()))
    depth = rng.choice((300, 5_000, 50_000))
    return text.replace(json.dumps(_DEEP_MARK), start * depth + "0" + end * depth).encode()


def damaged_json_files(path: Path, *, seed: int = 0, cases: int = CASES) -> Iterator[bytes]:
    """Write damaged versions of a JSON file in its place, one for each case; restore the file at the end."""
    rng = random.Random(seed)
    whole = path.read_bytes()
    value = json.loads(whole)
    try:
        for _ in range(cases):
            content = damaged_json(value, rng)
            path.write_bytes(content)
            yield content
    finally:
        path.write_bytes(whole)


def damaged_files(path: Path, *, seed: int = 0, cases: int = CASES) -> Iterator[bytes]:
    """Write versions of a file with damaged bytes in its place, as `damaged_json_files` does."""
    rng = random.Random(seed)
    whole = path.read_bytes()
    try:
        for _ in range(cases):
            content = damaged(whole, rng)
            path.write_bytes(content)
            yield content
    finally:
        path.write_bytes(whole)


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
    """Return how many of the cases raised an error of ours; another error, or a broken bound, fails the test.

    `cases` prepares a case at each step and may yield its content, which a failure then shows.
    """

    def grown() -> int:
        """Return how many bytes of memory reading took; count the case if it was refused."""
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
            if grown() >= largest_growth:  # perhaps of modules that were imported on the way
                refused = counted
                assert grown() < largest_growth, f"case {number}: {content!r:.2000}"
    return refused


class TooSlowError(BaseException):
    """No Exception, which a reader might take for a fault of the file."""


@contextmanager
def bounded_process() -> Iterator[None]:
    """Count Python's memory, limit the address space, and let a timer raise."""

    def too_slow(*_: object) -> None:
        raise TooSlowError(f"reading one file took over {LONGEST} s of CPU time")

    handler = signal.signal(signal.SIGVTALRM, too_slow)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    if sys.platform == "linux":  # elsewhere the limit is not kept, or the space is taken in advance
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + LARGEST_SPACE, limits[1]))
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.signal(signal.SIGVTALRM, handler)
