"""Evaluate a fine-tuned model on labeled data: `evaluate`."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from albertkit.datasets.options import DataOptions
from albertkit.devices import Device, read_device
from albertkit.engines.choosing import engine_device
from albertkit.errors import ConfigError, DataError
from albertkit.files import check_new_folder
from albertkit.finetuning.evaluation import Evaluation, EvaluationSet, write_report
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
from albertkit.tasks.loading import load_splits
from albertkit.tasks.settings import TaskSettings
from albertkit.tasks.task import OwnMetrics, Task

logger = logging.getLogger(__name__)


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
        model: model folder or Hugging Face Hub name.
        data: labeled data: a file or a folder. In Python also a list of dicts, a DataFrame, an Arrow table, a
            `datasets.Dataset`, or an iterable of dicts or of the task's examples.
        task: name of the task (default: the task that the model was fine-tuned for). In Python also a task of
            your own.
        output: new folder for report.json, report.md, predictions and plots. In Python also None, to
            write no files.
        metrics: your own metrics: functions of the true and the predicted answers, or `Metric`.
        main_metric: name of the most important metric; None for the metric that selected the best model,
            which is in the report.json next to the model, or for the task's main metric if there is none.
        device: the device: auto (the best available device), cpu, cuda, cuda:1, mps, ...
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
    evaluation.report.update(
        write_report(evaluation, output, about={"task": task.name, "model": model} | about)
    )
    return evaluation


def _with_measured_metric(evaluation: Evaluation, given: str | None, *, otherwise: str) -> Evaluation:
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
