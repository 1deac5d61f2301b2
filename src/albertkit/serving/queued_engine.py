"""The engine of a request's pipeline."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from albertkit.engines.engine import BatchScores, Engine, Job, Row
from albertkit.serving.batching import RowQueue
from albertkit.serving.work import Ticket, Work


class QueuedEngine(Engine):
    """An engine that puts the rows of a request into the queue of all requests.

    Args:
        engine: the engine that computes the rows.
        queue: the queue.
        ticket: the request.
        budget: maximum number of tokens per batch.
    """

    def __init__(self, engine: Engine, queue: RowQueue, ticket: Ticket, *, budget: int) -> None:
        self.engine = engine
        self.queue = queue
        self.ticket = ticket
        self.budget = budget

    def computing_with(self, engine: Engine) -> "QueuedEngine":
        """Return a `QueuedEngine` for the same request and another engine."""
        return QueuedEngine(engine, self.queue, self.ticket, budget=self.budget)

    def compute(self, rows: Sequence[Row], job: Job, then: Callable[[np.ndarray], Any]) -> list[Any]:
        """Compute rows as `Engine.compute` does; the queue decides the sizes of batches."""
        given = {"output": job.output, "read": job.read, "then": then, "budget": self.budget}
        return self.queue.compute(Work(self.ticket, self.engine, rows, **given))

    def batches(self, rows: Sequence[Row], job: Job) -> BatchScores:
        """Yield the scores of all rows at once, as one batch."""
        yield range(len(rows)), self.run(rows, output=job.output, read=job.read)
