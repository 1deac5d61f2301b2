"""LAMB and AdamW as in the original ALBERT, Muon, and gradient clipping.

LAMB and AdamW do not correct Adam's bias, like the original optimizers (google-research/albert
`lamb_optimizer.py`, `optimization.py`). LAMB: You et al. 2019, "Large Batch Optimization for Deep
Learning", algorithm 2. `adamw-corrected` equals `torch.optim.AdamW`, with bias correction.
"""

# `torch._foreach_*` updates many tensors at once.
# pyright: reportPrivateImportUsage=false

import inspect
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from albertkit.errors import ConfigError
from albertkit.training.settings import TrainingSettings

# Parameters whose names contain one of these get neither weight decay nor, in LAMB, a trust ratio.
NO_DECAY = ("LayerNorm", "layer_norm", "bias")
# Two-dimensional parameters whose names contain this are matrices that Muon updates.
LAYERS = "albert_layer_groups"


class AdamW(torch.optim.Optimizer):
    """The original's AdamW: no bias correction, decay added to the update."""

    # PyTorch excludes these methods from compiled graphs, and imports its compiler to do so: two seconds and
    # about 70 MB at the start of every run. These optimizers are never compiled.
    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)
    state_dict = inspect.unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Optimizer.load_state_dict)

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
    def step(self) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            if params := [param for param in group["params"] if param.grad is not None]:
                self._update(params, [param.grad for param in params], group)

    def _moments(self, params: list[Tensor], *names: str) -> list[list[Tensor]]:
        """Return the moments of these names of each parameter, which start at zero."""
        for param in params:
            for name in names:
                if name not in self.state[param]:
                    self.state[param][name] = torch.zeros_like(param)
        return [[self.state[param][name] for param in params] for name in names]

    def _update(self, params: list[Tensor], grads: list[Tensor], group: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        first, second = self._moments(params, "exp_avg", "exp_avg_sq")
        torch._foreach_lerp_(first, grads, 1 - beta1)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, grads, grads, 1 - beta2)
        scales = torch._foreach_sqrt(second)
        torch._foreach_add_(scales, group["eps"])
        updates = torch._foreach_div(first, scales)
        if group["weight_decay"]:
            torch._foreach_add_(updates, params, alpha=group["weight_decay"])
        if group["layer_adaptation"]:
            norms, update_norms = (torch.stack(torch._foreach_norm(values)) for values in (params, updates))
            smallest = torch.finfo(update_norms.dtype).tiny
            ratios = torch.where(
                (norms > 0) & (update_norms > 0), norms / update_norms.clamp_min(smallest), 1.0
            )
            torch._foreach_mul_(updates, list(ratios.unbind()))  # they stay on the device
        torch._foreach_add_(params, updates, alpha=-group["lr"])


class CorrectedAdamW(AdamW):
    """`torch.optim.AdamW`, which would import PyTorch's compiler."""

    def _update(self, params: list[Tensor], grads: list[Tensor], group: dict[str, Any]) -> None:
        first, second = self._moments(params, "exp_avg", "exp_avg_sq")
        steps = [self.state[one].setdefault("step", torch.zeros((), device=one.device)) for one in params]
        torch._foreach_add_(steps, 1)
        rates = {name: group[name] for name in ("lr", "weight_decay", "eps")}
        rates |= dict(zip(("beta1", "beta2"), group["betas"], strict=True))
        torch._fused_adamw_(params, grads, first, second, [], steps, amsgrad=False, maximize=False, **rates)


class Lamb(AdamW):
    """LAMB: AdamW, with each tensor's update scaled by the ratio of its norm to the update's norm."""

    layer_adaptation = True


