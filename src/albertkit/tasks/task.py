"""The base class of tasks: from examples to rows, scores, predictions, records and metrics.

    task = TextClassification().bind(tokenizer, config, TaskSettings(max_length=128))
    rows = task.features(examples)             # token ids, segments, labels, the number of the example
    outputs = task.run(engine, rows)           # one array per row
    predictions = task.predictions(examples, rows, outputs)
    task.scores(examples, predictions)         # {"accuracy": 0.9}

Without a model, a task can read files and compute metrics. `bind` returns the task with the tokenizer, the
config and the settings of a model. Pipelines and evaluation both use `predictions`. For a task of your own,
see docs/how-to/own-task.md.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

import numpy as np

from albertkit.config import IGNORED_LABEL, SETTINGS_KEY, TASK_KEY, AlbertConfig
from albertkit.datasets.official import read_examples
from albertkit.datasets.options import DataOptions
from albertkit.datasets.reader import Columns, ExampleT, Reader, Warn
from albertkit.datasets.rows import FORMATS, RowError, read_rows
from albertkit.datasets.rows import Row as DataRow
from albertkit.engines.engine import Engine, Row, by_example, first_token
from albertkit.errors import ConfigError, DataError
from albertkit.heads import Output, head_of
from albertkit.tasks.labels import LabelSet, entropy
from albertkit.tasks.settings import ProblemType, TaskSettings
from albertkit.tokenization.base import TokenizerBase

RowT = TypeVar("RowT", bound=Row)
PredictionT = TypeVar("PredictionT")

_CONSTANT = 0.01  # spread of predictions, relative to the labels' spread, that counts as constant

Direction = Literal["higher", "lower"]
"""Whether higher or lower values of a metric are better."""


def directions(*higher: str, lower: Iterable[str] = ()) -> dict[str, Direction]:
    """Return by name whether higher or lower values of a metric are better.

    Args:
        higher: names of metrics for which higher is better.
        lower: names of metrics for which lower is better.
    """
    return {**dict.fromkeys(higher, "higher"), **dict.fromkeys(lower, "lower")}


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


OwnMetrics = Metric | Callable[..., float] | Iterable[Metric | Callable[..., float]] | None
"""One metric, or several: functions of the true and the predicted answers, or `Metric`."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision of the model for an example or a word, with the true label."""

    true: Any
    predicted: Any
    is_right: bool
    confidence: float | None = None
    """The probability of the prediction, if it has one."""
    severity: float | None = None
    """How bad a wrong decision is, higher for worse; None for its deviation or its probability."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Further columns in a list of errors."""

    def error(self) -> tuple[float, dict[str, Any]]:
        """Return the severity of a wrong decision and its columns in a list of errors."""
        columns, severity = {"true": self.true, "predicted": self.predicted}, self.confidence or 0.0
        if isinstance(self.true, float) and isinstance(self.predicted, float):
            columns["deviation"] = self.predicted - self.true
            severity = abs(columns["deviation"])
        if self.confidence is not None:
            columns["score"] = self.confidence
        return severity if self.severity is None else self.severity, columns | dict(self.details)


