"""What one request asks of a model: until when, which rows, and what has been made of them.

Shapes: R tokens read of a row, K scores of a token.
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
    """One request on its way: how much it asks for, until when, and whether anybody still waits for it.

    Args:
        characters: of its texts, as they are tokenized.
        seconds: until its deadline.
        max_tokens: most tokens that it may have.
        urgent: its rows are the next to be computed.
        param: the header that gave the deadline; None for the server's own.
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
        """Take its rows from the queue; its thread raises the error."""
        self.error = error
        self._wake.set()

    def done(self) -> None:
        """Wake the thread that waits for the rows."""
        self._wake.set()

    def add_tokens(self, count: int) -> int:
        """Count tokens of the request; return all that it has.

        Raises:
            ApiError: they are more than it may have.
        """
        self.tokens = (self.tokens or 0) + count
        if self.max_tokens is not None and self.tokens > self.max_tokens:
            todo = "Send less text in one request"
            raise too_much("too_many_tokens", "tokens", self.tokens, self.max_tokens, todo)
        return self.tokens

    def late(self) -> ApiError:
        """Return the error of a request whose time is over."""
        return ApiError(
            504,
            "deadline",
            f"there was no answer within {self.seconds:g} seconds. Send less text, or allow "
            f"more time ({DEADLINE_HEADER})",
            param=self.param,
        )

    def wait(self) -> None:
        """Wait until `done` or `cancel` is called, or the time is over.

        Raises:
            ApiError: the request was cancelled, or is late.
        """
        if not self._wake.wait(min(max(0.0, self.seconds_left()), threading.TIMEOUT_MAX)):
            self.error = self.error or self.late()  # so its rows leave the queue
        self._wake.clear()
        if self.error is not None:
            raise self.error


class Work:
    """The rows of one call of an engine, and what has been made of them so far."""

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
        """Return whether anybody waits for the rows that are not computed."""
        return self.error is None and self.ticket.error is None

    def take(self, number: int, scores: np.ndarray) -> None:
        """Keep what is to be kept of the scores (R, K) of a row."""
        if not self.is_wanted():
            return
        try:
            _check(scores, self.output)
            self.answers[number] = self.then(scores)
        except Exception as error:  # of this request alone
            self.fail(error)
            return
        self.missing -= 1
        if not self.missing:
            self.ticket.done()

    def fail(self, error: Exception) -> None:
        """End with an error, which is raised in the thread of the request."""
        self.error = error
        self.ticket.done()


def _check(scores: np.ndarray, output: Output) -> None:
    """Raise ApiError for scores that no sound model gives; normed states are never all zero."""
    if not np.isfinite(scores).all() or (output == "hidden_states" and not scores.any()):
        raise ApiError(
            500,
            "not_finite",
            "the model's scores for this request are no numbers, or all zero: a fault of the model or the "
            "machine. Nothing that was computed is returned",
        )
