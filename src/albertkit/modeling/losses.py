"""The losses of the heads.

Shapes: any leading shape (...), K classes.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from albertkit.config import IGNORED_LABEL
from albertkit.errors import DataError
from albertkit.modeling.arguments import CLASSES, check_tensors


def classification_loss(
    logits: Tensor, labels: Tensor, *, ignored: int = IGNORED_LABEL, name: str = "labels"
) -> Tensor:
    """Mean cross-entropy of logits (..., K) against labels (...), except labels equal to `ignored`.

    Computed in fp32. If all labels of a batch are ignored, the loss is 0, as in the original, and not NaN.

    Raises:
        DataError: the labels are not a tensor of whole numbers, have another shape than the scores, or are
            not classes, for which a GPU would abort the process.
    """
    check_tensors({name: labels}, dtypes=CLASSES)
    classes = logits.shape[-1]
    logits = logits.reshape(-1, classes)  # (..., K) -> (-1, K)
    shape, labels = tuple(labels.shape), labels.reshape(-1)
    if not torch.compiler.is_compiling():
        if len(labels) != len(logits):
            raise DataError(
                f"{name} must have one element for each of {len(logits)} rows of scores, got {shape}"
            )
        strange = labels[(labels != ignored) & ((labels < 0) | (labels >= classes))]
        if len(strange):
            raise DataError(
                f"{name} contain {int(strange[0])}, but there are {classes} classes. Expected 0 to "
                f"{classes - 1}, or {ignored} for none (the config's num_labels counts the classes)."
            )
    total = F.cross_entropy(logits.float(), labels, ignore_index=ignored, reduction="sum")
    return total / (labels != ignored).sum().clamp(min=1)


def loss_of_step(loss: Tensor, labels: Tensor, num_items_in_batch: Tensor | int | None) -> Tensor:
    """Weight the mean loss of one batch, so that the sum over an optimizer step's batches is the step's mean.

    `transformers.Trainer` accumulates gradients like this: it passes the number of labels in the step, and
    does not divide the loss by the number of batches.

    Args:
        loss: mean over the labels of this batch.
        labels: of any shape; those equal to -100 do not count.
        num_items_in_batch: number of labels in the whole step, a tensor of one element under
            `nn.DataParallel`; None returns the loss unchanged.
    """
    if num_items_in_batch is None:
        return loss
    total = torch.as_tensor(num_items_in_batch, device=labels.device).reshape(())
    # If all labels of a step are ignored, its loss is 0, as for a batch.
    return loss * ((labels != IGNORED_LABEL).sum() / total.clamp(min=1))


def multi_label_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean binary cross-entropy of logits (B, K) against labels (B, K) of 0 and 1 (or between)."""
    return F.binary_cross_entropy_with_logits(logits.float(), labels.float())


def regression_loss(values: Tensor, labels: Tensor) -> Tensor:
    """Mean squared error of values (B, K) against labels of as many elements."""
    return F.mse_loss(values.float().reshape(-1), labels.float().reshape(-1))
