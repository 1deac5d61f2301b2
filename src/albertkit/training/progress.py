"""The records of a run: lines of `metrics.jsonl`, TensorBoard, log lines, curves, a progress bar."""

import json
import logging
import math
import os
import socket
import time
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from albertkit.errors import TrainingError
from albertkit.extras import optional, require
from albertkit.files import atomic_path, finite, full_disk_named, json_text, write_json
from albertkit.logs import ProgressBar
from albertkit.pictures import picture
from albertkit.training.callbacks import Callback
from albertkit.training.settings import TrainingSettings
from albertkit.training.state import RunState

event_pb2 = optional("tensorboard.compat.proto.event_pb2", extra="train")
summary_pb2 = optional("tensorboard.compat.proto.summary_pb2", extra="train")
record_writer = optional("tensorboard.summary.writer.record_writer", extra="train")

logger = logging.getLogger(__name__)

METRICS, TENSORBOARD, CURVES, RUN_JSON = "metrics.jsonl", "tensorboard", "curves.png", "run.json"
BEST = "best"
"""Folder of the best model while a run has not finished."""
LOGGED_DIGITS = 6
"""Decimal places of the metrics in `metrics.jsonl`."""
_NUMBERS = count()  # of the TensorBoard files of this process, which may begin in the same second
_SECONDS_BETWEEN_PICTURES = 30.0  # drawing takes most of a second, and an evaluation may take less


def reporters(settings: TrainingSettings) -> list[Callback]:
    """Return the callbacks that every run has."""
    for library in ("matplotlib.figure", "tensorboard.summary.writer.record_writer"):
        require(library, extra="train")
    return [RunFiles(), TensorBoard(), Console(settings), Curves()]


class RunFiles(Callback):
    """Writes the metrics to `metrics.jsonl`, and the settings and the best metrics so far to `run.json`."""

    def on_start(self, run: RunState) -> None:
        # A new run repeats the evaluation before its first step.
        self._drop_after(run, run.step if run.resumed else -1)
        self.on_end(run)

    def on_step(self, run: RunState, metrics: dict[str, float]) -> None:
        if metrics:
            self._write(run, {name: round(value, LOGGED_DIGITS) for name, value in metrics.items()})

    on_evaluation = on_step

    def on_rollback(self, run: RunState, metrics: dict[str, Any]) -> None:
        self._drop_after(run, run.step)
        self._write(run, metrics)

    def on_checkpoint(self, run: RunState, folder: Path) -> None:
        self.on_end(run)

    def on_end(self, run: RunState) -> None:
        names = ("settings", "finished", "best_step", "best_metrics")
        write_json(run.output / RUN_JSON, finite({name: getattr(run, name) for name in names}), default=str)

    def _write(self, run: RunState, values: dict[str, Any]) -> None:
        # NaN and infinite values become null, because JSON cannot hold them.
        progress = {
            "step": run.step,
            "tokens": run.tokens,
            "seconds": round(run.seconds, 1),
            "learning_rate": run.learning_rate,
        }
        file = run.output / METRICS
        with full_disk_named(file), file.open("a") as stream:
            stream.write(json_text(finite(progress | values)) + "\n")

    def _drop_after(self, run: RunState, step: int) -> None:
        """Remove damaged lines, and those that a killed run wrote after its last checkpoint."""
        lines = metrics_lines(run.output)
        kept = [line for at, line in lines if at is not None and at <= step]
        if len(kept) < len(lines):
            with atomic_path(run.output / METRICS) as temporary:
                temporary.write_text("".join(kept))


