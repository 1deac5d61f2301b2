"""Which of two values of a metric is the better one."""

import math

LOWER_IS_BETTER = frozenset({"mean_squared_error"})
"""Metrics that measure an error. Of all others a higher value is better."""


def is_better(metric: str, value: float, other: float) -> bool:
    """Return whether `value` is strictly better than `other`. NaN is worse than every number."""
    if math.isnan(value) or math.isnan(other):
        return math.isnan(other) and not math.isnan(value)
    return value < other if metric in LOWER_IS_BETTER else value > other
