"""Tests of metrics: official scripts, published values, and values computed by hand."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from albertkit import metrics
from albertkit.errors import DataError
from albertkit.metrics import (
    QuestionScores,
    best_threshold,
    calibration,
    choice_scores,
    class_scores,
    confusion_matrix,
    exact_match,
    f1_threshold,
    multi_label_cross_entropy,
    multi_label_scores,
    normalize_answer,
    number_scores,
    of_scheme,
    pearson,
    score_by_length,
    score_questions,
    span_scores,
    spans,
    spearman,
    token_f1,
)

pytestmark = pytest.mark.light

# --- classes and numbers


def test_scores_of_two_classes() -> None:
    pytest.importorskip("sklearn")
    # true positives 3, false positives 1, false negatives 2, true negatives 4
    references = ["1"] * 5 + ["0"] * 5
    predictions = ["1"] * 3 + ["0"] * 2 + ["1"] + ["0"] * 4
    scores = class_scores(references, predictions, labels=["0", "1"])
    f1_of_1, f1_of_0 = 2 * 3 / (2 * 3 + 1 + 2), 2 * 4 / (2 * 4 + 2 + 1)
    assert scores == pytest.approx(
        {
            "accuracy": 0.7,
            "f1": f1_of_1,
            "f1_macro": (f1_of_0 + f1_of_1) / 2,
            "matthews": (3 * 4 - 1 * 2) / math.sqrt((3 + 1) * (3 + 2) * (4 + 1) * (4 + 2)),
        }
    )
    assert confusion_matrix(references, predictions, labels=["0", "1"]).tolist() == [[4, 1], [2, 3]]


def test_no_answer_counts_as_wrong() -> None:
    pytest.importorskip("sklearn")
    references, predictions = ["1", "1", "1", "0"], ["1", None, "0", None]
    scores = class_scores(references, predictions, labels=["0", "1"])
    assert scores["accuracy"] == 1 / 4
    assert scores["f1"] == pytest.approx(2 * 1 / (2 * 1 + 0 + 2))
    assert scores["f1_macro"] == pytest.approx((0.5 + 0) / 2)


@given(st.lists(st.tuples(st.booleans(), st.floats(1e-6, 1)), min_size=1, max_size=12))
@example([(True, 0.5), (False, 0.5)])
@example([(True, 1e-6), (False, 1.0)])
def test_no_threshold_of_a_label_has_a_better_f1(examples: list[tuple[bool, float]]) -> None:
    pytest.importorskip("sklearn")
    threshold = f1_threshold([true for true, _ in examples], [share for _, share in examples])

    def f1(threshold: float) -> float:
        right = sum(true and share > threshold for true, share in examples)
        counts = sum(true for true, _ in examples) + sum(share > threshold for _, share in examples)
        return 2 * right / counts if counts else 0.0

    best = max(f1(candidate) for candidate in {0.0, 0.5, *(share for _, share in examples)})
    assert f1(threshold) == pytest.approx(best)
    if f1(0.5) == best:
        assert threshold == 0.5


def test_a_threshold_has_few_digits() -> None:
    pytest.importorskip("sklearn")
    assert f1_threshold([True, True, False], [0.9, 0.25, 0.125]) == 0.19
    assert f1_threshold([True, False], [0.8, 0.7]) == 0.75
    assert f1_threshold([True, True, False], [0.3004, 0.9, 0.3001]) in (0.3002, 0.3003)
    assert f1_threshold([False, False], [0.9, 0.1]) == 0.5


@pytest.mark.filterwarnings("error")
def test_constant_predictions_have_no_correlation() -> None:
    pytest.importorskip("sklearn")
    assert class_scores(["0", "1", "1"], ["1", "1", "1"], labels=["0", "1"])["matthews"] == 0
    assert class_scores(["0", "0"], ["0", "0"], labels=["0", "1"])["f1"] == 0
    assert math.isnan(pearson([1, 2, 3], [2, 2, 2]))
    assert math.isnan(spearman([1, 2, 3], [2, 2, 2]))
    assert math.isnan(pearson([1], [2]))


def test_a_class_that_never_occurs_is_not_in_the_macro_average() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    scores = class_scores(["a", "b"], ["a", "b"], labels=["a", "b", "c"])
    assert scores["f1_macro"] == 1
    sides = ["a", "b", "b", "d"], ["a", "c", "b", "b"]
    scores = class_scores(*sides, labels=["a", "b", "c", "d", "e"])
    assert scores["f1_macro"] == pytest.approx(metrics.f1_score(*sides, average="macro", zero_division=0))
    assert "f1" not in scores


@given(st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9)), min_size=3, max_size=30))
def test_correlations_are_those_of_values_and_ranks(pairs: list[tuple[float, float]]) -> None:
    pytest.importorskip("sklearn")
    # Coarse values: many ties, and no differences that vanish when squared.
    true, predicted = (np.round(np.array(side), 1) for side in zip(*pairs, strict=True))
    if len(set(true)) < 2 or len(set(predicted)) < 2:
        return

    def ranks(values: np.ndarray) -> list[float]:
        return [((values < one).sum() + (values <= one).sum() + 1) / 2 for one in values]

    scores = number_scores(true.tolist(), predicted.tolist())
    assert scores["pearson"] == pytest.approx(np.corrcoef(true, predicted)[0, 1])
    assert scores["spearman"] == pytest.approx(np.corrcoef(ranks(true), ranks(predicted))[0, 1])
    assert scores["mean_squared_error"] == pytest.approx(np.mean((true - predicted) ** 2))


def test_several_labels() -> None:
    pytest.importorskip("sklearn")
    scores = multi_label_scores(
        [("a", "b"), (), ("c",), ("a",)], [("b", "a"), (), ("a",), ("a", "b")], labels=["a", "b", "c"]
    )
    # a: 2 of 3 predicted, 2 of 2 true; b: 1 of 2 predicted, 1 of 1 true; c: never predicted, once true
    assert scores == pytest.approx(
        {"accuracy": 2 / 4, "f1_micro": 2 * 3 / (5 + 4), "f1_macro": (4 / 5 + 2 / 3 + 0) / 3}
    )
    # With a single label, "no label" is not a class of its own.
    one = multi_label_scores([("a",), ("a",), (), ()], [("a",), (), (), ()], labels=["a"])
    assert one == pytest.approx({"accuracy": 3 / 4, "f1_micro": 2 / 3, "f1_macro": 2 / 3})
    none = multi_label_scores([("a",), (), (), ()], [(), (), (), ()], labels=["a"])
    assert none == {"accuracy": 3 / 4, "f1_micro": 0.0, "f1_macro": 0.0}


def test_the_cross_entropy_of_several_labels() -> None:
    probabilities = [[0.9, 0.2], [0.4, 0.5], [0.1, 0.3]]
    found = multi_label_cross_entropy([("a",), ("b", "a"), ()], probabilities, labels=["a", "b"])
    right = [0.9, 0.8, 0.4, 0.5, 0.9, 0.7]
    assert found == pytest.approx(-sum(map(math.log, right)) / 6)
    assert multi_label_cross_entropy([("a",)], [[0.0]], labels=["a"]) == pytest.approx(-math.log(1e-7))


def test_invalid_inputs_are_an_error() -> None:
    with pytest.raises(DataError, match="2 predictions for 1 references"):
        class_scores(["a"], ["a", "b"], labels=["a", "b"])
    with pytest.raises(DataError, match="Expected at least one"):
        class_scores([], [], labels=["a", "b"])
    for labels in (["a", "b"], ["a", "b", "c"]):
        with pytest.raises(DataError, match=r"\['x'\] are not among a, b"):
            class_scores(["a", "b"], ["a", "x"], labels=labels)
    with pytest.raises(DataError, match=r"\['x'\] are not among a"):
        multi_label_scores([("a",)], [("x",)], labels=["a"])


# --- answers


@pytest.mark.parametrize(
    ("answer", "normalized"),
    [
        ("The Denver Broncos", "denver broncos"),
        ("  a  cat,\tan owl & the dog! ", "cat owl dog"),
        ("Theatre in Athens", "theatre in athens"),
        ("$1,200.50", "120050"),
        ("the-rapist", "therapist"),  # punctuation goes before articles
        ("Beyonce's", "beyonces"),
        ("\u201cthe\u201d caf\u00e9", "\u201c \u201d caf\u00e9"),  # only ASCII punctuation is removed
        ("A", ""),
    ],
)
def test_answers_are_compared_normalized(answer: str, normalized: str) -> None:
    assert normalize_answer(answer) == normalized


def test_f1_counts_repeated_words() -> None:
    assert token_f1("the cat and the cat", "cat cat cat") == pytest.approx(2 * (2 / 3) * (2 / 3) / (4 / 3))
    assert token_f1("in Denver, Colorado", "Denver") == pytest.approx(0.5)
    assert token_f1("Denver", "Boulder") == 0
    assert exact_match("The Denver", "denver.") == 1


def test_the_two_scripts_differ_in_empty_answers() -> None:
    assert (token_f1("the", "a", version="2.0"), token_f1("the", "a", version="1.1")) == (1, 0)
    assert (token_f1("the", "b", version="2.0"), token_f1("the", "b", version="1.1")) == (0, 0)
    scores = score_questions([["the", "Rome"]], [""], version="1.1")
    assert (scores.exact, scores.f1) == ([1], [0])
    scores = score_questions([["the", "Rome"]], [""])  # 2.0 leaves "the" out
    assert (scores.exact, scores.f1) == ([0], [0])


ANSWERS: list[list[str]] = [["Rome", "in Rome"], [], ["the year 1912"], []]
PREDICTIONS = ["in Rome", "Paris", "1912", ""]


def test_scores_of_questions_with_and_without_answers() -> None:
    scores = score_questions(ANSWERS, PREDICTIONS)
    assert scores.f1 == pytest.approx([1, 0, 2 / 3, 1])
    assert scores.summary() == pytest.approx(
        {
            **{"exact": 2 / 4, "f1": (1 + 0 + 2 / 3 + 1) / 4, "total": 4},
            **{"has_answer_exact": 1 / 2, "has_answer_f1": (1 + 2 / 3) / 2, "has_answer_total": 2},
            **{"no_answer_exact": 1 / 2, "no_answer_f1": 1 / 2, "no_answer_total": 2},
        }
    )
    no_answer = [0.1, 0.8, 0.8, 0.9]
    assert scores.at_threshold(no_answer, 0.8).f1 == scores.f1  # only above it
    assert scores.at_threshold(no_answer, 0.7).f1 == [1, 1, 0, 1]
    assert "has_answer_f1" not in score_questions([["Rome"]], ["in Rome"], version="1.1").summary()


def test_every_question_needs_a_prediction() -> None:
    with pytest.raises(DataError, match="3 predictions for 4 references"):
        score_questions(ANSWERS, PREDICTIONS[:3])
    with pytest.raises(DataError, match="question 1 has no answer"):
        score_questions(ANSWERS, PREDICTIONS, version="1.1")


def test_the_threshold_of_a_worked_case() -> None:
    # By no_answer: 0 (answered, F1 1), 1 (none, but predicted), 2 (answered, F1 2/3), 3 (none, and "").
    # Silence: 2. + question 0: 3. + question 1: 2. + question 2: 2.67. + question 3: 2.67.
    scores = score_questions(ANSWERS, PREDICTIONS)
    no_answer = [0.1, 0.3, 0.5, 0.9]
    best = best_threshold(scores.f1, scores.has_answer, PREDICTIONS, no_answer)
    assert best == (3 / 4, 0.1)
    assert scores.at_threshold(no_answer, 0.1).summary()["f1"] == 3 / 4


@example([(False, 0.0, True, 0)])  # silence at a lowest value of 0
@given(
    st.lists(
        st.tuples(st.booleans(), st.floats(0, 1), st.booleans(), st.integers(-1000, 1000)),
        min_size=1,
        max_size=12,
        unique_by=lambda one: one[3],
    )
)
def test_no_threshold_is_better(questions: list[tuple[bool, float, bool, int]]) -> None:
    has_answer = [has for has, *_ in questions]
    predictions = ["text" if has or silly else "" for has, _, silly, _ in questions]
    raw = [f1 if has else float(not silly) for has, f1, silly, _ in questions]
    no_answer = [value / 7 for *_, value in questions]
    scores = QuestionScores(raw, raw, has_answer)

    def at(threshold: float) -> float:
        return scores.at_threshold(no_answer, threshold).summary()["f1"]

    score, threshold = best_threshold(raw, has_answer, predictions, no_answer)
    assert score == pytest.approx(at(threshold))
    assert score == pytest.approx(max(map(at, [-1000.0, *no_answer])))


# --- spans


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("B-A I-A O B-B", [("A", 0, 2), ("B", 3, 4)]),
        ("I-A I-A O I-B", [("A", 0, 2), ("B", 3, 4)]),  # IOB1
        ("I-A B-A I-A", [("A", 0, 1), ("A", 1, 3)]),  # IOB1: B only between neighbors of one type
        ("B-A I-B O", [("A", 0, 1), ("B", 1, 2)]),  # another type begins another span
        ("S-A B-A I-A E-A S-A", [("A", 0, 1), ("A", 1, 4), ("A", 4, 5)]),  # BIOES
        ("U-A B-A L-A I-A", [("A", 0, 1), ("A", 1, 3), ("A", 3, 4)]),  # BILOU; I after an end begins
        ("E-A E-A O", [("A", 0, 1), ("A", 1, 2)]),
        ("B-A B-A", [("A", 0, 1), ("A", 1, 2)]),
        ("I-A-1 I-A-2", [("A-1", 0, 1), ("A-2", 1, 2)]),
        ("O O", []),
        ("", []),
    ],
)
def test_spans_by_the_rules_of_conlleval(labels: str, expected: list[tuple[str, int, int]]) -> None:
    assert spans(labels.split()) == expected


def test_scores_of_spans() -> None:
    scores = span_scores(
        [["B-A", "I-A", "O", "B-B"], ["B-A", "O"]], [["B-A", "I-A", "B-A", "B-C"], ["B-A", "I-A"]]
    )
    # true: A 0-2, B 3-4, A 0-1; predicted: A 0-2 (right), A 2-3, C 3-4, A 0-2
    f1 = pytest.approx(2 * (1 / 4) * (1 / 3) / (1 / 4 + 1 / 3))
    assert scores == {"f1": f1, "precision": 1 / 4, "recall": 1 / 3, "accuracy": 3 / 6}


def test_labels_without_types_are_spans_of_one_type() -> None:
    assert of_scheme(["B", "I", "O"])
    assert of_scheme(["I", "O"])
    assert of_scheme(["B", "I", "E", "S", "O"])
    found = spans(["O", "B", "I", "O", "I", "I", "B", "E", "S", "I"])
    assert found == [("ENTITY", *ends) for ends in ((1, 3), (4, 6), (6, 8), (8, 9), (9, 10))]
    scores = span_scores([["O", "B", "I", "O"], ["B", "O"]], [["O", "B", "I", "O"], ["O", "O"]])
    assert (scores["precision"], scores["recall"]) == (1.0, 0.5)


def test_labels_without_a_scheme_are_an_error() -> None:
    assert of_scheme(["O", "B-A", "U-B-C"])
    assert not of_scheme(["O", "B-A", "NN"])
    assert not of_scheme(["O"])
    assert not of_scheme(["B", "I", "S"])
    assert not of_scheme(["O", "S", "V"])
    assert not of_scheme(["O", "B", "I-X"])
    with pytest.raises(DataError, match="'NN' follows no scheme"):
        spans(["NN", "O"])
    with pytest.raises(DataError, match="sentence 1 has 1 words and 2 predicted labels"):
        span_scores([["O"], ["O"]], [["O"], ["O", "O"]])


def test_the_published_baseline_of_conll_2000(shared: Path) -> None:
    """The most frequent chunk label of each part of speech: 72.58 / 82.14 / 77.07 in the task's paper."""

    def sentences(name: str) -> list[list[list[str]]]:
        blocks = (shared / "data" / "conll2000" / name).read_text().strip().split("\n\n")
        return [[line.split() for line in block.splitlines()] for block in blocks]

    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for sentence in sentences("train.txt"):
        for _, part_of_speech, label in sentence:
            counts[part_of_speech][label] += 1
    test = sentences("test.txt")
    scores = span_scores(
        [[label for *_, label in sentence] for sentence in test],
        [[counts[part].most_common(1)[0][0] for _, part, _ in sentence] for sentence in test],
    )
    assert [f"{scores[name]:.2%}" for name in ("precision", "recall", "f1")] == ["72.58%", "82.14%", "77.07%"]


