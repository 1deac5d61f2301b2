"""The plain engine, which pads rows and calls the model. Tests compare the other engines with it.

Shapes: B batch, T tokens of the longest row, R read tokens of a row, P read tokens of all rows, V vocabulary,
K scores of a token.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypedDict, cast

import torch
from torch import Tensor, nn

from albertkit.cores import VARIABLE, usable_cores
from albertkit.engines.batches import plan
from albertkit.engines.engine import (
    BATCH_TOKENS,
    BatchScores,
    Engine,
    Job,
    Row,
    check_output,
)
from albertkit.engines.fitting import parts_of
from albertkit.engines.light_model import class_name
from albertkit.heads import HEADS, Output
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.modeling.pretraining_heads import MaskedWordModel

_ACCELERATOR_BATCH_TOKENS = 16 * BATCH_TOKENS


class Batch(TypedDict):
    """The inputs of every model, each (B, T)."""

    input_ids: Tensor
    attention_mask: Tensor
    token_type_ids: Tensor


class PlainEngine(Engine):
    """Pads the rows of a batch and calls the model. It computes any model, with hooks, on any device."""

    def __init__(self, model: AlbertPreTrainedModel) -> None:
        self.model = model

    def batches(self, rows: Sequence[Row], job: Job) -> BatchScores:
        """Yield the scores of batches as `Engine.batches` does. Padding counts as tokens of a batch."""
        model = self.model
        budget = job.batch_tokens or default_batch_tokens(model.device)
        for batch in plan(rows, job.positions, budget, job.batch_size, padded=True):
            with evaluating(model):
                inputs = pad_batch(batch.rows, pad_token_id=model.config.pad_token_id, device=model.device)
                scores = _scores(model, inputs, job.output, batch.positions)
                arrays = [row_scores.float().cpu().numpy() for row_scores in scores]
            yield batch.numbers, arrays


def _scores(
    model: AlbertPreTrainedModel, batch: Batch, output: Output, positions: list[Sequence[int]]
) -> Sequence[Tensor]:
    if output == "hidden_states":
        states = model.base_model(**batch, return_dict=True).last_hidden_state  # (B, T, H)
        return _select(states, positions)
    name = class_name(model)
    head = HEADS.get(name, HEADS["AlbertForTokenClassification"])  # default for custom classes
    check_output(output, head, model=name)
    scores = head.scores[output]
    options: dict[str, Any] = {}
    if isinstance(model, MaskedWordModel):  # compute the vocabulary's scores only for the read tokens
        length = batch["input_ids"].shape[1]
        read = [] if scores.reads_first else enumerate(positions)
        flat = [row * length + position for row, some in read for position in some]
        options["masked_positions"] = torch.tensor(flat, dtype=torch.long)
    inputs = batch.items()
    if head.has_choices:
        inputs = [(name, cast(Tensor, values)[:, None]) for name, values in inputs]  # (B, T) -> (B, 1, T)
    outputs = cast(Any, model)(**dict(inputs), **options, return_dict=True)
    columns = [outputs[name] for name in scores.names]
    values = columns[0] if len(columns) == 1 else torch.stack(columns, dim=-1)
    if scores.reads_first:
        return list(values[:, None])  # (B, K) -> B of (1, K)
    if options:
        return values.split([len(some) for some in positions])  # (P, V)
    return _select(values, positions)  # (B, T, K)


def _select(values: Tensor, positions: list[Sequence[int]]) -> list[Tensor]:
    return [row[list(read)] for row, read in zip(values, positions, strict=True)]


def default_batch_tokens(device: torch.device) -> int:
    """Return the default maximum number of tokens in a batch for a device."""
    return BATCH_TOKENS if device.type == "cpu" else _ACCELERATOR_BATCH_TOKENS


def pad_batch(
    rows: Sequence[Row], *, pad_token_id: int, device: torch.device, length: int | None = None
) -> Batch:
    """Pad rows of any lengths to a batch; T is `length`, or the length of the longest row if it is None."""
    length = length or max(len(row.input_ids) for row in rows)
    lengths = torch.tensor([[len(row.input_ids)] for row in rows])
    return {
        "input_ids": pad([row.input_ids for row in rows], pad_token_id, length).to(device),
        "attention_mask": (torch.arange(length) < lengths).long().to(device),  # (T,) < (B, 1) -> (B, T)
        "token_type_ids": pad([row.token_type_ids for row in rows], 0, length).to(device),
    }


def pad(lists: Sequence[list[int]], value: int, length: int) -> Tensor:
    """Return lists of up to `length` numbers as a tensor (B, length), padded on the right."""
    return torch.tensor([[*row, *[value] * (length - len(row))] for row in lists])


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Disable dropout and gradients within the block; afterwards each part has its previous mode."""
    modes = [(part, part.training) for part in parts_of(model)]  # a part can be frozen during training
    changes = any(training for _, training in modes)
    if changes:
        model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        if changes:
            for part, training in modes:
                part.training = training


def settle_threads() -> None:
    """Set PyTorch's number of threads to the number of usable cores, unless it is lower or the user set it.

    PyTorch respects the CPU affinity of a process, but not the limit of a container: a container with 2 of 64
    cores would get 64 threads.
    """
    cores = usable_cores()
    from_user = os.environ.get("OMP_NUM_THREADS") or os.environ.get("MKL_NUM_THREADS")
    if os.environ.get(VARIABLE) or (cores < torch.get_num_threads() and not from_user):
        torch.set_num_threads(cores)
