"""The loss of a pretraining batch: the weighted sum of the losses of all objectives."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from albertkit.errors import ConfigError
from albertkit.modeling.pretraining_heads import AlbertForPreTraining
from albertkit.pretraining.batches import PretrainingBatch
from albertkit.pretraining.objectives import IGNORED, drawn_objectives
from albertkit.pretraining.settings import PretrainingSettings
from albertkit.training.objective import OUTPUT_SPREAD, StepOutput

PREDICTIONS_MULTIPLE = 64


class PretrainingObjective:
    """The losses of all objectives; logits of the vocabulary are computed only at the labeled positions.

    Args:
        settings: settings of the run.
        device: the model's device.

    Raises:
        ConfigError: the weights of all objectives are 0.
    """

    def __init__(self, settings: PretrainingSettings, device: torch.device | None = None) -> None:
        weights = [(one, one.weight(settings)) for one in drawn_objectives(settings.examples)]
        self.objectives = [(one, weight) for one, weight in weights if weight > 0]
        if not self.objectives:
            names = ", ".join(one.name for one, _ in weights)
            raise ConfigError(f"the weight of every objective ({names}) is 0. Increase one of them.")
        self.device = device or torch.device("cpu")

    @property
    def main_metric(self) -> str:
        """The metric that selects the best model: the loss of the first objective."""
        return f"{self.objectives[0][0].name}_loss"

    def freeze_unused(self, model: AlbertForPreTraining) -> None:
        """Exclude unused parameters, so that neither the optimizer nor other processes wait for gradients."""
        used = {objective.scores for objective, _ in self.objectives}
        unused: list[nn.Parameter] = []
        if "sop_logits" not in used:
            assert model.albert.pooler is not None
            unused += [*model.albert.pooler.parameters(), *model.sop_classifier.parameters()]
        if "prediction_logits" not in used:  # all except the decoder's matrix, which is the word embeddings
            head = model.predictions
            unused += [head.bias, *head.dense.parameters(), *head.LayerNorm.parameters()]
        for parameter in unused:
            parameter.requires_grad_(False)

    def counts(self, batch: PretrainingBatch) -> dict[str, int]:
        """Count the labels of each objective, and the tokens."""
        return {one.name: batch.count(one.name) for one, _ in self.objectives} | {"tokens": batch.num_tokens}

    def __call__(
        self, model: Callable[..., Any], batch: PretrainingBatch, counts: dict[str, int]
    ) -> StepOutput:
        """Compute a part's share of the loss; metrics are sums over the labels of an objective."""
        scored = self.forward(model, batch)
        loss = torch.zeros((), device=self.device)
        sums: dict[str, tuple[Tensor, int]] = {}
        for objective, weight in self.objectives:
            name = objective.name
            total, right = objective.loss(*scored[name])
            count = batch.count(name)
            sums |= {f"{name}_loss": (total, count), f"{name}_accuracy": (right, count)}
            loss = loss + weight * total / max(counts[name], 1)
        return StepOutput(loss=loss, sums=sums)

    def forward(
        self, model: Callable[..., Any], batch: PretrainingBatch
    ) -> dict[str, tuple[Tensor, Tensor, Tensor]]:
        """Return the logits (N, K), the labels (N,) and the ids (N,) of each objective, by its name."""
        input_ids = torch.from_numpy(batch.input_ids)  # (B, T)
        labels: dict[str, tuple[Tensor, Tensor]] = {}  # values and ids
        positions: list[Tensor] = []  # for the logits of the vocabulary
        for objective, _ in self.objectives:
            flat = torch.from_numpy(batch.labels[objective.name]).flatten()  # (B * T,)
            places = (flat != IGNORED).nonzero().squeeze(1)  # (N,)
            values = flat[places]
            if objective.scores == "prediction_logits":
                # Use few different N: the matrix library of a CPU keeps code and buffers for every shape.
                padding = (0, -len(places) % PREDICTIONS_MULTIPLE)
                places, values = F.pad(places, padding), F.pad(values, padding, value=IGNORED)
                positions.append(places)
            labels[objective.name] = values.to(self.device), input_ids.flatten()[places].to(self.device)
        outputs = model(
            input_ids=input_ids.to(self.device),
            attention_mask=torch.from_numpy(batch.attention_mask).to(self.device),
            token_type_ids=torch.from_numpy(batch.token_type_ids).to(self.device),
            masked_positions=torch.cat(positions) if positions else torch.zeros(0, dtype=torch.long),
        )
        logits = outputs.prediction_logits
        # The backward pass of a split copies the gradient, so the usual single part is not split.
        parts = iter(logits.split([len(places) for places in positions]) if len(positions) > 1 else [logits])
        scored: dict[str, tuple[Tensor, Tensor, Tensor]] = {}
        for objective, _ in self.objectives:
            reads_vocabulary = objective.scores == "prediction_logits"
            scored[objective.name] = (
                next(parts) if reads_vocabulary else outputs.sop_logits,
                *labels[objective.name],
            )
        return scored

    def evaluate(self, model: nn.Module, batches: list[PretrainingBatch]) -> dict[str, float]:
        """Return the metrics over all batches, and the spread of the scores over positions.

        "output_spread" is the standard deviation of the vocabulary's scores over the labeled positions of the
        first batch, relative to their deviation over the vocabulary. It is 0 for a model that predicts the
        same everywhere.
        """
        totals: dict[str, list[float]] = {}
        for batch in batches:
            for name, (total, count) in self(model, batch, self.counts(batch)).sums.items():
                entry = totals.setdefault(name, [0.0, 0])
                entry[0] += float(total)
                entry[1] += count
        metrics = {name: total / count if count else math.nan for name, (total, count) in totals.items()}
        reads = [one.name for one, _ in self.objectives if one.scores == "prediction_logits"]
        if batches and reads and (count := batches[0].count(reads[0])) > 1:
            # One position has no spread. Scores beyond these belong to padding (see `forward`).
            scores = self.forward(model, batches[0])[reads[0]][0][:count].float()  # (N, V)
            metrics[OUTPUT_SPREAD] = float(scores.std(dim=0).mean() / scores.mean(dim=0).std())
        return metrics