class Task(ABC, Generic[ExampleT, RowT, PredictionT]):
    """Base class of tasks. A task defines how to read, train on, predict and evaluate examples.

    All attributes except `name`, `architecture` and `metrics` have defaults.
    """

    name: ClassVar[str]
    """Name of the task, for reports and `config.json`."""
    architecture: ClassVar[str]
    """Name of the model class."""
    metrics: ClassVar[Mapping[str, Direction]]
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
    minimum_length: ClassVar[int] = 4
    """Minimum of `max_length`: a pair has 3 special tokens."""
    training_multiple: ClassVar[int] = 8
    """Training batches are padded to a multiple of this number of tokens. In bfloat16, CPUs keep memory for
    each shape of a batch, so fewer shapes need less memory."""
    unused: ClassVar[tuple[str, ...]] = ()
    """Prefixes of parameters that the task does not use. They are not trained, and may be missing."""
    for_predictions: ClassVar[tuple[str, ...]] = ()
    """Lists of a row that only predictions need. Training removes them to save memory."""
    reads_windows: ClassVar[bool] = False
    """Whether long texts are read in windows, so that none is truncated or raises an error."""
    has_thresholds: ClassVar[bool] = False
    """Whether the task uses the setting `threshold`."""
    may_be_too_long: ClassVar[bool] = False
    """Whether examples may be too long even if texts are truncated."""
    table_formats: ClassVar[tuple[str, ...]] = FORMATS
    """Extensions of files that the task reads as tables."""

    tokenizer: TokenizerBase
    config: AlbertConfig
    settings: TaskSettings
    max_length: int
    """Maximum length of a row in tokens."""
    labels: Any = None
    """The `LabelSet` of the model, for a task with label names."""
    own_metrics: tuple[Metric, ...] = ()

    # --- a task and a model

    def bind(
        self, tokenizer: TokenizerBase, config: AlbertConfig, settings: TaskSettings | None = None
    ) -> Self:
        """Return a copy of the task for a model, with settings that convert examples to rows."""
        bound = copy.copy(self)
        bound.tokenizer, bound.settings = tokenizer, settings or TaskSettings()
        if bound.settings.threshold is not None and not self.has_thresholds:
            raise ConfigError(f"threshold is for text-classification, not for {self.name}. Omit it.")
        bound.use_config(config)
        return bound

    def use_config(self, config: AlbertConfig) -> None:
        """Set the attributes that depend on the config of the model."""
        self.config, self.max_length = config, config.max_position_embeddings
        if self.settings.max_length is not None:
            self.max_length = min(self.settings.max_length, self.max_length)
        if type(self).find_labels is not Task.find_labels:
            self.labels = LabelSet.of(config)
        if self.max_length < self.minimum_length:
            raise ConfigError(f"max_length is {self.max_length}. Expected at least {self.minimum_length}.")

    def saved(self, examples: Sequence[ExampleT]) -> dict[str, Any]:
        """Return the entries to save in the config of the trained model; the value None removes an entry."""
        lengths = {name: getattr(self, name, getattr(self.settings, name)) for name in self.saved_settings}
        return {TASK_KEY: self.name, SETTINGS_KEY: lengths}

    # --- data

    def reader(self, source: Any, options: DataOptions, *, labeled: bool = True) -> Reader[ExampleT]:
        """Return the reader of a source. By default, `example` converts the rows of any table.

        Args:
            source: the path of a file or folder, a table, or a list of dicts.
            options: columns and layout of the source.
            labeled: whether examples must have labels.
        """
        if self.example_class is not None and hasattr(self.example_class, "from_row"):
            return read_examples(self.example_class, source, options, labeled=labeled)
        rows = read_rows(source, **options.layout())
        rows.check_columns(id_column=options.id_column)

        def example(row: DataRow, _: Warn) -> ExampleT:
            try:
                return self.example(row.values)
            except (KeyError, TypeError, ValueError) as error:
                detail = f"no {error}" if isinstance(error, KeyError) else str(error)
                raise RowError("malformed", detail) from error

        return Reader(rows, example, Columns(names={}, labeled=labeled, id=options.id_column))

    def example(self, row: Mapping[str, Any]) -> ExampleT:
        """Return the example of a row, with its labels if the row has them.

        Rows for which the method raises a KeyError, TypeError or ValueError are skipped and counted.
        """
        raise NotImplementedError(f"{type(self).__name__} defines neither `example` nor `reader`")

    def find_labels(
        self, examples: Sequence[ExampleT], names: tuple[str, ...] | None, problem_type: ProblemType | None
    ) -> LabelSet | None:
        """Return the kind and the names of the labels, one name per score; None for a task without names.

        Args:
            examples: the training examples.
            names: all names in order, if the source defines them.
            problem_type: the kind of labels; None infers it.
        """
        return None

    def with_label(self, example: ExampleT, labels: LabelSet) -> ExampleT:
        """Return an example with its label as the set writes it; raise `UnknownLabel` if the set lacks it."""
        return example

    def check(
        self, training: Sequence[ExampleT], validation: Sequence[ExampleT], batch_size: int
    ) -> str | None:
        """Return a note about training on these examples, or None; raise an error if it is impossible."""
        return None

    def check_fit(self, examples: Sequence[ExampleT]) -> None:
        """Raise DataError if the model was fine-tuned on another kind of examples."""

    # --- rows

    @abstractmethod
    def features(self, examples: Sequence[ExampleT]) -> list[RowT]:
        """Return the rows of all examples; the rows of one example are consecutive."""

    @abstractmethod
    def labels_of(self, rows: Sequence[RowT]) -> dict[str, np.ndarray]:
        """Return the labels of a training batch, by the name of their argument in the forward pass."""

    def units(self, rows: Sequence[RowT]) -> list[list[RowT]]:
        """Return the groups of rows that a training batch must keep together; by default, each row alone."""
        return [[row] for row in rows]

    def items(self, rows: Sequence[RowT]) -> int:
        """Return the number of labeled items that the loss averages over.

        By default, items are units. If the head scores each token, they are the tokens whose label in
        `labels_of` is neither -100 nor NaN. Override the method if your loss averages over something else.
        """
        labels = (
            self.labels_of(rows).get("labels") if head_of(self.architecture).scores_tokens and rows else None
        )
        if labels is None:
            return len(self.units(rows))
        first = labels.reshape(*labels.shape[:2], -1)[..., 0]  # (B, T, K) -> (B, T); K labels are one item
        return int(np.count_nonzero((first != IGNORED_LABEL) & (first == first)))

    def padded_length(self, rows: Sequence[RowT]) -> int:
        """Return the padded length of a training batch in tokens: rounded up, but not above `max_length`."""
        longest = max(len(row.input_ids) for row in rows)
        rounded = -(-longest // self.training_multiple) * self.training_multiple
        return max(longest, min(rounded, self.max_length))

    @property
    def cut_note(self) -> str:
        """The end of the note on truncated examples, which begins with their number: "3 of 90 "."""
        return f"examples are longer than {self.max_length} tokens and are truncated"

    def warnings(self, rows: Sequence[RowT]) -> Counter[str]:
        """Count the examples whose answer the model cannot predict, by kind of problem."""
        return Counter()

    # --- predictions

    def read(self, row: RowT) -> Sequence[int]:
        """Return the positions in a row at which the task reads the output; by default only that of [CLS]."""
        return first_token(row)

    def keep(self, scores: np.ndarray) -> np.ndarray:
        """Return the scores to keep of a row's scores (R, K) at R positions; by default the first, (K,)."""
        return scores[0]

    @property
    def stacks(self) -> bool:
        """Whether `keep` can also reduce the scores (B, R, K) of B rows at once."""
        return False

    def run(
        self,
        engine: Engine,
        rows: Sequence[RowT],
        *,
        batch_tokens: int | None = None,
        batch_size: int | None = None,
    ) -> list[np.ndarray]:
        """Return the scores of each row, reduced by `keep`; for the sizes of a batch, see `Engine.run`."""
        return engine.run(
            rows,
            output=self.output,
            read=self.read,
            then=self.keep,
            batch_tokens=batch_tokens,
            batch_size=batch_size,
            stacks=self.stacks,
        )

    def predictions(
        self, examples: Sequence[ExampleT], rows: Sequence[RowT], outputs: Sequence[np.ndarray]
    ) -> list[PredictionT]:
        """Return the prediction for each example, by default the results of `decode`.

        Args:
            examples: the examples passed to `features`.
            rows: the rows that `features` returned.
            outputs: the scores that `run` returned.
        """
        grouped = by_example(rows, outputs, count=len(examples))
        return [self.decode(example, own) for example, own in zip(examples, grouped, strict=True)]

    def decode(self, example: ExampleT, rows: list[tuple[RowT, np.ndarray]]) -> PredictionT:
        """Return the prediction for an example from its rows and their scores."""
        raise NotImplementedError(f"{type(self).__name__} defines neither `predictions` nor `decode`")

    @abstractmethod
    def record(self, example: ExampleT, prediction: PredictionT) -> dict[str, Any]:
        """Return a prediction as a record: plain values by column, for a file of predictions."""

    # --- evaluation

    @abstractmethod
    def truth(self, example: ExampleT) -> Any:
        """Return the true answer of an example as plain values; None for an example without a label.

        The method also runs before the task has a model, so it must not need the tokenizer or the labels.
        """

    @abstractmethod
    def scores(self, examples: Sequence[ExampleT], predictions: Sequence[PredictionT]) -> dict[str, float]:
        """Return the metrics. A correlation that is undefined because predictions are constant is 0."""

    def main_metric(self, examples: Sequence[ExampleT]) -> str:
        """Return the name of the metric that selects the best model; by default the first in `metrics`."""
        return next(iter(self.metrics))

    def measure(self, examples: Sequence[ExampleT], predictions: Sequence[PredictionT]) -> dict[str, float]:
        """Return the metrics of the task and your own metrics; raise DataError if one is not finite."""
        scores = dict(self.scores(examples, predictions))
        if self.own_metrics:
            true = [self.truth(example) for example in examples]
            pairs = zip(examples, predictions, strict=True)
            predicted = [self.record(*pair)[self.answer] for pair in pairs]
            scores |= {metric.title: float(metric.function(true, predicted)) for metric in self.own_metrics}
        scores = {name: value if isinstance(value, int) else float(value) for name, value in scores.items()}
        if wrong := [name for name, value in scores.items() if not math.isfinite(value)]:
            what = f"the metric {wrong[0]!r} of {self.name} is {scores[wrong[0]]}"
            raise DataError(f"{what}. If the predictions are NaN, the training diverged.")
        return scores

    def with_metrics(self, metrics: OwnMetrics) -> Self:
        """Return a copy of the task with your own metrics. The first of them selects the best model."""
        items: list[Any] = [] if metrics is None else [metrics]
        if isinstance(metrics, Iterable):
            items = list(metrics)
        task = copy.copy(self)
        task.own_metrics = tuple(item if isinstance(item, Metric) else Metric(item) for item in items)
        names = Counter([*self.metrics, *(metric.title for metric in task.own_metrics)])
        if taken := [name for name, count in names.items() if count > 1]:
            raise ConfigError(f"two metrics are named {taken[0]!r}. Rename one: Metric(function, name=...).")
        return task

    @property
    def directions(self) -> dict[str, Direction]:
        """Whether higher or lower values are better, for all metrics that can select the best model."""
        own = {metric.title: metric.lower_is_better for metric in self.own_metrics}
        return {**self.metrics, **{name: "lower" if lower else "higher" for name, lower in own.items()}}

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

    def decisions(self, example: ExampleT, prediction: PredictionT) -> list[Decision]:
        """Return the decisions for an example; by default a single decision, the answer in the record."""
        record, true = self.record(example, prediction), self.truth(example)
        predicted = record[self.answer]
        score = {"score": record[self.probability]} if self.probability else {}
        confidence = None if predicted is None else score.get("score")
        return [Decision(_hashable(true), _hashable(predicted), true == predicted, confidence, details=score)]

    def outcomes(self, example: ExampleT, prediction: PredictionT) -> list[Decision]:
        """Return the decisions that the scores of each label count; the label "" stands for no label."""
        return self.decisions(example, prediction)

    def errors(self, example: ExampleT, prediction: PredictionT) -> list[Decision]:
        """Return the wrong decisions for a list of errors."""
        return [decision for decision in self.decisions(example, prediction) if not decision.is_right]

    # --- signs of a collapsed training

    def constant_answer(self, examples: Sequence[ExampleT], predictions: Sequence[PredictionT]) -> str | None:
        """Return the predicted answer if it is the same for all examples although the labels differ.

        Predicted numbers count as equal if their spread is small compared with that of the labels.
        """
        pairs = zip(examples, predictions, strict=True)
        decisions = [decision for pair in pairs for decision in self.decisions(*pair)]
        true = [decision.true for decision in decisions]
        predicted = [decision.predicted for decision in decisions]
        if predicted and all(isinstance(value, float) for value in (*true, *predicted)):
            is_constant = bool(np.std(predicted) < _CONSTANT * np.std(true))
        else:
            is_constant = len({*predicted}) == 1 and len({*true}) > 1
        return repr(predicted[0]) if is_constant else None

    def learnt_classes(self, rows: Iterable[RowT]) -> Counter[int] | None:
        """Count the classes in training rows; None if the labels are not single classes."""
        return None

    def prior_loss(self, rows: Sequence[RowT]) -> float | None:
        """Return the loss of the best prediction that ignores the input; None if unknown."""
        counts = self.learnt_classes(rows)
        return None if counts is None else entropy(counts)


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((name, _hashable(item)) for name, item in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value
