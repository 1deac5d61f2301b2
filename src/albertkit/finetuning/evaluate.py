"""Evaluate a fine-tuned model on labeled data: `evaluate`, its metrics and its report.

The report is report.json for programs, report.md for people, the predictions, and plots.
"""

import csv
import logging
import math
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from albertkit.config import AlbertConfig
from albertkit.datasets.examples import WordsExample, texts_of
from albertkit.datasets.options import DataOptions
from albertkit.datasets.rows import Row as DataRow
from albertkit.devices import Device, read_device
from albertkit.engines.choosing import engine_device, make_engine
from albertkit.engines.engine import Engine
from albertkit.engines.light_model import Model
from albertkit.errors import ConfigError, DataError
from albertkit.files import check_new_folder, complete_files, finite, json_text, write_json
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
from albertkit.logs import ProgressBar, lines_shown
from albertkit.metrics import calibration, confusion_matrix, score_by_length, scores_by_label
from albertkit.pictures import picture
from albertkit.recipe import takes_settings
from albertkit.results import Result, with_baseline
from albertkit.tasks.labels import NUMBER
from albertkit.tasks.loading import RowCounts, features_of_all, load_splits
from albertkit.tasks.settings import TaskSettings
from albertkit.tasks.task import Decision, OwnMetrics, Task

logger = logging.getLogger(__name__)

