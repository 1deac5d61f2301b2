"""Multiple choice: choose the best answer to a question about a context, as in RACE and SWAG.

Every choice is a row: `[CLS] context [SEP] question choice [SEP]`. If the question has a gap ("_", as in
RACE), the choice fills the gap. A context that is too long is truncated at its end. The original does both.

Shapes: B examples, C choices, T tokens.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from albertkit.datasets.examples import ChoiceExample
from albertkit.engines.engine import Row, runs_of_examples
from albertkit.errors import DataError
from albertkit.metrics import choice_scores
from albertkit.reference import softmax
from albertkit.tasks.rows import text_rows
from albertkit.tasks.task import Decision, Task, directions

GAP = "_"


class MultipleChoice(Task[ChoiceExample, Row, np.ndarray]):
    """Predicts the choice that fits a context and a question. A prediction is the logits (C,)."""

    name = "multiple-choice"
    architecture = "AlbertForMultipleChoice"
    example_class = ChoiceExample
    answer = "choice"
    probability = "score"
    metrics = directions("accuracy", "middle", "high")
    may_be_too_long = True  # a question with its choice may leave no room for the context

    def features(self, examples: Sequence[ChoiceExample]) -> list[Row]:
        """Return one row per choice; each has the index of the right choice in `labels`."""
        owners, texts = [], []
        for number, example in enumerate(examples):
            count = len(example.choices)
            if count < 2:
                what = "a single choice" if count else "no choices"
                raise DataError(f"example {example.id!r} has {what}. Expected at least two.")
            owners += [number] * count
            texts += [(example.context, join(example.question, choice)) for choice in example.choices]
        truncation = "only_first" if self.settings.truncation else False
        rows = text_rows(self.tokenizer, texts, max_length=self.max_length, truncation=truncation)
        return [
            replace(row, example=owner, labels=examples[owner].label)
            for row, owner in zip(rows, owners, strict=True)
        ]

    def units(self, rows: Sequence[Row]) -> list[list[Row]]:
        return runs_of_examples(rows)

    def labels_of(self, rows: Sequence[Row]) -> dict[str, np.ndarray]:
        return {"labels": np.array([unit[0].labels for unit in self.units(rows)], np.int64)}

    def keep(self, scores: np.ndarray) -> np.ndarray:
        """Return the score of a choice. Choices are compared later, so any rows can share a batch."""
        return scores[0, 0]

    def decode(self, example: ChoiceExample, rows: list[tuple[Row, np.ndarray]]) -> np.ndarray:
        return np.array([logit for _, logit in rows])

    def record(self, example: ChoiceExample, prediction: np.ndarray) -> dict[str, Any]:
        choice, scores = int(prediction.argmax()), softmax(prediction).tolist()
        return {"choice": choice, "text": example.choices[choice], "score": max(scores), "scores": scores}

    def truth(self, example: ChoiceExample) -> int | None:
        return example.label

    def decisions(self, example: ChoiceExample, prediction: np.ndarray) -> list[Decision]:
        (decision,) = super().decisions(example, prediction)
        sides = {"true_text": decision.true, "predicted_text": decision.predicted}
        texts = {name: None if side is None else example.choices[side] for name, side in sides.items()}
        return [replace(decision, details=texts)]

    def scores(
        self, examples: Sequence[ChoiceExample], predictions: Sequence[np.ndarray]
    ) -> dict[str, float]:
        true = [-1 if example.label is None else example.label for example in examples]
        predicted = [int(logits.argmax()) for logits in predictions]
        return choice_scores(true, predicted, ids=[example.id for example in examples])

    def baseline(self, examples: Sequence[ChoiceExample]) -> dict[str, float]:
        return {"accuracy": sum(1 / len(example.choices) for example in examples) / len(examples)}

    def prior_loss(self, rows: Sequence[Row]) -> float:
        """Return the loss of equal probabilities, because the index of a choice has no meaning."""
        widths = [len(unit) for unit in runs_of_examples(rows)]
        return sum(map(math.log, widths)) / len(widths)


def join(question: str | None, choice: str) -> str:
    """Return the second text of a row: the question with the choice in its gap, or followed by the choice."""
    if not question:
        return choice
    return question.replace(GAP, choice) if GAP in question else f"{question} {choice}"
