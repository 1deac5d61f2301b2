"""Sentence embedding: a text -> one vector; of two texts, how alike they are.

It is learnt from pairs that belong together: in a batch each first text must find its own second text among
all (contrastive learning with in-batch negatives; Henderson et al. 2017; Gao et al. 2021, section 4). A text
alone is its own second text, read with another dropout (Gao et al. 2021, section 3). Pairs with scores learn
their order.

Shapes: B examples, H hidden.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from albertkit.engines.engine import Row, by_example, every_token, first_token, runs_of_examples
from albertkit.tasks.examples import PairExample
from albertkit.tasks.feature_extraction import Pooling, check_pooling, pool_tokens
from albertkit.tasks.scores import normalize
from albertkit.tasks.task import Task
from albertkit.tasks.texts import text_rows
from albertkit.tokenization.base import TokenizerBase


@dataclass(frozen=True, slots=True)
class Embedded:
    """What is predicted for one example."""

    vectors: list[np.ndarray]
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
    architecture = "AlbertModel"
    output = "hidden_states"

    def __init__(
        self,
        tokenizer: TokenizerBase,
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

    def labels_of(self, rows: Sequence[Row]) -> dict[str, np.ndarray]:
        """Return nothing: the encoder has no loss of its own."""
        del rows
        return {}

    def read(self, row: Row) -> Sequence[int]:
        """Return the tokens that are pooled."""
        return first_token(row) if self.pooling == "cls" else every_token(row)

    def keep(self, scores: np.ndarray) -> np.ndarray:
        """Return the vector (H,) of a row, of its hidden states (R, H)."""
        vector = pool_tokens(scores, self.pooling)
        return normalize(vector) if self.normalize else vector

    def predictions(
        self, examples: Sequence[PairExample], rows: Sequence[Row], outputs: Sequence[np.ndarray]
    ) -> list[Embedded]:
        """Return the vectors of each example's texts, and the cosine of the first two."""
        predictions = []
        for own in by_example(rows, outputs, count=len(examples)):
            vectors = [vector for _, vector in own]
            similarity = _cosine(*vectors[:2]) if len(vectors) > 1 else None
            predictions.append(Embedded(vectors, similarity))
        return predictions


def _cosine(first: np.ndarray, second: np.ndarray) -> float:
    return float(normalize(first) @ normalize(second))
