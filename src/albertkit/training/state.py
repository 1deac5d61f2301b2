"""The state of a run: what callbacks get, what checkpoints contain, and what the training loop returns."""

import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from albertkit.metrics import is_better


@dataclass(kw_only=True)
class LossWatch:
    """The running mean and variance of the loss."""

    MEMORY = 0.98  # share of the running mean that remains: about the last 50 losses count
    START = 100  # number of losses before a spike can be distinguished from the decrease at the start

    seen: int = 0
    mean: float = 0.0
    variance: float = 0.0

    def is_bad(self, loss: float, spike: float) -> bool:
        """Return whether a loss is NaN or infinite, or `spike` standard deviations above the running mean."""
        if not math.isfinite(loss):
            return True
        return self.seen >= self.START and loss > self.mean + spike * math.sqrt(self.variance)

    def add(self, loss: float) -> None:
        # The first losses have equal weights, so that the mean does not start at 0.
        share = max(1 - self.MEMORY, 1 / (self.seen + 1))
        difference = loss - self.mean
        self.mean += share * difference
        self.variance = (1 - share) * (self.variance + share * difference**2)
        self.seen += 1


@dataclass(kw_only=True)
class RunState:
    """The state of a run: what callbacks get, and the result of the training loop."""

    output: Path
    """Folder of the run. With several seeds, it is a subfolder of the `output` folder."""
    settings: dict[str, Any] = field(default_factory=dict)
    """The settings of the run by the names of their flags, and its data, its "task" and its "model"."""
    step: int = 0
    """Number of finished optimizer steps."""
    tokens: int = 0
    """Number of tokens trained on, without padding."""
    seconds: float = 0.0
    """Training time in seconds over all calls, up to the last log line, evaluation or checkpoint."""
    schedule_factor: float = 0.0
    """Factor of the peak learning rate in the last step."""
    learning_rate: float = 0.0
    """Learning rate of the last step."""
    loss: float = math.nan
    """Training loss of the last step; NaN before the first step of this call."""
    position: dict[str, int] | None = None
    """Position in the data of the next batch; None at the start."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Metrics of the last evaluation; empty before it, and in processes other than the main one."""
    best: float | None = None
    """Best value so far of the metric that selects the model."""
    best_step: int = 0
    """Step of the best value."""
    best_loss: float | None = None
    """Running mean of the training loss at that step; None before the first step. It breaks ties."""
    best_metrics: dict[str, float] = field(default_factory=dict)
    """All metrics of the best step; empty before the first value."""
    stale_evaluations: int = 0
    """Number of evaluations since the last better value."""
    watch: LossWatch = field(default_factory=LossWatch)
    """Statistics of the losses, to detect spikes."""
    resumed: bool = False
    """Whether the run was resumed from a checkpoint."""
    finished: bool = False
    """Whether the run has reached its end; set when `on_end` is called."""
    stopped: str | None = None
    """The reason why a callback ended the run before its length."""
    signal: int | None = None
    """Number of the signal that ended the call."""

    def stop(self, reason: str) -> None:
        """End the run after the current step, as if it had reached its length.

        The loop evaluates the model and writes a checkpoint. If `on_checkpoint` calls this, the loop takes
        one more step.

        Args:
            reason: the reason, which is logged and saved in the checkpoint. The same call does not resume the
                run.
        """
        self.stopped = reason

    def is_best(self, value: float, *, lower: bool) -> bool:
        """Record the last evaluation; return whether its `value` is the best so far.

        The best value is the lowest if `lower` is true, else the highest. Of equal values, that with the
        lowest training loss is the best; the value before the training is never the best of them. Equal
        values are stale, except 0: F1 is 0 until a model predicts its first rare label.
        """
        loss = self.watch.mean
        improves = is_better(value, math.nan if self.best is None else self.best, lower=lower)
        is_tie = value == self.best and self.step > 0
        if improves:
            self.stale_evaluations = 0
        elif value or not is_tie:
            self.stale_evaluations += 1
        if improves or (is_tie and (self.best_loss is None or loss < self.best_loss)):
            self.best, self.best_step, self.best_metrics = value, self.step, self.metrics
            self.best_loss = loss if self.step else None
            return True
        return False

    def saved(self) -> dict[str, Any]:
        """Return the values that a checkpoint contains."""
        return {name: value for name, value in asdict(self).items() if name not in _OF_A_CALL}

    def restore(self, saved: "RunState") -> None:
        """Take the values of a checkpoint."""
        vars(self).update({name: value for name, value in vars(saved).items() if name not in _OF_A_CALL})

    def roll_back_to(self, saved: "RunState", position: dict[str, int]) -> None:
        """Return to a checkpoint, but continue at `position` in the data.

        The time, the best model, and the request of a callback to stop remain.
        """
        remaining = ("best", "best_step", "best_loss", "best_metrics", "seconds", "stopped")
        kept = {name: getattr(self, name) for name in remaining}
        self.restore(saved)
        vars(self).update(kept | {"position": position})
        # An evaluation after the checkpoint may have saved the best model, which stays in its folder. The
        # evaluations since the checkpoint are repeated, so they do not count.
        if self.best_step > self.step:
            self.stale_evaluations = 0


_OF_A_CALL = {"output", "settings", "learning_rate", "loss", "resumed", "finished", "signal"}
"""The fields that are not in checkpoints."""
