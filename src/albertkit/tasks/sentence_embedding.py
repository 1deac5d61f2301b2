"""Sentence embedding: a text -> one vector; of two texts, how alike they are.

It is learnt from pairs that belong together: in a batch each first text must find its own second text among
all (contrastive learning with in-batch negatives; Henderson et al. 2017; Gao et al. 2021, section 4). A text
alone is its own second text, read with another dropout (Gao et al. 2021, section 3). Pairs with scores learn
their order. `embedding_losses.py` has the losses.

Shapes: B examples, H hidden.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from albertkit.errors import DataError
from albertkit.modeling.model import AlbertModel
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.tasks.embedding_losses import TEMPERATURE, embedding_loss, text_numbers, text_scores
from albertkit.tasks.engine import every_token, first_token
from albertkit.tasks.examples import PairExample
from albertkit.tasks.feature_extraction import Pooling, check_pooling, pool, pool_tokens
from albertkit.tasks.rows import Batch, Row, by_example, runs_of_examples
from albertkit.tasks.task import Task
from albertkit.tasks.texts import text_rows
from albertkit.tokenization.interface import TokenizerInterface


@dataclass(frozen=True, slots=True)
class Embedded:
    """What is predicted for one example."""

    vectors: list[Tensor]
    """(H,) for each of its texts."""
    similarity: float | None
    """The cosine between the first two; None for one text."""
    rank: int | None = None
    """Place of the second text among all candidates, by nearness to the first, where that is known."""
    nearest: str | None = None
    """The nearest candidate."""


class SentenceEmbedding(Task[PairExample, Row, Embedded]):
    """The task for one tokenizer and one way to make a vector.

    Args:
        tokenizer: cuts texts into pieces.
        max_length: most tokens of a row, special tokens included.
        pooling: "mean" of all tokens, or "cls".
        normalize: make all vectors of length 1.
        truncation: cut texts that are longer; the rows count what was cut.

    Raises:
        ConfigError: an unknown pooling.
    """

    name = "sentence-embedding"
    model_class = AlbertModel
    output = "hidden_states"

    def __init__(
        self,
        tokenizer: TokenizerInterface,
        *,
        max_length: int,
        pooling: Pooling = "mean",
        normalize: bool = False,
        truncation: bool = False,
    ) -> None:
        super().__init__(tokenizer, max_length=max_length)
        check_pooling(pooling)
        self.pooling: Pooling = pooling
        self.normalize = normalize
        self.truncation = truncation

    def features(self, examples: Sequence[PairExample]) -> list[Row]:
        """Return a row for each text: one to three for each example. `labels` is the score, if any."""
        texts = [
            (number, text)
            for number, example in enumerate(examples)
            for text in (example.text, example.pair, example.negative)
            if text is not None
        ]
        rows = text_rows(
            self.tokenizer,
            [text for _, text in texts],
            max_length=self.max_length,
            truncation="longest_first" if self.truncation else False,
        )
        return [
            replace(row, example=number, labels=examples[number].score)
            for row, (number, _) in zip(rows, texts, strict=True)
        ]

    def units(self, rows: Sequence[Row]) -> list[list[Row]]:
        """Return the texts of each example together; a text alone twice, so that dropout makes two of it."""
        return [unit * 2 if len(unit) == 1 else unit for unit in runs_of_examples(rows)]

    def label_inputs(self, rows: Sequence[Row], device: torch.device) -> dict[str, Tensor]:
        """Return nothing: the encoder has no loss of its own, see `loss`."""
        del rows, device
        return {}

    def loss(
        self, model: AlbertPreTrainedModel, rows: Sequence[Row], *, temperature: float = TEMPERATURE
    ) -> Tensor:
        """Return the loss of the examples of a batch, see `embedding_loss`.

        Raises:
            DataError: less than two examples, or examples of different kinds.
        """
        units = self.units(rows)
        widths = {len(unit) for unit in units}
        if len(units) < 2 or len(widths) > 1:
            raise DataError(
                f"a batch has {len(units)} examples, of {' or '.join(map(str, sorted(widths)))} texts; "
                "expected two or more examples, each of as many texts"
            )
        vectors = self.vectors(model, [row for unit in units for row in unit])  # (B W, H)
        return embedding_loss(
            vectors.unflatten(0, (len(units), -1)),  # (B, W, H)
            text_numbers(units, vectors.device),
            text_scores(units, vectors.device),
            temperature=temperature,
        )

    def vectors(self, model: AlbertPreTrainedModel, rows: Sequence[Row]) -> Tensor:
        """Return the vectors of rows that fit into one batch, (rows, H)."""
        return torch.stack(self.score(model, self.batch(rows, model.device), rows))

    def score(self, model: AlbertPreTrainedModel, batch: Batch, rows: Sequence[Row]) -> list[Tensor]:
        """Return the vector (H,) of each row."""
        assert len(rows) == len(batch["input_ids"])
        hidden_states = model(**batch, return_dict=True).last_hidden_state  # (B, T, H)
        vectors = pool(hidden_states, batch["attention_mask"], self.pooling)
        return list(F.normalize(vectors, dim=-1) if self.normalize else vectors)

    def read(self, row: Row) -> Sequence[int]:
        """Return the tokens that are pooled."""
        return first_token(row) if self.pooling == "cls" else every_token(row)

    def keep(self, scores: Tensor) -> Tensor:
        """Return the vector (H,) of a row, of its hidden states (R, H)."""
        vector = pool_tokens(scores, self.pooling)
        return F.normalize(vector, dim=-1) if self.normalize else vector

    def predictions(
        self, examples: Sequence[PairExample], rows: Sequence[Row], outputs: Sequence[Tensor]
    ) -> list[Embedded]:
        """Return the vectors of each example's texts, and the cosine of the first two."""
        predictions = []
        for own in by_example(rows, outputs, count=len(examples)):
            vectors = [vector for _, vector in own]
            similarity = float(F.cosine_similarity(*vectors[:2], dim=0)) if len(vectors) > 1 else None
            predictions.append(Embedded(vectors, similarity))
        return predictions
