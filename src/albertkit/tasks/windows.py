"""Windows over a long text: which of them answers for which token.

In the overlap of two windows a token is seen twice. The window in which it has more text around it counts, as
in the original's answers to SQuAD ("maximum context").
"""

from collections.abc import Sequence
from itertools import pairwise


def owned(windows: Sequence[range]) -> list[range]:
    """Return for each window the tokens that it answers for: together all tokens, each once.

    Args:
        windows: ranges that begin one after the other and leave nothing out.
    """
    # Two neighbours meet in the middle of their overlap; where it has a middle token, the first has it.
    middles = [(one.stop + two.start + 1) // 2 for one, two in pairwise(windows)]
    starts = [windows[0].start, *middles]
    stops = [*middles, windows[-1].stop]
    return [range(start, stop) for start, stop in zip(starts, stops, strict=True)]


def overlap(wanted: int, *, room: int) -> int:
    """Return how many tokens a window repeats of the one before: as wanted, but at most half of its room."""
    return min(wanted, room // 2)
