"""LAMB and AdamW as in the original ALBERT, Muon, and gradient clipping.

LAMB and AdamW do not correct Adam's bias, like the original optimizers (google-research/albert
`lamb_optimizer.py`, `optimization.py`). LAMB: You et al. 2019, "Large Batch Optimization for Deep
Learning", algorithm 2. `adamw-corrected` is `torch.optim.AdamW`, with bias correction.
"""

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


class _EagerOptimizer(torch.optim.Optimizer):
    """An optimizer that is never compiled.

    PyTorch excludes these methods from compiled graphs, and imports its compiler to do so: two seconds and
    about 70 MB at the start of every run.
    """

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)
    state_dict = inspect.unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Optimizer.load_state_dict)


class AdamW(_EagerOptimizer):
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
            for param in group["params"]:
                if param.grad is not None:
                    self._update(param, param.grad, self.state[param], group)

    def _update(self, param: Tensor, grad: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
        if not state:
            state["exp_avg"] = torch.zeros_like(param)
            state["exp_avg_sq"] = torch.zeros_like(param)
        beta1, beta2 = group["betas"]
        first, second = state["exp_avg"], state["exp_avg_sq"]
        first.lerp_(grad, 1 - beta1)
        second.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        update = first / second.sqrt().add_(group["eps"])
        if group["weight_decay"]:
            update.add_(param, alpha=group["weight_decay"])
        if group["layer_adaptation"]:
            update.mul_(_trust_ratio(param, update))
        param.sub_(update, alpha=group["lr"])


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

    Raises:
        ConfigError: `matrices` is empty.
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
        if not matrices:
            raise ConfigError("optimizer 'muon' needs layers with trainable matrices. Choose 'adamw'.")
        orthogonal = {"params": matrices, "lr": lr, "momentum": 0.95}
        super().__init__([orthogonal, *others], lr=adamw_lr, weight_decay=weight_decay)
        self.dtype = dtype

    def _update(self, param: Tensor, grad: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
        if "momentum" not in group:
            super()._update(param, grad, state, group)
            return
        if not state:
            state["momentum_buffer"] = torch.zeros_like(grad)
        average = state["momentum_buffer"].lerp_(grad, 1 - group["momentum"])
        update = orthogonalize(grad.lerp(average, group["momentum"]), self.dtype)
        param.mul_(1 - group["lr"] * group["weight_decay"])
        param.add_(update, alpha=-0.2 * max(param.shape) ** 0.5 * group["lr"])


def orthogonalize(matrix: Tensor, dtype: torch.dtype) -> Tensor:
    """Return U V' of the matrix U S V', roughly: the singular values become 0.7 to 1.2.

    Five Newton-Schulz steps with the coefficients of Jordan et al. 2024, computed and returned in `dtype`.
    """
    a, b, c = 3.4445, -4.775, 2.0315
    wide = matrix.to(dtype)
    if matrix.shape[0] > matrix.shape[1]:
        wide = wide.T
    wide = wide / wide.norm().clamp_min(1e-7)  # the iteration needs singular values of at most 1
    for _ in range(5):
        gram = wide @ wide.T
        wide = torch.addmm(wide, torch.addmm(gram, gram, gram, beta=b, alpha=c), wide, beta=a)
    return wide.T if matrix.shape[0] > matrix.shape[1] else wide


def _trust_ratio(param: Tensor, update: Tensor) -> Tensor:
    """Return ||param|| / ||update||, 1 if either is zero. Stays on the device, without synchronization."""
    param_norm = torch.linalg.vector_norm(param)
    update_norm = torch.linalg.vector_norm(update)
    usable = (param_norm > 0) & (update_norm > 0)
    return torch.where(usable, param_norm / update_norm.clamp_min(torch.finfo(update.dtype).tiny), 1.0)


def build_optimizer(
    model: nn.Module, settings: TrainingSettings, *, bf16: bool = False
) -> torch.optim.Optimizer:
    """Build the optimizer of the settings over the model's trainable parameters.

    Biases and layer norms (see `NO_DECAY`) are neither decayed nor, in LAMB, scaled.

    Args:
        model: the model to train.
        settings: the settings of the run.
        bf16: whether the run computes in bfloat16. Muon then orthogonalizes in bfloat16 too.

    Raises:
        ConfigError: no learning rate is set, or the optimizer cannot train this model.
    """
    if settings.learning_rate is None:
        raise ConfigError("learning_rate is missing. Set it in the recipe or with a flag.")
    name = settings.optimizer
    rates: dict[str, Any] = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay}
    trained = {key: param for key, param in model.named_parameters() if param.requires_grad}
    matrices: list[Tensor] = []
    if name == "muon":
        chosen = [key for key, param in trained.items() if LAYERS in key and param.ndim == 2]
        matrices = [trained.pop(key) for key in chosen]
    plain = [param for key, param in trained.items() if any(part in key for part in NO_DECAY)]
    decayed = [param for key, param in trained.items() if not any(part in key for part in NO_DECAY)]
    groups: list[dict[str, Any]] = [{"params": decayed}, {"params": plain, "weight_decay": 0.0}]
    if name == "muon":
        adamw_rate = settings.adamw_learning_rate or settings.learning_rate
        dtype = torch.bfloat16 if bf16 else torch.float32
        return Muon(matrices, groups, **rates, adamw_lr=adamw_rate, dtype=dtype)
    if name == "lamb":
        groups[1]["layer_adaptation"] = False
        return Lamb(groups, **rates)
    if name == "adamw":
        return AdamW(groups, **rates)
    return torch.optim.AdamW(groups, **rates, eps=1e-6)


def clip_gradients(parameters: Iterable[Tensor], max_norm: float) -> Tensor:
    """Scale all gradients so that their global norm is at most `max_norm`; return the original norm.

    As in `tf.clip_by_global_norm`: exactly `max_norm / norm`, no epsilon, no change below `max_norm`, which
    may be infinite.
    """
    gradients = [param.grad for param in parameters if param.grad is not None]
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(grad) for grad in gradients]))
    scale = (max_norm / norm).clamp_max(1.0)
    for grad in gradients:
        grad.mul_(scale)
    return norm
