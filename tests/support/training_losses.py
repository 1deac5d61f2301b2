"""The losses of batches without accumulation: the twins of the objectives in `finetuning/`."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from albertkit.engines.engine import Row
from albertkit.finetuning.batches import UnitBatch
from albertkit.finetuning.losses import EmbeddingObjective, training_inputs
from albertkit.finetuning.settings import FinetuningSettings
from albertkit.tasks.sentence_embedding import SentenceEmbedding
from albertkit.tasks.task import Task
from albertkit.training.distributed import World

CPU = torch.device("cpu")


def loss_of(task: Task, model: Any, rows: Sequence[Row]) -> Tensor:
    """Return the mean loss of labeled rows. The rows of a unit must be next to each other."""
    if isinstance(task, SentenceEmbedding):
        return embedding_loss_of(task, model, rows)
    return model(**training_inputs(task, rows, CPU), return_dict=True).loss


def embedding_loss_of(
    task: SentenceEmbedding,
    model: Any,
    rows: Sequence[Row],
    *,
    temperature: float = FinetuningSettings.temperature,
) -> Tensor:
    """Return the loss of a batch of two or more examples, which must have the same number of texts."""
    (batch,) = UnitBatch(task.units(rows)).split(1)
    objective = EmbeddingObjective(task, World(CPU), temperature=temperature)
    return objective(model, batch, objective.counts(batch)).loss
