"""Text classification: predict a class, several classes, or a number for a text or a pair.

`SentenceOrder` predicts whether two texts follow each other or were swapped. ALBERT is pretrained on this
task (Lan et al. 2020, section 3.1), so every pretrained model that has the head can predict it.

Shapes: B batch, K labels.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from albertkit.config import THRESHOLDS_KEY, AlbertConfig
from albertkit.datasets.cells import Label
from albertkit.datasets.examples import TextExample
from albertkit.engines.engine import Row
from albertkit.errors import ConfigError, DataError, short
from albertkit.metrics import multi_label_cross_entropy
from albertkit.tasks.labels import CLASS, FUNCTIONS, NUMBER, SEVERAL, Function, LabelSet, infer_labels
from albertkit.tasks.rows import text_rows
from albertkit.tasks.settings import ProblemType
from albertkit.tasks.task import Decision, Task, directions

CONSTANT = 1e-3
"""Spread of a label's probabilities, relative to their mean, below which they count as constant. It is below
1e-4 in collapsed runs, and above 5e-3 in runs that have begun to learn."""

PAIRS_KEY = "text_pairs"
"""The config key for whether a model was fine-tuned on pairs of texts (true) or on single texts (false)."""


ORDER_LABELS = ("in order", "swapped")  # in the order of the head's scores, as in `sentence_order_label`


@dataclass(frozen=True, slots=True)
class Classified:
    """The prediction for one text."""

    label: Label | None
    """The most probable label; for several labels, all that exceed their thresholds; for regression, the
    first number. It has the type of the example's own label. None if no class exceeds its threshold."""
    scores: list[float]
    """(K,): probabilities, or the numbers of a regression."""


