"""The losses of fine-tuning. Accumulation and several processes do not change their gradients.

| objective | loss |
|---|---|
| "head" | the loss of the model's head, or cross-entropy with class weights |
| "binary_cross_entropy" | an independent decision for each label of each item (a text or a token) |
| "embedding" | the vectors of all texts in a batch, compared with each other |
| a function | of the logits and the labels |

With accumulation, the vectors of "embedding" are computed twice (Gao, Zhang, Han and Callan 2021, "Scaling
Deep Contrastive Learning Batch Size under Memory Limited Setup"). First, the vectors of all parts are
computed without gradients, and the loss of the whole batch gives the gradient of each vector. Then each part
is computed again, and its vectors receive these gradients. The step is that of the whole batch, with the
memory of one part.

Shapes: B rows or examples of a part, W texts of an example (2, or 3 with a negative), C choices, T tokens, H
hidden size, K labels.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from albertkit.config import IGNORED_LABEL
from albertkit.engines.engine import Row
from albertkit.engines.torch import pad_batch
from albertkit.errors import ConfigError, suggestion
from albertkit.finetuning.batches import UnitBatch
from albertkit.heads import HEADS
from albertkit.tasks.sentence_embedding import SentenceEmbedding
from albertkit.tasks.task import Task
from albertkit.training.distributed import World
from albertkit.training.loop import StepOutput, TrainingObjective


class HeadObjective:
    """The mean loss over the labeled items of a batch: examples, windows, or words.

    `loss` is a function of logits (..., K) and labels; None for the loss of the model's head.
    """

    def __init__(
        self, task: Task, world: World, *, loss: Callable[[Tensor, Tensor], Tensor] | None = None
    ) -> None:
        self.task, self.world, self.loss = task, world, loss
        self._length: int | None = None  # of all parts of the current batch, if the loss depends on padding

    def counts(self, batch: UnitBatch) -> dict[str, int]:
        rows = batch.rows
        return {"items": self.task.items(rows), "tokens": sum(len(row.input_ids) for row in rows)}

    def __call__(self, model: Callable[..., Any], batch: UnitBatch, counts: dict[str, int]) -> StepOutput:
        rows = batch.rows
        items = self.task.items(rows)
        if HEADS[self.task.architecture].compares_tokens and batch is (batch.parts or [batch])[0]:
            length = max(self.task.padded_length(part.rows) for part in batch.parts or [batch])
            lengths = self.world.gather(torch.tensor([length], device=self.world.device))
            self._length = int(torch.cat(lengths).max())
        inputs = training_inputs(self.task, rows, self.world.device, length=self._length)
        # The mean over this part, or 0 if no item has a label.
        if self.loss is None:
            mean = model(**inputs, return_dict=True).loss
        else:
            labels = inputs.pop("labels")
            logits = model(**inputs, return_dict=True).logits.float()
            mean = (self.loss(logits, labels) if items else logits.sum() * 0).reshape(())
        total = items * mean
        return StepOutput(loss=total / max(counts["items"], 1), sums={"loss": (total.detach(), items)})


class EmbeddingObjective:
    """`embedding_loss` over the examples of all parts and processes."""

    def __init__(self, task: SentenceEmbedding, world: World, *, temperature: float) -> None:
        self.task, self.world, self.temperature = task, world, temperature
        self._loss = torch.zeros(())  # the loss of the current batch
        self._waiting: list[tuple[int, Tensor]] = []  # seed and gradients (B, W, H) of each of its parts

    def counts(self, batch: UnitBatch) -> dict[str, int]:
        return {"items": len(batch.units), "tokens": sum(len(row.input_ids) for row in batch.rows)}

    def __call__(self, model: Any, batch: UnitBatch, counts: dict[str, int]) -> StepOutput:
        if len(batch.parts) == 1:
            vectors = self._vectors(model, batch)
            carrier = self._whole_loss(vectors, batch)
            self._loss = carrier.detach()
        else:
            if batch is batch.parts[0]:
                self._look_ahead(model, batch.parts)
            seed, gradients = self._waiting.pop(0)
            torch.manual_seed(seed)  # the same dropout as in the first computation
            carrier = (self._vectors(model, batch) * gradients).sum()
        items = len(batch.units)
        share = self._loss * (items / counts["items"])
        # The value is the part's share of the loss. The gradient is that of the whole loss.
        return StepOutput(
            loss=carrier + (share - carrier).detach(), sums={"loss": (self._loss * items, items)}
        )

    def _look_ahead(self, model: Any, parts: list[UnitBatch]) -> None:
        """Compute the loss of the whole batch, and its gradient for each vector."""
        start = torch.initial_seed()
        seeds = [(start + number) % 2**63 for number in range(1, len(parts) + 1)]
        computed = []
        with torch.no_grad():
            for seed, part in zip(seeds, parts, strict=True):
                torch.manual_seed(seed)
                computed.append(self._vectors(model, part))
        torch.clear_autocast_cache()  # the second computation must not use cached weights without gradients
        vectors = torch.cat(computed).requires_grad_()
        with torch.enable_grad():
            loss = self._whole_loss(vectors, UnitBatch([unit for part in parts for unit in part.units]))
        (gradients,) = torch.autograd.grad(loss, vectors)
        self._loss = loss.detach()
        self._waiting = list(zip(seeds, gradients.split([len(part) for part in computed]), strict=True))

    def _vectors(self, model: Callable[..., Any], batch: UnitBatch) -> Tensor:
        """Return the vectors (B, W, H) of the texts."""
        rows, modules = batch.rows, self.task.modules
        inputs = pad_batch(
            rows,
            pad_token_id=self.task.tokenizer.pad_token_id,
            device=self.world.device,
            length=self.task.padded_length(rows),
        )
        hidden_states = model(**inputs, return_dict=True).last_hidden_state  # (B W, T, H)
        mask = inputs["attention_mask"][:, :, None]  # (B W, T) -> (B W, T, 1)
        if modules.pooling == "cls":
            vectors = hidden_states[:, 0]
        elif modules.pooling == "max":
            vectors = hidden_states.masked_fill(mask == 0, -math.inf).amax(dim=1)
        else:
            mask = mask.to(hidden_states.dtype)
            vectors = (hidden_states * mask).sum(dim=1) / mask.sum(dim=1)
        vectors = F.normalize(vectors, dim=-1) if modules.normalize else vectors
        return vectors.float().unflatten(0, (len(batch.units), -1))

    def _whole_loss(self, vectors: Tensor, batch: UnitBatch) -> Tensor:
        """Return the loss over the examples of all processes, with gradients for this process's vectors."""

        def number(row: Row) -> int:
            """Return a number that is equal for equal texts, also in other processes."""
            digest = hashlib.blake2b(np.array(row.input_ids, np.int32).tobytes(), digest_size=8).digest()
            return int.from_bytes(digest, "little", signed=True)

        texts = [[number(row) for row in unit] for unit in batch.units]
        scores = [math.nan if unit[0].labels is None else unit[0].labels for unit in batch.units]
        gathered = [
            self.world.gather(values)
            for values in (
                vectors,
                torch.tensor(texts, dtype=torch.int64, device=vectors.device),  # (B, W)
                torch.tensor(scores, dtype=torch.float32, device=vectors.device),  # (B,)
            )
        ]
        gathered[0][self.world.rank] = vectors
        return embedding_loss(*map(torch.cat, gathered), temperature=self.temperature)


