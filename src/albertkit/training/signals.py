"""SIGTERM and Ctrl-C, without losing a step."""

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger(__name__)


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Collect SIGTERM and SIGINT instead of exiting: the loop ends after the current step.

    A second Ctrl-C ends the process immediately. A second SIGTERM does not: `torchrun` forwards SIGTERM to
    processes that may already have received it.
    """
    received: list[int] = []

    def receive(number: int, _frame: object) -> None:
        if received and number == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(number)
        logger.info(
            "stopping with a checkpoint after this step; press Ctrl-C again to stop now, without a checkpoint"
        )

    try:
        previous = {number: signal.signal(number, receive) for number in (signal.SIGTERM, signal.SIGINT)}
    except ValueError:  # not the main thread, which alone receives signals
        previous = {}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def ignore_stop_signals(_worker: int) -> None:
    """Make a worker process ignore SIGTERM and SIGINT.

    They often go to all processes of a run. If a worker ended, the run would fail before its checkpoint.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
