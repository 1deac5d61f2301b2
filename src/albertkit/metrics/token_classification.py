"""F1 of chunks and entities by span, with the rules of the official CoNLL script (conlleval).

A label is O, or a prefix, a hyphen and a type, such as B-LOC. A span is the longest sequence of words of one
type that no prefix splits: B and S begin a span, E and S end a span (BILOU writes L and U for E and S). This
rule covers IOB1, IOB2, IOE, BIOES and BILOU. It also finds spans in sequences that no scheme allows: a span
begins at an I after O, and where the type changes. Labels without types (B, I, O) are spans of one type.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from albertkit.errors import DataError
from albertkit.metrics.comparing import check_same_length

OUTSIDE = "O"
SCHEME_LABEL = re.compile(r"([BIELSU])-(.+)")
"""Prefix and type of a label in any scheme."""
BEGINS, ENDS = "BSU", "ELSU"
"""Prefixes of labels that begin or end a span."""
_PREFIXES = {*"BIELSU"}
ONLY_TYPE = "ENTITY"
"""The type of all spans if labels have no types."""


class Span(NamedTuple):
    """Words `start:end` of a sentence that form a span of one type."""

    type: str
    start: int
    end: int


@dataclass(frozen=True)
class SpanScore:
    """The counts of the spans of one type, or of all types."""

    found: int
    predicted: int
    true: int

    @property
    def precision(self) -> float:
        """The share of the predicted spans that are right; 0 without predictions."""
        return self.found / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """The share of the true spans that were predicted; 0 without true spans."""
        return self.found / self.true if self.true else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        return 2 * self.found / (self.predicted + self.true) if self.found else 0.0


@dataclass(frozen=True)
class SpanScores:
    """The scores of all spans together and by type, and the accuracy over words.

    Accuracy compares labels with their prefixes. Different labels can mean the same spans (B-PER or I-PER
    after O), so it can be below 1 although F1 is 1.
    """

    overall: SpanScore
    by_type: dict[str, SpanScore]
    accuracy: float

    def summary(self) -> dict[str, float]:
        """Return `f1`, `precision`, `recall` over all spans, and `accuracy` over words."""
        return {
            "f1": self.overall.f1,
            "precision": self.overall.precision,
            "recall": self.overall.recall,
            "accuracy": self.accuracy,
        }


def spans(labels: Sequence[str]) -> list[Span]:
    """Return the spans of a sentence in order.

    Raises:
        DataError: a label is neither O nor prefix-type nor a prefix.
    """
    found: list[Span] = []
    before, start = (OUTSIDE, ""), 0
    for position, label in enumerate([*labels, OUTSIDE]):
        prefix, kind = split_label(label)
        goes_on = kind == before[1] and prefix not in BEGINS and before[0] not in ENDS
        if position and not goes_on:
            if before[0] != OUTSIDE:
                found.append(Span(before[1], start, position))
            start = position
        before = prefix, kind
    return found


def of_scheme(labels: Iterable[str]) -> bool:
    """Return whether labels follow a scheme and have spans to score, unlike part-of-speech tags."""
    labels = set(labels)
    inside = labels - {OUTSIDE}
    return has_no_types(labels) or (bool(inside) and all(SCHEME_LABEL.fullmatch(label) for label in inside))


def has_no_types(labels: Iterable[str]) -> bool:
    """Return whether labels are O and the prefixes of a scheme without types, B or I among them."""
    labels = set(labels)
    return OUTSIDE in labels and bool(labels & {"B", "I"}) and labels <= {OUTSIDE, *_PREFIXES}


def split_label(label: str) -> tuple[str, str]:
    """Return the prefix and the type of a label of a scheme.

    Raises:
        DataError: the label is neither O nor prefix-type nor a prefix.
    """
    if label == OUTSIDE:
        return OUTSIDE, ""
    if label in _PREFIXES:
        return label, ONLY_TYPE
    match = SCHEME_LABEL.fullmatch(label)
    if match is None:
        raise DataError(
            f"the label {label!r} follows no scheme. Expected O, or B, I, E, S, L, U and '-TYPE'."
        )
    return match[1], match[2]


def span_scores(references: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]]) -> SpanScores:
    """Compare the labels of sentences by span.

    Args:
        references: the true labels of the words of each sentence.
        predictions: the predicted labels.

    Raises:
        DataError: the numbers of sentences or words differ, or a label follows no scheme.
    """
    check_same_length(references, predictions)
    found: Counter[str] = Counter()
    predicted: Counter[str] = Counter()
    true: Counter[str] = Counter()
    words = right = 0
    for number, (reference, prediction) in enumerate(zip(references, predictions, strict=True)):
        if len(reference) != len(prediction):
            raise DataError(
                f"sentence {number} has {len(reference)} words and {len(prediction)} predicted labels. "
                "Expected one for each word."
            )
        true_spans, predicted_spans = set(spans(reference)), set(spans(prediction))
        true.update(span.type for span in true_spans)
        predicted.update(span.type for span in predicted_spans)
        found.update(span.type for span in true_spans & predicted_spans)
        words += len(reference)
        right += sum(map(str.__eq__, reference, prediction))
    return SpanScores(
        overall=SpanScore(found.total(), predicted.total(), true.total()),
        by_type={
            kind: SpanScore(found[kind], predicted[kind], true[kind])
            for kind in sorted(true.keys() | predicted.keys())
        },
        accuracy=right / words if words else 0.0,
    )
