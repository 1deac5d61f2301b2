"""The kinds of labels: `CLASS`, `SEVERAL`, `NUMBER` and `TAGS`. A kind reads, encodes and measures labels.

Shapes: B rows, T tokens, K labels.
"""

import math
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Literal

import numpy as np

from albertkit.config import AlbertConfig
from albertkit.datasets.examples import IGNORED
from albertkit.datasets.reader import number_of
from albertkit.datasets.text_classification import whole_name
from albertkit.errors import DataError, did_you_mean, short
from albertkit.metrics.classification import class_scores, multi_label_scores, number_scores
from albertkit.metrics.token_classification import of_scheme, span_scores
from albertkit.tasks.settings import ProblemType

Function = Literal["softmax", "sigmoid", "none"]
"""The function that converts logits to scores."""

NUMBER_FORM = "with a decimal point and no thousands separator"
"""The required form of a number, for messages about numbers with a comma."""


class UnknownLabel(DataError):  # noqa: N818 - one kind of DataError
    """A label that is not in the set."""


class LabelKind(ABC):
    """Base class of the kinds of labels. Its values are `CLASS`, `SEVERAL`, `NUMBER` and `TAGS`."""

    problem_type: ProblemType | None
    """The problem type in a model's config; None for `TAGS`, which the model class implies."""
    title: str
    """The kind in words."""
    function: Function
    dtype: type = np.int64
    """The data type of training labels."""

    @abstractmethod
    def read(self, label: Any, names: Collection[str]) -> Any:
        """Return the label of an example as a name, several names, or a number.

        Raises:
            UnknownLabel: the label is not one of the names, or not a number.
        """

    @abstractmethod
    def predict(self, logits: np.ndarray, names: Sequence[str]) -> Any:
        """Return the predicted label for logits (K,)."""

    @abstractmethod
    def encode(self, label: Any, ids: Mapping[str, int]) -> Any:
        """Return the label of an example in the form for training: an id, a list of 0 and 1, or a number.

        Args:
            label: the label of the example.
            ids: the id of each label name.

        Raises:
            UnknownLabel: the label is not one of the names, or not a number.
        """

    @abstractmethod
    def scores(self, true: Sequence[Any], predicted: Sequence[Any], names: Sequence[str]) -> dict[str, float]:
        """Return the metrics of predicted labels; a correlation that is NaN becomes 0."""

    @abstractmethod
    def main_metric(self, names: Sequence[str]) -> str:
        """Return the name of the metric that selects a model."""

    def baseline(self, true: Iterable[Any]) -> dict[str, float]:
        """Return the metrics of the best prediction that ignores the input; empty if not defined."""
        return {}

    @abstractmethod
    def prior_loss(self, labels: Sequence[Any]) -> float:
        """Return the loss of the best prediction that ignores the input, for these training labels."""


class _ClassLabels(LabelKind):
    """One class per example."""

    problem_type = "single_label_classification"
    title = "single label classification"
    function = "softmax"

    def read(self, label: Any, names: Collection[str]) -> Any:
        if isinstance(label, tuple):
            if len(label) != 1:
                raise UnknownLabel(
                    f"the labels are {short(label)}. Expected exactly one, or "
                    "problem_type='multi_label_classification'"
                )
            (label,) = label
        return _name(label, names)

    def encode(self, label: Any, ids: Mapping[str, int]) -> int:
        return ids[_ClassLabels.read(self, label, ids)]  # for `TAGS` the label of one word

    def predict(self, logits: np.ndarray, names: Sequence[str]) -> str:
        return names[int(logits.argmax())]

    def scores(self, true: Sequence[Any], predicted: Sequence[Any], names: Sequence[str]) -> dict[str, float]:
        return class_scores(true, predicted, labels=names)

    def main_metric(self, names: Sequence[str]) -> str:
        return "accuracy"

    def baseline(self, true: Iterable[Any]) -> dict[str, float]:
        counts = Counter(true)
        return {"accuracy": max(counts.values()) / counts.total()}

    def prior_loss(self, labels: Sequence[Any]) -> float:
        return entropy(Counter(labels))


class _SeveralLabels(LabelKind):
    """Any number of classes per example."""

    problem_type = "multi_label_classification"
    title = "multi label classification"
    function = "sigmoid"
    dtype = np.float32

    def read(self, label: Any, names: Collection[str]) -> tuple[str, ...]:
        given = {_name(one, names) for one in as_tuple(label)}
        return tuple(name for name in names if name in given)

    def encode(self, label: Any, ids: Mapping[str, int]) -> list[float]:
        given = self.read(label, ids)
        return [float(name in given) for name in ids]

    def predict(self, logits: np.ndarray, names: Sequence[str]) -> tuple[str, ...]:
        # All labels with a probability over one half.
        return tuple(name for name, is_so in zip(names, (logits > 0).tolist(), strict=True) if is_so)

    def scores(self, true: Sequence[Any], predicted: Sequence[Any], names: Sequence[str]) -> dict[str, float]:
        return multi_label_scores(true, predicted, labels=names)

    def main_metric(self, names: Sequence[str]) -> str:
        return "f1_micro"

    def baseline(self, true: Iterable[Any]) -> dict[str, float]:
        """Return the metrics of always predicting the same labels, the best ones for each metric."""
        labels = list(map(as_tuple, true))
        counts = Counter(chain.from_iterable(labels))
        right, f1 = 0, 0.0
        for size, (_, count) in enumerate(counts.most_common(), start=1):
            right += count
            f1 = max(f1, 2 * right / (size * len(labels) + counts.total()))
        return {"accuracy": max(Counter(labels).values()) / len(labels), "f1_micro": f1}

    def prior_loss(self, labels: Sequence[Any]) -> float:
        share = np.clip(np.mean(labels, axis=0), 1e-9, 1 - 1e-9)  # (K,)
        return float(-(share * np.log(share) + (1 - share) * np.log(1 - share)).mean())


