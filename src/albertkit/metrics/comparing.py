"""Helpers for all metrics: check the lengths of two lists, and compare two values."""

import math
from collections.abc import Sized

from albertkit.errors import DataError


def check_same_length(references: Sized, predictions: Sized) -> None:
    """Raise DataError unless there is one prediction for each reference, and at least one."""
    if len(references) != len(predictions):
        raise DataError(
            f"{len(predictions)} predictions for {len(references)} references. Expected one for each."
        )
    if not len(references):
        raise DataError("no predictions. Expected at least one.")


def is_better(value: float, other: float, *, lower: bool = False) -> bool:
    """Return whether `value` is strictly better than `other`. NaN is worse than every number.

    Args:
        value: value of a metric.
        other: value of the same metric to compare with.
        lower: whether lower values are better.
    """
    if math.isnan(value) or math.isnan(other):
        return math.isnan(other) and not math.isnan(value)
    return value < other if lower else value > other
