"""A fine-tuned model on a labelled source: read, predict, measure, report."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from albertkit.datasets.splits import load_splits
from albertkit.devices import Device
from albertkit.errors import ConfigError, DataError
from albertkit.extras import require
from albertkit.files import check_new_folder
from albertkit.finetuning.data_options import DataOptions
from albertkit.finetuning.evaluation import EvaluationSet
from albertkit.finetuning.exits import set_patience
from albertkit.finetuning.labelled_task import room_note
from albertkit.finetuning.report import PREDICTIONS, REPORT_JSON, write_report
from albertkit.finetuning.settings import TaskSettings
from albertkit.finetuning.trained_model import load_task
from albertkit.finetuning.trained_settings import is_run


def measure(
    task: str,
    model: str | Path,
    data: str | Path,
    *,
    settings: TaskSettings,
    options: DataOptions,
    output: str | Path | None = None,
    main_metric: str | None = None,
    device: Device,
    batch_tokens: int | None = None,
    engine: str = "auto",
    patience: int | None = None,
    exit_curve: str | Path | None = None,
    resumed: bool = False,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Return what a report says: at least {"metrics", "baseline", "examples"}.

    Args:
        task: its name, see `albertkit.finetuning.registry`.
        model: folder or name of a model that was fine-tuned for it.
        data: labelled file or folder.
        settings: how the model reads examples.
        options: columns and layout of the data.
        output: folder for the full report; None for the metrics alone.
        main_metric: the name of the most important metric, in place of the task's.
        device: where to compute.
        batch_tokens: most tokens computed at once, padding included; None for what suits the device.
        engine: one of `engines.choosing.ENGINES`.
        patience: depths that have to agree before an example leaves the model; None for all depths.
        exit_curve: picture of the main metric by patience, then "early_exit_curve" of what is returned.
        resumed: replace the report of an evaluation in the folder, which else must be empty.
        say: takes the lines of the report of the reading.

    Raises:
        ConfigError: a patience, or a curve, of a model that was not trained with early exit; the folder of a
            fine-tuning run for the report.
        DataError: data that cannot be read, has other labels or is of another kind than what the model was
            fine-tuned on, or a model without the head.
    """
    if exit_curve is not None:
        require("torch", extra="train")
    data = str(data)
    output = None if output is None else Path(output)
    if output is not None and is_run(output):
        raise ConfigError(
            f"{output} holds the report of a fine-tuning run, by which its model is read; choose another "
            f"folder, such as {output / 'test'}"
        )
    if output is not None:
        _check_output(Path(data), output)
    if output is not None and not resumed:
        check_new_folder(output)
    labelled, own, loaded = load_task(task, model, settings, device=device)
    if line := room_note(loaded.config, settings):
        say(line)
    set_patience(loaded, patience)
    splits = load_splits({"data": labelled.reader(data, options)}, labels=labelled.labels(loaded.config))
    for line in splits.reports["data"].lines():
        say(line)
    labelled.check_fit(splits.examples["data"], loaded.config)
    examples = EvaluationSet(labelled, own, splits.examples["data"], batch_tokens=batch_tokens)
    for line in examples.notes():
        say(f"{data}: {line}")
    evaluation = examples.evaluate(loaded, loaded.config, main_metric=main_metric, engine=engine)
    curve = {}
    if exit_curve is not None:
        from albertkit.finetuning.exit_curve import draw_curve, early_exit_curve

        name, points = early_exit_curve(examples, loaded, main_metric=main_metric)
        draw_curve(name, points, Path(exit_curve))
        curve = {"early_exit_curve": [{"metric_name": name, **asdict(one)} for one in points]}
    if output is None:
        return {
            "metrics": evaluation.metrics,
            "baseline": evaluation.baseline(),
            "examples": len(evaluation.examples),
            **curve,
        }
    about = {"task": task, "model": str(model), "data": splits.reports["data"].to_json(), **curve}
    return write_report(evaluation, output, about=about)


def _check_output(data: Path, output: Path) -> None:
    if output.exists() and not output.is_dir():
        raise DataError(f"{output} is a file; expected a folder for the report")
    if data.resolve() in ((output / name).resolve() for name in (PREDICTIONS, REPORT_JSON)):
        raise DataError(
            f"the report in {output} would replace {data}, which is the input; choose another folder"
        )
