"""What every task is: examples -> rows -> scores of the model -> predictions -> records and metrics.

    task = TextClassification().bind(tokenizer, config, TaskSettings(max_length=128))
    rows = task.features(examples)             # ids, segments, labels; the number of their example
    outputs = task.run(engine, rows)           # one array for each row, whatever the batches
    predictions = task.predictions(examples, rows, outputs)
    task.scores(examples, predictions)         # {"accuracy": 0.9}

Pipelines and evaluation both end in `predictions`, so what is measured is what is used. A task without a
model knows its files and its metrics; `bind` gives it the tokenizer, the config and the settings of a model.

A task of your own derives from `Task` and writes `example`, `features`, `labels_of`, `predictions`, `record`,
`truth` and `scores`: docs/how-to/own-task.md.
"""

import copy
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from albertkit.config import AlbertConfig
from albertkit.config_fields import SETTINGS_KEY, TASK_KEY
from albertkit.datasets.options import DataOptions
from albertkit.datasets.reader import FORMATS, MappingTable, Reader
from albertkit.engines.engine import Engine, Row, first_token
from albertkit.errors import ConfigError
from albertkit.heads import HEADS, Output, scores_of
from albertkit.tasks.label_kinds import entropy
from albertkit.tasks.labels import LabelSet
from albertkit.tasks.measuring import Direction, Judged, Metric, OwnMetrics, is_constant, own_metrics
from albertkit.tasks.settings import ProblemType, TaskSettings
from albertkit.tokenization.base import TokenizerBase

ExampleT = TypeVar("ExampleT")
RowT = TypeVar("RowT", bound=Row)
PredictionT = TypeVar("PredictionT")


