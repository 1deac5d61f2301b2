"""Values for measuring a task: decisions of a model, and your own metrics."""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal

import numpy as np

from albertkit.errors import ConfigError, DataError, short

_CONSTANT = 0.01  # spread of predictions, relative to the labels' spread, that counts as constant

Direction = Literal["higher", "lower"]
"""Whether higher or lower values of a metric are better."""


def directions(*higher: str, lower: Iterable[str] = ()) -> dict[str, Direction]:
    """Return whether higher or lower is better, by name of the metric.

    Args:
        higher: names of metrics for which higher is better.
        lower: names of metrics for which lower is better.

    Raises:
        ConfigError: `lower` is text instead of a list, or a name is not text.
    """
    if isinstance(lower, str):
        raise ConfigError(f"lower is {lower!r}. Expected a list of names: [{lower!r}].")
    lower = tuple(lower)
    for name in (*higher, *lower):
        if not isinstance(name, str):
            raise ConfigError(
                f'the name of a metric is {short(name)}. Expected names, such as directions("f1", '
                'lower=["error"]).'
            )
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
    """Your own metric.

    Args:
        function: function that returns a number for two lists: the true and the predicted answers of all
            examples. The true answers are the results of `Task.truth`. The predicted answers are the column
            `Task.answer` of the records. Reports also call the function for parts of the examples; an error
            or NaN there means that the metric is undefined for this part.
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
            DataError: the function did not return a finite number.
        """
        value = self.function(true, predicted)
        number = finite_number(value)
        if number is None:
            raise DataError(
                f"the metric {self.title!r} returned {short(value)} for {_examples(len(true))}. Expected a "
                "finite number. Return a number for an undefined value too, such as 0.0."
            )
        return float(number)


def finite_number(value: Any) -> float | None:
    """Return a finite number of any library as a float, whole numbers as an int; None for other values."""
    if value is None or isinstance(value, bool | np.bool_ | str | bytes | np.complexfloating):
        return None
    if isinstance(value, Integral):
        return int(value)
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError):
        return None
    return number if math.isfinite(number) else None


def checked_scores(scores: Any, *, task: str, examples: int, method: str = "scores") -> dict[str, float]:
    """Return the result of `Task.scores` or `Task.baseline` with Python numbers as values.

    Args:
        scores: the result.
        task: the name of the task, for messages.
        examples: number of examples, for messages.
        method: the name of the method, for messages.

    Raises:
        DataError: the result is not a dict, or a value is not a finite number.
    """
    if not isinstance(scores, Mapping):
        raise DataError(
            f"`{method}` of {task} returned {short(scores)}. Expected a dict from the name of each metric to "
            "a number."
        )
    checked: dict[str, float] = {}
    for name, value in scores.items():
        number = finite_number(value)
        if number is None:
            raise DataError(
                f"the metric {name!r} of {task} is {short(value)} for {_examples(examples)}. Expected a "
                "finite number. If the predictions are NaN, the training diverged: lower the learning rate. "
                f"In a task of your own, let `{method}` return a number for an undefined value too, such as "
                "0.0."
            )
        checked[name] = number
    return checked


def _examples(count: int) -> str:
    return f"{count:,} example" + ("" if count == 1 else "s")


_PLAIN = frozenset({str, int, float, bool, type(None)})


def plain_value(value: Any, *, what: str) -> Any:
    """Return a value as JSON has it: NumPy's scalars and arrays become numbers and lists.

    Args:
        value: text, a number, None, or lists and dicts of them.
        what: the name of the value, for messages.

    Raises:
        DataError: the value has another type.
    """
    if type(value) in _PLAIN:
        return value
    if isinstance(value, np.floating):
        return float(value)
    if isinstance(value, np.generic | np.ndarray):
        plain = value.tolist()
        if not isinstance(plain, np.generic):  # clongdouble has no other form
            return plain_value(plain, what=what)
    if isinstance(value, list | tuple):
        if set(map(type, value)) <= _PLAIN:  # fast, for vectors and scores
            return list(value)
        return [plain_value(one, what=what) for one in value]
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {str(name): plain_value(one, what=what) for name, one in value.items()}
    if isinstance(value, str | int | float):
        return value
    raise DataError(
        f"{what} {short(value)} ({type(value).__name__}). Expected text, a number, None, or lists and dicts "
        "of these, with text as keys. Convert the value."
    )


OwnMetrics = Metric | Callable[..., float] | Iterable[Metric | Callable[..., float]] | None
"""One metric, or several: functions of the true and the predicted answers, or `Metric`."""


def own_metrics(given: Any) -> tuple[Metric, ...]:
    """Return the metrics of an argument `metrics`; see `OwnMetrics`.

    Raises:
        ConfigError: the argument is not a function or a `Metric`.
    """
    items: list[Any] = [] if given is None else [given]
    if isinstance(given, Iterable) and not isinstance(given, str):
        items = list(given)
    metrics = tuple(item if isinstance(item, Metric) else Metric(item) for item in items)
    for metric in metrics:
        if not callable(metric.function):
            raise ConfigError(
                f"metrics has {short(metric.function)}. Expected functions of the true and the predicted "
                "answers, or `Metric`. To select the model by a metric of the task, pass its name as "
                "best_metric to `finetune`, or as main_metric to `evaluate`."
            )
    return metrics
