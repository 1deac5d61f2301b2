"""Early exit (PABEE): classify after each layer, and exit when several consecutive layers agree.

Zhou et al. 2020, "BERT Loses Patience: Fast and Robust Inference with Early Exit", with ALBERT. All layers
share the pooler. The last layer uses the model's own classifier. The other layers have a classifier each, or
use the model's own classifier too.

Shapes: L layers, B batch, K labels.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


def agree(before: Tensor, now: Tensor, *, problem_type: str | None, tolerance: float) -> Tensor:
    """Return for each row whether two layers agree: logits (B, K) of both -> bool (B,).

    Layers agree if they predict the same label, the same set of labels, or (regression) numbers whose
    difference is small.
    """
    if problem_type == "regression":
        return ((now - before).abs() < tolerance).all(dim=-1)
    if problem_type == "multi_label_classification" or now.shape[-1] == 1:
        return ((now > 0) == (before > 0)).all(dim=-1)
    return now.argmax(dim=-1) == before.argmax(dim=-1)


def exit_depths(logits: Tensor, patience: int, *, problem_type: str | None, tolerance: float) -> Tensor:
    """Return the layer, counted from 1, at which each row exits: (L, B, K) -> (B,).

    It is the first layer at which each of the last `patience` layers agreed with the layer before it.
    """
    depths = torch.full((logits.shape[1],), len(logits), device=logits.device)
    agreed = torch.zeros_like(depths)
    for depth in range(2, len(logits) + 1):
        same = agree(logits[depth - 2], logits[depth - 1], problem_type=problem_type, tolerance=tolerance)
        agreed = torch.where(same, agreed + 1, 0)
        depths = torch.where(agreed >= patience, depths.clamp(max=depth), depths)
    return depths


def weighted_mean(losses: Sequence[Tensor]) -> Tensor:
    """Return the mean of the losses of layers 1 to L, weighted by layer number (the paper's equation 3)."""
    weighted = [depth * loss for depth, loss in enumerate(losses, start=1)]
    return torch.stack(weighted).sum() / sum(range(1, len(losses) + 1))
