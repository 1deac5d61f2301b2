"""Evaluate a fine-tuned model on labeled data: `evaluate`, and the evaluation of a model in memory."""

import logging
import math
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from albertkit.config import AlbertConfig
from albertkit.datasets.options import DataOptions
from albertkit.devices import Device, read_device
from albertkit.engines.choosing import engine_device, make_engine
from albertkit.engines.engine import Engine
from albertkit.engines.light_model import Model
from albertkit.errors import ConfigError, DataError
from albertkit.files import check_new_folder
from albertkit.finetuning.trained import (
    PREDICTIONS,
    REPORT_JSON,
    check_metric,
    chosen_metric,
    is_run,
    open_trained,
    shared_note,
    shared_with_training,
)
from albertkit.logs import lines_shown
from albertkit.recipe import takes_settings
from albertkit.results import Result, with_baseline
from albertkit.tasks.loading import RowCounts, features_of_all, load_splits
from albertkit.tasks.settings import TaskSettings
from albertkit.tasks.task import Decision, OwnMetrics, Task, example_name

logger = logging.getLogger(__name__)

_CORRELATIONS = {"pearson", "spearman", "matthews"}  # undefined if all true or all predicted values are equal


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
    def decisions(self) -> list[Decision]:
        """All decisions."""
        pairs = zip(self.examples, self.predictions, strict=True)
        return list(chain.from_iterable(self.task.decisions(*pair) for pair in pairs))

    @cached_property
    def baseline(self) -> dict[str, float]:
        """Metrics of the best prediction that ignores the input."""
        return self.task.baseline(self.examples)

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """Each prediction as plain values, with the `id` and the true answer (`true`) of its example."""
        return [
            {"id": example_name(example, number)}
            | self.task.record(example, prediction)
            | {"true": self.task.truth(example)}
            for number, (example, prediction) in enumerate(
                zip(self.examples, self.predictions, strict=True), start=1
            )
        ]

    def score_of(self, numbers: Sequence[int]) -> float:
        """Return the main metric over some examples. For a metric at the best threshold, use the model's own.

        The result is NaN if the metric has no value for these examples, because they are only a part of the
        data: a correlation of equal values is undefined, and a metric of your own may raise any error.
        """
        examples, predictions = (
            [side[number] for number in numbers] for side in (self.examples, self.predictions)
        )
        if self.main_metric in _CORRELATIONS:
            pairs = zip(examples, predictions, strict=True)
            decisions = list(chain.from_iterable(self.task.decisions(*pair) for pair in pairs))
            if min(len({getattr(one, side) for one in decisions}) for side in ("true", "predicted")) < 2:
                return math.nan
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="A single label", category=UserWarning)  # few examples
            try:
                scores = self.task.measure(examples, predictions)
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
        own = self.task.own_metrics
        return own[0].title if own else self.task.main_metric(self.examples)

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
            predictions += task.predictions(examples, rows, outputs)
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


@takes_settings(TaskSettings, DataOptions)
@lines_shown()
def evaluate(
    model: str | Path,
    *,
    data: Any,
    task: str | Task | None = None,
    output: str | Path | None = None,
    metrics: OwnMetrics = None,
    main_metric: str | None = None,
    device: Device = "auto",
    batch_tokens: int | None = None,
    engine: str = "auto",
    overwrite: bool = False,
    **settings: Any,
) -> Evaluation:
    """Evaluate a fine-tuned model on labeled data.

    Args:
        model: folder or name of the model.
        data: labeled examples: the path of a file or folder, a list of dicts, a DataFrame, an Arrow table, a
            `datasets.Dataset`, or an iterable of dicts or of the task's examples.
        task: name of the task, or a task of your own; None for the task that the model was fine-tuned for.
        output: new folder for report.json, report.md, predictions and plots; None to write no files.
        metrics: your own metrics: functions of the true and the predicted answers, or `Metric`.
        main_metric: name of the most important metric; None for the metric that selected the best model,
            which is in the report.json next to the model, or for the task's main metric if there is none.
        device: "auto", "cpu", "cuda" and so on.
        batch_tokens: maximum number of tokens per batch, including padding; None for a default that suits the
            device.
        engine: "auto", "onnx", "onnx-int8", "torch" or "plain".
        overwrite: whether to replace the report of an earlier evaluation in `output`.
        **settings: fields of `TaskSettings` and `DataOptions`; the defaults are those of the fine-tuning.

    Returns:
        The evaluation, with the metrics, the predictions, and the content of the report.

    Raises:
        ConfigError: a task, setting or metric is unknown, or `output` is the folder of a fine-tuning run.
        DataError: the data cannot be read, its labels or its kind of examples differ from those of the
            fine-tuning, or the model has no head.
    """
    model, output = str(model), None if output is None else Path(output)
    if output is not None:
        _check_output(data, output, overwrite=overwrite)
    place = read_device(engine_device(engine, device))
    setup = open_trained(model, task, data, settings, call=evaluate, name="data", labeled=True, device=place)
    loaded, task = setup.model, setup.task.with_metrics(metrics)
    if main_metric is not None:
        check_metric(main_metric, task.directions, name="main_metric")
    splits = load_splits(task, {"data": setup.reader}, labels=task.labels)
    given, read = splits.examples["data"], splits.reports["data"]
    for line in read.lines():
        logger.info("%s", line)
    task.check_fit(given)
    examples = EvaluationSet(task, given, batch_tokens=batch_tokens)
    shared = shared_with_training(model, given)
    for note in [*examples.counts.notes(), *([shared_note(shared, len(given))] if shared else [])]:
        logger.info("%s: %s", read.source, note)
    chosen = main_metric or chosen_metric(model, task)
    evaluation = examples.evaluate(loaded, loaded.config, main_metric=chosen, engine=engine)
    evaluation = _with_measured_metric(evaluation, main_metric, otherwise=examples.main_metric)
    about = {"data": read.to_json() | {"shared_with_training": shared}}
    if output is None:
        evaluation.report.update(
            metrics=evaluation.metrics,
            baseline=evaluation.baseline,
            examples=len(evaluation.examples),
            **about,
        )
        return evaluation
    from albertkit.finetuning.report import write_report

    evaluation.report.update(
        write_report(evaluation, output, about={"task": task.name, "model": model} | about)
    )
    return evaluation


def _with_measured_metric(evaluation: Evaluation, given: str | None, *, otherwise: str) -> Evaluation:
    """Return the evaluation with another main metric if that of the training was not measured."""
    if evaluation.main_metric in evaluation.metrics:
        return evaluation
    if given is not None:
        check_metric(given, evaluation.metrics, name="main_metric")
    logger.info(
        f"the model was selected by {evaluation.main_metric}, which is not measured here: the main metric is "
        f"{otherwise}"
    )
    return replace(evaluation, main_metric=otherwise)


def _check_output(data: Any, output: Path, *, overwrite: bool) -> None:
    if is_run(output):
        raise ConfigError(
            f"{output} has the report of a fine-tuning run, which is needed to load its model. Choose "
            f"another folder, such as {output / 'test'}."
        )
    if output.exists() and not output.is_dir():
        raise DataError(f"{output} is a file. Expected a folder for the report.")
    written = [(output / name).resolve() for name in (PREDICTIONS, REPORT_JSON)]
    if isinstance(data, str | Path) and Path(data).resolve() in written:
        raise DataError(
            f"the report in {output} would replace {data}, which is the input. Choose another folder."
        )
    if not overwrite:
        check_new_folder(output)
