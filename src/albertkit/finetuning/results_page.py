"""The results of a suite beside what was published: report.json for programs, report.md for people."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from albertkit.files import complete_files, finite, write_json
from albertkit.finetuning.published_figures import TABLES, Figures, PublishedTable, average
from albertkit.finetuning.report import REPORT_JSON, REPORT_MARKDOWN
from albertkit.finetuning.suites import MISSING, SUITES

NONE = "-"  # not of the suite, or not published
Reports = Mapping[str, Mapping[str, Any]]


def write_results(suite: str, model: str, reports: Reports, folder: Path) -> None:
    """Write the reports of a suite and its page into a folder, which is created where missing."""
    content = finite({"suite": suite, "model": model, "measurements": reports})
    with complete_files(folder) as files:
        write_json(files / REPORT_JSON, content)
        (files / REPORT_MARKDOWN).write_text(results_page(suite, model, reports), encoding="utf-8")


def results_page(suite: str, model: str, reports: Reports) -> str:
    """Return the published tables in which the suite has a part, with a row of the model, and all metrics.

    Args:
        suite: a key of `SUITES`.
        model: what the row of the model is called.
        reports: what `evaluate_suite` returned.
    """
    lines = [f"# {suite}: {model}", "", "In percent; correlations too.", ""]
    for table in TABLES:
        lines += _table(table, model, reports)
    lines += ["## All that was measured", "", "| | model | examples | |", "|---|---|---|---|"]
    for one in SUITES[suite]:
        report = reports[one.name]
        if MISSING in report:
            lines.append(f"| {one.name} | | | missing: {report[MISSING]} |")
        else:
            metrics = ", ".join(f"{name} {value:.4f}" for name, value in report["metrics"].items())
            lines.append(f"| {one.name} | {report['model']} | {report['examples']:,} | {metrics} |")
    return "\n".join(lines) + "\n"


def _table(table: PublishedTable, model: str, reports: Reports) -> list[str]:
    """Return a section with the model in the first row; nothing where the suite has no part in the table."""
    own = [_measured(column.keys, reports) for column in table.columns]
    if all(one == NONE for one in own):
        return []
    names, metrics = [column.name for column in table.columns], [column.metric for column in table.columns]
    rows = [(f"**{model}**", own), *((name, list(row)) for name, row in table.rows.items())]
    if table.averages is not None:
        names, metrics = ["Average", *names], ["", *metrics]
        figures = tuple(None if isinstance(one, str) else one for one in own)
        means = {rows[0][0]: average(figures), **table.averages}
        rows = [(name, [None if (mean := means[name]) is None else (mean,), *row]) for name, row in rows]
    lines = [f"## {table.title}", "", _row("", names), "|" + "---|" * (len(names) + 1), _row("", metrics)]
    lines += [_row(name, [_cell(one) for one in row]) for name, row in rows]
    return [*lines, "", table.source, ""]


def _measured(keys: tuple[str, ...], reports: Reports) -> Figures | str:
    """Return the figures of a column, or why there are none."""
    measured, metric = zip(*(key.split("/") for key in keys), strict=True)
    if measured[0] not in reports:
        return NONE
    found = reports[measured[0]].get("metrics", {})
    return tuple(100 * found[name] for name in metric) if {*metric} <= {*found} else MISSING


def _cell(figures: Figures | str) -> str:
    if figures is None or isinstance(figures, str):
        return figures or NONE
    return "/".join(f"{one:.1f}" for one in figures)


def _row(name: str, cells: list[str]) -> str:
    return f"| {' | '.join([name, *cells])} |"
