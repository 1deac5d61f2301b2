"""Extractive question answering: a question and a text -> the place of the text that answers, or none.

A row is `[CLS] question [SEP] part of the text [SEP]`; a long text is read in windows that overlap by
`doc_stride` tokens. Answers of all windows compete by the sum of their two logits, and [CLS] stands for "the
text does not say", as is usual for SQuAD 2.0 (Rajpurkar et al. 2018; Devlin et al. 2019, section 4.3).

Shapes: B batch, T tokens, S tokens of the text in one row.
"""

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from albertkit.engines.engine import Row, by_example, every_token
from albertkit.errors import ConfigError, DataError
from albertkit.tasks.examples import QuestionExample
from albertkit.tasks.scores import largest, log_sum_exp
from albertkit.tasks.task import Task
from albertkit.tasks.windows import overlap, owned
from albertkit.tasks.words import joined
from albertkit.tokenization.base import TokenizerBase
from albertkit.tokenization.encoding import Encoding

NO_ANSWER = (0, 0)  # start and end at [CLS]
_USUALLY_ENOUGH = 20  # spans of a window, until the answers are found
THRESHOLD_KEY = "null_score_diff_threshold"
"""Where a config keeps by how much [CLS] must beat the best answer, to say that there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionRow(Row):
    """A window over the text, behind the question."""

    context: range
    """Positions of the text's tokens in the row."""
    owned: range
    """Those of them at which an answer may start: they have most context here."""
    offsets: list[tuple[int, int]]
    """(S,), the characters of each."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A place of the text, and how much speaks for it; the empty text at (0, 0) is no answer."""

    text: str
    start: int
    end: int
    score: float
    """Probability of its start times probability of its end, over all windows."""
    logit: float
    """Sum of the two logits: what answers are ranked by."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What is predicted for one question."""

    answers: list[Answer]
    """The best places of the text, best first, none of which overlaps another; none for an empty text."""
    no_answer: Answer

    @property
    def no_answer_difference(self) -> float:
        """How much better "no answer" is than the best answer: what the threshold is compared with."""
        return self.no_answer.logit - (self.answers[0].logit if self.answers else float("-inf"))

    def best(self, threshold: float | None) -> Answer:
        """Return the answer; with a threshold (0 where none was tuned) it may be that there is none."""
        if not self.answers or (threshold is not None and self.no_answer_difference > threshold):
            return self.no_answer
        return self.answers[0]


