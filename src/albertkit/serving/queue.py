"""The requests in progress, and batches of their rows: one queue, and one thread that computes.

A request is rejected if too many are in progress, or if they take too long for its deadline. Its pipeline
runs in a thread of its own, with a `QueuedEngine`, which waits while the rows are in the queue.

The order is fair. A row's turn is the time of its arrival, plus the time that earlier rows of the same
request take, so a large request does not delay small ones. A batch combines the next row with rows of
similar length whose turn is near. A batch that raises is computed again, request by request.
"""

import threading
import time
from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from albertkit.engines.engine import Engine, Job, Row
from albertkit.extras import optional
from albertkit.serving.limits import DEADLINE_HEADER, ApiError, overloaded, too_much
from albertkit.serving.metrics import Metrics
from albertkit.serving.settings import ServingSettings

torch: Any = optional("torch", extra="torch")

_LOOK_AHEAD = 2  # batches of rows to choose similar lengths from; with more, new rows would overtake old ones
_SMOOTHING = 0.1  # weight of the last batch in the mean time per token
_MIN_FILL = 0.25  # how full a batch must be to count in that mean: small batches need more time per token
_MARGIN = 2.0  # admitted requests should meet their deadline even if the machine becomes slower
_VALID_SECONDS = 60  # maximum age of that mean: one slow batch must not reject large requests forever
SPECIAL_CHARACTERS = 10
"""Number of characters with as many tokens as [CLS] and two [SEP]."""


@dataclass(eq=False, kw_only=True)
class Ticket:
    """A request in progress: its size, its deadline, and whether it was cancelled."""

    characters: int
    """Number of characters of the texts that the model reads; 0 if only the tokenizer is needed."""
    seconds: float
    """Time from its arrival until its deadline."""
    max_tokens: int | None = None
    urgent: bool = False
    """Whether its rows are computed before all others."""
    param: str | None = None
    """The header that set the deadline; None for the server's default."""
    tokens: int | None = None
    """Number of its tokens; None until it is tokenized."""
    rows: int = 0
    """Number of its rows."""
    tokens_left: int = 0
    """Number of tokens that are not computed yet."""
    tokenize_seconds: float = 0.0
    queue_seconds: float = 0.0
    compute_seconds: float = 0.0
    error: ApiError | None = None
    """The reason why it was cancelled."""
    arrived: float = field(default_factory=time.monotonic)
    wake: threading.Event = field(default_factory=threading.Event)
    """Set when the thread of the request must go on: its rows are computed, or it was cancelled."""

    def seconds_left(self) -> float:
        return self.arrived + self.seconds - time.monotonic()

    def cancel(self, error: ApiError) -> None:
        """Cancel the request: its rows leave the queue, and its thread raises the error."""
        self.error = error
        self.wake.set()

    def add_tokens(self, count: int) -> int:
        """Add tokens of the request, and return its number of tokens."""
        self.tokens = (self.tokens or 0) + count
        if self.max_tokens is not None and self.tokens > self.max_tokens:
            todo = "Send less text in one request"
            raise too_much("too_many_tokens", "tokens", self.tokens, self.max_tokens, todo)
        return self.tokens

    def late(self) -> ApiError:
        """Return the error for a request after its deadline."""
        advice = f"Send less text, or allow more time ({DEADLINE_HEADER})."
        message = f"the response took more than {self.seconds:g} seconds. {advice}"
        return ApiError(504, "deadline", message, param=self.param)

    def wait(self) -> None:
        """Wait until the rows are computed, the request is cancelled, or the deadline has passed."""
        if not self.wake.wait(min(max(0.0, self.seconds_left()), threading.TIMEOUT_MAX)):
            self.error = self.error or self.late()  # so its rows leave the queue
        self.wake.clear()
        if self.error is not None:
            raise self.error


