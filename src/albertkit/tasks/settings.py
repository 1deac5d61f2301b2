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
    """How examples become rows. A fine-tuned model is used with the settings that it was trained with."""

    max_length: int | None = None
    """Maximum length of a row in tokens, including special tokens (default: the model's maximum)."""
    truncation: bool = True
    """Whether to truncate longer texts and report how many; otherwise they raise an error. Contexts of
    questions and sentences of words are read in windows instead; of questions, the end is truncated."""
    doc_stride: int = 128
    """Overlap of the windows of question answering, in tokens."""
    max_question_length: int | None = 64
    """Maximum number of tokens of a question, at most half a row. A pipeline does not use it: its limit is
    half a row, and a longer question is an error."""
    max_answer_length: int = 30
    """Maximum number of tokens of an answer."""
    labelled_pieces: Literal["first", "all"] = "first"
    """Which pieces of a word learn its label: the first, or all. Later pieces learn the label of the inside
    of an entity (I-) where the word begins one (B-, S-, U-) and there is such a label."""
    pooling: Literal["mean", "cls", "max"] | None = None
    """The vector of a text, for sentence embedding: the mean over its tokens, that of [CLS], or the largest
    number of all tokens in each dimension (default: as the model was trained, else mean)."""
    normalize: bool | None = None
    """Whether to scale the vectors of sentence embedding to length 1 (default: as the model was trained, else
    no)."""


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
