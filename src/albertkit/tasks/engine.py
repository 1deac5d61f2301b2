"""What computes: rows of ids in, the scores that a task reads out.

An engine is asked for one output of a model, and for each row at which of its tokens that output is read. It
need not compute anything else. `PlainEngine` is the definition: it pads the rows of a batch and calls the
model. The engines of the room `engines` are faster, and tested to say the same.

Shapes: B batch, T tokens of the longest row, R tokens read of a row, P of all rows, H hidden, V vocabulary,
K scores of a token: labels, pieces of the vocabulary (V), start and end (2), or hidden states (H).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, cast

import torch
from torch import Tensor

from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.modeling.pretraining_heads import AlbertForMaskedLM, AlbertForPreTraining
from albertkit.modeling.task_heads import (
    AlbertForMultipleChoice,
    AlbertForQuestionAnswering,
    AlbertForSequenceClassification,
)
from albertkit.tasks.rows import Batch, Row, batches_by_length, evaluating, pad_batch

BATCH_TOKENS = 1024
"""Tokens computed at once on a CPU where nobody says how many: more leave its caches."""
_ACCELERATOR_BATCH_TOKENS = 16 * BATCH_TOKENS

Output = Literal["logits", "order", "hidden_states"]
"""What is computed: the scores of the model's own head (of a pretraining model those of masked words), its
scores of sentence order, or what the encoder says."""

Read = Callable[[Any], Sequence[int]]
"""Which tokens of a row are read; heads for whole texts read [CLS], token 0."""


def first_token(row: Row) -> Sequence[int]:
    """Read nothing but [CLS]."""
    del row
    return (0,)


def every_token(row: Row) -> Sequence[int]:
    """Read all tokens of a row."""
    return range(len(row.input_ids))


class Engine(ABC):
    """Computes rows for one model."""

    def run(
        self,
        rows: Sequence[Row],
        *,
        output: Output = "logits",
        read: Read = first_token,
        then: Callable[[Tensor], Any] = lambda scores: scores,
        batch_tokens: int | None = None,
        batch_size: int | None = None,
    ) -> list[Any]:
        """Return what is made of the scores of each row, computed without dropout and gradients.

        Args:
            rows: of any lengths.
            output: what is computed.
            read: which tokens of a row are read.
            then: is given the scores (R, K) of a row, on the CPU, and says what to keep of them.
            batch_tokens: most tokens computed at once; None for what suits the device. A longer row is a
                batch of its own.
            batch_size: most rows computed at once; None for as many as `batch_tokens` allows.
        """
        answers: dict[int, Any] = {}
        for numbers, scores in self.batches(
            rows, output=output, read=read, batch_tokens=batch_tokens, batch_size=batch_size
        ):
            answers.update(zip(numbers, map(then, scores), strict=True))
        return [answers[number] for number in range(len(rows))]

    @abstractmethod
    def batches(
        self,
        rows: Sequence[Row],
        *,
        output: Output,
        read: Read,
        batch_tokens: int | None,
        batch_size: int | None,
    ) -> Iterator[tuple[Sequence[int], Sequence[Tensor]]]:
        """Yield the numbers of the rows of each batch, in any order, and their scores, (R, K) each."""


class PlainEngine(Engine):
    """Pads the rows of a batch and calls the model: any model, with hooks, on any device."""

    def __init__(self, model: AlbertPreTrainedModel) -> None:
        self.model = model

    def batches(
        self,
        rows: Sequence[Row],
        *,
        output: Output,
        read: Read,
        batch_tokens: int | None,
        batch_size: int | None,
    ) -> Iterator[tuple[Sequence[int], Sequence[Tensor]]]:
        """As `Engine.batches`; padding counts as tokens."""
        model = self.model
        budget = batch_tokens or default_batch_tokens(model.device)
        for numbers in batches_by_length(rows, batch_tokens=budget, batch_size=batch_size):
            own = [rows[number] for number in numbers]
            with evaluating(model):
                batch = pad_batch(own, pad_token_id=model.config.pad_token_id, device=model.device)
                found = [one.cpu() for one in _scores(model, batch, output, [read(row) for row in own])]
            yield numbers, found


def _scores(
    model: AlbertPreTrainedModel, batch: Batch, output: Output, positions: list[Sequence[int]]
) -> Sequence[Tensor]:
    """Return the scores (R, K) of each row."""
    if output == "hidden_states":
        states = model.base_model(**batch, return_dict=True).last_hidden_state  # (B, T, H)
        return _select(states, positions)
    if output == "order":
        nothing = torch.empty(0, dtype=torch.long, device=model.device)  # no word is scored
        found = cast(Any, model)(**batch, masked_positions=nothing, return_dict=True)
        return list(found.sop_logits[:, None])  # (B, 2) -> B of (1, 2)
    if isinstance(model, AlbertForMaskedLM | AlbertForPreTraining):
        length = batch["input_ids"].shape[1]
        flat = [row * length + position for row, own in enumerate(positions) for position in own]
        found = model(**batch, masked_positions=torch.tensor(flat, dtype=torch.long), return_dict=True)
        logits = found.logits if isinstance(model, AlbertForMaskedLM) else found.prediction_logits  # (P, V)
        return logits.split([len(own) for own in positions])
    if isinstance(model, AlbertForMultipleChoice):
        choices = {name: cast(Tensor, value)[:, None] for name, value in batch.items()}  # (B, T) -> (B, 1, T)
        return list(model(**choices, return_dict=True).logits[:, None])  # (B, 1) -> B of (1, 1)
    found = cast(Any, model)(**batch, return_dict=True)
    if isinstance(model, AlbertForSequenceClassification):
        return list(found.logits[:, None])  # (B, K) -> B of (1, K)
    if isinstance(model, AlbertForQuestionAnswering):
        return _select(torch.stack([found.start_logits, found.end_logits], dim=-1), positions)  # (B, T, 2)
    return _select(found.logits, positions)  # (B, T, K)


def _select(values: Tensor, positions: list[Sequence[int]]) -> list[Tensor]:
    return [one[list(own)] for one, own in zip(values, positions, strict=True)]


def default_batch_tokens(device: torch.device) -> int:
    """Return how many tokens are computed at once on a device where nobody says how many."""
    return BATCH_TOKENS if device.type == "cpu" else _ACCELERATOR_BATCH_TOKENS
