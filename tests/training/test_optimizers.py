"""Tests that the optimizers take 30 steps that were recorded from the original implementation."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from places import GOLDEN
from torch import nn

from albertkit.config import AlbertConfig
from albertkit.errors import ConfigError
from albertkit.modeling.heads import AlbertForPreTraining
from albertkit.training.optimizers import (
    NO_DECAY,
    AdamW,
    Muon,
    build_optimizer,
    clip_gradients,
    orthogonalize,
)
from albertkit.training.settings import TrainingSettings


def settings(optimizer: str, learning_rate: float, weight_decay: float) -> TrainingSettings:
    return TrainingSettings(
        steps=1,
        optimizer=optimizer,  # type: ignore[arg-type]
        learning_rate=learning_rate,
        weight_decay=weight_decay,
    )


class _Named(nn.Module):
    """Parameters under the recorded (TensorFlow) names."""

    def __init__(self, values: dict[str, np.ndarray]) -> None:
        super().__init__()
        for name, value in values.items():
            self.register_parameter(name.replace("/", "_"), nn.Parameter(torch.from_numpy(value.copy())))


@pytest.mark.parametrize("name", ["lamb", "adamw"])
def test_steps_equal_the_original(name: str) -> None:
    recorded = np.load(GOLDEN / f"{name}.npz", allow_pickle=False)
    names = [key.removeprefix("init:") for key in recorded.files if key.startswith("init:")]
    model = _Named({key: recorded[f"init:{key}"] for key in names})
    peak = float(recorded["learning_rate"])
    optimizer = build_optimizer(model, settings(name, peak, float(recorded["weight_decay"])))
    steps, warmup = int(recorded["num_train_steps"]), int(recorded["num_warmup_steps"])
    schedule = TrainingSettings(steps=steps, warmup_steps=warmup)
    worst = 0.0
    for step in range(steps):
        for key in names:
            model.get_parameter(key.replace("/", "_")).grad = torch.from_numpy(recorded[f"grad:{key}"][step])
        clip_gradients(model.parameters(), float(recorded["max_grad_norm"]))
        for group in optimizer.param_groups:
            group["lr"] = peak * schedule.learning_rate_factor(step=step + 1, tokens=0)
        optimizer.step()
        for key in names:
            ours = model.get_parameter(key.replace("/", "_")).detach().numpy()
            worst = max(worst, float(np.abs(ours - recorded[f"param:{key}"][step]).max()))
    assert worst <= 1e-6


def test_corrected_adamw_equals_torchs() -> None:
    model, other = nn.Linear(3, 2), nn.Linear(3, 2)
    other.load_state_dict(model.state_dict())
    groups = [{"params": [other.weight]}, {"params": [other.bias], "weight_decay": 0.0}]
    expected = torch.optim.AdamW(groups, lr=0.1, weight_decay=0.5, eps=1e-6)
    optimizer = build_optimizer(model, settings("adamw-corrected", 0.1, 0.5))
    for step in range(5):
        for one in (model, other):
            torch.manual_seed(step)
            for param in one.parameters():
                param.grad = torch.randn(param.shape)
        optimizer.step()
        expected.step()
    for mine, torchs in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, torchs, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("bf16", "tolerance"), [(True, 0.0), (False, 4e-3)])
def test_muon_updates_the_matrices_of_the_layers_and_adamw_all_other_parameters(
    bf16: bool, tolerance: float
) -> None:
    """Matrices are compared with `torch.optim.Muon`, which always orthogonalizes in bfloat16."""
    shape = {"vocab_size": 20, "embedding_size": 4, "hidden_size": 8, "intermediate_size": 16}
    config = AlbertConfig(**shape, num_hidden_layers=2, num_attention_heads=2)
    model, twin = AlbertForPreTraining(config), AlbertForPreTraining(config)
    twin.load_state_dict(model.state_dict())
    rates = replace(settings("muon", 0.01, 0.1), adamw_learning_rate=0.003)
    optimizer = build_optimizer(model, rates, bf16=bf16)
    assert [group["lr"] for group in optimizer.param_groups] == [0.01, 0.003, 0.003]
    inner = "albert.encoder.albert_layer_groups.0.albert_layers.0."
    names = ["attention.query", "attention.key", "attention.value", "attention.dense", "ffn", "ffn_output"]
    weights = dict(twin.named_parameters())
    matrices = [weights.pop(f"{inner}{name}.weight") for name in names]
    plain = [weights.pop(name) for name in list(weights) if any(part in name for part in NO_DECAY)]
    muon = torch.optim.Muon(
        matrices, lr=0.01, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw"
    )
    groups = [{"params": [*weights.values()]}, {"params": plain, "weight_decay": 0.0}]
    adamw = AdamW(groups, lr=0.003, weight_decay=0.1)
    for step in range(3):
        for seeded in (model, twin):
            torch.manual_seed(step)
            for param in seeded.parameters():
                param.grad = torch.randn(param.shape)
        for group in [*optimizer.param_groups, *muon.param_groups, *adamw.param_groups]:
            group["lr"] *= step + 1
        if step == 1:
            optimizer.load_state_dict(optimizer.state_dict())  # as a rollback does
        for each in (optimizer, muon, adamw):
            each.step()
    assert optimizer.state_dict()["state"].keys() == set(range(len([*model.parameters()])))
    for name, param in model.named_parameters():
        difference = (param - twin.get_parameter(name)).abs().max()
        assert difference <= (tolerance if inner in name and param.ndim == 2 else 0.0), name


@pytest.mark.parametrize("shape", [(8, 8), (8, 32), (32, 8)])
def test_orthogonal_updates(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    update = orthogonalize(matrix[None], torch.float32)[0]
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    rotated = left.T @ update @ right.T  # diagonal: the singular vectors stay
    assert torch.allclose(rotated, torch.diag(torch.diagonal(rotated)), atol=1e-5)
    # The coefficients take every singular value but the smallest into this range.
    large = torch.diagonal(rotated)[values > 0.02 * values[0]]
    assert large.min() > 0.6
    assert large.max() < 1.3
    assert update.shape == shape


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_data_type_of_orthogonal_updates(dtype: torch.dtype) -> None:
    param = torch.nn.Parameter(torch.zeros(8, 16))
    param.grad = torch.randn(8, 16, generator=torch.Generator().manual_seed(0))
    others = [{"params": [torch.nn.Parameter(torch.zeros(1))]}]
    Muon([param], others, lr=0.1, adamw_lr=0.1, weight_decay=0.0, dtype=dtype).step()
    momentum = param.grad * (0.05 * 0.95 + 0.05)
    expected = -0.1 * 0.2 * 4 * orthogonalize(momentum[None], dtype)[0]
    assert torch.allclose(param, expected.float(), atol=1e-6 if dtype == torch.float32 else 1e-3)


def test_muon_needs_matrices() -> None:
    with pytest.raises(ConfigError, match=r"layers with trainable matrices. Choose 'adamw'"):
        build_optimizer(nn.Linear(3, 2), settings("muon", 0.1, 0.0))


def test_clipping_leaves_small_gradients_alone() -> None:
    param = nn.Parameter(torch.zeros(4))
    for norm, most in ((0.25, math.inf), (0.0, 1.0)):
        param.grad = torch.full((4,), norm)
        clip_gradients([param], most)
        assert torch.equal(param.grad, torch.full((4,), norm))
    param.grad = torch.full((4,), 0.25)
    assert clip_gradients([param], 1.0).item() == pytest.approx(0.5)
    assert torch.equal(param.grad, torch.full((4,), 0.25))
    param.grad = torch.full((4,), 2.0)
    assert clip_gradients([param], 1.0).item() == pytest.approx(4.0)
    assert param.grad.norm().item() == pytest.approx(1.0)


def test_schedules() -> None:
    def factors(schedule: TrainingSettings, *places: int) -> list[float]:
        in_steps = [schedule.learning_rate_factor(step=place, tokens=0) for place in places]
        lengths = {"tokens": schedule.steps, "warmup_tokens": 2, "decay_tokens": schedule.decay_steps}
        other = replace(schedule, steps=None, warmup_steps=0, decay_steps=0, **lengths)
        assert [other.learning_rate_factor(step=0, tokens=place) for place in places] == in_steps
        return in_steps

    linear = TrainingSettings(steps=10, warmup_steps=2)
    assert factors(linear, 0, 1, 2, 5, 10, 11) == [0, 0.5, 0.8, 0.5, 0, 0]
    trapezoid = replace(linear, schedule="trapezoid", decay_steps=4)
    assert factors(trapezoid, 0, 1, 2, 6, 8, 10) == [0, 0.5, 1, 1, 0.5, 0]
    assert factors(replace(trapezoid, decay_steps=0), 1, 2, 10) == [0.5, 1, 1]
