"""Metrics with the values of the official scripts, as fractions; correlations range from -1 to 1.

Labels are names and answers are texts, as in examples and predictions, so no metric needs a model. Metrics of
classes and numbers are those of scikit-learn and SciPy, with the conventions of GLUE.

Shapes: N examples or queries, M candidates, K labels, H dimensions of a vector.
"""

import math
import re
import string
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set, Sized
from itertools import compress
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from albertkit.errors import ConfigError, DataError
from albertkit.extras import optional

metrics = optional("sklearn.metrics", extra="train")
stats = optional("scipy.stats", extra="train")


def is_better(value: float, other: float, *, lower: bool = False) -> bool:
    """Return whether `value` is strictly better than `other`. NaN is worse than every number.

    Args:
        value: value of a metric.
        other: value of the same metric to compare with.
        lower: whether lower values are better.
    """
    if math.isnan(value) or math.isnan(other):
        return math.isnan(other) and not math.isnan(value)
    return value < other if lower else value > other


def _check_lengths(references: Sized, predictions: Sized) -> None:
    if len(references) != len(predictions):
        sizes = f"{len(predictions)} predictions for {len(references)} references"
        raise DataError(f"{sizes}. Expected one each.")
    if not len(references):
        raise DataError("no predictions. Expected at least one.")


# --- classes


def class_scores(
    references: Sequence[str], predictions: Sequence[str], *, labels: Sequence[str]
) -> dict[str, float]:
    """Return `accuracy`, `matthews`, `f1_macro` and, for two labels, `f1` of the second.

    F1 leaves out classes that are neither present nor predicted, as scikit-learn does. Matthews' correlation
    coefficient (CoLA) is 0 if either side is constant.

    Args:
        references: the true labels.
        predictions: the predicted labels, as many; None for no answer, which counts as wrong.
        labels: all labels in the model's order. With two labels, the second is the positive class ("1", as in
            MRPC and QQP).

    Raises:
        DataError: a label is not in `labels`, or the numbers of labels differ.
    """
    _check_lengths(references, predictions)
    true, predicted = list(references), ["" if label is None else label for label in predictions]
    if unknown := {*true, *predicted} - {*labels, ""}:
        raise DataError(f"the labels {sorted(unknown)} are not among {', '.join(labels)}")
    used = [label for label in labels if label in {*true, *predicted}]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="A single label", category=UserWarning)  # the result is 0
        matthews = float(metrics.matthews_corrcoef(true, predicted))
    scores = {
        "accuracy": sum(map(str.__eq__, true, predicted)) / len(true),
        "matthews": matthews,
        "f1_macro": _f1(true, predicted, labels=used, average="macro"),
    }
    if len(labels) == 2:
        scores["f1"] = _f1(true, predicted, labels=[labels[1]], average="macro")
    return scores


def _f1(references: Any, predictions: Any, **options: Any) -> float:
    return float(metrics.f1_score(references, predictions, zero_division=0.0, **options))


def confusion_matrix(
    references: Sequence[str], predictions: Sequence[str], *, labels: Sequence[str]
) -> np.ndarray:
    """Return the counts (K, K): row = true label, column = predicted label, in the order of `labels`."""
    return metrics.confusion_matrix(list(references), list(predictions), labels=list(labels))


