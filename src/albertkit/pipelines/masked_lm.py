"""The pipeline that fills in masked tokens."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Unpack

from albertkit.engines.light_model import Model
from albertkit.pipelines.interface import Batching, Pipeline
from albertkit.pipelines.limits import merge_arguments, read_limits
from albertkit.tasks.masked_lm import MaskedLM
from albertkit.tokenization.base import TokenizerBase


class FillMaskPipeline(Pipeline):
    """Predicts the words for each [MASK]; `pipeline("fill-mask")` creates it."""

    task = "fill-mask"
    architecture = "AlbertForMaskedLM"
    accepts = ("AlbertForMaskedLM", "AlbertForPreTraining")

    def __init__(self, model: Model, tokenizer: TokenizerBase, **options: Any) -> None:
        super().__init__(model, tokenizer, **options)
        self.masked_lm = self._task(self.defaults.get("tokenizer_kwargs"))

    def __call__(
        self,
        inputs: str | Iterable[str] | Path,
        *others: Any,
        top_k: int | None = None,
        targets: str | Sequence[str] | None = None,
        tokenizer_kwargs: Mapping[str, Any] | None = None,
        **batching: Unpack[Batching],
    ) -> Any:
        """Fill in every [MASK].

        Args:
            inputs: a text, a list of texts, an iterable of texts, or a file of texts, each with at least one
                mask.
            others: not supported; a second positional argument raises an error.
            top_k: number of words for each mask.
            targets: words to choose from, instead of the whole vocabulary. Each must be a single piece.
                "man" stands for the piece that begins a word, which the vocabulary writes as "▁man".
            tokenizer_kwargs: `max_length`, the maximum length of a row; `truncation` and `padding` are
                accepted but have no effect, because texts can have any length.
            batching: `batch_size`, the maximum number of rows in a batch; `num_workers`, which has no effect.

        Returns:
            For a text with one mask, a list of {score, token, token_str, sequence}, best first. With several
            masks, a list of such lists, each mask scored while the others stay masked. In a text that exceeds
            the model's maximum length, each mask is scored in a window of tokens around it, and `window` in
            each answer has the characters (start, end) of that window. A list or generator of these for
            several texts.

        Raises:
            DataError: a text has no mask, or a target is not a single piece.
            ConfigError: `top_k` or `batch_size` is out of range.
        """
        wanted = self._option("targets", targets)
        task = self.masked_lm if tokenizer_kwargs is None else self._task(tokenizer_kwargs)
        candidates = partial(
            task.candidates,
            top_k=self._option("top_k", top_k, 5),
            target_ids=None if wanted is None else task.target_ids(wanted),
        )
        return self._run(
            inputs,
            others,
            features=task.features,
            run=partial(self.engine.run, read=attrgetter("mask_positions"), then=candidates),
            answer=task.predictions,
            **batching,
        )

    def _task(self, tokenizer_kwargs: Mapping[str, Any] | None) -> MaskedLM:
        given = merge_arguments("tokenizer_kwargs", tokenizer_kwargs)
        return MaskedLM(self.tokenizer, max_length=read_limits(**given, most=self.max_length)[1])
