"""What fine-tuning minimises: the loss of the task's head, exact over parts and processes."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from albertkit.config import IGNORED_LABEL
from albertkit.errors import ConfigError
from albertkit.finetuning.batches import UnitBatch
from albertkit.finetuning.labelled_task import LabelledTask
from albertkit.finetuning.training_batches import training_inputs
from albertkit.tasks.task import Task
from albertkit.training.objective import StepOutput


class TaskObjective:
    """The mean loss over the labelled items of a batch: examples, windows, or words.

    Args:
        labelled: the task with its measures.
        task: makes the model's inputs of rows.
        device: where the model is.
        class_weights: (K,) weights of the classes; None for the loss that the model itself computes.
    """

    def __init__(
        self,
        labelled: LabelledTask,
        task: Task,
        device: torch.device,
        *,
        class_weights: Tensor | None = None,
    ) -> None:
        self.labelled, self.task, self.device = labelled, task, device
        self.class_weights = None if class_weights is None else class_weights.to(device)

    def counts(self, batch: UnitBatch) -> dict[str, int]:
        """Count labelled items and real tokens."""
        rows = batch.rows
        return {
            "items": self.labelled.items(self.task, rows),
            "tokens": sum(len(row.input_ids) for row in rows),
        }

    def __call__(self, model: Callable[..., Any], batch: UnitBatch, counts: dict[str, int]) -> StepOutput:
        """Compute a part's share of the loss of the whole batch."""
        rows = batch.rows
        items = self.labelled.items(self.task, rows)
        inputs = training_inputs(self.task, rows, self.device)
        # What the head returns is the mean over this part, or 0 if nothing in it has a label.
        total = items * (
            model(**inputs, return_dict=True).loss
            if self.class_weights is None
            else self._weighted(model, inputs, items)
        )
        return StepOutput(loss=total / max(counts["items"], 1), sums={"loss": (total.detach(), items)})

    def _weighted(self, model: Callable[..., Any], inputs: dict[str, Tensor], items: int) -> Tensor:
        """Return the mean over items of their weighted losses."""
        labels = inputs["labels"].reshape(-1)
        plain = {name: value for name, value in inputs.items() if name != "labels"}
        logits = model(**plain, return_dict=True).logits  # (..., K)
        summed = F.cross_entropy(
            logits.flatten(0, -2).float(),
            labels,
            weight=self.class_weights,
            ignore_index=IGNORED_LABEL,
            reduction="sum",
        )
        return summed / max(items, 1)


def balanced_weights(counts: Counter[int] | None, classes: int) -> Tensor:
    """Return weights (K,) that are inverse to frequency, and 1 on average over the training items.

    Raises:
        ConfigError: the task has no single classes.
    """
    if counts is None:
        raise ConfigError("class_weights are for tasks with one class for each item; use 'none' here")
    total, seen = counts.total(), len(counts)
    return torch.tensor([total / (seen * counts[one]) if counts[one] else 1.0 for one in range(classes)])
