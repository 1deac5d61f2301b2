"""The part of a task that declares its attributes and measures predictions: records, metrics, decisions."""

import copy
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Self, TypeVar

from albertkit.datasets.reader import FORMATS
from albertkit.errors import ConfigError, DataError, did_you_mean, short
from albertkit.heads import HEADS, Output, scores_of
from albertkit.tasks.measuring import (
    Direction,
    Judged,
    Metric,
    OwnMetrics,
    checked_scores,
    is_constant,
    own_metrics,
    plain_value,
)

ExampleT = TypeVar("ExampleT")
PredictionT = TypeVar("PredictionT")
RESERVED = ("row", "cut", "true", "problem")
"""Columns that albertkit adds to the records of predictions and reports."""


class TaskScoring(ABC, Generic[ExampleT, PredictionT]):
    """The attributes that the class of a task declares, and the methods that measure its predictions.

    All attributes except `name` and `architecture` have defaults.
    """

    name: ClassVar[str]
    """Name of the task, for reports and `config.json`."""
    architecture: ClassVar[str]
    """Name of the model class."""
    metrics: ClassVar[Mapping[str, Direction]] = {}
    """All metrics that can select the best model. Some apply only to some data."""
    objective: ClassVar[str | Callable[..., Any]] = "head"
    """The loss: "head" for the loss of the model class, "binary_cross_entropy", "embedding", or a function: a
    method of the task, or `staticmethod(function)`. The function receives two torch tensors: the logits,
    (B, K) or (B, T, K) in float32, and the `labels` of `labels_of`. It returns the mean loss, a tensor with
    one element."""
    answer: ClassVar[str] = "label"
    """Column of a record that is compared with `truth`."""
    probability: str | None = None
    """Column of a record with the probability of the answer, for the calibration in reports, if any."""
    example_class: ClassVar[type | None] = None
    """The class of the examples. If it is set, examples in memory must be objects of this class."""
    output: ClassVar[Output] = "logits"
    """The output of the model that the task uses."""
    saved_settings: ClassVar[tuple[str, ...]] = ("max_length",)
    """Lengths in `TaskSettings` that the config of a fine-tuned model records, so that it is used with the
    same ones."""
    training_multiple: ClassVar[int] = 8
    """Training batches are padded to a multiple of this number of tokens. In bfloat16, CPUs keep memory for
    each shape of a batch, so fewer shapes need less memory."""
    unused: ClassVar[tuple[str, ...]] = ()
    """Prefixes of parameters that the task does not use. They are not trained, and may be missing."""
    for_predictions: ClassVar[tuple[str, ...]] = ()
    """Lists of a row that only predictions need. Training removes them to save memory."""
    reads_windows: ClassVar[bool] = False
    """Whether long texts are read in windows, so that none is truncated or raises an error."""
    may_lack_room: ClassVar[bool] = False
    """Whether examples may be too long even if texts are truncated."""
    skips_unlabeled: ClassVar[bool] = False
    """Whether training skips rows without labels. Otherwise they raise an error."""
    table_formats: ClassVar[tuple[str, ...]] = FORMATS
    """Extensions of files that the task reads as tables."""
    axes: ClassVar[tuple[str, str]] = ("true", "predicted")
    """Labels of the x and the y axis in plots of predicted numbers."""
    own_metrics: tuple[Metric, ...] = ()

    @property
    def objective_name(self) -> str:
        """The name of the objective; for a function, its qualified name."""
        if isinstance(self.objective, str):
            return self.objective
        return getattr(self.objective, "__qualname__", type(self.objective).__qualname__)

    def check_declaration(self) -> None:
        """Check the attributes that the class of the task declares.

        Raises:
            ConfigError: the class has no name or architecture, or one that cannot be; or `metrics` is not a
                mapping from names to "higher" or "lower".
        """
        title = type(self).__name__
        for attribute, example in (("name", "my-task"), ("architecture", "AlbertForSequenceClassification")):
            value = getattr(self, attribute, None)
            if not isinstance(value, str) or not value:
                raise ConfigError(
                    f"{title} has no {attribute}. Expected an attribute such as {attribute} = {example!r}."
                )
        self._check_architecture()
        metrics: Any = self.metrics
        is_valid = isinstance(metrics, Mapping) and all(
            isinstance(name, str) and way in ("higher", "lower") for name, way in metrics.items()
        )
        if not metrics or not is_valid:
            raise ConfigError(
                f"the metrics of {self.name} are {short(metrics)}. Expected a mapping from the name of each "
                "metric to 'higher' or 'lower', the values that are better, and at least one metric. Set "
                'metrics = directions("accuracy", lower=["error"]).'
            )

    def _check_architecture(self) -> None:
        usable = [
            name
            for name, head in HEADS.items()
            if self.output in head.scores and head.scores[self.output].width != "V"
        ]
        if self.architecture not in HEADS:
            why = f"which is not a model class{did_you_mean(self.architecture, usable)}"
        elif (scores := scores_of(self.architecture, self.output)) is None:
            why = f"which computes no {self.output}"
        elif scores.width == "V":
            why = "whose scores are those of the words of the vocabulary"
        else:
            return
        raise ConfigError(
            f"the architecture of {self.name} is {self.architecture!r}, {why}. Expected one of "
            f"{', '.join(usable)}. Set `architecture` of the task to one of them."
        )

    # --- answers

    @abstractmethod
    def record(self, example: ExampleT, prediction: PredictionT) -> dict[str, Any]:
        """Return a prediction as a record: plain values by column, for a file of predictions."""

    def checked_record(self, example: ExampleT, prediction: PredictionT) -> dict[str, Any]:
        """Return the result of `record`, with NumPy's values as numbers and lists.

        Raises:
            DataError: the record is not a dict, has an invalid name of a column, or a value that cannot be
                written as JSON.
        """
        record = self.record(example, prediction)
        if not isinstance(record, dict):
            raise DataError(
                f"`record` of {self.name} returned {short(record)}. Expected a dict from the name of each "
                "column to its value."
            )
        for column in record:
            if not isinstance(column, str) or column in RESERVED:
                raise DataError(
                    f"a record of {self.name} has the column {short(column)}. Expected text as the name of a "
                    f"column, except {', '.join(RESERVED)}: albertkit writes these columns itself."
                )
        return {
            column: plain_value(value, what=f"the column {column!r} in a record of {self.name} is")
            for column, value in record.items()
        }

    @abstractmethod
    def truth(self, example: ExampleT) -> Any:
        """Return the true answer of an example as plain values; None for an example without a label.

        The method also runs before the task has a model, so it must not need the tokenizer or the labels.
        """

    def checked_truth(self, example: ExampleT) -> Any:
        """Return the result of `truth`, with NumPy's values as numbers and lists.

        Raises:
            DataError: the answer cannot be written as JSON.
        """
        return plain_value(self.truth(example), what=f"`truth` of {self.name} returned")

    def check_answers(self, example: ExampleT, prediction: PredictionT) -> None:
        """Check the results of `record`, `truth` and `judge`.

        Raises:
            ConfigError, DataError: see `checked_record`, `checked_truth` and `judge`.
        """
        self.checked_record(example, prediction)
        self.checked_truth(example)
        self.judge(example, prediction)

    # --- metrics

    @abstractmethod
    def scores(self, examples: Sequence[ExampleT], predictions: Sequence[PredictionT]) -> dict[str, float]:
        """Return the metrics. A correlation that is undefined because predictions are constant is 0."""

    def measure(self, examples: Sequence[ExampleT], predictions: Sequence[PredictionT]) -> dict[str, float]:
        """Return the metrics of the task and your own metrics.

        Of the answers, only those of the first example are checked; see `check_answers`.

        Raises:
            DataError: a metric is not a finite number, or a record cannot be written as JSON.
            ConfigError: the records lack a column that the task declares.
        """
        for example, prediction in zip(examples[:1], predictions[:1], strict=True):
            self.check_answers(example, prediction)
        scores = checked_scores(self.scores(examples, predictions), task=self.name, examples=len(examples))
        if self.own_metrics:
            true = [self.checked_truth(example) for example in examples]
            pairs = zip(examples, predictions, strict=True)
            predicted = [self._value_of("answer", self.checked_record(*pair)) for pair in pairs]
            scores |= {one.title: one.value(true, predicted) for one in self.own_metrics}
        return scores

    def main_metric(self, examples: Sequence[ExampleT]) -> str:
        """Return the name of the metric that selects the best model; by default the first in `metrics`."""
        return next(iter(self.metrics))

    def lacking(self, metric: str, scores: Iterable[str]) -> ConfigError:
        """Return the error for a metric that the task declares but `scores` does not return."""
        return ConfigError(
            f"the scores of {self.name} lack {metric!r}, which `metrics` declares. They have "
            f"{', '.join(map(repr, scores)) or 'nothing'}. Return {metric!r} from `scores`, or "
            "change `metrics`."
        )

    def with_metrics(self, metrics: OwnMetrics) -> Self:
        """Return a copy of the task with your own metrics. The first of them selects the best model.

        Raises:
            ConfigError: an item is not a metric, or two metrics have the same name.
        """
        task = copy.copy(self)
        task.own_metrics = own_metrics(metrics)
        names = [*self.metrics, *(metric.title for metric in task.own_metrics)]
        taken = [name for name, count in Counter(names).items() if count > 1]
        if taken:
            first = f"a metric of {self.name}" if taken[0] in self.metrics else "another metric in `metrics`"
            raise ConfigError(
                f"the name of a metric is {taken[0]!r}, which is also the name of {first}. Choose another "
                "name: Metric(function, name=...)."
            )
        return task

    @property
    def directions(self) -> dict[str, Direction]:
        """Whether higher or lower values are better, for all metrics that can select the best model."""
        return {**self.metrics, **self.own_directions}

    @property
    def own_directions(self) -> dict[str, Direction]:
        """Whether higher or lower values are better, for your own metrics."""
        return {one.title: "lower" if one.lower_is_better else "higher" for one in self.own_metrics}

    # --- evaluations

    def for_examples(self, examples: Sequence[ExampleT]) -> Self:
        """Return the task for evaluating these examples, with values that depend on them."""
        return self

    def compared(self, examples: Sequence[ExampleT], predictions: list[PredictionT]) -> list[PredictionT]:
        """Return the predictions with added values that depend on all predictions, such as ranks."""
        return predictions

    def tuned(self, examples: Sequence[ExampleT], predictions: Sequence[PredictionT]) -> dict[str, Any]:
        """Return config entries that are determined on the validation data after training."""
        return {}

    def baseline(self, examples: Sequence[ExampleT]) -> dict[str, float]:
        """Return the metrics of the best prediction that ignores the input; empty if unknown."""
        return {}

    def checked_baseline(self, examples: Sequence[ExampleT]) -> dict[str, float]:
        """Return the result of `baseline`, with Python numbers as values.

        Raises:
            DataError: a metric is not a finite number.
        """
        found = self.baseline(examples)
        return checked_scores(found, task=self.name, examples=len(examples), method="baseline")

    def judge(self, example: ExampleT, prediction: PredictionT) -> list[Judged]:
        """Return the decisions for an example; by default a single decision, the answer in the record.

        Raises:
            ConfigError: the record lacks the column `answer` or `probability`.
            DataError: the probability is not a number from 0 to 1.
        """
        record = self.checked_record(example, prediction)
        true, predicted = self.checked_truth(example), self._value_of("answer", record)
        confidence = self._value_of("probability", record) if self.probability else None
        if confidence is not None and not (isinstance(confidence, int | float) and 0 <= confidence <= 1):
            raise DataError(
                f"the column {self.probability!r} in a record of {self.name}, which `probability` names, is "
                f"{short(confidence)}. Expected a probability from 0 to 1, or None."
            )
        return [Judged(_hashable(true), _hashable(predicted), true == predicted, confidence)]

    def _value_of(self, attribute: str, record: dict[str, Any]) -> Any:
        """Return the column of a record that an attribute of the task names."""
        column = getattr(self, attribute)
        if column not in record:
            raise ConfigError(
                f"a record of {self.name} has no column {column!r}, which `{attribute}` names. It has "
                f"{', '.join(map(repr, record)) or 'no columns'}. Set `{attribute}` of the task to one of "
                "its columns, or return the column from `record`."
            )
        return record[column]

    def constant_answer(self, examples: Sequence[ExampleT], predictions: Sequence[PredictionT]) -> str | None:
        """Return the predicted answer if it is the same for all examples although the labels differ."""
        pairs = zip(examples, predictions, strict=True)
        judged = [decision for pair in pairs for decision in self.judge(*pair)]
        true, predicted = ([getattr(one, side) for one in judged] for side in ("true", "predicted"))
        return repr(predicted[0]) if is_constant(true, predicted) else None


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((name, _hashable(one)) for name, one in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value
