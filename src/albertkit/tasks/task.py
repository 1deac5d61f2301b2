"""What every task is: labelled examples -> rows -> what the model says -> predictions.

    rows = task.features(examples)             # ids, segments, labels; which example each comes from
    loss = task.loss(model, rows[:32])         # fine-tuning
    outputs = task.run(model, rows)            # one tensor for each row, whatever the batches
    predictions = task.predictions(examples, rows, outputs)

Pipelines and the evaluation of fine-tuning both end in `predictions`, so what is measured is what is used.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from albertkit.errors import ConfigError, DataError
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.tasks.rows import Batch, Row, evaluating, pad_batch, run_rows
from albertkit.tokenization.interface import TokenizerInterface

BATCH_TOKENS = 1024
"""Tokens computed at once on a CPU, padding included, where nobody says how many: more leave its caches."""
_ACCELERATOR_BATCH_TOKENS = 16 * BATCH_TOKENS

ExampleT = TypeVar("ExampleT")
RowT = TypeVar("RowT", bound=Row)
PredictionT = TypeVar("PredictionT")


class Task(ABC, Generic[ExampleT, RowT, PredictionT]):
    """A task for one tokenizer and one length of input.

    Args:
        tokenizer: cuts texts into pieces.
        max_length: most tokens of a row, special tokens included.

    Raises:
        ConfigError: there is no room for a token beside the special ones.
    """

    name: ClassVar[str]
    model_class: ClassVar[type[AlbertPreTrainedModel]]

    def __init__(self, tokenizer: TokenizerInterface, *, max_length: int) -> None:
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
        self, examples: Sequence[ExampleT], rows: Sequence[RowT], outputs: Sequence[Tensor]
    ) -> list[PredictionT]:
        """Return what is predicted for each example.

        Args:
            examples: those given to `features`.
            rows: what it returned.
            outputs: what `run` returned for them.
        """

    @abstractmethod
    def score(self, model: AlbertPreTrainedModel, batch: Batch, rows: Sequence[RowT]) -> list[Tensor]:
        """Return the model's scores for each row of a batch, without those of the padding."""

    @abstractmethod
    def label_inputs(self, rows: Sequence[RowT], device: torch.device) -> dict[str, Tensor]:
        """Return the labels of rows under the names that the model's forward pass has for them."""

    def training_inputs(self, rows: Sequence[RowT], device: torch.device) -> dict[str, Any]:
        """Return what the model takes to give a loss: a padded batch and its labels.

        Raises:
            DataError: a row without labels.
        """
        unlabelled = next((row for row in rows if row.labels is None), None)
        if unlabelled is not None:
            raise DataError(
                f"example {unlabelled.example} has no labels; expected labelled examples to learn from"
            )
        return {**self.batch(rows, device), **self.label_inputs(rows, device)}

    def loss(self, model: AlbertPreTrainedModel, rows: Sequence[RowT]) -> Tensor:
        """Return the mean loss over labelled rows; rows of one `unit` must come together."""
        return model(**self.training_inputs(rows, model.device), return_dict=True).loss

    def units(self, rows: Sequence[RowT]) -> list[list[RowT]]:
        """Return the rows that a training batch must keep together: here each alone."""
        return [[row] for row in rows]

    def run(
        self,
        model: AlbertPreTrainedModel,
        rows: Sequence[RowT],
        *,
        batch_tokens: int | None = None,
        batch_size: int | None = None,
    ) -> list[Tensor]:
        """Return the model's scores for each row, on the CPU, computed without dropout and gradients.

        Args:
            model: of `model_class`.
            rows: of any lengths.
            batch_tokens: as in `rows.batches_by_length`; None for what suits the device.
            batch_size: as there.
        """

        def forward(numbers: list[int], batch: Batch) -> list[Tensor]:
            scores = self.score(model, batch, [rows[number] for number in numbers])
            return [one.float().cpu() for one in scores]

        with evaluating(model):
            return run_rows(
                rows,
                forward,
                batch_tokens=default_batch_tokens(model.device) if batch_tokens is None else batch_tokens,
                batch_size=batch_size,
                pad_token_id=self.tokenizer.pad_token_id,
                device=model.device,
            )

    def batch(self, rows: Sequence[RowT], device: torch.device) -> Batch:
        """Return rows as one padded batch."""
        return pad_batch(rows, pad_token_id=self.tokenizer.pad_token_id, device=device)


def default_batch_tokens(device: torch.device) -> int:
    """Return how many tokens are computed at once on a device where nobody says how many."""
    return BATCH_TOKENS if device.type == "cpu" else _ACCELERATOR_BATCH_TOKENS


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