def scores_by_label(
    counts: Mapping[tuple[str, str], int], *, labels: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Return `precision`, `recall`, `f1` and `count` of each label; a score that is undefined is 0.

    Args:
        counts: the number of decisions by true and predicted label.
        labels: the labels of the result, in order.
    """
    true, predicted = Counter[str](), Counter[str]()
    for (of_example, of_model), count in counts.items():
        true[of_example] += count
        predicted[of_model] += count
    right = {label: counts.get((label, label), 0) for label in labels}
    return {
        label: {
            "precision": right[label] / max(1, predicted[label]),
            "recall": right[label] / max(1, true[label]),
            "f1": 2 * right[label] / max(1, predicted[label] + true[label]),
            "count": true[label],
        }
        for label in labels
    }


def multi_label_scores(
    references: Sequence[tuple[str, ...]], predictions: Sequence[tuple[str, ...]], *, labels: Sequence[str]
) -> dict[str, float]:
    """Return `accuracy` (all labels of an example right), `f1_micro` and `f1_macro` over labels.

    Args:
        references: the true labels of each example.
        predictions: the predicted labels of each example.
        labels: all labels.

    Raises:
        DataError: a label is not in `labels`, or the numbers of examples differ.
    """
    _check_lengths(references, predictions)
    true, predicted = (_indicators(side, labels) for side in (references, predictions))
    # scikit-learn reads a single column as two classes, 0 and 1. Only 1 is a label.
    options = {"labels": [1]} if len(labels) == 1 else {}
    return {
        "accuracy": float((true == predicted).all(axis=1).mean()),
        "f1_micro": _f1(true, predicted, average="micro", **options),
        "f1_macro": _f1(true, predicted, average="macro", **options),
    }


def multi_label_cross_entropy(
    references: Sequence[tuple[str, ...]], probabilities: Sequence[Sequence[float]], *, labels: Sequence[str]
) -> float:
    """Return the mean binary cross-entropy over examples and labels. It needs no threshold.

    Args:
        references: the true labels of each of N examples.
        probabilities: the probability of each label, (N, K).
        labels: all K labels.

    Raises:
        DataError: a label is not in `labels`, or the numbers of examples differ.
    """
    _check_lengths(references, probabilities)
    true, probability = _indicators(references, labels) == 1, np.asarray(probabilities, float)
    right = np.where(true, probability, 1 - probability)  # (N, K), the probability of each right decision
    return float(-np.log(right.clip(min=1e-7)).mean())  # in float32, a probability can be exactly 0 or 1


def f1_threshold(references: Sequence[bool], probabilities: Sequence[float] | np.ndarray) -> float:
    """Return the threshold that a label's probability must exceed for the best F1.

    Of all thresholds with the best F1, it is 0.5 if this is one of them, otherwise the middle of the interval
    nearest to 0.5, rounded to as few digits as keep it in the interval. Without an example of the label, it
    is 0.5.

    Args:
        references: whether each example has the label.
        probabilities: the probability of the label for each example.
    """
    _check_lengths(references, probabilities)
    if not any(references):
        return 0.5
    precision, recall, uppers = metrics.precision_recall_curve(references, probabilities)
    f1 = (2 * precision * recall / np.maximum(precision + recall, 1e-12))[:-1]  # the last predicts none
    intervals = np.stack([np.append(0.0, uppers[:-1]), uppers], axis=1)[np.isclose(f1, f1.max())]
    distances = np.maximum(intervals[:, 0] - 0.5, 0.5 - np.nextafter(intervals[:, 1], 0)).clip(min=0)
    lower, upper = map(float, intervals[int(distances.argmin())])  # examples of probability `upper` pass
    if lower <= 0.5 < upper:
        return 0.5
    middles = (round((lower + upper) / 2, digits) for digits in range(2, 18))
    return next((middle for middle in middles if lower <= middle < upper), lower)


def _indicators(examples: Sequence[tuple[str, ...]], labels: Sequence[str]) -> np.ndarray:
    """Return the labels of N examples as an array (N, K) of 0 and 1."""
    if unknown := {name for names in examples for name in names} - {*labels}:
        raise DataError(f"the labels {sorted(unknown)} are not among {', '.join(labels)}")
    return np.array([[name in names for name in labels] for names in examples], int)


# --- numbers


def number_scores(references: Sequence[float], predictions: Sequence[float]) -> dict[str, float]:
    """Return `pearson`, `spearman` and `mean_squared_error` of a regression task."""
    difference = np.asarray(references, float) - np.asarray(predictions, float)
    return {
        "pearson": pearson(references, predictions),
        "spearman": spearman(references, predictions),
        "mean_squared_error": float((difference**2).mean()),
    }


def pearson(references: Sequence[float], predictions: Sequence[float]) -> float:
    """Return Pearson's correlation (STS-B), or NaN if either side is constant or has a single value."""
    return _correlation(stats.pearsonr, references, predictions)


def spearman(references: Sequence[float], predictions: Sequence[float]) -> float:
    """Return the rank correlation (STS-B), or NaN if either side is constant or has a single value."""
    return _correlation(stats.spearmanr, references, predictions)


def _correlation(
    function: Callable[..., Any], references: Sequence[float], predictions: Sequence[float]
) -> float:
    _check_lengths(references, predictions)
    if len(references) < 2:
        return math.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.ConstantInputWarning)  # NaN shows it
        return float(function(np.asarray(references, float), np.asarray(predictions, float)).statistic)


# --- choices

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
    _check_lengths(references, predictions)
    right = [true == predicted for true, predicted in zip(references, predictions, strict=True)]
    scores = {"accuracy": sum(right) / len(right)}
    for part in RACE_PARTS if ids else ():
        of_part = [is_right for is_right, name in zip(right, ids, strict=True) if name.startswith(part)]
        if of_part:
            scores[part] = sum(of_part) / len(of_part)
    return scores


# --- answers to questions

