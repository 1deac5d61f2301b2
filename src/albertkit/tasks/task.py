"""The base class of tasks: from examples to rows, scores, predictions, records and metrics.

    task = TextClassification().bind(tokenizer, config, TaskSettings(max_length=128))
    rows = task.features(examples)             # token ids, segments, labels, the number of the example
    outputs = task.run(engine, rows)           # one array per row
    predictions = task.predictions(examples, rows, outputs)
    task.scores(examples, predictions)         # {"accuracy": 0.9}

Without a model, a task can read files and compute metrics. `bind` returns the task with the tokenizer, the
config and the settings of a model. Pipelines and evaluation both use `predictions`.

A task of your own derives from `Task`. It defines `example`, `features`, `labels_of`, `predictions`,
`record`, `truth` and `scores`: see docs/how-to/own-task.md.
"""

import copy
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, Self, TypeVar

import numpy as np

from albertkit.config import AlbertConfig
from albertkit.config_fields import SETTINGS_KEY, TASK_KEY
from albertkit.datasets.options import DataOptions
from albertkit.datasets.reader import MappingTable, Reader
from albertkit.engines.engine import Engine, Row, first_token
from albertkit.errors import ConfigError
from albertkit.heads import HEADS, scores_of
from albertkit.tasks.declaration import TaskDeclaration
from albertkit.tasks.label_kinds import entropy
from albertkit.tasks.labels import LabelSet
from albertkit.tasks.measuring import Direction, Judged, Metric, OwnMetrics, is_constant, own_metrics
from albertkit.tasks.settings import ProblemType, TaskSettings
from albertkit.tokenization.base import TokenizerBase

ExampleT = TypeVar("ExampleT")
RowT = TypeVar("RowT", bound=Row)
PredictionT = TypeVar("PredictionT")


