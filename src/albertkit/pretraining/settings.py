"""The settings of a pretraining run, except its data: the tables of a recipe file."""

import math
import re
from dataclasses import dataclass, field, replace
from typing import Any

from albertkit.config import ARGUMENTS
from albertkit.errors import ConfigError, suggestion
from albertkit.recipe import SHARE, check_numbers, number
from albertkit.training.settings import TrainingSettings

LENGTH_MULTIPLE = 8  # gives few different matrix shapes, which hardware computes fast


@dataclass(frozen=True, kw_only=True)
class TokenizerSettings:
    """Settings of vocabulary training."""

    vocab_size: int = number(30_000, "pieces", minimum=1)
    """Size of the vocabulary, including special tokens."""
    cased: bool = False
    """Distinguish uppercase and lowercase letters."""
    keep_accents: bool = False
    """Keep accents. Nearly all languages except English need them."""
    coverage: float = number(0.99995, "0.98 to 1")
    """Share of the characters in the text that the vocabulary must cover. Use 0.9995 for Chinese."""
    text_column: str = "text"
    """Column of the texts in .jsonl and .parquet files, and in rows that are passed as dicts."""
    threads: int = number(2, "threads", minimum=1)
    """Number of SentencePiece threads."""
    seed: int = 0
    """Random seed for sampling the training lines."""

    def __post_init__(self) -> None:
        check_numbers(self)


@dataclass(frozen=True, kw_only=True)
class PreparationSettings:
    """Settings for converting raw text to shards of tokenized documents."""

    text_column: str = "text"
    """Column of the texts in .jsonl and .parquet files, and in rows that are passed as dicts."""
    language: str = "en"
    """Language of the text, as an ISO 639 code, for the sentence splitter."""
    sentence_per_line: bool = False
    """Read each line as one sentence. In .txt files, blank lines separate the documents."""
    section_sentences: int = number(64, "sentences", minimum=0)
    """Split longer documents into sections of about this many sentences (0: do not split)."""
    holdout_every: int | None = number(None, "documents", minimum=2)
    """With a value of N, hold out one of every N source documents for validation (default: hold out none)."""
    seed: int = 0
    """Random seed for choosing the held-out documents."""
    workers: int | None = number(None, "processes")
    """Number of processes (default: one per CPU; with Ray, one per CPU of the cluster)."""
    runner: str = "local"
    """Where to run: local (this machine) or ray (a Ray cluster). Both write the same shards."""
    unit_characters: int = number(8_000_000, "characters", minimum=1)
    """Number of characters per shard. More characters need more memory: the default needs about 0.4 GB, plus
    0.2 GB per worker."""

    def __post_init__(self) -> None:
        check_numbers(self)
        # sentencex accepts any string, and uses English rules for unknown languages.
        if not re.fullmatch(r"[a-z]{2,3}(-[a-z0-9]+)*", self.language):
            raise ConfigError(f"language must be an ISO 639 code such as en or de-at, not {self.language!r}")


