"""The settings of training, whatever the model is trained on."""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from albertkit.errors import ConfigError

OptimizerName = Literal["lamb", "adamw", "adamw-corrected", "muon"]
ScheduleName = Literal["linear", "trapezoid"]


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Settings that pretraining and fine-tuning share, with the same defaults."""

    steps: int | None = None
    """Number of optimizer steps of the whole run."""
    learning_rate: float | None = None
    """Peak learning rate (default: for pretraining the paper's, scaled to the batch; for fine-tuning 3e-5,
    increased in proportion for models with a hidden size below 768)."""
    weight_decay: float = 0.01
    """Decoupled weight decay; biases and layer norms have none."""
    max_grad_norm: float = 1.0
    """Maximum global norm of the gradients (clipping)."""
    early_stopping: int = 0
    """Early stopping: number of evaluations without improvement after which the run ends, if the best model
    is kept (0: never)."""
    max_minutes: float = math.inf
    """Stop with a checkpoint after this many minutes; the same command continues."""
    accumulation: int = 1
    """Number of parts in which a batch is computed, one after the other: needs less memory, same result."""
    gradient_checkpointing: bool = False
    """Recompute each layer in the backward pass instead of storing its activations: needs less memory."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """bf16: matrix products in bfloat16 (autocast), weights and optimizer in float32; auto: bf16 if it is
    faster, as measured when the run begins."""
    seed: int = 0
    """Seed of initialization, data order, masks and dropout."""


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(RunSettings):
    """Settings of the training loop. Set the length of a run in steps or in tokens, not both."""

    tokens: int | None = None
    """Length of the run in tokens without padding, instead of steps."""
    optimizer: OptimizerName = "lamb"
    """Optimizer: the original's LAMB or AdamW, PyTorch's bias-corrected AdamW, or Muon for the layers'
    matrices with the original's AdamW for all other weights."""
    adamw_learning_rate: float | None = None
    """With muon: peak learning rate of the weights that AdamW updates (default: learning_rate)."""
    schedule: ScheduleName = "linear"
    """linear: warm-up, then decay to the end; trapezoid: warm-up, constant, decay over decay_steps or
    decay_tokens."""
    warmup_steps: int = 0
    """Warm-up: number of steps in which the learning rate rises from 0."""
    warmup_tokens: int = 0
    """Warm-up in tokens, for a run whose length is in tokens."""
    decay_steps: int = 0
    """Number of steps of the trapezoid's final decay."""
    decay_tokens: int = 0
    """Final decay in tokens, for a run whose length is in tokens."""
    compile: bool = False
    """Compile the model with torch.compile: starts slowly, then runs faster."""

    spike: float = 10.0
    """A loss this many standard deviations above its running mean is a spike. After a spike, or a loss that
    is NaN or infinite, the run returns to its last checkpoint and skips the data since then."""
    max_rollbacks: int = 3
    """Number of rollbacks without a new checkpoint after which the run fails."""
    evaluate_every: int = 500
    """Steps between evaluations; the first and the last step are always evaluated."""
    save_every: int = 500
    """Steps between checkpoints; the end of a run always writes one."""
    keep_checkpoints: int = 3
    """Number of newest checkpoints to keep."""
    log_every: int = 50
    """Steps between lines of metrics.jsonl."""

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.tokens is None):
            raise ConfigError(
                f"steps is {self.steps} and tokens is {self.tokens}. Set the length of a run in one of them."
            )
        other = "steps" if self.steps is None else "tokens"
        for name in (f"warmup_{other}", f"decay_{other}"):
            if getattr(self, name):
                raise ConfigError(f"{name} is set, but the length of the run is in {self.unit}")
        counts = ("accumulation", "max_rollbacks", "evaluate_every", "save_every")
        for name in (self.unit, *counts, "keep_checkpoints", "log_every"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be 1 or more, not {getattr(self, name)}")
        rates = ("learning_rate", "adamw_learning_rate")
        for name in (*rates, "max_grad_norm", "max_minutes", "spike"):
            value = getattr(self, name)
            if value is not None and not value > 0:  # also rejects NaN
                raise ConfigError(f"{name} must be more than 0, not {value}")
        for name in rates:
            if getattr(self, name) == math.inf:
                raise ConfigError(f"{name} must be finite, not inf")
        if self.adamw_learning_rate is not None and self.optimizer != "muon":
            raise ConfigError(
                f"adamw_learning_rate is for the optimizer 'muon', but the optimizer is {self.optimizer!r}. "
                "Use learning_rate."
            )
        for name in (
            "warmup_steps",
            "warmup_tokens",
            "decay_steps",
            "decay_tokens",
            "weight_decay",
            "seed",
            "early_stopping",
        ):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name} must be 0 or more, not {getattr(self, name)}")
        if self.warmup + self.decay > self.length:
            raise ConfigError(
                f"warm-up ({self.warmup:,}) and decay ({self.decay:,}) together are longer than the run "
                f"({self.length:,} {self.unit}). Shorten warmup_{self.unit} or decay_{self.unit}."
            )

    @property
    def unit(self) -> Literal["steps", "tokens"]:
        """The unit of the schedule: "steps" or "tokens"."""
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
