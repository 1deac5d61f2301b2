"""What every metric asks of its two lists."""

from collections.abc import Sized

from albertkit.errors import DataError


def check_same_length(references: Sized, predictions: Sized) -> None:
    """Raise DataError unless there is one prediction for each reference, and at least one."""
    if len(references) != len(predictions):
        raise DataError(
            f"{len(predictions)} predictions for {len(references)} references; expected one for each"
        )
    if not len(references):
        raise DataError("no predictions; expected at least one, since the mean of none is no number")
