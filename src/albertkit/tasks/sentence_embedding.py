"""Sentence embedding: a text -> one vector; of two texts, how alike they are.

It is learnt from pairs that belong together: in a batch each first text must find its own second text among
all (contrastive learning with in-batch negatives; Henderson et al. 2017; Gao et al. 2021, section 4).

Shapes: B pairs, H hidden.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from albertkit.errors import ConfigError, DataError
from albertkit.modeling.model import AlbertModel
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.tasks.examples import TextExample
from albertkit.tasks.feature_extraction import Pooling, check_pooling, pool
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
    """The cosine between the two; None for one text."""


class SentenceEmbedding(Task[TextExample, Row, Embedded]):
    """The task for one tokenizer and one way to make a vector.

    Args:
        tokenizer: cuts texts into pieces.
        max_length: most tokens of a row, special tokens included.
        pooling: "mean" of all tokens, or "cls".
        temperature: divides the cosines in the loss; the smaller, the more the nearest wrong text counts.
        truncation: cut texts that are longer; the rows count what was cut.

    Raises:
        ConfigError: an unknown pooling, or a temperature that is not above 0.
    """

    name = "feature-extraction"
    model_class = AlbertModel

    def __init__(
        self,
        tokenizer: TokenizerInterface,
        *,
        max_length: int,
        pooling: Pooling = "mean",
        temperature: float = 0.05,
        truncation: bool = False,
    ) -> None:
        super().__init__(tokenizer, max_length=max_length)
        check_pooling(pooling)
        if temperature <= 0:
            raise ConfigError(f"temperature is {temperature}; expected a number above 0")
        self.pooling: Pooling = pooling
        self.temperature = temperature
        self.truncation = truncation

    def features(self, examples: Sequence[TextExample]) -> list[Row]:
        """Return a row for each text: one or two for each example. That two belong together is the label."""
        texts = [
            (number, text)
            for number, example in enumerate(examples)
            for text in (example.text, example.text_pair)
            if text is not None
        ]
        rows = text_rows(
            self.tokenizer,
            [text for _, text in texts],
            max_length=self.max_length,
            truncation="longest_first" if self.truncation else False,
        )
        return [replace(row, example=number) for row, (number, _) in zip(rows, texts, strict=True)]

    def units(self, rows: Sequence[Row]) -> list[list[Row]]:
        """Return the two texts of each example together."""
        return runs_of_examples(rows)

    def label_inputs(self, rows: Sequence[Row], device: torch.device) -> dict[str, Tensor]:
        """Return nothing: the encoder has no loss of its own, see `loss`."""
        del rows, device
        return {}

    def loss(self, model: AlbertPreTrainedModel, rows: Sequence[Row]) -> Tensor:
        """Return the contrastive loss over the pairs of a batch.

        Raises:
            DataError: an example without a second text, or less than two pairs.
        """
        units = self.units(rows)
        single = next((unit[0] for unit in units if len(unit) != 2), None)
        if single is not None or len(units) < 2:
            what = (
                f"example {single.example} has no second text" if single else f"a batch has {len(units)} pair"
            )
            raise DataError(f"{what}; expected pairs that belong together, two or more in a batch")
        vectors = torch.stack(self.score(model, self.batch(rows, model.device), rows))  # (2 B, H)
        first, second = (
            F.normalize(vectors.float(), dim=-1).unflatten(0, (-1, 2)).unbind(dim=1)
        )  # (B, H) each
        cosines = first @ second.T  # (B, B)
        right = torch.arange(len(units), device=cosines.device)
        return F.cross_entropy(cosines / self.temperature, right)

    def score(self, model: AlbertPreTrainedModel, batch: Batch, rows: Sequence[Row]) -> list[Tensor]:
        """Return the vector (H,) of each row."""
        assert len(rows) == len(batch["input_ids"])
        hidden_states = model(**batch, return_dict=True).last_hidden_state  # (B, T, H)
        return list(pool(hidden_states, batch["attention_mask"], self.pooling))

    def predictions(
        self, examples: Sequence[TextExample], rows: Sequence[Row], outputs: Sequence[Tensor]
    ) -> list[Embedded]:
        """Return the vectors of each example's texts, and for two their cosine."""
        predictions = []
        for own in by_example(rows, outputs, count=len(examples)):
            vectors = [vector for _, vector in own]
            similarity = float(F.cosine_similarity(*vectors, dim=0)) if len(vectors) == 2 else None
            predictions.append(Embedded(vectors, similarity))
        return predictions
