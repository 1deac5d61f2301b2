"""The loss of sentence embeddings: examples of a batch count for each other, across its parts and processes.

A batch in parts is computed twice (Gao, Zhang, Han and Callan 2021, "Scaling Deep Contrastive Learning Batch
Size under Memory Limited Setup"): first the vectors of all parts, without what the way back needs; the loss
of the whole batch gives the gradient of each vector; then each part again, whose vectors are handed their
gradients. It is the step of the whole batch, in the memory of a part.

Shapes: B examples of a part, N of all processes' batch, W texts of an example, H hidden.
"""

from typing import Any

import torch
from torch import Tensor

from albertkit.finetuning.batches import UnitBatch
from albertkit.finetuning.embedding_losses import embedding_loss, text_numbers, text_scores
from albertkit.finetuning.training_batches import training_vectors
from albertkit.tasks.sentence_embedding import SentenceEmbedding
from albertkit.training.distributed import World
from albertkit.training.objective import StepOutput


class WholeBatchObjective:
    """`embedding_loss` over the examples of all parts and processes.

    Args:
        task: makes vectors of rows.
        world: the processes that share each batch.
        temperature: as in `embedding_loss`.
    """

    def __init__(self, task: SentenceEmbedding, world: World, *, temperature: float) -> None:
        self.task, self.world, self.temperature = task, world, temperature
        self._loss = torch.zeros(())  # of the batch that is being computed
        self._waiting: list[tuple[int, Tensor]] = []  # of its parts: seed, and gradients (B, W, H)

    def counts(self, batch: UnitBatch) -> dict[str, int]:
        """Count examples and real tokens."""
        return {"items": len(batch.units), "tokens": sum(len(row.input_ids) for row in batch.rows)}

    def __call__(self, model: Any, batch: UnitBatch, counts: dict[str, int]) -> StepOutput:
        """Return a part's share of the loss of the whole batch, with the gradients of that loss."""
        if len(batch.parts) == 1:
            vectors = self._vectors(model, batch)
            carrier = self._whole_loss(vectors, batch)
            self._loss = carrier.detach()
        else:
            if batch is batch.parts[0]:
                self._look_ahead(model, batch.parts)
            seed, gradients = self._waiting.pop(0)
            torch.manual_seed(seed)  # the dropout of the first time
            carrier = (self._vectors(model, batch) * gradients).sum()
        items = len(batch.units)
        share = self._loss * (items / counts["items"])
        # The value of the share with the gradient of the whole: of these vectors nobody else has any.
        return StepOutput(
            loss=carrier + (share - carrier).detach(), sums={"loss": (self._loss * items, items)}
        )

    def _look_ahead(self, model: Any, parts: list[UnitBatch]) -> None:
        """Compute the loss of the whole batch and its gradient for each vector."""
        start = torch.initial_seed()
        seeds = [(start + number) % 2**63 for number in range(1, len(parts) + 1)]
        found = []
        with torch.no_grad():
            for seed, part in zip(seeds, parts, strict=True):
                torch.manual_seed(seed)
                found.append(self._vectors(model, part))
        torch.clear_autocast_cache()  # it would give the weights without gradients to the second time too
        vectors = torch.cat(found).requires_grad_()
        with torch.enable_grad():
            loss = self._whole_loss(vectors, UnitBatch([unit for part in parts for unit in part.units]))
        (gradients,) = torch.autograd.grad(loss, vectors)
        self._loss = loss.detach()
        self._waiting = list(zip(seeds, gradients.split([len(one) for one in found]), strict=True))

    def _vectors(self, model: Any, batch: UnitBatch) -> Tensor:
        """Return the vectors of a part, (B, W, H)."""
        vectors = training_vectors(self.task, model, batch.rows, self.world.device)
        return vectors.float().unflatten(0, (len(batch.units), -1))

    def _whole_loss(self, vectors: Tensor, batch: UnitBatch) -> Tensor:
        """Return the loss of all processes' examples, with gradients for this one's vectors."""
        own = (
            vectors,
            text_numbers(batch.units, vectors.device),
            text_scores(batch.units, vectors.device),
        )
        gathered = [self.world.gather(one) for one in own]
        gathered[0][self.world.rank] = vectors
        return embedding_loss(*(torch.cat(one) for one in gathered), temperature=self.temperature)  # of N
