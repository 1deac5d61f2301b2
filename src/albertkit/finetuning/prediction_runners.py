"""Who computes the parts of a file of predictions: this process, or the workers of a Ray cluster.

A runner is given parts, numbered lists of examples, and what predicts. It yields the lines of each part with
its number, in order, and holds only a few parts in memory.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any

from albertkit.engines.devices import read_device
from albertkit.errors import AlbertKitError, ConfigError, DataError, suggestion
from albertkit.extras import optional
from albertkit.finetuning.predictor import Asked, Predictor

ray = optional("ray", extra="ray")

Part = tuple[int, list[Asked]]
Runner = Callable[[Iterator[Part], Predictor], Generator[tuple[int, str], None, None]]

RUNNERS = ("local", "ray")
_RETRIES = 2  # how often a part whose worker died is given to another


def runner_of(name: str, *, workers: int | None = None, device: str = "auto") -> Runner:
    """Return the runner of a name.

    Args:
        name: "local" or "ray".
        workers: how many of Ray's; None for as many as it has CPUs, or GPUs to compute on.
        device: of each of Ray's workers; "auto" is a GPU if the cluster has any.

    Raises:
        ConfigError: another name, or workers of the one process.
    """
    if name not in RUNNERS:
        raise ConfigError(f"there is no runner {name!r}; {suggestion(name, RUNNERS)}")
    if name == "ray":
        return partial(run_ray, workers=workers, device=device)
    if workers is not None:
        raise ConfigError(f"workers is {workers}, but the runner is local, which is one process: choose ray")
    return run_local


def run_local(parts: Iterator[Part], predictor: Predictor) -> Generator[tuple[int, str], None, None]:
    """Work in this process, with all of its threads."""
    for number, examples in parts:
        yield number, predictor(examples)


def run_ray(
    parts: Iterator[Part], predictor: Predictor, *, workers: int | None = None, device: str = "auto"
) -> Generator[tuple[int, str], None, None]:
    """Work in actors of Ray that have the model: on the cluster that `ray.init` finds (RAY_ADDRESS), else on
    this machine.

    Input is read and output written by this process, so no other needs the files. Each worker has a part in
    work and one that waits.

    Raises:
        ConfigError: a device that Ray does not give, or more workers than there can be.
        DataError: a part that cannot be predicted, or that Ray gave up.
        MissingExtraError: Ray is not installed.
    """
    if not ray.is_initialized():
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="warning")
    pool = _RayPool(predictor, *_resources(workers, device))
    try:
        for number, examples in parts:
            pool.submit(number, examples)
            if pool.is_full:
                yield pool.oldest()
        while pool.waiting:
            yield pool.oldest()
    finally:
        pool.close()


class _RayPool:
    """Workers of Ray that take parts in turn, two each; one that dies is replaced."""

    def __init__(self, predictor: Predictor, kind: str, count: int) -> None:
        worker = ray.remote(num_cpus=1, num_gpus=int(kind == "cuda"))(_RayWorker)
        self._start: Callable[[], Any] = partial(worker.remote, kind)
        self._shared = [ray.put(predictor)]  # in a list, Ray hands on the reference instead of the model
        self._actors = [self._start() for _ in range(count)]
        self.waiting: deque[tuple[int, list[Asked], Any, Any]] = deque()
        """Number, examples, actor and reference of the result, the oldest part first."""

    @property
    def is_full(self) -> bool:
        """Whether each worker has a part in work and one that waits."""
        return len(self.waiting) == 2 * len(self._actors)

    def submit(self, number: int, examples: list[Asked]) -> None:
        """Give a part to the worker whose turn it is."""
        actor = self._actors[number % len(self._actors)]
        self.waiting.append((number, examples, actor, actor.predict.remote(self._shared, examples)))

    def oldest(self) -> tuple[int, str]:
        """Wait for the oldest part. If its worker died, it is given to a new one, alone, some times."""
        number, examples, actor, reference = self.waiting.popleft()
        retries = _RETRIES
        while True:
            try:
                return number, _lines(ray.get(reference))
            except ray.exceptions.RayError as error:
                if not retries or isinstance(error, ray.exceptions.RayTaskError):
                    raise DataError(
                        f"Ray gave up part {number} (those before are kept, and the same command goes on): "
                        f"{str(error).strip().splitlines()[-1]}"
                    ) from error
            retries -= 1
            place = number % len(self._actors)
            if self._actors[place] is actor:  # else it died before, of another part
                self._actors[place] = self._start()
            actor = self._actors[place]
            reference = actor.predict.remote(self._shared, examples)

    def close(self) -> None:
        """End the workers."""
        for actor in self._actors:
            ray.kill(actor)


def _lines(result: str | AlbertKitError) -> str:
    if isinstance(result, AlbertKitError):
        raise result
    return result


class _RayWorker:
    """A process of Ray, which gets the model with its first part."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._predictor: Predictor | None = None

    def predict(self, shared: list[Any], examples: list[Asked]) -> str | AlbertKitError:
        """Return what is predicted; an error too, which Ray would wrap."""
        try:
            predictor = self._predictor or ray.get(shared[0]).to(read_device(self._kind))
            self._predictor = predictor
            return predictor(examples)
        except AlbertKitError as error:
            return error


def _resources(workers: int | None, device: str) -> tuple[str, int]:
    """Return on which kind of device to work, and how many workers."""
    there = ray.cluster_resources()
    gpus, cpus = int(there.get("GPU", 0)), int(there.get("CPU", 0))
    kind = ("cuda" if gpus else "cpu") if device == "auto" else device
    if kind not in ("cpu", "cuda"):
        raise ConfigError(f"the device is {device!r}, but Ray chooses among GPUs: say auto, cpu or cuda")
    most = min(cpus, gpus) if kind == "cuda" else cpus
    if not 1 <= (workers or most) <= most:
        wanted = f"{workers} workers" if workers else "a worker"
        raise ConfigError(f"Ray has {cpus} CPUs and {gpus} GPUs, too little for {wanted} on {kind}")
    return kind, workers or most
