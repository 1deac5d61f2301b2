"""Callbacks of a training run: what the loop calls as it goes, in the main process."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from albertkit.errors import ConfigError


@dataclass(kw_only=True)
class RunProgress:
    """Where a run stands. The loop updates it before it calls the callbacks."""

    output: Path
    """Folder of the run. With several seeds or after a restart it is a folder in that of `finetune`."""
    settings: dict[str, Any]
    """The settings of the run by the names of their flags, and with "task" and "model" what is trained."""
    resumed: bool = False
    """Whether the run continues from a checkpoint."""
    step: int = 0
    """Optimizer steps done."""
    tokens: int = 0
    """Tokens seen, without padding."""
    seconds: float = 0.0
    """Time spent in training at the last log line, evaluation or checkpoint."""
    learning_rate: float = 0.0
    """Learning rate of the last step."""
    loss: float = math.nan
    """Training loss of the last step of this call; NaN before it."""
    finished: bool = False
    """Whether the run has reached its end; set when `on_end` is called."""
    stop_reason: str | None = None
    """What `stop` was called with."""

    def stop(self, reason: str) -> None:
        """End the run after the current step, as if it had reached its length.

        The loop evaluates the model and writes a checkpoint. If `on_checkpoint` calls this, the loop takes
        one more step.

        Args:
            reason: logged, and saved in the checkpoint. The same call does not continue the run.
        """
        self.stop_reason = reason


class Callback:
    """Base class of callbacks. Override the methods you need; the others do nothing.

    The methods run in the main process only, and in the order of the list. If one raises an exception, the
    run ends with a checkpoint after the current step and raises it; the same call continues the run.
    """

    def on_start(self, run: RunProgress) -> None:
        """Handle the start of a run, or of its continuation at `run.step`, before anything is computed."""

    def on_step(self, run: RunProgress, metrics: dict[str, float]) -> None:
        """Handle an optimizer step.

        Args:
            run: where the run stands.
            metrics: every `log_every` steps and at the last step of the run, the line of `metrics.jsonl`:
                "train/loss" and other training metrics averaged over the steps since the last line, speed
                and memory. Otherwise empty.
        """

    def on_evaluation(self, run: RunProgress, metrics: dict[str, float]) -> None:
        """Handle an evaluation.

        Args:
            run: where the run stands.
            metrics: metrics on the validation data, such as "eval/accuracy".
        """

    def on_checkpoint(self, run: RunProgress, folder: Path) -> None:
        """Handle a checkpoint that was written to `folder`, which is a complete model folder."""

    def on_rollback(self, run: RunProgress, metrics: dict[str, Any]) -> None:
        """Handle the return to the checkpoint of `run.step` after a loss that diverged.

        Args:
            run: where the run stands now. The steps after it are taken again, with other data.
            metrics: "rolled_back_from", the step that diverged, and "bad_loss", its loss as text.
        """

    def on_end(self, run: RunProgress) -> None:
        """Handle the end of the run or of this part of it, also after an error."""


def checked_callbacks(callbacks: Iterable[Callback]) -> tuple[Callback, ...]:
    """Return the callbacks as a tuple.

    Raises:
        ConfigError: something else than a list of callbacks.
    """
    if isinstance(callbacks, Callback) or not isinstance(callbacks, Iterable):
        raise ConfigError(f"callbacks is {callbacks!r:.80}. Expected a list of albertkit.Callback objects.")
    found = tuple(callbacks)
    for number, callback in enumerate(found):
        if not isinstance(callback, Callback):
            raise ConfigError(
                f"callbacks[{number}] is {callback!r:.80}. Expected an object of a subclass of "
                "albertkit.Callback."
            )
    return found
