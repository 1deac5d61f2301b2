"""The settings of training, whatever the model is trained on."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from albertkit.errors import ConfigError
from albertkit.recipe import check_numbers, number

OptimizerName = Literal["lamb", "adamw", "adamw-corrected", "muon"]
ScheduleName = Literal["linear", "trapezoid"]


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Settings that pretraining and fine-tuning share, with the same defaults."""

    steps: int | None = number(None, "steps", minimum=1)
    """Number of optimizer steps of the whole run."""
    learning_rate: float | None = number(None, "", above=0)
    """Peak learning rate (default: for pretraining the paper's, scaled to the batch size; for fine-tuning
    3e-5 for a hidden size of 768 or more, up to 4e-4 for one of 256 or less)."""
    weight_decay: float = number(0.01, "", minimum=0)
    """Decoupled weight decay. It does not apply to biases and layer norms."""
    max_grad_norm: float = number(1.0, "", above=0)
    """Maximum global norm of the gradients. Gradients with a larger norm are scaled down (clipping)."""
    early_stopping: int = number(0, "evaluations", minimum=0)
    """End the run after this many evaluations without improvement, and keep the best model (0: never end
    early). Early stopping needs validation data."""
    max_minutes: float = number(math.inf, "minutes", above=0)
    """Maximum duration in minutes. The run then writes a checkpoint and stops. To resume it, run the same
    command again."""
    accumulation: int = number(1, "batches", minimum=1)
    """Gradient accumulation: number of smaller batches to split each batch into. Their gradients are summed
    before a step. A larger number needs less memory and gives the same result."""
    gradient_checkpointing: bool = False
    """Recompute each layer in the backward pass instead of storing its activations. This saves memory, but
    takes more time."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Number format: fp32, bf16 (matrix products in bfloat16 with autocast; weights and optimizer in float32)
    or auto (bf16 if a measurement at the start of the run finds it faster)."""
    seed: int = 0
    """Random seed of initialization, data order, masks and dropout."""

    def __post_init__(self) -> None:
        check_numbers(self)
        if not 0 <= self.seed < 1 << 64:
            raise ConfigError(f"seed must be between 0 and 2**64 - 1, not {self.seed}")


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(RunSettings):
    """Settings of the training loop. Set the length of a run in steps or in tokens, not both."""

    tokens: int | None = number(None, "tokens", minimum=1)
    """Length of the run in tokens, without padding. Set it instead of steps."""
    optimizer: OptimizerName = "lamb"
    """Optimizer: lamb or adamw as in the original code, adamw-corrected (PyTorch's AdamW, with bias
    correction), or muon (Muon for the layers' matrices, the original's AdamW for all other weights)."""
    adamw_learning_rate: float | None = number(None, "", above=0)
    """For muon: peak learning rate of the weights that AdamW updates (default: learning_rate)."""
    schedule: ScheduleName = "linear"
    """Learning rate schedule: linear (warm-up, then decay to the end) or trapezoid (warm-up, constant, then
    decay over decay_steps or decay_tokens)."""
    warmup_steps: int = number(0, "steps", minimum=0)
    """Length of the warm-up in steps. During the warm-up, the learning rate rises from 0."""
    warmup_tokens: int = number(0, "tokens", minimum=0)
    """Length of the warm-up in tokens, for a run whose length is in tokens."""
    decay_steps: int = number(0, "steps", minimum=0)
    """Length of the final decay of the trapezoid schedule, in steps."""
    decay_tokens: int = number(0, "tokens", minimum=0)
    """Length of the final decay of the trapezoid schedule in tokens, for a run whose length is in tokens."""
    compile: bool = False
    """Compile the layers with torch.compile. The run takes longer to start, but trains faster."""

    spike: float = number(10.0, "standard deviations", above=0)
    """A loss this many standard deviations above its running mean is a spike. After a spike, or a loss that
    is NaN or infinite, the run rolls back to its last checkpoint and skips the data since then."""
    max_rollbacks: int = number(3, "rollbacks", minimum=1)
    """Maximum number of consecutive rollbacks without a new checkpoint. If more are needed, the run
    fails."""
    evaluate_every: int = number(500, "steps", minimum=1)
    """Number of steps between evaluations. The run always evaluates before the first
    step and after the last step."""
    save_every: int = number(500, "steps", minimum=1)
    """Number of steps between checkpoints. The run always writes a checkpoint after the last step."""
    keep_checkpoints: int = number(3, "checkpoints", minimum=1)
    """Number of checkpoints to keep; older ones are deleted."""
    log_every: int = number(50, "steps", minimum=1)
    """Number of steps between lines of metrics.jsonl."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.steps is None) == (self.tokens is None):
            raise ConfigError(f"steps is {self.steps} and tokens is {self.tokens}. Set exactly one of them.")
        other = "steps" if self.steps is None else "tokens"
        for name in (f"warmup_{other}", f"decay_{other}"):
            if getattr(self, name):
                raise ConfigError(f"{name} is set, but the length of the run is in {self.unit}. Omit {name}.")
        if self.adamw_learning_rate is not None and self.optimizer != "muon":
            raise ConfigError(f"adamw_learning_rate is for the optimizer 'muon', not {self.optimizer!r}.")
        if self.decay and self.schedule == "linear":
            raise ConfigError(f"decay_{self.unit} is for the schedule 'trapezoid', not 'linear'.")
        if self.warmup + self.decay > self.length:
            parts = f"warmup_{self.unit} ({self.warmup:,}) and decay_{self.unit} ({self.decay:,})"
            raise ConfigError(
                f"{parts} together are longer than the run ({self.length:,} {self.unit}). Decrease them, or "
                f"increase {self.unit}."
            )

    @property
    def unit(self) -> Literal["steps", "tokens"]:
        """The unit of the schedule."""
        return "tokens" if self.steps is None else "steps"

    @property
    def length(self) -> int:
        """Length of the run, in `unit`."""
        return getattr(self, self.unit)

    @property
    def warmup(self) -> int:
        """Length of the warm-up, in `unit`."""
        return getattr(self, f"warmup_{self.unit}")

    @property
    def decay(self) -> int:
        """Length of the trapezoid's decay, in `unit`."""
        return getattr(self, f"decay_{self.unit}")

    def learning_rate_factor(self, *, step: int, tokens: int) -> float:
        """Return the factor of the peak learning rate for a step.

        As in `tf.train.polynomial_decay`, the linear decay is counted from 0: at the end of the warm-up the
        factor is `1 - warmup / length`, not 1. A run with a trapezoid can be extended until its decay begins.

        Args:
            step: number of the step. Steps count from 1, like recorded runs of the original, so the first
                step does not have learning rate 0.
            tokens: number of tokens that the run will have seen after the step.
        """
        done = step if self.unit == "steps" else tokens
        if done < self.warmup:
            return done / self.warmup
        if self.schedule == "linear":
            return max(0.0, 1.0 - done / self.length)
        return min(1.0, max(0.0, (self.length - done) / self.decay)) if self.decay else 1.0

    def fingerprint(self) -> dict[str, Any]:
        """Return the settings that change the results of a run.

        A trapezoid's length is not among them: until its decay begins, the run does not depend on it.
        """
        # Evaluations do not change what is learned, only when it ends.
        free = {
            "early_stopping",
            "evaluate_every",
            "save_every",
            "keep_checkpoints",
            "log_every",
            "max_minutes",
        }
        if self.schedule == "trapezoid":
            free |= {self.unit, f"decay_{self.unit}"}
        return {key: value for key, value in asdict(self).items() if key not in free}


def flat_values(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return settings with those of tables under names such as "task.max_length"."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= flat_values(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat
