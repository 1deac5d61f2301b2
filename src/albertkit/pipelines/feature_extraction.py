"""The pipeline that returns vectors of texts or of their tokens.

Shapes: R tokens read, T tokens, H hidden size, D dimensions of a text's vector.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np

from albertkit.checkpoints.sentence_modules import SentenceModules, check_pooling, sentence_modules
from albertkit.engines.engine import Row, every_token
from albertkit.engines.light_model import Model
from albertkit.errors import ConfigError
from albertkit.extras import optional
from albertkit.metrics.sentence_embedding import unit
from albertkit.pipelines.interface import Batching, Pipeline, Shared
from albertkit.pipelines.limits import merge_arguments, read_limits
from albertkit.tasks.feature_extraction import (
    Poolings,
    chosen_prompt,
    count_prompt_tokens,
    text_vector,
    text_vectors,
    tokens_read,
    with_prompt,
)
from albertkit.tasks.rows import text_rows
from albertkit.tokenization.base import TokenizerBase

torch: Any = optional("torch", extra="torch")


class FeatureExtractionPipeline(Pipeline):
    """Computes the vectors of a text or of its tokens; `pipeline("feature-extraction")` creates it."""

    task = "feature-extraction"
    architecture = "AlbertModel"
    accepts = ("AlbertPreTrainedModel",)

    def __init__(
        self,
        model: Model,
        tokenizer: TokenizerBase,
        *,
        pooling: Poolings | Literal["none"] | None = None,
        normalize: bool | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        truncation: bool | str | None = None,
        max_length: int | None = None,
        tokenize_kwargs: Mapping[str, Any] | None = None,
        return_tensors: bool | str = False,
        **shared: Unpack[Shared],
    ) -> None:
        super().__init__(model, tokenizer, **shared)
        self._modules = sentence_modules(model.config)
        if pooling is None and self._modules is not None:
            pooling = self._modules.pooling
        self.pooling: Poolings | None = None if pooling is None else _read_pooling(pooling)
        self.normalize = normalize
        self.prompt_name, self.prompt = prompt_name, prompt
        chosen_prompt(self._modules or SentenceModules(), prompt_name, prompt)  # raises for an invalid prompt
        self._limits = merge_arguments(
            "tokenize_kwargs", tokenize_kwargs, truncation=truncation, max_length=max_length
        )
        self.return_tensors: bool | str | None = _read_kind(return_tensors)

    def __call__(
        self,
        inputs: str | Iterable[str] | Path,
        *others: Any,
        pooling: Poolings | Literal["none"] | None = None,
        normalize: bool | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        truncation: bool | str | None = None,
        max_length: int | None = None,
        tokenize_kwargs: Mapping[str, Any] | None = None,
        return_tensors: bool | str | None = None,
        parse_special_tokens: bool | None = None,
        on_cut: Callable[[int], object] | None = None,
        **batching: Unpack[Batching],
    ) -> Any:
        """Compute the vectors of texts.

        Args:
            inputs: a text, a list of texts, an iterable of texts, or a file of texts.
            others: not supported; a second positional argument raises an error.
            pooling: for one vector per text, "mean" (of all tokens, including [CLS] and [SEP]), "cls", "max",
                "mean_sqrt_len_tokens", "weightedmean" or "lasttoken", or several of these to concatenate
                their vectors; for one vector per token, "none". None for the model's pooling, or "none" if
                the model was not trained for sentence embedding. The Dense modules of a sentence-transformers
                model are applied only with the pooling of the model.
            normalize: whether to scale the vectors to length 1; None for the model's setting, which applies
                only to one vector per text.
            prompt_name: name of the model's prompt to prepend to each text; None for the model's default
                prompt, if it has one.
            prompt: text to prepend to each text, instead of a prompt of the model; "" for none.
            truncation: whether to truncate a text that exceeds the maximum length instead of raising an
                error.
            max_length: maximum number of tokens of a text, including [CLS] and [SEP]. Default: with
                truncation the maximum length of the fine-tuning, otherwise the model's maximum; for a model
                of sentence-transformers always its `max_seq_length`.
            tokenize_kwargs: `truncation` and `max_length`, if not passed directly, and `padding`, which does
                not change the vectors.
            return_tensors: True or "pt" for PyTorch tensors on the CPU, "np" for NumPy arrays, False for
                lists.
            parse_special_tokens: whether `[SEP]` and other special tokens in a text are parsed; None for the
                tokenizer's setting.
            on_cut: function that is called for each truncated text, with the number of removed tokens.
            batching: `batch_size`, the maximum number of rows in a batch; `num_workers`, which has no effect.

        Returns:
            For a text with pooling, a vector of shape [D]; without pooling, the vectors of its tokens,
            [1, T, H]. They are nested lists, or tensors or arrays with `return_tensors`. A list or generator
            of these for several texts. D is H, unless several poolings are concatenated or the model has
            Dense modules.

        Raises:
            DataError: a text is too long.
            ConfigError: `pooling`, `prompt_name` or `return_tensors` is unknown, `max_length` exceeds the
                model's maximum, `batch_size` is below 1, or `tokenize_kwargs` has another argument.
        """
        given = merge_arguments(
            "tokenize_kwargs", tokenize_kwargs, truncation=truncation, max_length=max_length
        )
        strategy, longest = read_limits(
            self._limits, given, most=self.max_length, trained=self.trained_length
        )
        if self._modules is not None and self._limits["max_length"] is None and given["max_length"] is None:
            longest = min(longest, self.trained_length)
        chosen = self.pooling if pooling is None else _read_pooling(pooling)
        normalize = self.normalize if normalize is None else normalize
        modules = text_vectors(self.model.config, pooling=chosen, normalize=normalize)
        if prompt_name is None and prompt is None:
            prompt_name, prompt = self.prompt_name, self.prompt
        before = chosen_prompt(modules, prompt_name, prompt)
        prompt_tokens = count_prompt_tokens(modules, before, self.tokenizer, max_length=longest)
        kind = _read_kind(self.return_tensors if return_tensors is None else return_tensors)

        def features(texts: list[str]) -> list[Row]:
            return text_rows(
                self.tokenizer,
                with_prompt(texts, modules, before, self.tokenizer),
                max_length=longest,
                truncation=strategy,
                parse_special_tokens=parse_special_tokens,
            )

        def shape(states: np.ndarray) -> np.ndarray:
            """Return the hidden states (R, H) of a row as (D,), or without pooling as (1, T, H)."""
            if chosen is not None:
                return text_vector(states, modules, prompt_tokens=prompt_tokens)
            return unit(states[None]) if normalize else states[None]

        def answer(texts: list[str], rows: list[Row], *, batch_size: int | None) -> list[Any]:
            del texts
            for row in rows:
                if row.cut and on_cut is not None:
                    on_cut(row.cut)
            vectors = self.engine.run(
                rows,
                output="hidden_states",
                read=every_token if chosen is None else tokens_read(modules),
                then=shape,
                batch_tokens=self.batch_tokens,
                batch_size=batch_size,
            )
            if kind == "np":
                return vectors
            return [torch.from_numpy(one) if kind == "pt" else one.tolist() for one in vectors]

        return self._run(inputs, others, features=features, answer=answer, **batching)


def _read_pooling(pooling: Poolings | Literal["none"]) -> Poolings | None:
    """Return the pooling; None for one vector per token."""
    if pooling == "none":
        return None
    names = check_pooling(pooling)
    return names[0] if len(names) == 1 else names


def _read_kind(return_tensors: bool | str | None) -> Literal["pt", "np"] | None:
    """Return "pt" for PyTorch tensors, "np" for NumPy arrays, None for lists."""
    if not return_tensors:
        return None
    if return_tensors is True or return_tensors == "pt":
        return "pt"
    if return_tensors == "np":
        return "np"
    raise ConfigError(f"return_tensors is {return_tensors!r}. Expected True, False, 'pt' or 'np'.")
