"""Exact match and F1 of extracted answers, as the official scripts of SQuAD 1.1 and 2.0 compute them.

Answers are compared without case, punctuation, English articles and extra spaces. The score of a prediction
is its best match with any of the true answers. The prediction "" means that the text has no answer.

All values are fractions; the official scripts print percent.
"""

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from albertkit.errors import ConfigError, DataError

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


@dataclass(frozen=True)
class QuestionScores:
    """The scores of each question, by id, before any threshold."""

    exact: Mapping[str, float]
    f1: Mapping[str, float]
    has_answer: Mapping[str, bool]

    def summary(self) -> dict[str, float]:
        """Return `exact`, `f1` and `total`, the number of questions.

        If some questions have no answer, the result also has the values of these questions with the prefix
        `no_answer_`, and the values of the other questions with the prefix `has_answer_`.
        """
        found = self._means(list(self.exact), "")
        answered = [key for key, has in self.has_answer.items() if has]
        unanswerable = [key for key, has in self.has_answer.items() if not has]
        if unanswerable:
            found |= self._means(unanswerable, "no_answer_")
            if answered:
                found |= self._means(answered, "has_answer_")
        return found

    def _means(self, keys: list[str], prefix: str) -> dict[str, float]:
        return {
            f"{prefix}exact": sum(self.exact[key] for key in keys) / len(keys),
            f"{prefix}f1": sum(self.f1[key] for key in keys) / len(keys),
            f"{prefix}total": len(keys),
        }

    def at_threshold(self, no_answer: Mapping[str, float], threshold: float) -> "QuestionScores":
        """Return the scores if every question with a higher `no_answer` had the prediction "no answer"."""
        check_ids(self.exact, no_answer)
        silent = {key for key in self.exact if no_answer[key] > threshold}
        exact, f1 = (
            {key: float(not self.has_answer[key]) if key in silent else one for key, one in scores.items()}
            for scores in (self.exact, self.f1)
        )
        return QuestionScores(exact, f1, self.has_answer)


def score_questions(
    answers: Mapping[str, Sequence[str]], predictions: Mapping[str, str], *, version: SquadVersion = "2.0"
) -> QuestionScores:
    """Compare predictions with the true answers.

    Args:
        answers: all true answers by question id; an empty list for a question without an answer.
        predictions: the predicted answer by question id; ids that are not in `answers` are ignored.
        version: the version of the script. Version 1.1 does not support questions without an answer.

    Raises:
        DataError: a question has no prediction, or for version 1.1 no answer.
        ConfigError: the version is unknown.
    """
    if version not in get_args(SquadVersion):
        raise ConfigError(f"version is {version!r}. Expected one of {', '.join(get_args(SquadVersion))}.")
    check_ids(answers, predictions)
    exact: dict[str, float] = {}
    f1: dict[str, float] = {}
    for key, texts in answers.items():
        if version == "2.0":
            # An answer that is empty when normalized does not count; without answers, the answer is "".
            texts = [text for text in texts if normalize_answer(text)] or [""]
        elif not texts:
            raise DataError(
                f"question {key} has no answer, which SQuAD 1.1 does not support. Use version 2.0."
            )
        exact[key] = max(exact_match(text, predictions[key]) for text in texts)
        f1[key] = max(token_f1(text, predictions[key], version=version) for text in texts)
    return QuestionScores(exact, f1, {key: bool(texts) for key, texts in answers.items()})


@dataclass(frozen=True)
class BestThreshold:
    """The threshold above which to predict "no answer", and the resulting score."""

    score: float
    threshold: float


def best_threshold(
    scores: Mapping[str, float],
    has_answer: Mapping[str, bool],
    predictions: Mapping[str, str],
    no_answer: Mapping[str, float],
) -> BestThreshold:
    """Return the best threshold for `no_answer`, found like in the official SQuAD 2.0 script.

    The search starts with "no answer" for all questions, and then answers them in ascending order of
    `no_answer`. An answer adds its score, but loses the point for a correct "no answer". Questions with equal
    `no_answer` are also answered one by one, so with ties, no threshold may reach the returned score.

    Args:
        scores: `exact` or `f1` of each question, before any threshold.
        has_answer: whether the question has an answer.
        predictions: the answers, which must be the best non-empty ones.
        no_answer: for each question, the probability of "no answer", or any value that increases with it.
    """
    check_ids(scores, no_answer)
    order = sorted(scores, key=no_answer.__getitem__)
    gains = [scores[key] if has_answer[key] else -float(bool(predictions[key])) for key in order]
    silent = sum(not has_answer[key] for key in scores)
    totals = silent + np.cumsum([0.0, *gains])
    best = int(totals.argmax())
    # The script starts at 0, below all probabilities. The threshold for no answers at all must be below every
    # value, otherwise the question with the lowest value is answered.
    lowest = no_answer[order[0]]
    start = 0.0 if lowest > 0 else float(np.nextafter(lowest, -np.inf))
    return BestThreshold(float(totals[best]) / len(scores), no_answer[order[best - 1]] if best else start)


def check_ids(wanted: Mapping[str, object], given: Mapping[str, object]) -> None:
    """Raise DataError unless every wanted question is present, and there is at least one."""
    if not wanted:
        raise DataError("no questions. Expected at least one.")
    if missing := [key for key in wanted if key not in given]:
        raise DataError(
            f"{len(missing)} of {len(wanted)} questions have no prediction, first {missing[0]!r}. "
            "Predict all of them, or score only the predicted ones."
        )
