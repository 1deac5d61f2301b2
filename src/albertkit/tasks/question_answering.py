"""Extractive question answering: answer a question with a span of a context, or with no answer.

A row is `[CLS] question [SEP] part of the context [SEP]`. A long context is read in windows that overlap by
`doc_stride` tokens. Answers of all windows compete by the sum of their two logits, and [CLS] stands for "no
answer", as is usual for SQuAD 2.0 (Rajpurkar et al. 2018; Devlin et al. 2019, section 4.3).

Shapes: B batch, T tokens, S tokens of the context in one row.
"""

import heapq
import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, Self

import numpy as np

from albertkit.config import AlbertConfig
from albertkit.datasets.examples import QuestionExample, inside_word
from albertkit.engines.engine import Row, every_token
from albertkit.errors import DataError, short
from albertkit.metrics import best_threshold, exact_match, score_questions, token_f1
from albertkit.reference import largest_indices, log_sum_exp
from albertkit.tasks.labels import entropy
from albertkit.tasks.rows import owned
from albertkit.tasks.task import Decision, Task, directions

NO_ANSWER: tuple[int, int] = (0, 0)  # start and end at [CLS]
_BELOW_ALL = 0.01  # distance of the threshold below all differences; larger than rounding errors
_USUALLY_ENOUGH = 20  # spans per window that usually contain all answers
THRESHOLD_KEY = "null_score_diff_threshold"
"""The config key of the threshold by which [CLS] must beat the best answer for "no answer"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionRow(Row):
    """A window over the context, after the question."""

    context: range
    """Positions of the context's tokens in the row."""
    owned: range
    """The positions at which an answer may start, where the token has the most context."""
    offsets: list[tuple[int, int]]
    """(S,), the characters of each token."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A span of the context with its scores. The empty text at (0, 0) means no answer."""

    text: str
    start: int
    end: int
    score: float
    """Probability of its start times probability of its end, over all windows."""
    logit: float
    """Sum of the two logits, by which answers are ranked."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The prediction for one question."""

    answers: list[Answer]
    """The best spans of the context, best first, without overlaps; none for an empty context."""
    no_answer: Answer

    @property
    def no_answer_difference(self) -> float:
        """The score of "no answer" minus the best answer's score, compared with the threshold."""
        return self.no_answer.logit - (self.answers[0].logit if self.answers else float("-inf"))

    def ranked(self, threshold: float | None) -> list[Answer]:
        """Return the answers, best first, with "no answer" if there is a threshold or no other answer."""
        if threshold is None:
            return self.answers or [self.no_answer]
        better = [answer for answer in self.answers if self.no_answer.logit - answer.logit <= threshold]
        return [*better, self.no_answer, *self.answers[len(better) :]]


