"""Signs that a run goes wrong: losses that jump or are no numbers, outputs that are the same everywhere."""

import math
from dataclasses import dataclass

MEMORY = 0.98
"""Share of the running mean that one more loss leaves: about the last 50 losses count."""
WATCH_FROM = 100
"""Losses seen before a jump can be told from the fall at the start."""
CONSTANT = 1e-3
"""Relative spread of the outputs over their positions below which they are called constant."""


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
