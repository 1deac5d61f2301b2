"""Sequence classification and regression: one text or a pair -> labels, or numbers.

Shapes: B batch, K labels.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from albertkit.config import AlbertConfig
from albertkit.engines.engine import Row
from albertkit.errors import ConfigError, DataError
from albertkit.tasks.examples import TextExample
from albertkit.tasks.scores import sigmoid, softmax
from albertkit.tasks.task import Task, label_ids, unknown_label
from albertkit.tasks.texts import text_rows
from albertkit.tokenization.base import TokenizerBase

ProblemType = Literal["single_label_classification", "multi_label_classification", "regression"]
Function = Literal["softmax", "sigmoid", "none"]
_FUNCTIONS: dict[str, Function] = {
    "single_label_classification": "softmax",
    "multi_label_classification": "sigmoid",
    "regression": "none",
}
PAIRS_KEY = "text_pairs"
"""What a config calls whether its model was fine-tuned on pairs of texts (true) or on single ones (false)."""


@dataclass(frozen=True, slots=True)
class Classified:
    """What is predicted for one text."""

    label: str | tuple[str, ...] | float
    """The most probable label; for multi-label all that are more probable than not; for regression the
    number. Of the type that the example's own label has."""
    scores: list[float]
    """(K,): probabilities, or for regression the numbers."""


class SequenceClassification(Task[TextExample, Row, Classified]):
    """The task for one tokenizer and one set of labels.

    Args:
        tokenizer: cuts texts into pieces.
        max_length: most tokens of a row, special tokens included.
        labels: names of the model's scores, in their order.
        problem_type: as in the model's config. Regression takes one number for each text.
        truncation: cut texts that are longer, see `text_rows`; the rows count what was cut.

    Raises:
        ConfigError: an unknown problem type, labels twice, or several for a regression.
    """

    name = "text-classification"
    architecture = "AlbertForSequenceClassification"

    def __init__(
        self,
        tokenizer: TokenizerBase,
        *,
        max_length: int,
        labels: Sequence[str],
        problem_type: ProblemType = "single_label_classification",
        truncation: bool | str = False,
    ) -> None:
        super().__init__(tokenizer, max_length=max_length)
        if problem_type not in get_args(ProblemType):
            raise ConfigError(
                f"problem_type is {problem_type!r}; expected one of {', '.join(get_args(ProblemType))}"
            )
        self.labels = list(labels)
        self.problem_type: ProblemType = problem_type
        self.truncation = truncation
        self._ids = label_ids(labels)

    def features(self, examples: Sequence[TextExample]) -> list[Row]:
        """Return one row for each example.

        Its `labels`: the label's number; for multi-label 0.0 or 1.0 for each of K; for regression a float.
        """
        texts = [one.text if one.text_pair is None else (one.text, one.text_pair) for one in examples]
        rows = text_rows(
            self.tokenizer,
            texts,
            max_length=self.max_length,
            truncation=self.truncation,
        )
        return [
            replace(row, labels=self._read_label(example, row.example))
            for example, row in zip(examples, rows, strict=True)
        ]

    def _read_label(self, example: TextExample, number: int) -> int | float | list[float] | None:
        label, where = example.label, f"example {number} ({example.text!r:.40})"
        if label is None:
            return None
        if self.problem_type == "regression":
            if isinstance(label, (str, tuple)):
                raise DataError(f"{where} has the label {label!r:.60}; expected a number, for a regression")
            return float(label)
        given = label if isinstance(label, tuple) else (label,)
        for one in given:
            if one not in self._ids:
                raise unknown_label(one, self.labels, where=where)
        if self.problem_type == "multi_label_classification":
            return [float(one in given) for one in self.labels]
        if len(given) != 1:
            raise DataError(
                f"{where} has the labels {label!r:.60}; expected one, or "
                "problem_type='multi_label_classification'"
            )
        return self._ids[str(given[0])]

    def labels_of(self, rows: Sequence[Row]) -> dict[str, np.ndarray]:
        """Return `labels`: (B,) or, for multi-label, (B, K)."""
        dtype = np.int64 if self.problem_type == "single_label_classification" else np.float32
        return {"labels": np.array([row.labels for row in rows], dtype)}

    def predictions(
        self,
        examples: Sequence[TextExample],
        rows: Sequence[Row],
        outputs: Sequence[np.ndarray],
        *,
        function_to_apply: Function | None = None,
    ) -> list[Classified]:
        """Return label and scores of each example.

        Args:
            examples, rows, outputs: as in `Task.predictions`.
            function_to_apply: what makes scores of the logits, in place of what the problem type says.
        """
        assert len(examples) == len(rows)
        function = function_to_apply or _FUNCTIONS[self.problem_type]
        return [self._prediction(logits, function) for logits in outputs]

    def _prediction(self, logits: np.ndarray, function: Function) -> Classified:
        scores: list[float] = apply(function, logits).tolist()
        if self.problem_type == "regression":
            return Classified(scores[0], scores)
        if self.problem_type == "multi_label_classification":
            chosen = (logits > 0).tolist()  # where the probability is over one half
            return Classified(
                tuple(one for one, is_so in zip(self.labels, chosen, strict=True) if is_so), scores
            )
        return Classified(self.labels[int(logits.argmax())], scores)


def apply(function: Function, logits: np.ndarray) -> np.ndarray:
    """Return the scores (K,) that this function makes of logits (K,).

    Raises:
        ConfigError: no such function.
    """
    match function:
        case "softmax":
            return softmax(logits)
        case "sigmoid":
            return sigmoid(logits)
        case "none":
            return logits
    raise ConfigError(
        f"function_to_apply is {function!r}; expected None or one of {', '.join(get_args(Function))}"
    )


def problem_type_of(config: AlbertConfig) -> ProblemType:
    """Return what a config says, or else what `transformers` takes it for: one score is that of a label."""
    if config.problem_type is None:
        return "single_label_classification" if config.num_labels > 1 else "multi_label_classification"
    return config.problem_type  # pyright: ignore[reportReturnType]  # the config has checked it