SquadVersion = Literal["1.1", "2.0"]
"""The version of the script. The versions differ only in F1 of answers that are empty or have nothing but
articles and punctuation."""

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def normalize_answer(answer: str) -> str:
    """Return an answer in the form for comparison: lower case, no punctuation, no a/an/the, single spaces."""
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(answer: str, prediction: str) -> float:
    """Return 1.0 if the normalized texts are equal, else 0.0."""
    return float(normalize_answer(answer) == normalize_answer(prediction))


def token_f1(answer: str, prediction: str, *, version: SquadVersion = "2.0") -> float:
    """Return F1 over the words that prediction and answer share.

    If either has no words it is 0; in version 2.0 it is 1 if neither has words.
    """
    true, predicted = normalize_answer(answer).split(), normalize_answer(prediction).split()
    if version == "2.0" and not (true and predicted):
        return float(true == predicted)
    shared = (Counter(true) & Counter(predicted)).total()
    if not shared:
        return 0.0
    precision, recall = shared / len(predicted), shared / len(true)
    return 2 * precision * recall / (precision + recall)


class QuestionScores(NamedTuple):
    """The scores of each of N questions, before any threshold."""

    exact: list[float]
    f1: list[float]
    has_answer: list[bool]

    def summary(self) -> dict[str, float]:
        """Return `exact`, `f1` and `total`, the number of questions.

        If some questions have no answer, the result also has the values of these questions with the prefix
        `no_answer_`, and the values of the other questions with the prefix `has_answer_`.
        """
        parts = {"": [True] * len(self.exact)}
        if not all(self.has_answer):
            parts |= {"no_answer_": [not has for has in self.has_answer], "has_answer_": self.has_answer}
        summary: dict[str, float] = {}
        for prefix, inside in parts.items():
            if count := sum(inside):
                summary[f"{prefix}exact"] = sum(compress(self.exact, inside)) / count
                summary[f"{prefix}f1"] = sum(compress(self.f1, inside)) / count
                summary[f"{prefix}total"] = count
        return summary

    def at_threshold(self, no_answer: Sequence[float], threshold: float) -> "QuestionScores":
        """Return the scores if every question with a higher `no_answer` had the prediction "no answer"."""
        exact, f1 = (
            [
                float(not has) if value > threshold else score
                for score, has, value in zip(scores, self.has_answer, no_answer, strict=True)
            ]
            for scores in (self.exact, self.f1)
        )
        return QuestionScores(exact, f1, self.has_answer)


def score_questions(
    answers: Sequence[Sequence[str]], predictions: Sequence[str], *, version: SquadVersion = "2.0"
) -> QuestionScores:
    """Compare predictions with the true answers, as the official scripts of SQuAD do.

    The score of a prediction is its best match with any of the true answers. The prediction "" means that the
    text has no answer.

    Args:
        answers: all true answers to each question; an empty list for a question without an answer.
        predictions: the predicted answer to each question.
        version: the version of the script. Version 1.1 does not support questions without an answer.

    Raises:
        DataError: the numbers of questions differ, or for version 1.1 a question has no answer.
        ConfigError: the version is unknown.
    """
    if version not in get_args(SquadVersion):
        raise ConfigError(f"version is {version!r}. Expected one of {', '.join(get_args(SquadVersion))}.")
    _check_lengths(answers, predictions)
    exact, f1 = list[float](), list[float]()
    for number, (texts, predicted) in enumerate(zip(answers, predictions, strict=True)):
        if version == "2.0":
            # An answer that is empty when normalized does not count; without answers, the answer is "".
            texts = [text for text in texts if normalize_answer(text)] or [""]
        elif not texts:
            raise DataError(f"question {number} has no answer, which needs version 2.0.")
        exact.append(max(exact_match(text, predicted) for text in texts))
        f1.append(max(token_f1(text, predicted, version=version) for text in texts))
    return QuestionScores(exact, f1, [bool(texts) for texts in answers])


