"""The evaluation of a model on labeled examples, and its report.

The report is report.json for programs, report.md for people, the predictions, and plots.
"""

import math
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from albertkit.config import AlbertConfig
from albertkit.engines.choosing import make_engine
from albertkit.engines.engine import Engine
from albertkit.engines.light_model import Model
from albertkit.extras import optional
from albertkit.files import complete_files, finite, json_text, write_json, write_picture
from albertkit.finetuning.trained import PREDICTIONS, REPORT_JSON
from albertkit.metrics import calibration, confusion_matrix, score_by_length
from albertkit.results import Result, with_baseline
from albertkit.tasks.loading import RowCounts, features_of_all
from albertkit.tasks.task import Decision, Task, example_name

matplotlib_figure = optional("matplotlib.figure", extra="train")

REPORT_MARKDOWN = "report.md"
_MOST_LABELS = 50  # more cannot be read in a plot
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
    warnings: Counter[str]
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
    """Labeled examples with their rows, which can be evaluated several times."""

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
        task = self.task.bind(self.task.tokenizer, config, self.task.settings)
        task = task.for_examples(self.examples)
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
            warnings=self.counts.warnings,
        )


# --- the report


def write_report(evaluation: Evaluation, folder: Path, *, about: dict[str, Any]) -> dict[str, Any]:
    """Write a complete report of an evaluation into a folder."""
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
            "warnings": dict(evaluation.warnings),
            "baseline": evaluation.baseline,
            "calibration_error": reliability[0] if reliability else None,
            "by_length": by_length,
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
    folder: Path,
    evaluation: Evaluation,
    by_length: Sequence[dict[str, Any]],
    reliability: tuple[float, list[dict[str, Any]]] | None,
) -> None:
    decisions = evaluation.decisions
    _draw_by_length(folder, by_length, evaluation.main_metric)
    labels = list(evaluation.task.config.id2label.values())
    answers = {answer for one in decisions for answer in (one.true, one.predicted)}
    if answers <= {*labels} and len(labels) <= _MOST_LABELS:
        _draw_confusion(folder, decisions, labels)
    if reliability:
        _draw_calibration(folder, *reliability)
    are_numbers = all(isinstance(answer, int | float) for answer in answers)
    if decisions and isinstance(decisions[0].predicted, float) and are_numbers:
        _draw_numbers(folder, decisions, evaluation.task.answer)
    ranks = [rank for one in evaluation.predictions if (rank := getattr(one, "rank", None)) is not None]
    if ranks:
        _draw_ranks(folder, ranks)


def _markdown(report: dict[str, Any], pictures: Sequence[str]) -> str:
    lines = [f"# {report.get('task', 'Evaluation')}", ""]
    lines += [f"* {name}: {value}" for name, value in report.items() if isinstance(value, str | int)]
    lines += [f"* {count:,} {what}" for what, count in report["warnings"].items()]
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
    indices = range(len(labels))
    with _picture(folder / "confusion.png", side, side) as panel:
        panel.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        panel.set_xticks(indices, labels, rotation=90, parse_math=False)  # "$" would begin a formula
        panel.set_yticks(indices, labels, parse_math=False)
        panel.set(xlabel="predicted", ylabel="true")
        for row in indices:
            for column in indices:
                if counts[row, column]:
                    color = "white" if shares[row, column] > 0.5 else "black"
                    style = {"ha": "center", "va": "center", "color": color, "fontsize": 8}
                    panel.text(column, row, str(counts[row, column]), **style)


def _draw_calibration(folder: Path, error: float, bins: list[dict[str, Any]]) -> None:
    filled = [one for one in bins if one["count"]]
    with _picture(folder / "calibration.png", 4, 4) as panel:
        panel.plot([0, 1], [0, 1], color="gray", linewidth=1)
        panel.plot([one["confidence"] for one in filled], [one["accuracy"] for one in filled], marker="o")
        panel.set(xlabel="confidence", ylabel="accuracy", title=f"calibration error {error:.3f}")


def _draw_by_length(folder: Path, bins: Sequence[dict[str, Any]], metric: str) -> None:
    names = [f"{one['shortest']}-{one['longest']}\n({one['examples']})" for one in bins]
    with _picture(folder / "by_length.png", 5, 3.2) as panel:
        panel.bar(names, [one["score"] for one in bins])
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
