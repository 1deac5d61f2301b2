"""Metrics of classes and numbers: what GLUE's tasks are measured by.

Labels are names, as examples and predictions hold them. All values are fractions (correlations from -1 to 1).
Computed by scikit-learn and SciPy, with the choices of GLUE's official scripts.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import numpy as np

from albertkit.errors import ConfigError, DataError
from albertkit.extras import optional
from albertkit.metrics.comparing import check_same_length

metrics = optional("sklearn.metrics", extra="train")
stats = optional("scipy.stats", extra="train")

Average = Literal["binary", "macro", "micro"]
"""F1 of one class; the mean over the classes; or over all decisions together."""
Labels = Sequence[tuple[str, ...]]


def accuracy(references: Sequence[str], predictions: Sequence[str]) -> float:
    """Return the share of examples whose label is right."""
    check_same_length(references, predictions)
    return sum(map(str.__eq__, references, predictions)) / len(references)


def f1(
    references: Sequence[str],
    predictions: Sequence[str],
    *,
    labels: Sequence[str],
    average: Average = "binary",
) -> float:
    """Return the harmonic mean of precision and recall; 0 where a class is neither there nor predicted.

    Args:
        references: the true labels.
        predictions: as many predicted ones.
        labels: all labels. For "binary" there are two, and the second is the one that is sought ("1", as in
            MRPC and QQP).
        average: see `Average`.

    Raises:
        ConfigError: an unknown average, or "binary" with more than two labels.
    """
    check_same_length(references, predictions)
    if average not in get_args(Average):
        raise ConfigError(f"average is {average!r}; expected one of {', '.join(get_args(Average))}")
    if average == "binary" and len(labels) != 2:
        raise ConfigError(f"average is 'binary' with {len(labels)} labels; expected 2, or 'macro' or 'micro'")
    choice = {"pos_label": labels[1]} if average == "binary" else {"labels": list(labels)}
    return float(
        metrics.f1_score(list(references), list(predictions), average=average, zero_division=0.0, **choice)
    )


def matthews(references: Sequence[str], predictions: Sequence[str]) -> float:
    """Return Matthews' correlation coefficient (CoLA); 0 where either side is constant."""
    check_same_length(references, predictions)
    return float(metrics.matthews_corrcoef(list(references), list(predictions)))


def confusion_matrix(
    references: Sequence[str], predictions: Sequence[str], *, labels: Sequence[str]
) -> np.ndarray:
    """Return the counts (K, K): row = true label, column = predicted label, in the order of `labels`.

    Raises:
        DataError: a label that is not in `labels`.
    """
    check_same_length(references, predictions)
    if unknown := {*references, *predictions} - {*labels}:
        raise DataError(f"the labels {sorted(unknown)} are none of {', '.join(labels)}")
    return metrics.confusion_matrix(list(references), list(predictions), labels=list(labels))


def pearson(references: Sequence[float], predictions: Sequence[float]) -> float:
    """Return Pearson's correlation (STS-B); not a number where either side is constant or has one value."""
    return _correlation(stats.pearsonr, references, predictions)


def spearman(references: Sequence[float], predictions: Sequence[float]) -> float:
    """Return the correlation of the ranks (STS-B); not a number where either side is constant or has one."""
    return _correlation(stats.spearmanr, references, predictions)


def _correlation(
    function: Callable[..., Any], references: Sequence[float], predictions: Sequence[float]
) -> float:
    check_same_length(references, predictions)
    if len(references) < 2:
        return math.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.ConstantInputWarning)  # the value says it
        return float(function(np.asarray(references, float), np.asarray(predictions, float)).statistic)


def class_scores(
    references: Sequence[str], predictions: Sequence[str], *, labels: Sequence[str]
) -> dict[str, float]:
    """Return `accuracy`, `matthews`, `f1_macro` and, for two labels, `f1` of the second.

    Args:
        references: the true labels.
        predictions: as many predicted ones.
        labels: all labels in the model's order.
    """
    scores = {
        "accuracy": accuracy(references, predictions),
        "matthews": matthews(references, predictions),
        "f1_macro": f1(references, predictions, labels=labels, average="macro"),
    }
    if len(labels) == 2:
        scores["f1"] = f1(references, predictions, labels=labels)
    return scores


def multi_label_scores(references: Labels, predictions: Labels, *, labels: Sequence[str]) -> dict[str, float]:
    """Return `accuracy` (all labels of an example right), `f1_micro` and `f1_macro` over labels.

    Args:
        references: the true labels of each example.
        predictions: the predicted ones.
        labels: all labels.

    Raises:
        DataError: a label that is not in `labels`.
    """
    check_same_length(references, predictions)
    true, predicted = (_indicators(side, labels) for side in (references, predictions))
    return {
        "accuracy": float((true == predicted).all(axis=1).mean()),
        "f1_micro": float(metrics.f1_score(true, predicted, average="micro", zero_division=0.0)),
        "f1_macro": float(metrics.f1_score(true, predicted, average="macro", zero_division=0.0)),
    }


def _indicators(examples: Labels, labels: Sequence[str]) -> np.ndarray:
    """Return the labels of N examples as (N, K) of 0 and 1."""
    column = {label: number for number, label in enumerate(labels)}
    matrix = np.zeros((len(examples), len(labels)), int)
    for row, names in enumerate(examples):
        for name in names:
            if name not in column:
                raise DataError(f"the label {name!r} is none of {', '.join(labels)}")
            matrix[row, column[name]] = 1
    return matrix


def number_scores(references: Sequence[float], predictions: Sequence[float]) -> dict[str, float]:
    """Return `pearson`, `spearman` and `mean_squared_error` of a regression."""
    difference = np.asarray(references, float) - np.asarray(predictions, float)
    return {
        "pearson": pearson(references, predictions),
        "spearman": spearman(references, predictions),
        "mean_squared_error": float((difference**2).mean()),
    }