# --- choices, calibration, lengths


def test_race_has_two_parts() -> None:
    ids = ["middle1.txt-0", "middle1.txt-1", "high7.txt-0", "high7.txt-1"]
    assert choice_scores([0, 1, 2, 3], [0, 0, 2, 3], ids=ids) == {"accuracy": 0.75, "middle": 0.5, "high": 1}
    assert choice_scores([0, 1], [0, 1]) == {"accuracy": 1}


def test_calibration_of_a_worked_case() -> None:
    error, bins = calibration(
        [0.05, 0.6, 0.7, 0.95, 1.0, 0.5], [False, True, False, True, True, True], bins=2
    )
    # up to 0.5: confidence 0.275, right 1/2; above: 0.8125, right 3/4
    first = {"lower": 0, "upper": 0.5, "count": 2, "confidence": pytest.approx(0.275), "accuracy": 0.5}
    second = {"lower": 0.5, "upper": 1, "count": 4, "confidence": pytest.approx(0.8125), "accuracy": 0.75}
    assert bins == [first, second]
    assert error == pytest.approx(2 / 6 * 0.225 + 4 / 6 * 0.0625)
    empty = calibration([0.9], [True], bins=2)[1][0]
    assert (empty["count"], empty["confidence"], empty["accuracy"]) == (0, None, None)


