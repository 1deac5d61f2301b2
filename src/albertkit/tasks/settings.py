"""The settings that convert examples to rows, and their place in the config of a fine-tuned model."""

from dataclasses import dataclass
from typing import Literal

from albertkit.config import AlbertConfig
from albertkit.config_fields import SETTINGS_KEY
from albertkit.errors import ConfigError

ProblemType = Literal["single_label_classification", "multi_label_classification", "regression"]
"""The problem types in a model's config."""


@dataclass(frozen=True, kw_only=True)
class TaskSettings:
    """The settings that convert examples to rows. By default, a fine-tuned model uses the saved ones."""

    max_length: int | None = None
    """Maximum length in tokens, including special tokens (default: the model's maximum)."""
    truncation: bool = True
    """Truncate longer texts and report how many, instead of raising an error. Long contexts of questions, and
    long texts of token classification, are read in windows instead. Long questions are truncated at the
    end."""
    doc_stride: int = 128
    """For question answering: overlap of the windows, in tokens."""
    max_question_length: int | None = 64
    """Maximum number of tokens of a question, at most half of max_length. Pipelines do not use it: their
    limit is half of max_length, and a longer question raises an error."""
    max_answer_length: int = 30
    """Maximum number of tokens of an answer."""
    labelled_pieces: Literal["first", "all"] = "first"
    """For token classification: tokens of a word that learn its label, the first or all. With all, the later
    tokens of a word labeled B-, S- or U- learn the label I- of the same type, if there is one."""
    pooling: Literal["mean", "cls", "max"] | None = None
    """For sentence embedding: how to combine the vectors of the tokens into one: their mean, the vector of
    [CLS], or the maximum in each dimension (default: as the model was trained, else mean)."""
    normalize: bool | None = None
    """For sentence embedding: scale the vectors to length 1 (default: as the model was trained, else no)."""


def saved_lengths(config: AlbertConfig) -> dict[str, int]:
    """Return the lengths that a model was fine-tuned with, by setting; empty if its config lacks them.

    Raises:
        ConfigError: the config has an invalid entry.
    """
    found = config.extra.get(SETTINGS_KEY, {})
    if not isinstance(found, dict) or not all(type(one) is int and one >= 0 for one in found.values()):
        raise ConfigError(
            f"{SETTINGS_KEY} in the config is {found!r:.80}. Expected lengths such as {{'max_length': 128}}. "
            "Correct config.json, or remove the entry."
        )
    return found
