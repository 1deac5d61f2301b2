"""Early exit: a classifier after each depth, and leaving once several depths in a row agree (PABEE).

Zhou et al. 2020, "BERT Loses Patience: Fast and Robust Inference with Early Exit", who did it with ALBERT.
The pooler is the same at all depths. Each depth has a classifier, the last one the model's own; or that one
is for all.

Shapes: L depths, B batch, K labels.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def agree(before: Tensor, now: Tensor, *, problem_type: str | None, tolerance: float) -> Tensor:
    """Tell of each row whether two depths say the same: (B, K) twice -> bool (B,).

    That is the same label, the same set of labels, or for a regression numbers that are near each other.
    """
    if problem_type == "regression":
        return ((now - before).abs() < tolerance).all(dim=-1)
    if problem_type == "multi_label_classification" or now.shape[-1] == 1:
        return ((now > 0) == (before > 0)).all(dim=-1)
    return now.argmax(dim=-1) == before.argmax(dim=-1)


def exit_depths(logits: Tensor, patience: int, *, problem_type: str | None, tolerance: float) -> Tensor:
    """Return at which depth each row leaves, from 1: (L, B, K) -> (B,).

    It is the first at which `patience` depths, one after the other, have agreed with the one before each.
    """
    depths = torch.full((logits.shape[1],), len(logits), device=logits.device)
    agreed = torch.zeros_like(depths)
    for depth in range(2, len(logits) + 1):
        same = agree(logits[depth - 2], logits[depth - 1], problem_type=problem_type, tolerance=tolerance)
        agreed = torch.where(same, agreed + 1, 0)
        depths = torch.where(agreed >= patience, depths.clamp(max=depth), depths)
    return depths


def weighted_mean(losses: Sequence[Tensor]) -> Tensor:
    """Return the mean of the losses of depths 1 to L, weighted so (the paper's equation 3)."""
    weighted = [depth * loss for depth, loss in enumerate(losses, start=1)]
    return torch.stack(weighted).sum() / sum(range(1, len(losses) + 1))
