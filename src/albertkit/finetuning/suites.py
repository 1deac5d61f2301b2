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
from albertkit.finetuning.evaluate import REPORT_JSON, REPORT_MARKDOWN, evaluate
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
    models: tuple[str, ...]  # possible names of the folder of its model; the first is that of its recipe
    folders: tuple[str, ...]  # possible names of the folder with the data of the suite
    path: str  # of the data in that folder
    split: str = ""  # of a GLUE folder
    options: dict[str, Any] = field(default_factory=dict)
    main_metric: str | None = None


_SUITES = {
    "glue": tuple(
        Measurement(
            "mnli_mismatched" if split == "validation_mismatched" else name,
            "text-classification",
            models=(f"glue_{name}", name),
            folders=("GLUE", "glue", "glue_data"),
            path=official.folder,
            split=split,
            options={"glue": name},
            main_metric=official.metrics[0],
        )
        for name, official in GLUE_TASKS.items()
        for split in official.validation
    ),
    "squad": tuple(
        Measurement(
            f"squad{version[0]}",
            "question-answering",
            models=(f"squad{version[0]}", f"squad{version}"),
            folders=("SQuAD", "squad"),
            path=f"dev-v{version}.json",
        )
        for version in ("1.1", "2.0")
    ),
    "race": tuple(
        Measurement(
            f"race_{split}", "multiple-choice", models=("race",), folders=("RACE", "race"), path=split
        )
        for split in ("dev", "test")
    ),
}
SUITES = {**_SUITES, "all": tuple(one for suite in _SUITES.values() for one in suite)}


# --- published results, in percent
#
# The sources are the README of google-research/albert, whose table of all sizes the model cards on the hub
# repeat, and Lan et al. 2019 (arXiv:1909.11942v6), tables 2, 9 and 10. Where the sources overlap, they agree.
#
# The results of MNLI are for the matched set (appendix A.3). The paper does not name the other metrics of
# GLUE's development sets. It follows Liu et al. 2019, so we assume Matthews' correlation for CoLA, Pearson's
# correlation for STS-B, and accuracy for the other tasks.


@dataclass(frozen=True)
class PublishedTable:
    """A published table. Several values in one column are in the order of the measured values."""

    title: str
    source: str
    columns: dict[str, tuple[str, str]]
    """Name -> the metrics and the split in words, and the measured values, as MEASUREMENT/METRIC."""
    rows: dict[str, str]  # the cells, after the average if there are averages; "-" is not published
    has_averages: bool = False


_SQUAD = {
    "SQuAD1.1": ("F1/exact, dev", "squad1/f1 squad1/exact"),
    "SQuAD2.0": ("F1/exact, dev", "squad2/f1 squad2/exact"),
}

DOWNSTREAM = PublishedTable(
    title="SQuAD, MNLI, SST-2 and RACE",
    source="The README of google-research/albert, repeated by the model cards. Version 1 is as in the paper: "
    "table 2, development sets; for xxlarge tables 9 and 10, where RACE is the test set. For version 2 the "
    "README does not name the sets.",
    columns={
        **_SQUAD,
        "MNLI": ("accuracy, matched", "mnli/accuracy"),
        "SST-2": ("accuracy, dev", "sst2/accuracy"),
        "RACE": ("accuracy, dev", "race_dev/accuracy"),
    },
    rows={
        "albert-base-v2": "82.3 90.2/83.2 82.1/79.3 84.6 92.9 66.8",
        "albert-large-v2": "85.7 91.8/85.2 84.9/81.8 86.5 94.9 75.2",
        "albert-xlarge-v2": "87.9 92.9/86.4 87.9/84.1 87.9 95.4 80.7",
        "albert-xxlarge-v2": "90.9 94.6/89.1 89.8/86.9 90.6 96.8 86.8",
        "albert-base-v1": "80.1 89.3/82.3 80.0/77.1 81.6 90.3 64.0",
        "albert-large-v1": "82.4 90.6/83.9 82.3/79.4 83.5 91.7 68.5",
        "albert-xlarge-v1": "85.5 92.5/86.1 86.1/83.1 86.4 92.4 74.8",
        "albert-xxlarge-v1": "91.0 94.8/89.3 90.2/87.4 90.8 96.9 86.5",
    },
    has_averages=True,
)

GLUE = PublishedTable(
    title="GLUE, development sets",
    source="Lan et al. 2019, table 9: single models in the shape of xxlarge after 1 and 1.5 million steps, "
    "medians of five runs. RTE, STS-B and MRPC begin with the model fine-tuned on MNLI.",
    columns={
        "MNLI": ("accuracy, matched", "mnli/accuracy"),
        "QNLI": ("accuracy", "qnli/accuracy"),
        "QQP": ("accuracy", "qqp/accuracy"),
        "RTE": ("accuracy", "rte/accuracy"),
        "SST-2": ("accuracy", "sst2/accuracy"),
        "MRPC": ("accuracy", "mrpc/accuracy"),
        "CoLA": ("Matthews", "cola/matthews"),
        "STS-B": ("Pearson", "stsb/pearson"),
        "WNLI": ("accuracy", "wnli/accuracy"),
    },
    rows={
        "ALBERT (1M)": "90.4 95.2 92.0 88.1 96.8 90.2 68.7 92.7 -",
        "ALBERT (1.5M)": "90.8 95.3 92.2 89.2 96.9 90.9 71.4 93.0 -",
    },
)

