"""Who works on the units of `prepare`: processes of this machine, or a Ray cluster.

A runner is a function of the units, the work on one of them and a number of workers (None: all there are).
It yields what the work returns, in the order of the units, and holds only a few of them in memory.
"""

import logging
import multiprocessing
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import Any

from albertkit.cores import usable_cores
from albertkit.errors import AlbertKitError, DataError
from albertkit.extras import optional
from albertkit.pretraining.units import Done, Unit, Units, Work

ray = optional("ray", extra="ray")
ray_data = optional("ray.data", extra="ray")

Runner = Callable[[Units, Work, int | None], Iterator[Done]]


def run_local(units: Iterable[Unit], work: Work, workers: int | None) -> Iterator[Done]:
    """Work in processes of this machine; with one worker, in this process.

    Raises:
        DataError: as the work does, or a worker process was killed.
    """
    workers = workers or usable_cores()
    if workers == 1:
        yield from map(work, units)
        return

    # A fresh interpreter for each worker: forking a process that has threads (Arrow's, torch's) can hang.
    pool = ProcessPoolExecutor(
        workers, mp_context=multiprocessing.get_context("spawn"), initializer=_start_worker, initargs=(work,)
    )
    waiting: deque[tuple[str, Future[Done]]] = deque()
    try:
        for unit in units:
            waiting.append((unit.documents[0].origin, pool.submit(_work_in_worker, unit)))
            if len(waiting) > workers + 1:  # a unit ready for the next free worker, and no more in memory
                yield waiting[0][1].result()
                waiting.popleft()
        while waiting:
            yield waiting[0][1].result()
            waiting.popleft()
    except BrokenProcessPool as error:
        where = f"after {waiting[0][0]}" if waiting else "at its start"
        raise DataError(
            f"a worker process was killed {where}, perhaps for lack of memory; try fewer workers or a "
            "smaller unit_characters (finished shards are kept)"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def run_ray(units: Units, work: Work, workers: int | None) -> Iterator[Done]:
    """Work in tasks of Ray Data: on the cluster that `ray.init` finds (RAY_ADDRESS), else on this machine.

    The text is read on this node and the shards come back to it, so no other needs the files.

    Raises:
        DataError: as the work does, or Ray gave up.
        MissingExtraError: Ray is not installed.
    """
    if not ray.is_initialized():
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="warning")
    logging.getLogger("ray.data").setLevel(logging.ERROR)  # progress is shown by whoever called
    context = ray_data.DataContext.get_current().copy()
    context.execution_options.preserve_order = True
    context.target_max_block_size = 1  # bytes: every unit is a block of its own, since a task takes a block
    context.enable_progress_bars = False
    with ray_data.DataContext.current(context):
        this_node = {"ray.io/node-id": ray.get_runtime_context().get_node_id()}
        done = (
            ray_data.from_items([{"corpus": 0}])
            .flat_map(partial(_read_in_ray, units), num_cpus=0, label_selector=this_node)
            .map(partial(_work_in_ray, work), num_cpus=1, concurrency=workers)
        )
    number = -1
    try:
        for row in done.iter_rows():
            result: Done | AlbertKitError = pickle.loads(row["result"])
            if isinstance(result, AlbertKitError):
                raise result
            yield result
            number = result.number
    except ray.exceptions.RayError as error:
        reason = str(error).strip().splitlines()[-1]
        raise DataError(f"Ray gave up after unit {number} (finished shards are kept): {reason}") from error


RUNNERS: dict[str, Runner] = {"local": run_local, "ray": run_ray}


_worker: Work | None = None  # one per worker process, set when it starts


def _start_worker(work: Work) -> None:
    global _worker
    _worker = work


def _work_in_worker(unit: Unit) -> Done:
    assert _worker is not None
    return _worker(unit)


# Rows of Ray Data are tables, so units and results travel in them as bytes; errors too, which Ray would wrap.
def _read_in_ray(units: Units, row: dict[str, Any]) -> Iterator[dict[str, bytes]]:  # noqa: ARG001
    try:
        for unit in units:
            yield {"unit": pickle.dumps(unit)}
    except AlbertKitError as error:
        yield {"unit": pickle.dumps(error)}


def _work_in_ray(work: Work, row: dict[str, bytes]) -> dict[str, bytes]:
    unit: Unit | AlbertKitError = pickle.loads(row["unit"])
    try:
        result = unit if isinstance(unit, AlbertKitError) else work(unit)
    except AlbertKitError as error:
        result = error
    return {"result": pickle.dumps(result)}