def make_objective(
    task: Task, world: World, *, class_weights: Tensor | None, temperature: float
) -> TrainingObjective:
    if isinstance(task, SentenceEmbedding):
        return EmbeddingObjective(task, world, temperature=temperature)
    if class_weights is not None:
        loss = weighted_cross_entropy(class_weights.to(world.device))
    elif callable(task.objective):
        loss = task.objective
    elif task.objective in LOSSES:
        loss = LOSSES[task.objective]
    else:
        wanted = f"the objective of {task.name} is {task.objective!r}"
        raise ConfigError(f"{wanted}. {suggestion(task.objective, LOSSES)}")
    return HeadObjective(task, world, loss=loss)


def weighted_cross_entropy(weights: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a function of logits (..., K) and labels (...): the mean weighted cross-entropy over items."""

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        labels = labels.reshape(-1)
        items = (labels != IGNORED_LABEL).sum().clamp(min=1)
        logits = logits.flatten(0, -2)
        options = {"weight": weights, "ignore_index": IGNORED_LABEL, "reduction": "sum"}
        return F.cross_entropy(logits, labels, **options) / items

    return loss


def binary_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean loss over labeled items and their K labels, each an independent decision."""
    labeled = labels[..., 0] != IGNORED_LABEL  # (...)
    if not labeled.any():
        return logits.sum() * 0
    return F.binary_cross_entropy_with_logits(logits[labeled], labels[labeled])


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor] | None] = {
    "head": None,
    "binary_cross_entropy": binary_cross_entropy,
}
"""The losses that a task can name; None for the loss of the model's head."""


