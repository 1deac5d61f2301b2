"""The pipeline for the order of two texts, which every pretrained ALBERT can judge."""

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from albertkit.errors import DataError
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.modeling.pretraining_heads import AlbertForPreTraining
from albertkit.pipelines.interface import Pipeline
from albertkit.pipelines.text_classification import is_pair, read_text_or_pair
from albertkit.tasks.engine import Engine
from albertkit.tasks.examples import TextExample
from albertkit.tasks.sentence_order import SentenceOrder
from albertkit.tokenization.interface import TokenizerInterface


class SentenceOrderPipeline(Pipeline):
    """Whether two texts follow each other or were swapped; `pipeline("sentence-order")` makes one."""

    task = "sentence-order"
    model_class = AlbertForPreTraining
    accepts = (AlbertForPreTraining,)
    fields = ("text", "text_pair")

    def __init__(
        self,
        model: AlbertPreTrainedModel,
        tokenizer: TokenizerInterface,
        *,
        batch_size: int | None = None,
        batch_tokens: int | None = None,
        engine: str | Engine = "auto",
        truncation: bool = False,
    ) -> None:
        super().__init__(model, tokenizer, batch_size=batch_size, batch_tokens=batch_tokens, engine=engine)
        self.truncation = truncation

    def __call__(
        self,
        inputs: Mapping[str, str] | tuple[str, str] | Iterable[Any] | Path,
        *,
        truncation: bool | None = None,
        batch_size: int | None = None,
    ) -> Any:
        """Judge the order of pairs of texts.

        Args:
            inputs: a pair as (text, text_pair) or {"text": ..., "text_pair": ...}; a list or other iterable
                of pairs; or a file: .tsv with two columns, .jsonl.
            truncation: cut pairs that are longer than the model reads (the longer text of each), instead of
                raising. The answer then has `cut`, the number of tokens left out.
            batch_size: most rows computed at once.

        Returns:
            {label, score} for a pair: "in order" or "swapped", and its probability. A list or generator of
            these for several pairs.

        Raises:
            DataError: what is no pair, or a pair that is too long.
            ConfigError: `batch_size` below 1.
        """
        task = SentenceOrder(
            self.tokenizer,
            max_length=self.max_length,
            truncation=self.truncation if truncation is None else truncation,
        )
        return self._run(inputs, partial(self._answer, task=task), batch_size)

    def _is_single(self, inputs: Any) -> bool:
        return isinstance(inputs, Mapping) or is_pair(inputs)

    def _read(self, given: Any) -> TextExample:
        example = read_text_or_pair(given)
        if example.text_pair is None:
            raise DataError(f"received {given!r:.80}; expected {self._expected()}: the order of two texts")
        return example

    def _expected(self) -> str:
        return "a pair (text, text_pair) or {text, text_pair}"

    def _answer(
        self, examples: list[TextExample], *, batch_size: int | None, task: SentenceOrder
    ) -> list[dict[str, Any]]:
        rows = task.features(examples)
        outputs = task.run(self.engine, rows, batch_tokens=self.batch_tokens, batch_size=batch_size)
        return [
            {"label": one.label, "score": max(one.scores), **({"cut": row.cut} if row.cut else {})}
            for row, one in zip(rows, task.predictions(examples, rows, outputs), strict=True)
        ]
