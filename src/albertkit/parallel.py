"""One ordered parallel map: in this process, in processes of this machine, or in workers of a Ray cluster.

Results come in the order of the items, and only a few items are in memory at once.
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
_RETRIES = 2  # how often Ray repeats an item whose worker died


def check_runner(runner: str) -> None:
    """Raise a ConfigError unless `runner` is the name of a runner."""
    if runner not in RUNNERS:
        raise ConfigError(f"no runner {runner!r}; {suggestion(runner, RUNNERS)}")


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
    """Yield `work(item)` of each item in order.

    The items are read and the results are returned in this process, so no other process needs its files.

    Args:
        work: can be pickled; each worker gets it once.
        items: can be pickled.
        runner: "local" (this machine) or "ray": the cluster that `ray.init` finds (RAY_ADDRESS), else a Ray
            of this machine.
        workers: number of workers; with 1 and "local", this process, which also does a single item. Default:
            one for each CPU that this process may use; with Ray, one for each GPU or CPU of the cluster.
        device: "auto", "cpu" or "cuda": with Ray, each worker calls `work.to` with "cpu" or "cuda" before its
            first item; "auto" is a GPU if the cluster has any. None for work that needs no device.
        name: describes an item in an error message.
        hint: ends the error message about a worker that died: what is kept, and what helps.

    Raises:
        AlbertKitError: `work` raised it.
        ConfigError: an unknown runner, a device that Ray does not give, or more workers than there can be.
        DataError: a worker died.
        MissingExtraError: the runner is Ray, and it is not installed.
    """
    check_runner(runner)
    if runner == "ray":
        yield from _ray_map(work, items, workers, device, name, hint)
        return
    workers = workers or usable_cores()
    if workers > 1:
        items = iter(items)
        first = list(islice(items, 2))
        workers = workers if len(first) > 1 else 1  # a single item is not worth a process
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
    # A fresh interpreter for each worker: forking a process that has threads (Arrow's, torch's) can hang.
    # Imported here, since every verb imports this module for the names of the runners.
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    pool = ProcessPoolExecutor(
        workers, mp_context=multiprocessing.get_context("spawn"), initializer=_start, initargs=(work,)
    )
    waiting: deque[tuple[str, Any]] = deque()
    started = False  # whether any worker has returned a result
    try:
        for item in items:
            waiting.append((name(item), pool.submit(_work, item)))
            if len(waiting) > workers + 1:  # an item ready for the next free worker, and no more in memory
                yield waiting[0][1].result()
                waiting.popleft()
                started = True
        while waiting:
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


_worker: Callable[[Any], Any] | None = None  # of a worker process, set when it starts


def _start(work: Callable[[Any], Any]) -> None:
    global _worker
    _worker = work


def _work(item: Any) -> Any:
    assert _worker is not None
    return _worker(item)


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
    remote = ray.remote(num_cpus=1, num_gpus=int(kind == "cuda"))(_RayWorker)
    shared = [ray.put(work)]  # in a list, Ray hands on the reference instead of the work
    actors = [remote.remote(kind if device else None) for _ in range(count)]
    waiting: deque[tuple[int, Item, Any, Any]] = deque()  # place of the worker, item, worker, reference

    def oldest() -> Result:
        """Wait for the oldest item; if its worker died, a new worker repeats it, alone."""
        place, item, actor, reference = waiting.popleft()
        retries = _RETRIES
        while True:
            try:
                result = ray.get(reference)
                break
            except ray.exceptions.RayError as error:
                if not retries or isinstance(error, ray.exceptions.RayTaskError):
                    reason = str(error).strip().splitlines()[-1]
                    raise DataError(f"Ray gave up at {name(item)} ({hint}): {reason}") from error
            retries -= 1
            if actors[place] is actor:  # else it died before, of another item
                actors[place] = remote.remote(kind if device else None)
            actor = actors[place]
            reference = actor.work.remote(shared, item)
        if isinstance(result, AlbertKitError):
            raise result
        return result

    try:
        for number, item in enumerate(items):
            actor = actors[number % count]
            waiting.append((number % count, item, actor, actor.work.remote(shared, item)))
            if len(waiting) == 2 * count:  # each worker has an item in work and one that waits
                yield oldest()
        while waiting:
            yield oldest()
    finally:
        for actor in actors:
            ray.kill(actor)


class _RayWorker:
    """A process of Ray, which gets the work with its first item."""

    def __init__(self, kind: str | None) -> None:
        self._kind = kind
        self._work: Any = None

    def work(self, shared: list[Any], item: Any) -> Any:
        """Return the result for an item; an AlbertKitError too, which Ray would wrap."""
        try:
            if self._work is None:
                work = ray.get(shared[0])
                self._work = work.to(self._kind) if self._kind else work
            return self._work(item)
        except AlbertKitError as error:
            return error


def _resources(workers: int | None, device: str | None) -> tuple[str, int]:
    """Return the kind of device to work on, and the number of workers."""
    there = ray.cluster_resources()
    gpus, cpus = int(there.get("GPU", 0)), int(there.get("CPU", 0))
    kind = ("cuda" if gpus else "cpu") if device == "auto" else device or "cpu"
    if kind not in ("cpu", "cuda"):
        raise ConfigError(f"the device is {device!r}, but Ray chooses among GPUs: say auto, cpu or cuda")
    most = min(cpus, gpus) if kind == "cuda" else cpus
    if not 1 <= (workers or most) <= most:
        wanted = f"{workers} workers" if workers else "a worker"
        raise ConfigError(f"Ray has {cpus} CPUs and {gpus} GPUs, too little for {wanted} on {kind}")
    return kind, workers or most