class TextClassification(Task[TextExample, Row, Classified]):
    """Predicts the label of a text or a pair: a class, several, or a number, depending on the config.

    Args:
        truncation: how to truncate long texts, see `text_rows`; None for the setting.
        function_to_apply: function that converts logits to scores; None for the function of the labels' kind.
    """

    name = "text-classification"
    architecture = "AlbertForSequenceClassification"
    example_class = TextExample
    probability = "score"
    has_thresholds = True
    metrics = directions(
        *("accuracy", "f1", "f1_macro", "f1_micro", "matthews", "pearson", "spearman"),
        lower=("mean_squared_error", "cross_entropy"),
    )
    labels: LabelSet

    def __init__(
        self, *, truncation: bool | str | None = None, function_to_apply: Function | None = None
    ) -> None:
        if function_to_apply not in (None, *FUNCTIONS):
            known = ", ".join(FUNCTIONS)
            raise ConfigError(f"function_to_apply is {function_to_apply!r}. Expected None or one of {known}.")
        self.truncation, self.function_to_apply = truncation, function_to_apply

    def use_config(self, config: AlbertConfig) -> None:
        super().use_config(config)
        given = self.settings.threshold
        if given == "auto" and self.labels.kind is not SEVERAL and len(self.labels.names) != 2:
            what = f"{len(self.labels.names)} classes" if self.labels.kind is CLASS else "numbers"
            raise ConfigError(
                "threshold is 'auto', which is for several labels or for two classes, but the model predicts "
                f"{what}. Pass a number for classes, or omit it."
            )
        if given in (None, "auto"):
            given, source = config.extra.get(THRESHOLDS_KEY), f"{THRESHOLDS_KEY} in the config"
        else:
            source = "threshold"
        self.labels = self.labels.with_thresholds(given, source=source)
        self.probability = type(self).probability if self.labels.kind is CLASS else None

    def find_labels(
        self, examples: Sequence[TextExample], names: tuple[str, ...] | None, problem_type: ProblemType | None
    ) -> LabelSet:
        given = [example.label for example in examples if example.label is not None]
        return infer_labels(given, names=names, problem_type=problem_type)

    def with_label(self, example: TextExample, labels: LabelSet) -> TextExample:
        if labels.kind is NUMBER and len(labels.names) > 1:
            raise ConfigError(
                f"the model predicts {len(labels.names)} numbers for a text, but an example has one label, "
                "so there are no metrics. Use `predict`, whose records have all numbers."
            )
        return example if example.label is None else replace(example, label=labels.read(example.label))

    def saved(self, examples: Sequence[TextExample]) -> dict[str, Any]:
        return super().saved(examples) | {PAIRS_KEY: examples[0].text_pair is not None}

    def check_fit(self, examples: Sequence[TextExample]) -> None:
        if other := self.other_kind(examples[:1]):
            raise DataError(f"{other}. Name or omit the column of the second texts (--pair-column).")

    def other_kind(self, examples: Sequence[TextExample]) -> str | None:
        """Return how examples differ from those that the model was trained on, or None if they do not."""
        are_pairs = {example.text_pair is not None for example in examples}
        match self.config.extra.get(PAIRS_KEY):
            case True if False in are_pairs:
                return "the model was fine-tuned on pairs, but this is a single text"
            case False if True in are_pairs:
                return "the model was fine-tuned on single texts, but this is a pair"

    def features(self, examples: Sequence[TextExample]) -> list[Row]:
        """Return one row per example, with its encoded label."""
        rows = text_rows(
            self.tokenizer,
            [
                example.text if example.text_pair is None else (example.text, example.text_pair)
                for example in examples
            ],
            max_length=self.max_length,
            truncation=self.settings.truncation if self.truncation is None else self.truncation,
        )
        for number, example in enumerate(examples):
            if example.label is not None:
                where = f"example {number} ({short(example.text)})"
                rows[number] = replace(rows[number], labels=self.labels.encode(example.label, where))
        return rows

    def labels_of(self, rows: Sequence[Row]) -> dict[str, np.ndarray]:
        return {"labels": np.array([row.labels for row in rows], self.labels.kind.dtype)}

    def decode(self, example: TextExample, rows: list[tuple[Row, np.ndarray]]) -> Classified:
        ((_, logits),) = rows
        apply = FUNCTIONS[self.function_to_apply or self.labels.kind.function]
        return Classified(self.labels.predict(logits), apply(logits).tolist())

    def record(self, example: TextExample, prediction: Classified) -> dict[str, Any]:
        """Return {label, score, scores}: `scores` by label; `score` only for a single class.

        Without a predicted class, `label` is None, and `score` is that of the most probable class.
        The record of a regression has `scores` only if the model predicts several numbers.
        """
        label = prediction.label
        scores = dict(zip(self.labels.names, prediction.scores, strict=True))
        if isinstance(label, int | float):
            return {"label": label} if len(scores) == 1 else {"label": label, "scores": scores}
        if isinstance(label, tuple):
            return {"label": list(label), "scores": scores}
        score = max(prediction.scores) if label is None else scores[label]
        return {"label": label, "score": score, "scores": scores}

    def truth(self, example: TextExample) -> Any:
        return list(example.label) if isinstance(example.label, tuple) else example.label

    def decisions(self, example: TextExample, prediction: Classified) -> list[Decision]:
        decisions = super().decisions(example, prediction)
        if self.labels.kind is not SEVERAL:
            return decisions
        wrong = [outcome for outcome in self.outcomes(example, prediction) if not outcome.is_right]
        details = {
            "missed": [outcome.true for outcome in wrong if outcome.true],
            "extra": [outcome.predicted for outcome in wrong if outcome.predicted],
        }
        score = max((outcome.confidence or 0.0 for outcome in wrong), default=None)
        return [replace(decisions[0], severity=score, details=details | {"score": score})]

    def outcomes(self, example: TextExample, prediction: Classified) -> list[Decision]:
        """Return the decisions; for several labels, one for each label that is true or predicted."""
        if self.labels.kind is not SEVERAL:
            return self.decisions(example, prediction)
        true, predicted = ({*side} for side in (example.label, prediction.label) if isinstance(side, tuple))
        return [
            Decision(
                name if name in true else "",
                name if name in predicted else "",
                is_right=name in true and name in predicted,
                confidence=score if name in predicted else 1 - score,
            )
            for name, score in zip(self.labels.names, prediction.scores, strict=True)
            if name in true or name in predicted
        ]

    def scores(self, examples: Sequence[TextExample], predictions: Sequence[Classified]) -> dict[str, float]:
        true: list[Any] = [example.label for example in examples]
        scores = self.labels.scores(true, [prediction.label for prediction in predictions])
        if self.labels.kind is SEVERAL and self.function_to_apply in (None, SEVERAL.function):
            probabilities = [prediction.scores for prediction in predictions]
            scores["cross_entropy"] = multi_label_cross_entropy(true, probabilities, labels=self.labels.names)
        return scores

    def main_metric(self, examples: Sequence[TextExample]) -> str:
        return self.labels.main_metric

    def tuned(self, examples: Sequence[TextExample], predictions: Sequence[Classified]) -> dict[str, Any]:
        """Return the config entry of the thresholds, if the settings have a threshold."""
        if self.settings.threshold is None:
            return {}
        if self.settings.threshold != "auto":
            return {THRESHOLDS_KEY: self.labels.thresholds}
        probabilities = np.array([prediction.scores for prediction in predictions])  # (N, K)
        true = [example.label for example in examples]
        return {THRESHOLDS_KEY: self.labels.tuned_thresholds(true, probabilities)}

    def baseline(self, examples: Sequence[TextExample]) -> dict[str, float]:
        labels, true = self.labels, [example.label for example in examples]
        scores = labels.baseline(true)
        if labels.kind is SEVERAL:
            scores["cross_entropy"] = labels.prior_loss([labels.encode(label, "") for label in true])
        return scores

    def constant_answer(
        self, examples: Sequence[TextExample], predictions: Sequence[Classified]
    ) -> str | None:
        """Return the label of all examples; for several labels, "the same probabilities".

        The predicted labels do not show a collapse of several labels: a model that has begun to learn rare
        labels predicts none of them.
        """
        if self.labels.kind is not SEVERAL:
            if self.labels.may_abstain:  # perhaps for all examples
                predictions = [
                    replace(prediction, label=self.labels.names[int(np.argmax(prediction.scores))])
                    for prediction in predictions
                ]
            return super().constant_answer(examples, predictions)
        scores = np.array([prediction.scores for prediction in predictions])  # (N, K)
        is_constant = bool((scores.std(axis=0) < CONSTANT * abs(scores.mean(axis=0))).all())
        differ = len({example.label for example in examples}) > 1
        return "the same probabilities" if is_constant and differ else None

    def learnt_classes(self, rows: Iterable[Row]) -> Counter[int] | None:
        return Counter(row.labels for row in rows) if self.labels.kind is CLASS else None

    def prior_loss(self, rows: Sequence[Row]) -> float | None:
        if self.labels.kind is SEVERAL:  # with rare labels, most models that learn have this loss at first
            return None
        return self.labels.prior_loss([row.labels for row in rows])


class SentenceOrder(TextClassification):
    """Predicts whether two texts are in order or swapped."""

    name = "sentence-order"
    architecture = "AlbertForPreTraining"
    output = "order"

    def use_config(self, config: AlbertConfig) -> None:
        super().use_config(config)
        self.labels = LabelSet(CLASS, ORDER_LABELS)  # which are not in any config