@dataclass(frozen=True, kw_only=True)
class ExampleSettings:
    """Settings for drawing training examples; the defaults are the paper's (Lan et al. 2019, section 4.1)."""

    max_seq_length: int = number(128, "tokens", minimum=16)
    """Maximum length of a sequence in tokens, including special tokens."""
    warmup_seq_length: int = number(32, "tokens", minimum=16)
    """Maximum length of the sequences in the length warm-up at the start of a run (Li et al. 2021)."""
    warmup_documents: int = number(0, "documents", minimum=0)
    """Length warm-up: number of documents in the first epoch to split into sequences of at most
    warmup_seq_length. On short sequences, the model learns attention to neighboring tokens much sooner."""
    short_sequence_probability: float = number(0.1, SHARE)
    """Share of the sequences that are shortened to a random length."""
    masked_lm: bool = True
    """Train on masked language modeling."""
    masked_lm_probability: float = number(0.15, SHARE)
    """Share of the tokens to predict, rounded to at least one token per sequence."""
    max_predictions: int | None = number(None, "tokens", minimum=1)
    """Maximum number of tokens to predict per sequence (default: 20 per 128 tokens)."""
    max_ngram: int = number(3, "words", minimum=1)
    """Maximum number of consecutive whole words to mask together."""
    sentence_order: bool = True
    """Train on sentence order: swap the two segments half of the time, and predict whether they are
    swapped."""
    original_quirks: bool = False
    """Draw examples by the rules of the original code, including the rules that leak the sentence order.
    pretraining/original_quirks.py lists the rules."""

    def __post_init__(self) -> None:
        check_numbers(self)
        for name in ("max_seq_length", "warmup_seq_length"):
            if (value := getattr(self, name)) % LENGTH_MULTIPLE:
                raise ConfigError(f"{name} must be a multiple of {LENGTH_MULTIPLE}, not {value}")
        if self.warmup_documents and self.warmup_seq_length > self.max_seq_length:
            raise ConfigError(
                f"warmup_seq_length must be at most max_seq_length, not {self.warmup_seq_length}"
            )
        if not (self.masked_lm or self.sentence_order):
            raise ConfigError("masked_lm and sentence_order are both off. Turn at least one of them on.")
        if self.original_quirks and not self.sentence_order:
            raise ConfigError("original_quirks needs sentence_order. Turn sentence_order on.")

    @property
    def most_predictions(self) -> int:
        """The value of `max_predictions`, or its default: 20 tokens for each 128 of `max_seq_length`."""
        if self.max_predictions is None:
            return round(20 * self.max_seq_length / 128)
        return self.max_predictions

    @property
    def max_tokens(self) -> int:
        """The maximum number of tokens of text, without [CLS] and the [SEP] after each segment."""
        return self.max_seq_length - (3 if self.sentence_order else 2)