def test_calibrated_probabilities_have_no_error() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.3, 1, 200_000)
    right = rng.uniform(size=200_000) < confidence
    assert calibration(confidence.tolist(), right.tolist())[0] < 0.005
    assert calibration((confidence * 0.5).tolist(), right.tolist())[0] == pytest.approx(0.325, abs=0.005)
    with pytest.raises(DataError, match="not logits"):
        calibration([1.5], [True])


def test_scores_by_length() -> None:
    lengths = [5, 1, 9, 3, 3, 7]
    right = [1, 1, 0, 1, 0, 0]
    found = score_by_length(lengths, lambda numbers: sum(right[n] for n in numbers) / len(numbers), bins=3)
    assert [tuple(one.values()) for one in found] == [
        (1, 3, 3, pytest.approx(2 / 3)),
        (5, 5, 1, 1),
        (7, 9, 2, 0),
    ]
    (one,) = score_by_length([4, 4, 4], len, bins=3)
    assert one == {"shortest": 4, "longest": 4, "examples": 3, "score": 3}


@pytest.mark.parametrize(
    "call",
    [
        lambda: metrics.retrieval_scores([]),
        lambda: metrics.best_threshold([1.0], [True], ["a"], []),
        lambda: metrics.score_by_length([], lambda _: 1.0),
    ],
)
def test_no_or_too_few_values_are_an_error(call: Callable[[], object]) -> None:
    with pytest.raises(DataError):
        call()
