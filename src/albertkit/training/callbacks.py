"""Callbacks of a training run: what the loop calls as it goes, in the main process."""

import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from albertkit.errors import ConfigError, DiskFullError, TrainingError, did_you_mean, short
from albertkit.training.run_state import RunState

if TYPE_CHECKING:
    from albertkit.training.distributed import World

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class RunProgress:
    """The progress of a run. The training loop updates it before it calls the callbacks."""

    output: Path
    """Folder of the run. With several seeds, it is a subfolder of the `output` folder."""
    settings: dict[str, Any]
    """The settings of the run by the names of their flags, and the "task" and the "model"."""
    resumed: bool = False
    """Whether the run was resumed from a checkpoint."""
    step: int = 0
    """Number of finished optimizer steps."""
    tokens: int = 0
    """Number of tokens trained on, without padding."""
    seconds: float = 0.0
    """Training time in seconds, up to the last log line, evaluation or checkpoint."""
    learning_rate: float = 0.0
    """Learning rate of the last step."""
    loss: float = math.nan
    """Training loss of the last step; NaN before the first step of this call."""
    finished: bool = False
    """Whether the run has reached its end; set when `on_end` is called."""
    stop_reason: str | None = None
    """The reason that was passed to `stop`."""

    def stop(self, reason: str) -> None:
        """End the run after the current step, as if it had reached its length.

        The loop evaluates the model and writes a checkpoint. If `on_checkpoint` calls this, the loop takes
        one more step.

        Args:
            reason: the reason, which is logged and saved in the checkpoint. The same call does not resume the
                run.
        """
        self.stop_reason = reason


class Callback:
    """Base class of callbacks. Override the methods you need; the others do nothing.

    The methods run in the main process only, in the order of the list of callbacks. If a method raises an
    exception, the run writes a checkpoint after the current step, ends, and raises the exception. The same
    call resumes the run.
    """

    def on_start(self, run: RunProgress) -> None:
        """Handle the start of a run, or its resumption at `run.step`, before the first step."""

    def on_step(self, run: RunProgress, metrics: dict[str, float]) -> None:
        """Handle an optimizer step.

        Args:
            run: the progress of the run.
            metrics: every `log_every` steps and at the last step of the run, the values of the line in
                `metrics.jsonl`: "train/loss" and other training metrics, averaged over the steps since the
                previous line; speed; and memory. At all other steps, the dict is empty.
        """

    def on_evaluation(self, run: RunProgress, metrics: dict[str, float]) -> None:
        """Handle an evaluation.

        Args:
            run: the progress of the run.
            metrics: metrics on the validation data, such as "eval/accuracy".
        """

    def on_checkpoint(self, run: RunProgress, folder: Path) -> None:
        """Handle a new checkpoint. `folder` is a complete model folder."""

    def on_rollback(self, run: RunProgress, metrics: dict[str, Any]) -> None:
        """Handle a rollback to the checkpoint of `run.step` after the loss diverged.

        Args:
            run: the progress after the rollback. The run repeats the later steps with other data.
            metrics: "rolled_back_from", the step that diverged, and "bad_loss", its loss as text.
        """

    def on_end(self, run: RunProgress) -> None:
        """Handle the end of the run, or an interruption. It is also called after an error."""


def checked_callbacks(callbacks: Iterable[Callback]) -> tuple[Callback, ...]:
    """Return the callbacks as a tuple.

    Raises:
        ConfigError: something else than a list of callbacks, or a method that looks like one of a callback.
    """
    if isinstance(callbacks, Callback) or not isinstance(callbacks, Iterable):
        raise ConfigError(f"callbacks is {short(callbacks)}. Expected a list of albertkit.Callback objects.")
    found = tuple(callbacks)
    for number, callback in enumerate(found):
        if not isinstance(callback, Callback):
            raise ConfigError(
                f"callbacks[{number}] is {short(callback)}. Expected an object of a subclass of "
                "albertkit.Callback."
            )
        known = [name for name in dir(Callback) if name.startswith("on_")]
        for name in dir(type(callback)):
            if name.startswith("on_") and name not in known and callable(getattr(callback, name)):
                raise ConfigError(
                    f"callbacks[{number}]: {type(callback).__name__} has the method {name}, which is never "
                    f"called{did_you_mean(name, known)}. The methods of a callback are {', '.join(known)}. "
                    "Give a method of your own another name."
                )
    return found


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
        self, callbacks: Sequence[Callback], run: RunProgress, world: "World", learning_rate: float
    ) -> None:
        self.run, self._world, self._learning_rate = run, world, learning_rate
        self.failed = False
        """Whether a callback has raised an error; equal in all processes."""
        self._error: Exception | None = None
        self._called = list(callbacks)
        self._started: list[Callback] = []

    def start(self, state: RunState, *, resumed: bool) -> None:
        """Call `on_start`. Only callbacks that return from it are called again."""
        self.run.resumed = resumed
        self.call("on_start", state)
        self._started = list(self._called)

    def call(self, event: str, state: RunState, *arguments: Any) -> None:
        """Call a method of the callbacks that have not failed. All processes wait for the main one."""
        self._update(state)
        self._called = [one for one in self._called if self._succeeds(one, event, *arguments)]
        self._agree(state)

    def _agree(self, state: RunState) -> None:
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
        self._agree(state)
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