@dataclass(eq=False)
class Work:
    """The rows of one call of an engine, and their results so far."""

    ticket: Ticket
    engine: Engine
    rows: Sequence[Row]
    job: Job
    then: Callable[[np.ndarray], Any]
    error: Exception | None = None

    def __post_init__(self) -> None:
        self.answers: list[Any] = [None] * len(self.rows)
        self.missing = len(self.rows)

    def is_wanted(self) -> bool:
        return self.error is None and self.ticket.error is None

    def take(self, number: int, scores: np.ndarray) -> None:
        """Store the result of a row's scores (R, K)."""
        if not self.is_wanted():
            return
        try:
            if self.job.output == "hidden_states" and not scores.any():
                message = "the model's hidden states are all zero: the model or the machine is faulty."
                raise ApiError(500, "not_finite", f"{message} No results are returned.")
            self.answers[number] = self.then(scores)
        except Exception as error:  # it affects only this request
            self.fail(error)
            return
        self.missing -= 1
        if not self.missing:
            self.ticket.wake.set()

    def fail(self, error: Exception) -> None:
        """Set the error, which the thread of the request raises."""
        self.error = error
        self.ticket.wake.set()


class _Queued(NamedTuple):
    """A row in the queue."""

    turn: float
    length: int
    number: int
    work: Work


