"""Features: a text -> one vector per token, or one for the whole text.

Shapes: T tokens, H hidden.
"""

from typing import Literal, get_args

import numpy as np

from albertkit.config import AlbertConfig
from albertkit.errors import ConfigError

Pooling = Literal["mean", "cls"]
"""One vector for a text: "mean" of the vectors of its tokens, [CLS] and [SEP] included; or that of [CLS]."""
POOLING_KEY, NORMALIZE_KEY = "sentence_pooling", "sentence_normalize"
"""Where the config of a model for sentence embedding says how a vector is made."""


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
    """Return the vector (H,) of one text from its states (T, H); for "cls" the first token is enough."""
    return hidden_states[0] if pooling == "cls" else hidden_states.mean(axis=0)
