"""Admission: limit the number of requests in progress, and reject those that cannot meet their deadline."""

import math

from albertkit.serving.api_errors import ApiError
from albertkit.serving.batching import RowQueue
from albertkit.serving.metrics import Metrics
from albertkit.serving.work import DEADLINE_HEADER, Ticket

_MARGIN = 2.0  # admitted requests should meet their deadline even if the machine becomes slower


class Gate:
    """Admits requests and counts those in progress. Only one thread may use it.

    Args:
        most: maximum number of requests in progress.
        queue: queue of their rows.
        metrics: receives the number of requests in progress.
    """

    def __init__(self, most: int, queue: RowQueue, metrics: Metrics) -> None:
        self._most = most
        self._queue = queue
        self._metrics = metrics
        self._inside: set[Ticket] = set()

    def __len__(self) -> int:
        """Return the number of requests in progress."""
        return len(self._inside)

    def enter(self, ticket: Ticket) -> None:
        """Admit a request.

        Raises:
            ApiError: its deadline has passed, too many requests are in progress, or they take too long for
                its deadline.
        """
        if ticket.seconds_left() <= 0:
            raise ticket.late()
        self.check()
        wait = self.expected_wait(ticket)
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
        self._inside.add(ticket)
        self._metrics.requests_in_progress.set(len(self._inside))

    def check(self) -> None:
        """Raise ApiError if the maximum number of requests is in progress."""
        if len(self._inside) >= self._most:
            wait = self.expected_wait()
            raise ApiError(
                429,
                "overloaded",
                f"{len(self._inside)} requests are in progress, the maximum of this server. Try again later.",
                retry_after=math.ceil(max(1.0, wait / 2)),
            )

    def leave(self, ticket: Ticket) -> None:
        """Remove a finished request."""
        self._inside.discard(ticket)
        self._metrics.requests_in_progress.set(len(self._inside))

    def expected_wait(self, *tickets: Ticket) -> float:
        """Return the estimated seconds until all requests in progress, and these, are computed."""
        tokens = sum(map(self._queue.tokens_of, (*self._inside, *tickets)))
        return self._queue.seconds_per_token * tokens
