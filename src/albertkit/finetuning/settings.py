"""The settings of a fine-tuning run, except its data: fields of a recipe file, flags of the command line."""

import math
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from albertkit.errors import ConfigError
from albertkit.recipe import SHARE, number
from albertkit.tasks.settings import ProblemType, TaskSettings
from albertkit.training.settings import OptimizerName, RunSettings, TrainingSettings

# Hidden sizes and their peak learning rates. That of the bundled model (256) is measured: dev/lab-notes.md,
# 2026-11-27. That of ALBERT-base (768) is within the 1e-5 to 5e-5 of Lan et al. 2019, appendix A.4.
_SIZES, _RATES = (256, 768), (4e-4, 3e-5)
_STEPS, _MIN_EPOCHS, _MAX_EPOCHS = 300, 3, 20


@dataclass(frozen=True, kw_only=True)
class FinetuningSettings(RunSettings):
    """All settings of a fine-tuning run, except its data."""

    epochs: float | None = number(None, "epochs", above=0)
    """Number of passes over the training examples, unless steps is set (default: as many as 300 steps need,
    at least 3 and at most 20)."""
    batch_size: int = number(32, "rows", minimum=1)
    """Number of examples (for question answering: windows) per step, summed over all processes."""
    warmup: float = number(0.1, SHARE)
    """Warm-up as a share of the run. During the warm-up, the learning rate rises from 0; afterwards it decays
    linearly to 0."""
    warmup_steps: int | None = number(None, "steps", minimum=0)
    """Length of the warm-up in steps. It overrides warmup."""
    optimizer: OptimizerName = "adamw-corrected"
    """Optimizer, as for pretrain. The original code fine-tunes with adamw."""
    dropout: float | None = number(None, SHARE)
    """Dropout probability of the hidden states (default: the value in the model's config)."""
    attention_dropout: float | None = number(None, SHARE)
    """Dropout probability of the attention weights (default: the value in the model's config)."""
    classifier_dropout: float | None = number(None, SHARE)
    """Dropout probability before the head (default: the value in the model's config)."""
    class_weights: Literal["none", "balanced"] = "none"
    """Weights of the labels in the loss: none (all 1), or balanced (inversely proportional to the label's
    frequency, with a mean of 1)."""
    temperature: float = number(0.05, "", above=0)
    """For sentence embedding: temperature of the loss. The loss divides the cosine similarities by it. A
    smaller value emphasizes the nearest negatives. The default is that of Gao et al. 2021 and
    sentence-transformers."""
    problem_type: ProblemType | None = None
    """For text classification: type of the labels (default: inferred from the labels)."""
    from_scratch: bool = False
    """Start from random weights with the model's config, to measure the benefit of pretraining."""

    best_metric: str | None = None
    """Metric that selects the best model (default: the task's main metric)."""
    evaluate_every: int | None = number(None, "steps", minimum=1)
    """Number of steps between evaluations (default: one evaluation per epoch)."""
    log_every: int = number(20, "steps", minimum=1)
    """Number of steps between lines of metrics.jsonl."""
    task: TaskSettings = field(default_factory=TaskSettings)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.warmup == 1:
            raise ConfigError("warmup is 1, which is the whole run. Expected a share below 1.")

    @property
    def dropouts(self) -> dict[str, float]:
        """Return the arguments of `AlbertConfig` among these settings."""
        given = {
            "hidden_dropout_prob": self.dropout,
            "attention_probs_dropout_prob": self.attention_dropout,
            "classifier_dropout_prob": self.classifier_dropout,
        }
        return {name: value for name, value in given.items() if value is not None}

    def completed(self, *, steps_per_epoch: int, hidden_size: int) -> "FinetuningSettings":
        """Return the settings with the learning rate and the length of the run."""
        share = math.log(hidden_size / _SIZES[0]) / math.log(_SIZES[1] / _SIZES[0])
        rate = _RATES[0] * (_RATES[1] / _RATES[0]) ** min(max(share, 0), 1)
        epochs = min(max(math.ceil(_STEPS / steps_per_epoch), _MIN_EPOCHS), _MAX_EPOCHS)
        return replace(
            self,
            learning_rate=self.learning_rate or rate,
            epochs=self.epochs or (None if self.steps else float(epochs)),
        )

    def training(self, *, steps_per_epoch: int) -> TrainingSettings:
        """Return the settings of the training loop, given completed settings and the length of an epoch."""
        steps = self.steps or math.ceil((self.epochs or 0) * steps_per_epoch)
        warmup = round(self.warmup * steps) if self.warmup_steps is None else self.warmup_steps
        every = self.evaluate_every or min(steps, steps_per_epoch)
        shared = {one.name for one in fields(TrainingSettings)} & {one.name for one in fields(self)}
        given: dict[str, Any] = {name: getattr(self, name) for name in shared} | {
            "steps": steps,
            "warmup_steps": warmup,
            "evaluate_every": every,
            "save_every": every,
            "keep_checkpoints": 1,
        }
        return TrainingSettings(**given)
