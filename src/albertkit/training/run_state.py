"""Where a run stands, and signs in its losses that it goes wrong."""

import math
from dataclasses import dataclass, field

from albertkit.metrics.comparing import is_better

MEMORY = 0.98
"""Share of the running mean that one more loss leaves: about the last 50 losses count."""
WATCH_FROM = 100
"""Losses seen before a jump can be told from the fall at the start."""


@dataclass(kw_only=True)
class LossWatch:
    """The running mean and variance of the loss."""

    seen: int = 0
    mean: float = 0.0
    variance: float = 0.0

    def is_bad(self, loss: float, spike: float) -> bool:
        """Tell whether a loss is no number, or `spike` standard deviations above the running mean."""
        if not math.isfinite(loss):
            return True
        return self.seen >= WATCH_FROM and loss > self.mean + spike * math.sqrt(self.variance)

    def add(self, loss: float) -> None:
        """Take a good loss into the running values."""
        # The first ones weigh equally, so that the mean does not start at 0.
        share = max(1 - MEMORY, 1 / (self.seen + 1))
        difference = loss - self.mean
        self.mean += share * difference
        self.variance = (1 - share) * (self.variance + share * difference**2)
        self.seen += 1


@dataclass(kw_only=True)
class RunState:
    """Where a run stands after `step` optimizer steps."""

    step: int = 0
    tokens: int = 0
    """Real tokens seen, padding not counted."""
    seconds: float = 0.0
    """Wall time spent training, over all the pieces of the run."""
    schedule_factor: float = 0.0
    """Share of the peak learning rate that the last step was taken with."""
    position: dict[str, int] | None = None
    """Where the data continues; None at the start."""
    best: float | None = None
    """Best value so far of the metric by which the model is chosen."""
    best_step: int = 0
    """Step at which it was reached."""
    stale_evaluations: int = 0
    """Evaluations since then."""
    given_up: str | None = None
    """Why the run ended before its length, where it was found to be hopeless."""
    stopped: str | None = None
    """Why a callback ended the run before its length."""
    watch: LossWatch = field(default_factory=LossWatch)
    """The losses so far, to tell a jump by."""

    def is_best(self, value: float, *, lower: bool) -> bool:
        """Note the value of an evaluation; tell whether it is the best (`lower`: the lowest) so far.

        Of equals the first is the best, unless it was before any training.
        """
        if is_better(value, math.nan if self.best is None else self.best, lower=lower) or (
            value == self.best and not self.best_step
        ):
            self.best, self.best_step, self.stale_evaluations = value, self.step, 0
            return True
        self.stale_evaluations += 1
        return False
