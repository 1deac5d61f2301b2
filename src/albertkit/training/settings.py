"""How a model is trained, whatever it is trained on."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from albertkit.errors import ConfigError

OptimizerName = Literal["lamb", "adamw", "adamw-corrected"]
ScheduleName = Literal["linear", "trapezoid"]


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Settings of the training loop."""

    steps: int
    """Optimizer steps of the whole run."""
    optimizer: OptimizerName = "lamb"
    """The original's LAMB or AdamW, or PyTorch's bias-corrected AdamW."""
    learning_rate: float = 1.76e-3
    """Peak learning rate."""
    weight_decay: float = 0.01
    """Decoupled weight decay; biases and layer norms have none."""
    max_grad_norm: float = 1.0
    """Bound on the global norm of the gradients."""
    schedule: ScheduleName = "linear"
    """linear: warm-up, then decay to the end; trapezoid: warm-up, constant, decay over decay_steps."""
    warmup_steps: int = 0
    """Steps over which the learning rate rises from 0."""
    decay_steps: int = 0
    """Steps of the trapezoid's final decay."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """bf16: matrix products in bfloat16 (autocast), weights and optimizer in float32."""
    seed: int = 0
    """Seed of initialisation, data order, masks and dropout."""

    evaluate_every: int = 500
    """Steps between evaluations; the last step is always evaluated."""
    save_every: int = 500
    """Steps between checkpoints; the end of a run always writes one."""
    keep_checkpoints: int = 3
    """Newest checkpoints that are kept."""
    log_every: int = 50
    """Steps between lines of metrics.jsonl."""
    max_minutes: float = math.inf
    """End cleanly with a checkpoint after this time; the same command goes on from there."""

    def __post_init__(self) -> None:
        for name in ("steps", "evaluate_every", "save_every", "keep_checkpoints", "log_every"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be 1 or more, not {getattr(self, name)}")
        for name in ("learning_rate", "max_grad_norm", "max_minutes"):
            if not getattr(self, name) > 0:  # also refuses nan
                raise ConfigError(f"{name} must be more than 0, not {getattr(self, name)}")
        for name in ("warmup_steps", "decay_steps", "weight_decay", "seed"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name} must be 0 or more, not {getattr(self, name)}")

    def fingerprint(self) -> dict[str, Any]:
        """Return the settings that change the numbers of a run.

        A trapezoid's total is not among them: until its decay begins, the run does not depend on it.
        """
        free = {"evaluate_every", "save_every", "keep_checkpoints", "log_every", "max_minutes"}
        if self.schedule == "trapezoid":
            free |= {"steps", "decay_steps"}
        return {key: value for key, value in asdict(self).items() if key not in free}
