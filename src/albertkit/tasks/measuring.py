"""Values for measuring a task: decisions of a model, and your own metrics."""

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from albertkit.errors import ConfigError, DataError

_CONSTANT = 0.01  # spread of predictions, relative to the labels' spread, that counts as constant

Direction = Literal["higher", "lower"]
"""Whether higher or lower values of a metric are better."""


def directions(*higher: str, lower: Iterable[str] = ()) -> dict[str, Direction]:
    """Return the directions of metrics.

    Args:
        higher: names of metrics for which higher is better.
        lower: names of metrics for which lower is better.
    """
    return {**dict.fromkeys(higher, "higher"), **dict.fromkeys(lower, "lower")}


@dataclass(frozen=True, slots=True)
class Judged:
    """A decision of the model for an example or a word, with the true label."""

    true: Hashable
    predicted: Hashable
    right: bool
    confidence: float | None = None
    """The probability of the prediction, if it has one."""


def is_constant(true: Sequence[Any], predicted: Sequence[Any]) -> bool:
    """Return whether all predictions are equal although the labels differ.

    Predicted numbers count as equal if their spread is small compared with that of the labels.
    """
    if predicted and all(isinstance(value, float) for value in (*true, *predicted)):
        return bool(np.std(predicted) < _CONSTANT * np.std(true))
    return len(set(predicted)) == 1 and len(set(true)) > 1


@dataclass(frozen=True)
class Metric:
    """A metric of your own.

    Args:
        function: function of two lists, the true and the predicted answers of all examples, that returns a
            number. The answers are the results of `Task.truth`, and the column `Task.answer` of the records.
        name: the name in reports; None for the name of the function.
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
            DataError: the function did not return a number, or returned NaN.
        """
        value = self.function(true, predicted)
        try:
            number = math.nan if value is None or isinstance(value, str) else float(value)
        except (TypeError, ValueError, RuntimeError):
            number = math.nan
        if math.isnan(number):
            raise DataError(
                f"the metric {self.title!r} returned {value!r:.80} for {len(true):,} examples. Expected a "
                "number. Return a number for an undefined value too, such as 0.0."
            )
        return number


OwnMetrics = Metric | Callable[..., float] | Iterable[Metric | Callable[..., float]] | None
"""One metric, or several: functions of the true and the predicted answers, or `Metric`."""


def own_metrics(given: Any) -> tuple[Metric, ...]:
    """Return the metrics of an argument `metrics`; see `OwnMetrics`.

    Raises:
        ConfigError: the argument is not a function or a `Metric`.
    """
    several = isinstance(given, Iterable) and not isinstance(given, str)
    items: list[Any] = list(given) if several else [] if given is None else [given]
    metrics = tuple(item if isinstance(item, Metric) else Metric(item) for item in items)
    for metric in metrics:
        if not callable(metric.function):
            raise ConfigError(
                f"metrics has {metric.function!r:.60}. Expected functions of the true and the predicted "
                "answers, or `Metric`. To select the model by a metric of the task, pass its name as "
                "best_metric to `finetune`, or as main_metric to `evaluate`."
            )
    return metrics