class _Numbers(LabelKind):
    """One number per example."""

    problem_type = "regression"
    title = "regression"
    function = "none"
    dtype = np.float32

    def read(self, label: Any, names: Collection[str]) -> float:
        number = number_of(label)
        if number is None:
            hint = f". Write it {NUMBER_FORM}." if is_number_with_comma(label) else ""
            raise UnknownLabel(f"the label {short(label)} is not a number{hint}")
        return number

    def encode(self, label: Any, ids: Mapping[str, int]) -> float:
        return self.read(label, ids)

    def predict(self, logits: np.ndarray, names: Sequence[str]) -> float:
        return logits.tolist()[0]

    def scores(self, true: Sequence[Any], predicted: Sequence[Any], names: Sequence[str]) -> dict[str, float]:
        found = number_scores(true, predicted)
        return found | {name: 0.0 for name in ("pearson", "spearman") if math.isnan(found[name])}

    def main_metric(self, names: Sequence[str]) -> str:
        return "pearson"

    def prior_loss(self, labels: Sequence[Any]) -> float:
        return float(np.var(labels))


class _Tags(_ClassLabels):
    """One class per word of a sentence. The names may follow a tagging scheme (B-PER)."""

    problem_type = None

    def read(self, label: Any, names: Collection[str]) -> tuple[str, ...]:
        for one in label or ():
            if one not in names and one != IGNORED:
                raise UnknownLabel(f"the label {short(one)} is unknown{did_you_mean(one, names)}")
        return label

    def scores(self, true: Sequence[Any], predicted: Sequence[Any], names: Sequence[str]) -> dict[str, float]:
        """Return the scores of spans, or of words if the names follow no scheme, without ignored words."""
        pairs = [
            [pair for pair in zip(*sides, strict=True) if pair[0] != IGNORED]
            for sides in zip(true, predicted, strict=True)
        ]
        true, predicted = ([[pair[side] for pair in sentence] for sentence in pairs] for side in (0, 1))
        if of_scheme(names):
            return span_scores(true, predicted).summary()
        flat_true, flat_predicted = (list(chain.from_iterable(side)) for side in (true, predicted))
        return class_scores(flat_true, flat_predicted, labels=names)

    def main_metric(self, names: Sequence[str]) -> str:
        """Return F1 of spans if the names follow a scheme, otherwise accuracy."""
        return "f1" if of_scheme(names) else "accuracy"

    def baseline(self, true: Iterable[Any]) -> dict[str, float]:
        return super().baseline(label for label in chain.from_iterable(true) if label != IGNORED)


CLASS = _ClassLabels()
"""One class of K per example: labels (B,) int64, cross-entropy."""
SEVERAL = _SeveralLabels()
"""Any number of K classes per example: labels (B, K) float32, each 0 or 1, binary cross-entropy."""
NUMBER = _Numbers()
"""One number per example: labels (B,) float32, squared error."""
TAGS = _Tags()
"""One class of K per word: labels (B, T) int64, -100 for tokens without a label, cross-entropy."""
KINDS: dict[ProblemType, LabelKind] = {
    "single_label_classification": CLASS,
    "multi_label_classification": SEVERAL,
    "regression": NUMBER,
}


def kind_of(config: AlbertConfig) -> LabelKind:
    """Return the kind of a model's labels.

    Without a problem type, several labels are classes. A single label is an independent decision (`SEVERAL`),
    as in the pipelines of transformers.
    """
    if config.problem_type is None:
        return CLASS if config.num_labels > 1 else SEVERAL
    return KINDS[config.problem_type]  # type: ignore[index]  # the config has checked it


def entropy(counts: Counter[Any]) -> float:
    """Return the cross-entropy of always predicting these frequencies."""
    shares = np.array(list(counts.values())) / counts.total()
    return float(-(shares * np.log(shares)).sum())


def is_number_with_comma(label: Any) -> bool:
    """Return whether a label looks like a number with a decimal comma or a thousands separator."""
    return isinstance(label, str) and _WITH_COMMA.fullmatch(label) is not None


_WITH_COMMA = re.compile(r"[+-]?[0-9]+(,[0-9]+)+(\.[0-9]+)?")


def as_tuple(label: Any) -> tuple[Any, ...]:
    """Return the labels of an example as a tuple, also if it has a single label."""
    return label if isinstance(label, tuple) else (label,)


def _name(label: str | float, names: Collection[str]) -> str:
    if str(label) in names:
        return str(label)
    whole = whole_name(label)
    if whole is not None and whole in names:
        return whole
    raise UnknownLabel(f"the label {short(label)} is unknown{did_you_mean(str(label), names)}")