class RowQueue:
    """Computes rows of any requests for any models, one batch after the other."""

    def __init__(self, metrics: Metrics, settings: ServingSettings, *, torch_threads: int | None) -> None:
        self.requests: set[Ticket] = set()
        """The requests in progress."""
        self.seconds_per_token = 0.0
        """Running mean over the batches that were not small; 0 before the first."""
        self.tokens_per_character = 0.3
        self._metrics, self._settings = metrics, settings
        self._torch_threads = torch_threads
        self._changed = threading.Condition()
        self._rows: list[_Queued] = []  # in order of their turns
        self._measured = time.monotonic()  # when `seconds_per_token` changed last
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="compute", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise ApiError if the maximum number of requests is in progress."""
        if len(self.requests) >= self._settings.max_requests:
            message = f"{len(self.requests)} requests are in progress, which is the maximum."
            raise overloaded(f"{message} Try again later.", self._expected_wait() / 2)

    def enter(self, ticket: Ticket) -> None:
        """Admit a request."""
        if ticket.seconds_left() <= 0:
            raise ticket.late()
        self.check()
        wait = self._expected_wait(ticket) if ticket.characters else 0.0
        if wait * _MARGIN > ticket.seconds_left():
            seconds = f"{wait:.1f}" if wait >= 1 else f"{wait:.1g}"
            message = (
                f"with the requests before it, this request takes about {seconds} seconds. Expected at most "
                f"{ticket.seconds:g} seconds. Try again later, or allow more time ({DEADLINE_HEADER})."
            )
            raise overloaded(message, wait * _MARGIN - ticket.seconds_left(), ticket.param)
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
        """Wait until all rows are computed, and return the result of `then` for each row."""
        if not work.rows:
            return []
        ticket, submitted = work.ticket, time.monotonic()
        if ticket.error is not None:
            raise ticket.error
        lengths = [len(row.input_ids) for row in work.rows]
        before = 0
        with self._changed:
            tokens = ticket.add_tokens(sum(lengths))
            ticket.rows += len(lengths)
            if ticket.characters:
                # Special tokens have a large share in short texts, and a small share in long texts.
                ratio = tokens / (ticket.characters + SPECIAL_CHARACTERS * len(lengths))
                self.tokens_per_character += _SMOOTHING * (ratio - self.tokens_per_character)
            ticket.tokens_left += sum(lengths)
            # The longest rows come first, which engines compute fastest.
            for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
                turn = 0.0 if ticket.urgent else submitted + before * self.seconds_per_token
                insort(
                    self._rows, _Queued(turn, lengths[number], number, work), key=lambda queued: queued.turn
                )
                before += lengths[number]
            self._metrics.queued_rows.set(len(self._rows))
            self._changed.notify()
        computed_before = ticket.compute_seconds
        ticket.wait()
        # This includes the batches of other requests between those of this request.
        ticket.queue_seconds += time.monotonic() - submitted - (ticket.compute_seconds - computed_before)
        if work.error is not None:
            raise work.error
        return work.answers

    def _expected_wait(self, *tickets: Ticket) -> float:
        """Return the estimated seconds until all requests in progress, and these, are computed."""
        tokens = 0.0
        for each in (*self.requests, *tickets):
            is_tokenized = each.tokens is not None
            tokens += each.tokens_left if is_tokenized else each.characters * self.tokens_per_character
        return self._seconds_for(tokens)

    def _seconds_for(self, tokens: float) -> float:
        """Return the estimated seconds to compute tokens; 0 if the speed was not measured recently."""
        is_valid = time.monotonic() - self._measured < _VALID_SECONDS
        return self.seconds_per_token * tokens if is_valid else 0.0

    def is_alive(self) -> bool:
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

    def _next(self) -> list[_Queued]:
        """Return the rows of the next batch, or none if the queue is closed and empty."""
        with self._changed:
            while True:
                while not self._drop_cancelled():
                    if self._closed:
                        return []
                    self._changed.wait()
                until = time.monotonic() + self._settings.batch_wait
                while self._are_more_coming() and (left := until - time.monotonic()) > 0:
                    self._changed.wait(left)
                if self._drop_cancelled():
                    return self._take()

    def _drop_cancelled(self) -> bool:
        """Remove the rows of cancelled requests, and return whether rows are left."""
        self._set([queued for queued in self._rows if queued.work.is_wanted()])
        return bool(self._rows)

    def _set(self, rows: list[_Queued]) -> None:
        self._rows = rows
        self._metrics.queued_rows.set(len(rows))

    def _are_more_coming(self) -> bool:
        """Return whether the next batch is not full, and requests are being tokenized."""
        is_full = sum(queued.length for queued in self._rows) >= self._budget_of(self._rows[0].work)
        return not is_full and any(ticket.tokens is None for ticket in self.requests)

    def _budget_of(self, work: Work) -> int:
        """Return the maximum number of tokens per batch."""
        return self._settings.batch_tokens or work.engine.batch_tokens

    def _take(self) -> list[_Queued]:
        """Remove the rows of the next batch from the queue."""
        first = self._rows[0]
        work, tokens = first.work, 0
        budget = self._budget_of(work)
        near: list[_Queued] = []
        for queued in self._rows:
            if tokens > _LOOK_AHEAD * budget:
                break
            if queued.work.engine is work.engine and queued.work.job.output == work.job.output:
                near.append(queued)
                tokens += queued.length
        # Sorting is stable, so the first row stays first.
        near.sort(key=lambda queued: abs(queued.length - first.length))
        batch: list[_Queued] = []
        tokens = 0
        for queued in near:
            tokens += queued.length
            if batch and tokens > budget:
                break
            batch.append(queued)
        taken = set(map(id, batch))
        self._set([queued for queued in self._rows if id(queued) not in taken])
        return batch

    def _compute(self, batch: list[_Queued]) -> None:
        work = batch[0].work
        rows = [queued.work.rows[queued.number] for queued in batch]
        reads = {id(row): queued.work.job.read for row, queued in zip(rows, batch, strict=True)}
        begin, budget = time.monotonic(), self._budget_of(work)
        try:
            scores = work.engine.run(
                rows, output=work.job.output, read=lambda row: reads[id(row)](row), batch_tokens=budget
            )
        except Exception as error:
            requests = dict.fromkeys(queued.work for queued in batch)
            if len(requests) == 1:
                work.fail(error)
                return
            for request in requests:
                self._compute([queued for queued in batch if queued.work is request])
            return
        seconds, tokens = time.monotonic() - begin, sum(queued.length for queued in batch)
        if tokens >= _MIN_FILL * budget:
            weight = _SMOOTHING if self._seconds_for(tokens) else 1.0
            self._measured = time.monotonic()
            self.seconds_per_token += weight * (seconds / tokens - self.seconds_per_token)
        self._metrics.batch_rows.observe(len(batch))
        self._metrics.batch_tokens.observe(tokens)
        for ticket in {queued.work.ticket for queued in batch}:
            ticket.compute_seconds += seconds
        for queued, row_scores in zip(batch, scores, strict=True):
            queued.work.ticket.tokens_left -= queued.length
            queued.work.take(queued.number, row_scores)


@dataclass(eq=False)
class QueuedEngine(Engine):
    """An engine that puts the rows of a request into the queue of all requests."""

    engine: Engine
    """The engine that computes the rows."""
    queue: RowQueue
    ticket: Ticket

    def compute(self, rows: Sequence[Row], job: Job, then: Callable[[np.ndarray], Any]) -> list[Any]:
        """Compute rows as `Engine.compute` does; the queue decides the sizes of batches."""
        return self.queue.compute(Work(self.ticket, self.engine, rows, job, then))
