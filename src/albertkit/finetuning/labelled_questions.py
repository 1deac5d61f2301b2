"""Extractive question answering: SQuAD 1.1 and 2.0, and tables of questions."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from albertkit.config import AlbertConfig
from albertkit.datasets.questions import QuestionColumns, QuestionTable, SquadFile
from albertkit.datasets.reader import Reader
from albertkit.finetuning.data_options import DataOptions
from albertkit.finetuning.labelled_task import Judged, LabelledTask, task_room, without
from albertkit.finetuning.settings import TaskSettings
from albertkit.metrics.question_answering import best_threshold, exact_match, score_questions
from albertkit.modeling.task_heads import AlbertForQuestionAnswering
from albertkit.tasks.examples import QuestionExample
from albertkit.tasks.question_answering import THRESHOLD_KEY, Answered, QuestionAnswering, QuestionRow
from albertkit.text_files import file_format
from albertkit.tokenization.interface import TokenizerInterface


class LabelledQuestions(LabelledTask):
    """Questions with the places of the text that answer them, or none (SQuAD 2.0)."""

    model_class = AlbertForQuestionAnswering

    def reader(self, source: str, options: DataOptions, *, labelled: bool = True) -> Reader[QuestionExample]:
        """Return the reader of a file of SQuAD (.json) or of a table."""
        if file_format(Path(source))[0] == ".json":
            return SquadFile(source, labelled=labelled)
        columns = QuestionColumns(
            question=options.question_column or "question",
            context=options.context_column or "context",
            answers=options.answers_column,
            id=options.id_column,
        )
        return QuestionTable(
            source, columns, labelled=labelled, header=options.header, delimiter=options.delimiter
        )

    def task(
        self, tokenizer: TokenizerInterface, config: AlbertConfig, settings: TaskSettings
    ) -> QuestionAnswering:
        """Return the task."""
        return QuestionAnswering(
            tokenizer,
            max_length=task_room(config, settings),
            doc_stride=settings.doc_stride,
            max_question_length=settings.max_question_length,
            max_answer_length=settings.max_answer_length,
        )

    def main_metric(self, config: AlbertConfig, examples: Sequence[QuestionExample]) -> str:
        """Return F1; with questions without answer, that at the best threshold."""
        return "best_f1" if _may_be_silent(config, examples) else "f1"

    def scores(
        self, examples: Sequence[QuestionExample], predictions: Sequence[Answered], config: AlbertConfig
    ) -> dict[str, float]:
        """Return the figures of the official script; with questions without answer also the best ones.

        `exact` and `f1` are those of the config's threshold, or without one of 0.
        """
        answers = {example.id: [text for text, _ in example.answers] for example in examples}
        texts = {
            example.id: answered.best(None).text
            for example, answered in zip(examples, predictions, strict=True)
        }
        if not _may_be_silent(config, examples):
            return score_questions(answers, texts, version="1.1").summary()
        found = score_questions(answers, texts)
        no_answer = _differences(examples, predictions)
        threshold = config.extra.get(THRESHOLD_KEY, 0.0)
        exact, f1 = (
            best_threshold(scores, found.has_answer, texts, no_answer) for scores in (found.exact, found.f1)
        )
        best = {"best_exact": exact.score, "best_f1": f1.score, "best_f1_threshold": f1.threshold}
        return found.at_threshold(no_answer, threshold).summary() | best

    def tune(
        self, config: AlbertConfig, examples: Sequence[QuestionExample], predictions: Sequence[Answered]
    ) -> bool:
        """Put into the config above which difference there is no answer.

        That of the official script is the difference of the last question to be answered. In the middle
        between it and the next one the score is the same, and other data has more room on both sides.
        """
        scores = self.scores(examples, predictions, config)
        if "best_f1_threshold" not in scores:
            return False
        threshold = scores["best_f1_threshold"]
        above = [one for one in _differences(examples, predictions).values() if threshold < one < math.inf]
        config.extra[THRESHOLD_KEY] = (threshold + min(above)) / 2 if above else threshold
        return True

    def judge(self, example: QuestionExample, prediction: Answered) -> list[Judged]:
        """Return the decision on the best answer; where there may be none, that there is none is one."""
        answer = prediction.best(0.0 if example.is_impossible else None)
        texts = [text for text, _ in example.answers] or [""]
        right = any(exact_match(text, answer.text) for text in texts)
        return [Judged(texts[0], answer.text, right, min(answer.score, 1.0))]

    def record(self, example: QuestionExample, prediction: Answered, config: AlbertConfig) -> dict[str, Any]:
        """Return {id, answer, start, end, score, no_answer_difference}."""
        answer = prediction.best(config.extra.get(THRESHOLD_KEY))
        return {
            "id": example.id,
            "answer": answer.text,
            "start": answer.start,
            "end": answer.end,
            "score": answer.score,
            "no_answer_difference": prediction.no_answer_difference,
        }

    def lean(self, row: QuestionRow) -> QuestionRow:
        """Return a row without the characters of its tokens."""
        return without(row, "offsets")


def _may_be_silent(config: AlbertConfig, examples: Sequence[QuestionExample]) -> bool:
    """Tell whether that there is no answer is one: the model was tuned for it, or the data has it."""
    return THRESHOLD_KEY in config.extra or any(example.is_impossible for example in examples)


def _differences(examples: Sequence[QuestionExample], predictions: Sequence[Answered]) -> dict[str, float]:
    return {
        example.id: prediction.no_answer_difference
        for example, prediction in zip(examples, predictions, strict=True)
    }
