"""The progress of a run, and the detection of bad losses."""

import math
from dataclasses import dataclass, field

from albertkit.metrics.comparing import is_better

MEMORY = 0.98
"""Share of the running mean that remains after one more loss, so that about the last 50 losses count."""
WATCH_FROM = 100
"""Number of losses before a spike can be distinguished from the decrease at the start."""


@dataclass(kw_only=True)
class LossWatch:
    """The running mean and variance of the loss."""

    seen: int = 0
    mean: float = 0.0
    variance: float = 0.0

    def is_bad(self, loss: float, spike: float) -> bool:
        """Return whether a loss is NaN or infinite, or `spike` standard deviations above the running mean."""
        if not math.isfinite(loss):
            return True
        return self.seen >= WATCH_FROM and loss > self.mean + spike * math.sqrt(self.variance)

    def add(self, loss: float) -> None:
        """Update the running values with a good loss."""
        # The first losses have equal weights, so that the mean does not start at 0.
        share = max(1 - MEMORY, 1 / (self.seen + 1))
        difference = loss - self.mean
        self.mean += share * difference
        self.variance = (1 - share) * (self.variance + share * difference**2)
        self.seen += 1


@dataclass(kw_only=True)
class RunState:
    """The progress of a run after `step` optimizer steps."""

    step: int = 0
    tokens: int = 0
    """Number of tokens, without padding."""
    seconds: float = 0.0
    """Wall time of the training, over all calls."""
    schedule_factor: float = 0.0
    """Factor of the peak learning rate in the last step."""
    position: dict[str, int] | None = None
    """Position in the data of the next batch; None at the start."""
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
    metrics: dict[str, float] = field(default_factory=dict)
    """Metrics of the last evaluation; empty before it."""
    stopped: str | None = None
    """Why a callback ended the run before its length."""
    watch: LossWatch = field(default_factory=LossWatch)
    """Statistics of the losses, to detect spikes."""

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

    def keep_after_rollback(self, before: "RunState", position: dict[str, int]) -> None:
        """Copy what a rollback keeps from the state `before` it, and continue at `position` in the data."""
        self.seconds, self.position = before.seconds, position
        # An evaluation after this checkpoint may have saved the best model, which stays in its folder.
        self.best, self.best_step, self.best_metrics = before.best, before.best_step, before.best_metrics
        self.best_loss = before.best_loss
        # The evaluations since this checkpoint are repeated, so they do not count.
        if before.best_step > self.step:
            self.stale_evaluations = 0


@dataclass(frozen=True)
class RunResult:
    """The result of a run."""

    state: RunState
    finished: bool
    """False if time or a signal ended the run; the same command resumes it."""
    signal: int | None
    """Number of the signal that ended the run."""
    metrics: dict[str, float]
    """Metrics of the last evaluation; empty in processes other than the main one."""
