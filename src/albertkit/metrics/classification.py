"""Metrics of classification and regression, as in GLUE.

Labels are names, as in examples and predictions. All values are fractions; correlations range from -1 to 1.
scikit-learn and SciPy compute the metrics, with the same conventions as GLUE's official scripts.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from albertkit.errors import DataError
from albertkit.extras import optional
from albertkit.metrics.comparing import check_same_length

metrics = optional("sklearn.metrics", extra="train")
stats = optional("scipy.stats", extra="train")

Labels = Sequence[tuple[str, ...]]


def accuracy(references: Sequence[str], predictions: Sequence[str]) -> float:
    """Return the share of examples with a correctly predicted label."""
    check_same_length(references, predictions)
    return sum(map(str.__eq__, references, predictions)) / len(references)


def confusion_matrix(
    references: Sequence[str], predictions: Sequence[str], *, labels: Sequence[str]
) -> np.ndarray:
    """Return the counts (K, K): row = true label, column = predicted label, in the order of `labels`.

    Raises:
        DataError: a label is not in `labels`.
    """
    _check_labels(references, predictions, labels)
    return metrics.confusion_matrix(list(references), list(predictions), labels=list(labels))


def _check_labels(references: Sequence[str], predictions: Sequence[str], labels: Sequence[str]) -> None:
    check_same_length(references, predictions)
    if unknown := {*references, *predictions} - {*labels}:
        raise DataError(f"the labels {sorted(unknown)} are not among {', '.join(labels)}")


def pearson(references: Sequence[float], predictions: Sequence[float]) -> float:
    """Return Pearson's correlation (STS-B), or NaN if either side is constant or has a single value."""
    return _correlation(stats.pearsonr, references, predictions)


def spearman(references: Sequence[float], predictions: Sequence[float]) -> float:
    """Return the rank correlation (STS-B), or NaN if either side is constant or has a single value."""
    return _correlation(stats.spearmanr, references, predictions)


def _correlation(
    function: Callable[..., Any], references: Sequence[float], predictions: Sequence[float]
) -> float:
    check_same_length(references, predictions)
    if len(references) < 2:
        return math.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.ConstantInputWarning)  # NaN shows it
        return float(function(np.asarray(references, float), np.asarray(predictions, float)).statistic)


def class_scores(
    references: Sequence[str], predictions: Sequence[str], *, labels: Sequence[str]
) -> dict[str, float]:
    """Return `accuracy`, `matthews`, `f1_macro` and, for two labels, `f1` of the second.

    F1 is 0 for a class that is neither present nor predicted. Matthews' correlation coefficient (CoLA) is 0
    if either side is constant.

    Args:
        references: the true labels.
        predictions: the predicted labels, as many.
        labels: all labels in the model's order. With two labels, the second is the positive class ("1", as in
            MRPC and QQP).

    Raises:
        DataError: a label is not in `labels`.
    """
    _check_labels(references, predictions, labels)
    true, predicted = list(references), list(predictions)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="A single label", category=UserWarning)  # the result is 0
        matthews = float(metrics.matthews_corrcoef(true, predicted))
    scores = {
        "accuracy": accuracy(true, predicted),
        "matthews": matthews,
        "f1_macro": _f1(true, predicted, labels=list(labels), average="macro"),
    }
    if len(labels) == 2:
        scores["f1"] = _f1(true, predicted, pos_label=labels[1], average="binary")
    return scores


def _f1(references: Any, predictions: Any, **options: Any) -> float:
    return float(metrics.f1_score(references, predictions, zero_division=0.0, **options))


def multi_label_scores(references: Labels, predictions: Labels, *, labels: Sequence[str]) -> dict[str, float]:
    """Return `accuracy` (all labels of an example right), `f1_micro` and `f1_macro` over labels.

    Args:
        references: the true labels of each example.
        predictions: the predicted labels of each example.
        labels: all labels.

    Raises:
        DataError: a label is not in `labels`.
    """
    check_same_length(references, predictions)
    true, predicted = (_indicators(side, labels) for side in (references, predictions))
    # scikit-learn reads a single column as two classes, 0 and 1. Only 1 is a label.
    options = {"labels": [1]} if len(labels) == 1 else {}
    return {
        "accuracy": float((true == predicted).all(axis=1).mean()),
        "f1_micro": _f1(true, predicted, average="micro", **options),
        "f1_macro": _f1(true, predicted, average="macro", **options),
    }


def multi_label_cross_entropy(
    references: Labels, probabilities: Sequence[Sequence[float]], *, labels: Sequence[str]
) -> float:
    """Return the mean binary cross-entropy over examples and labels. It needs no threshold.

    Args:
        references: the true labels of each of N examples.
        probabilities: the probability of each label, (N, K).
        labels: all K labels.

    Raises:
        DataError: a label is not in `labels`.
    """
    check_same_length(references, probabilities)
    true = _indicators(references, labels) == 1
    found = np.asarray(probabilities, float)
    right = np.where(true, found, 1 - found)  # (N, K), the probability of each right decision
    return float(-np.log(right.clip(min=_LEAST)).mean())


_LEAST = 1e-7  # in float32, a probability can be exactly 0 or 1


def _indicators(examples: Labels, labels: Sequence[str]) -> np.ndarray:
    """Return the labels of N examples as an array (N, K) of 0 and 1."""
    column = {label: number for number, label in enumerate(labels)}
    matrix = np.zeros((len(examples), len(labels)), int)
    for row, names in enumerate(examples):
        for name in names:
            if name not in column:
                raise DataError(f"the label {name!r} is not among {', '.join(labels)}")
            matrix[row, column[name]] = 1
    return matrix


def number_scores(references: Sequence[float], predictions: Sequence[float]) -> dict[str, float]:
    """Return `pearson`, `spearman` and `mean_squared_error` of a regression task."""
    difference = np.asarray(references, float) - np.asarray(predictions, float)
    return {
        "pearson": pearson(references, predictions),
        "spearman": spearman(references, predictions),
        "mean_squared_error": float((difference**2).mean()),
    }
