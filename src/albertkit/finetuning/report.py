"""The report of an evaluation: report.json for programs, report.md for people, predictions, plots."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from albertkit.extras import optional
from albertkit.files import complete_files, finite, json_text, write_json, write_picture
from albertkit.finetuning.evaluate import Evaluation
from albertkit.finetuning.trained import PREDICTIONS, REPORT_JSON
from albertkit.metrics.classification import confusion_matrix
from albertkit.metrics.reliability import Calibration, LengthBin, calibration, score_by_length
from albertkit.tasks.task import Decision

matplotlib_figure = optional("matplotlib.figure", extra="train")

REPORT_MARKDOWN = "report.md"
_MOST_LABELS = 50  # more cannot be read in a plot


def write_report(evaluation: Evaluation, folder: Path, *, about: dict[str, Any]) -> dict[str, Any]:
    """Write a complete report of an evaluation into a folder.

    Args:
        evaluation: an evaluation of at least one example.
        folder: the folder, which is created if missing.
        about: further entries of the report: model, data, settings.

    Returns:
        The content of `report.json`.
    """
    with complete_files(folder) as files:
        return _write_files(evaluation, files, about=about)


def _write_files(evaluation: Evaluation, folder: Path, *, about: dict[str, Any]) -> dict[str, Any]:
    sure = [one for one in evaluation.decisions if one.confidence is not None]
    reliability = (
        calibration([one.confidence or 0.0 for one in sure], [one.is_right for one in sure]) if sure else None
    )
    by_length = score_by_length(evaluation.lengths, evaluation.score_of)
    report: dict[str, Any] = finite(
        about
        | {
            "metrics": evaluation.metrics,
            "main_metric": evaluation.main_metric,
            "lower_is_better": [
                name for name in evaluation.metrics if evaluation.task.directions.get(name) == "lower"
            ],
            "examples": len(evaluation.examples),
            "examples_cut": evaluation.cut,
            "troubles": dict(evaluation.troubles),
            "baseline": evaluation.baseline,
            "calibration_error": reliability.expected_error if reliability else None,
            "by_length": [
                {"shortest": one.shortest, "longest": one.longest, "examples": one.count, "score": one.score}
                for one in by_length
            ],
        }
    )
    _draw_pictures(folder, evaluation, by_length, reliability)
    lines = "".join(json_text(record) + "\n" for record in evaluation.records)
    (folder / PREDICTIONS).write_text(lines, encoding="utf-8")
    write_json(folder / REPORT_JSON, report)
    (folder / REPORT_MARKDOWN).write_text(
        _markdown(report, sorted(picture.name for picture in folder.glob("*.png"))), encoding="utf-8"
    )
    return report


def _draw_pictures(
    folder: Path, evaluation: Evaluation, by_length: Sequence[LengthBin], reliability: Calibration | None
) -> None:
    """Draw the plots that the answers allow."""
    decisions = evaluation.decisions
    _draw_by_length(folder, by_length, evaluation.main_metric)
    labels = list(evaluation.task.config.id2label.values())
    answers = {answer for one in decisions for answer in (one.true, one.predicted)}
    if answers <= {*labels} and len(labels) <= _MOST_LABELS:
        _draw_confusion(folder, decisions, labels)
    if reliability:
        _draw_calibration(folder, reliability)
    are_numbers = all(isinstance(answer, int | float) for answer in answers)
    if decisions and isinstance(decisions[0].predicted, float) and are_numbers:
        _draw_numbers(folder, decisions, evaluation.task.answer)
    ranks = [rank for one in evaluation.predictions if (rank := getattr(one, "rank", None)) is not None]
    if ranks:
        _draw_ranks(folder, ranks)


def _markdown(report: dict[str, Any], pictures: Sequence[str]) -> str:
    lines = [f"# {report.get('task', 'Evaluation')}", ""]
    lines += [f"* {name}: {value}" for name, value in report.items() if isinstance(value, str | int)]
    lines += [f"* {count:,} {what}" for what, count in report["troubles"].items()]
    lines += ["", "| metric | value |", "|---|---|"]
    shown = {name: f"{name} (lower is better)" for name in report["lower_is_better"]}
    lines += [
        f"| {shown.get(name, name)} | {format(value, '.4f' if isinstance(value, float) else ',')} |"
        for name, value in report["metrics"].items()
    ]
    lines += [f"| baseline of {name} | {value:.4f} |" for name, value in report["baseline"].items()]
    if report["calibration_error"] is not None:
        lines.append(f"| expected calibration error | {report['calibration_error']:.4f} |")
    lines += ["", f"| tokens | examples | {report['main_metric']} |", "|---|---|---|"]
    lines += [
        f"| {one['shortest']} to {one['longest']} | {one['examples']} | "
        f"{'undefined' if one['score'] is None else format(one['score'], '.4f')} |"
        for one in report["by_length"]
    ]
    lines += ["", *(f"![{name}]({name})" for name in pictures)]
    return "\n".join(lines) + "\n"


def _draw_confusion(folder: Path, decisions: Sequence[Decision], labels: list[str]) -> None:
    counts = confusion_matrix(
        [str(one.true) for one in decisions], [str(one.predicted) for one in decisions], labels=labels
    )
    shares = counts / counts.sum(axis=1, keepdims=True).clip(min=1)
    side = 2.5 + 0.4 * len(labels)
    places = range(len(labels))
    with _picture(folder / "confusion.png", side, side) as panel:
        panel.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        panel.set_xticks(places, labels, rotation=90, parse_math=False)  # "$" would begin a formula
        panel.set_yticks(places, labels, parse_math=False)
        panel.set(xlabel="predicted", ylabel="true")
        for row in places:
            for column in places:
                if counts[row, column]:
                    color = "white" if shares[row, column] > 0.5 else "black"
                    style = {"ha": "center", "va": "center", "color": color, "fontsize": 8}
                    panel.text(column, row, str(counts[row, column]), **style)


def _draw_calibration(folder: Path, found: Calibration) -> None:
    filled = [one for one in found.bins if one.count]
    with _picture(folder / "calibration.png", 4, 4) as panel:
        panel.plot([0, 1], [0, 1], color="gray", linewidth=1)
        panel.plot([one.confidence for one in filled], [one.accuracy for one in filled], marker="o")
        title = f"calibration error {found.expected_error:.3f}"
        panel.set(xlabel="confidence", ylabel="accuracy", title=title)


def _draw_by_length(folder: Path, bins: Sequence[LengthBin], metric: str) -> None:
    names = [f"{one.shortest}-{one.longest}\n({one.count})" for one in bins]
    with _picture(folder / "by_length.png", 5, 3.2) as panel:
        panel.bar(names, [one.score for one in bins])
        panel.set(xlabel="tokens (examples)", ylabel=metric)
        panel.tick_params(axis="x", labelsize=7)


def _draw_numbers(folder: Path, decisions: Sequence[Decision], answer: str) -> None:
    with _picture(folder / "numbers.png", 4, 4) as panel:
        panel.scatter([one.true for one in decisions], [one.predicted for one in decisions], s=8, alpha=0.5)
        panel.set(xlabel="true", ylabel=f"predicted {answer}")


def _draw_ranks(folder: Path, ranks: Sequence[int]) -> None:
    ordered = sorted(ranks)
    shares = [(number + 1) / len(ordered) for number in range(len(ordered))]
    with _picture(folder / "ranks.png", 4, 4) as panel:
        panel.step(ordered, shares, where="post")
        panel.set(xlabel="rank", ylabel="share of matches up to this rank", xscale="log", ylim=(0, 1.02))


@contextmanager
def _picture(target: Path, width: float, height: float) -> Iterator[Any]:
    """Yield the panel of a picture, which is written at the end of the block."""
    figure = matplotlib_figure.Figure(figsize=(width, height), layout="constrained")
    yield figure.subplots()
    write_picture(figure, target, dpi=110)
