"""Callbacks of a training run: what the loop calls as it goes, in the main process."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from albertkit.errors import ConfigError, DiskFullError, TrainingError, did_you_mean

if TYPE_CHECKING:
    from albertkit.training.distributed import World
    from albertkit.training.state import RunState

logger = logging.getLogger(__name__)


class Callback:
    """Base class of callbacks. Override the methods you need; the others do nothing.

    The methods run in the main process only, in the order of the list of callbacks. If a method raises an
    exception, the run writes a checkpoint after the current step, ends, and raises the exception. The same
    call resumes the run.
    """

    def on_start(self, run: "RunState") -> None:
        """Handle the start of a run, or its resumption at `run.step`, before the first step."""

    def on_step(self, run: "RunState", metrics: dict[str, float]) -> None:
        """Handle an optimizer step.

        Args:
            run: the state of the run.
            metrics: every `log_every` steps and at the last step of the run, the values of the line in
                `metrics.jsonl`: "train/loss" and other training metrics, averaged over the steps since the
                previous line; speed; and memory. At all other steps, the dict is empty.
        """

    def on_evaluation(self, run: "RunState", metrics: dict[str, float]) -> None:
        """Handle an evaluation.

        Args:
            run: the state of the run.
            metrics: metrics on the validation data, such as "eval/accuracy".
        """

    def on_checkpoint(self, run: "RunState", folder: Path) -> None:
        """Handle a new checkpoint. `folder` is a complete model folder."""

    def on_rollback(self, run: "RunState", metrics: dict[str, Any]) -> None:
        """Handle a rollback to the checkpoint of `run.step` after the loss diverged.

        Args:
            run: the state after the rollback. The run repeats the later steps with other data.
            metrics: "rolled_back_from", the step that diverged, and "bad_loss", its loss as text.
        """

    def on_end(self, run: "RunState") -> None:
        """Handle the end of the run, or an interruption. It is also called after an error."""


def check_callbacks(callbacks: Sequence[Callback]) -> None:
    """Raise ConfigError for other objects, and for methods that are never called because of their name."""
    if not isinstance(callbacks, Sequence) or not all(isinstance(one, Callback) for one in callbacks):
        raise ConfigError("callbacks: expected a list of albertkit.Callback objects.")
    events = [name for name in dir(Callback) if name.startswith("on_")]
    for callback in callbacks:
        for name in dir(callback):
            if name.startswith("on_") and name not in events:
                raise ConfigError(
                    f"{type(callback).__name__} has the method {name}, which is never called"
                    f"{did_you_mean(name, events)}. The methods of a callback are {', '.join(events)}."
                )


class CallbackList:
    """The callbacks of one run. Only the main process has any, but all processes make the same calls.

    The first exception is stored until the loop can end the run in all processes. The callback that raised it
    is called only once more, at the end.
    """

    def __init__(self, callbacks: Sequence[Callback], run: "RunState", world: "World") -> None:
        self.run, self._world = run, world
        self.failed = False  # whether a callback has raised an error; equal in all processes
        self._error: Exception | None = None
        self._called = list(callbacks)
        self._started: list[Callback] = []

    def call(self, event: str, *arguments: Any) -> None:
        """Call a method of the callbacks that have not failed. All processes wait for the main one."""
        run, stopped_before = self.run, self.run.stopped
        self._called = [callback for callback in self._called if self._succeeds(callback, event, *arguments)]
        if event == "on_start":
            self._started = list(self._called)
        if run.stopped is not None and stopped_before is None:
            logger.info("a callback stopped the run at step %d: %s", run.step, run.stopped)
        self._synchronize()

    def end(self) -> None:
        """Call `on_end` of all callbacks that returned from `on_start`, also of those that failed later."""
        for callback in self._started:
            self._succeeds(callback, "on_end")

    def raise_error(self) -> None:
        """Raise the first error of a callback; in other processes a TrainingError."""
        self._synchronize()
        if self._error:
            raise self._error
        if self.failed:
            raise TrainingError("a callback failed in the main process. See the error in its log.")

    def _synchronize(self) -> None:
        """Share with all processes whether a callback of the main process failed or stopped the run."""
        requests = {"errors": int(self._error is not None), "stops": int(self.run.stopped is not None)}
        requests = self._world.sum_counts([requests])
        self.failed = requests["errors"] > 0
        if requests["stops"] and self.run.stopped is None:
            self.run.stopped = "see the log of the main process"

    def _succeeds(self, callback: Callback, event: str, *arguments: Any) -> bool:
        try:
            getattr(callback, event)(self.run, *arguments)
        except DiskFullError:
            raise  # no checkpoint can be written either
        except Exception as error:
            name = f"{type(callback).__name__}.{event}"
            logger.error(f"{name} failed at step {self.run.step}, so the run ends: {error!r:.300}")
            self._error = self._error or error
            return False
        return True