def best_threshold(
    scores: Sequence[float],
    has_answer: Sequence[bool],
    predictions: Sequence[str],
    no_answer: Sequence[float],
) -> tuple[float, float]:
    """Return the best score, and the threshold of `no_answer` above which to predict "no answer".

    The search is that of the official SQuAD 2.0 script. It starts with "no answer" for all questions, and
    then answers them in ascending order of `no_answer`. An answer adds its score, but loses the point for a
    correct "no answer". Questions with equal `no_answer` are also answered one by one, so with ties, no
    threshold may reach the returned score.

    Args:
        scores: `exact` or `f1` of each question, before any threshold.
        has_answer: whether the question has an answer.
        predictions: the answers, which must be the best non-empty ones.
        no_answer: for each question, the probability of "no answer", or any value that increases with it.
    """
    _check_lengths(scores, no_answer)
    order = sorted(range(len(scores)), key=no_answer.__getitem__)
    gains = [scores[number] if has_answer[number] else -float(bool(predictions[number])) for number in order]
    totals = has_answer.count(False) + np.cumsum([0.0, *gains])
    best = int(totals.argmax())
    # The script starts at 0, below all probabilities. The threshold for no answers at all must be below every
    # value, otherwise the question with the lowest value is answered.
    lowest = no_answer[order[0]]
    start = 0.0 if lowest > 0 else float(np.nextafter(lowest, -np.inf))
    return float(totals[best]) / len(scores), no_answer[order[best - 1]] if best else start


# --- spans of words, with the rules of the official CoNLL script (conlleval)
#
# A label is O, or a prefix, a hyphen and a type, such as B-LOC. A span is the longest sequence of words of
# one type that no prefix splits: B and S begin a span, E and S end a span (BILOU writes L and U for E and S).
# This rule covers IOB1, IOB2, IOE, BIOES and BILOU. It also finds spans in sequences that no scheme allows: a
# span begins at an I after O, and where the type changes. Labels without types (B, I, O) are spans of one
# type.

OUTSIDE = "O"
SCHEME_LABEL = re.compile(r"([BIELSU])-(.+)")
"""Prefix and type of a label in any scheme."""
BEGINS, ENDS = "BSU", "ELSU"
"""Prefixes of labels that begin or end a span."""
_PREFIXES = {*"BIELSU"}


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
    """Return the prefix and the type of a label of a scheme; the type is "ENTITY" if labels have no types."""
    if label == OUTSIDE:
        return OUTSIDE, ""
    if label in _PREFIXES:
        return label, "ENTITY"
    match = SCHEME_LABEL.fullmatch(label)
    if match is None:
        expected = "Expected O, or B, I, E, S, L, U and '-TYPE'."
        raise DataError(f"the label {label!r} follows no scheme. {expected}")
    return match[1], match[2]


def spans(labels: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return the spans of a sentence in order: the type and the words [start, end).

    Raises:
        DataError: a label is neither O nor prefix-type nor a prefix.
    """
    found: list[tuple[str, int, int]] = []
    before, start = (OUTSIDE, ""), 0
    for position, label in enumerate([*labels, OUTSIDE]):
        prefix, kind = split_label(label)
        if kind != before[1] or prefix in BEGINS or before[0] in ENDS:
            if before[0] != OUTSIDE:
                found.append((before[1], start, position))
            start = position
        before = prefix, kind
    return found


def span_scores(
    references: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Return `f1`, `precision` and `recall` over the spans of sentences, and `accuracy` over words.

    Accuracy compares labels with their prefixes. Different labels can mean the same spans (B-PER or I-PER
    after O), so it can be below 1 although F1 is 1.

    Args:
        references: the true labels of the words of each sentence.
        predictions: the predicted labels.

    Raises:
        DataError: the numbers of sentences or words differ, or a label follows no scheme.
    """
    _check_lengths(references, predictions)
    shared = predicted = true = words = right = 0
    for number, (reference, prediction) in enumerate(zip(references, predictions, strict=True)):
        if len(reference) != len(prediction):
            sizes = f"{len(reference)} words and {len(prediction)} predicted labels"
            raise DataError(f"sentence {number} has {sizes}.")
        true_spans, predicted_spans = {*spans(reference)}, {*spans(prediction)}
        shared += len(true_spans & predicted_spans)
        predicted += len(predicted_spans)
        true += len(true_spans)
        words += len(reference)
        right += sum(map(str.__eq__, reference, prediction))
    return {
        "f1": 2 * shared / max(1, predicted + true),
        "precision": shared / max(1, predicted),
        "recall": shared / max(1, true),
        "accuracy": right / max(1, words),
    }


# --- retrieval by the cosine similarity of vectors

_BLOCK = 1024  # number of queries in one matrix product
_EQUAL = 1e-6  # cosines with a smaller difference count as equal, because of rounding


def unit(vectors: np.ndarray) -> np.ndarray:
    """Return the vectors (..., H), scaled to length 1; a vector of zeros remains zero."""
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True).clip(min=1e-12)