REPORT_MARKDOWN, ERRORS = "report.md", "errors.csv"
NO_LABEL = "(no label)"
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
    """The content of `report.json`; without an output folder only metrics, baseline, classes, confusion,
    examples and data."""
    data_rows: list[DataRow] = field(default_factory=list)
    """The row of the data of each example; empty for examples that were not read from data."""

    @cached_property
    def decisions(self) -> list[Decision]:
        pairs = zip(self.examples, self.predictions, strict=True)
        return list(chain.from_iterable(self.task.decisions(*pair) for pair in pairs))

    @cached_property
    def baseline(self) -> dict[str, float]:
        """Metrics of the best prediction that ignores the input."""
        return self.task.baseline(self.examples)

    @cached_property
    def _label_counts(self) -> Counter[tuple[Any, Any]]:
        """The number of decisions by true and predicted label."""
        if getattr(self.task.labels, "kind", NUMBER) is NUMBER:
            return Counter()
        pairs = zip(self.examples, self.predictions, strict=True)
        outcomes = chain.from_iterable(self.task.outcomes(*pair) for pair in pairs)
        return Counter((one.true or "", one.predicted or "") for one in outcomes)

    @cached_property
    def classes(self) -> dict[str, dict[str, float]]:
        """Precision, recall, F1 and count of each label, or of each type of entities.

        Empty for tasks without label names.
        """
        names = {name for pair in self._label_counts for name in pair} - {""}
        if not names or not all(isinstance(name, str) for name in names):
            return {}
        known = self.task.labels.names
        return scores_by_label(self._label_counts, labels=known if names <= {*known} else sorted(names))

    @cached_property
    def confusion(self) -> dict[str, dict[str, int]]:
        """The number of decisions by true label and predicted label. The label "" stands for no label."""
        confusion: dict[str, dict[str, int]] = {}
        order = {name: number for number, name in enumerate([*self.classes, ""])}
        if self.classes:
            for true, predicted in sorted(
                self._label_counts, key=lambda pair: [order[name] for name in pair]
            ):
                confusion.setdefault(true, {})[predicted] = self._label_counts[true, predicted]
        return confusion

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """Each prediction as plain values, after its `row` in the data, its `id` and its texts.

        `true` is the true answer.
        """
        return [
            self._origin(number)
            | texts_of(example)
            | self.task.record(example, prediction)
            | {"true": self.task.truth(example)}
            for number, (example, prediction) in enumerate(zip(self.examples, self.predictions, strict=True))
        ]

    def errors(self) -> list[dict[str, Any]]:
        """Return the wrong predictions as dicts, worst first.

        Each has the `row` of the data, the columns of the data, and `true`, `predicted` and `score`, the
        probability of the prediction. A column of the data whose name is taken is named `input_NAME`.

        * Labels and choices: the most probable wrong prediction comes first. If the model abstains,
          `predicted` is None, and `score` is the probability of the best label. These rows come last.
        * Several labels: `missed` and `extra` are the wrong labels, and `score` is the probability of the
          worst of these decisions.
        * Numbers: all predictions, the largest `deviation` first.
        * Entities: one dict for each entity that is missed, extra, or has another label or other boundaries
          (`error`). Words without a tagging scheme: one dict for each word.
        * Questions: `true` has all answers. The largest `score * (1 - f1)` first.
        * Sentence embedding: the worst `rank` of the second text (the largest number) first. Pairs with
          scores have no errors.
        """
        errors = [
            (number, *decision.error())
            for number, pair in enumerate(zip(self.examples, self.predictions, strict=True))
            for decision in self.task.errors(*pair)
        ]
        errors.sort(key=lambda error: -error[1])  # errors of equal severity are in the order of the data
        return [self._input(number, taken=columns) | columns for number, _, columns in errors]

    def _origin(self, number: int) -> dict[str, Any]:
        """Return the row of an example, and its id if it has one."""
        row = self.data_rows[number] if self.data_rows else None
        name = getattr(self.examples[number], "id", "")
        origin = {"row": row.number if row else number + 1}
        return origin if name == "" or (row and name == row.origin) else origin | {"id": name}

    def _input(self, number: int, *, taken: Mapping[str, Any]) -> dict[str, Any]:
        """Return the row of an example and the columns of the data, or else its id and texts.

        Entities have the text of their sentence instead of its lists of words and labels.
        """
        example, columns = self.examples[number], self._origin(number)
        values = self.data_rows[number].values if self.data_rows else {}
        is_tagged = isinstance(example, WordsExample)
        own = {
            name: value
            for name, value in values.items()
            if name and not (is_tagged and isinstance(value, list | tuple))  # an object has the column ""
        }
        if own:
            columns = {"row": columns["row"]}
        if is_tagged or not own:
            columns |= texts_of(example)
        for name, value in own.items():
            while name in columns or name in taken:
                name = f"input_{name}"
            columns[name] = value
        return columns

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

    def __init__(
        self,
        task: Task,
        examples: list[Any],
        data_rows: Sequence[DataRow] = (),
        *,
        batch_tokens: int | None = None,
    ) -> None:
        self.task, self.examples, self.data_rows = task, examples, list(data_rows)
        self.batch_tokens = batch_tokens
        self._chunks = list(features_of_all(task, examples))
        self.rows = [row for _, rows in self._chunks for row in rows]
        self._lengths: list[int] = []
        self.counts = RowCounts(task)
        for chunk, rows in self._chunks:
            lengths = Counter[int]()
            for row in rows:
                lengths[row.example] += len(row.input_ids)
            self._lengths += [lengths[number] for number in range(len(chunk))]
            self.counts.add(chunk, rows)

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
        progress: Callable[[int, int, str], object] = lambda *_: None,
    ) -> Evaluation:
        """Return the evaluation of a model; `main_metric` replaces the metric of the task."""
        task = self.task.bind(self.task.tokenizer, config, self.task.settings)
        task = task.for_examples(self.examples)
        predictions: list[Any] = []
        if not isinstance(engine, Engine):
            engine = make_engine(model, engine)
        for examples, rows in self._chunks:
            outputs = task.run(engine, rows, batch_tokens=self.batch_tokens)
            predictions += task.predictions(examples, rows, outputs)
            progress(len(predictions), len(self.examples), "examples")
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
            data_rows=self.data_rows,
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
    skip_unknown_labels: bool = False,
    **settings: Any,
) -> Evaluation:
    """Evaluate a fine-tuned model on labeled data.

    Args:
        model: model folder or Hugging Face Hub name.
        data: labeled data: a file or a folder. In Python also a list of dicts, a DataFrame, an Arrow table, a
            `datasets.Dataset`, or an iterable of dicts or of the task's examples.
        task: name of the task (default: the task that the model was fine-tuned for). In Python also a task of
            your own.
        output: new folder for report.json, report.md, errors.csv, predictions and plots. In Python also None,
            to write no files.
        metrics: your own metrics: functions of the true and the predicted answers, or `Metric`.
        main_metric: name of the most important metric; None for the metric that selected the best model,
            which is in the report.json next to the model, or for the task's main metric if there is none.
        device: the device: auto (the best available device), cpu, cuda, cuda:1, mps, ...
        batch_tokens: maximum number of tokens per batch, including padding; None for a default that suits the
            device.
        engine: "auto", "onnx", "onnx-int8", "torch" or "plain".
        overwrite: whether to replace the report of an earlier evaluation in `output`.
        skip_unknown_labels: whether to skip and count examples with a label that the model does not have,
            instead of raising an error.
        **settings: fields of `TaskSettings` and `DataOptions`; the defaults are those of the fine-tuning.

    Returns:
        The evaluation, with the metrics, the scores of each label, the predictions, the errors, and the
        content of the report.

    Raises:
        ConfigError: a task, setting or metric is unknown, or `output` is the folder of a fine-tuning run.
        DataError: the data cannot be read, its labels or its kind of examples differ from those of the
            fine-tuning, or the model has no head.
    """
    model, output = str(model), None if output is None else Path(output)
    if output is not None:
        if is_run(output):
            raise ConfigError(f"{output} has the report of a fine-tuning run. Choose another folder.")
        replaced = {(output / name).resolve() for name in (PREDICTIONS, ERRORS)}
        if isinstance(data, str | Path) and Path(data).resolve() in replaced:
            raise DataError(f"the report in {output} would replace {data}, which is the input.")
        if not overwrite and (output / REPORT_JSON).is_file():
            raise DataError(
                f"{output} has the report of an earlier evaluation. Choose another folder, or replace the "
                "report with --overwrite (in Python overwrite=True)."
            )
        if not overwrite or output.is_file():
            check_new_folder(output)
    place = read_device(engine_device(engine, device))
    task, loaded, reader, options = open_trained(
        model, task, data, settings, call=evaluate, name="data", labeled=True, device=place
    )
    task = task.with_metrics(metrics)
    if main_metric is not None:
        check_metric(main_metric, task.directions, name="main_metric")
    splits = load_splits(
        task,
        {"data": reader},
        labels=task.labels,
        merge_labels=options["merge_labels"],
        skip_unknown_labels=skip_unknown_labels,
    )
    given, read = splits.examples["data"], splits.reports["data"]
    for line in read.lines():
        logger.info("%s", line)
    task.check_fit(given)
    examples = EvaluationSet(task, given, splits.rows["data"], batch_tokens=batch_tokens)
    shared = shared_with_training(model, given)
    for note in [*examples.counts.notes(), *([shared_note(shared, len(given))] if shared else [])]:
        logger.info("%s: %s", read.source, note)
    chosen = main_metric or chosen_metric(model, task)
    with ProgressBar(lines=False) as bar:
        evaluation = examples.evaluate(
            loaded, loaded.config, main_metric=chosen, engine=engine, progress=bar.update_count
        )
    if evaluation.main_metric not in evaluation.metrics:
        if main_metric is not None:
            check_metric(main_metric, evaluation.metrics, name="main_metric")
        logger.info(
            f"the model was selected by {chosen}, but this evaluation does not measure {chosen}. The main "
            f"metric is {examples.main_metric}."
        )
        evaluation = replace(evaluation, main_metric=examples.main_metric)
    about = {"data": read.to_json() | {"shared_with_training": shared}}
    if output is None:
        report = {
            "metrics": evaluation.metrics,
            "baseline": evaluation.baseline,
            "classes": evaluation.classes,
            "confusion": evaluation.confusion,
            "examples": len(evaluation.examples),
            **about,
        }
    else:
        if (labels := evaluation.task.labels) is not None and labels.thresholds:
            about["thresholds"] = labels.thresholds
        report = write_report(evaluation, output, about={"task": task.name, "model": model} | about)
        logger.info("wrote the report to %s; %s has %s rows", output, ERRORS, f"{report['errors']:,}")
    evaluation.report.update(report)
    return evaluation


