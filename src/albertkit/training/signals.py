"""SIGTERM and Ctrl-C, without losing a step."""

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger(__name__)


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Collect SIGTERM and SIGINT instead of exiting: the loop ends after the current step.

    A second signal ends the process immediately.
    """
    received: list[int] = []

    def receive(number: int, _frame: object) -> None:
        if received:
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