def retrieve(
    queries: np.ndarray,
    candidates: np.ndarray,
    right: Sequence[Set[int]],
    *,
    left_out: Sequence[Set[int]] | None = None,
) -> tuple[list[int], list[int]]:
    """Return for each query the rank of its nearest right candidate, and the index of its nearest candidate.

    Ranks count from 1. Wrong candidates with the same cosine rank before the right one, so a model that
    returns the same vector for everything finds nothing.

    Args:
        queries: (N, H), the vectors of the queries.
        candidates: (M, H), the vectors of the candidates.
        right: for each query, the indices of its right candidates, at least one.
        left_out: for each query, the indices of candidates to ignore.
    """
    _check_lengths(queries, right)
    queries, candidates = unit(queries), unit(candidates)
    ranks, nearest = list[int](), list[int]()
    for begin in range(0, len(queries), _BLOCK):
        block = queries[begin : begin + _BLOCK] @ candidates.T  # (up to _BLOCK, M)
        for number, cosines in enumerate(block, start=begin):
            if left_out is not None:
                cosines[list(left_out[number])] = -np.inf
            own = list(right[number])
            least = cosines[own].max() - _EQUAL
            wrong = np.count_nonzero(cosines >= least) - np.count_nonzero(cosines[own] >= least)
            ranks.append(1 + int(wrong))
            nearest.append(int(cosines.argmax()))
    return ranks, nearest


def retrieval_scores(ranks: Sequence[int]) -> dict[str, float]:
    """Return `accuracy_at_1` and `accuracy_at_10`, the shares of ranks up to 1 and 10, and `mrr`.

    `mrr` is the mean reciprocal rank, the mean of 1 / rank.

    Args:
        ranks: the rank of the nearest right candidate of each query, from 1.
    """
    _check_lengths(ranks, ranks)
    given = np.asarray(ranks)
    return {
        "accuracy_at_1": float((given <= 1).mean()),
        "accuracy_at_10": float((given <= 10).mean()),
        "mrr": float((1 / given).mean()),
    }


# --- reliability


def calibration(
    confidences: Sequence[float], right: Sequence[bool], *, bins: int = 15
) -> tuple[float, list[dict[str, Any]]]:
    """Return the expected calibration error and the bins of the reliability diagram.

    A calibrated model is right as often as its probabilities say (Guo et al. 2017, On Calibration of Modern
    Neural Networks). Examples are divided into bins of equal width by their confidence, the probability of
    the predicted label. The error is the mean difference between the mean confidence and the share of right
    predictions in a bin, weighted by the number of examples in the bin.

    Args:
        confidences: the probability of each predicted label.
        right: whether the prediction is right.
        bins: number of bins; the default is the paper's.

    Returns:
        The error, and for each bin `lower`, `upper`, `count`, `confidence` and `accuracy`: the examples with
        a confidence in (lower, upper], their mean confidence and their accuracy (None without examples). The
        first bin includes its lower edge.

    Raises:
        DataError: a confidence is outside of 0 to 1, or the lengths differ.
    """
    _check_lengths(right, confidences)
    confidence, is_right = np.asarray(confidences, float), np.asarray(right, float)
    if not ((confidence >= 0) & (confidence <= 1)).all():
        raise DataError("a confidence is not between 0 and 1. Expected probabilities, not logits.")
    edges = np.linspace(0, 1, bins + 1)
    bin_of = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, bins - 1)
    error, parts = 0.0, []
    for number in range(bins):
        inside = bin_of == number
        count, mean, share = int(inside.sum()), None, None
        if count:
            mean, share = float(confidence[inside].mean()), float(is_right[inside].mean())
            error += count / len(confidence) * abs(mean - share)
        lower, upper = map(float, edges[number : number + 2])
        parts.append({"lower": lower, "upper": upper, "count": count, "confidence": mean, "accuracy": share})
    return error, parts


def score_by_length(
    lengths: Sequence[int], score: Callable[[Sequence[int]], float], *, bins: int = 8
) -> list[dict[str, Any]]:
    """Return the score in up to `bins` groups of similar size, from short to long examples.

    Examples of equal length are in the same group, so there may be fewer groups.

    Args:
        lengths: length of each example, usually in tokens.
        score: function from the indices of some examples to their score.
        bins: maximum number of groups.

    Returns:
        For each group `shortest`, `longest`, `examples` (their number) and `score`.
    """
    _check_lengths(lengths, lengths)
    given = np.asarray(lengths)
    upper = np.unique(np.quantile(given, np.linspace(0, 1, bins + 1)[1:], method="inverted_cdf"))
    groups = np.searchsorted(upper, given, side="left")
    parts = [np.flatnonzero(groups == group) for group in range(len(upper))]
    return [
        {
            "shortest": int(given[inside].min()),
            "longest": int(given[inside].max()),
            "examples": len(inside),
            "score": float(score(inside.tolist())),
        }
        for inside in parts
    ]
