"""A parallel map that keeps the order: in this process, in local processes, or on a Ray cluster.

Results have the order of the items, and only a few items are in memory at a time.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from itertools import chain, islice
from typing import Any, TypeVar

from albertkit.cores import usable_cores
from albertkit.errors import AlbertKitError, ConfigError, DataError, suggestion
from albertkit.extras import optional

ray = optional("ray", extra="ray")

Item = TypeVar("Item")
Result = TypeVar("Result")

RUNNERS = ("local", "ray")
_RETRIES = 2  # how often Ray repeats an item if its worker dies


def check_runner(runner: str, workers: int | None = None) -> None:
    if runner not in RUNNERS:
        raise ConfigError(f"no runner {runner!r}. {suggestion(runner, RUNNERS)}")
    if workers is not None and workers < 1:
        raise ConfigError(f"workers is {workers}. Expected at least 1.")


def ordered_map(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    runner: str = "local",
    workers: int | None = None,
    device: str | None = None,
    name: Callable[[Item], str] = str,
    hint: str,
) -> Generator[Result, None, None]:
    """Yield `work(item)` for each item, in order.

    This process reads the items and receives the results, so other processes do not need its files. The
    runner "ray" uses the cluster that `ray.init` finds through RAY_ADDRESS, or else a Ray instance on this
    machine. By default, there is a worker for each CPU that this process may use; with Ray, for each GPU or
    CPU of the cluster.

    Args:
        work: a function that can be pickled.
        items: items that can be pickled.
        runner: "local" (this machine) or "ray".
        workers: number of workers. One local worker, and a single item, need no other process.
        device: "auto", "cpu" or "cuda" for Ray: each worker calls `work.to` with "cpu" or "cuda" before its
            first item. "auto" means "cuda" if the cluster has a GPU. None for work without a device.
        name: returns the name of an item for error messages.
        hint: end of the error message if a worker dies: which results are kept, and what to do.
    """
    if runner == "ray":
        yield from _ray_map(work, items, workers, device, name, hint)
        return
    workers = workers or usable_cores()
    if workers > 1:
        items = iter(items)
        first = list(islice(items, 2))
        workers = workers if len(first) > 1 else 1  # for a single item, do not start a process
        items = chain(first, items)
    if workers == 1:
        yield from map(work, items)
    else:
        yield from _process_map(work, items, workers, name, hint)


def _process_map(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    workers: int,
    name: Callable[[Item], str],
    hint: str,
) -> Generator[Result, None, None]:
    # Each worker is a new interpreter, because forking a process with threads (Arrow's, PyTorch's) can hang.
    # Import it here, because every subcommand imports this module for the names of the runners.
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    # Not `initargs=(work,)`: if a worker dies at its start, Python blocks while it sends a large `work`.
    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
    waiting: deque[tuple[str, Any]] = deque()
    started = False  # whether any worker has returned a result
    items = iter(items)
    try:
        while True:
            # One item is ready for the next worker; more would use memory.
            for item in islice(items, workers + 2 - len(waiting)):
                waiting.append((name(item), pool.submit(work, item)))
            if not waiting:
                return
            yield waiting[0][1].result()
            waiting.popleft()
            started = True
    except BrokenProcessPool as error:
        where = f"after {waiting[0][0]}" if waiting else "at its start"
        advice = f"perhaps for lack of memory; try fewer workers ({hint})"
        if not started:
            advice += '. Each worker imports the script again: call it under `if __name__ == "__main__":`'
        raise DataError(f"a worker process was killed {where}, {advice}") from error
    finally:
        pool.shutdown(cancel_futures=True)


def _ray_map(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    workers: int | None,
    device: str | None,
    name: Callable[[Item], str],
    hint: str,
) -> Generator[Result, None, None]:
    if not ray.is_initialized():
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="warning")
    kind, count = _resources(workers, device)
    # If a worker dies, Ray starts it again, and repeats only the items that it had.
    options = {
        "num_cpus": 1,
        "num_gpus": int(kind == "cuda"),
        "max_restarts": -1,
        "max_task_retries": _RETRIES,
    }
    remote = ray.remote(**options)(_RayWorker)
    shared = [ray.put(work)]  # in a list, Ray passes the reference instead of the object
    actors = [remote.remote(kind if device else None) for _ in range(count)]
    waiting: deque[tuple[Item, Any]] = deque()  # items and the references of their results

    def oldest() -> Result:
        item, reference = waiting.popleft()
        try:
            result = ray.get(reference)
        except ray.exceptions.RayError as error:
            reason = str(error).strip().splitlines()[-1]
            raise DataError(f"Ray gave up at {name(item)} ({hint}): {reason}") from error
        if isinstance(result, AlbertKitError):
            raise result
        return result

    try:
        for number, item in enumerate(items):
            waiting.append((item, actors[number % count].work.remote(shared, item)))
            if len(waiting) == 2 * count:  # each worker has one item in progress and one waiting
                yield oldest()
        while waiting:
            yield oldest()
    finally:
        for actor in actors:
            ray.kill(actor)


class _RayWorker:
    """A Ray process, which receives the work with its first item."""

    def __init__(self, kind: str | None) -> None:
        self._kind = kind
        self._work: Any = None

    def work(self, shared: list[Any], item: Any) -> Any:
        """Return the result of an item, or an AlbertKitError, which Ray would wrap if it were raised."""
        try:
            if self._work is None:
                work = ray.get(shared[0])
                self._work = work.to(self._kind) if self._kind else work
            return self._work(item)
        except AlbertKitError as error:
            return error


def _resources(workers: int | None, device: str | None) -> tuple[str, int]:
    resources = ray.cluster_resources()
    gpus, cpus = int(resources.get("GPU", 0)), int(resources.get("CPU", 0))
    kind = ("cuda" if gpus else "cpu") if device == "auto" else device or "cpu"
    if kind not in ("cpu", "cuda"):
        raise ConfigError(f"the device is {device!r}, but Ray assigns the GPUs. Use auto, cpu or cuda.")
    available = min(cpus, gpus) if kind == "cuda" else cpus
    if not 1 <= (workers or available) <= available:
        wanted = f"{workers} workers" if workers else "a worker"
        raise ConfigError(f"Ray has {cpus} CPUs and {gpus} GPUs, too few for {wanted} on {kind}.")
    return kind, workers or available
