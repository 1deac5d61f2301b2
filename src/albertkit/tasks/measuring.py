"""Values of the measurement of a task: decisions, and metrics of your own."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

_CONSTANT = 0.01  # spread of predicted numbers, relative to that of the true ones, that tells nothing

Direction = Literal["higher", "lower"]
"""Which values of a metric are better."""


def directions(*higher: str, lower: Iterable[str] = ()) -> dict[str, Direction]:
    """Return the directions of metrics.

    Args:
        higher: names of metrics of which higher values are better.
        lower: names of metrics of which lower values are better.
    """
    return {**dict.fromkeys(higher, "higher"), **dict.fromkeys(lower, "lower")}


@dataclass(frozen=True, slots=True)
class Judged:
    """One decision of the model beside the truth: of an example, or of a word of it."""

    true: Hashable
    predicted: Hashable
    right: bool
    confidence: float | None = None
    """The probability of the prediction, where it is one."""


def is_constant(true: Sequence[Any], predicted: Sequence[Any]) -> bool:
    """Return whether all predictions are the same although the labels are not.

    Predicted numbers are the same if they hardly differ.
    """
    if predicted and all(isinstance(value, float) for value in (*true, *predicted)):
        return bool(np.std(predicted) < _CONSTANT * np.std(true))
    return len(set(predicted)) == 1 and len(set(true)) > 1


@dataclass(frozen=True)
class Metric:
    """A metric of your own.

    Args:
        function: called with the true and the predicted answers of all examples, as in `predictions.jsonl`;
            returns a number.
        name: what reports call it; None for the name of the function.
        lower_is_better: whether lower values are better.
    """

    function: Callable[[list[Any], list[Any]], float]
    name: str | None = None
    lower_is_better: bool = False

    @property
    def title(self) -> str:
        """The name in reports."""
        return self.name or getattr(self.function, "__name__", "metric")


OwnMetrics = Metric | Callable[..., float] | Iterable[Metric | Callable[..., float]] | None
"""One metric, or several: functions of the true and the predicted answers, or `Metric`."""
