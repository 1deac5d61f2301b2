"""What every task is: labelled examples -> rows -> what the model says -> predictions.

    rows = task.features(examples)             # ids, segments, labels; which example each comes from
    outputs = task.run(engine, rows)           # one array for each row, whatever the batches
    predictions = task.predictions(examples, rows, outputs)

Pipelines and the evaluation of fine-tuning both end in `predictions`, so what is measured is what is used.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar

import numpy as np

from albertkit.config import AlbertConfig
from albertkit.engines.engine import Engine, Row, first_token
from albertkit.errors import ConfigError, DataError
from albertkit.heads import Output
from albertkit.tokenization.base import TokenizerBase

SETTINGS_KEY = "task_settings"
"""Where the config of a fine-tuned model keeps the lengths that its rows were made with."""

ExampleT = TypeVar("ExampleT")
RowT = TypeVar("RowT", bound=Row)
PredictionT = TypeVar("PredictionT")


def saved_lengths(config: AlbertConfig) -> dict[str, int]:
    """Return the lengths that a model was fine-tuned with, by argument; none of a model that does not say.

    Raises:
        ConfigError: the config has something else there.
    """
    found = config.extra.get(SETTINGS_KEY, {})
    if not isinstance(found, dict) or not all(type(one) is int and one >= 0 for one in found.values()):
        raise ConfigError(
            f"{SETTINGS_KEY} in the config is {found!r:.80}; expected lengths such as {{'max_length': 128}}. "
            "Correct config.json, or remove the entry"
        )
    return found


class Task(ABC, Generic[ExampleT, RowT, PredictionT]):
    """A task for one tokenizer and one length of input.

    Args:
        tokenizer: cuts texts into pieces.
        max_length: most tokens of a row, special tokens included.

    Raises:
        ConfigError: there is no room for a token beside the special ones.
    """

    name: ClassVar[str]
    architecture: ClassVar[str]
    """The name of the model class."""
    training_multiple: ClassVar[int] = 8
    """A training batch is padded to a multiple of so many tokens: a CPU that computes in bfloat16 keeps
    memory for every shape it has seen."""
    output: ClassVar[Output] = "logits"
    """What the task reads of a model."""
    lengths: ClassVar[tuple[str, ...]] = ("max_length",)
    """The arguments that a model which was fine-tuned with them should be used with."""

    def __init__(self, tokenizer: TokenizerBase, *, max_length: int) -> None:
        if max_length < 4:
            raise ConfigError(f"max_length is {max_length}; expected at least 4: a pair has 3 special tokens")
        self.tokenizer = tokenizer
        self.max_length = max_length

    @abstractmethod
    def features(self, examples: Sequence[ExampleT]) -> list[RowT]:
        """Return the rows of all examples, those of one example next to each other.

        Raises:
            DataError: a text that is too long and neither windowed nor to be cut; a label that is none.
        """

    @abstractmethod
    def predictions(
        self, examples: Sequence[ExampleT], rows: Sequence[RowT], outputs: Sequence[np.ndarray]
    ) -> list[PredictionT]:
        """Return what is predicted for each example.

        Args:
            examples: those given to `features`.
            rows: what it returned.
            outputs: what `run` returned for them.
        """

    def read(self, row: RowT) -> Sequence[int]:
        """Return at which tokens of a row the task reads the output: here at [CLS]."""
        return first_token(row)

    def keep(self, scores: np.ndarray) -> np.ndarray:
        """Return what `run` keeps of a row's scores (R, K) at the tokens read: here those of [CLS], (K,)."""
        return scores[0]

    @abstractmethod
    def labels_of(self, rows: Sequence[RowT]) -> dict[str, np.ndarray]:
        """Return the labels of rows that share a training batch, by their names in the model's forward pass.

        Args:
            rows: with labels, in whole units.
        """

    def units(self, rows: Sequence[RowT]) -> list[list[RowT]]:
        """Return the rows that a training batch must keep together: here each alone."""
        return [[row] for row in rows]

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
            batch_tokens, batch_size: as in `Engine.run`.
        """
        return engine.run(
            rows,
            output=self.output,
            read=self.read,
            then=self.keep,
            batch_tokens=batch_tokens,
            batch_size=batch_size,
        )

    def padded_length(self, rows: Sequence[RowT]) -> int:
        """Return how many tokens wide a training batch is: a rounded number, up to `max_length`."""
        longest = max(len(row.input_ids) for row in rows)
        rounded = -(-longest // self.training_multiple) * self.training_multiple
        return max(longest, min(rounded, self.max_length))


def label_ids(labels: Sequence[str]) -> dict[str, int]:
    """Return the number of each label.

    Raises:
        ConfigError: no labels, or one of them twice.
    """
    ids = {label: number for number, label in enumerate(labels)}
    if not ids or len(ids) != len(labels):
        raise ConfigError(f"the labels are {list(labels)!r:.200}; expected at least one, each once")
    return ids


def unknown_label(label: object, known: Sequence[str], *, where: str) -> DataError:
    """Return the error for a label that is none of the task's."""
    listed = ", ".join(known[:20]) + (" ..." if len(known) > 20 else "")
    return DataError(f"{where} has the label {label!r:.60}; expected one of {listed}")
