"""The reliability of a model: its calibration, and its score by the length of the examples.

A calibrated model is right as often as its probabilities say (Guo et al. 2017, On Calibration of Modern
Neural Networks).

Examples are divided into bins by their confidence, the probability of the predicted label. In each bin the
mean confidence should equal the share of right predictions. The expected calibration error (ECE) is the mean
difference, weighted by the number of examples in the bin.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from albertkit.errors import DataError
from albertkit.metrics.comparing import check_same_length


@dataclass(frozen=True)
class ReliabilityBin:
    """The examples with a confidence in (lower, upper]; the first bin includes its lower edge."""

    lower: float
    upper: float
    count: int
    confidence: float | None
    """The mean confidence, or None without examples."""
    accuracy: float | None


@dataclass(frozen=True)
class Calibration:
    """The reliability diagram and the expected calibration error."""

    expected_error: float
    bins: tuple[ReliabilityBin, ...]


def calibration(confidences: Sequence[float], right: Sequence[bool], *, bins: int = 15) -> Calibration:
    """Return the reliability of predictions in bins of equal width.

    Args:
        confidences: the probability of each predicted label.
        right: whether the prediction is right.
        bins: number of bins; the default is the paper's.

    Raises:
        DataError: a confidence is outside of 0 to 1, or the lengths differ.
    """
    check_same_length(right, confidences)
    confidence, is_right = np.asarray(confidences, float), np.asarray(right, float)
    if not ((confidence >= 0) & (confidence <= 1)).all():
        raise DataError("a confidence is not between 0 and 1. Expected probabilities, not logits.")
    edges = np.linspace(0, 1, bins + 1)
    bin_of = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, bins - 1)
    found = []
    error = 0.0
    for place in range(bins):
        inside = bin_of == place
        count = int(inside.sum())
        mean = float(confidence[inside].mean()) if count else None
        share = float(is_right[inside].mean()) if count else None
        if mean is not None and share is not None:
            error += count / len(confidence) * abs(mean - share)
        found.append(ReliabilityBin(float(edges[place]), float(edges[place + 1]), count, mean, share))
    return Calibration(error, tuple(found))


@dataclass(frozen=True)
class LengthBin:
    """The number and the score of examples of similar length."""

    shortest: int
    longest: int
    count: int
    score: float


def score_by_length(
    lengths: Sequence[int], score: Callable[[Sequence[int]], float], *, bins: int = 8
) -> list[LengthBin]:
    """Return the score in up to `bins` groups of similar size, from short to long examples.

    Examples of equal length are in the same group, so there may be fewer groups.

    Args:
        lengths: length of each example, usually in tokens.
        score: function from the indices of some examples to their score.
        bins: maximum number of groups.
    """
    check_same_length(lengths, lengths)
    given = np.asarray(lengths)
    upper = np.unique(np.quantile(given, np.linspace(0, 1, bins + 1)[1:], method="inverted_cdf"))
    groups = np.searchsorted(upper, given, side="left")
    found = []
    for group in range(len(upper)):
        inside = np.flatnonzero(groups == group)
        shortest, longest = int(given[inside].min()), int(given[inside].max())
        found.append(LengthBin(shortest, longest, len(inside), float(score(inside.tolist()))))
    return found
