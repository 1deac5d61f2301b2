"""Accuracy of multiple choice, and for RACE the accuracy of each of its two parts."""

from collections.abc import Sequence

from albertkit.metrics.comparing import check_same_length

RACE_PARTS = ("middle", "high")
"""The parts of RACE: exams of middle and high schools. The ids of its examples begin with the part."""


def choice_scores(
    references: Sequence[int], predictions: Sequence[int], *, ids: Sequence[str] = ()
) -> dict[str, float]:
    """Return `accuracy`, and `middle` and `high` for the parts of RACE that are present.

    Args:
        references: the index of the right choice of each example.
        predictions: the index of the predicted choice of each example.
        ids: the ids of the examples, which begin with the part of RACE; empty for other data.
    """
    check_same_length(references, predictions)
    right = [true == predicted for true, predicted in zip(references, predictions, strict=True)]
    scores = {"accuracy": sum(right) / len(right)}
    if ids:
        check_same_length(references, ids)
        for part in RACE_PARTS:
            of_part = [one for one, name in zip(right, ids, strict=True) if name.startswith(part)]
            if of_part:
                scores[part] = sum(of_part) / len(of_part)
    return scores