def balanced_weights(counts: Counter[int], classes: int) -> Tensor:
    """Return weights (K,) that are inverse to the frequency, with a mean of 1 over the training items.

    `counts` is the number of training items by class.
    """
    total, seen = counts.total(), len(counts)
    return torch.tensor([total / (seen * counts[one]) if counts[one] else 1.0 for one in range(classes)])


def training_inputs(
    task: Task, rows: Sequence[Row], device: torch.device, *, length: int | None = None
) -> dict[str, Any]:
    """Return the arguments with which the model computes a loss: a padded batch (B, T) and its labels.

    For multiple choice, the batch is (B / C, C, T), because the choices of a question share a softmax. The
    rows contain complete units.
    """
    length = length or task.padded_length(rows)
    batch: dict[str, Any] = {
        **pad_batch(rows, pad_token_id=task.tokenizer.pad_token_id, device=device, length=length)
    }
    if HEADS[task.architecture].has_choices:
        choices = len(task.units(rows)[0])
        batch = {name: value.unflatten(0, (-1, choices)) for name, value in batch.items()}
    return batch | {
        name: torch.from_numpy(np.asarray(labels)).to(device) for name, labels in task.labels_of(rows).items()
    }


# --- sentence embedding


def embedding_loss(vectors: Tensor, texts: Tensor, scores: Tensor, *, temperature: float) -> Tensor:
    """Return the loss of a batch: `ranking_loss` if it has scores, else `contrastive_loss`.

    Args:
        vectors: (B, W, H), the vectors of the texts, of any length.
        texts: (B, W), numbers that are equal for equal texts.
        scores: (B,), the similarity scores, NaN for texts that belong together.
        temperature: number that divides the cosines. A smaller value emphasizes the nearest wrong texts.
    """
    with torch.autocast(vectors.device.type, enabled=False):  # a cosine in bfloat16 has only two digits
        vectors = F.normalize(vectors.float(), dim=-1)
        if scores.isnan().any():
            return contrastive_loss(vectors, texts, temperature=temperature)
        cosines = (vectors[:, 0] * vectors[:, 1]).sum(dim=-1)  # (B,)
        return ranking_loss(cosines, scores, temperature=temperature)


def contrastive_loss(vectors: Tensor, texts: Tensor, *, temperature: float) -> Tensor:
    """Return the mean cross-entropy of finding the second text of each first text among all candidates.

    This is multiple negatives ranking (Henderson et al. 2017), with the cosine divided by a temperature and
    negatives as in Gao et al. 2021, equation 5. Candidates are the second texts and the negatives of all
    examples. Candidates that are not wrong are excluded: the second texts of equal first texts, equal second
    texts, and the first text itself.
    """
    first = vectors[:, 0]  # (B, H)
    candidates = vectors[:, 1:].transpose(0, 1).flatten(0, 1)  # (B, W - 1, H) -> ((W - 1) B, H), second first
    logits = first @ candidates.T / temperature  # (B, (W - 1) B)
    first_texts, candidate_texts = texts[:, 0], texts[:, 1:].T.flatten()
    same_first = first_texts[:, None] == first_texts  # (B, B)
    same_as_second = texts[:, 1, None] == candidate_texts  # (B, (W - 1) B)
    excluded = same_first.float() @ same_as_second.float() > 0  # right for this first text or an equal one
    excluded |= first_texts[:, None] == candidate_texts
    right = torch.arange(len(first), device=logits.device)
    excluded[right, right] = False
    return F.cross_entropy(logits.masked_fill(excluded, -math.inf), right)


def ranking_loss(cosines: Tensor, scores: Tensor, *, temperature: float) -> Tensor:
    """Return log(1 + sum of exp((cosine of i - cosine of j) / temperature)) over all i scored below j.

    This is CoSENT (Su 2022, https://kexue.fm/archives/8847; the cosine objective of Li and Li 2023, AnglE).
    Like Spearman's correlation, it depends only on the order of the scores, so they may have any scale.
    """
    differences = (cosines[:, None] - cosines) / temperature  # (B, B)
    below = scores[:, None] < scores
    return torch.cat([differences[below], differences.new_zeros(1)]).logsumexp(dim=0)
