"""How a model is trained, whatever it is trained on."""

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
    """Optimizer steps of the whole run."""
    learning_rate: float | None = None
    """Peak learning rate (default: of pretraining the paper's, scaled to the batch; of fine-tuning 3e-5, for
    models narrower than 768 as much more as they are narrower)."""
    weight_decay: float = 0.01
    """Decoupled weight decay; biases and layer norms have none."""
    max_grad_norm: float = 1.0
    """Bound on the global norm of the gradients."""
    early_stopping: int = 0
    """Evaluations without a better one after which the run ends, where the best model is kept (0: never)."""
    max_minutes: float = math.inf
    """End cleanly with a checkpoint after this time; the same command goes on from there."""
    accumulation: int = 1
    """Parts in which a batch is computed, one after the other: less memory, the same step."""
    gradient_checkpointing: bool = False
    """Compute each layer again on the way back instead of keeping its inner values: less memory."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """bf16: matrix products in bfloat16 (autocast), weights and optimizer in float32; auto: bf16 where that
    is faster, as measured when the run begins."""
    seed: int = 0
    """Seed of initialization, data order, masks and dropout."""


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(RunSettings):
    """Settings of the training loop. The length of a run is given in steps or in tokens, not both."""

    tokens: int | None = None
    """Real tokens of the whole run, padding not counted; instead of steps."""
    optimizer: OptimizerName = "lamb"
    """The original's LAMB or AdamW, PyTorch's bias-corrected AdamW, or Muon for the layers' matrices with the
    original's AdamW for all other weights."""
    adamw_learning_rate: float | None = None
    """With muon: peak learning rate of the weights that AdamW updates (default: learning_rate)."""
    schedule: ScheduleName = "linear"
    """linear: warm-up, then decay to the end; trapezoid: warm-up, constant, decay over decay_steps or
    decay_tokens."""
    warmup_steps: int = 0
    """Steps over which the learning rate rises from 0."""
    warmup_tokens: int = 0
    """The same in tokens, for a run whose length is in tokens."""
    decay_steps: int = 0
    """Steps of the trapezoid's final decay."""
    decay_tokens: int = 0
    """The same in tokens, for a run whose length is in tokens."""
    compile: bool = False
    """Let torch.compile fuse the model's operations: slow to start, faster afterwards."""

    spike: float = 10.0
    """Standard deviations above its running mean at which a loss is a spike. A spike, or a loss that is no
    number, sends the run back to its last checkpoint, and the data since then is skipped."""
    max_rollbacks: int = 3
    """Rollbacks without a new checkpoint between them after which the run gives up."""
    evaluate_every: int = 500
    """Steps between evaluations; the first and the last step are always evaluated."""
    save_every: int = 500
    """Steps between checkpoints; the end of a run always writes one."""
    keep_checkpoints: int = 3
    """Newest checkpoints that are kept."""
    log_every: int = 50
    """Steps between lines of metrics.jsonl."""

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.tokens is None):
            raise ConfigError(
                f"steps is {self.steps} and tokens is {self.tokens}: give the length of a run in one of them"
            )
        other = "steps" if self.steps is None else "tokens"
        for name in (f"warmup_{other}", f"decay_{other}"):
            if getattr(self, name):
                raise ConfigError(f"{name} is given, but the length of the run is in {self.unit}")
        counts = ("accumulation", "max_rollbacks", "evaluate_every", "save_every")
        for name in (self.unit, *counts, "keep_checkpoints", "log_every"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be 1 or more, not {getattr(self, name)}")
        rates = ("learning_rate", "adamw_learning_rate")
        for name in (*rates, "max_grad_norm", "max_minutes", "spike"):
            value = getattr(self, name)
            if value is not None and not value > 0:  # also refuses nan
                raise ConfigError(f"{name} must be more than 0, not {value}")
        for name in rates:
            if getattr(self, name) == math.inf:
                raise ConfigError(f"{name} must be finite, not inf")
        if self.adamw_learning_rate is not None and self.optimizer != "muon":
            raise ConfigError(
                f"adamw_learning_rate is of the optimizer 'muon', and this is {self.optimizer!r}: give "
                "learning_rate"
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
                f"({self.length:,} {self.unit}); give shorter ones (warmup_{self.unit}, decay_{self.unit})"
            )

    @property
    def unit(self) -> Literal["steps", "tokens"]:
        """What the schedule counts."""
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
        """Return the settings that change the numbers of a run.

        A trapezoid's total is not among them: until its decay begins, the run does not depend on it.
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
