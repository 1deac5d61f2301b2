"""The loss of a pretraining batch: masked language modeling plus weighted sentence order."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from albertkit.config import IGNORED_LABEL
from albertkit.modeling.heads import AlbertForPreTraining
from albertkit.modeling.losses import vocabulary_loss
from albertkit.pretraining.batches import PretrainingBatch
from albertkit.pretraining.settings import PretrainingSettings
from albertkit.training.distributed import World
from albertkit.training.loop import OUTPUT_SPREAD, Averages, StepOutput

PREDICTIONS_MULTIPLE = 64


class PretrainingObjective:
    """The losses "masked" and "order"; logits of the vocabulary are computed only at the masked positions."""

    def __init__(self, settings: PretrainingSettings, device: torch.device | None = None) -> None:
        self.weights: dict[str, float] = {}
        if settings.examples.masked_lm:
            self.weights["masked"] = 1.0
        if settings.examples.sentence_order and settings.order_weight:
            self.weights["order"] = settings.order_weight
        self.device = device or torch.device("cpu")

    @property
    def main_metric(self) -> str:
        """The metric that selects the best model."""
        return f"{next(iter(self.weights))}_loss"

    def freeze_unused(self, model: AlbertForPreTraining) -> None:
        """Exclude unused parameters, so that neither the optimizer nor other processes wait for gradients."""
        unused: list[nn.Parameter] = []
        if "order" not in self.weights:
            assert model.albert.pooler is not None
            unused += [*model.albert.pooler.parameters(), *model.sop_classifier.parameters()]
        if "masked" not in self.weights:  # all except the decoder's matrix, which is the word embeddings
            head = model.predictions
            unused += [head.bias, *head.dense.parameters(), *head.LayerNorm.parameters()]
        for parameter in unused:
            parameter.requires_grad_(False)

    def counts(self, batch: PretrainingBatch) -> dict[str, int]:
        """Count the labels of each loss, and the tokens."""
        labels = {"masked": int((batch.masked_labels != IGNORED_LABEL).sum()), "order": len(batch.lengths)}
        return {name: labels[name] for name in self.weights} | {"tokens": batch.num_tokens}

    def __call__(
        self, model: Callable[..., Any], batch: PretrainingBatch, counts: dict[str, int]
    ) -> StepOutput:
        """Compute a part's share of the loss; metrics are sums over the labels of each loss."""
        own_counts = self.counts(batch)
        loss = torch.zeros((), device=self.device)
        sums: dict[str, tuple[Tensor, int]] = {}
        for name, (logits, labels) in self.forward(model, batch).items():
            total, correct = vocabulary_loss(logits, labels)
            sums |= {
                f"{name}_loss": (total, own_counts[name]),
                f"{name}_accuracy": (correct, own_counts[name]),
            }
            loss = loss + self.weights[name] * total / max(counts[name], 1)
        return StepOutput(loss=loss, sums=sums)

    def forward(self, model: Callable[..., Any], batch: PretrainingBatch) -> dict[str, tuple[Tensor, Tensor]]:
        """Return the logits (N, K) and the labels (N,) of each loss, by its name.

        The last rows of "masked" can be padding, with the label `IGNORED_LABEL`.
        """
        rows, length = batch.input_ids.shape
        flat = batch.masked_labels.ravel()
        positions = np.flatnonzero(flat != IGNORED_LABEL)
        # Use few different N: the matrix library of a CPU keeps code and buffers for every shape.
        extra = -len(positions) % PREDICTIONS_MULTIPLE
        masked_labels = np.pad(flat[positions], (0, extra), constant_values=IGNORED_LABEL)
        # Everything is copied to a GPU at once, and without waiting for it. There a mask is always passed, so
        # that compiled layers need only one form.
        parts = [
            batch.input_ids.ravel(),
            batch.lengths,
            batch.second_begins,
            batch.order_labels,
            masked_labels,
        ]
        packed = torch.from_numpy(np.concatenate(parts))
        if self.device.type == "cuda":
            packed = packed.pin_memory().to(self.device, non_blocking=True)
        ids, lengths, second_begins, order_labels, masked_labels = packed.split([len(part) for part in parts])
        columns = torch.arange(length, device=self.device)
        is_full = self.device.type == "cpu" and int(batch.lengths.min()) == length
        is_real = columns < lengths[:, None]  # (B, T)
        outputs = model(
            input_ids=ids.view(rows, length),
            attention_mask=None if is_full else is_real,
            token_type_ids=((columns >= second_begins[:, None]) & is_real).int(),
            masked_positions=torch.from_numpy(np.pad(positions, (0, extra))),
        )
        scored = {
            "masked": (outputs.prediction_logits, masked_labels.long()),
            "order": (outputs.sop_logits, order_labels.long()),
        }
        return {name: scored[name] for name in self.weights}

    def evaluate(self, model: nn.Module, batches: list[PretrainingBatch]) -> dict[str, float]:
        """Return the metrics over all batches, and the spread of the scores over positions.

        "output_spread" is the standard deviation of the vocabulary's scores over the masked positions of the
        first batch, relative to their deviation over the vocabulary. It is 0 for a model that predicts the
        same everywhere.
        """
        averages = Averages()
        for batch in batches:
            averages.add(self(model, batch, self.counts(batch)).sums)
        metrics = averages.take(World(self.device), empty=math.nan)
        if batches and "masked" in self.weights and (count := self.counts(batches[0])["masked"]) > 1:
            # One position has no spread. Scores beyond these belong to padding (see `forward`).
            scores = self.forward(model, batches[0])["masked"][0][:count].float()  # (N, V)
            metrics[OUTPUT_SPREAD] = float(scores.std(dim=0).mean() / scores.mean(dim=0).std())
        return metrics
