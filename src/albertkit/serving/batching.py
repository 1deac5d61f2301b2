"""The requests in progress, and batches of their rows: one queue, and one thread that computes.

A request is rejected if too many are in progress, or if they take too long for its deadline.

The pipeline of a request runs in a thread of its own. Its engine is a `QueuedEngine`, which waits while the
rows are in the queue. When a batch is computed, the next batch is made from the rows in the queue.

The order is fair. A row's turn is the time of its arrival, plus the time that earlier rows of the same
request take, so a large request does not delay small ones. A batch combines the next row with rows of
similar length whose turn is near.

A request cannot make another one fail: rows of cancelled requests leave the queue, and a batch that raises is
computed again, request by request.
"""

import math
import threading
import time
from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from albertkit.engines.engine import BatchScores, Engine, Job, Row
from albertkit.extras import optional
from albertkit.serving.api_errors import ApiError
from albertkit.serving.metrics import Metrics
from albertkit.serving.work import DEADLINE_HEADER, Ticket, Work

torch: Any = optional("torch", extra="torch")

_LOOK_AHEAD = 2  # batches of rows to choose similar lengths from; with more, new rows would overtake old ones
_SMOOTHING = 0.1  # weight of the last batch in the mean time per token
_TELLING = 0.25  # how full a batch must be to count in that mean: small batches need more time per token
_MARGIN = 2.0  # admitted requests should meet their deadline even if the machine becomes slower
_VALID_SECONDS = 60  # maximum age of that mean: one slow batch must not reject large requests forever
SPECIAL_CHARACTERS = 10
"""Number of characters with as many tokens as [CLS] and two [SEP]."""


class _Place(NamedTuple):
    """A row in the queue."""

    turn: float
    number: int
    work: Work

    @property
    def row(self) -> Row:
        return self.work.rows[self.number]

    @property
    def length(self) -> int:
        return len(self.row.input_ids)

    def fits(self, other: "_Place") -> bool:
        """Return whether one call of an engine can compute both rows."""
        return self.work.engine is other.work.engine and self.work.job.output == other.work.job.output


