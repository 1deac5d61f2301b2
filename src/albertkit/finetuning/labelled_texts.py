"""Text classification, multi-label classification and regression: GLUE, and any table of texts."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from albertkit.config import AlbertConfig
from albertkit.datasets.entailment import EntailmentFile
from albertkit.datasets.glue import GlueSplit
from albertkit.datasets.labels import LabelSet
from albertkit.datasets.reader import Reader
from albertkit.datasets.texts import TextColumns, TextTable
from albertkit.engines.engine import Row
from albertkit.errors import DataError
from albertkit.finetuning.data_options import DataOptions
from albertkit.finetuning.labelled_task import Judged, LabelledTask, majority, task_room
from albertkit.finetuning.settings import TaskSettings
from albertkit.metrics.classification import class_scores, multi_label_scores, number_scores
from albertkit.tasks.examples import TextExample
from albertkit.tasks.sequence_classification import (
    PAIRS_KEY,
    Classified,
    SequenceClassification,
    problem_type_of,
)
from albertkit.tokenization.base import TokenizerBase

CONSTANT = 0.01  # spread of predicted numbers, relative to that of the true ones, that tells nothing


class LabelledTexts(LabelledTask):
    """Texts, or pairs, with a class, several, or a number."""

    architecture = "AlbertForSequenceClassification"
    metrics = (
        "accuracy",
        "f1",
        "f1_macro",
        "f1_micro",
        "matthews",
        "pearson",
        "spearman",
        "mean_squared_error",
    )

    def reader(self, source: str, options: DataOptions, *, labelled: bool = True) -> Reader[TextExample]:
        """Return the reader of a split of GLUE, of a file of RTE, or of a table."""
        path = Path(source)
        if options.glue is not None:
            return GlueSplit(path.parent, options.glue, path.name, labelled=labelled)
        if path.suffix == ".xml":
            return EntailmentFile(path, labelled=labelled)
        labels = [name for one in (options.label_column or "").split(",") if (name := one.strip())]
        columns = TextColumns(
            text=options.text_column,
            pair=options.pair_column,
            label=tuple(labels) if len(labels) > 1 else (options.label_column or "label"),
            id=options.id_column,
            separator=options.label_separator,
        )
        return TextTable(
            source, columns, labelled=labelled, header=options.header, delimiter=options.delimiter
        )

    def task(
        self, tokenizer: TokenizerBase, config: AlbertConfig, settings: TaskSettings
    ) -> SequenceClassification:
        """Return the task with the labels of the config."""
        return SequenceClassification(
            tokenizer,
            max_length=task_room(config, settings),
            labels=list(config.id2label.values()),
            problem_type=problem_type_of(config),
            truncation=settings.truncation,
        )

    def labels(self, config: AlbertConfig) -> LabelSet:
        """Return the labels of a model."""
        return LabelSet(problem_type_of(config), tuple(config.id2label.values()))

    def config_changes(self, labels: LabelSet | None) -> dict[str, Any]:
        """Return names and meaning of the labels."""
        assert labels is not None
        return {"id2label": labels.id2label(), "problem_type": labels.problem_type}

    def note(self, config: AlbertConfig, settings: TaskSettings, examples: Sequence[TextExample]) -> None:
        """Put into the config whether the model learns pairs."""
        del settings
        config.extra[PAIRS_KEY] = examples[0].text_pair is not None

    def check_fit(self, examples: Sequence[TextExample], config: AlbertConfig) -> None:
        """Raise a DataError for single texts where the model learnt pairs, and the other way round."""
        match config.extra.get(PAIRS_KEY), examples[0].text_pair is not None:
            case True, False:
                raise DataError(
                    "the model was fine-tuned on pairs, and these are single texts: name the column of the "
                    "second texts (--pair-column)"
                )
            case False, True:
                raise DataError(
                    "the model was fine-tuned on single texts, and these are pairs: leave out the column of "
                    "the second texts (--pair-column)"
                )

    def main_metric(self, config: AlbertConfig, examples: Sequence[TextExample]) -> str:
        """Return accuracy, micro F1 of several labels, or Pearson's correlation of numbers."""
        del examples
        match problem_type_of(config):
            case "regression":
                return "pearson"
            case "multi_label_classification":
                return "f1_micro"
        return "accuracy"

    def scores(
        self, examples: Sequence[TextExample], predictions: Sequence[Classified], config: AlbertConfig
    ) -> dict[str, float]:
        """Return the scores of the problem type."""
        true: list[Any] = [example.label for example in examples]
        predicted: list[Any] = [prediction.label for prediction in predictions]
        match problem_type_of(config):
            case "regression":
                found = number_scores(true, predicted)
                return {name: 0.0 if math.isnan(value) else value for name, value in found.items()}
            case "multi_label_classification":
                return multi_label_scores(true, predicted, labels=list(config.id2label.values()))
        return class_scores(true, predicted, labels=list(config.id2label.values()))

    def baseline(self, examples: Sequence[TextExample], config: AlbertConfig) -> dict[str, float]:
        """Return the share of the most frequent class."""
        single = problem_type_of(config) == "single_label_classification"
        return majority(example.label for example in examples) if single else {}

    def judge(self, example: TextExample, prediction: Classified, config: AlbertConfig) -> list[Judged]:
        """Return the one decision."""
        del config
        single = isinstance(prediction.label, str)
        confidence = max(prediction.scores) if single else None
        return [Judged(example.label, prediction.label, example.label == prediction.label, confidence)]

    def is_constant(self, judged: Sequence[Judged]) -> bool:
        """Tell it of numbers by their spread."""
        if not isinstance(judged[0].predicted, float):
            return super().is_constant(judged)
        true, predicted = (np.std([getattr(one, side) for one in judged]) for side in ("true", "predicted"))
        return bool(predicted < CONSTANT * true)

    def record(self, example: TextExample, prediction: Classified, config: AlbertConfig) -> dict[str, Any]:
        """Return {label, score, scores}: `scores` by label, `score` for one class only."""
        del example
        if isinstance(prediction.label, float):
            return {"label": prediction.label}
        scores = dict(zip(config.id2label.values(), prediction.scores, strict=True))
        if isinstance(prediction.label, tuple):
            return {"label": list(prediction.label), "scores": scores}
        return {"label": prediction.label, "score": max(prediction.scores), "scores": scores}

    def truth(self, example: TextExample) -> str | float | list[str] | None:
        """Return the label."""
        return list(example.label) if isinstance(example.label, tuple) else example.label

    def learnt_classes(self, rows: Iterable[Row]) -> Counter[int] | None:
        """Count the classes of single-label rows."""
        labels = [row.labels for row in rows]
        return Counter(labels) if isinstance(labels[0], int) else None

    def prior_loss(self, rows: Sequence[Row], config: AlbertConfig) -> float | None:
        """Return entropy, its mean over several labels, or variance."""
        match problem_type_of(config):
            case "regression":
                return float(np.var([row.labels for row in rows]))
            case "multi_label_classification":
                share = np.clip(np.mean([row.labels for row in rows], axis=0), 1e-9, 1 - 1e-9)  # (K,)
                return float(-(share * np.log(share) + (1 - share) * np.log(1 - share)).mean())
        return super().prior_loss(rows, config)
