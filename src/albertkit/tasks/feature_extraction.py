"""Features: a text -> one vector per token, or one for the whole text.

Shapes: T tokens, H hidden.
"""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from albertkit.config import AlbertConfig
from albertkit.engines.engine import Row
from albertkit.errors import ConfigError
from albertkit.tasks.texts import text_rows
from albertkit.tokenization.base import TokenizerBase

Pooling = Literal["mean", "cls"]
"""One vector for a text: "mean" of the vectors of its tokens, [CLS] and [SEP] included; or that of [CLS]."""
POOLING_KEY, NORMALIZE_KEY = "sentence_pooling", "sentence_normalize"
"""Where the config of a model for sentence embedding says how a vector is made."""


class FeatureExtraction:
    """The task for one tokenizer and one length of input.

    Args:
        tokenizer: cuts texts into pieces.
        max_length: most tokens that the model reads, [CLS] and [SEP] included.
    """

    def __init__(self, tokenizer: TokenizerBase, *, max_length: int) -> None:
        self.tokenizer = tokenizer
        self.max_length = max_length

    def features(
        self,
        texts: Sequence[str],
        *,
        truncation: bool | str = False,
        parse_special_tokens: bool | None = None,
    ) -> list[Row]:
        """Return the row of each text.

        Args:
            texts: the texts.
            truncation: cut a text that is longer than the model reads, instead of raising.
            parse_special_tokens: whether `[SEP]` and the like, written in a text, are special tokens; None
                for the tokenizer's setting.

        Raises:
            DataError: a text is longer than the model reads.
        """
        return text_rows(
            self.tokenizer,
            texts,
            max_length=self.max_length,
            truncation=truncation,
            parse_special_tokens=parse_special_tokens,
        )


def saved_pooling(config: AlbertConfig) -> tuple[Pooling | None, bool]:
    """Return the pooling that a model was trained with, None for any other model, and whether to normalize.

    Raises:
        ConfigError: the config names an unknown pooling.
    """
    pooling = config.extra.get(POOLING_KEY)
    check_pooling(pooling)
    return pooling, bool(config.extra.get(NORMALIZE_KEY, False))


def check_pooling(pooling: str | None) -> None:
    """Raise ConfigError unless it is None or one of `Pooling`."""
    if pooling is not None and pooling not in get_args(Pooling):
        raise ConfigError(f"pooling is {pooling!r}; expected one of {', '.join(get_args(Pooling))}")


def pool_tokens(hidden_states: np.ndarray, pooling: Pooling) -> np.ndarray:
    """(T, H) of one text -> (H,); for "cls" the first token is enough."""
    return hidden_states[0] if pooling == "cls" else hidden_states.mean(axis=0)
