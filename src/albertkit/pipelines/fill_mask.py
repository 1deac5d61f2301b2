"""The pipeline for masked words.

Shapes: B batch, T tokens, P masked positions, V vocabulary.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.modeling.pretraining_heads import AlbertForMaskedLM, AlbertForPreTraining
from albertkit.pipelines.interface import Pipeline
from albertkit.tasks.masked_lm import Candidates, MaskedLM, MaskedRow
from albertkit.tasks.rows import Batch
from albertkit.tokenization.interface import TokenizerInterface


class FillMaskPipeline(Pipeline):
    """The words that fit a mask; `pipeline("fill-mask")` makes one."""

    task = "fill-mask"
    model_class = AlbertForMaskedLM
    accepts = (AlbertForMaskedLM, AlbertForPreTraining)

    def __init__(
        self,
        model: AlbertPreTrainedModel,
        tokenizer: TokenizerInterface,
        *,
        batch_size: int | None = None,
        batch_tokens: int | None = None,
        top_k: int = 5,
        targets: str | Sequence[str] | None = None,
    ) -> None:
        super().__init__(model, tokenizer, batch_size=batch_size, batch_tokens=batch_tokens)
        self.masked_lm = MaskedLM(tokenizer, max_length=self.max_length)
        self.top_k = top_k
        self.targets = targets

    def __call__(
        self,
        inputs: str | Iterable[str] | Path,
        *,
        top_k: int | None = None,
        targets: str | Sequence[str] | None = None,
        batch_size: int | None = None,
    ) -> Any:
        """Fill in every [MASK].

        Args:
            inputs: a text, a list of texts, an iterable of texts, or a file of texts, each with one mask or
                more.
            top_k: how many words for each mask.
            targets: score only these words. Each must be one piece of the vocabulary; "man" is the word, in
                the vocabulary "_man" with its word-start mark.
            batch_size: most rows computed at once.

        Returns:
            For a text with one mask a list of {score, token, token_str, sequence}, best first; with several
            masks a list of such lists, each mask scored with the others in place. In a text over the model's
            length each mask is scored in a window of its tokens with the mask in the middle, and `window` in
            each answer gives the characters (start, end) that were read. A list or generator of these for
            several texts.

        Raises:
            DataError: a text without a mask, or a target that is not one piece.
            ConfigError: `top_k` or `batch_size` out of range.
        """
        wanted = self.targets if targets is None else targets
        answer = partial(
            self._answer,
            top_k=self.top_k if top_k is None else top_k,
            target_ids=None if wanted is None else self.masked_lm.target_ids(wanted),
        )
        return self._run(inputs, answer, batch_size)

    def _answer(
        self, texts: list[str], *, batch_size: int | None, top_k: int, target_ids: list[int] | None
    ) -> list[Any]:
        features = self.masked_lm.features(texts)
        rows = [row for one in features for row in one.rows]

        def forward(numbers: list[int], batch: Batch) -> Iterator[list[Candidates]]:
            logits = self._masked_logits([rows[number] for number in numbers], batch)
            candidates = iter(self.masked_lm.candidates(logits, top_k=top_k, target_ids=target_ids))
            return (list(islice(candidates, len(rows[number].mask_positions))) for number in numbers)

        found = iter(self._compute(rows, forward, batch_size))
        return [
            self.masked_lm.predictions(one, [word for row in islice(found, len(one.rows)) for word in row])
            for one in features
        ]

    def _masked_logits(self, rows: list[MaskedRow], batch: Batch) -> Tensor:
        """Return the scores (P, V) at the masks of the rows, in their order; no other position is scored."""
        length = batch["input_ids"].shape[1]
        places = [
            number * length + position for number, row in enumerate(rows) for position in row.mask_positions
        ]
        positions = torch.tensor(places, device=self.device)
        output = self.model(**batch, masked_positions=positions, return_dict=True)
        return output.prediction_logits if isinstance(self.model, AlbertForPreTraining) else output.logits
