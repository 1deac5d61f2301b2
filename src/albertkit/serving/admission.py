"""Which requests are taken: so many at once, and those that can be answered in time."""

import math

from albertkit.serving.api_errors import ApiError
from albertkit.serving.batching import RowQueue
from albertkit.serving.metrics import Metrics
from albertkit.serving.work import DEADLINE_HEADER, Ticket

_MARGIN = 2.0  # what is taken should be done in its time even where the machine gets slower


class Gate:
    """Counts the requests in work, for one thread.

    Args:
        most: requests at once.
        queue: where their rows wait.
        metrics: is told how many there are.
    """

    def __init__(self, most: int, queue: RowQueue, metrics: Metrics) -> None:
        self._most = most
        self._queue = queue
        self._metrics = metrics
        self._inside: set[Ticket] = set()

    def __len__(self) -> int:
        """Requests in work."""
        return len(self._inside)

    def enter(self, ticket: Ticket) -> None:
        """Take a request.

        Raises:
            ApiError: its time is over, there are too many, or those before it take longer than it has time.
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
                f"behind the requests before it this one takes about {seconds} seconds; an answer is wanted "
                f"within {ticket.seconds:g} seconds. Try again later, or with a longer {DEADLINE_HEADER}",
                param=ticket.param,
                retry_after=math.ceil(max(1.0, wait * _MARGIN - ticket.seconds_left())),
            )
        self._inside.add(ticket)
        self._metrics.requests_in_progress.set(len(self._inside))

    def check(self) -> None:
        """Raise ApiError where there is no room for one more."""
        if len(self._inside) >= self._most:
            wait = self.expected_wait()
            raise ApiError(
                429,
                "overloaded",
                f"{len(self._inside)} requests are in work, as many as this server takes. Try again later",
                retry_after=math.ceil(max(1.0, wait / 2)),
            )

    def leave(self, ticket: Ticket) -> None:
        """Note the end of a request."""
        self._inside.discard(ticket)
        self._metrics.requests_in_progress.set(len(self._inside))

    def expected_wait(self, *tickets: Ticket) -> float:
        """Return the seconds until what is in work now is computed, and then these."""
        tokens = sum(map(self._queue.tokens_of, (*self._inside, *tickets)))
        return self._queue.seconds_per_token * tokens
