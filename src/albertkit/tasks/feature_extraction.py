"""Vectors of texts: prompts, pooling of the tokens' vectors, and modules after the pooling.

Shapes: T tokens, H hidden size, D dimensions of a text's vector.
"""

from collections.abc import Sequence
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
from albertkit.errors import ConfigError, did_you_mean, short, warn_caller
from albertkit.metrics.sentence_embedding import unit
from albertkit.reference import ACTIVATIONS
from albertkit.tasks.rows import text_rows
from albertkit.tokenization.base import TokenizerBase
from albertkit.tokenization.special_tokens import Parsing


def text_vectors(
    config: AlbertConfig, *, pooling: Pooling | None = None, normalize: bool | None = None
) -> SentenceModules:
    """Return the modules that compute the vector of a text."""
    modules = sentence_modules(config) or SentenceModules()
    if pooling is not None and (chosen := check_pooling(pooling)) != modules.pooling:
        modules = replace(modules, pooling=chosen, steps=())
    return modules if normalize is None else replace(modules, normalize=normalize)


class TextVectors:
    """Computes the vectors of texts: their rows, the tokens to pool, and the steps from these to a vector.

    Args:
        tokenizer: the tokenizer of the model.
        modules: the modules that compute a vector.
        max_length: maximum length of a row in tokens.
        prompt_name: the name of a prompt of the model; None for its default prompt, if it has one.
        prompt: a text that is added before every text, instead of a prompt of the model.
    """

    def __init__(
        self,
        tokenizer: TokenizerBase,
        modules: SentenceModules,
        *,
        max_length: int,
        prompt_name: str | None = None,
        prompt: str | None = None,
    ) -> None:
        self.tokenizer, self.modules, self.max_length = tokenizer, modules, max_length
        self.prompt = _choose_prompt(modules, prompt_name, prompt)
        if self.prompt:
            self._check_prompt()

    def rows(
        self, texts: Sequence[str], *, truncation: bool | str, parse_special_tokens: Parsing | None = None
    ) -> list[Row]:
        """Return a row for each text; see `text_rows`. Warn if a text is empty."""
        if not all(map(str.strip, texts)):
            warn_caller("a text is empty, so its vector is computed from special tokens alone")
        return text_rows(
            self.tokenizer,
            self._with_prompt(texts),
            max_length=self.max_length,
            truncation=truncation,
            parse_special_tokens=parse_special_tokens,
        )

    def read(self, row: Row) -> Sequence[int]:
        """Return the positions of the tokens that are pooled, or of [CLS] alone if it suffices."""
        return first_token(row) if self.modules.pooling == "cls" else every_token(row)

    def vector(self, hidden_states: np.ndarray) -> np.ndarray:
        """Return the vector (D,) of a text from the hidden states of the read tokens, (T, H) or (1, H)."""
        modules = self.modules
        if modules.pooling == "cls":
            vector = hidden_states[0]
        else:
            vector = hidden_states.mean(axis=0) if modules.pooling == "mean" else hidden_states.max(axis=0)
        for step in modules.steps:
            vector = _step(vector, step)
        # As in sentence-transformers, a shortened vector is not scaled again.
        return (unit(vector) if modules.normalize else vector)[: modules.dimensions]

    def _with_prompt(self, texts: Sequence[str]) -> list[str]:
        # Tokenizers that lowercase texts do so at another position among their normalization steps.
        if self.modules.lower_case and not self.tokenizer.normalization.get("do_lower_case"):
            return [_lower(self.prompt + text) for text in texts]
        return [self.prompt + text for text in texts]

    def _check_prompt(self) -> None:
        count = len(self.tokenizer(self._with_prompt([""]), verbose=False)["input_ids"][0]) - 1
        if count >= self.max_length - 1:
            raise ConfigError(
                f"the prompt {short(self.prompt)} has {count} tokens with [CLS], which leaves no room for a "
                f"text: the maximum length is {self.max_length} tokens with [SEP]. Shorten the prompt, or "
                "raise max_length."
            )


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


def _choose_prompt(modules: SentenceModules, name: str | None, text: str | None) -> str:
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


def _lower(text: str) -> str:
    """Return a text in lower case, character by character: a Greek sigma has no special form at word ends."""
    return "".join(map(str.lower, text))
