"""Admission: limit the number of requests in progress, and reject those that cannot meet their deadline."""

import math
from dataclasses import dataclass, field

from albertkit.serving.api_errors import ApiError
from albertkit.serving.batching import RowQueue
from albertkit.serving.metrics import Metrics
from albertkit.serving.work import DEADLINE_HEADER, Ticket

_MARGIN = 2.0  # admitted requests should meet their deadline even if the machine becomes slower


@dataclass(eq=False)
class Gate:
    """Admits requests and counts those in progress. Only one thread may use it."""

    max_requests: int
    """Maximum number of requests in progress."""
    queue: RowQueue
    """Queue of their rows."""
    metrics: Metrics
    """Receives the number of requests in progress."""
    inside: set[Ticket] = field(default_factory=set)
    """The requests in progress."""

    def enter(self, ticket: Ticket) -> None:
        """Admit a request.

        Raises:
            ApiError: its deadline has passed, too many requests are in progress, or they take too long for
                its deadline.
        """
        if ticket.seconds_left() <= 0:
            raise ticket.late()
        self.check()
        wait = self.expected_wait(ticket) if ticket.characters else 0.0
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
        self.inside.add(ticket)
        self.metrics.requests_in_progress.set(len(self.inside))

    def check(self) -> None:
        """Raise ApiError if the maximum number of requests is in progress."""
        if len(self.inside) >= self.max_requests:
            wait = self.expected_wait()
            raise ApiError(
                429,
                "overloaded",
                f"{len(self.inside)} requests are in progress, the maximum of this server. Try again later.",
                retry_after=math.ceil(max(1.0, wait / 2)),
            )

    def leave(self, ticket: Ticket) -> None:
        """Remove a finished request."""
        self.inside.discard(ticket)
        self.metrics.requests_in_progress.set(len(self.inside))

    def expected_wait(self, *tickets: Ticket) -> float:
        """Return the estimated seconds until all requests in progress, and these, are computed."""
        return self.queue.seconds_for(sum(map(self.queue.tokens_of, (*self.inside, *tickets))))
