"""The losses of the heads.

Shapes: any leading shape (...), K classes.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from albertkit.config import IGNORED_LABEL
from albertkit.errors import DataError

_CHUNK_SCORES = 1 << 18  # scores of a chunk: 1 MB in fp32, which a core's cache holds


def vocabulary_loss(logits: Tensor, labels: Tensor, *, ignored: int = IGNORED_LABEL) -> tuple[Tensor, Tensor]:
    """Return the sum of the cross-entropies over a large vocabulary, and the number of correct predictions.

    On a CPU, a few rows at a time are computed while the cache holds them. With bfloat16 logits, the forward
    and backward pass take 40% of the time of `F.cross_entropy` and `argmax`, with the same results.

    Args:
        logits: (N, V) in any precision; the losses are computed in fp32.
        labels: (N,) classes. Labels equal to `ignored` do not count.
        ignored: The label of padding.
    """
    if logits.device.type == "cpu":
        return _ChunkedLoss.apply(logits, labels, ignored)
    total = F.cross_entropy(logits.float(), labels, ignore_index=ignored, reduction="sum")
    return total, (logits.detach().argmax(-1) == labels).sum()


class _ChunkedLoss(Function):
    """`vocabulary_loss` by chunks of rows; the softmax is computed again in the backward pass."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, ignored: int) -> tuple[Tensor, Tensor]:
        counted = labels != ignored
        columns = torch.where(counted, labels, 0).unsqueeze(1)  # (N, 1)
        normalizers = torch.empty(len(logits), dtype=torch.float32)
        num_correct = torch.zeros((), dtype=torch.long)
        for rows in _chunks(logits):
            scores = logits[rows].float()
            best = scores.amax(-1, keepdim=True)
            normalizers[rows] = (scores - best).exp_().sum(-1).log_().add_(best.squeeze(1))
            # argmax is slow, and of several largest scores it returns the first.
            candidates = (scores.gather(1, columns[rows]) == best).squeeze(1) & counted[rows]
            predicted = scores[candidates].argmax(-1)
            num_correct += (predicted == labels[rows][candidates]).sum()
        losses = normalizers - logits.gather(1, columns).squeeze(1).float()
        ctx.save_for_backward(logits, columns, counted, normalizers)
        ctx.mark_non_differentiable(num_correct)
        return losses.masked_fill(~counted, 0).sum(), num_correct

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        logits, columns, counted, normalizers = ctx.saved_tensors
        factors = torch.where(counted, grad_outputs[0].float(), 0.0).unsqueeze(1)  # (N, 1)
        gradients = torch.empty_like(logits)
        for rows in _chunks(logits):
            softmax = (logits[rows].float() - normalizers[rows].unsqueeze(1)).exp_()
            softmax.mul_(factors[rows]).scatter_add_(1, columns[rows], -factors[rows])
            gradients[rows] = softmax
        return gradients, None, None


def _chunks(logits: Tensor) -> list[slice]:
    size = max(1, _CHUNK_SCORES // max(1, logits.shape[-1]))
    return [slice(begin, begin + size) for begin in range(0, len(logits), size)]


def classification_loss(logits: Tensor, labels: Tensor, *, ignored: int = IGNORED_LABEL) -> Tensor:
    """Return the mean cross-entropy of logits (..., K) with labels (...), without labels equal to `ignored`.

    It is computed in fp32. If all labels of a batch are ignored, the loss is 0 as in the original, not NaN.
    """
    if labels.is_floating_point():
        raise DataError(f"labels must be whole numbers, got {labels.dtype}. Use labels.long().")
    classes = logits.shape[-1]
    logits = logits.reshape(-1, classes)  # (..., K) -> (-1, K)
    # In eight bits, class 156 would equal -100.
    labels = labels.reshape(-1).long()
    if not torch.compiler.is_compiling():
        strange = labels[(labels != ignored) & ((labels < 0) | (labels >= classes))]
        if len(strange):
            raise DataError(
                f"labels contain {int(strange[0])}, but there are {classes} classes. Expected 0 to "
                f"{classes - 1}, or {ignored} for no label."
            )
    total = F.cross_entropy(logits.float(), labels, ignore_index=ignored, reduction="sum")
    return total / (labels != ignored).sum().clamp(min=1)


def loss_of_step(loss: Tensor, labels: Tensor, num_items_in_batch: Tensor | int | None) -> Tensor:
    """Scale the mean loss of a batch, so that the sum over the batches of a step is the mean of the step.

    `transformers.Trainer` accumulates gradients this way: it passes the number of labels in the step, and
    does not divide the loss by the number of batches.

    Args:
        loss: Mean over the labels of this batch.
        labels: Labels of any shape. Labels equal to -100 do not count.
        num_items_in_batch: Number of labels in the whole step; a tensor with one element under
            `nn.DataParallel`. None returns the loss unchanged.
    """
    if num_items_in_batch is None:
        return loss
    total = torch.as_tensor(num_items_in_batch, device=labels.device).reshape(())
    # If all labels of a step are ignored, the loss of the step is 0.
    return loss * ((labels.long() != IGNORED_LABEL).sum() / total.clamp(min=1))