class Task(TaskDeclaration, ABC, Generic[ExampleT, RowT, PredictionT]):
    """Base class of tasks: defines how examples are read, trained on, predicted and measured."""

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
        """Return a copy of the task for a model.

        Args:
            tokenizer: the tokenizer of the model.
            config: the config of the model.
            settings: the settings that convert examples to rows; None for the defaults.

        Raises:
            ConfigError: a setting or the config does not fit the task, or the model class lacks its `output`.
        """
        if scores_of(self.architecture, self.output) is None:
            scoring = ", ".join(name for name, head in HEADS.items() if self.output in head.scores)
            raise ConfigError(
                f"the architecture of {self.name} is {self.architecture!r}, which computes no {self.output}. "
                f"Expected one of {scoring}. Set `architecture` of the task to one of them."
            )
        bound = copy.copy(self)
        bound.tokenizer, bound.settings = tokenizer, settings or TaskSettings()
        bound.use_config(config)
        return bound

    def use_config(self, config: AlbertConfig) -> None:
        """Set the attributes that depend on the config of the model."""
        limit, wanted = config.max_position_embeddings, self.settings.max_length
        self.config, self.max_length = config, limit if wanted is None else min(wanted, limit)
        if type(self).find_labels is not Task.find_labels:
            self.labels = LabelSet.of(config)
        if self.max_length < 4:
            raise ConfigError(
                f"max_length is {self.max_length}. Expected at least 4: a pair has 3 special tokens."
            )

    def with_config(self, config: AlbertConfig) -> Self:
        """Return a copy of the task for another config."""
        bound = copy.copy(self)
        bound.use_config(config)
        return bound

    def with_metrics(self, metrics: OwnMetrics) -> Self:
        """Return a copy of the task with metrics of your own. The first one selects the best model.

        Raises:
            ConfigError: an item is not a metric, or two metrics have the same name.
        """
        task = copy.copy(self)
        task.own_metrics = own_metrics(metrics)
        names = [*self.metrics, *(metric.title for metric in task.own_metrics)]
        taken = [name for name, count in Counter(names).items() if count > 1]
        if taken:
            first = f"a metric of {self.name}" if taken[0] in self.metrics else "another of `metrics`"
            raise ConfigError(
                f"the name of a metric is {taken[0]!r}, like that of {first}. Choose another name: "
                "Metric(function, name=...)."
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

    def room_note(self) -> str | None:
        """Return a note if the maximum length in the settings exceeds the model's maximum, else None."""
        wanted = self.settings.max_length
        if wanted is None or wanted <= self.max_length:
            return None
        limit = self.max_length
        return f"max_length is {wanted}, but the model's maximum is {limit} tokens: using {limit}"

    def saved(self, examples: Sequence[ExampleT]) -> dict[str, Any]:
        """Return the config entries of a model trained on these examples; None removes an entry."""
        lengths = {name: self.setting(name) for name in self.saved_settings}
        return {TASK_KEY: self.name, SETTINGS_KEY: lengths}

    def setting(self, name: str) -> Any:
        """Return the effective value of a setting."""
        return getattr(self, name) if hasattr(self, name) else getattr(self.settings, name)

    # --- data

    def reader(self, source: Any, options: DataOptions, *, labeled: bool = True) -> Reader[ExampleT]:
        """Return the reader of a source. By default, `example` converts the rows of any table.

        Args:
            source: the path of a file or folder, or a table.
            options: columns and layout of the source.
            labeled: whether examples must have labels.

        Raises:
            DataError: the source or a column does not exist.
        """
        return MappingTable(source, self.example, options, labeled=labeled)

    def example(self, row: Mapping[str, Any]) -> ExampleT:
        """Return the example of a row of a table, with its labels if the row has them.

        Raises:
            DataError: the row is invalid. The reader leaves it out and counts it.
        """
        raise ConfigError(
            f"{type(self).__name__} has neither `example` nor `reader`, so it cannot read a table. Pass "
            "examples, or define one of these methods."
        )

    def find_labels(
        self, examples: Sequence[ExampleT], names: tuple[str, ...] | None, problem_type: ProblemType | None
    ) -> LabelSet | None:
        """Return the kind and the names of the labels, one name per score; None for a task without names.

        Args:
            examples: the training examples.
            names: all names in order, if the source defines them.
            problem_type: the kind of labels; None infers it.

        Raises:
            DataError: there are no labels.
        """
        return None

    def with_label(self, example: ExampleT, labels: LabelSet) -> ExampleT:
        """Return an example with its label as in the set; raise `UnknownLabel` if it is not there."""
        return example

    def check(
        self, training: Sequence[ExampleT], validation: Sequence[ExampleT], batch_size: int
    ) -> str | None:
        """Return a note about training on these examples, or None.

        Raises:
            ConfigError, DataError: the task cannot be trained on these examples.
        """
        return None

    def check_fit(self, examples: Sequence[ExampleT]) -> None:
        """Raise DataError if the model was fine-tuned on another kind of examples."""

    # --- rows

    @abstractmethod
    def features(self, examples: Sequence[ExampleT]) -> list[RowT]:
        """Return the rows of all examples; the rows of one example are consecutive.

        Raises:
            DataError: a label is unknown, or a text is too long and must be neither truncated nor windowed.
        """

    @abstractmethod
    def labels_of(self, rows: Sequence[RowT]) -> dict[str, np.ndarray]:
        """Return the labels of a training batch, by the name of the argument of the model's forward pass.

        Args:
            rows: the rows of the batch: labeled, and in complete units.
        """

    def units(self, rows: Sequence[RowT]) -> list[list[RowT]]:
        """Return groups of rows that a training batch keeps together; by default each row alone."""
        return [[row] for row in rows]

    def items(self, rows: Sequence[RowT]) -> int:
        """Return the number of labeled items that the loss averages over; by default the number of units."""
        return len(self.units(rows))

    def padded_length(self, rows: Sequence[RowT]) -> int:
        """Return the padded length of a training batch in tokens: rounded up, but not above `max_length`."""
        longest = max(len(row.input_ids) for row in rows)
        rounded = -(-longest // self.training_multiple) * self.training_multiple
        return max(longest, min(rounded, self.max_length))

    def lean(self, row: RowT) -> RowT:
        """Return a row without the lists that training does not need."""
        return replace(row, **{name: [] for name in self.for_predictions}) if self.for_predictions else row

    @property
    def cuts(self) -> bool:
        """Whether long texts are truncated. Records then have the column `cut`."""
        return self.settings.truncation and not self.reads_windows

    @property
    def refuses(self) -> bool:
        """Whether examples that are too long can raise an error."""
        return self.may_lack_room or not (self.settings.truncation or self.reads_windows)

    @property
    def cut_note(self) -> str:
        """The note on truncated examples, which follows their number: "3 of 90 texts are ..."."""
        return f"texts are longer than {self.max_length} tokens and are truncated"

    def troubles(self, rows: Sequence[RowT]) -> Counter[str]:
        """Count the examples that cannot be predicted correctly, by the problem with their answers."""
        return Counter()

    # --- predictions

    def read(self, row: RowT) -> Sequence[int]:
        """Return the positions in a row at which the task reads the output; by default only that of [CLS]."""
        return first_token(row)

    def keep(self, scores: np.ndarray) -> np.ndarray:
        """Return the part to keep of a row's scores (R, K) at R positions; by default the first, (K,)."""
        return scores[0]

    def run(
        self,
        engine: Engine,
        rows: Sequence[RowT],
        *,
        batch_tokens: int | None = None,
        batch_size: int | None = None,
    ) -> list[np.ndarray]:
        """Return the scores of each row, reduced by `keep`.

        Args:
            engine: the engine of a model of the task's architecture.
            rows: rows of any lengths.
            batch_tokens: maximum number of tokens computed at once; None for a default that suits the device.
            batch_size: maximum number of rows computed at once; None for as many as `batch_tokens` allows.
        """
        return engine.run(
            rows,
            output=self.output,
            read=self.read,
            then=self.keep,
            batch_tokens=batch_tokens,
            batch_size=batch_size,
        )

    @abstractmethod
    def predictions(
        self, examples: Sequence[ExampleT], rows: Sequence[RowT], outputs: Sequence[np.ndarray]
    ) -> list[PredictionT]:
        """Return the prediction for each example.

        Args:
            examples: the examples passed to `features`.
            rows: the rows that `features` returned.
            outputs: the scores that `run` returned.
        """

    @abstractmethod
    def record(self, example: ExampleT, prediction: PredictionT) -> dict[str, Any]:
        """Return a prediction as plain values by column, for a file of predictions."""

    @abstractmethod
    def truth(self, example: ExampleT) -> Any:
        """Return the true answer of a labeled example, as plain values."""

    # --- measuring

    @abstractmethod
    def scores(self, examples: Sequence[ExampleT], predictions: Sequence[PredictionT]) -> dict[str, float]:
        """Return the metrics. A correlation that is undefined because predictions are constant is 0."""

    def measure(self, examples: Sequence[ExampleT], predictions: Sequence[PredictionT]) -> dict[str, float]:
        """Return the metrics of the task and your own metrics.

        Raises:
            DataError: one of your metrics did not return a number.
        """
        scores = self.scores(examples, predictions)
        if self.own_metrics:
            true = [self.truth(example) for example in examples]
            pairs = zip(examples, predictions, strict=True)
            predicted = [self.record(*pair).get(self.answer) for pair in pairs]
            scores |= {one.title: one.value(true, predicted) for one in self.own_metrics}
        return scores

    def main_metric(self, examples: Sequence[ExampleT]) -> str:
        """Return the name of the metric that selects the best model; by default the first in `metrics`.

        Raises:
            ConfigError: the class declares no metrics.
        """
        if not self.metrics:
            raise ConfigError(
                f"{type(self).__name__} declares no metrics. Expected an attribute such as "
                'metrics = directions("accuracy").'
            )
        return next(iter(self.metrics))

    def lacking(self, metric: str, scores: Iterable[str]) -> ConfigError:
        """Return the error for a metric that the task declares but `scores` does not return."""
        return ConfigError(
            f"the scores of {self.name} lack {metric!r}, which `metrics` declares. They have "
            f"{', '.join(map(repr, scores)) or 'nothing'}. Return {metric!r} from `scores`, or "
            "change `metrics`."
        )

    def for_examples(self, examples: Sequence[ExampleT]) -> Self:
        """Return the task for evaluating these examples, with values that depend on them."""
        return self

    def compared(self, examples: Sequence[ExampleT], predictions: list[PredictionT]) -> list[PredictionT]:
        """Return the predictions, completed with values that depend on all of them, such as ranks."""
        return predictions

    def tuned(self, examples: Sequence[ExampleT], predictions: Sequence[PredictionT]) -> dict[str, Any]:
        """Return config entries that are chosen on the validation data after training."""
        return {}

    def baseline(self, examples: Sequence[ExampleT]) -> dict[str, float]:
        """Return the metrics of the best prediction that ignores the input; empty if unknown."""
        return {}

    def judge(self, example: ExampleT, prediction: PredictionT) -> list[Judged]:
        """Return the decisions for an example; by default one, the record's answer."""
        record = self.record(example, prediction)
        true, predicted = self.truth(example), record.get(self.answer)
        confidence = record.get(self.probability) if self.probability else None
        return [Judged(_hashable(true), _hashable(predicted), true == predicted, confidence)]

    def learnt_classes(self, rows: Iterable[RowT]) -> Counter[int] | None:
        """Count the classes in training rows; None if the labels are not single classes."""
        return None

    def prior_loss(self, rows: Sequence[RowT]) -> float | None:
        """Return the loss of the best prediction that ignores the input; None if unknown."""
        counts = self.learnt_classes(rows)
        return None if counts is None else entropy(counts)

    def constant_answer(self, examples: Sequence[ExampleT], predictions: Sequence[PredictionT]) -> str | None:
        """Return the answer if the model gives it to all examples although the labels differ, else None."""
        pairs = zip(examples, predictions, strict=True)
        judged = [decision for pair in pairs for decision in self.judge(*pair)]
        true, predicted = ([getattr(one, side) for one in judged] for side in ("true", "predicted"))
        return repr(predicted[0]) if is_constant(true, predicted) else None


def example_name(example: Any, number: int) -> str:
    """Return the id of an example, or its number."""
    return str(getattr(example, "id", "") or number)


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value
