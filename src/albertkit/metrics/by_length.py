"""A score by the length of the examples: whether long texts are harder."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from albertkit.metrics.checks import check_same_length


@dataclass(frozen=True)
class LengthBin:
    """Examples of similar length, and their score."""

    shortest: int
    longest: int
    count: int
    score: float


def score_by_length(
    lengths: Sequence[int], score: Callable[[Sequence[int]], float], *, bins: int = 8
) -> list[LengthBin]:
    """Return the score in up to `bins` groups of about as many examples, from short to long.

    Examples of one length are in one group, so there may be fewer groups.

    Args:
        lengths: of each example, in whatever is counted (tokens, mostly).
        score: from the numbers of some examples to their score, any metric.
        bins: most groups.
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
