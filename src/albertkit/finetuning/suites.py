"""Whole benchmarks: a fine-tuned model for each task, on the official files, beside what was published."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from albertkit.datasets import glue
from albertkit.devices import Device
from albertkit.errors import ConfigError, DataError, suggestion
from albertkit.files import check_new_folder
from albertkit.finetuning.data_options import DataOptions
from albertkit.finetuning.measure import measure
from albertkit.finetuning.registry import labelled_task
from albertkit.finetuning.trained_settings import task_settings

MISSING = "missing"


@dataclass(frozen=True)
class Measurement:
    """One task of a suite on one split of its data."""

    name: str
    task: str
    models: tuple[str, ...]
    """What the folder of its model may be called; the first is the name of its recipe."""
    homes: tuple[str, ...]
    """What a folder with the data of its suite may be called."""
    place: str
    """File or folder of the data in there."""
    split: str = ""
    """What is read of a folder of GLUE."""
    options: DataOptions = field(default_factory=DataOptions)
    main_metric: str | None = None


def _glue(task: str, split: str) -> Measurement:
    official = glue.TASKS[task]
    return Measurement(
        name="mnli_mismatched" if split == "validation_mismatched" else task,
        task="text-classification",
        models=(f"glue_{task}", task),
        homes=("GLUE", "glue", "glue_data"),
        place=official.folder,
        split=split,
        options=DataOptions(glue=task),
        main_metric=official.metrics[0],
    )


def _squad(version: str) -> Measurement:
    return Measurement(
        name=f"squad{version[0]}",
        task="question-answering",
        models=(f"squad{version[0]}", f"squad{version}"),
        homes=("SQuAD", "squad"),
        place=f"dev-v{version}.json",
    )


def _race(split: str) -> Measurement:
    return Measurement(
        name=f"race_{split}",
        task="multiple-choice",
        models=("race",),
        homes=("RACE", "race"),
        place=split,
    )


_SUITES = {
    "glue": tuple(_glue(name, split) for name, task in glue.TASKS.items() for split in task.validation),
    "squad": (_squad("1.1"), _squad("2.0")),
    "race": (_race("dev"), _race("test")),
}
SUITES = {**_SUITES, "all": tuple(one for suite in _SUITES.values() for one in suite)}


def evaluate_suite(
    suite: str,
    data: str | Path,
    models: str | Path,
    *,
    output: str | Path | None = None,
    given: dict[str, Any] | None = None,
    device: Device,
    batch_tokens: int | None = None,
    engine: str = "auto",
    say: Callable[[str], None],
) -> dict[str, dict[str, Any]]:
    """Measure what there is data and a model for.

    Args:
        suite: a key of `SUITES`.
        data: the folder of the suite as it is distributed, or one in which that folder is.
        models: a folder with a fine-tuned model for each task, in folders called as the recipes are; of a
            suite that is one task, also that model.
        output: folder for the report of each measurement, in a folder of its name; None for none.
        given: settings that hold instead of those that a model was fine-tuned with.
        device, batch_tokens, engine, say: as in `measure`.

    Returns:
        By the name of the measurement: its report, {"metrics", "examples", ...}, or {"missing": why}.

    Raises:
        ConfigError: an unknown suite.
        DataError: nothing can be measured, two folders could be meant, or files cannot be read.
    """
    if suite not in SUITES:
        raise ConfigError(f"there is no suite {suite!r}; {suggestion(suite, SUITES)}")
    work: list[tuple[Measurement, str, str]] = []
    reports: dict[str, dict[str, Any]] = {}
    alone = len({one.models for one in SUITES[suite]}) == 1
    for one in SUITES[suite]:
        source, model = _source(one, Path(data)), _model(one, str(models), alone=alone)
        reports[one.name] = {}  # keeps the order
        if source is None:
            reports[one.name] = {MISSING: f"no data, expected {Path(data) / one.place}"}
        elif model is None:
            reports[one.name] = {MISSING: f"no model, expected {Path(models) / one.models[0]}"}
        else:
            labelled_task(one.task).reader(
                source, one.options
            )  # files that are not right show before the work
            work.append((one, source, model))
    reasons = [f"{name}: {report[MISSING]}" for name, report in reports.items() if report]
    output = None if output is None else Path(output)
    if output is not None and output.is_dir() and {one.name for one in output.iterdir()} - {*reports}:
        check_new_folder(output)  # the reports of a suite that was interrupted are made again
    if not work:
        raise DataError(f"nothing of the suite {suite} can be measured; {'; '.join(reasons)}")
    for reason in reasons:
        say(f"missing: {reason}")
    for one, source, model in work:
        reports[one.name] = measure(
            one.task,
            model,
            source,
            settings=task_settings(model, given or {}),
            options=one.options,
            output=None if output is None else output / one.name,
            main_metric=one.main_metric,
            resumed=True,
            device=device,
            batch_tokens=batch_tokens,
            engine=engine,
            say=say,
        ) | {"model": model}
    return reports


def _source(one: Measurement, data: Path) -> str | None:
    """Return what the reader of the task is given, or None where there is no data."""
    for folder in (data, *(data / home for home in one.homes)):
        if (folder / one.place).exists():
            return str(folder / one.place / one.split) if one.split else str(folder / one.place)
    return None


def _model(one: Measurement, models: str, *, alone: bool) -> str | None:
    """Return folder or name of the model for a task, or None where there is none."""
    folder = Path(models)
    if not folder.is_dir() or (folder / "config.json").is_file():
        if alone:
            return models
        what = "is one model" if folder.is_dir() else "is no folder"
        raise DataError(
            f"{models} {what}; expected one with a model for each task: {one.models[0]} and so on"
        )
    there = [name for name in one.models if (folder / name / "config.json").is_file()]
    if len(there) > 1:
        raise DataError(f"{folder} has {' and '.join(there)}, which are for one task; move one of them away")
    return str(folder / there[0]) if there else None
