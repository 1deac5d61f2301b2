"""The losses of the heads.

Shapes: any leading shape (...), K classes.
"""

import torch.nn.functional as F
from torch import Tensor

IGNORED_LABEL = -100


def classification_loss(logits: Tensor, labels: Tensor, *, ignored: int = IGNORED_LABEL) -> Tensor:
    """Mean cross-entropy of logits (..., K) against labels (...), leaving out those equal to `ignored`.

    Computed in fp32. A batch whose labels are all ignored gives 0, as in the original, and not NaN.
    """
    logits = logits.reshape(-1, logits.shape[-1])  # (..., K) -> (-1, K)
    labels = labels.reshape(-1)
    total = F.cross_entropy(logits.float(), labels, ignore_index=ignored, reduction="sum")
    return total / (labels != ignored).sum().clamp(min=1)


def multi_label_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean binary cross-entropy of logits (B, K) against labels (B, K) of 0 and 1 (or between)."""
    return F.binary_cross_entropy_with_logits(logits.float(), labels.float())


def regression_loss(values: Tensor, labels: Tensor) -> Tensor:
    """Mean squared error of values (B, K) against labels of as many elements."""
    return F.mse_loss(values.float().reshape(-1), labels.float().reshape(-1))
