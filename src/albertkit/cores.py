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
    quota = _quota(_CGROUPS)
    return there if quota is None else max(1, min(there, int(quota)))


def compute_threads() -> int:
    """Return the number of compute threads: ALBERTKIT_THREADS, OMP_NUM_THREADS, or the usable cores."""
    count = os.environ.get("OMP_NUM_THREADS", "")
    is_set = count.isdecimal() and int(count) > 0 and not os.environ.get(VARIABLE)
    return int(count) if is_set else usable_cores()


def _quota(cgroups: Path) -> float | None:
    """Return the CPU quota of a container in cores, or None if there is no limit."""
    try:
        if (cgroups / "cpu.max").is_file():  # cgroups version 2
            time, period = (cgroups / "cpu.max").read_text().split()
        else:
            time, period = (
                (cgroups / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period")
            )
        return int(time) / int(period) if int(time) > 0 else None
    except (OSError, ValueError):  # no such file, or the value is "max"
        return None


@cache
def processor() -> str:
    """Return the name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
