"""Which of two values of a metric is the better one."""

import math

LOWER_IS_BETTER = frozenset({"mean_squared_error"})
"""Metrics that measure an error. Of all others a higher value is better."""

_NOT_A_SCORE = ("total", "threshold")  # endings of the values that stand beside the scores


def is_score(metric: str) -> bool:
    """Return whether a model can be chosen by a metric: not by a count or by a threshold."""
    return not metric.endswith(_NOT_A_SCORE)


def is_better(metric: str, value: float, other: float) -> bool:
    """Return whether `value` is strictly better than `other`. NaN is worse than every number."""
    if math.isnan(value) or math.isnan(other):
        return math.isnan(other) and not math.isnan(value)
    return value < other if metric in LOWER_IS_BETTER else value > other
