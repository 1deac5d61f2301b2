"""SIGTERM and Ctrl-C, without losing a step."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def stop_signals(say: Callable[[str], None]) -> Iterator[list[int]]:
    """Collect SIGTERM and SIGINT instead of dying: the loop ends after the step it is in.

    A second one ends the process at once.
    """
    received: list[int] = []

    def receive(number: int, _frame: object) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)
        say("stopping with a checkpoint after this step; once more stops at once, without one")

    try:
        previous = {number: signal.signal(number, receive) for number in (signal.SIGTERM, signal.SIGINT)}
    except ValueError:  # not the main thread, where signals do not arrive
        previous = {}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