class Task(ABC, Generic[ExampleT, RowT, PredictionT]):
    """A task: how examples are read, learned, predicted and measured. One class in one file."""

    name: ClassVar[str]
    architecture: ClassVar[str]
    """The name of the model class."""
    metrics: ClassVar[Mapping[str, Direction]] = {}
    """All metrics that a model can be chosen by; each kind of data has some of them."""
    objective: ClassVar[str | Callable[..., Any]] = "head"
    """The loss: "head" for the loss of the model itself, "binary_cross_entropy", "embedding", or a function,
    as a `staticmethod`. The function gets two torch tensors: the logits, (B, K) or (B, T, K) in float32, and
    the `labels` of `labels_of`. It returns their mean loss, a tensor with one element."""
    answer: ClassVar[str] = "label"
    """The column of a record that `truth` is compared with."""
    probability: ClassVar[str | None] = None
    """The column of a record with the probability of the answer; None for none. Reports compare it with how
    often the answer is right."""
    output: ClassVar[Output] = "logits"
    """The output of the model that the task reads."""
    saved_settings: ClassVar[tuple[str, ...]] = ("max_length",)
    """The settings of numbers that a model which was fine-tuned with them should be used with."""
    training_multiple: ClassVar[int] = 8
    """A training batch is padded to a multiple of this many tokens: a CPU that computes in bfloat16 keeps
    memory for every shape it has seen."""
    unused: ClassVar[tuple[str, ...]] = ()
    """How the names of parameters begin that the task has no use for: they are not trained, and may lack."""
    for_predictions: ClassVar[tuple[str, ...]] = ()
    """Lists of a row that only predictions need; training rows are kept without them."""
    reads_windows: ClassVar[bool] = False
    """Whether texts that are too long are read in windows, neither cut nor refused."""
    may_lack_room: ClassVar[bool] = False
    """Whether examples may be too long although texts are cut."""
    skips_unlabelled: ClassVar[bool] = False
    """Whether training leaves out rows without labels; else they are an error."""
    table_formats: ClassVar[tuple[str, ...]] = FORMATS
    """Endings of files that the task reads as tables."""
    axes: ClassVar[tuple[str, str]] = ("true", "predicted")
    """The axes of a picture of numbers."""

    tokenizer: TokenizerBase
    config: AlbertConfig
    settings: TaskSettings
    max_length: int
    """Maximum number of tokens of a row."""
    labels: Any = None
    """The `LabelSet` of the model, for a task that has names for labels."""
    own_metrics: tuple[Metric, ...] = ()

    # --- a task and a model

    def bind(
        self, tokenizer: TokenizerBase, config: AlbertConfig, settings: TaskSettings | None = None
    ) -> Self:
        """Return the task for a model.

        Args:
            tokenizer: the model's.
            config: the model's.
            settings: how examples become rows.

        Raises:
            ConfigError: a setting leaves no room, the config does not fit the task, or the architecture does
                not compute the output that the task reads.
        """
        self._check_output()
        bound = copy.copy(self)
        bound.tokenizer, bound.settings = tokenizer, settings or TaskSettings()
        bound.use_config(config)
        return bound

    def _check_output(self) -> None:
        if scores_of(self.architecture, self.output) is None:
            scoring = ", ".join(name for name, head in HEADS.items() if self.output in head.scores)
            raise ConfigError(
                f"the architecture of {self.name} is {self.architecture!r}, which computes no {self.output}; "
                f"expected one of {scoring}: set it as the task's architecture"
            )

    def use_config(self, config: AlbertConfig) -> None:
        """Take what the task needs from the config of its model."""
        limit, wanted = config.max_position_embeddings, self.settings.max_length
        self.config, self.max_length = config, limit if wanted is None else min(wanted, limit)
        if type(self).find_labels is not Task.find_labels:
            self.labels = LabelSet.of(config)
        if self.max_length < 4:
            raise ConfigError(
                f"max_length is {self.max_length}. Expected at least 4: a pair has 3 special tokens."
            )

    def with_config(self, config: AlbertConfig) -> Self:
        """Return the task for a model with another config."""
        bound = copy.copy(self)
        bound.use_config(config)
        return bound

    def with_metrics(self, metrics: OwnMetrics) -> Self:
        """Return the task with further metrics; the first one chooses the best model.

        Raises:
            ConfigError: something else than metrics, or a name that is taken.
        """
        task = copy.copy(self)
        task.own_metrics = own_metrics(metrics)
        names = [*self.metrics, *(metric.title for metric in task.own_metrics)]
        taken = [name for name, count in Counter(names).items() if count > 1]
        if taken:
            where = f"{self.name} has one of this name" if taken[0] in self.metrics else "it is given twice"
            raise ConfigError(
                f"the name of a metric is {taken[0]!r}, and {where}; give it another name: "
                "Metric(function, name=...)"
            )
        return task

    @property
    def directions(self) -> dict[str, Direction]:
        """Which values are better, of all metrics that a model can be chosen by."""
        return {**self.metrics, **self.own_directions}

    @property
    def own_directions(self) -> dict[str, Direction]:
        """Which values are better, of the metrics of your own."""
        return {one.title: "lower" if one.lower_is_better else "higher" for one in self.own_metrics}

    def room_note(self) -> str | None:
        """Return what to say if rows are shorter than was asked for."""
        wanted = self.settings.max_length
        if wanted is None or wanted <= self.max_length:
            return None
        limit = self.max_length
        return f"max_length is {wanted}, and the model reads at most {limit} tokens: {limit} it is"

    def saved(self, examples: Sequence[ExampleT]) -> dict[str, Any]:
        """Return what the config of a model that learns these examples keeps; None removes an entry."""
        lengths = {name: self.setting(name) for name in self.saved_settings}
        return {TASK_KEY: self.name, SETTINGS_KEY: lengths}

    def setting(self, name: str) -> Any:
        """Return a setting as it is in effect."""
        return getattr(self, name) if hasattr(self, name) else getattr(self.settings, name)

    # --- data

    def reader(self, source: Any, options: DataOptions, *, labelled: bool = True) -> Reader[ExampleT]:
        """Return the reader of a source: here of any table, by `example`.

        Args:
            source: path of a file or folder, or a table.
            options: columns and layout.
            labelled: whether examples are to have labels.

        Raises:
            DataError: there is no such source, or no such column.
        """
        return MappingTable(source, self.example, options, labelled=labelled)

    def example(self, row: Mapping[str, Any]) -> ExampleT:
        """Return the example of a row of a table, with its labels if they are there.

        Raises:
            DataError: the row is not an example; it is left out and counted.
        """
        raise ConfigError(
            f"{type(self).__name__} has neither `example` nor `reader`: give it examples, not tables"
        )

    def find_labels(
        self, examples: Sequence[ExampleT], names: tuple[str, ...] | None, problem_type: ProblemType | None
    ) -> LabelSet | None:
        """Return the kind and the names of the labels; None for a task without names of labels.

        The model computes one score for each name.

        Args:
            examples: of the training split.
            names: all names in order, where the source says them.
            problem_type: the kind of labels, where it is not to be inferred.

        Raises:
            DataError: no labels.
        """
        return None

    def with_label(self, example: ExampleT, labels: LabelSet) -> ExampleT:
        """Return an example with its label as the set reads it; raise `UnknownLabel` if it is not in it."""
        return example

    def check(
        self, training: Sequence[ExampleT], validation: Sequence[ExampleT], batch_size: int
    ) -> str | None:
        """Return what to say about learning from these examples.

        Raises:
            ConfigError, DataError: it is impossible.
        """
        return None

    def check_fit(self, examples: Sequence[ExampleT]) -> None:
        """Raise a DataError for examples of another kind than those that the model was fine-tuned on."""

    # --- rows

    @abstractmethod
    def features(self, examples: Sequence[ExampleT]) -> list[RowT]:
        """Return the rows of all examples, those of one example next to each other.

        Raises:
            DataError: a text that is too long and neither windowed nor to be cut; an unknown label.
        """

    @abstractmethod
    def labels_of(self, rows: Sequence[RowT]) -> dict[str, np.ndarray]:
        """Return the labels of rows that share a training batch, by their names in the model's forward pass.

        Args:
            rows: with labels, in whole units.
        """

    def units(self, rows: Sequence[RowT]) -> list[list[RowT]]:
        """Return the rows that a training batch must keep together: here each alone."""
        return [[row] for row in rows]

    def items(self, rows: Sequence[RowT]) -> int:
        """Return the number of labeled items whose mean is the loss of rows: here units."""
        return len(self.units(rows))

    def padded_length(self, rows: Sequence[RowT]) -> int:
        """Return the width of a training batch in tokens: a rounded number, up to `max_length`."""
        longest = max(len(row.input_ids) for row in rows)
        rounded = -(-longest // self.training_multiple) * self.training_multiple
        return max(longest, min(rounded, self.max_length))

    def lean(self, row: RowT) -> RowT:
        """Return a row as training keeps it in memory."""
        return replace(row, **{name: [] for name in self.for_predictions}) if self.for_predictions else row

    @property
    def cuts(self) -> bool:
        """Whether texts that are too long are cut, so that records have a column `cut`."""
        return self.settings.truncation and not self.reads_windows

    @property
    def refuses(self) -> bool:
        """Whether examples that are too long may be an error."""
        return self.may_lack_room or not (self.settings.truncation or self.reads_windows)

    @property
    def cut_note(self) -> str:
        """The examples of which something is cut: "3 of 90 ..."."""
        return f"texts are longer than {self.max_length} tokens, and what is beyond is cut off"

    def troubles(self, rows: Sequence[RowT]) -> Counter[str]:
        """Count the examples that cannot be right, by what is wrong with their answers."""
        return Counter()

    # --- predictions

    def read(self, row: RowT) -> Sequence[int]:
        """Return the tokens of a row at which the task reads the output: here [CLS]."""
        return first_token(row)

    def keep(self, scores: np.ndarray) -> np.ndarray:
        """Return what `run` keeps of a row's scores (R, K) at the tokens read: here those of [CLS], (K,)."""
        return scores[0]

    def run(
        self,
        engine: Engine,
        rows: Sequence[RowT],
        *,
        batch_tokens: int | None = None,
        batch_size: int | None = None,
    ) -> list[np.ndarray]:
        """Return the scores of each row, computed without dropout and gradients.

        Args:
            engine: computes a model of the task's architecture.
            rows: of any lengths.
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
            examples: those given to `features`.
            rows: the rows that it returned.
            outputs: the scores that `run` returned for them.
        """

    @abstractmethod
    def record(self, example: ExampleT, prediction: PredictionT) -> dict[str, Any]:
        """Return a prediction as plain values: the columns of a file of predictions."""

    @abstractmethod
    def truth(self, example: ExampleT) -> Any:
        """Return the right answer of a labeled example, as plain values."""

    # --- measuring

    @abstractmethod
    def scores(self, examples: Sequence[ExampleT], predictions: Sequence[PredictionT]) -> dict[str, float]:
        """Return the metrics; a correlation that is not a number, of constant predictions, is 0."""

    def measure(self, examples: Sequence[ExampleT], predictions: Sequence[PredictionT]) -> dict[str, float]:
        """Return the metrics of the task and those of your own.

        Raises:
            DataError: a metric of your own returned no number.
        """
        scores = self.scores(examples, predictions)
        if self.own_metrics:
            true = [self.truth(example) for example in examples]
            pairs = zip(examples, predictions, strict=True)
            predicted = [self.record(*pair).get(self.answer) for pair in pairs]
            scores |= {one.title: one.value(true, predicted) for one in self.own_metrics}
        return scores

    def main_metric(self, examples: Sequence[ExampleT]) -> str:
        """Return the name of the metric to choose a model by: here the first of the class.

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
        """Return the error for scores without a metric that the task declares."""
        return ConfigError(
            f"the scores of {self.name} lack {metric!r}, which it declares; they have "
            f"{', '.join(map(repr, scores)) or 'nothing'}. Return {metric!r} from `scores`, or "
            "change `metrics`"
        )

    def for_examples(self, examples: Sequence[ExampleT]) -> Self:
        """Return the task as it is measured on these examples."""
        return self

    def compared(self, examples: Sequence[ExampleT], predictions: list[PredictionT]) -> list[PredictionT]:
        """Return the predictions with what only all of them together can tell."""
        return predictions

    def tuned(self, examples: Sequence[ExampleT], predictions: Sequence[PredictionT]) -> dict[str, Any]:
        """Return what is chosen on validation data after training, as entries of the config."""
        return {}

    def baseline(self, examples: Sequence[ExampleT]) -> dict[str, float]:
        """Return metrics of the best prediction that does not look at the input; none where it is unknown."""
        return {}

    def judge(self, example: ExampleT, prediction: PredictionT) -> list[Judged]:
        """Return the decisions of one example: here one, of the record's answer."""
        record = self.record(example, prediction)
        true, predicted = self.truth(example), record.get(self.answer)
        confidence = record.get(self.probability) if self.probability else None
        return [Judged(_hashable(true), _hashable(predicted), true == predicted, confidence)]

    def learnt_classes(self, rows: Iterable[RowT]) -> Counter[int] | None:
        """Count the classes that training rows teach; None where the loss is not that of one class."""
        return None

    def prior_loss(self, rows: Sequence[RowT]) -> float | None:
        """Return the loss of the best prediction that does not look at the input; None if there is none."""
        counts = self.learnt_classes(rows)
        return None if counts is None else entropy(counts)

    def constant_answer(self, examples: Sequence[ExampleT], predictions: Sequence[PredictionT]) -> str | None:
        """Return the answer of a model that gives the same to everything, though the labels differ."""
        pairs = zip(examples, predictions, strict=True)
        judged = [decision for pair in pairs for decision in self.judge(*pair)]
        true, predicted = ([getattr(one, side) for one in judged] for side in ("true", "predicted"))
        return repr(predicted[0]) if is_constant(true, predicted) else None


def example_name(example: Any, number: int) -> str:
    """Return the id of an example, or its number."""
    return str(getattr(example, "id", "") or number)


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value
