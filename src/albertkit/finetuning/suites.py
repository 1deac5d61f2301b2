"""Benchmark suites: evaluate one model per task on the official files, next to published results."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from albertkit.datasets.official import GLUE_TASKS
from albertkit.datasets.options import DataOptions
from albertkit.errors import ConfigError, DataError, suggestion
from albertkit.files import check_new_folder, complete_files, finite, write_json
from albertkit.finetuning.evaluate import evaluate
from albertkit.finetuning.evaluation import REPORT_JSON, REPORT_MARKDOWN
from albertkit.finetuning.published_figures import TABLES, PublishedTable
from albertkit.tasks.registry import task_of

logger = logging.getLogger(__name__)

MISSING = "missing"
NONE = "-"  # not in the suite, or not published
Reports = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Measurement:
    """One task of a suite on one split of its data."""

    name: str
    task: str
    models: tuple[str, ...]
    """Possible names of the folder of its model; the first is the name of its recipe."""
    homes: tuple[str, ...]
    """Possible names of the folder with the data of its suite."""
    place: str
    """File or folder of the data in that folder."""
    split: str = ""
    """Split of a GLUE folder."""
    options: dict[str, Any] = field(default_factory=dict)
    """Data options."""
    main_metric: str | None = None


def _glue(task: str, split: str) -> Measurement:
    official = GLUE_TASKS[task]
    return Measurement(
        name="mnli_mismatched" if split == "validation_mismatched" else task,
        task="text-classification",
        models=(f"glue_{task}", task),
        homes=("GLUE", "glue", "glue_data"),
        place=official.folder,
        split=split,
        options={"glue": task},
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
        name=f"race_{split}", task="multiple-choice", models=("race",), homes=("RACE", "race"), place=split
    )


_SUITES = {
    "glue": tuple(_glue(name, split) for name, task in GLUE_TASKS.items() for split in task.validation),
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
    **options: Any,
) -> dict[str, dict[str, Any]]:
    """Evaluate every measurement of a suite for which there are data and a model.

    Args:
        suite: a key of `SUITES`.
        data: the folder of the suite as it is distributed, or its parent folder.
        models: a folder with one fine-tuned model per task, in folders named like the recipes; for a suite
            with a single task, also that model.
        output: folder for the reports, each in a folder with the measurement's name; None writes nothing.
        options: further arguments of `evaluate`.

    Returns:
        The report by the measurement's name, {"metrics", "examples", ...}, or {"missing": reason}.

    Raises:
        ConfigError: the suite is unknown.
        DataError: nothing can be measured, two folders are possible, or files cannot be read.
    """
    if suite not in SUITES:
        raise ConfigError(f"there is no suite {suite!r}. {suggestion(suite, SUITES)}")
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
            # Raises for invalid files before the work begins.
            task_of(one.task).reader(source, DataOptions(**one.options))
            work.append((one, source, model))
    reasons = [f"{name}: {report[MISSING]}" for name, report in reports.items() if report]
    output = None if output is None else Path(output)
    if output is not None and output.is_dir() and {one.name for one in output.iterdir()} - {*reports}:
        check_new_folder(output)  # an interrupted suite writes its reports again
    if not work:
        raise DataError(f"nothing in the suite {suite} can be measured: {'; '.join(reasons)}")
    for reason in reasons:
        logger.info("missing: %s", reason)
    for one, source, model in work:
        evaluation = evaluate(
            model,
            data=source,
            task=one.task,
            output=None if output is None else output / one.name,
            main_metric=one.main_metric,
            overwrite=True,
            **options | one.options,
        )
        reports[one.name] = evaluation.report | {"model": model}
    return reports


def _source(one: Measurement, data: Path) -> str | None:
    """Return the input of the task's reader, or None if there is no data."""
    for folder in (data, *(data / home for home in one.homes)):
        if (folder / one.place).exists():
            return str(folder / one.place / one.split) if one.split else str(folder / one.place)
    return None


def _model(one: Measurement, models: str, *, alone: bool) -> str | None:
    """Return folder or name of the model for a task, or None if there is none."""
    folder = Path(models)
    if not folder.is_dir() or (folder / "config.json").is_file():
        if alone:
            return models
        what = "is the folder of one model" if folder.is_dir() else "is not a folder"
        raise DataError(
            f"{models} {what}. Expected a folder with a model for each task: {one.models[0]} and so on."
        )
    there = [name for name in one.models if (folder / name / "config.json").is_file()]
    if len(there) > 1:
        raise DataError(
            f"{folder} has {' and '.join(there)}, which are for the same task. Keep only one of them."
        )
    return str(folder / there[0]) if there else None


def write_results(suite: str, model: str, reports: Reports, folder: str | Path) -> None:
    """Write the reports of a suite and its page into a folder, which is created if missing."""
    content = finite({"suite": suite, "model": model, "measurements": reports})
    with complete_files(Path(folder)) as files:
        write_json(files / REPORT_JSON, content)
        (files / REPORT_MARKDOWN).write_text(results_page(suite, model, reports), encoding="utf-8")


def results_page(suite: str, model: str, reports: Reports) -> str:
    """Return the published tables of the suite's tasks, with a row for the model, and all metrics.

    Args:
        suite: a key of `SUITES`.
        model: the name of the model's row.
        reports: result of `evaluate_suite`.
    """
    lines = [f"# {suite}: {model}", "", "All metrics are in percent, also correlations.", ""]
    for table in TABLES:
        lines += _table(table, model, reports)
    lines += ["## All metrics", "", "| | model | examples | |", "|---|---|---|---|"]
    for one in SUITES[suite]:
        report = reports[one.name]
        if MISSING in report:
            lines.append(f"| {one.name} | | | missing: {report[MISSING]} |")
        else:
            metrics = ", ".join(f"{name} {value:.4f}" for name, value in report["metrics"].items())
            lines.append(f"| {one.name} | {report['model']} | {report['examples']:,} | {metrics} |")
    return "\n".join(lines) + "\n"


def _table(table: PublishedTable, model: str, reports: Reports) -> list[str]:
    measured = [_measured(column.keys, reports) for column in table.columns]
    if all(one == NONE for one in measured):
        return []
    names, metrics = [column.name for column in table.columns], [column.metric for column in table.columns]
    cells = [one if isinstance(one, str) else "/".join(f"{value:.1f}" for value in one) for one in measured]
    if table.has_averages:
        names, metrics = ["Average", *names], ["", *metrics]
        figures = [one for one in measured if not isinstance(one, str)]
        cells.insert(0, f"{average(figures):.1f}" if len(figures) == len(measured) else NONE)
    lines = [f"## {table.title}", "", _row("", names), "|" + "---|" * (len(names) + 1), _row("", metrics)]
    lines.append(_row(f"**{model}**", cells))
    lines += [_row(name, row.split()) for name, row in table.rows.items()]
    return [*lines, "", table.source, ""]


def average(figures: Sequence[tuple[float, ...]]) -> float:
    """Return the mean of the columns' means, as defined below table 2 of Lan et al. 2019."""
    return fmean(map(fmean, figures))


def _measured(keys: tuple[str, ...], reports: Reports) -> tuple[float, ...] | str:
    measured, metric = zip(*(key.split("/") for key in keys), strict=True)
    if measured[0] not in reports:
        return NONE
    found = reports[measured[0]].get("metrics", {})
    return tuple(100 * found[name] for name in metric) if {*metric} <= {*found} else MISSING


def _row(name: str, cells: list[str]) -> str:
    return f"| {' | '.join([name, *cells])} |"
