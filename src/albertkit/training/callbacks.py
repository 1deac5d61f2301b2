"""Callbacks of a training run: what the loop calls as it goes, in the main process."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from albertkit.errors import ConfigError, did_you_mean, short


@dataclass(kw_only=True)
class RunProgress:
    """The progress of a run. The training loop updates it before it calls the callbacks."""

    output: Path
    """Folder of the run. With several seeds or after a restart, it is a subfolder of the `output` folder."""
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
