"""The settings that convert examples to rows, and their place in the config of a fine-tuned model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from albertkit.config import SETTINGS_KEY, AlbertConfig
from albertkit.errors import ConfigError, short
from albertkit.recipe import check_numbers, number

ProblemType = Literal["single_label_classification", "multi_label_classification", "regression"]
"""The problem types in a model's config."""


@dataclass(frozen=True, kw_only=True)
class TaskSettings:
    """Settings for converting examples to rows. By default, a fine-tuned model uses its saved settings."""

    max_length: int | None = number(None, "tokens")
    """Maximum length in tokens, including special tokens (default: the model's maximum)."""
    truncation: bool = True
    """Truncate longer texts and report how many there are, instead of raising an error. Long contexts
    (question answering) and long texts (token classification) are not truncated, but split into windows. Long
    questions are truncated at the end."""
    doc_stride: int = number(128, "tokens", minimum=0)
    """For question answering: overlap of the windows, in tokens."""
    max_question_length: int | None = number(64, "tokens", minimum=1)
    """Maximum number of tokens of a question, at most half of max_length. Pipelines ignore this setting:
    their limit is half of max_length, and a longer question raises an error."""
    max_answer_length: int = number(30, "tokens", minimum=1)
    """Maximum number of tokens of an answer."""
    labeled_tokens: Literal["first", "all"] = "first"
    """For token classification: which tokens of a word are trained on its label, the first or all. With all,
    the later tokens of a word labeled B-, S- or U- are trained on the label I- of the same type, if it
    exists."""
    threshold: float | Mapping[str, float] | Literal["auto"] | None = None
    """For text classification: probability that a label must exceed to be predicted, one number for all
    labels or a number for each label by name (as a flag: LABEL=NUMBER, several times). If no label exceeds
    its threshold, the answer is empty. finetune saves the thresholds in the model's config, and also accepts
    auto: it then tunes them on the validation data by F1, for several labels or for binary classification
    (default: the thresholds in the config; without these, none, and 0.5 for several labels)."""
    pooling: Literal["mean", "cls", "max"] | None = None
    """For sentence embedding: how to combine the vectors of the tokens into one vector: their mean, the
    vector of [CLS], or the maximum in each dimension (default: the model's pooling, or mean if it has
    none)."""
    normalize: bool | None = None
    """For sentence embedding: scale the vectors to length 1 (default: the model's setting, or no if it has
    none)."""

    def __post_init__(self) -> None:
        check_numbers(self)


def saved_lengths(config: AlbertConfig) -> dict[str, int]:
    """Return the lengths that a model was fine-tuned with, by setting; empty if its config lacks them."""
    lengths = config.extra.get(SETTINGS_KEY, {})
    if not isinstance(lengths, dict) or not all(
        type(value) is int and value >= 0 for value in lengths.values()
    ):
        raise ConfigError(
            f"{SETTINGS_KEY} in the config is {short(lengths)}. Expected lengths, such as "
            "{'max_length': 128}. Correct config.json, or remove the entry."
        )
    return lengths