class QuestionAnswering(Task[QuestionExample, QuestionRow, Answered]):
    """Predicts the span of a context that answers a question, or no answer (SQuAD 2.0).

    Args:
        n_best: maximum number of answers. An answer that overlaps a better one is left out.
    """

    name = "question-answering"
    architecture = "AlbertForQuestionAnswering"
    example_class = QuestionExample
    answer = "answer"
    metrics = directions(
        *("exact", "f1", "best_exact", "best_f1", "has_answer_exact", "has_answer_f1"),
        *("no_answer_exact", "no_answer_f1"),
    )
    saved_settings = ("max_length", "doc_stride", "max_question_length", "max_answer_length")
    minimum_length = 7  # half is for the question, the rest for the context and 3 special tokens
    training_multiple = 1  # the loss of this head treats padding as a possible position
    for_predictions = ("offsets",)

    def __init__(self, *, n_best: int = 1) -> None:
        self.n_best = n_best

    def use_config(self, config: AlbertConfig) -> None:
        super().use_config(config)
        limit = self.settings.max_question_length or self.max_length
        self.max_question_length = min(limit, self.max_length // 2)

    def saved(self, examples: Sequence[QuestionExample]) -> dict[str, Any]:
        """Also remove the threshold of the initial model; `tuned` chooses a new one."""
        return super().saved(examples) | {THRESHOLD_KEY: None}

    def check(
        self, training: Sequence[QuestionExample], validation: Sequence[QuestionExample], batch_size: int
    ) -> str | None:
        silent = sum(example.is_impossible for example in training)
        return f"{silent:,} of {len(training):,} training questions have no answer" if silent else None

    def features(self, examples: Sequence[QuestionExample]) -> list[QuestionRow]:
        """Return the windows of each example; `labels` is (start, end), or (0, 0) if a window has no answer.

        Training uses the first of several answers. An example has no labels if no window contains its whole
        answer, because "no answer" would be wrong, or if it has no answers and is not `is_impossible`.
        """
        return [row for number, example in enumerate(examples) for row in self._rows(number, example)]

    def _rows(self, number: int, example: QuestionExample) -> list[QuestionRow]:
        question, length, cut = self._fit_question(example.question)
        encoded = self.tokenizer(
            question,
            example.context,
            truncation="only_second",
            max_length=self.max_length,
            stride=min(self.settings.doc_stride, (self.max_length - length - 3) // 2),
            return_overflowing_tokens=True,
        )
        encodings: list[Any] = encoded.encodings or []
        windows = sorted(encodings, key=lambda encoding: encoding.window[1].start)
        offsets = windows[0].sequences[1].offsets
        ranges = [window.window[1] for window in windows]  # the tokens of the context in each row
        before = length + 2  # [CLS] question [SEP]
        labels = self._labels(example, offsets, ranges, before)
        rows = []
        for window, shown, own, label in zip(windows, ranges, owned(ranges), labels, strict=True):
            shift = before - shown.start
            rows.append(
                QuestionRow(
                    input_ids=window.ids,
                    token_type_ids=window.type_ids,
                    example=number,
                    labels=label,
                    cut=cut,
                    context=range(before, before + len(shown)),
                    owned=range(own.start + shift, own.stop + shift),
                    offsets=offsets[shown.start : shown.stop],
                )
            )
        return rows

    def _labels(
        self, example: QuestionExample, offsets: list[tuple[int, int]], windows: list[range], before: int
    ) -> Sequence[tuple[int, int] | None]:
        if example.is_impossible or not example.answers:
            return [NO_ANSWER if example.is_impossible else None] * len(windows)
        text, start = example.answers[0]
        if example.context[start : start + len(text)] != text:
            raise DataError(f"question {example.id!r}: the answer {short(text)} is not at character {start}.")
        first = bisect_right(offsets, start, key=itemgetter(1))
        last = bisect_left(offsets, start + len(text), key=itemgetter(0)) - 1
        if first > last:
            raise DataError(f"question {example.id!r}: the answer {short(text)} has no tokens.")
        labels = [
            (before + first - shown.start, before + last - shown.start)
            if first in shown and last in shown
            else NO_ANSWER
            for shown in windows
        ]
        return labels if set(labels) != {NO_ANSWER} else [None] * len(windows)

    def _fit_question(self, question: str) -> tuple[str, int, int]:
        """Return a question that leaves room for the context, its tokens, and how many were removed."""
        encode = partial(self.tokenizer, add_special_tokens=False, verbose=False)
        encoding = encode(question)[0]
        left_out = len(encoding) - self.max_question_length
        if left_out <= 0:
            return question, len(encoding), 0
        if not self.settings.truncation:
            expected = f"Expected at most {self.max_question_length}, to leave room for the context"
            raise DataError(f"the question {short(question)} has {len(encoding)} tokens. {expected}.")
        question = question[: encoding.offsets[self.max_question_length - 1][1]]
        return question, len(encode(question)[0]), left_out

    def units(self, rows: Sequence[QuestionRow]) -> list[list[QuestionRow]]:
        """Return each row alone, without the rows of examples whose answer is in no window."""
        return [[row] for row in rows if row.labels is not None]

    def labels_of(self, rows: Sequence[QuestionRow]) -> dict[str, np.ndarray]:
        starts, ends = np.array([row.labels for row in rows], np.int64).T
        return {"start_positions": starts, "end_positions": ends}

    def read(self, row: QuestionRow) -> Sequence[int]:
        return every_token(row)

    def keep(self, scores: np.ndarray) -> np.ndarray:
        return scores.T

    def decode(self, example: QuestionExample, rows: list[tuple[QuestionRow, np.ndarray]]) -> Answered:
        # Possible starts and ends: every token of the context in every window, or [CLS].
        possible = [logits[:, [0, *row.context]] for row, logits in rows]  # (2, S + 1) each
        norm = float(log_sum_exp(np.concatenate(possible, axis=1)).sum())
        null = min(float(logits[:, 0].sum()) for _, logits in rows)
        # Best first. Of spans with equal scores, the span of the first window comes first.
        spans = heapq.merge(*(self._spans(*window) for window in rows), key=lambda span: -span[0])
        answers: list[Answer] = []
        for logit, first, last in spans:
            start, end = whole_words(example.context, first, last)
            # Word-start marks have no characters: a span of them is empty, and others may end after a space.
            if start < end and all(end <= answer.start or answer.end <= start for answer in answers):
                score = float(np.exp(np.float32(logit - norm)))
                answers.append(Answer(example.context[start:end], start, end, score, logit))
                if len(answers) == self.n_best:
                    break
        return Answered(answers, Answer("", 0, 0, float(np.exp(np.float32(null - norm))), null))

    def _spans(self, row: QuestionRow, logits: np.ndarray) -> Iterator[tuple[float, int, int]]:
        """Yield (logit, start, end) of the spans of a row, in characters of the context, best first.

        The best spans are yielded twice: first alone, because they usually suffice, then among all spans.
        """
        starts, ends = logits[:, row.context.start : row.context.stop]  # (S,) each
        sums = starts[:, None] + ends[None, :]  # (S, S)
        position = np.arange(len(row.context))
        further = position - position[:, None]  # from the start to the end
        allowed = (further >= 0) & (further < self.settings.max_answer_length)
        first = row.owned.start - row.context.start
        allowed[:first] = False
        allowed[first + len(row.owned) :] = False
        values, (firsts, lasts) = sums[allowed], np.nonzero(allowed)
        for count in (_USUALLY_ENOUGH, len(values)):
            order = largest_indices(values, count)
            spans = (values[order].tolist(), firsts[order].tolist(), lasts[order].tolist())
            for value, start, end in zip(*spans, strict=True):
                yield value, row.offsets[start][0], row.offsets[end][1]

    @property
    def cut_note(self) -> str:
        return f"questions are longer than {self.max_question_length} tokens and are truncated"

    def warnings(self, rows: Sequence[QuestionRow]) -> Counter[str]:
        """Count the answers that no window contains, and the answers that are too long."""
        longest = self.settings.max_answer_length
        shown = [row for row in rows if row.labels is not None]
        unseen = {row.example for row in rows} - {row.example for row in shown}
        long = {row.example for row in shown if row.labels[1] - row.labels[0] >= longest}
        problems = {
            f"questions have an answer that no window of {self.max_length} tokens contains": unseen,
            f"questions have an answer longer than {longest} tokens, which cannot be predicted": long,
        }
        return Counter({what: len(examples) for what, examples in problems.items() if examples})

    @property
    def threshold(self) -> float | None:
        """The margin by which "no answer" must beat the best answer; None if it is not a possible answer."""
        return self.config.extra.get(THRESHOLD_KEY)

    def for_examples(self, examples: Sequence[QuestionExample]) -> Self:
        """Return the task with its threshold: 0 for a model without one if some questions have no answer."""
        if self.threshold is not None or not any(example.is_impossible for example in examples):
            return self
        config = self.config.replace()
        config.extra[THRESHOLD_KEY] = 0.0
        return self.bind(self.tokenizer, config, self.settings)

    def main_metric(self, examples: Sequence[QuestionExample]) -> str:
        return "f1" if self.for_examples(examples).threshold is None else "best_f1"

    def scores(
        self, examples: Sequence[QuestionExample], predictions: Sequence[Answered]
    ) -> dict[str, float]:
        """Return the metrics of the official script; with unanswerable questions, also at the best threshold.

        `exact` and `f1` use the threshold in the config, or 0 if it has none.
        """
        answers = [[text for text, _ in example.answers] for example in examples]
        texts = [prediction.ranked(None)[0].text for prediction in predictions]
        threshold = self.for_examples(examples).threshold
        if threshold is None:
            return score_questions(answers, texts, version="1.1").summary()
        scores = score_questions(answers, texts)
        no_answer = [prediction.no_answer_difference for prediction in predictions]
        exact, _ = best_threshold(scores.exact, scores.has_answer, texts, no_answer)
        f1, best = best_threshold(scores.f1, scores.has_answer, texts, no_answer)
        best_scores = {"best_exact": exact, "best_f1": f1, "best_f1_threshold": best}
        return scores.at_threshold(no_answer, threshold).summary() | best_scores

    def tuned(self, examples: Sequence[QuestionExample], predictions: Sequence[Answered]) -> dict[str, float]:
        """Return the config entry of the threshold with the best F1, if "no answer" is possible.

        The official script returns the difference of the last answered question. The middle between this and
        the next difference has the same score, and suits other data better.
        """
        threshold = self.scores(examples, predictions).get("best_f1_threshold")
        if threshold is None:
            return {}
        differences = [d for prediction in predictions if (d := prediction.no_answer_difference) < math.inf]
        above = [value for value in differences if value > threshold]
        if len(above) == len(differences):  # predicting no answer for all is best, so there is no midpoint
            return {THRESHOLD_KEY: threshold - _BELOW_ALL}
        return {THRESHOLD_KEY: (threshold + min(above)) / 2 if above else threshold}

    def baseline(self, examples: Sequence[QuestionExample]) -> dict[str, float]:
        share = sum(example.is_impossible for example in examples) / len(examples)
        return dict.fromkeys(("exact", "f1", "best_exact", "best_f1"), share) if share else {}

    def decisions(self, example: QuestionExample, prediction: Answered) -> list[Decision]:
        answer = prediction.ranked(self.threshold)[0]
        texts = [text for text, _ in example.answers] or [""]
        right = any(exact_match(text, answer.text) for text in texts)
        score, f1 = min(answer.score, 1.0), max(token_f1(text, answer.text) for text in texts)
        details = {"true": list(dict.fromkeys(texts)), "f1": f1}
        return [Decision(texts[0], answer.text, right, score, severity=score * (1 - f1), details=details)]

    def record(self, example: QuestionExample, prediction: Answered) -> dict[str, Any]:
        answer = prediction.ranked(self.threshold)[0]
        return {
            "answer": answer.text,
            "start": answer.start,
            "end": answer.end,
            "score": answer.score,
            # The difference is infinite without a possible answer, as in a context of one combining mark.
            "no_answer_difference": prediction.no_answer_difference if prediction.answers else None,
        }

    def truth(self, example: QuestionExample) -> list[str] | None:
        """Return all right answers. An empty list means that the context does not answer the question."""
        texts = [text for text, _ in example.answers]
        return texts if texts or example.is_impossible else None

    def constant_answer(self, examples: Sequence[QuestionExample], predictions: Sequence[Answered]) -> None:
        """Return None: answering nothing may be best (see `tuned`), and contexts share no answers."""

    def prior_loss(self, rows: Sequence[QuestionRow]) -> float:
        """Return the loss of a model that knows only the share of windows without an answer."""
        guesses = [math.log(len(row.context)) for row in rows if row.labels != NO_ANSWER]
        answered = Counter(row.labels != NO_ANSWER for row in rows)
        return entropy(answered) + sum(guesses) / len(rows)


def whole_words(text: str, start: int, end: int) -> tuple[int, int]:
    """Return a span without spaces at its ends, extended if it begins or ends between letters or digits."""
    part = text[start:end]
    start, end = start + len(part) - len(part.lstrip()), start + len(part.rstrip())
    while 0 < start < end and inside_word(text, start):
        start -= 1
    while start < end < len(text) and inside_word(text, end):
        end += 1
    return start, end
