"""The order of training examples: endless epochs that any process can start at any batch."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any

import numpy as np

from albertkit.errors import DataError
from albertkit.files import values_sha256

POOL_BATCHES = 32  # batches that are sorted by length together: little padding, and still random order

Unit = list[Any]  # rows that stay in one batch: a window, or the choices of one example


@dataclass(frozen=True)
class UnitBatch:
    """Units of a batch, or of a part of it, with the same number of rows."""

    units: list[Unit]
    parts: list["UnitBatch"] = field(default_factory=list, compare=False, repr=False)
    """For a part: all parts of its batch, for losses that are not a sum over parts."""

    @property
    def rows(self) -> list[Any]:
        return list(chain.from_iterable(self.units))

    def split(self, parts: int) -> list["UnitBatch"]:
        """Return the batch split into `parts` parts of similar size, or fewer if it has fewer units."""
        parts = min(parts, len(self.units))
        cuts = [len(self.units) * part // parts for part in range(parts + 1)]
        found: list[UnitBatch] = []
        found += [UnitBatch(self.units[begin:stop], found) for begin, stop in pairwise(cuts)]
        return found


class Epochs:
    """An endless stream of batches; every unit is in one batch of each epoch.

    The order depends only on (seed, epoch). Units of one batch have the same number of rows. `batch_size` is
    that of all processes; each takes its share of every batch.
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
                f"batches of {min(batch_size, len(units))} examples are too small for {world_size} "
                "processes. Add examples, increase batch_size, or use fewer processes."
            )

    @property
    def steps(self) -> int:
        return len(self._epoch(0))

    def stream(self, position: dict[str, int] | None) -> Iterator[tuple[UnitBatch, dict[str, int]]]:
        """Yield batches from a position on, each with the position of the next batch."""
        epoch, first = (position["epoch"], position["batch"]) if position else (0, 0)
        while True:
            batches = self._epoch(epoch)
            for number in range(first, len(batches)):
                own = batches[number][self.rank :: self.world_size]
                is_last = number + 1 == len(batches)
                following = {"epoch": epoch + is_last, "batch": 0 if is_last else number + 1}
                yield UnitBatch([self.units[unit] for unit in own]), following
            epoch, first = epoch + 1, 0

    def _epoch(self, epoch: int) -> list[np.ndarray]:
        random = np.random.default_rng([self.seed, epoch])
        batches: list[np.ndarray] = []
        for numbers in self._by_width.values():
            order = random.permutation(numbers)
            for begin in range(0, len(order), POOL_BATCHES * self.batch_size):
                pool = order[begin : begin + POOL_BATCHES * self.batch_size]
                pool = pool[np.argsort(self._lengths[pool], kind="stable")]
                batches += [pool[at : at + self.batch_size] for at in range(0, len(pool), self.batch_size)]
        # A remainder that is too small for all processes waits for another epoch.
        batches = [batch for batch in batches if len(batch) >= self.world_size]
        return [batches[place] for place in random.permutation(len(batches))]


def fingerprint(rows: Iterable[Any], answers: Iterable[Any] = ()) -> str:
    """Return a fingerprint of rows with their labels, and of the true answers to compare predictions with."""
    contents = ((np.array(row.input_ids, np.int32).tobytes(), row.labels) for row in rows)
    return values_sha256(chain(contents, answers))
