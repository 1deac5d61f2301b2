"""Sentence embedding: pairs that belong together, pairs with scores (STS-B of GLUE), texts alone."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from albertkit.config import AlbertConfig
from albertkit.datasets.pairs import GluePairs, PairColumns, PairTable
from albertkit.datasets.reader import Reader
from albertkit.errors import ConfigError, DataError
from albertkit.finetuning.data_options import DataOptions
from albertkit.finetuning.labelled_task import Judged, LabelledTask, task_room
from albertkit.finetuning.settings import FinetuningSettings, TaskSettings
from albertkit.metrics.classification import pearson, spearman
from albertkit.metrics.retrieval import find, retrieval_scores, unit
from albertkit.tasks.examples import PairExample
from albertkit.tasks.feature_extraction import NORMALIZE_KEY, POOLING_KEY, saved_pooling
from albertkit.tasks.sentence_embedding import Embedded, SentenceEmbedding
from albertkit.tokenization.base import TokenizerBase

CONSTANT = 0.01  # root mean square distance of unit vectors from their mean, at which they are all the same
_KINDS = {
    "alone": "texts alone: each is to be near itself, read with another dropout, and far from the others",
    "scored": "pairs with scores: their cosines are to have the order of the scores",
    "together": "pairs: each first text is to be nearer to its second than to the other texts of a batch",
}


class LabelledPairs(LabelledTask):
    """Pairs of texts that belong together, or with a number that says how alike they are."""

    architecture = "AlbertModel"
    metrics = ("mrr", "accuracy_at_1", "accuracy_at_10", "spearman", "pearson")
    unused = ("pooler.",)
    axes = ("score", "cosine")

    def reader(self, source: str, options: DataOptions, *, labelled: bool = True) -> Reader[PairExample]:
        """Return the reader of a split of GLUE or of a table."""
        if options.glue is not None:
            path = Path(source)
            return GluePairs(path.parent, options.glue, path.name, labelled=labelled)
        columns = PairColumns(
            text=None if options.text_column == DataOptions().text_column else options.text_column,
            pair=options.pair_column,
            negative=options.negative_column,
            score=options.label_column,
            id=options.id_column,
        )
        return PairTable(
            source, columns, labelled=labelled, header=options.header, delimiter=options.delimiter
        )

    def task(
        self, tokenizer: TokenizerBase, config: AlbertConfig, settings: TaskSettings
    ) -> SentenceEmbedding:
        """Return the task, with the pooling of the settings, or that of the config."""
        pooling, normalize = _pooling(config, settings)
        return SentenceEmbedding(
            tokenizer,
            max_length=task_room(config, settings),
            pooling=pooling,
            normalize=normalize,
            truncation=settings.truncation,
        )

    def note(self, config: AlbertConfig, settings: TaskSettings, examples: Sequence[PairExample]) -> None:
        """Put into the config how vectors are made."""
        del examples
        config.extra[POOLING_KEY], config.extra[NORMALIZE_KEY] = _pooling(config, settings)

    def check(
        self,
        examples: Mapping[str, Sequence[PairExample]],
        config: AlbertConfig,
        settings: FinetuningSettings,
    ) -> str:
        """Return what is to be learnt.

        Raises:
            ConfigError: batches of one, or texts alone without dropout.
            DataError: scores that are all the same.
        """
        training = examples["training"]
        kind = _kind(training)
        if settings.batch_size < 2:
            raise ConfigError(
                "batch_size is 1, and a text is told from the others of its batch; expected more"
            )
        if kind == "alone" and not (config.hidden_dropout_prob or config.attention_probs_dropout_prob):
            raise ConfigError(
                "the training file has one column of texts, each to be read twice with different dropout, "
                "and the model has none; set dropout to 0.1, or give second texts (--pair-column)"
            )
        if kind == "scored" and len({example.score for example in training}) == 1:
            raise DataError(
                f"every pair has the score {training[0].score}; expected scores that differ, or no column of "
                "scores, for pairs that belong together"
            )
        _kind(examples["validation"], alone=False)
        return _KINDS[kind]

    def main_metric(self, config: AlbertConfig, examples: Sequence[PairExample]) -> str:
        """Return Spearman's correlation with the scores; for pairs without, the mean reciprocal rank."""
        del config
        return "spearman" if _kind(examples, alone=False) == "scored" else "mrr"

    def compared(self, examples: Sequence[PairExample], predictions: Sequence[Embedded]) -> list[Embedded]:
        """Return the predictions with what each first text finds among all second texts and negatives.

        Equal texts are one candidate, and the first text itself is none.
        """
        if _kind(examples, alone=False) == "scored":
            return list(predictions)
        numbers: dict[str, int] = {}  # of each different candidate, in the order of `vectors`
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

    def scores(
        self, examples: Sequence[PairExample], predictions: Sequence[Embedded], config: AlbertConfig
    ) -> dict[str, float]:
        """Return correlations of the cosine with the score, or how often the right text is the nearest."""
        del config
        if _kind(examples, alone=False) == "scored":
            true = [example.score or 0.0 for example in examples]
            cosines = [prediction.similarity or 0.0 for prediction in predictions]
            found = {"spearman": spearman(true, cosines), "pearson": pearson(true, cosines)}
            return {name: 0.0 if math.isnan(value) else value for name, value in found.items()}
        return retrieval_scores(self.ranks(predictions))

    def ranks(self, predictions: Sequence[Embedded]) -> list[int]:
        """Return the place of each right text among all."""
        return [prediction.rank for prediction in predictions if prediction.rank is not None]

    def judge(self, example: PairExample, prediction: Embedded, config: AlbertConfig) -> list[Judged]:
        """Return the cosine beside the score, or the text found beside the right one."""
        del config
        if example.score is not None:
            return [Judged(example.score, prediction.similarity, example.score == prediction.similarity)]
        return [Judged(example.pair, prediction.nearest, prediction.rank == 1)]

    def constant_answer(
        self, examples: Sequence[PairExample], predictions: Sequence[Embedded], config: AlbertConfig
    ) -> str | None:
        """Tell it by the spread of the vectors of different texts."""
        del config
        own = {example.text: one.vectors[0] for example, one in zip(examples, predictions, strict=True)}
        mean = unit(np.stack(list(own.values()))).mean(axis=0)
        if len(own) > 1 and 1 - float(mean @ mean) < CONSTANT**2:
            return "one vector"
        return None

    def record(self, example: PairExample, prediction: Embedded, config: AlbertConfig) -> dict[str, Any]:
        """Return {vector} for a text, {similarity} for a pair, and {rank, nearest} where known."""
        del example, config
        if prediction.similarity is None:
            return {"vector": prediction.vectors[0].tolist()}
        found: dict[str, Any] = {"similarity": prediction.similarity}
        if prediction.rank is not None:
            found |= {"rank": prediction.rank, "nearest": prediction.nearest}
        return found

    def truth(self, example: PairExample) -> str | float | None:
        """Return the score, or the text that belongs to the first."""
        return example.pair if example.score is None else example.score


def _kind(examples: Sequence[PairExample], *, alone: bool = True) -> str:
    """Return which of `_KINDS` examples are, which are all alike."""
    if examples[0].pair is None:
        if not alone:
            raise DataError(
                f"{examples[0].id} has one text: nothing tells how good its vector is. Measure on pairs "
                "(--pair-column), with scores or without"
            )
        return "alone"
    return "together" if examples[0].score is None else "scored"


def _pooling(config: AlbertConfig, settings: TaskSettings) -> tuple[Any, bool]:
    pooling, normalize = saved_pooling(config)
    return (
        settings.pooling or pooling or "mean",
        normalize if settings.normalize is None else settings.normalize,
    )