# --- the report


def write_report(evaluation: Evaluation, folder: Path, *, about: dict[str, Any]) -> dict[str, Any]:
    """Write a complete report of an evaluation into a folder, and return the content of report.json."""
    sure = [one for one in evaluation.decisions if one.confidence is not None]
    reliability = (
        calibration([one.confidence or 0.0 for one in sure], [one.is_right for one in sure]) if sure else None
    )
    by_length = score_by_length(evaluation.lengths, evaluation.score_of)
    errors = evaluation.errors()
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
            "classes": evaluation.classes,
            "confusion": evaluation.confusion,
            "errors": len(errors),
            "calibration_error": reliability[0] if reliability else None,
            "by_length": by_length,
        }
    )
    decisions, labels = evaluation.decisions, list(evaluation.task.config.id2label.values())
    answers = {answer for one in decisions for answer in (one.true, one.predicted)}
    ranks = [rank for one in evaluation.predictions if (rank := getattr(one, "rank", None)) is not None]
    with complete_files(folder) as files:
        names = [f"{part['shortest']}-{part['longest']}\n({part['examples']})" for part in by_length]
        with picture(files / "by_length.png", 5, 3.2) as figure:
            panel = figure.subplots()
            panel.bar(names, [part["score"] for part in by_length])
            panel.set(xlabel="tokens (examples)", ylabel=evaluation.main_metric)
            panel.tick_params(axis="x", labelsize=7)
        if answers <= {*labels, None} and len(labels) <= _MOST_LABELS:
            _draw_confusion(files, [one for one in decisions if one.predicted is not None], labels)
        if reliability:
            error, bins = reliability
            points = [(part["confidence"], part["accuracy"]) for part in bins if part["count"]]
            with picture(files / "calibration.png", 4, 4) as figure:
                panel = figure.subplots()
                panel.plot([0, 1], [0, 1], color="gray", linewidth=1)
                panel.plot(*zip(*points, strict=True), marker="o")
                panel.set(xlabel="confidence", ylabel="accuracy", title=f"calibration error {error:.3f}")
        are_numbers = all(isinstance(answer, int | float) for answer in answers)
        if decisions and isinstance(decisions[0].predicted, float) and are_numbers:
            true, predicted = ([getattr(one, side) for one in decisions] for side in ("true", "predicted"))
            with picture(files / "numbers.png", 4, 4) as figure:
                panel = figure.subplots()
                panel.scatter(true, predicted, s=8, alpha=0.5)
                panel.set(xlabel="true", ylabel=f"predicted {evaluation.task.answer}")
        if ranks:
            shares = [(number + 1) / len(ranks) for number in range(len(ranks))]
            with picture(files / "ranks.png", 4, 4) as figure:
                panel = figure.subplots()
                panel.step(sorted(ranks), shares, where="post")
                panel.set(xlabel="rank", ylabel="share of matches up to this rank")
                panel.set(xscale="log", ylim=(0, 1.02))
        _write_errors(errors, files / ERRORS)
        lines = "".join(json_text(record) + "\n" for record in evaluation.records)
        (files / PREDICTIONS).write_text(lines, encoding="utf-8")
        write_json(files / REPORT_JSON, report)
        pictures = sorted(picture.name for picture in files.glob("*.png"))
        (files / REPORT_MARKDOWN).write_text(_markdown(report, pictures), encoding="utf-8")
    return report


