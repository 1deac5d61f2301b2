"""Values of the measurement of a task: decisions, and metrics of your own."""

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from albertkit.errors import ConfigError, DataError

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
        function: called with two lists, the true and the predicted answers of all examples: the values of
            `Task.truth`, and of the column `Task.answer` of the records. It returns a number.
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

    def value(self, true: list[Any], predicted: list[Any]) -> float:
        """Return the metric of all answers.

        Raises:
            DataError: the function returned something else than a number, or NaN.
        """
        value = self.function(true, predicted)
        try:
            number = math.nan if value is None or isinstance(value, str) else float(value)
        except (TypeError, ValueError, RuntimeError):
            number = math.nan
        if math.isnan(number):
            raise DataError(
                f"the metric {self.title!r} returned {value!r:.80} for {len(true):,} examples; expected a "
                "number. Return a number that stands for an undefined value, such as 0.0"
            )
        return number


OwnMetrics = Metric | Callable[..., float] | Iterable[Metric | Callable[..., float]] | None
"""One metric, or several: functions of the true and the predicted answers, or `Metric`."""


def own_metrics(given: Any) -> tuple[Metric, ...]:
    """Return the metrics that an argument `metrics` stands for, see `OwnMetrics`.

    Raises:
        ConfigError: something else than functions and `Metric`.
    """
    several = isinstance(given, Iterable) and not isinstance(given, str)
    items: list[Any] = list(given) if several else [] if given is None else [given]
    metrics = tuple(item if isinstance(item, Metric) else Metric(item) for item in items)
    for metric in metrics:
        if not callable(metric.function):
            raise ConfigError(
                f"metrics has {metric.function!r:.60}; expected functions of the true and the predicted "
                "answers, or `Metric`. To choose by a metric of the task, give its name as best_metric "
                "to `finetune`, or as main_metric to `evaluate`"
            )
    return metrics
