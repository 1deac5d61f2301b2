"""The pipeline that returns vectors of texts or of their tokens.

Shapes: R tokens read, T tokens, H hidden size, D dimensions of a text's vector.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np

from albertkit.checkpoints.sentence_modules import check_pooling, sentence_modules
from albertkit.engines.engine import Row, every_token
from albertkit.engines.light_model import Model
from albertkit.errors import ConfigError
from albertkit.extras import optional
from albertkit.metrics.sentence_embedding import unit
from albertkit.pipelines.interface import Batching, Pipeline
from albertkit.pipelines.limits import merge_arguments, read_limits
from albertkit.tasks.feature_extraction import Pooling, TextVectors, text_vectors
from albertkit.tokenization.base import TokenizerBase

torch: Any = optional("torch", extra="torch")


class FeatureExtractionPipeline(Pipeline):
    """Computes the vectors of a text or of its tokens; `pipeline("feature-extraction")` creates it."""

    task = "feature-extraction"
    architecture = "AlbertModel"
    accepts = ("AlbertPreTrainedModel",)
    without_defaults = ("parse_special_tokens", "on_cut")

    def __init__(self, model: Model, tokenizer: TokenizerBase, **options: Any) -> None:
        super().__init__(model, tokenizer, **options)
        FeatureExtractionPipeline.__call__(self, [])  # raises now if a default is invalid

    @property
    def pooling(self) -> Pooling | None:
        """The pooling of calls that do not choose one; None for one vector per token."""
        modules = sentence_modules(self.model.config)
        return _read_pooling(self._option("pooling", None, modules.pooling if modules else "none"))

    def __call__(
        self,
        inputs: str | Iterable[str] | Path,
        *others: Any,
        pooling: Pooling | Literal["none"] | None = None,
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
            pooling: for one vector per text, "mean" (of all tokens, including [CLS] and [SEP]), "cls" or
                "max"; for one vector per token, "none". None for the model's pooling, or "none" if
                the model was not trained for sentence embedding. The Dense modules of a sentence-transformers
                model are applied only with the pooling of the model.
            normalize: whether to scale the vectors to length 1; None for the model's setting, which applies
                only to one vector per text.
            prompt_name: name of the model's prompt to prepend to each text; None for the model's default
                prompt, if it has one.
            prompt: text to prepend to each text, instead of a prompt of the model; "" for none.
            truncation: whether to truncate a text that exceeds the maximum length instead of raising an
                error.
            max_length: maximum number of tokens of a text, including [CLS] and [SEP]. Default: the maximum
                length of the fine-tuning (`max_seq_length` of sentence-transformers), or the model's maximum
                if its config has none.
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
            of these for several texts. D is H, unless the model has Dense
            modules.

        Raises:
            DataError: a text is too long.
            ConfigError: `pooling`, `prompt_name` or `return_tensors` is unknown, `max_length` exceeds the
                model's maximum, `batch_size` is below 1, or `tokenize_kwargs` has another argument.
        """
        limits = merge_arguments(
            "tokenize_kwargs",
            self._option("tokenize_kwargs", tokenize_kwargs),
            truncation=self._option("truncation", truncation),
            max_length=self._option("max_length", max_length),
        )
        limits["truncation"] = limits["truncation"] or False  # vectors cannot say that a text was truncated
        strategy, longest = read_limits(**limits, most=self.max_length, trained=self.trained_length)
        chosen = self.pooling if pooling is None else _read_pooling(pooling)
        normalize = self._option("normalize", normalize)
        modules = text_vectors(self.model.config, pooling=chosen, normalize=normalize)
        if prompt_name is None and prompt is None:
            prompt_name, prompt = self.defaults.get("prompt_name"), self.defaults.get("prompt")
        vectors = TextVectors(
            self.tokenizer, modules, max_length=longest, prompt_name=prompt_name, prompt=prompt
        )
        kind = _read_kind(self._option("return_tensors", return_tensors))
        features = partial(vectors.rows, truncation=strategy, parse_special_tokens=parse_special_tokens)
        read, then = vectors.read, vectors.vector
        if chosen is None:
            read, then = every_token, lambda states: unit(states[None]) if normalize else states[None]

        def answer(texts: list[str], rows: Sequence[Row], arrays: list[np.ndarray]) -> list[Any]:
            del texts
            for row in rows:
                if row.cut and on_cut is not None:
                    on_cut(row.cut)
            if kind == "np":
                return arrays
            return [torch.from_numpy(one) if kind == "pt" else one.tolist() for one in arrays]

        run = partial(self.engine.run, output="hidden_states", read=read, then=then)
        return self._run(inputs, others, features=features, run=run, answer=answer, **batching)


def _read_pooling(pooling: Pooling | Literal["none"]) -> Pooling | None:
    """Return the pooling; None for one vector per token."""
    if pooling == "none":
        return None
    return check_pooling(pooling)


def _read_kind(return_tensors: bool | str | None) -> Literal["pt", "np"] | None:
    """Return "pt" for PyTorch tensors, "np" for NumPy arrays, None for lists."""
    if not return_tensors:
        return None
    if return_tensors is True or return_tensors == "pt":
        return "pt"
    if return_tensors == "np":
        return "np"
    raise ConfigError(f"return_tensors is {return_tensors!r}. Expected True, False, 'pt' or 'np'.")
