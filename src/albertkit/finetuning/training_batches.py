"""Rows as the tensors of a training batch, with their labels.

Shapes: B rows, T tokens, C choices of an example, H hidden.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from albertkit.engines.engine import Row
from albertkit.engines.plain import Batch, pad_batch
from albertkit.errors import DataError
from albertkit.tasks.multiple_choice import MultipleChoice
from albertkit.tasks.sentence_embedding import SentenceEmbedding
from albertkit.tasks.task import Task


def training_inputs(task: Task, rows: Sequence[Row], device: torch.device) -> dict[str, Any]:
    """Return what the model takes to give a loss: a padded batch (B, T) and its labels.

    The choices of a question share one softmax: its batch is (B / C, C, T).

    Raises:
        DataError: a row without labels, or questions of different numbers of choices.
    """
    unlabelled = next((row for row in rows if row.labels is None), None)
    if unlabelled is not None:
        raise DataError(
            f"example {unlabelled.example} has no labels; expected labelled examples to learn from"
        )
    batch: dict[str, Any] = {**training_batch(task, rows, device)}
    if isinstance(task, MultipleChoice):
        choices = {len(unit) for unit in task.units(rows)}
        if len(choices) != 1:
            raise DataError(
                f"a batch has examples of {', '.join(map(str, sorted(choices)))} choices; expected as many "
                "in each"
            )
        batch = {name: value.unflatten(0, (-1, *choices)) for name, value in batch.items()}
    return batch | {name: torch.from_numpy(one).to(device) for name, one in task.labels_of(rows).items()}


def training_batch(task: Task, rows: Sequence[Row], device: torch.device) -> Batch:
    """Return rows as one batch, `Task.padded_length` tokens wide."""
    return pad_batch(
        rows, pad_token_id=task.tokenizer.pad_token_id, device=device, length=task.padded_length(rows)
    )


def training_vectors(
    task: SentenceEmbedding, model: Callable[..., Any], rows: Sequence[Row], device: torch.device
) -> Tensor:
    """Return the vectors (B, H) of rows that fit into one batch."""
    batch = training_batch(task, rows, device)
    hidden_states = model(**batch, return_dict=True).last_hidden_state  # (B, T, H)
    if task.pooling == "cls":
        vectors = hidden_states[:, 0]
    else:
        mask = batch["attention_mask"][:, :, None].to(hidden_states.dtype)  # (B, T) -> (B, T, 1)
        vectors = (hidden_states * mask).sum(dim=1) / mask.sum(dim=1)
    return F.normalize(vectors, dim=-1) if task.normalize else vectors
