"""The pipeline for the encoder's vectors.

Shapes: B batch, T tokens, H hidden.
"""

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from albertkit.modeling.model import AlbertModel
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.pipelines.interface import Pipeline
from albertkit.tasks.feature_extraction import FeatureExtraction, Pooling, check_pooling, pool
from albertkit.tasks.rows import Batch
from albertkit.tokenization.interface import TokenizerInterface


class FeatureExtractionPipeline(Pipeline):
    """The encoder's vectors for a text; `pipeline("feature-extraction")` makes one."""

    task = "feature-extraction"
    model_class = AlbertModel
    accepts = (AlbertPreTrainedModel,)

    def __init__(
        self,
        model: AlbertPreTrainedModel,
        tokenizer: TokenizerInterface,
        *,
        batch_size: int | None = None,
        batch_tokens: int | None = None,
        pooling: Pooling | None = None,
        truncation: bool = False,
        return_tensors: bool = False,
    ) -> None:
        super().__init__(model, tokenizer, batch_size=batch_size, batch_tokens=batch_tokens)
        check_pooling(pooling)
        self.encoder = model.base_model
        self.feature_extraction = FeatureExtraction(tokenizer, max_length=self.max_length)
        self.pooling: Pooling | None = pooling
        self.truncation = truncation
        self.return_tensors = return_tensors

    def __call__(
        self,
        inputs: str | Iterable[str] | Path,
        *,
        pooling: Pooling | None = None,
        truncation: bool | None = None,
        return_tensors: bool | None = None,
        parse_special_tokens: bool | None = None,
        batch_size: int | None = None,
    ) -> Any:
        """Encode texts.

        Args:
            inputs: a text, a list of texts, an iterable of texts, or a file of texts.
            pooling: "mean" (of all tokens, [CLS] and [SEP] included) or "cls" for one vector per text; None
                for one per token.
            truncation: cut a text that is longer than the model reads, instead of raising.
            return_tensors: tensors on the CPU in place of lists.
            parse_special_tokens: False reads `[SEP]` and the like, written in a text, as plain text.
            batch_size: most rows computed at once.

        Returns:
            For a text [1, T, H] as nested lists, with pooling [H]; tensors of these shapes with
            `return_tensors`. A list or generator of these for several texts.

        Raises:
            DataError: a text is longer than the model reads.
            ConfigError: unknown `pooling`, or `batch_size` below 1.
        """
        check_pooling(pooling)
        answer = partial(
            self._answer,
            pooling=self.pooling if pooling is None else pooling,
            truncation=self.truncation if truncation is None else truncation,
            return_tensors=self.return_tensors if return_tensors is None else return_tensors,
            parse_special_tokens=parse_special_tokens,
        )
        return self._run(inputs, answer, batch_size)

    def _answer(
        self,
        texts: list[str],
        *,
        batch_size: int | None,
        pooling: Pooling | None,
        truncation: bool,
        return_tensors: bool,
        parse_special_tokens: bool | None,
    ) -> list[Any]:
        rows = self.feature_extraction.features(
            texts, truncation=truncation, parse_special_tokens=parse_special_tokens
        )

        def forward(numbers: list[int], batch: Batch) -> Iterable[Tensor]:
            hidden_states = self.encoder(**batch, return_dict=True).last_hidden_state  # (B, T, H)
            if pooling is not None:
                return pool(hidden_states, batch["attention_mask"], pooling).cpu()
            lengths = [len(rows[number].input_ids) for number in numbers]
            return [one[:length][None].cpu() for one, length in zip(hidden_states, lengths, strict=True)]

        features = self._compute(rows, forward, batch_size)
        return features if return_tensors else [one.tolist() for one in features]
