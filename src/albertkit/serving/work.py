"""A request on its way to a model: its deadline, its rows and their results.

Shapes: R tokens of a row whose scores are returned, K scores of a token.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from albertkit.engines.engine import Engine, Read, Row
from albertkit.heads import Output
from albertkit.serving.api_errors import ApiError, too_much

DEADLINE_HEADER = "X-Request-Timeout"


class Ticket:
    """A request in progress: its size, its deadline, and whether it was cancelled.

    Args:
        characters: number of characters of its texts, as they are tokenized.
        seconds: time until its deadline.
        max_tokens: maximum number of tokens.
        urgent: whether its rows are computed before all others.
        param: the header that set the deadline; None for the server's default.
    """

    def __init__(
        self,
        *,
        characters: int,
        seconds: float,
        max_tokens: int | None = None,
        urgent: bool = False,
        param: str | None = None,
    ) -> None:
        self.characters = characters
        self.seconds = seconds
        self.param = param
        self.arrived = time.monotonic()
        self.deadline = self.arrived + seconds
        self.max_tokens = max_tokens
        self.urgent = urgent
        self.tokens: int | None = None  # not tokenized yet
        self.tokens_left = 0
        self.tokenize_seconds = self.queue_seconds = self.compute_seconds = 0.0
        self.error: ApiError | None = None
        self._wake = threading.Event()

    def seconds_left(self) -> float:
        """Return the time until the deadline."""
        return self.deadline - time.monotonic()

    def cancel(self, error: ApiError) -> None:
        """Cancel the request: its rows leave the queue, and its thread raises the error."""
        self.error = error
        self._wake.set()

    def done(self) -> None:
        """Wake the thread that waits for the rows."""
        self._wake.set()

    def add_tokens(self, count: int) -> int:
        """Add tokens of the request, and return its number of tokens.

        Raises:
            ApiError: the request has more than its maximum number of tokens.
        """
        self.tokens = (self.tokens or 0) + count
        if self.max_tokens is not None and self.tokens > self.max_tokens:
            todo = "Send less text in one request"
            raise too_much("too_many_tokens", "tokens", self.tokens, self.max_tokens, todo)
        return self.tokens

    def late(self) -> ApiError:
        """Return the error for a request after its deadline."""
        return ApiError(
            504,
            "deadline",
            f"the response took more than {self.seconds:g} seconds. Send less text, or allow more time "
            f"({DEADLINE_HEADER}).",
            param=self.param,
        )

    def wait(self) -> None:
        """Wait until `done` or `cancel` is called, or the deadline has passed.

        Raises:
            ApiError: the request was cancelled, or is late.
        """
        if not self._wake.wait(min(max(0.0, self.seconds_left()), threading.TIMEOUT_MAX)):
            self.error = self.error or self.late()  # so its rows leave the queue
        self._wake.clear()
        if self.error is not None:
            raise self.error


class Work:
    """The rows of one call of an engine, and their results so far."""

    def __init__(
        self,
        ticket: Ticket,
        engine: Engine,
        rows: Sequence[Row],
        *,
        output: Output,
        read: Read,
        then: Callable[[np.ndarray], Any],
        budget: int,
    ) -> None:
        self.ticket = ticket
        self.engine = engine
        self.rows = rows
        self.output: Output = output
        self.read = read
        self.then = then
        self.budget = budget
        self.answers: list[Any] = [None] * len(rows)
        self.missing = len(rows)
        self.error: Exception | None = None

    def is_wanted(self) -> bool:
        """Return whether the rows that are not computed are still needed."""
        return self.error is None and self.ticket.error is None

    def take(self, number: int, scores: np.ndarray) -> None:
        """Store the result of a row's scores (R, K)."""
        if not self.is_wanted():
            return
        try:
            _check(scores, self.output)
            self.answers[number] = self.then(scores)
        except Exception as error:  # it affects only this request
            self.fail(error)
            return
        self.missing -= 1
        if not self.missing:
            self.ticket.done()

    def fail(self, error: Exception) -> None:
        """Set the error, which the thread of the request raises."""
        self.error = error
        self.ticket.done()


def _check(scores: np.ndarray, output: Output) -> None:
    """Raise ApiError for scores that are NaN, infinite, or hidden states that are all zero."""
    if not np.isfinite(scores).all() or (output == "hidden_states" and not scores.any()):
        raise ApiError(
            500,
            "not_finite",
            "the model's scores for this request are not finite, or all zero. The model or the machine is "
            "faulty. No results are returned.",
        )