READING = PublishedTable(
    title="SQuAD, development sets, and RACE, test set",
    source="Lan et al. 2019, table 10: single models in the shape of xxlarge after 1 and 1.5 million steps.",
    columns={
        **_SQUAD,
        "RACE": ("accuracy, test", "race_test/accuracy"),
        "RACE middle": ("accuracy, test", "race_test/middle"),
        "RACE high": ("accuracy, test", "race_test/high"),
    },
    rows={
        "ALBERT (1M)": "94.8/89.2 89.9/87.2 86.0 88.2 85.1",
        "ALBERT (1.5M)": "94.8/89.3 90.2/87.4 86.5 89.0 85.5",
    },
)

TABLES = (DOWNSTREAM, GLUE, READING)


# --- evaluation


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
        output: folder for the report of the suite, with a folder for each measurement; None writes nothing.
        options: further arguments of `evaluate`.

    Returns:
        The report by the measurement's name, {"metrics", "examples", ...}, or {"missing": reason}.
    """
    if suite not in SUITES:
        raise ConfigError(f"there is no suite {suite!r}. {suggestion(suite, SUITES)}")
    work: list[tuple[Measurement, str, str]] = []
    reports: dict[str, dict[str, Any]] = {}
    alone = len({one.models for one in SUITES[suite]}) == 1
    for one in SUITES[suite]:
        model = _model(one, str(models), alone=alone)
        folders = (Path(data), *(Path(data) / name for name in one.folders))
        source = next((str(at / one.path / one.split) for at in folders if (at / one.path).exists()), None)
        reports[one.name] = {}  # keeps the order
        if source is None:
            reports[one.name] = {MISSING: f"no data at {Path(data) / one.path}"}
        elif model is None:
            reports[one.name] = {MISSING: f"no model at {Path(models) / one.models[0]}"}
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
        logger.info("skipping %s", reason)
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
    if output is not None:
        with complete_files(output) as files:
            content = {"suite": suite, "model": str(models), "measurements": reports}
            write_json(files / REPORT_JSON, finite(content))
            page = results_page(suite, str(models), reports)
            (files / REPORT_MARKDOWN).write_text(page, encoding="utf-8")
    return reports


def _model(one: Measurement, models: str, *, alone: bool) -> str | None:
    """Return folder or name of the model for a task, or None if there is none."""
    folder = Path(models)
    if not folder.is_dir() or (folder / "config.json").is_file():
        if alone:
            return models
        raise DataError(f"{models} is not a folder with a model for each task: {one.models[0]} and so on.")
    models_of_task = [name for name in one.models if (folder / name / "config.json").is_file()]
    if len(models_of_task) > 1:
        raise DataError(f"{folder} has {' and '.join(models_of_task)}, for the same task. Keep one of them.")
    return str(folder / models_of_task[0]) if models_of_task else None


def results_page(suite: str, model: str, reports: Reports) -> str:
    """Return the published tables of the suite's tasks, with a row for the model, and all metrics."""
    lines = [f"# {suite}: {model}", "", "All metrics, including correlations, are in percent.", ""]
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
    def row(name: str, cells: Sequence[str]) -> str:
        return f"| {' | '.join([name, *cells])} |"

    cells: list[str] = []
    figures: list[list[float]] = []
    for _, keys in table.columns.values():
        measurement = keys.partition("/")[0]
        values = reports.get(measurement, {}).get("metrics", {})
        names = [key.partition("/")[2] for key in keys.split()]
        if measurement not in reports:
            cells.append(NONE)
        elif {*names} <= {*values}:
            figures.append([100 * values[name] for name in names])
            cells.append("/".join(f"{value:.1f}" for value in figures[-1]))
        else:
            cells.append(MISSING)
    if all(cell == NONE for cell in cells):
        return []
    titles, metrics = list(table.columns), [metric for metric, _ in table.columns.values()]
    if table.has_averages:
        titles, metrics = ["Average", *titles], ["", *metrics]
        cells.insert(0, f"{average(figures):.1f}" if len(figures) == len(cells) else NONE)
    lines = [f"## {table.title}", "", row("", titles), "|" + "---|" * (len(titles) + 1), row("", metrics)]
    lines.append(row(f"**{model}**", cells))
    lines += [row(name, published.split()) for name, published in table.rows.items()]
    return [*lines, "", table.source, ""]


def average(figures: Sequence[Sequence[float]]) -> float:
    """Return the mean of the columns' means, as defined below table 2 of Lan et al. 2019."""
    return fmean(map(fmean, figures))
