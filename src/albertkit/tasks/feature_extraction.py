"""Features: a text -> one vector per token, or one for the whole text.

Shapes: T tokens, H hidden, D dimensions of a text's vector.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from albertkit.checkpoints.sentence_modules import (
    Dense,
    Pooling,
    SentenceModules,
    Step,
    check_pooling,
    sentence_modules,
)
from albertkit.config import AlbertConfig
from albertkit.engines.engine import Row, every_token, first_token
from albertkit.errors import ConfigError, did_you_mean
from albertkit.reference import ACTIVATIONS
from albertkit.tasks.scores import normalize
from albertkit.tokenization.base import TokenizerBase

Poolings = Pooling | Sequence[Pooling]
"""One pooling, or several whose vectors are concatenated."""


def text_vectors(
    config: AlbertConfig, *, pooling: Poolings | None = None, normalize: bool | None = None
) -> SentenceModules:
    """Return how the vector of a text is made.

    Args:
        config: the model's.
        pooling: in place of the model's, which is "mean" for a model that does not say. Another one than the
            model's reads the tokens alone, without the Dense modules that follow the model's.
        normalize: in place of the model's: whether the vectors are of length 1.

    Raises:
        ConfigError: an unknown pooling.
    """
    modules = sentence_modules(config) or SentenceModules()
    if pooling is not None and (chosen := check_pooling(pooling)) != modules.pooling:
        modules = replace(modules, pooling=chosen, steps=())
    return modules if normalize is None else replace(modules, normalize=normalize)


def tokens_read(modules: SentenceModules) -> Callable[[Row], Sequence[int]]:
    """Return which tokens of a row are pooled: `read` of an engine."""
    return first_token if modules.pooling == ("cls",) and modules.include_prompt else every_token


def text_vector(hidden_states: np.ndarray, modules: SentenceModules, *, prompt_tokens: int = 0) -> np.ndarray:
    """Return the vector (D,) of one text.

    Args:
        hidden_states: (T, H) of its tokens; (1, H) where `tokens_read` reads the first alone.
        modules: how it is made.
        prompt_tokens: how many tokens at the beginning, [CLS] included, are the prompt's.
    """
    first = 0 if modules.include_prompt else prompt_tokens
    vector = np.concatenate([pool_tokens(hidden_states, one, first=first) for one in modules.pooling])
    for step in modules.steps:
        vector = _step(vector, step)
    return normalize(vector) if modules.normalize else vector


def pool_tokens(hidden_states: np.ndarray, pooling: Pooling, *, first: int = 0) -> np.ndarray:
    """Return the vector (H,) of one text from its states (T, H) but for those before `first`."""
    states = hidden_states[first:]
    match pooling:
        case "mean":
            return states.mean(axis=0)
        case "cls":
            return states[0]
        case "max":
            return states.max(axis=0)
        case "mean_sqrt_len_tokens":
            return states.sum(axis=0) / np.float32(np.sqrt(len(states)))
        case "weightedmean":  # a token counts as much as its place, from 1
            places = np.arange(first + 1, len(hidden_states) + 1, dtype=np.float32)
            return places @ states / places.sum()
        case "lasttoken":
            return states[-1]


def _step(vector: np.ndarray, step: Step) -> np.ndarray:
    if not isinstance(step, Dense):
        return normalize(vector)
    outputs = step.weight @ vector  # (D, C) @ (C,)
    if step.bias is not None:
        outputs = outputs + step.bias
    outputs = ACTIVATIONS[step.activation](outputs)
    if not step.is_residual:
        return outputs
    return outputs + (vector if step.residual is None else step.residual @ vector)


# --- the text -----------------------------------------------------------------------------------


def chosen_prompt(modules: SentenceModules, name: str | None = None, text: str | None = None) -> str:
    """Return the text that is put before every text.

    Args:
        modules: have the prompts of the model.
        name: of one of these; None for the model's default.
        text: in place of these.

    Raises:
        ConfigError: there is no prompt of this name, or name and text are given.
    """
    if name is not None and text is not None:
        raise ConfigError(f"prompt_name is {name!r} and prompt is {text!r:.60}; expected one of them")
    if text is not None:
        return text
    chosen = modules.default_prompt_name if name is None else name
    if chosen is not None and chosen not in modules.prompts:
        known = ", ".join(map(repr, modules.prompts)) or "none"
        raise ConfigError(
            f"prompt_name is {chosen!r}{did_you_mean(str(chosen), modules.prompts)}; the model has {known}"
        )
    return "" if chosen is None else modules.prompts[chosen]


def with_prompt(
    texts: Sequence[str], modules: SentenceModules, prompt: str, tokenizer: TokenizerBase
) -> list[str]:
    """Return texts as they are tokenized: after the prompt, in lower case if the model wants it."""
    # The tokenizers of lower-case models do it themselves, at another place among their other steps.
    lower = modules.lower_case and not tokenizer.normalization.get("do_lower_case")
    return [_lower(prompt + text) if lower else prompt + text for text in texts]


def _lower(text: str) -> str:
    """Return a text in lower case character by character: the last letter of a Greek word stays a sigma."""
    return "".join(map(str.lower, text))


def count_prompt_tokens(
    modules: SentenceModules, prompt: str, tokenizer: TokenizerBase, *, max_length: int
) -> int:
    """Return how many tokens a prompt has at the beginning of a row, [CLS] included.

    Raises:
        ConfigError: the prompt leaves no room for a text.
    """
    if not prompt:
        return 0
    count = len(tokenizer(with_prompt([""], modules, prompt, tokenizer), verbose=False)["input_ids"][0]) - 1
    if count >= max_length - 1:
        raise ConfigError(
            f"the prompt {prompt!r:.60} has {count} tokens with [CLS], and a row at most {max_length}, with "
            "[SEP]; give a shorter prompt or a larger max_length"
        )
    return count