class Muon(AdamW):
    """Muon for the matrices of the layers, the original's AdamW for all other parameters.

    Muon (Jordan et al. 2024) replaces the momentum of a matrix by the nearest orthogonal matrix. Its updates
    are scaled to the size of AdamW's (Liu et al. 2025, "Muon is Scalable for LLM Training"). In bfloat16
    the updates equal those of `torch.optim.Muon`, which always computes in bfloat16.

    Args:
        matrices: two-dimensional parameters.
        others: parameter groups for AdamW.
        lr: learning rate of the matrices.
        adamw_lr: learning rate of all other parameters.
        weight_decay: decoupled weight decay.
        dtype: data type of the orthogonalization. bfloat16 is several times as fast as float32 on hardware
            with instructions for it, and 24 times as slow on a CPU without them.
    """

    def __init__(
        self,
        matrices: list[Tensor],
        others: list[dict[str, Any]],
        *,
        lr: float,
        adamw_lr: float,
        weight_decay: float,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        orthogonal = {"params": matrices, "lr": lr, "momentum": 0.95}
        super().__init__([orthogonal, *others], lr=adamw_lr, weight_decay=weight_decay)
        self.dtype = dtype

    def _update(self, params: list[Tensor], grads: list[Tensor], group: dict[str, Any]) -> None:
        if "momentum" not in group:
            super()._update(params, grads, group)
            return
        (averages,) = self._moments(params, "momentum_buffer")
        torch._foreach_lerp_(averages, grads, 1 - group["momentum"])
        looked_ahead = torch._foreach_lerp(grads, averages, group["momentum"])
        torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])
        by_shape: dict[torch.Size, list[int]] = {}
        for index, param in enumerate(params):
            by_shape.setdefault(param.shape, []).append(index)
        for shape, indices in by_shape.items():
            updates = orthogonalize(torch.stack([looked_ahead[index] for index in indices]), self.dtype)
            size = -0.2 * max(shape) ** 0.5 * group["lr"]
            same_shape = [params[index] for index in indices]
            torch._foreach_add_(same_shape, list(updates.to(same_shape[0].dtype)), alpha=size)


def orthogonalize(matrices: Tensor, dtype: torch.dtype) -> Tensor:
    """Return U V' of matrices U S V' (N, R, C), roughly: the singular values become 0.7 to 1.2.

    Five Newton-Schulz steps with the coefficients of Jordan et al. 2024, computed and returned in `dtype`.
    """
    a, b, c = 3.4445, -4.775, 2.0315
    is_tall = matrices.shape[1] > matrices.shape[2]
    wide = matrices.to(dtype)
    if is_tall:
        wide = wide.mT
    # The iteration needs singular values of at most 1.
    wide = wide / torch.linalg.matrix_norm(wide, keepdim=True).clamp_min(1e-7)
    for _ in range(5):
        gram = wide @ wide.mT
        wide = torch.baddbmm(wide, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), wide, beta=a)
    return wide.mT if is_tall else wide


def build_optimizer(
    model: nn.Module, settings: TrainingSettings, *, bf16: bool = False
) -> torch.optim.Optimizer:
    """Build the optimizer of the settings over the model's trainable parameters.

    Biases and layer norms (see `NO_DECAY`) are neither decayed nor, in LAMB, scaled. With `bf16`, Muon
    orthogonalizes in bfloat16.
    """
    rates: dict[str, Any] = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay}
    matrices: list[Tensor] = []
    decayed: dict[str, Any] = {"params": []}
    plain: dict[str, Any] = {"params": [], "weight_decay": 0.0}
    for name, param in model.named_parameters():
        if param.requires_grad:
            if settings.optimizer == "muon" and LAYERS in name and param.ndim == 2:
                matrices.append(param)
            elif any(part in name for part in NO_DECAY):
                plain["params"].append(param)
            else:
                decayed["params"].append(param)
    if settings.optimizer == "muon":
        if not matrices:
            raise ConfigError("optimizer 'muon' needs layers with trainable matrices. Choose 'adamw'.")
        adamw_rate = settings.adamw_learning_rate or settings.learning_rate or 0.0
        dtype = torch.bfloat16 if bf16 else torch.float32
        return Muon(matrices, [decayed, plain], **rates, adamw_lr=adamw_rate, dtype=dtype)
    if settings.optimizer == "lamb":
        plain["layer_adaptation"] = False
        return Lamb([decayed, plain], **rates)
    kind = AdamW if settings.optimizer == "adamw" else CorrectedAdamW
    return kind([decayed, plain], **rates)


def clip_gradients(parameters: Iterable[Tensor], max_norm: float) -> Tensor:
    """Scale all gradients so that their global norm is at most `max_norm`; return the original norm.

    As in `tf.clip_by_global_norm`: exactly `max_norm / norm`, no epsilon, no change below `max_norm`, which
    may be infinite.
    """
    gradients = [param.grad for param in parameters if param.grad is not None]
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    torch._foreach_mul_(gradients, (max_norm / norm).clamp_max(1.0))
    return norm
