"""Seconds of calls, measured side by side."""

import math
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

from albertkit.extras import optional

torch: Any = optional("torch", extra="torch")

Clock = Callable[[], float]


def clock_of(device: Any) -> Clock:
    """Return a clock, in seconds, that waits for what a device has been given to do."""
    if str(device).startswith("cpu"):
        return time.perf_counter
    waits = {"cuda": torch.cuda.synchronize, "mps": torch.mps.synchronize}
    wait = waits.get(device.type, lambda: None)

    def clock() -> float:
        wait()
        return time.perf_counter()

    return clock


def in_turn(
    works: Mapping[str, Callable[[], Any]],
    *,
    seconds: float = math.inf,
    rounds: int = 20,
    warm_up: bool = True,
    clock: Clock = time.perf_counter,
) -> dict[str, float]:
    """Call all works in turn, A B A B, and return the median seconds of a call of each.

    In turn, because a machine that is busy, or slower when it is warm, is so for all of them then.

    Args:
        works: what to call, by name.
        seconds: no round is begun after this time; there is always one.
        rounds: most rounds.
        warm_up: call each once before, uncounted.
        clock: see `clock_of`.
    """
    end = clock() + seconds
    for work in works.values() if warm_up else ():
        work()
    times: dict[str, list[float]] = {name: [] for name in works}
    for done in range(rounds):
        if done and clock() >= end:
            break
        for name, work in works.items():
            begin = clock()
            work()
            times[name].append(clock() - begin)
    return {name: statistics.median(some) for name, some in times.items()}
