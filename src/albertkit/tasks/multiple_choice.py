"""Multiple choice: a context, a question and some answers -> which of them. RACE and SWAG are such tasks.

Every choice is a row: `[CLS] context [SEP] question choice [SEP]`. Where the question has a gap ("_", as in
RACE) the choice is put into it, and a context that is too long is cut at its end, both as in the original.

Shapes: B examples, C choices, T tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from albertkit.engines.engine import Row, by_example, runs_of_examples
from albertkit.errors import DataError
from albertkit.tasks.examples import ChoiceExample
from albertkit.tasks.scores import softmax
from albertkit.tasks.task import Task
from albertkit.tasks.texts import text_rows
from albertkit.tokenization.base import TokenizerBase

GAP = "_"


@dataclass(frozen=True, slots=True)
class Chosen:
    """What is predicted for one example."""

    choice: int
    """Number of the most probable choice."""
    scores: list[float]
    """(C,), the probability of each."""


class MultipleChoice(Task[ChoiceExample, Row, Chosen]):
    """The task for one tokenizer and one length of input.

    Args:
        tokenizer: cuts texts into pieces.
        max_length: most tokens of a row, special tokens included.
        truncation: cut a context that is too long at its end; the rows count what was cut.
    """

    name = "multiple-choice"
    architecture = "AlbertForMultipleChoice"

    def __init__(self, tokenizer: TokenizerBase, *, max_length: int, truncation: bool = False) -> None:
        super().__init__(tokenizer, max_length=max_length)
        self.truncation = truncation

    def features(self, examples: Sequence[ChoiceExample]) -> list[Row]:
        """Return one row for each choice; `labels`, the number of the right one, stands in each of them."""
        owners = []
        for number, example in enumerate(examples):
            _check(example)
            owners += [number] * len(example.choices)
        rows = text_rows(
            self.tokenizer,
            [
                (example.context, join(example.question, choice))
                for example in examples
                for choice in example.choices
            ],
            max_length=self.max_length,
            truncation="only_first" if self.truncation else False,
        )
        return [
            replace(row, example=owner, labels=examples[owner].label)
            for row, owner in zip(rows, owners, strict=True)
        ]

    def units(self, rows: Sequence[Row]) -> list[list[Row]]:
        """Return the choices of each example together: they share one softmax."""
        return runs_of_examples(rows)

    def labels_of(self, rows: Sequence[Row]) -> dict[str, np.ndarray]:
        """Return `labels` (B,)."""
        return {"labels": np.array([unit[0].labels for unit in self.units(rows)], np.int64)}

    def keep(self, scores: np.ndarray) -> np.ndarray:
        """Return the score of a choice, a number; they are compared later, so any rows share a batch."""
        return scores[0, 0]

    def predictions(
        self, examples: Sequence[ChoiceExample], rows: Sequence[Row], outputs: Sequence[np.ndarray]
    ) -> list[Chosen]:
        """Return the choice of each example, and the probability of all."""
        predictions = []
        for choices in by_example(rows, outputs, count=len(examples)):
            logits = np.array([logit for _, logit in choices])  # (C,)
            predictions.append(Chosen(int(logits.argmax()), softmax(logits).tolist()))
        return predictions


def join(question: str | None, choice: str) -> str:
    """Return the second text of a row: the choice in the question's gap, or after the question."""
    if not question:
        return choice
    return question.replace(GAP, choice) if GAP in question else f"{question} {choice}"


def _check(example: ChoiceExample) -> None:
    where = f"example {example.id!r}"
    if len(example.choices) < 2:
        raise DataError(f"{where} has {len(example.choices)} choices; expected at least two")
    if example.label is not None and not 0 <= example.label < len(example.choices):
        raise DataError(
            f"{where} has the label {example.label!r}; expected the number of one of its "
            f"{len(example.choices)} choices, the first being 0"
        )
