"""What fine-tuning minimizes, exact over parts and processes.

| objective | the loss |
|---|---|
| "head" | that of the model's own head, or with class weights cross-entropy |
| "binary_cross_entropy" | of each label of each item by itself: several labels for a text, or for a token |
| "embedding" | of the vectors of texts: every example of a batch counts for every other |

The vectors of a batch in parts are computed twice (Gao, Zhang, Han and Callan 2021, "Scaling Deep Contrastive
Learning Batch Size under Memory Limited Setup"): first all parts, without what the way back needs; the loss
of the whole batch gives the gradient of each vector; then each part again, whose vectors are handed their
gradients. It is the step of the whole batch, in the memory of a part.

Shapes: B rows or examples of a part, N examples of all processes' batch, W texts of an example (2, or 3 with
a negative), C choices, T tokens, H hidden, K labels.
"""

import hashlib
import inspect
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
from albertkit.engines.plain import Batch, pad_batch
from albertkit.errors import ConfigError, DataError, suggestion
from albertkit.finetuning.batches import UnitBatch
from albertkit.heads import HEADS
from albertkit.tasks.sentence_embedding import SentenceEmbedding
from albertkit.tasks.task import Task
from albertkit.training.distributed import World
from albertkit.training.objective import Objective, StepOutput


class HeadObjective:
    """The mean loss over the labeled items of a batch: examples, windows, or words.

    Args:
        task: makes the model's inputs of rows.
        device: where the model is.
        loss: the mean loss of logits (..., K) and labels over labeled items; None for the loss that the
            model itself computes.
    """

    def __init__(
        self, task: Task, device: torch.device, *, loss: Callable[[Tensor, Tensor], Tensor] | None = None
    ) -> None:
        self.task, self.device, self.loss = task, device, loss

    def counts(self, batch: UnitBatch) -> dict[str, int]:
        """Count labeled items and real tokens."""
        rows = batch.rows
        return {"items": self.task.items(rows), "tokens": sum(len(row.input_ids) for row in rows)}

    def __call__(self, model: Callable[..., Any], batch: UnitBatch, counts: dict[str, int]) -> StepOutput:
        """Compute a part's share of the loss of the whole batch."""
        rows = batch.rows
        items = self.task.items(rows)
        inputs = training_inputs(self.task, rows, self.device)
        # A mean over this part, or 0 if nothing in it has a label.
        if self.loss is None:
            mean = model(**inputs, return_dict=True).loss
        else:
            labels = inputs.pop("labels")
            mean = self.loss(model(**inputs, return_dict=True).logits.float(), labels)
        total = items * mean
        return StepOutput(loss=total / max(counts["items"], 1), sums={"loss": (total.detach(), items)})


class EmbeddingObjective:
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


def make_objective(
    task: Task, world: World, *, class_weights: Tensor | None, temperature: float
) -> Objective:
    """Return the objective of a task.

    Args:
        task: names it, see `Task.objective`.
        world: the processes that share each batch.
        class_weights: (K,) weights of the classes; None for none.
        temperature: as in `embedding_loss`.

    Raises:
        ConfigError: there is no such objective, or it does not take logits and labels.
    """
    if task.objective == "embedding":
        assert isinstance(task, SentenceEmbedding)
        return EmbeddingObjective(task, world, temperature=temperature)
    _check_logits(task)
    if callable(task.objective):
        _check_arguments(task, task.objective)
    if class_weights is not None:
        loss = weighted_cross_entropy(class_weights.to(world.device))
    elif callable(task.objective):
        loss = task.objective
    elif task.objective in LOSSES:
        loss = LOSSES[task.objective]
    else:
        raise ConfigError(
            f"the objective of {task.name} is {task.objective!r}; "
            f"{suggestion(task.objective, [*LOSSES, 'embedding'])}, or a function of logits and labels"
        )
    return HeadObjective(task, world.device, loss=loss)