class RowQueue:
    """Computes rows of any requests for any models, one batch after the other.

    Args:
        metrics: receives the number of requests in progress, and the size of every batch.
        max_requests: maximum number of requests in progress.
        batch_wait: maximum time in seconds to wait for requests that are being tokenized, before computing a
            batch that is not full.
        torch_threads: number of PyTorch threads; None if no model needs PyTorch.
    """

    def __init__(
        self, metrics: Metrics, *, max_requests: int, batch_wait: float, torch_threads: int | None
    ) -> None:
        self.requests: set[Ticket] = set()
        """The requests in progress."""
        self.seconds_per_token = 0.0
        """Running mean over the batches that were not small; 0 before the first."""
        self.tokens_per_character = 0.3
        self._metrics = metrics
        self._max_requests = max_requests
        self._batch_wait = batch_wait
        self._torch_threads = torch_threads
        self._changed = threading.Condition()
        self._places: list[_Place] = []  # in order of their turns
        self._measured = time.monotonic()  # when `seconds_per_token` changed last
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="compute", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise ApiError if the maximum number of requests is in progress."""
        if len(self.requests) >= self._max_requests:
            raise ApiError(
                429,
                "overloaded",
                f"{len(self.requests)} requests are in progress, the maximum of the server. Try again later.",
                retry_after=math.ceil(max(1.0, self._expected_wait() / 2)),
            )

    def enter(self, ticket: Ticket) -> None:
        """Admit a request.

        Raises:
            ApiError: its deadline has passed, too many requests are in progress, or they take too long for
                its deadline.
        """
        if ticket.seconds_left() <= 0:
            raise ticket.late()
        self.check()
        wait = self._expected_wait(ticket) if ticket.characters else 0.0
        if wait * _MARGIN > ticket.seconds_left():
            seconds = f"{wait:.1f}" if wait >= 1 else f"{wait:.1g}"
            raise ApiError(
                429,
                "overloaded",
                f"with the requests before it, this request takes about {seconds} seconds. Expected at most "
                f"{ticket.seconds:g} seconds. Try again later, or allow more time ({DEADLINE_HEADER}).",
                param=ticket.param,
                retry_after=math.ceil(max(1.0, wait * _MARGIN - ticket.seconds_left())),
            )
        with self._changed:
            self.requests.add(ticket)
        self._metrics.requests_in_progress.set(len(self.requests))

    def leave(self, ticket: Ticket) -> None:
        """Remove a finished request."""
        with self._changed:
            self.requests.discard(ticket)
            self._changed.notify()
        self._metrics.requests_in_progress.set(len(self.requests))

    def compute(self, work: Work) -> list[Any]:
        """Wait until all rows are computed, and return the result of `then` for each row.

        Raises:
            ApiError: the request was cancelled, or hidden states are all zero.
            Exception: what the engine or `then` raises for these rows.
        """
        if not work.rows:
            return []
        ticket, submitted = work.ticket, time.monotonic()
        if ticket.error is not None:
            raise ticket.error
        lengths = [len(row.input_ids) for row in work.rows]
        before = 0
        with self._changed:
            if self._closed:
                raise RuntimeError("the queue is closed")
            tokens = ticket.add_tokens(sum(lengths))
            if ticket.characters:
                # Special tokens have a large share in short texts, and a small share in long texts.
                ratio = tokens / (ticket.characters + SPECIAL_CHARACTERS * len(lengths))
                self.tokens_per_character += _SMOOTHING * (ratio - self.tokens_per_character)
            ticket.tokens_left += sum(lengths)
            # The longest rows come first, which engines compute fastest.
            for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
                turn = 0.0 if ticket.urgent else submitted + before * self.seconds_per_token
                insort(self._places, _Place(turn, number, work), key=lambda place: place.turn)
                before += lengths[number]
            self._metrics.queued_rows.set(len(self._places))
            self._changed.notify()
        computed_before = ticket.compute_seconds
        ticket.wait()
        ticket.queue_seconds += (
            time.monotonic() - submitted - (ticket.compute_seconds - computed_before)
        )  # includes the batches of other requests between those of this request
        if work.error is not None:
            raise work.error
        return work.answers

    def tokens_of(self, ticket: Ticket) -> float:
        """Return the number of tokens of a request still to compute, estimated before it is tokenized."""
        return ticket.characters * self.tokens_per_character if ticket.tokens is None else ticket.tokens_left

    def _expected_wait(self, *tickets: Ticket) -> float:
        """Return the estimated seconds until all requests in progress, and these, are computed."""
        return self.seconds_for(sum(map(self.tokens_of, (*self.requests, *tickets))))

    def seconds_for(self, tokens: float) -> float:
        """Return the estimated seconds to compute tokens; 0 if the speed was not measured recently."""
        is_valid = time.monotonic() - self._measured < _VALID_SECONDS
        return self.seconds_per_token * tokens if is_valid else 0.0

    def is_alive(self) -> bool:
        """Return whether the computing thread is alive."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Compute the rows in the queue, then stop the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        if self._torch_threads is not None:
            torch.set_num_threads(self._torch_threads)
        while batch := self._next():
            self._compute(batch)

    def _next(self) -> list[_Place]:
        """Return the rows of the next batch, or none if the queue is closed and empty."""
        with self._changed:
            while True:
                while not self._wanted():
                    if self._closed:
                        return []
                    self._changed.wait()
                until = time.monotonic() + self._batch_wait
                while self._are_more_coming() and (left := until - time.monotonic()) > 0:
                    self._changed.wait(left)
                if self._wanted():  # still
                    return self._take()

    def _wanted(self) -> bool:
        """Remove the rows of cancelled requests, and return whether rows are left."""
        self._keep([place for place in self._places if place.work.is_wanted()])
        return bool(self._places)

    def _keep(self, places: list[_Place]) -> None:
        self._places = places
        self._metrics.queued_rows.set(len(places))

    def _are_more_coming(self) -> bool:
        """Return whether the next batch is not full, and requests are being tokenized."""
        is_full = sum(place.length for place in self._places) >= self._places[0].work.budget
        return not is_full and any(ticket.tokens is None for ticket in self.requests)

    def _take(self) -> list[_Place]:
        first = self._places[0]
        near: list[_Place] = []
        tokens = 0
        for place in self._places:
            if tokens > _LOOK_AHEAD * first.work.budget:
                break
            if place.fits(first):
                near.append(place)
                tokens += place.length
        near.sort(key=lambda place: abs(place.length - first.length))  # stable, so the first row stays first
        batch: list[_Place] = []
        tokens = 0
        for place in near:
            tokens += place.length
            if batch and tokens > first.work.budget:
                break
            batch.append(place)
        taken = set(map(id, batch))
        self._keep([place for place in self._places if id(place) not in taken])
        return batch

    def _compute(self, batch: list[_Place]) -> None:
        work = batch[0].work
        rows = [place.row for place in batch]
        reads = {id(place.row): place.work.job.read for place in batch}
        begin = time.monotonic()
        try:
            scores = work.engine.run(
                rows, output=work.job.output, read=lambda row: reads[id(row)](row), batch_tokens=work.budget
            )
        except Exception as error:
            requests = dict.fromkeys(place.work for place in batch)
            if len(requests) == 1:
                work.fail(error)
                return
            for request in requests:
                self._compute([place for place in batch if place.work is request])
            return
        seconds = time.monotonic() - begin
        tokens = sum(place.length for place in batch)
        self._note(batch, tokens, seconds)
        for place, row_scores in zip(batch, scores, strict=True):
            place.work.take(place.number, row_scores)

    def _note(self, batch: list[_Place], tokens: int, seconds: float) -> None:
        if tokens >= _TELLING * batch[0].work.budget:
            weight = _SMOOTHING if self.seconds_for(tokens) else 1.0
            self._measured = time.monotonic()
            self.seconds_per_token += weight * (seconds / tokens - self.seconds_per_token)
        self._metrics.batch_rows.observe(len(batch))
        self._metrics.batch_tokens.observe(tokens)
        for ticket in {place.work.ticket for place in batch}:
            ticket.compute_seconds += seconds
        for place in batch:
            place.work.ticket.tokens_left -= place.length


@dataclass(eq=False)
class QueuedEngine(Engine):
    """An engine that puts the rows of a request into the queue of all requests."""

    engine: Engine
    """The engine that computes the rows."""
    queue: RowQueue
    ticket: Ticket
    """The request."""
    budget: int
    """Maximum number of tokens per batch."""

    def compute(self, rows: Sequence[Row], job: Job, then: Callable[[np.ndarray], Any]) -> list[Any]:
        """Compute rows as `Engine.compute` does; the queue decides the sizes of batches."""
        return self.queue.compute(Work(self.ticket, self.engine, rows, job, then, self.budget))

    def batches(self, rows: Sequence[Row], job: Job) -> BatchScores:
        """Yield the scores of all rows at once, as one batch."""
        yield range(len(rows)), self.run(rows, output=job.output, read=job.read)
