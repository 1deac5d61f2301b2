"""The evaluation of a model on labeled examples: its predictions and metrics."""

import math
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

from albertkit.config import AlbertConfig
from albertkit.engines.choosing import make_engine
from albertkit.engines.engine import Engine
from albertkit.engines.light_model import Model
from albertkit.errors import ConfigError
from albertkit.results import Result, with_baseline
from albertkit.tasks.loading import RowCounts, features_of_all
from albertkit.tasks.measuring import Judged
from albertkit.tasks.task import Task, example_name

CORRELATIONS = {"pearson", "spearman", "matthews"}
"""Metrics that are undefined if all true or all predicted values are equal."""


@dataclass(frozen=True, repr=False)
class Evaluation(Result):
    """The predictions of a model on labeled examples, and the metrics over all of them."""

    task: Task
    """The task, bound to the model."""
    examples: list[Any]
    predictions: list[Any]
    """One prediction per example, in the task's form."""
    metrics: dict[str, float]
    main_metric: str
    """Name of the most important metric."""
    lengths: list[int]
    """Number of tokens per example, over all its windows or choices."""
    cut: int
    """Number of examples that were truncated."""
    troubles: Counter[str]
    """Number of examples that cannot be right, by the problem with their answers."""
    report: dict[str, Any] = field(default_factory=dict)
    """The content of `report.json`; without an output folder only metrics, baseline, examples and data."""

    @cached_property
    def judged(self) -> list[Judged]:
        """All decisions."""
        pairs = zip(self.examples, self.predictions, strict=True)
        return list(chain.from_iterable(self.task.judge(*pair) for pair in pairs))

    @cached_property
    def baseline(self) -> dict[str, float]:
        """Metrics of the best prediction that ignores the input."""
        return self.task.checked_baseline(self.examples)

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """Each prediction as plain values, with the `id` and the true answer (`true`) of its example."""
        return [
            {"id": example_name(example, number)}
            | self.task.checked_record(example, prediction)
            | {"true": self.task.checked_truth(example)}
            for number, (example, prediction) in enumerate(
                zip(self.examples, self.predictions, strict=True), start=1
            )
        ]

    def check(self) -> None:
        """Check what a report needs, so that a mistake in a task of your own ends a run before it trains.

        Raises:
            ConfigError, DataError: the record or the true answer of an example is invalid, or the baseline.
        """
        for example, prediction in zip(self.examples, self.predictions, strict=True):
            self.task.check_answers(example, prediction)
        self.task.checked_baseline(self.examples)

    def score_of(self, numbers: Sequence[int]) -> float:
        """Return the main metric over some examples. For a metric at the best threshold, use the model's own.

        The result is NaN if the metric has no value for these examples, because they are only a part of the
        data: a correlation of equal values is undefined, and the function may raise any error, such as for a
        division by zero.

        Raises:
            ConfigError: a record lacks a column that the task declares.
        """
        examples, predictions = (
            [side[number] for number in numbers] for side in (self.examples, self.predictions)
        )
        if self.main_metric in CORRELATIONS:
            judged = [
                one for pair in zip(examples, predictions, strict=True) for one in self.task.judge(*pair)
            ]
            if len({one.true for one in judged}) < 2 or len({one.predicted for one in judged}) < 2:
                return math.nan
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="A single label", category=UserWarning)  # few examples
            try:
                scores = self.task.measure(examples, predictions)
            except ConfigError:
                raise
            except Exception:
                return math.nan
        name = self.main_metric
        if "best_f1_threshold" in self.metrics:  # for questions, of which some have no answer
            name = {"best_exact": "exact", "best_f1": "f1"}.get(name, name)
        return scores.get(name, math.nan)

    def summary(self) -> dict[str, Any]:
        """Return the values to show, by name."""
        return {"task": self.task.name, "examples": len(self.examples)} | with_baseline(
            self.metrics, self.baseline
        )


class EvaluationSet:
    """Labeled examples with their rows, which can be evaluated several times.

    Args:
        task: the task, bound to the model's tokenizer.
        examples: all examples.
        batch_tokens: maximum number of tokens per batch, including padding; None for a default that suits the
            device.
    """

    def __init__(self, task: Task, examples: list[Any], *, batch_tokens: int | None = None) -> None:
        self.task, self.examples = task, examples
        self.batch_tokens = batch_tokens
        self._chunks = list(features_of_all(task, examples))
        self._lengths: list[int] = []
        self.counts = RowCounts(task)
        for chunk, rows in self._chunks:
            lengths = [0] * len(chunk)
            for row in rows:
                lengths[row.example] += len(row.input_ids)
            self._lengths += lengths
            self.counts.add(chunk, rows)

    @property
    def rows(self) -> list[Any]:
        """The rows of all examples."""
        return [row for _, rows in self._chunks for row in rows]

    @property
    def main_metric(self) -> str:
        """The metric that selects a model: the first of your own, else the task's main metric."""
        own = [one.title for one in self.task.own_metrics]
        return own[0] if own else self.task.main_metric(self.examples)

    def evaluate(
        self,
        model: Model,
        config: AlbertConfig,
        *,
        main_metric: str | None = None,
        engine: str | Engine = "auto",
    ) -> Evaluation:
        """Return the evaluation of a model on the examples.

        Args:
            model: the model to evaluate.
            config: the model's config.
            main_metric: the name of the most important metric, instead of the task's.
            engine: one of `engines.choosing.ENGINES`, or an engine of the model.
        """
        task = self.task.with_config(config).for_examples(self.examples)
        predictions: list[Any] = []
        if not isinstance(engine, Engine):
            engine = make_engine(model, engine)
        for examples, rows in self._chunks:
            outputs = task.run(engine, rows, batch_tokens=self.batch_tokens)
            predictions += task.checked_predictions(examples, rows, outputs)
        predictions = task.compared(self.examples, predictions)
        return Evaluation(
            task=task,
            examples=self.examples,
            predictions=predictions,
            metrics=task.measure(self.examples, predictions),
            main_metric=main_metric or self.main_metric,
            lengths=self._lengths,
            cut=self.counts.cut,
            troubles=self.counts.troubles,
        )