def _check_logits(task: Task) -> None:
    """Raise a ConfigError for a model without the logits that the objective of the task reads."""
    scores = HEADS[task.architecture].scores.get("logits")
    if callable(task.objective) and (scores is None or scores.names != ("logits",)):
        raise ConfigError(
            f"the objective of {task.name} is a function of logits and labels, and {task.architecture} has "
            "none under that name. Expected objective = 'head', or an architecture with one tensor of logits."
        )


def _check_arguments(task: Task, objective: Callable[..., Any]) -> None:
    """Raise a ConfigError for a function that cannot be called with logits and labels."""
    try:
        signature = inspect.signature(objective)
    except ValueError:  # of a function that is not written in Python
        return
    try:
        signature.bind("logits", "labels")
    except TypeError as error:
        raise ConfigError(
            f"the objective of {task.name} cannot be called with logits and labels ({error}). Expected "
            "objective = staticmethod(function), where function takes (logits, labels)."
        ) from None


def weighted_cross_entropy(weights: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the mean cross-entropy over items, of logits (..., K) and labels (...); class weights (K,)."""

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        labels = labels.reshape(-1)
        items = (labels != IGNORED_LABEL).sum().clamp(min=1)
        logits = logits.flatten(0, -2)
        options = {"weight": weights, "ignore_index": IGNORED_LABEL, "reduction": "sum"}
        return F.cross_entropy(logits, labels, **options) / items

    return loss


def binary_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean over items of the mean loss of their K labels, each a decision by itself.

    Args:
        logits: (..., K).
        labels: (..., K), 0 or 1 each; -100 in an item without labels.
    """
    labelled = labels[..., 0] != IGNORED_LABEL  # (...)
    if not labelled.any():
        return logits.sum() * 0
    return F.binary_cross_entropy_with_logits(logits[labelled], labels[labelled])


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor] | None] = {
    "head": None,
    "binary_cross_entropy": binary_cross_entropy,
}
"""The losses that a task may name; None: that of the model's own head."""


def balanced_weights(counts: Counter[int] | None, classes: int) -> Tensor:
    """Return weights (K,) that are inverse to frequency, and 1 on average over the training items.

    Raises:
        ConfigError: the task has no single classes.
    """
    if counts is None:
        raise ConfigError("class_weights are for tasks with one class for each item; use 'none' here")
    total, seen = counts.total(), len(counts)
    return torch.tensor([total / (seen * counts[one]) if counts[one] else 1.0 for one in range(classes)])