class QuestionAnswering(Task[QuestionExample, QuestionRow, Answered]):
    """The task for one tokenizer and one length of window.

    Args:
        tokenizer: cuts texts into pieces.
        max_length: most tokens of a row, special tokens included.
        doc_stride: tokens that a window repeats from the one before, at most half of the text in it.
        max_question_length: most tokens of a question, at most half of the row; None for just that half.
        max_answer_length: most tokens of an answer.
        n_best: maximum number of answers. An answer that overlaps a better one is left out.
        truncation: cut questions that are too long at their end; the rows count what was cut.

    Raises:
        ConfigError: a size that leaves no room.
    """

    name = "question-answering"
    architecture = "AlbertForQuestionAnswering"
    lengths = ("max_length", "doc_stride", "max_question_length", "max_answer_length")
    training_multiple = 1  # the loss of this head counts padding as a place to answer

    def __init__(
        self,
        tokenizer: TokenizerBase,
        *,
        max_length: int,
        doc_stride: int = 128,
        max_question_length: int | None = None,
        max_answer_length: int = 30,
        n_best: int = 1,
        truncation: bool = False,
    ) -> None:
        super().__init__(tokenizer, max_length=max_length)
        for name, value, least in (
            ("doc_stride", doc_stride, 0),
            ("max_question_length", max_question_length, 1),
            ("max_answer_length", max_answer_length, 1),
            ("n_best", n_best, 1),
        ):
            if value is not None and value < least:
                raise ConfigError(f"{name} is {value}; expected at least {least}")
        self.doc_stride = doc_stride
        self.max_question_length = min(max_question_length or max_length, max_length // 2)
        self.max_answer_length = max_answer_length
        self.n_best = n_best
        self.truncation = truncation

    def features(self, examples: Sequence[QuestionExample]) -> list[QuestionRow]:
        """Return the windows of each example; `labels` is (start, end), (0, 0) where the answer is not in it.

        Of several answers the first is learnt. An example without answers that is not `is_impossible` has no
        labels, nor has one whose answer is whole in no window: that the text has none would be wrong.

        Raises:
            DataError: a question that is too long and not to be cut, or an answer that is not in the text.
        """
        return [row for number, example in enumerate(examples) for row in self._rows(number, example)]

    def _rows(self, number: int, example: QuestionExample) -> list[QuestionRow]:
        question, length, cut = self._fit_question(example.question)
        encoded = self.tokenizer(
            question,
            example.context,
            truncation="only_second",
            max_length=self.max_length,
            stride=overlap(self.doc_stride, room=self.max_length - length - 3),
            return_overflowing_tokens=True,
        )
        windows: list[Encoding] = sorted(encoded.encodings or [], key=lambda one: _shown(one).start)
        offsets = windows[0].sequences[1].places.offsets
        answer = None
        if example.answers and not example.is_impossible:
            answer = self._locate_answer(example, offsets)
        ranges = [_shown(one) for one in windows]
        if answer is not None and not any(one.start <= answer[0] and answer[1] < one.stop for one in ranges):
            answer = None
        before = length + 2  # [CLS] question [SEP]
        rows = []
        for window, shown, own in zip(windows, ranges, owned(ranges), strict=True):
            shift = before - shown.start
            labels = NO_ANSWER if example.is_impossible or answer is not None else None
            if answer is not None and shown.start <= answer[0] and answer[1] < shown.stop:
                labels = (answer[0] + shift, answer[1] + shift)
            rows.append(
                QuestionRow(
                    input_ids=window.ids,
                    token_type_ids=window.type_ids,
                    example=number,
                    labels=labels,
                    cut=cut,
                    context=range(before, before + len(shown)),
                    owned=range(own.start + shift, own.stop + shift),
                    offsets=offsets[shown.start : shown.stop],
                )
            )
        return rows

    def _fit_question(self, question: str) -> tuple[str, int, int]:
        """Return a question that leaves room for the text, its tokens, and how many were cut off."""
        encoding = self._encode(question)
        left_out = len(encoding) - self.max_question_length
        if left_out <= 0:
            return question, len(encoding), 0
        if not self.truncation:
            raise DataError(
                f"the question {question!r:.60} has {len(encoding)} tokens; expected at most "
                f"{self.max_question_length}, so that rows of {self.max_length} have room for the text. "
                "Shorten it, or let it be cut (truncation=True)"
            )
        question = question[: encoding.offsets[self.max_question_length - 1][1]]
        return question, len(self._encode(question)), left_out

    def _encode(self, question: str) -> Encoding:
        return self.tokenizer(question, add_special_tokens=False, verbose=False)[0]

    def _locate_answer(self, example: QuestionExample, offsets: list[tuple[int, int]]) -> tuple[int, int]:
        """Return the first and the last token of the answer, counted in the text."""
        text, start = example.answers[0]
        found = example.context[start : start + len(text)]
        first = bisect_right(offsets, start, key=lambda place: place[1])
        last = bisect_left(offsets, start + len(text), key=lambda place: place[0]) - 1
        if found != text or first > last:
            raise DataError(
                f"question {example.id!r}: the answer {text!r:.60} is not at character {start} of the text, "
                f"where {found!r:.60} stands"
            )
        return first, last

    def labels_of(self, rows: Sequence[QuestionRow]) -> dict[str, np.ndarray]:
        """Return `start_positions` and `end_positions`, (B,) each."""
        starts, ends = np.array([row.labels for row in rows], np.int64).T
        return {"start_positions": starts, "end_positions": ends}

    def read(self, row: QuestionRow) -> Sequence[int]:
        """Return all tokens."""
        return every_token(row)

    def keep(self, scores: np.ndarray) -> np.ndarray:
        """Return the start and end logits (2, T) of a row."""
        return scores.T

    def predictions(
        self, examples: Sequence[QuestionExample], rows: Sequence[QuestionRow], outputs: Sequence[np.ndarray]
    ) -> list[Answered]:
        """Return the best answers to each question, and what speaks for there being none."""
        return [
            self._prediction(example.context, own)
            for example, own in zip(examples, by_example(rows, outputs, count=len(examples)), strict=True)
        ]

    def _prediction(self, context: str, windows: list[tuple[QuestionRow, np.ndarray]]) -> Answered:
        # What a start, or an end, may be: any token of the text in any window, or [CLS].
        possible = np.concatenate(
            [logits[:, [0, *row.context]] for row, logits in windows], axis=1
        )  # (2, S + 1 of every window)
        norm = float(log_sum_exp(possible).sum())
        null = min(float(logits[:, 0].sum()) for _, logits in windows)
        # Best first; of equally good spans those of the first window.
        spans = heapq.merge(*(self._spans(*window) for window in windows), key=lambda one: -one[0])
        answers: list[Answer] = []
        for logit, first, last in spans:
            start, end = whole_words(context, first, last)
            # A mark of a word's beginning alone has no characters.
            if start < end and all(end <= one.start or one.end <= start for one in answers):
                answers.append(Answer(context[start:end], start, end, _probability(logit - norm), logit))
                if len(answers) == self.n_best:
                    break
        return Answered(answers, Answer("", 0, 0, _probability(null - norm), null))

    def _spans(self, row: QuestionRow, logits: np.ndarray) -> Iterator[tuple[float, int, int]]:
        """Yield (logit, start, end) of the spans of a row, in characters of the text, best first.

        The best ones come twice: they are mostly enough, and need no sorting.
        """
        starts, ends = logits[:, row.context.start : row.context.stop]  # (S,) each
        sums = starts[:, None] + ends[None, :]  # (S, S)
        place = np.arange(len(row.context))
        further = place - place[:, None]  # from the start to the end
        allowed = (further >= 0) & (further < self.max_answer_length)
        first = row.owned.start - row.context.start
        allowed[:first] = False
        allowed[first + len(row.owned) :] = False
        places = np.flatnonzero(allowed)  # of the spans, in S * S
        values, width = sums.ravel()[places], len(row.context)
        for count in (_USUALLY_ENOUGH, len(values)):
            order = largest(values, count)
            for value, place in zip(values[order].tolist(), places[order].tolist(), strict=True):
                yield value, row.offsets[place // width][0], row.offsets[place % width][1]


def whole_words(text: str, start: int, end: int) -> tuple[int, int]:
    """Return a place of the text, widened where it begins or ends between two letters or digits."""
    while 0 < start < end and joined(text, start):
        start -= 1
    while start < end < len(text) and joined(text, end):
        end += 1
    return start, end


def _shown(row: Encoding) -> range:
    """Return the tokens of the text that a row shows."""
    second = row.window.second
    assert second is not None
    return second


def _probability(logarithm: float) -> float:
    return float(np.exp(np.float32(logarithm)))
