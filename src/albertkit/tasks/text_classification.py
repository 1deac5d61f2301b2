"""Text classification: predict a class, several classes, or a number for a text or a pair.

Shapes: B batch, K labels.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from albertkit.config import AlbertConfig
from albertkit.datasets.examples import Label, TextExample
from albertkit.datasets.glue import GlueSplit
from albertkit.datasets.options import DataOptions
from albertkit.datasets.reader import Reader
from albertkit.datasets.text_classification import EntailmentFile, TextTable
from albertkit.engines.engine import Row
from albertkit.errors import ConfigError, DataError, short
from albertkit.tasks.label_kinds import CLASS, Function
from albertkit.tasks.labels import LabelSet, infer_labels
from albertkit.tasks.measuring import directions
from albertkit.tasks.rows import text_rows
from albertkit.tasks.scores import sigmoid, softmax
from albertkit.tasks.settings import ProblemType
from albertkit.tasks.task import Task

PAIRS_KEY = "text_pairs"
"""The config key for whether a model was fine-tuned on pairs of texts (true) or on single texts (false)."""


@dataclass(frozen=True, slots=True)
class Classified:
    """The prediction for one text."""

    label: Label
    """The most probable label; for several labels, all with a probability over one half; for regression, the
    first number. It has the type of the example's own label."""
    scores: list[float]
    """(K,): probabilities, or the numbers of a regression."""


