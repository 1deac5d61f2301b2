"""Extractive question answering: SQuAD 1.1 and 2.0, and tables of questions."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from albertkit.config import AlbertConfig
from albertkit.datasets.questions import QuestionColumns, QuestionTable, SquadFile
from albertkit.datasets.reader import Reader
from albertkit.finetuning.data_options import DataOptions
from albertkit.finetuning.labelled_task import Judged, LabelledTask, entropy, task_room, without
from albertkit.finetuning.settings import FinetuningSettings, TaskSettings
from albertkit.metrics.question_answering import best_threshold, exact_match, score_questions
from albertkit.tasks.examples import QuestionExample
from albertkit.tasks.question_answering import (
    NO_ANSWER,
    THRESHOLD_KEY,
    Answered,
    QuestionAnswering,
    QuestionRow,
)
from albertkit.tasks.task import Task
from albertkit.text_files import file_format
from albertkit.tokenization.base import TokenizerBase

_BELOW_ALL = 0.01  # logits by which a threshold lies below all differences: more than rounding can change


class LabelledQuestions(LabelledTask):
    """Questions with the places of the text that answer them, or none (SQuAD 2.0)."""

    architecture = "AlbertForQuestionAnswering"
    metrics = (
        "exact",
        "f1",
        "best_exact",
        "best_f1",
        "has_answer_exact",
        "has_answer_f1",
        "no_answer_exact",
        "no_answer_f1",
    )

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
        self, tokenizer: TokenizerBase, config: AlbertConfig, settings: TaskSettings
    ) -> QuestionAnswering:
        """Return the task."""
        return QuestionAnswering(
            tokenizer,
            max_length=task_room(config, settings),
            doc_stride=settings.doc_stride,
            max_question_length=settings.max_question_length,
            max_answer_length=settings.max_answer_length,
            truncation=settings.truncation,
        )

    def main_metric(self, config: AlbertConfig, examples: Sequence[QuestionExample]) -> str:
        """Return F1; with questions without answer, that at the best threshold."""
        return "f1" if self._threshold(config, examples) is None else "best_f1"

    def scores(
        self, examples: Sequence[QuestionExample], predictions: Sequence[Answered], config: AlbertConfig
    ) -> dict[str, float]:
        """Return the figures of the official script; with questions without answer also the best ones.

        `exact` and `f1` are those of the config's threshold, or without one of 0.
        """
        # By number: a table may have an id twice.
        answers = {str(n): [text for text, _ in one.answers] for n, one in enumerate(examples)}
        texts = {str(n): one.best(None).text for n, one in enumerate(predictions)}
        threshold = self._threshold(config, examples)
        if threshold is None:
            return score_questions(answers, texts, version="1.1").summary()
        found = score_questions(answers, texts)
        no_answer = {str(n): one.no_answer_difference for n, one in enumerate(predictions)}
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
        differences = [d for one in predictions if (d := one.no_answer_difference) < math.inf]
        above = [one for one in differences if one > threshold]
        if len(above) < len(differences):
            config.extra[THRESHOLD_KEY] = (threshold + min(above)) / 2 if above else threshold
        else:  # to answer nothing is best; there is no middle
            config.extra[THRESHOLD_KEY] = threshold - _BELOW_ALL
        return True

    def note(self, config: AlbertConfig, settings: TaskSettings, examples: Sequence[QuestionExample]) -> None:
        """Remove the threshold that was chosen for the model to begin with; `tune` chooses a new one."""
        del settings, examples
        config.extra.pop(THRESHOLD_KEY, None)

    def config_for(self, config: AlbertConfig, examples: Sequence[QuestionExample]) -> AlbertConfig:
        """Return the config with the threshold that holds."""
        config, threshold = config.replace(), self._threshold(config, examples)
        if threshold is not None:
            config.extra[THRESHOLD_KEY] = threshold
        return config

    def _threshold(self, config: AlbertConfig, examples: Sequence[QuestionExample]) -> float | None:
        """Return that of the model, or 0 where the data has questions without answer; None: always answer."""
        default = 0.0 if any(example.is_impossible for example in examples) else None
        return config.extra.get(THRESHOLD_KEY, default)

    def check(
        self,
        examples: Mapping[str, Sequence[QuestionExample]],
        config: AlbertConfig,
        settings: FinetuningSettings,
    ) -> str | None:
        """Return how many questions teach that there is no answer."""
        del config, settings
        training = examples["training"]
        silent = sum(example.is_impossible for example in training)
        return f"{silent:,} of {len(training):,} training questions have no answer" if silent else None

    def baseline(self, examples: Sequence[QuestionExample], config: AlbertConfig) -> dict[str, float]:
        """Return the scores of answering nothing, where that may be right."""
        del config
        share = sum(example.is_impossible for example in examples) / len(examples)
        return dict.fromkeys(("exact", "f1", "best_exact", "best_f1"), share) if share else {}

    def judge(self, example: QuestionExample, prediction: Answered, config: AlbertConfig) -> list[Judged]:
        """Return the decision on the best answer; where there may be none, that there is none is one."""
        answer = prediction.best(config.extra.get(THRESHOLD_KEY))
        texts = [text for text, _ in example.answers] or [""]
        right = any(exact_match(text, answer.text) for text in texts)
        return [Judged(texts[0], answer.text, right, min(answer.score, 1.0))]

    def record(self, example: QuestionExample, prediction: Answered, config: AlbertConfig) -> dict[str, Any]:
        """Return {answer, start, end, score, no_answer_difference}."""
        del example
        answer = prediction.best(config.extra.get(THRESHOLD_KEY))
        return {
            "answer": answer.text,
            "start": answer.start,
            "end": answer.end,
            "score": answer.score,
            # Without a place to answer at, such as in a context of one combining mark, it is infinite.
            "no_answer_difference": prediction.no_answer_difference if prediction.answers else None,
        }

    def truth(self, example: QuestionExample) -> list[str]:
        """Return all right answers; none where the text has none."""
        return [text for text, _ in example.answers]

    def what_is_cut(self, task: Task) -> str:
        """Name the questions."""
        assert isinstance(task, QuestionAnswering)
        return f"questions are longer than {task.max_question_length} tokens, and what is beyond is cut off"

    def troubles(self, task: Task, rows: Sequence[QuestionRow]) -> Counter[str]:
        """Count the answers that no window shows, and those that are too long to be given."""
        assert isinstance(task, QuestionAnswering)
        shown = self.learnable(rows)
        unseen = {row.example for row in rows} - {row.example for row in shown}
        long = {row.example for row in shown if row.labels[1] - row.labels[0] >= task.max_answer_length}
        found = {
            f"answers are whole in no window of {task.max_length} tokens: neither learnt nor given": unseen,
            f"answers are longer than {task.max_answer_length} tokens: never given": long,
        }
        return Counter({what: len(examples) for what, examples in found.items() if examples})

    def learnable(self, rows: Sequence[QuestionRow]) -> Sequence[QuestionRow]:
        """Leave out answers that no window shows."""
        return [row for row in rows if row.labels is not None]

    def constant_answer(
        self, examples: Sequence[QuestionExample], predictions: Sequence[Answered], config: AlbertConfig
    ) -> None:
        """Return None: to answer nothing may be best (see `tune`), and texts have no answers in common."""
        del examples, predictions, config

    def prior_loss(self, rows: Sequence[QuestionRow], config: AlbertConfig) -> float:
        """Return the loss of knowing how often a window has no answer, and else guessing among its tokens."""
        del config
        guesses = [math.log(len(row.context)) for row in rows if row.labels != NO_ANSWER]
        answered = Counter(row.labels != NO_ANSWER for row in rows)
        return entropy(answered) + sum(guesses) / len(rows)

    def lean(self, row: QuestionRow) -> QuestionRow:
        """Return a row without the characters of its tokens."""
        return without(row, "offsets")
