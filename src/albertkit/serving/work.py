"""A request on its way to a model: its deadline, its rows and their results.

Shapes: R tokens of a row whose scores are returned, K scores of a token.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from albertkit.engines.engine import Engine, Job, Row
from albertkit.serving.api_errors import ApiError, too_much

DEADLINE_HEADER = "X-Request-Timeout"


@dataclass(eq=False, kw_only=True)
class Ticket:
    """A request in progress: its size, its deadline, and whether it was cancelled."""

    characters: int
    """Number of characters of the texts that the model reads; 0 if only the tokenizer is needed."""
    seconds: float
    """Time from its arrival until its deadline."""
    max_tokens: int | None = None
    """Maximum number of tokens."""
    urgent: bool = False
    """Whether its rows are computed before all others."""
    param: str | None = None
    """The header that set the deadline; None for the server's default."""
    tokens: int | None = None
    """Number of its tokens; None until it is tokenized."""
    tokens_left: int = 0
    """Number of tokens that are not computed yet."""
    tokenize_seconds: float = 0.0
    queue_seconds: float = 0.0
    compute_seconds: float = 0.0
    error: ApiError | None = None
    """The reason why it was cancelled."""
    arrived: float = field(default_factory=time.monotonic)
    _wake: threading.Event = field(default_factory=threading.Event)

    def seconds_left(self) -> float:
        """Return the time until the deadline."""
        return self.arrived + self.seconds - time.monotonic()

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


@dataclass(eq=False)
class Work:
    """The rows of one call of an engine, and their results so far."""

    ticket: Ticket
    engine: Engine
    rows: Sequence[Row]
    job: Job
    then: Callable[[np.ndarray], Any]
    budget: int
    """Maximum number of tokens per batch."""
    error: Exception | None = None

    def __post_init__(self) -> None:
        self.answers: list[Any] = [None] * len(self.rows)
        self.missing = len(self.rows)

    def is_wanted(self) -> bool:
        """Return whether the rows that are not computed are still needed."""
        return self.error is None and self.ticket.error is None

    def take(self, number: int, scores: np.ndarray) -> None:
        """Store the result of a row's scores (R, K)."""
        if not self.is_wanted():
            return
        try:
            if self.job.output == "hidden_states" and not scores.any():
                raise ApiError(
                    500,
                    "not_finite",
                    "the model's hidden states for this request are all zero. The model or the machine is "
                    "faulty. No results are returned.",
                )
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
