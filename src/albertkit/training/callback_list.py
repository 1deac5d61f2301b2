"""The callbacks of one run: the main process calls them in order, and all processes follow their requests."""

import logging
from collections.abc import Sequence
from typing import Any

from albertkit.errors import DiskFullError, TrainingError
from albertkit.training.callbacks import Callback, RunProgress
from albertkit.training.distributed import World
from albertkit.training.run_state import RunState

logger = logging.getLogger(__name__)


class CallbackList:
    """The callbacks of one run.

    The first exception is kept until the loop can end the run in all processes. The callback that raised it
    is called only once more, at the end.

    Args:
        callbacks: the callbacks of this process; only the main one has any.
        run: the object passed to the callbacks.
        world: the processes of the run.
        learning_rate: peak learning rate of the run.
    """

    def __init__(
        self, callbacks: Sequence[Callback], run: RunProgress, world: World, learning_rate: float
    ) -> None:
        self.run, self._world, self._learning_rate = run, world, learning_rate
        self.failed = False
        """Whether a callback has raised an error, which all processes know after `agree`."""
        self._error: Exception | None = None
        self._called = list(callbacks)
        self._started: list[Callback] = []

    def start(self, state: RunState, *, resumed: bool) -> None:
        """Call `on_start`. Only callbacks that return from it are called again."""
        self.run.resumed = resumed
        self.call("on_start", state)
        self._started = list(self._called)
        self.agree(state)

    def call(self, event: str, state: RunState, *arguments: Any) -> None:
        """Call a method of the callbacks that have not failed."""
        self._update(state)
        self._called = [one for one in self._called if self._succeeds(one, event, *arguments)]

    def agree(self, state: RunState) -> None:
        """Tell all processes what callbacks of the main one requested: a stop, or the end after an error."""
        reason = self.run.stop_reason
        asked = {"errors": int(self._error is not None), "stops": int(reason is not None)}
        asked = self._world.sum_counts([asked])
        self.failed = asked["errors"] > 0
        if asked["stops"] and state.stopped is None:
            state.stopped = reason or "see the log of the main process"
            if self._world.is_main:
                logger.info("a callback stopped the run at step %d: %s", state.step, reason)

    def end(self, state: RunState, *, finished: bool) -> None:
        """Call `on_end`, also of callbacks that have failed."""
        self._update(state)
        self.run.finished = finished
        for callback in self._started:
            self._succeeds(callback, "on_end")

    def raise_error(self, state: RunState) -> None:
        """Raise the first error of a callback; in other processes a TrainingError."""
        self.agree(state)
        if self._error:
            raise self._error
        if self.failed:
            raise TrainingError("a callback failed in the main process. See the error in its log.")

    def _update(self, state: RunState) -> None:
        run = self.run
        run.step, run.tokens, run.seconds = state.step, state.tokens, state.seconds
        run.learning_rate = self._learning_rate * state.schedule_factor

    def _succeeds(self, callback: Callback, event: str, *arguments: Any) -> bool:
        try:
            getattr(callback, event)(self.run, *arguments)
        except DiskFullError:
            raise  # no checkpoint can be written either
        except Exception as error:
            name = f"{type(callback).__name__}.{event}"
            logger.error(f"{name} failed at step {self.run.step}, which ends the run: {error!r:.300}")
            self._error = self._error or error
            return False
        return True
