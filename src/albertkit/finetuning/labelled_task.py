"""What fine-tuning knows of a task beside `tasks/`: its files, its labels in the config, its measures.

Examples, rows and predictions are those of the task's own file; here they are only handed on.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from albertkit.config import AlbertConfig
from albertkit.datasets.labels import LabelSet
from albertkit.datasets.reader import Reader
from albertkit.datasets.sources import FORMATS, open_table
from albertkit.datasets.table import Table
from albertkit.errors import ConfigError, did_you_mean
from albertkit.finetuning.data_options import DataOptions
from albertkit.finetuning.settings import FinetuningSettings, TaskSettings
from albertkit.tasks.task import Task
from albertkit.text_files import file_format
from albertkit.tokenization.base import TokenizerBase

if TYPE_CHECKING:
    from albertkit.modeling.pretrained import AlbertPreTrainedModel


@dataclass(frozen=True, slots=True)
class Judged:
    """One decision of the model beside the truth: of an example, or of a word of it."""

    true: Hashable
    predicted: Hashable
    right: bool
    confidence: float | None = None
    """The probability of what was predicted, where it is one."""


class LabelledTask(ABC):
    """A task with its data and its measures."""

    architecture: ClassVar[str]
    """The name of the model class."""
    unused: ClassVar[tuple[str, ...]] = ()
    """How the names of parameters begin that the task has no use for: they are not trained, and may lack."""
    metrics: ClassVar[tuple[str, ...]]
    """All metrics that a model can be chosen by; each kind of data has some of them."""
    axes: ClassVar[tuple[str, str]] = ("true", "predicted")
    """What a picture of numbers calls the two."""

    @property
    def model_class(self) -> "type[AlbertPreTrainedModel]":
        """The PyTorch class that is trained."""
        from albertkit.modeling import auto

        return getattr(auto, self.architecture)

    @abstractmethod
    def reader(self, source: str, options: DataOptions, *, labelled: bool = True) -> Reader[Any]:
        """Return what reads examples from a file or a folder.

        Raises:
            DataError: no such source, or no such column.
        """

    def table(self, source: str, options: DataOptions) -> Table | None:
        """Return the table of a source, or None for a source without named columns."""
        path = Path(source)
        if options.glue is not None or not ((path / "state.json").is_file() or self.is_table(path)):
            return None
        return open_table(source, header=options.header, delimiter=options.delimiter)

    def is_table(self, path: Path) -> bool:
        """Return whether the task reads a file as a table, by its name."""
        return file_format(path)[0] in FORMATS

    @abstractmethod
    def task(self, tokenizer: TokenizerBase, config: AlbertConfig, settings: TaskSettings) -> Task:
        """Return the task for a model of this config."""

    @abstractmethod
    def main_metric(self, config: AlbertConfig, examples: Sequence[Any]) -> str:
        """Return the name of the metric to choose a model by."""

    @abstractmethod
    def scores(
        self, examples: Sequence[Any], predictions: Sequence[Any], config: AlbertConfig
    ) -> dict[str, float]:
        """Return the metrics; a correlation that is no number, of constant predictions, is 0."""

    @abstractmethod
    def judge(self, example: Any, prediction: Any, config: AlbertConfig) -> list[Judged]:
        """Return the decisions of one example."""

    @abstractmethod
    def record(self, example: Any, prediction: Any, config: AlbertConfig) -> dict[str, Any]:
        """Return a prediction as plain values: what a file of predictions has in a row."""

    @abstractmethod
    def truth(self, example: Any) -> Any:
        """Return what is right for a labelled example, as plain values."""

    def labels(self, config: AlbertConfig) -> LabelSet | None:
        """Return the labels of a fine-tuned model, for a task that names them."""
        del config
        return None

    def config_changes(self, labels: LabelSet | None) -> dict[str, Any]:
        """Return the arguments of `AlbertConfig` that the labels give."""
        return {} if labels is None else {"id2label": labels.id2label()}

    def note(self, config: AlbertConfig, settings: TaskSettings, examples: Sequence[Any]) -> None:
        """Put into the config, before training, with which settings and for what the model is to be used."""
        del config, settings, examples

    def check_fit(self, examples: Sequence[Any], config: AlbertConfig) -> None:
        """Raise a DataError for examples of another kind than those a model was fine-tuned on."""
        del examples, config

    def config_for(self, config: AlbertConfig, examples: Sequence[Any]) -> AlbertConfig:
        """Return the config with what these examples say of how a model is to be used, where it does not."""
        del examples
        return config

    def check(
        self, examples: Mapping[str, Sequence[Any]], config: AlbertConfig, settings: FinetuningSettings
    ) -> str | None:
        """Return what is to be said about learning from these examples, "training" and "validation".

        Raises:
            ConfigError, DataError: it is impossible.
        """
        del examples, config, settings
        return None

    def compared(self, examples: Sequence[Any], predictions: Sequence[Any]) -> list[Any]:
        """Return the predictions with what only all of them together can tell."""
        del examples
        return list(predictions)

    def ranks(self, predictions: Sequence[Any]) -> list[int]:
        """Return the place of each right answer, where a model puts answers into an order."""
        del predictions
        return []

    def tune(self, config: AlbertConfig, examples: Sequence[Any], predictions: Sequence[Any]) -> bool:
        """Put into the config what is chosen on validation data after training; tell whether there is any."""
        del config, examples, predictions
        return False

    def lean(self, row: Any) -> Any:
        """Return a row without what only predictions need, since those of training are all in memory."""
        return row

    def what_is_cut(self, task: Task) -> str:
        """Return what the examples are of which something is cut: "3 of 90 ..."."""
        return f"texts are longer than {task.max_length} tokens, and what is beyond is cut off"

    def troubles(self, task: Task, rows: Sequence[Any]) -> Counter[str]:
        """Count the examples that cannot be right, by what is wrong with their answers."""
        del task, rows
        return Counter()

    def notes(self, task: Task, count: int, cut: int, troubles: Counter[str]) -> list[str]:
        """Return what is to be said of so many examples: how many are cut, how many cannot be right."""
        found = Counter({self.what_is_cut(task): cut}) + troubles  # a sum has no zeros
        return [f"{number:,} of {count:,} {what}" for what, number in found.items()]

    def learnable(self, rows: Sequence[Any]) -> Sequence[Any]:
        """Return the training rows that can be learnt."""
        return rows

    def items(self, task: Task, rows: Sequence[Any]) -> int:
        """Count what the loss of rows is the mean of."""
        return len(task.units(rows))

    def learnt_classes(self, rows: Iterable[Any]) -> Counter[int] | None:
        """Count the classes that training rows teach; None where the loss is not that of one class."""
        del rows
        return None

    def prior_loss(self, rows: Sequence[Any], config: AlbertConfig) -> float | None:
        """Return the loss of the best prediction that does not look at the input; None if there is none."""
        del config
        counts = self.learnt_classes(rows)
        return None if counts is None else entropy(counts)

    def baseline(self, examples: Sequence[Any], config: AlbertConfig) -> dict[str, float]:
        """Return metrics of the best prediction that does not look at the input; none where it is unknown."""
        del examples, config
        return {}

    def constant_answer(
        self, examples: Sequence[Any], predictions: Sequence[Any], config: AlbertConfig
    ) -> str | None:
        """Return what a model says of everything, where it always says the same of data that is not."""
        pairs = zip(examples, predictions, strict=True)
        judged = [decision for pair in pairs for decision in self.judge(*pair, config)]
        return repr(judged[0].predicted) if self.is_constant(judged) else None

    def is_constant(self, judged: Sequence[Judged]) -> bool:
        """Tell whether a model always says the same of data that is not all the same."""
        return len({one.predicted for one in judged}) == 1 and len({one.true for one in judged}) > 1


def check_best_metric(labelled: LabelledTask, metric: str | None) -> None:
    """Raise a ConfigError for a metric that the task has for no kind of data."""
    if metric is not None and metric not in labelled.metrics:
        raise ConfigError(
            f"best_metric is {metric!r}{did_you_mean(metric, labelled.metrics)}; expected one of "
            f"{', '.join(labelled.metrics)}"
        )


def majority(labels: Iterable[Hashable]) -> dict[str, float]:
    """Return the accuracy of always predicting the most frequent label."""
    counts = Counter(labels)
    return {"accuracy": max(counts.values()) / counts.total()}


def entropy(counts: Counter[int]) -> float:
    """Return the cross-entropy of always predicting these frequencies."""
    shares = np.array(list(counts.values())) / counts.total()
    return float(-(shares * np.log(shares)).sum())


def task_room(config: AlbertConfig, settings: TaskSettings) -> int:
    """Return the most tokens of a row."""
    limit = config.max_position_embeddings
    return limit if settings.max_length is None else min(settings.max_length, limit)


def room_note(config: AlbertConfig, settings: TaskSettings) -> str | None:
    """Return what is to be said where rows are shorter than they were to be."""
    limit = config.max_position_embeddings
    if settings.max_length is None or settings.max_length <= limit:
        return None
    return f"max_length is {settings.max_length}, and the model reads at most {limit} tokens: {limit} it is"


def without(row: Any, *fields: str) -> Any:
    """Return a row with these lists empty."""
    return replace(row, **{name: [] for name in fields})