def training_inputs(task: Task, rows: Sequence[Row], device: torch.device) -> dict[str, Any]:
    """Return what the model takes to give a loss: a padded batch (B, T) and its labels.

    The choices of a question share one softmax: its batch is (B / C, C, T).

    Raises:
        DataError: a row without labels, or questions of different numbers of choices.
    """
    unlabelled = next((row for row in rows if row.labels is None), None)
    if unlabelled is not None:
        raise DataError(
            f"example {unlabelled.example} has no labels. Expected labeled examples to learn from."
        )
    batch: dict[str, Any] = {**training_batch(task, rows, device)}
    if task.architecture == "AlbertForMultipleChoice":
        choices = {len(unit) for unit in task.units(rows)}
        if len(choices) != 1:
            raise DataError(
                f"a batch has examples of {', '.join(map(str, sorted(choices)))} choices. Expected as many "
                "in each."
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
    mask = batch["attention_mask"][:, :, None]  # (B, T) -> (B, T, 1)
    (pooling,) = task.modules.pooling
    if pooling == "cls":
        vectors = hidden_states[:, 0]
    elif pooling == "max":
        vectors = hidden_states.masked_fill(mask == 0, -math.inf).amax(dim=1)
    else:
        mask = mask.to(hidden_states.dtype)
        vectors = (hidden_states * mask).sum(dim=1) / mask.sum(dim=1)
    return F.normalize(vectors, dim=-1) if task.modules.normalize else vectors


def embedding_loss(vectors: Tensor, texts: Tensor, scores: Tensor, *, temperature: float) -> Tensor:
    """Return the loss of a batch: `ranking_loss` if it has scores, else `contrastive_loss`.

    Args:
        vectors: (B, W, H), of any length.
        texts: (B, W), equal for equal texts.
        scores: (B,), NaN for texts that belong together.
        temperature: divides the cosines; the smaller, the more the nearest wrong text counts.
    """
    with torch.autocast(vectors.device.type, enabled=False):  # a cosine in bfloat16 has two digits
        vectors = F.normalize(vectors.float(), dim=-1)
        if scores.isnan().any():
            return contrastive_loss(vectors, texts, temperature=temperature)
        cosines = (vectors[:, 0] * vectors[:, 1]).sum(dim=-1)  # (B,)
        return ranking_loss(cosines, scores, temperature=temperature)


def contrastive_loss(vectors: Tensor, texts: Tensor, *, temperature: float) -> Tensor:
    """Return the mean cross-entropy of finding each first text's second one among all of the batch.

    Multiple negatives ranking (Henderson et al. 2017), with the cosine over a temperature and negatives as in
    Gao et al. 2021, equation 5. Candidates are the second texts and the negatives of all examples. A
    candidate that is no wrong answer is left out: the second text of an equal first one, an equal second
    text, the first text itself.

    Args:
        vectors: (B, W, H) of length 1.
        texts: (B, W), equal for equal texts.
        temperature: as in `embedding_loss`.
    """
    first = vectors[:, 0]  # (B, H)
    candidates = vectors[:, 1:].transpose(0, 1).flatten(0, 1)  # (B, W - 1, H) -> ((W - 1) B, H), second first
    logits = first @ candidates.T / temperature  # (B, (W - 1) B)
    right = torch.arange(len(first), device=logits.device)
    excluded = _not_wrong(texts)
    excluded[right, right] = False
    return F.cross_entropy(logits.masked_fill(excluded, -math.inf), right)


def _not_wrong(texts: Tensor) -> Tensor:
    """Return (B, (W - 1) B) for (B, W), true where a candidate is right for a first text or equals it."""
    first, second, candidates = texts[:, 0], texts[:, 1], texts[:, 1:].T.flatten()
    same_first = first[:, None] == first  # (B, B)
    same_as_second = second[:, None] == candidates  # (B, (W - 1) B)
    right = same_first.float() @ same_as_second.float() > 0  # as right for each equal first text
    return right | (first[:, None] == candidates)


def ranking_loss(cosines: Tensor, scores: Tensor, *, temperature: float) -> Tensor:
    """Return log(1 + sum of exp((cosine of i - cosine of j) / temperature)) over all i scored below j.

    CoSENT (Su 2022, https://kexue.fm/archives/8847; the cosine objective of Li and Li 2023, AnglE). It asks
    for the order of the cosines only, as Spearman's correlation does, so scores may be of any scale.

    Args:
        cosines: (B,).
        scores: (B,).
        temperature: as in `embedding_loss`.
    """
    differences = (cosines[:, None] - cosines) / temperature  # (B, B)
    below = scores[:, None] < scores
    return torch.cat([differences[below], differences.new_zeros(1)]).logsumexp(dim=0)


def text_numbers(units: Sequence[Sequence[Row]], device: torch.device) -> Tensor:
    """Return (B, W) numbers that are equal for equal texts, in every process."""
    numbers = [[_text_number(row) for row in unit] for unit in units]
    return torch.tensor(numbers, dtype=torch.int64, device=device)


def _text_number(row: Row) -> int:
    digest = hashlib.blake2b(np.array(row.input_ids, np.int32).tobytes(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def text_scores(units: Sequence[Sequence[Row]], device: torch.device) -> Tensor:
    """Return (B,) scores, NaN where there is none."""
    scores = [math.nan if unit[0].labels is None else unit[0].labels for unit in units]
    return torch.tensor(scores, dtype=torch.float32, device=device)
