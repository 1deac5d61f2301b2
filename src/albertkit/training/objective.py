"""The inputs of a training loop: batches, and an objective that computes their losses."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from albertkit.training.distributed import World

OUTPUT_SPREAD = "output_spread"
"""Evaluation metric that the loop watches: the relative spread of the outputs over positions."""


class Batch(Protocol):
    """The rows of one batch in this process."""

    def split(self, parts: int) -> list[Any]:
        """Return the batch in this number of parts, or fewer if it has fewer rows."""
        ...


@dataclass(frozen=True)
class StepOutput:
    """The result of an objective for one part of a batch."""

    loss: Tensor
    """Scalar to minimize: the part's share of the loss of the whole batch."""
    sums: dict[str, tuple[Tensor, int]]
    """Metric name -> (sum over the part, number of items summed); the same names for every part."""


class Averages:
    """Averages of the metrics of the parts of batches, over all processes."""

    def __init__(self) -> None:
        self._sums: dict[str, list[Any]] = {}

    def add(self, sums: dict[str, tuple[Tensor, int]]) -> None:
        """Add the sums of a part."""
        for name, (value, count) in sums.items():
            entry = self._sums.setdefault(name, [0.0, 0])
            entry[0] = entry[0] + value.detach()
            entry[1] += count

    def take(self, world: World) -> dict[str, float]:
        """Return the averages since the last call."""
        names = list(self._sums)
        pairs = [[float(total), float(count)] for total, count in self._sums.values()]
        self._sums.clear()
        summed = world.sum(torch.tensor(pairs, dtype=torch.float32, device=world.device))
        return {
            name: total / max(count, 1) for name, (total, count) in zip(names, summed.tolist(), strict=True)
        }


class TrainingObjective(Protocol):
    """A loss function of a model, computed part by part."""

    def counts(self, batch: Any) -> dict[str, int]:
        """Count the items over which the losses of a part are averaged, and its tokens as "tokens".

        The names are the same for every part.
        """
        ...

    def __call__(self, model: Callable[..., Any], batch: Any, counts: dict[str, int]) -> StepOutput:
        """Compute a part's share of the loss; `counts` are those of the whole batch."""
        ...


BatchSource = Callable[[dict[str, int] | None], Iterator[tuple[Any, dict[str, int]]]]
"""Starts the stream of batches at a position (None: the beginning). Each batch comes with the position of
the next one."""
