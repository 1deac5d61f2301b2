"""The optimizers take the original's steps: 30 of them, recorded from the original implementation."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from albertkit.training.optimizers import build_optimizer, clip_gradients
from albertkit.training.schedules import linear_factor, trapezoid_factor

GOLDEN = Path(__file__).parent / "golden"


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
    optimizer = build_optimizer(
        model,
        name,  # type: ignore[arg-type]
        learning_rate=peak,
        weight_decay=float(recorded["weight_decay"]),
    )
    steps, warmup = int(recorded["num_train_steps"]), int(recorded["num_warmup_steps"])
    worst = 0.0
    for step in range(steps):
        for key in names:
            model.get_parameter(key.replace("/", "_")).grad = torch.from_numpy(recorded[f"grad:{key}"][step])
        clip_gradients(model.parameters(), float(recorded["max_grad_norm"]))
        for group in optimizer.param_groups:
            group["lr"] = peak * linear_factor(step + 1, length=steps, warmup=warmup)
        optimizer.step()
        for key in names:
            ours = model.get_parameter(key.replace("/", "_")).detach().numpy()
            worst = max(worst, float(np.abs(ours - recorded[f"param:{key}"][step]).max()))
    assert worst <= 1e-6


def test_corrected_adamw_is_torchs() -> None:
    model = nn.Linear(3, 2)
    optimizer = build_optimizer(model, "adamw-corrected", learning_rate=0.1, weight_decay=0.5)
    assert isinstance(optimizer, torch.optim.AdamW)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.5, 0.0]


def test_clipping_leaves_small_gradients_alone() -> None:
    param = nn.Parameter(torch.zeros(4))
    param.grad = torch.full((4,), 0.25)
    assert clip_gradients([param], 1.0).item() == pytest.approx(0.5)
    assert torch.equal(param.grad, torch.full((4,), 0.25))
    param.grad = torch.full((4,), 2.0)
    assert clip_gradients([param], 1.0).item() == pytest.approx(4.0)
    assert param.grad.norm().item() == pytest.approx(1.0)


def test_schedules() -> None:
    assert [linear_factor(step, length=10, warmup=2) for step in (0, 1, 2, 5, 10)] == [
        0,
        0.5,
        0.8,
        0.5,
        0,
    ]
    factors = [trapezoid_factor(step, length=10, warmup=2, decay=4) for step in (0, 1, 2, 6, 8, 10)]
    assert factors == [0, 0.5, 1, 1, 0.5, 0]
