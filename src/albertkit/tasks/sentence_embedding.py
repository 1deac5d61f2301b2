"""Sentence embedding: compute one vector per text, and the similarity of two texts.

There are three kinds of training data:

* Pairs of texts that belong together: the model learns to find the second text of each first text among all
  texts of the batch (contrastive learning with in-batch negatives; Henderson et al. 2017; Gao et al. 2021,
  section 4).
* Single texts: each text is its own second text, computed with another dropout (Gao et al. 2021, section 3).
* Pairs with similarity scores: the model learns the order of the scores.

Shapes: B examples, R tokens read, H hidden size, D dimensions of a vector.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from albertkit.checkpoints.sentence_modules import NORMALIZE_KEY, POOLING_KEY, TASK
from albertkit.config import AlbertConfig
from albertkit.datasets.examples import PairExample
from albertkit.datasets.official import glue
from albertkit.datasets.options import DataOptions
from albertkit.datasets.reader import Reader
from albertkit.engines.engine import Row, by_example, runs_of_examples
from albertkit.errors import ConfigError, DataError
from albertkit.metrics.classification import pearson, spearman
from albertkit.metrics.sentence_embedding import find, retrieval_scores, unit
from albertkit.tasks.feature_extraction import TextVectors, text_vectors
from albertkit.tasks.task import Decision, Task, directions

CONSTANT = 0.01  # root mean square distance of unit vectors from their mean, below which they count as equal
_KINDS = {
    "alone": "single texts: train each to be similar to itself with another dropout, and unlike the others",
    "scored": "pairs with scores: train the cosine similarities to have the order of the scores",
    "together": "pairs: train each first text to be more similar to its second text than to other texts",
}


@dataclass(frozen=True, slots=True)
class Embedded:
    """The prediction for one example."""

    vectors: list[np.ndarray]
    """The vector (D,) of each text of the example."""
    similarity: float | None
    """The cosine similarity of the first two texts; None for a single text."""
    rank: int | None = None
    """The rank of the second text among all candidates, by similarity to the first text; None if there are no
    candidates."""
    nearest: str | None = None
    """The nearest candidate; None if there are no candidates."""


class SentenceEmbedding(Task[PairExample, Row, Embedded]):
    """Computes the vector of a text. Examples are matching pairs, pairs with scores, or single texts."""

    name = TASK
    architecture = "AlbertModel"
    example_class = PairExample
    answer = "similarity"
    metrics = directions("mrr", "accuracy_at_1", "accuracy_at_10", "spearman", "pearson")
    objective = "embedding"
    output = "hidden_states"
    unused = ("pooler.",)

    def use_config(self, config: AlbertConfig) -> None:
        super().use_config(config)
        settings = self.settings
        self.modules = text_vectors(config, pooling=settings.pooling, normalize=settings.normalize)
        longest = self.modules.max_length
        if settings.max_length is None and longest is not None:
            self.max_length = min(self.max_length, longest)
        self._vectors = TextVectors(self.tokenizer, self.modules, max_length=self.max_length)

    def reader(self, source: Any, options: DataOptions, *, labeled: bool = True) -> Reader[PairExample]:
        if options.glue is not None and isinstance(source, str):
            path = Path(source)
            return glue(path.parent, options.glue, path.name, labeled=labeled, example_class=PairExample)
        return super().reader(source, options, labeled=labeled)

    def is_labeled(self, example: PairExample) -> bool:
        """Return True: single texts and pairs are training examples without a score."""
        return True

    def saved(self, examples: Sequence[PairExample]) -> dict[str, Any]:
        entries = {POOLING_KEY: self.modules.pooling, NORMALIZE_KEY: self.modules.normalize}
        return super().saved(examples) | entries

    def check(
        self, training: Sequence[PairExample], validation: Sequence[PairExample], batch_size: int
    ) -> str:
        """Return a note on what is trained: it depends on the kind of examples."""
        kind, config = _kind(training), self.config
        if self.modules.steps:
            after = ", ".join(type(one).__name__ for one in self.modules.steps)
            raise ConfigError(
                f"the pooling of the model is {self.modules.pooling}, followed by {after}. For fine-tuning, "
                "expected no modules after the pooling. Choose a pooling (--pooling), which removes the "
                "modules, or train the model with sentence-transformers."
            )
        if batch_size < 2:
            raise ConfigError(
                "batch_size is 1, but training compares the texts of a batch. Expected at least 2."
            )
        if kind == "alone" and not (config.hidden_dropout_prob or config.attention_probs_dropout_prob):
            raise ConfigError(
                "the training file has one column of texts. To train on single texts, the model needs "
                "dropout, but it has none. Set dropout to 0.1, or add second texts (--pair-column)."
            )
        if kind == "scored" and len({example.score for example in training}) == 1:
            raise DataError(
                f"every pair has the score {training[0].score}. Expected scores that differ, or no column of "
                "scores, for pairs that belong together."
            )
        _kind(validation, alone=False)
        return _KINDS[kind]

    def features(self, examples: Sequence[PairExample]) -> list[Row]:
        texts = [
            (number, text)
            for number, example in enumerate(examples)
            for text in (example.text, example.pair, example.negative)
            if text is not None
        ]
        rows = self._vectors.rows([text for _, text in texts], truncation=self.settings.truncation)
        return [
            replace(row, example=number, labels=examples[number].score)
            for row, (number, _) in zip(rows, texts, strict=True)
        ]

    def units(self, rows: Sequence[Row]) -> list[list[Row]]:
        """Return the rows of each example together, a single text twice: dropout makes its vectors differ."""
        return [group * 2 if len(group) == 1 else group for group in runs_of_examples(rows)]

    def labels_of(self, rows: Sequence[Row]) -> dict[str, np.ndarray]:
        """Return no labels, because the encoder does not compute a loss."""
        return {}

    def read(self, row: Row) -> Sequence[int]:
        return self._vectors.read(row)

    def keep(self, scores: np.ndarray) -> np.ndarray:
        return self._vectors.vector(scores)

    def predictions(
        self, examples: Sequence[PairExample], rows: Sequence[Row], outputs: Sequence[np.ndarray]
    ) -> list[Embedded]:
        predictions = []
        for own in by_example(rows, outputs, count=len(examples)):
            vectors = [vector for _, vector in own]
            similarity = float(unit(vectors[0]) @ unit(vectors[1])) if len(vectors) > 1 else None
            predictions.append(Embedded(vectors, similarity))
        return predictions

    def compared(self, examples: Sequence[PairExample], predictions: list[Embedded]) -> list[Embedded]:
        """Return the predictions with the rank of the second text and the nearest candidate.

        The candidates are the second texts and the negatives of all examples, without duplicates and without
        the first text itself. Predictions for pairs with scores are returned unchanged.
        """
        if _kind(examples, alone=False) == "scored":
            return predictions
        numbers: dict[str, int] = {}  # candidate -> its index in `vectors`
        vectors: list[np.ndarray] = []
        right: dict[str, set[int]] = {}
        for example, prediction in zip(examples, predictions, strict=True):
            for text, vector in zip(
                (example.pair, example.negative), prediction.vectors[1:], strict=False
            ):  # an example may have no negative
                if text is not None and text not in numbers:
                    numbers[text] = len(vectors)
                    vectors.append(vector)
            right.setdefault(example.text, set()).add(numbers[example.pair or ""])
        found = find(
            np.stack([prediction.vectors[0] for prediction in predictions]),
            np.stack(vectors),
            [right[example.text] for example in examples],
            left_out=[
                {numbers[example.text]} - right[example.text] if example.text in numbers else set()
                for example in examples
            ],
        )
        texts = list(numbers)
        return [
            replace(prediction, rank=one.rank, nearest=texts[one.nearest])
            for prediction, one in zip(predictions, found, strict=True)
        ]

    def record(self, example: PairExample, prediction: Embedded) -> dict[str, Any]:
        if prediction.similarity is None:
            return {"vector": prediction.vectors[0].tolist()}
        found: dict[str, Any] = {"similarity": prediction.similarity}
        if prediction.rank is not None:
            found |= {"rank": prediction.rank, "nearest": prediction.nearest}
        return found

    def truth(self, example: PairExample) -> str | float | None:
        return example.pair if example.score is None else example.score

    def scores(self, examples: Sequence[PairExample], predictions: Sequence[Embedded]) -> dict[str, float]:
        if _kind(examples, alone=False) == "scored":
            true = [example.score or 0.0 for example in examples]
            cosines = [prediction.similarity or 0.0 for prediction in predictions]
            found = {"spearman": spearman(true, cosines), "pearson": pearson(true, cosines)}
            return {name: 0.0 if math.isnan(value) else value for name, value in found.items()}
        return retrieval_scores([one.rank for one in predictions if one.rank is not None])

    def main_metric(self, examples: Sequence[PairExample]) -> str:
        return "spearman" if _kind(examples, alone=False) == "scored" else "mrr"

    def decisions(self, example: PairExample, prediction: Embedded) -> list[Decision]:
        if example.score is not None:
            return [Decision(example.score, prediction.similarity, example.score == prediction.similarity)]
        return [Decision(example.pair, prediction.nearest, prediction.rank == 1)]

    def constant_answer(self, examples: Sequence[PairExample], predictions: Sequence[Embedded]) -> str | None:
        """Return "one vector" if the vectors of different texts are almost equal, else None."""
        own = {example.text: one.vectors[0] for example, one in zip(examples, predictions, strict=True)}
        mean = unit(np.stack(list(own.values()))).mean(axis=0)
        if len(own) > 1 and 1 - float(mean @ mean) < CONSTANT**2:
            return "one vector"
        return None


def _kind(examples: Sequence[PairExample], *, alone: bool = True) -> str:
    """Return the kind of all examples, a key of `_KINDS`. Unless `alone`, single texts are an error."""
    if examples[0].pair is None:
        if not alone:
            raise DataError(
                f"{examples[0].id} has one text, but sentence embeddings are evaluated on pairs. Add second "
                "texts (--pair-column), with scores or without."
            )
        return "alone"
    return "together" if examples[0].score is None else "scored"