class TextClassification(Task[TextExample, Row, Classified]):
    """Predicts the label of a text or a pair: a class, several, or a number, depending on the config.

    Args:
        truncation: how to truncate long texts, see `text_rows`; None for the setting.
    """

    name = "text-classification"
    architecture = "AlbertForSequenceClassification"
    example_class = TextExample
    probability = "score"
    metrics = directions(
        *("accuracy", "f1", "f1_macro", "f1_micro", "matthews", "pearson", "spearman"),
        lower=("mean_squared_error",),
    )
    labels: LabelSet

    def __init__(self, *, truncation: bool | str | None = None) -> None:
        self.truncation = truncation

    def use_config(self, config: AlbertConfig) -> None:
        """Read the labels of the model. Only records of a single class have a probability."""
        super().use_config(config)
        self.probability = type(self).probability if self.labels.kind is CLASS else None

    def reader(self, source: Any, options: DataOptions, *, labeled: bool = True) -> Reader[TextExample]:
        """Return the reader of a GLUE split, of an RTE file, or of a table."""
        if isinstance(source, str):
            path = Path(source)
            if options.glue is not None:
                return GlueSplit(path.parent, options.glue, path.name, labeled=labeled)
            if path.suffix == ".xml":
                return EntailmentFile(path, labeled=labeled)
        return TextTable(source, options, labeled=labeled)

    def find_labels(
        self, examples: Sequence[TextExample], names: tuple[str, ...] | None, problem_type: ProblemType | None
    ) -> LabelSet:
        """Infer the labels and their kind from the examples."""
        given = [example.label for example in examples if example.label is not None]
        return infer_labels(given, names=names, problem_type=problem_type)

    def with_label(self, example: TextExample, labels: LabelSet) -> TextExample:
        """Return an example with its label in the set."""
        return example if example.label is None else replace(example, label=labels.read(example.label))

    def saved(self, examples: Sequence[TextExample]) -> dict[str, Any]:
        """Also return whether the model learns pairs."""
        return super().saved(examples) | {PAIRS_KEY: examples[0].text_pair is not None}

    def check_fit(self, examples: Sequence[TextExample]) -> None:
        """Raise DataError for single texts if the model was trained on pairs, and the other way round."""
        match self.config.extra.get(PAIRS_KEY), examples[0].text_pair is not None:
            case True, False:
                raise DataError(
                    "the model was fine-tuned on pairs, but these are single texts. Name the column of the "
                    "second texts (--pair-column)."
                )
            case False, True:
                raise DataError(
                    "the model was fine-tuned on single texts, but these are pairs. Omit the column of "
                    "the second texts (--pair-column)."
                )

    def features(self, examples: Sequence[TextExample]) -> list[Row]:
        """Return one row per example.

        `labels` has the label's id; for several labels 0.0 or 1.0 for each of K; for regression a float.
        """
        rows = text_rows(
            self.tokenizer,
            [one.text if one.text_pair is None else (one.text, one.text_pair) for one in examples],
            max_length=self.max_length,
            truncation=self.settings.truncation if self.truncation is None else self.truncation,
        )
        return [
            row if example.label is None else replace(row, labels=self._encode(example, row.example))
            for example, row in zip(examples, rows, strict=True)
        ]

    def _encode(self, example: TextExample, number: int) -> Any:
        return self.labels.encode(example.label, f"example {number} ({short(example.text)})")

    def labels_of(self, rows: Sequence[Row]) -> dict[str, np.ndarray]:
        """Return `labels`: (B,) or, for several labels, (B, K)."""
        return {"labels": np.array([row.labels for row in rows], self.labels.kind.dtype)}

    def predictions(
        self,
        examples: Sequence[TextExample],
        rows: Sequence[Row],
        outputs: Sequence[np.ndarray],
        *,
        function_to_apply: Function | None = None,
    ) -> list[Classified]:
        """Return label and scores of each example.

        Args:
            examples: the examples passed to `features`.
            rows: the rows that `features` returned, one per example.
            outputs: the logits (K,) of each row.
            function_to_apply: function that converts logits to scores; None for the kind's own function.
        """
        assert len(examples) == len(rows)
        kind, names = self.labels.kind, self.labels.names
        function = function_to_apply or kind.function
        return [Classified(kind.predict(one, names), apply(function, one).tolist()) for one in outputs]

    def record(self, example: TextExample, prediction: Classified) -> dict[str, Any]:
        """Return {label, score, scores}: `scores` by label; `score` only for a single class.

        The record of a regression has `scores` only if the model predicts several numbers.
        """
        label = prediction.label
        scores = dict(zip(self.labels.names, prediction.scores, strict=True))
        if isinstance(label, float):
            return {"label": label} if len(scores) == 1 else {"label": label, "scores": scores}
        if isinstance(label, tuple):
            return {"label": list(label), "scores": scores}
        return {"label": label, "score": max(prediction.scores), "scores": scores}

    def truth(self, example: TextExample) -> Any:
        """Return the label."""
        return list(example.label) if isinstance(example.label, tuple) else example.label

    def scores(self, examples: Sequence[TextExample], predictions: Sequence[Classified]) -> dict[str, float]:
        """Return the metrics of the kind of labels."""
        true, predicted = ([one.label for one in side] for side in (examples, predictions))
        return self.labels.kind.scores(true, predicted, self.labels.names)

    def main_metric(self, examples: Sequence[TextExample]) -> str:
        """Return accuracy, micro F1 for several labels, or Pearson's correlation for numbers."""
        return self.labels.kind.main_metric(self.labels.names)

    def baseline(self, examples: Sequence[TextExample]) -> dict[str, float]:
        """Return the share of the most frequent class."""
        return self.labels.kind.baseline(example.label for example in examples)

    def learnt_classes(self, rows: Iterable[Row]) -> Counter[int] | None:
        """Count the classes of rows with a single class."""
        return Counter(row.labels for row in rows) if self.labels.kind is CLASS else None

    def prior_loss(self, rows: Sequence[Row]) -> float:
        """Return the entropy, its mean over several labels, or the variance."""
        return self.labels.kind.prior_loss([row.labels for row in rows])


def apply(function: Function, logits: np.ndarray) -> np.ndarray:
    """Return the scores (K,) for logits (K,) after applying a function.

    Raises:
        ConfigError: the function is unknown.
    """
    match function:
        case "softmax":
            return softmax(logits)
        case "sigmoid":
            return sigmoid(logits)
        case "none":
            return logits
    raise ConfigError(
        f"function_to_apply is {function!r}. Expected None or one of {', '.join(get_args(Function))}."
    )
