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

from albertkit.config import IGNORED_LABEL, SETTINGS_KEY, TASK_KEY, AlbertConfig
from albertkit.datasets.options import DataOptions
from albertkit.datasets.reader import MappingTable, Reader
from albertkit.engines.engine import Engine, Row, first_token
from albertkit.errors import ConfigError, DataError, short
from albertkit.heads import head_of
from albertkit.tasks.label_kinds import entropy
from albertkit.tasks.labels import LabelSet
from albertkit.tasks.rows import check_rows
from albertkit.tasks.scoring import ExampleT, PredictionT, TaskScoring
from albertkit.tasks.settings import ProblemType, TaskSettings
from albertkit.tokenization.base import TokenizerBase

RowT = TypeVar("RowT", bound=Row)


class Task(TaskScoring[ExampleT, PredictionT], ABC, Generic[ExampleT, RowT, PredictionT]):
    """Base class of tasks. A task defines how to read, train on, predict and evaluate examples."""

    tokenizer: TokenizerBase
    config: AlbertConfig
    settings: TaskSettings
    max_length: int
    """Maximum length of a row in tokens."""
    labels: Any = None
    """The `LabelSet` of the model, for a task with label names."""

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
            ConfigError: a setting or the config does not fit the task, or the class of the task declares
                something that cannot be.
        """
        self.check_declaration()
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

    def room_note(self) -> str | None:
        """Return a note if the maximum length in the settings exceeds the model's maximum, otherwise None."""
        wanted = self.settings.max_length
        if wanted is None or wanted <= self.max_length:
            return None
        limit = self.max_length
        return f"max_length is {wanted}, but the model's maximum is {limit} tokens: using {limit}"

    def saved(self, examples: Sequence[ExampleT]) -> dict[str, Any]:
        """Return the entries to save in the config of the trained model; the value None removes an entry."""
        of_settings = {name: getattr(self.settings, name) for name in self.saved_settings}
        lengths = {name: getattr(self, name, value) for name, value in of_settings.items()}
        return {TASK_KEY: self.name, SETTINGS_KEY: lengths}

    # --- data

    def reader(self, source: Any, options: DataOptions, *, labeled: bool = True) -> Reader[ExampleT]:
        """Return the reader of a source. By default, `example` converts the rows of any table.

        Args:
            source: the path of a file or folder, a table, or a list of dicts.
            options: columns and layout of the source.
            labeled: whether examples must have labels.

        Raises:
            DataError: the source or a column does not exist.
        """
        return MappingTable(source, self.example, options, labeled=labeled)

    def example(self, row: Mapping[str, Any]) -> ExampleT:
        """Return the example of a row of a table, with its labels if the row has them.

        Raises:
            DataError: the row is invalid. The reader skips and counts it.
        """
        raise ConfigError(
            f"{type(self).__name__} has neither `example` nor `reader`, so it cannot read a table. Pass "
            "examples, or define one of these methods."
        )

    def is_labeled(self, example: ExampleT) -> bool:
        """Return whether an example has a label; by default, whether `truth` returns a value."""
        return self.truth(example) is not None

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
        """Return an example with its label as the set writes it; raise `UnknownLabel` if the set lacks it."""
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
            DataError: a label is unknown, or a text is too long and can be neither truncated nor split into
                windows.
        """

    def checked_features(self, examples: Sequence[ExampleT]) -> list[RowT]:
        """Return the result of `features`.

        Raises:
            DataError: see `features`; or a row is longer than `max_length`, or invalid in another way.
        """
        rows = self.features(examples)
        check_rows(rows, examples, task=self.name, max_length=self.max_length)
        return rows

    @abstractmethod
    def labels_of(self, rows: Sequence[RowT]) -> dict[str, np.ndarray]:
        """Return the labels of a training batch, by the name of their argument in the forward pass.

        Args:
            rows: the labeled rows of the batch, which contain complete units.
        """

    def checked_labels(self, rows: Sequence[RowT]) -> dict[str, np.ndarray]:
        """Return the result of `labels_of`.

        Raises:
            ConfigError: it is not a dict.
        """
        labels: Any = self.labels_of(rows)
        if not isinstance(labels, dict):
            raise ConfigError(
                f"`labels_of` of {self.name} returned an object of the type {type(labels).__name__}. "
                'Expected a dict of arrays, such as {"labels": array}.'
            )
        return labels

    def units(self, rows: Sequence[RowT]) -> list[list[RowT]]:
        """Return the groups of rows that a training batch must keep together; by default, each row alone."""
        return [[row] for row in rows]

    def items(self, rows: Sequence[RowT]) -> int:
        """Return the number of labeled items that the loss averages over.

        By default, items are units. If the head scores each token, they are the tokens whose label in
        `labels_of` is neither -100 nor NaN. Override the method if your loss averages over something else.
        """
        units = len(self.units(rows))
        if not head_of(self.architecture).scores_tokens or not rows:
            return units
        labels = self.checked_labels(rows).get("labels")
        if not isinstance(labels, np.ndarray) or labels.ndim == 0:
            return units
        first = labels.reshape(*labels.shape[:2], -1)[..., 0]  # (B, T, K) -> (B, T); K labels are one item
        return int(np.count_nonzero((first != IGNORED_LABEL) & (first == first)))

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
        """The end of the note on truncated examples, which begins with their number: "3 of 90 "."""
        return f"texts are longer than {self.max_length} tokens and are truncated"

    def troubles(self, rows: Sequence[RowT]) -> Counter[str]:
        """Count the examples whose answer the model cannot predict, by kind of problem."""
        return Counter()

    # --- predictions

    def read(self, row: RowT) -> Sequence[int]:
        """Return the positions in a row at which the task reads the output; by default only that of [CLS]."""
        return first_token(row)

    def keep(self, scores: np.ndarray) -> np.ndarray:
        """Return the scores to keep of a row's scores (R, K) at R positions; by default the first, (K,)."""
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

    def checked_predictions(
        self, examples: Sequence[ExampleT], rows: Sequence[RowT], outputs: Sequence[np.ndarray]
    ) -> list[PredictionT]:
        """Return the result of `predictions`.

        Raises:
            DataError: there is not one prediction for each example.
        """
        predictions = self.predictions(examples, rows, outputs)
        count = len(predictions) if isinstance(predictions, list | tuple) else None
        if count != len(examples):
            found = short(predictions) if count is None else f"{count} prediction{'s' * (count != 1)}"
            raise DataError(
                f"`predictions` of {self.name} returned {found} for {len(examples)} examples. Expected one "
                "for each example, in a list."
            )
        return list(predictions)

    def learnt_classes(self, rows: Iterable[RowT]) -> Counter[int] | None:
        """Count the classes in training rows; None if the labels are not single classes."""
        return None

    def prior_loss(self, rows: Sequence[RowT]) -> float | None:
        """Return the loss of the best prediction that ignores the input; None if unknown."""
        counts = self.learnt_classes(rows)
        return None if counts is None else entropy(counts)


def example_name(example: Any, number: int) -> str:
    """Return the id of an example, or its number."""
    return str(getattr(example, "id", "") or number)
