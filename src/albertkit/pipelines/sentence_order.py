"""The pipeline that predicts the order of two texts, for every pretrained ALBERT."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Unpack

from albertkit.datasets.examples import TextExample
from albertkit.engines.light_model import Model
from albertkit.errors import ConfigError, DataError, short
from albertkit.inputs import PAIR_FIELDS
from albertkit.pipelines.interface import Batching, Pipeline
from albertkit.pipelines.text_classification import is_pair, read_text_or_pair
from albertkit.tasks.sentence_order import LABELS, SentenceOrder
from albertkit.tasks.settings import TaskSettings
from albertkit.tokenization.base import TokenizerBase


class SentenceOrderPipeline(Pipeline):
    """Predicts whether two texts are in order or swapped; `pipeline("sentence-order")` creates it."""

    task = "sentence-order"
    architecture = "AlbertForPreTraining"
    fields = PAIR_FIELDS
    expected = "a pair (text, text_pair) or {text, text_pair}"
    by_name = "Pass the two texts of a pair as a tuple, (text, text_pair)"

    def __init__(self, model: Model, tokenizer: TokenizerBase, **options: Any) -> None:
        super().__init__(model, tokenizer, **options)
        if model.config.num_labels != len(LABELS):
            raise ConfigError(
                f"sentence-order needs a model with num_labels={len(LABELS)}, got {model.config.num_labels}"
            )

    def __call__(
        self,
        inputs: Mapping[str, str] | tuple[str, str] | Iterable[Any] | Path,
        *others: Any,
        truncation: bool | None = None,
        **batching: Unpack[Batching],
    ) -> Any:
        """Predict the order of pairs of texts.

        Args:
            inputs: a pair as (text, text_pair) or {"text": ..., "text_pair": ...}; a list or other iterable
                of pairs; or a file: .tsv with two columns, .jsonl.
            others: not supported; a second positional argument raises an error.
            truncation: whether to truncate the longer text of a pair that exceeds the model's maximum length,
                instead of raising an error. The answer then has `cut`, the number of removed tokens.
            batching: `batch_size`, the maximum number of rows in a batch; `num_workers`, which has no effect.

        Returns:
            For a pair, {label, score}: "in order" or "swapped", and its probability. For several pairs, a
            list or generator of these.

        Raises:
            DataError: an input is not a pair, or is too long.
            ConfigError: `batch_size` is below 1.
        """
        settings = TaskSettings(truncation=self._option("truncation", truncation, False))
        task = SentenceOrder().bind(self.tokenizer, self.model.config, settings)

        def answer(pair: TextExample, predicted: Any, cut: dict[str, int]) -> dict[str, Any]:
            del pair
            return {"label": predicted.label, "score": max(predicted.scores), **cut}

        return self._run_task(inputs, others, task, answer, **batching)

    def _is_single(self, inputs: Any) -> bool:
        return isinstance(inputs, Mapping) or is_pair(inputs)

    def _read(self, given: Any) -> TextExample:
        example = read_text_or_pair(given)
        if example.text_pair is None:
            raise DataError(f"received {short(given)}. Expected {self.expected}: the order of two texts.")
        return example