def _markdown(report: dict[str, Any], pictures: Sequence[str]) -> str:
    def cell(label: str) -> str:
        return label.replace("|", "\\|").replace("\n", " ")

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
    if report["classes"]:
        lines += ["", "| label | precision | recall | F1 | count |", "|---|---|---|---|---|"]
        lines += [
            "| {} | {:.4f} | {:.4f} | {:.4f} | {:,} |".format(cell(name), *scores.values())
            for name, scores in report["classes"].items()
        ]
    if confusions := most_confused(report["confusion"]):
        lines += ["", "| true | predicted | count |", "|---|---|---|"]
        lines += [
            f"| {cell(true)} | {cell(predicted)} | {count:,} |" for true, predicted, count in confusions
        ]
    lines += ["", f"[{ERRORS}]({ERRORS}) has the wrong predictions, worst first."]
    lines += ["", f"| tokens | examples | {report['main_metric']} |", "|---|---|---|"]
    lines += [
        f"| {one['shortest']} to {one['longest']} | {one['examples']} | "
        f"{'undefined' if one['score'] is None else format(one['score'], '.4f')} |"
        for one in report["by_length"]
    ]
    lines += ["", *(f"![{name}]({name})" for name in pictures)]
    return "\n".join(lines) + "\n"


def most_confused(confusion: Mapping[str, Mapping[str, int]], limit: int = 10) -> list[tuple[str, str, int]]:
    """Return the most frequent confusions: the true label, the predicted label, and their count."""
    confusions = [
        (true or NO_LABEL, predicted or NO_LABEL, count)
        for true, counts in confusion.items()
        for predicted, count in counts.items()
        if true != predicted
    ]
    return sorted(confusions, key=lambda confusion: -confusion[2])[:limit]


def _write_errors(errors: Sequence[Mapping[str, Any]], file: Path) -> None:
    columns = dict.fromkeys(chain.from_iterable(errors)) or ("row", "true", "predicted", "score")
    # Excel reads UTF-8 only after a byte order mark.
    with file.open("w", encoding="utf-8-sig", errors="backslashreplace", newline="") as target:
        writer = csv.writer(target)
        writer.writerow(columns)
        for error in errors:
            cells = [finite(error.get(name)) for name in columns]
            writer.writerow(
                json_text(cell, ensure_ascii=False, default=str) if isinstance(cell, list | dict) else cell
                for cell in cells
            )


def _draw_confusion(folder: Path, decisions: Sequence[Decision], labels: list[str]) -> None:
    counts = confusion_matrix(
        [str(one.true) for one in decisions], [str(one.predicted) for one in decisions], labels=labels
    )
    shares = counts / counts.sum(axis=1, keepdims=True).clip(min=1)
    cell = min(0.4, 6.5 / len(labels))  # inches; the picture is at most 9 inches wide, as is a page
    side = 2.5 + cell * len(labels)
    indices = range(len(labels))
    with picture(folder / "confusion.png", side, side) as figure:
        panel = figure.subplots()
        panel.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        style: dict[str, Any] = {"fontsize": min(8, 30 * cell)}
        of_ticks = style | {"parse_math": False}  # "$" would begin a formula
        panel.set_xticks(indices, labels, rotation=90, **of_ticks)
        panel.set_yticks(indices, labels, **of_ticks)
        panel.set(xlabel="predicted", ylabel="true")
        for row in indices:
            for column in indices:
                if counts[row, column]:
                    color = "white" if shares[row, column] > 0.5 else "black"
                    style |= {"ha": "center", "va": "center", "color": color}
                    panel.text(column, row, str(counts[row, column]), **style)