class TensorBoard(Callback):
    """Writes the metrics to a new file for TensorBoard, which reads all files of the folder in their order.

    `SummaryWriter` would import TensorFlow where it is installed, and writes in a thread, which prints a
    traceback if the disk is full, while the run continues.
    """

    def __init__(self) -> None:
        self._records: Any = None  # opened with the first metrics: a rejected run has none
        self._path = Path()

    def on_start(self, run: RunState) -> None:
        self._purge_step = run.step + 1

    def on_step(self, run: RunState, metrics: dict[str, float]) -> None:
        if not metrics:
            return
        if self._records is None:
            began = f"{time.time():010.0f}.{socket.gethostname()}.{os.getpid()}.{next(_NUMBERS)}"
            self._path = run.output / TENSORBOARD / f"events.out.tfevents.{began}"
            with full_disk_named(self._path):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._records = record_writer.RecordWriter(self._path.open("wb"))
            self._write(file_version="brain.Event:2")
            self._purge()
        values = {"learning_rate": run.learning_rate} | metrics
        figures = [summary_pb2.Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._write(step=run.step, summary=summary_pb2.Summary(value=figures))
        with full_disk_named(self._path):
            self._records.flush()  # so that TensorBoard shows them

    on_evaluation = on_step

    def on_rollback(self, run: RunState, metrics: dict[str, Any]) -> None:
        self._purge_step = run.step + 1
        if self._records:
            self._purge()

    def on_end(self, run: RunState) -> None:
        if self._records:
            with full_disk_named(self._path):
                self._records.close()

    def _purge(self) -> None:
        """Make TensorBoard drop the metrics of `_purge_step` and of later steps in all earlier files."""
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._write(step=self._purge_step, session_log=start)

    def _write(self, **event: Any) -> None:
        with full_disk_named(self._path):
            self._records.write(event_pb2.Event(wall_time=time.time(), **event).SerializeToString())


class Console(Callback):
    """Logs a line for the metrics of a step, and shows a progress bar."""

    def __init__(self, settings: TrainingSettings) -> None:
        self._settings = settings

    def on_start(self, run: RunState) -> None:
        self._bar = ProgressBar(lines=False).__enter__()

    def on_step(self, run: RunState, metrics: dict[str, float]) -> None:
        self.on_evaluation(run, metrics)
        length, unit = self._settings.length, self._settings.unit
        done = run.step if unit == "steps" else run.tokens
        self._bar.update(f"loss {run.loss:.3f}  {done:,} of {length:,} {unit}", done, length)

    def on_evaluation(self, run: RunState, metrics: dict[str, float]) -> None:
        if metrics:
            length = f"/{self._settings.length}" if self._settings.unit == "steps" else ""
            shown = (
                f"{name} {value:,.0f}" if 10_000 <= abs(value) < 1e12 else f"{name} {value:.4g}"
                for name, value in metrics.items()
            )
            logger.info("%s", "  ".join([f"step {run.step}{length}", *shown]))

    def on_end(self, run: RunState) -> None:
        self._bar.__exit__()


class Curves(Callback):
    """Draws `curves.png` after evaluations, at most every half a minute, and at the end."""

    def on_start(self, run: RunState) -> None:
        self._drawn, self._outdated = time.monotonic(), False

    def on_step(self, run: RunState, metrics: dict[str, float]) -> None:
        self._outdated = self._outdated or bool(metrics)

    def on_evaluation(self, run: RunState, metrics: dict[str, float]) -> None:
        self._outdated = True
        if time.monotonic() - self._drawn > _SECONDS_BETWEEN_PICTURES:
            self.on_end(run)

    def on_end(self, run: RunState) -> None:
        if self._outdated:
            plot_curves(run.output)
            self._drawn, self._outdated = time.monotonic(), False


def metrics_lines(output: Path) -> list[tuple[int | None, str]]:
    """Return the lines of `metrics.jsonl`, if the file exists, each with its step; None if it is damaged."""
    file = output / METRICS
    lines: list[tuple[int | None, str]] = []
    for line in file.read_text("utf-8", "replace").splitlines(keepends=True) if file.is_file() else []:
        try:
            lines.append((int(json.loads(line)["step"]) if line.endswith("\n") else None, line))
        except (ValueError, LookupError, TypeError, RecursionError):
            lines.append((None, line))
    return lines


def read_metrics(output: str | Path) -> list[dict[str, float]]:
    """Return the logged lines of a run, oldest first, without one that is not completely written."""
    file = Path(output) / METRICS
    if not file.is_file():
        raise TrainingError(f"{file} is missing. Restore the file, or choose another output folder.")
    return [json.loads(line) for step, line in metrics_lines(Path(output)) if step is not None]


def plot_curves(output: str | Path) -> Path:
    """Draw the metrics of a run over the tokens seen to `curves.png`."""
    target = Path(output) / CURVES
    draw_curves({"": read_metrics(output)}, target)
    return target


def draw_curves(runs: Mapping[str, Sequence[dict[str, float]]], target: Path) -> None:
    """Draw the logged lines of runs, by name: a panel for each metric, and a color for each run."""
    series: dict[str, dict[tuple[str, str], list[tuple[float, float]]]] = {}
    most = max((line["tokens"] for lines in runs.values() for line in lines), default=0)
    unit, axis = (1e6, "million tokens") if most >= 1e6 else (1e3, "thousand tokens")
    for run, lines in runs.items():
        for line in lines:
            for name, value in line.items():
                kind, slash, metric = name.partition("/")
                if slash and value is not None:
                    points = series.setdefault(metric, {}).setdefault((run, kind), [])
                    points.append((line["tokens"] / unit, value))
    columns = min(max(len(series), 1), 2)  # more cannot be read at the width of a page
    rows = max(math.ceil(len(series) / columns), 1)
    several = len(runs) > 1
    width, height = 4.2 * columns, 3.2 * rows  # inches, as are the margins below
    # Matplotlib's own layouts draw everything twice, so the picture that a run updates has none.
    with picture(target, width, height, layout="constrained" if several else None) as figure:
        if not several:
            margins = {"left": 0.6 / width, "right": 1 - 0.2 / width, "top": 1 - 0.35 / height}
            figure.subplots_adjust(**margins, bottom=0.5 / height, wspace=0.25, hspace=0.35)
        panels = figure.subplots(rows, columns, squeeze=False).flat
        # The metrics come first, because `zip` takes an entry of its first argument before it stops.
        for (metric, curves), panel in zip(sorted(series.items()), panels, strict=False):
            for (run, kind), points in sorted(curves.items(), key=lambda curve: curve[0][1]):
                style = {"color": f"C{[*runs].index(run)}"} if several else {"label": kind}
                style |= {"marker": "o", "markersize": 3} if kind == "eval" else {"alpha": 0.6}
                panel.plot(*zip(*points, strict=True), **style)
            panel.set(title=metric, xlabel=axis)
            panel.locator_params(axis="x", nbins=6)
            panel.grid(alpha=0.3)
            if not several:
                panel.legend()
        for panel in panels:  # of the last row, without a metric
            panel.set_axis_off()
        if several:
            panel = figure.axes[0]
            key = [panel.plot([], [], color=f"C{number}", label=run)[0] for number, run in enumerate(runs)]
            key += panel.plot([], [], color="gray", alpha=0.6, label="training")
            key += panel.plot([], [], color="gray", marker="o", markersize=3, label="evaluation")
            figure.legend(handles=key, loc="outside lower center", ncols=2, frameon=False)