@dataclass(frozen=True, kw_only=True)
class PretrainingSettings:
    """All settings of a pretraining run, except its data."""

    batch_size: int | None = number(None, "rows", minimum=1)
    """Number of sequences per step, summed over all processes."""
    batch_tokens: int | None = number(None, "tokens", minimum=1)
    """Number of tokens per step, including padding. Set it instead of batch_size. Each batch then has
    sequences of similar length."""
    init_from: str | None = None
    """Model to continue pretraining from, with a new optimizer. The table [model] then overrides its
    config."""
    order_weight: float = number(1.0, "", minimum=0)
    """Weight of the sentence-order loss relative to the masked language modeling loss."""
    frequency_bias: bool = False
    """Initialize the output bias to the log frequencies of the pieces, so that the layers do not have to
    learn the frequencies."""
    sinusoidal_positions: bool = False
    """Initialize the position embeddings with sinusoids instead of random values. The model then learns
    attention to neighboring tokens sooner."""
    unit_mapping: bool = False
    """Initialize the embedding mapping so that the input of the first layer has variance 1, as the inputs of
    all other layers have."""
    overfit_one_batch: bool = False
    """Check the setup: train on the first batch only. Its loss must fall to almost 0."""
    evaluation_sequences: int = number(1024, "rows", minimum=1)
    """Number of held-out sequences per evaluation."""
    average_checkpoints: int = number(1, "checkpoints", minimum=1)
    """Number of the newest checkpoints to average. The mean of their weights is the model of the run. At a
    constant learning rate, the mean is better than the last checkpoint."""
    model: dict[str, Any] = field(default_factory=dict)
    """Arguments of `AlbertConfig`, except `vocab_size`, which is the tokenizer's."""
    examples: ExampleSettings = field(default_factory=ExampleSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)  # which has no default length

    def __post_init__(self) -> None:
        if (self.batch_size is None) == (self.batch_tokens is None):
            raise ConfigError("Set exactly one of batch_size and batch_tokens.")
        check_numbers(self)
        if not (self.examples.masked_lm or self.order_weight):
            raise ConfigError("masked_lm is off and order_weight is 0, so there is no loss. Change either.")
        count, training = self.average_checkpoints, self.training
        if count > training.keep_checkpoints:
            raise ConfigError(f"average_checkpoints must be at most keep_checkpoints, not {count}")
        if count > 1 and training.early_stopping:
            raise ConfigError("average_checkpoints and early_stopping cannot be combined.")
        for name in self.model:
            if name not in ARGUMENTS:
                raise ConfigError(f"[model]: unknown setting {name!r}. {suggestion(name, ARGUMENTS)}")
        if "vocab_size" in self.model:
            raise ConfigError("[model] sets vocab_size, but the tokenizer determines it. Omit vocab_size.")
        if self.init_from is None and "hidden_size" not in self.model:
            raise ConfigError("[model] has no hidden_size. Set the model's shape, as in the recipe mini.")
        for name in ("frequency_bias", "sinusoidal_positions", "unit_mapping"):
            if self.init_from is not None and getattr(self, name):
                raise ConfigError(f"{name} is for a new model, but init_from is {self.init_from!r}.")

    @property
    def step_tokens(self) -> int:
        """Number of tokens per step, including padding."""
        return self.batch_tokens or (self.batch_size or 0) * self.examples.max_seq_length

    def with_learning_rate(self) -> "PretrainingSettings":
        """Return these settings with a learning rate; fill it in if it is not set.

        The paper's learning rate belongs to its batch size. For other batches it is scaled by the square root
        of their tokens, as LAMB's authors do (You et al. 2019, section 4). For AdamW it is BERT's (Devlin et
        al. 2018, appendix A.2), scaled the same way.
        """
        if self.training.learning_rate is not None:
            return self
        rate, tokens = _PUBLISHED_RATES["lamb" if self.training.optimizer == "lamb" else "adamw"]
        scaled = rate * math.sqrt(self.step_tokens / tokens)
        return replace(self, training=replace(self.training, learning_rate=scaled))

    def warnings(self) -> list[str]:
        """Return a warning for each combination that is known to fail or has no effect."""
        notes: list[str] = []
        training = self.training
        rate = training.learning_rate or 0.0
        spread = self.model.get("initializer_range", 0.02)
        if training.optimizer == "lamb" and rate > _LAMB_LIMIT:
            notes.append(f"a learning rate of {rate:g} is too high for LAMB: use at most {_LAMB_LIMIT:g}")
        if training.optimizer.startswith("adamw") and self.init_from is None and rate > _ADAMW_LIMIT * spread:
            notes.append(
                f"a learning rate of {rate:g} is too high for AdamW with initializer_range {spread:g}: "
                f"use at most {_ADAMW_LIMIT * spread:g}"
            )
        if training.schedule == "linear" and not training.warmup and self.init_from is None:
            notes.append("there is no warm-up: set warmup_steps or warmup_tokens")
        examples, length = self.examples, self.examples.max_seq_length
        share, most = examples.masked_lm_probability, examples.most_predictions
        if examples.masked_lm and examples.max_predictions is None and round(share * length) > most:
            notes.append(
                f"masked_lm_probability is {share:g}, but max_predictions limits it to {most} of {length} "
                f"tokens: set max_predictions to {math.ceil(share * length)}"
            )
        if examples.warmup_seq_length != ExampleSettings.warmup_seq_length and not examples.warmup_documents:
            notes.append(
                f"warmup_seq_length is {examples.warmup_seq_length}, but warmup_documents is 0, so there is "
                "no length warm-up: set warmup_documents"
            )
        positions = self.model.get("max_position_embeddings", length)
        if self.init_from is None and positions > length:
            notes.append(
                f"max_position_embeddings is {positions}, but max_seq_length is {length}: the run does not "
                f"train the positions above {length}, so do not use the model for longer texts"
            )
        return notes


# Peak learning rate and tokens per step: Lan et al. 2019, section 4.1; Devlin et al. 2018, appendix A.2.
_PUBLISHED_RATES = {"lamb": (1.76e-3, 4096 * 512), "adamw": (1e-4, 256 * 512)}
# The lab notes have the runs.
_LAMB_LIMIT = 5e-3
_ADAMW_LIMIT = 0.025
