"""LAMB and AdamW as the original ALBERT was trained with, and gradient clipping as TensorFlow does it.

Neither corrects Adam's bias: that is how the original optimizers are (google-research/albert
`lamb_optimizer.py`, `optimization.py`). LAMB: You et al. 2019, "Large Batch Optimization for Deep
Learning", algorithm 2. `adamw-corrected` is `torch.optim.AdamW`, for those who want the usual one.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from albertkit.training.settings import OptimizerName

# Parameters whose names hold one of these get neither weight decay nor, in LAMB, a trust ratio.
NO_DECAY = ("LayerNorm", "layer_norm", "bias")


class AdamW(torch.optim.Optimizer):
    """The original's AdamW: no bias correction, decay added to the update."""

    layer_adaptation = False

    def __init__(
        self,
        params: Iterable[Any],
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "layer_adaptation": self.layer_adaptation,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        assert closure is None, "closures are not supported"
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for param in group["params"]:
                if param.grad is None:
                    continue
                state = self.state[param]
                if not state:
                    state["exp_avg"] = torch.zeros_like(param)
                    state["exp_avg_sq"] = torch.zeros_like(param)
                first, second = state["exp_avg"], state["exp_avg_sq"]
                first.lerp_(param.grad, 1 - beta1)
                second.mul_(beta2).addcmul_(param.grad, param.grad, value=1 - beta2)
                update = first / second.sqrt().add_(group["eps"])
                if group["weight_decay"]:
                    update.add_(param, alpha=group["weight_decay"])
                if group["layer_adaptation"]:
                    update.mul_(_trust_ratio(param, update))
                param.sub_(update, alpha=group["lr"])


class Lamb(AdamW):
    """LAMB: AdamW, with each tensor's update scaled by the ratio of its norm to the update's norm."""

    layer_adaptation = True


def _trust_ratio(param: Tensor, update: Tensor) -> Tensor:
    """Return ||param|| / ||update||, or 1 where either is zero. On the device: no synchronisation."""
    param_norm = torch.linalg.vector_norm(param)
    update_norm = torch.linalg.vector_norm(update)
    usable = (param_norm > 0) & (update_norm > 0)
    return torch.where(usable, param_norm / update_norm.clamp_min(torch.finfo(update.dtype).tiny), 1.0)


def build_optimizer(
    model: nn.Module, name: OptimizerName, *, learning_rate: float, weight_decay: float
) -> torch.optim.Optimizer:
    """Build the named optimizer over the model's trainable parameters, in two groups.

    Biases and layer norms (see `NO_DECAY`) are neither decayed nor, in LAMB, scaled.
    """
    decayed: list[Tensor] = []
    plain: list[Tensor] = []
    for parameter_name, param in model.named_parameters():
        if param.requires_grad:
            (plain if any(part in parameter_name for part in NO_DECAY) else decayed).append(param)
    groups: list[dict[str, Any]] = [{"params": decayed}, {"params": plain, "weight_decay": 0.0}]
    if name == "lamb":
        groups[1]["layer_adaptation"] = False
        return Lamb(groups, lr=learning_rate, weight_decay=weight_decay)
    if name == "adamw":
        return AdamW(groups, lr=learning_rate, weight_decay=weight_decay)
    return torch.optim.AdamW(groups, lr=learning_rate, weight_decay=weight_decay, eps=1e-6)


def clip_gradients(parameters: Iterable[Tensor], max_norm: float) -> Tensor:
    """Scale all gradients so that their global norm is at most `max_norm`; return the norm before.

    As `tf.clip_by_global_norm`: exactly `max_norm / norm`, no epsilon, nothing done below `max_norm`.
    """
    gradients = [param.grad for param in parameters if param.grad is not None]
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(grad) for grad in gradients]))
    scale = max_norm / norm.clamp_min(max_norm)
    for grad in gradients:
        grad.mul_(scale)
    return norm
