"""How examples become rows, and where the config of a fine-tuned model keeps it."""

from dataclasses import dataclass
from typing import Literal

from albertkit.config import AlbertConfig
from albertkit.config_fields import SETTINGS_KEY
from albertkit.errors import ConfigError

ProblemType = Literal["single_label_classification", "multi_label_classification", "regression"]
"""The name of a kind of labels in a model's config."""


@dataclass(frozen=True, kw_only=True)
class TaskSettings:
    """How examples become rows. A model is used with the settings that it was trained with."""

    max_length: int | None = None
    """Maximum number of tokens of a row, special tokens included (default: the model's maximum)."""
    truncation: bool = True
    """Cut texts that are longer, and report how many; without, they are an error. Contexts of questions and
    sentences of words are read in windows instead; of questions, the end is cut."""
    doc_stride: int = 128
    """Tokens that a window of question answering repeats from the one before."""
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
    """Vectors of length 1, for sentence embedding (default: as the model was trained, else of any length)."""


def saved_lengths(config: AlbertConfig) -> dict[str, int]:
    """Return the lengths that a model was fine-tuned with, by setting; none of a model that does not say.

    Raises:
        ConfigError: the config has something else there.
    """
    found = config.extra.get(SETTINGS_KEY, {})
    if not isinstance(found, dict) or not all(type(one) is int and one >= 0 for one in found.values()):
        raise ConfigError(
            f"{SETTINGS_KEY} in the config is {found!r:.80}; expected lengths such as {{'max_length': 128}}. "
            "Correct config.json, or remove the entry"
        )
    return found
