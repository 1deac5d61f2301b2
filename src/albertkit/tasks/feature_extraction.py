"""Vectors of texts: pooling of the tokens' vectors, modules after the pooling, and prompts.

Shapes: T tokens, H hidden size, D dimensions of a text's vector.
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
from albertkit.errors import ConfigError, did_you_mean, short
from albertkit.metrics.sentence_embedding import unit
from albertkit.reference import ACTIVATIONS
from albertkit.tokenization.base import TokenizerBase

Poolings = Pooling | Sequence[Pooling]
"""One pooling, or several whose vectors are concatenated."""


def text_vectors(
    config: AlbertConfig, *, pooling: Poolings | None = None, normalize: bool | None = None
) -> SentenceModules:
    """Return the modules that compute the vector of a text.

    Args:
        config: the config of the model.
        pooling: the pooling to use. If it is not the model's, the modules after the model's pooling are not
            used. None for the model's pooling, or "mean" if the model has none.
        normalize: whether to scale vectors to length 1; None for the model's setting.

    Raises:
        ConfigError: the pooling is unknown.
    """
    modules = sentence_modules(config) or SentenceModules()
    if pooling is not None and (chosen := check_pooling(pooling)) != modules.pooling:
        modules = replace(modules, pooling=chosen, steps=())
    return modules if normalize is None else replace(modules, normalize=normalize)


def tokens_read(modules: SentenceModules) -> Callable[[Row], Sequence[int]]:
    """Return the argument `read` of an engine: a function that returns the tokens of a row to pool."""
    return first_token if modules.pooling == ("cls",) and modules.include_prompt else every_token


def text_vector(hidden_states: np.ndarray, modules: SentenceModules, *, prompt_tokens: int = 0) -> np.ndarray:
    """Return the vector (D,) of one text.

    Args:
        hidden_states: (T, H), the vectors of its tokens; (1, H) if `tokens_read` reads only the first token.
        modules: the modules that compute the vector.
        prompt_tokens: number of tokens of the prompt at the beginning, including [CLS].
    """
    first = 0 if modules.include_prompt else prompt_tokens
    vector = np.concatenate([pool_tokens(hidden_states, one, first=first) for one in modules.pooling])
    for step in modules.steps:
        vector = _step(vector, step)
    # As in sentence-transformers, a shortened vector is not scaled again.
    return (unit(vector) if modules.normalize else vector)[: modules.dimensions]


def pool_tokens(hidden_states: np.ndarray, pooling: Pooling, *, first: int = 0) -> np.ndarray:
    """Return the vector (H,) of one text from its hidden states (T, H), without those before `first`."""
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
        return unit(vector)
    outputs = step.weight @ vector  # (D, C) @ (C,)
    if step.bias is not None:
        outputs = outputs + step.bias
    outputs = ACTIVATIONS[step.activation](outputs)
    if not step.is_residual:
        return outputs
    return outputs + (vector if step.residual is None else step.residual @ vector)


# --- the text -----------------------------------------------------------------------------------


def chosen_prompt(modules: SentenceModules, name: str | None = None, text: str | None = None) -> str:
    """Return the prompt: a text that is added before every text.

    Args:
        modules: the modules of the model, which have its prompts.
        name: the name of one of these prompts; None for the model's default prompt, if it has one.
        text: the prompt itself, instead of one of the model's.

    Raises:
        ConfigError: the model has no prompt of this name, an argument is not text, or both are passed.
    """
    for argument, value in (("prompt_name", name), ("prompt", text)):
        if not isinstance(value, str | None):
            raise ConfigError(f"{argument} is {short(value)}. Expected a text.")
    if name is not None and text is not None:
        raise ConfigError(f"prompt_name is {name!r} and prompt is {short(text)}. Expected only one of them.")
    if text is not None:
        return text
    chosen = modules.default_prompt_name if name is None else name
    if chosen is not None and chosen not in modules.prompts:
        known = ", ".join(map(repr, modules.prompts)) or "none"
        raise ConfigError(
            f"prompt_name is {chosen!r}{did_you_mean(str(chosen), modules.prompts)}. Expected a prompt of "
            f"the model: {known}."
        )
    return "" if chosen is None else modules.prompts[chosen]


def with_prompt(
    texts: Sequence[str], modules: SentenceModules, prompt: str, tokenizer: TokenizerBase
) -> list[str]:
    """Return the texts to tokenize: after the prompt, and in lower case if the model requires it."""
    # Tokenizers that lowercase texts do so at another position among their normalization steps.
    lower = modules.lower_case and not tokenizer.normalization.get("do_lower_case")
    return [_lower(prompt + text) if lower else prompt + text for text in texts]


def _lower(text: str) -> str:
    """Return a text in lower case, character by character: a Greek sigma has no special form at word ends."""
    return "".join(map(str.lower, text))


def count_prompt_tokens(
    modules: SentenceModules, prompt: str, tokenizer: TokenizerBase, *, max_length: int
) -> int:
    """Return the number of tokens of a prompt at the beginning of a row, including [CLS]; 0 without prompt.

    Raises:
        ConfigError: the prompt leaves no room for a text.
    """
    if not prompt:
        return 0
    count = len(tokenizer(with_prompt([""], modules, prompt, tokenizer), verbose=False)["input_ids"][0]) - 1
    if count >= max_length - 1:
        raise ConfigError(
            f"the prompt {short(prompt)} has {count} tokens with [CLS], which leaves no room for a text: the "
            f"maximum length is {max_length} tokens with [SEP]. Shorten the prompt, or raise max_length."
        )
    return count
