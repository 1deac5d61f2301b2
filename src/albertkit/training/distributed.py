"""The processes of one run: alone, or several that `torchrun` started (data parallel). Signals stop them.

Every process has the whole model and takes its rows of each batch. `DistributedDataParallel` averages the
gradients. The functions here synchronize everything else that must be equal in all processes (counts, losses,
when to stop).
"""

import logging
import os
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from albertkit.devices import choose_device
from albertkit.errors import ConfigError

logger = logging.getLogger(__name__)

_SET_BY_TORCHRUN = ("LOCAL_RANK", "RANK", "MASTER_ADDR", "MASTER_PORT")
_NO_LIMIT = timedelta(days=365)
_RELEASED_WITHIN = 5.0  # seconds; usually a few microseconds


@dataclass(frozen=True)
class World:
    """The processes of a run, and the index of this one."""

    device: torch.device
    rank: int = 0
    size: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and logs."""
        return self.rank == 0

    def wrap(self, model: nn.Module) -> nn.Module:
        """Return the model with its gradients averaged over the processes."""
        if self.size == 1:
            return model
        return DistributedDataParallel(
            model,
            device_ids=[self.device] if self.device.type == "cuda" else None,
            gradient_as_bucket_view=True,
        )

    def no_averaging(self, wrapped: nn.Module) -> AbstractContextManager[Any]:
        """Return the context in which gradients of a wrapped model are not averaged yet."""
        return nullcontext() if self.size == 1 else wrapped.no_sync()  # type: ignore[operator]

    def sum(self, values: Tensor) -> Tensor:
        if self.size > 1:
            dist.all_reduce(values)
            _wait_until_released(values)
        return values

    def sum_counts(self, parts: list[dict[str, int]]) -> dict[str, int]:
        """Return each count summed over the parts of all processes, which must have the same names."""
        counts = {name: sum(part[name] for part in parts) for name in parts[0]}
        if self.size == 1:
            return counts
        total = self.sum(torch.tensor(list(counts.values()), dtype=torch.int64, device=self.device))
        return dict(zip(counts, total.tolist(), strict=True))

    def gather(self, values: Tensor) -> list[Tensor]:
        """Return the values (N, ...) of every process, where N may differ; without gradients."""
        if self.size == 1:
            return [values.detach()]
        lengths = torch.zeros(self.size, dtype=torch.int64, device=self.device)
        lengths[self.rank] = len(values)
        longest, *counts = [int(self.sum(lengths).max()), *lengths.tolist()]
        padded = values.new_zeros(longest, *values.shape[1:])
        padded[: len(values)] = values.detach()
        gathered = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(gathered, padded)
        _wait_until_released(padded, *gathered)
        return [part[:count] for part, count in zip(gathered, counts, strict=True)]

    def any(self, condition: bool) -> bool:
        if self.size == 1:
            return condition
        return bool(self.sum(torch.tensor(int(condition), device=self.device)))

    def wait(self) -> None:
        if self.size > 1:
            dist.barrier()


@contextmanager
def join_world(device: str) -> Iterator[World]:
    """Join the processes that `torchrun` started, or return a single process.

    On GPUs, each process uses the GPU of its local rank if `device` is "auto" or "cuda". Processes other than
    the main one log only errors. At its end, the block waits for all processes: when one exits with an error,
    such as 143 after SIGTERM, `torchrun` ends the others, and the main process may still write.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield World(choose_device(device))
        return
    if missing := [name for name in _SET_BY_TORCHRUN if name not in os.environ]:
        raise ConfigError(
            f"the environment has WORLD_SIZE={size}, but not {', '.join(missing)}. Use torchrun."
        )
    local_rank = int(os.environ["LOCAL_RANK"])
    if device == "cuda" or (device == "auto" and torch.cuda.is_available()):
        device = f"cuda:{local_rank}"
    chosen = choose_device(device)
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    # The others wait while the main process evaluates and writes. If one ends, `torchrun` ends the rest.
    dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo", timeout=_NO_LIMIT)
    library = logging.getLogger("albertkit")
    level = library.level
    try:
        if dist.get_rank():
            library.setLevel(logging.ERROR)
        world = World(chosen, dist.get_rank(), size)
        yield world
        world.wait()
    finally:
        library.setLevel(level)
        dist.destroy_process_group()


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Collect SIGTERM and SIGINT instead of exiting: the loop ends after the current step.

    A second Ctrl-C ends the process immediately. A second SIGTERM does not: `torchrun` forwards SIGTERM to
    processes that may already have received it.
    """
    received: list[int] = []

    def receive(number: int, _frame: object) -> None:
        if received and number == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(number)
        logger.info(
            "writing a checkpoint after this step, then stopping; press Ctrl-C again to stop immediately"
        )

    try:
        previous = {number: signal.signal(number, receive) for number in (signal.SIGTERM, signal.SIGINT)}
    except ValueError:  # not the main thread, which alone receives signals
        previous = {}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def ignore_stop_signals(_worker: int) -> None:
    """Make a worker process ignore SIGTERM and SIGINT.

    They often go to all processes of a run. If a worker ended, the run would fail before its checkpoint.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def _wait_until_released(*tensors: Tensor) -> None:
    """Wait until the threads of gloo have released the tensors of a collective.

    They do so shortly after it returns. The last thread that holds a tensor needs the interpreter. If the
    interpreter is shutting down, the thread ends the process: "terminate called without an
    active exception", SIGABRT (https://github.com/pytorch/pytorch/pull/179291). Destroying the group does
    not end its threads after `DistributedDataParallel` was used.
    """
    deadline = time.monotonic() + _RELEASED_WITHIN
    held = [tensor for tensor in tensors if tensor.device.type == "cpu"]
    while any(tensor._use_count() > 1 for tensor in held):  # pyright: ignore[reportAttributeAccessIssue]
        if time.monotonic() > deadline:
            return  # something else holds it
        time.sleep(0.0005)
