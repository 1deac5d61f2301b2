"""What decides a pretraining run, apart from its data: the tables of a recipe file."""

from dataclasses import dataclass, field
from typing import Any

from albertkit.errors import ConfigError
from albertkit.training.settings import TrainingSettings

LENGTH_MULTIPLE = 8  # matrix shapes that hardware likes, and few different ones


@dataclass(frozen=True, kw_only=True)
class ExampleSettings:
    """How documents become training examples; the defaults are the paper's (Lan et al. 2019, section 4.1)."""

    max_seq_length: int = 128
    """Tokens of a sequence, special ones included."""
    short_sequence_probability: float = 0.1
    """Share of sequences that are drawn shorter."""
    masked_lm: bool = True
    """Hide words and predict them."""
    masked_lm_probability: float = 0.15
    """Share of the tokens that are predicted."""
    max_predictions: int | None = None
    """Most tokens predicted in a sequence (default: 20 for each 128 tokens)."""
    max_ngram: int = 3
    """Most consecutive whole words hidden together."""
    sentence_order: bool = True
    """Swap the two segments half of the time and predict which order they are in."""
    original_quirks: bool = False
    """Draw examples by the original's rules, leaks and all; pretraining/original_quirks.py lists them."""

    def __post_init__(self) -> None:
        if self.max_seq_length < 16 or self.max_seq_length % LENGTH_MULTIPLE:
            raise ConfigError(
                f"max_seq_length must be a multiple of {LENGTH_MULTIPLE} and 16 or more, "
                f"not {self.max_seq_length}"
            )
        for name in ("short_sequence_probability", "masked_lm_probability"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} must lie between 0 and 1, not {getattr(self, name)}")
        for name in ("max_ngram", "max_predictions"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ConfigError(f"{name} must be 1 or more, not {value}")
        if not (self.masked_lm or self.sentence_order):
            raise ConfigError("masked_lm and sentence_order are both off: there is nothing to learn")
        if self.original_quirks and not self.sentence_order:
            raise ConfigError("original_quirks needs sentence_order, which the original cannot do without")

    @property
    def max_tokens(self) -> int:
        """How much text fits beside [CLS] and the [SEP] after each segment."""
        return self.max_seq_length - (3 if self.sentence_order else 2)


@dataclass(frozen=True, kw_only=True)
class PretrainingSettings:
    """Everything that decides a pretraining run, apart from its data."""

    batch_size: int
    """Sequences per step."""
    order_weight: float = 1.0
    """Weight of the sentence-order loss beside the masked-word loss."""
    frequency_bias: bool = False
    """Start the output bias at the log frequencies of the pieces, which the layers then need not learn."""
    sinusoidal_positions: bool = False
    """Start the position embeddings as sinusoids, by which neighbours are found sooner, not at random."""
    evaluation_sequences: int = 1024
    """Held-out sequences per evaluation."""
    model: dict[str, Any]
    """Arguments of `AlbertConfig`, besides `vocab_size`, which is the tokenizer's."""
    examples: ExampleSettings = field(default_factory=ExampleSettings)
    training: TrainingSettings

    def __post_init__(self) -> None:
        for name in ("batch_size", "evaluation_sequences"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be 1 or more, not {getattr(self, name)}")
        if not self.order_weight >= 0:
            raise ConfigError(f"order_weight must be 0 or more, not {self.order_weight}")
        if "vocab_size" in self.model:
            raise ConfigError("[model] has vocab_size, but that is the tokenizer's; leave it out")
        if "hidden_size" not in self.model:
            raise ConfigError("[model] has no hidden_size; give the shape of the model, as recipes/ do")
