"""A model on labelled examples: what it predicts, and how good that is."""

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from albertkit.config import AlbertConfig
from albertkit.engines.choosing import make_engine
from albertkit.engines.engine import Engine
from albertkit.engines.light_model import Model
from albertkit.finetuning.features import features_of_all
from albertkit.finetuning.labelled_task import Judged, LabelledTask
from albertkit.tasks.task import Task
from albertkit.tasks.unknown import UnknownTokens


@dataclass(frozen=True)
class Evaluation:
    """Examples with their predictions, and the metrics over all of them."""

    labelled: LabelledTask
    config: AlbertConfig
    examples: list[Any]
    predictions: list[Any]
    metrics: dict[str, float]
    main_metric: str
    lengths: list[int]
    """Tokens read of each example, windows and choices together."""
    cut: int
    """Examples of which something was cut off."""
    troubles: Counter[str]
    """Examples that cannot be right, by what is wrong with their answers."""

    def judged(self) -> list[Judged]:
        """Return all decisions."""
        pairs = zip(self.examples, self.predictions, strict=True)
        return list(chain.from_iterable(self.labelled.judge(*pair, self.config) for pair in pairs))

    def baseline(self) -> dict[str, float]:
        """Return what a metric is for the best prediction that does not look at the input."""
        return self.labelled.baseline(self.examples, self.config)

    def score_of(self, numbers: Sequence[int]) -> float:
        """Return the main metric over some examples: where that is a best threshold's, at the model's own."""
        examples, predictions = (
            [side[number] for number in numbers] for side in (self.examples, self.predictions)
        )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="A single label", category=UserWarning)  # few examples
            return self.labelled.scores(examples, predictions, self.config)[
                self.main_metric.removeprefix("best_")
            ]


class EvaluationSet:
    """Labelled examples with their rows, to be evaluated once or many times.

    Args:
        labelled: the task with its measures.
        task: the task for the model's tokenizer.
        examples: all of them.
        batch_tokens: most tokens computed at once, padding included; None for what suits the device.
    """

    def __init__(
        self, labelled: LabelledTask, task: Task, examples: list[Any], *, batch_tokens: int | None = None
    ) -> None:
        self.labelled, self.task, self.examples = labelled, task, examples
        self.batch_tokens = batch_tokens
        self._chunks = list(features_of_all(task, examples))
        self._lengths, self.cut, self.troubles = [], 0, Counter[str]()
        self._unknown = UnknownTokens(task.tokenizer)
        for chunk, rows in self._chunks:
            lengths = [0] * len(chunk)
            for row in rows:
                lengths[row.example] += len(row.input_ids)
            self._lengths += lengths
            self._unknown.add(rows, count=len(chunk))
            self.cut += len({row.example for row in rows if row.cut})
            self.troubles += labelled.troubles(task, rows)

    def notes(self) -> list[str]:
        """Return what is to be said of the examples."""
        notes = self.labelled.notes(self.task, len(self.examples), self.cut, self.troubles)
        return [*notes, unknown] if (unknown := self._unknown.note()) else notes

    def evaluate(
        self,
        model: Model,
        config: AlbertConfig,
        *,
        main_metric: str | None = None,
        engine: str | Engine = "auto",
    ) -> Evaluation:
        """Return what a model makes of the examples.

        Args:
            model: to be evaluated.
            config: its config.
            main_metric: the name of the most important metric, in place of the task's.
            engine: one of `engines.choosing.ENGINES`, or an engine of the model.
        """
        predictions: list[Any] = []
        if not isinstance(engine, Engine):
            engine = make_engine(model, engine)
        for examples, rows in self._chunks:
            outputs = self.task.run(engine, rows, batch_tokens=self.batch_tokens)
            predictions += self.task.predictions(examples, rows, outputs)
        predictions = self.labelled.compared(self.examples, predictions)
        config = self.labelled.config_for(config, self.examples)
        return Evaluation(
            labelled=self.labelled,
            config=config,
            examples=self.examples,
            predictions=predictions,
            metrics=self.labelled.scores(self.examples, predictions, config),
            main_metric=main_metric or self.labelled.main_metric(config, self.examples),
            lengths=self._lengths,
            cut=self.cut,
            troubles=self.troubles,
        )
