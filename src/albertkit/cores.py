"""The number of cores that this process may use, and the processor's name."""

import os
import platform
from functools import cache
from pathlib import Path

from albertkit.errors import ConfigError

VARIABLE = "ALBERTKIT_THREADS"
_CGROUPS = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """Return ALBERTKIT_THREADS if it is set, else the number of cores that affinity and container allow."""
    if wanted := os.environ.get(VARIABLE):
        if not wanted.isdecimal() or int(wanted) < 1:
            raise ConfigError(f"{VARIABLE} is {wanted!r}. Expected a number of threads, at least 1.")
        return int(wanted)
    # The affinity of a process may allow fewer cores than the machine has.
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        if (_CGROUPS / "cpu.max").is_file():  # cgroups version 2
            time, period = (_CGROUPS / "cpu.max").read_text().split()
        else:
            time, period = (
                (_CGROUPS / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period")
            )
        quota = int(time) / int(period)
    except (OSError, ValueError):  # no such file, or the value is "max"
        return there
    return max(1, min(there, int(quota))) if quota > 0 else there


def compute_threads() -> int:
    """Return the number of compute threads: ALBERTKIT_THREADS, OMP_NUM_THREADS, or the usable cores."""
    count = os.environ.get("OMP_NUM_THREADS", "")
    is_set = count.isdecimal() and int(count) > 0 and not os.environ.get(VARIABLE)
    return int(count) if is_set else usable_cores()


@cache
def processor() -> str:
    """Return the name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
