"""The pretraining objective: masked language modeling and sentence order (Lan et al. 2019, section 3.1)."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from albertkit.modeling.pretraining_heads import AlbertForPreTraining
from albertkit.pretraining.batches import PretrainingBatch
from albertkit.pretraining.settings import ExampleSettings
from albertkit.training.objective import OUTPUT_SPREAD, StepOutput

PREDICTIONS_MULTIPLE = 64
IGNORED = -100  # label of a position that is not predicted


class PretrainingObjective:
    """The losses of both objectives; logits over the vocabulary are computed at the masked positions only.

    Args:
        order_weight: weight of the sentence-order loss relative to the masked language modeling loss.
        examples: settings of masking and swapping.
        device: the model's device.
    """

    def __init__(
        self,
        order_weight: float = 1.0,
        examples: ExampleSettings | None = None,
        device: torch.device | None = None,
    ) -> None:
        examples = examples or ExampleSettings()
        self.order_weight = order_weight
        self.masked_lm = examples.masked_lm
        self.sentence_order = examples.sentence_order and order_weight > 0
        self.device = device or torch.device("cpu")

    def freeze_unused(self, model: AlbertForPreTraining) -> None:
        """Exclude unused parameters, so that neither the optimizer nor other processes wait for gradients."""
        unused: list[nn.Parameter] = []
        if not self.sentence_order:
            assert model.albert.pooler is not None
            unused += [*model.albert.pooler.parameters(), *model.sop_classifier.parameters()]
        if not self.masked_lm:  # all except the decoder's matrix, which is the word embeddings
            head = model.predictions
            unused += [head.bias, *head.dense.parameters(), *head.LayerNorm.parameters()]
        for parameter in unused:
            parameter.requires_grad_(False)

    def counts(self, batch: PretrainingBatch) -> dict[str, int]:
        """Count masked tokens, sequences and tokens."""
        return {
            "words": len(batch.masked_labels),
            "sequences": len(batch.input_ids),
            "tokens": batch.num_tokens,
        }

    def __call__(
        self, model: Callable[..., Any], batch: PretrainingBatch, counts: dict[str, int]
    ) -> StepOutput:
        """Compute a part's share of both losses; metrics are sums over masked tokens and over sequences."""
        outputs, masked_labels = self.forward(model, batch)
        loss = outputs.prediction_logits.new_zeros((), dtype=torch.float32)
        sums: dict[str, tuple[Tensor, int]] = {}
        if self.masked_lm:
            words = len(batch.masked_labels)
            masked_loss = F.cross_entropy(
                outputs.prediction_logits.float(), masked_labels, ignore_index=IGNORED, reduction="sum"
            )
            right = (outputs.prediction_logits.detach().argmax(-1) == masked_labels).sum()
            sums |= {"masked_loss": (masked_loss, words), "masked_accuracy": (right, words)}
            loss = loss + masked_loss / max(counts["words"], 1)
        if self.sentence_order:
            sequences = len(batch.input_ids)
            labels = torch.from_numpy(batch.sentence_order_labels).to(self.device)  # (B,)
            order_loss = F.cross_entropy(outputs.sop_logits.float(), labels, reduction="sum")
            right = (outputs.sop_logits.detach().argmax(-1) == labels).sum()
            sums |= {"order_loss": (order_loss, sequences), "order_accuracy": (right, sequences)}
            loss = loss + self.order_weight * order_loss / counts["sequences"]
        return StepOutput(loss=loss, sums=sums)

    def forward(self, model: Callable[..., Any], batch: PretrainingBatch) -> tuple[Any, Tensor]:
        """Return the outputs of the model and the labels (P,) of the masked positions it scored."""
        # Use few different P: the CPU's matrix library keeps code and buffers for every shape it has seen.
        padding = (0, -len(batch.masked_labels) % PREDICTIONS_MULTIPLE)
        masked_positions = F.pad(torch.from_numpy(batch.masked_positions), padding)
        masked_labels = F.pad(torch.from_numpy(batch.masked_labels), padding, value=IGNORED)
        outputs = model(
            input_ids=torch.from_numpy(batch.input_ids).to(self.device),  # (B, T)
            attention_mask=torch.from_numpy(batch.attention_mask).to(self.device),
            token_type_ids=torch.from_numpy(batch.token_type_ids).to(self.device),
            masked_positions=masked_positions,
        )
        return outputs, masked_labels.to(self.device)

    def evaluate(self, model: nn.Module, batches: list[PretrainingBatch]) -> dict[str, float]:
        """Return the metrics over all batches, and the spread of the scores over positions.

        "output_spread" is the standard deviation of the vocabulary's scores over the masked positions of the
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
        words = len(batches[0].masked_labels) if batches else 0
        if self.masked_lm and words > 1:  # one position has no spread
            # Scores beyond these belong to padding (see `forward`).
            scores = self.forward(model, batches[0])[0].prediction_logits[:words].float()  # (P, V)
            metrics[OUTPUT_SPREAD] = float(scores.std(dim=0).mean() / scores.mean(dim=0).std())
        return metrics
