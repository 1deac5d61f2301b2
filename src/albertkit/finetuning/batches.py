"""The order of training examples: epochs that any process can start at any batch of."""

import hashlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any

import numpy as np

from albertkit.errors import DataError

POOL_BATCHES = 32  # so many batches are sorted by length together: little padding, and still in random order

Unit = list[Any]  # rows that a batch keeps together: a window, or the choices of one example


@dataclass(frozen=True)
class UnitBatch:
    """Units of one width."""

    units: list[Unit]
    parts: list["UnitBatch"] = field(default_factory=list, compare=False, repr=False)
    """Of a part: all parts of its batch, for losses that are no sum over them."""

    @property
    def rows(self) -> list[Any]:
        """Return the rows of all units."""
        return list(chain.from_iterable(self.units))

    def split(self, parts: int) -> list["UnitBatch"]:
        """Return the batch in that many parts of about as many units, or fewer where it has fewer."""
        parts = min(parts, len(self.units))
        cuts = [len(self.units) * part // parts for part in range(parts + 1)]
        found: list[UnitBatch] = []
        found += [UnitBatch(self.units[begin:stop], found) for begin, stop in pairwise(cuts)]
        return found


class Epochs:
    """An endless stream of batches; every unit is in one batch of each epoch.

    The order is a function of (seed, epoch). Units of one batch have equally many rows.

    Args:
        units: all of them.
        batch_size: units of a batch, over all processes.
        seed: of the order.
        rank: this process's number.
        world_size: processes; each takes its units of every batch.

    Raises:
        DataError: no unit, or too few for every process to have one.
    """

    def __init__(
        self, units: list[Unit], batch_size: int, *, seed: int, rank: int = 0, world_size: int = 1
    ) -> None:
        self.units = units
        self.batch_size = batch_size
        self.seed = seed
        self.rank, self.world_size = rank, world_size
        by_width: dict[int, list[int]] = defaultdict(list)
        for number, unit in enumerate(units):
            by_width[len(unit)].append(number)
        self._by_width = {width: np.array(numbers) for width, numbers in sorted(by_width.items())}
        self._lengths = np.array([max(len(row.input_ids) for row in unit) for unit in units])
        if not self._epoch(0):
            raise DataError(
                f"{len(units)} training examples in batches of {batch_size} for {world_size} processes: each "
                "needs at least one of a batch"
            )

    @property
    def steps(self) -> int:
        """Batches of an epoch."""
        return len(self._epoch(0))

    def stream(self, position: dict[str, int] | None) -> Iterator[tuple[UnitBatch, dict[str, int]]]:
        """Yield batches from a position on, each with the position of the one after it."""
        epoch, first = (position["epoch"], position["batch"]) if position else (0, 0)
        while True:
            batches = self._epoch(epoch)
            for number in range(first, len(batches)):
                own = batches[number][self.rank :: self.world_size]
                following = number + 1
                ahead = (epoch, following) if following < len(batches) else (epoch + 1, 0)
                yield UnitBatch([self.units[unit] for unit in own]), dict(zip(_PLACE, ahead, strict=True))
            epoch, first = epoch + 1, 0

    def _epoch(self, epoch: int) -> list[np.ndarray]:
        """Return the numbers of the units of each batch."""
        random = np.random.default_rng([self.seed, epoch])
        batches: list[np.ndarray] = []
        for numbers in self._by_width.values():
            order = random.permutation(numbers)
            for begin in range(0, len(order), POOL_BATCHES * self.batch_size):
                pool = order[begin : begin + POOL_BATCHES * self.batch_size]
                pool = pool[np.argsort(self._lengths[pool], kind="stable")]
                batches += [pool[at : at + self.batch_size] for at in range(0, len(pool), self.batch_size)]
        # A rest that is too small to be shared among all processes waits for another epoch.
        batches = [batch for batch in batches if len(batch) >= self.world_size]
        return [batches[place] for place in random.permutation(len(batches))]


_PLACE = ("epoch", "batch")


def fingerprint(units: list[Unit]) -> str:
    """Return what tells these training examples from others."""
    found = hashlib.sha256()
    for row in chain.from_iterable(units):
        found.update(np.array(row.input_ids, np.int32).tobytes() + repr(row.labels).encode())
    return found.hexdigest()
