"""The records of a run: lines of `metrics.jsonl`, TensorBoard, log lines, curves, a progress bar."""

import json
import logging
import time
from pathlib import Path
from typing import Any

from albertkit.files import atomic_path, finite, full_disk_named, json_text
from albertkit.logs import ProgressBar
from albertkit.training.callbacks import Callback, RunProgress
from albertkit.training.curves import load_plotting, plot_curves
from albertkit.training.settings import TrainingSettings
from albertkit.training.tensorboard_file import TensorBoardFile, load_tensorboard

logger = logging.getLogger(__name__)

METRICS = "metrics.jsonl"
LOGGED_DIGITS = 6
"""Decimal places of the metrics in `metrics.jsonl`."""
TENSORBOARD = "tensorboard"
_SECONDS_BETWEEN_PICTURES = 30.0  # drawing takes most of a second, and an evaluation may take less


def reporters(settings: TrainingSettings) -> list[Callback]:
    """Return the callbacks that every run has.

    Raises:
        MissingExtraError: a required library is not installed; raised before an hour of work.
    """
    load_plotting()
    load_tensorboard()
    return [MetricsFile(), TensorBoard(), LogLines(settings), Curves(), Bar(settings)]


class MetricsFile(Callback):
    """Writes the metrics to `metrics.jsonl`."""

    def on_start(self, run: RunProgress) -> None:
        """Remove the lines of steps that will be repeated."""
        # A new run repeats the evaluation before its first step.
        self._forget_after(run, run.step if run.resumed else -1)

    def on_step(self, run: RunProgress, metrics: dict[str, float]) -> None:
        """Append a line, if there are metrics."""
        if metrics:
            self._write(run, {name: round(value, LOGGED_DIGITS) for name, value in metrics.items()})

    on_evaluation = on_step

    def on_rollback(self, run: RunProgress, metrics: dict[str, Any]) -> None:
        """Remove the lines of steps that will be repeated, and append a line about the rollback."""
        self._forget_after(run, run.step)
        self._write(run, metrics)

    def _write(self, run: RunProgress, values: dict[str, Any]) -> None:
        """Append a line; NaN and infinite values become null, because JSON cannot hold them."""
        place = {
            "step": run.step,
            "tokens": run.tokens,
            "seconds": round(run.seconds, 1),
            "learning_rate": run.learning_rate,
        }
        file = run.output / METRICS
        with full_disk_named(file), file.open("a") as stream:
            stream.write(json_text(finite(place | values)) + "\n")

    def _forget_after(self, run: RunProgress, step: int) -> None:
        """Remove the lines of later steps, and damaged lines.

        A killed run may have written them after its last checkpoint.
        """
        lines = metrics_lines(run.output)
        steps = [step_of(line) for line in lines]
        kept = [line for line, at in zip(lines, steps, strict=True) if at is not None and at <= step]
        if len(kept) == len(lines) and all(line.endswith("\n") for line in lines):
            return
        file = run.output / METRICS
        if None in steps[:-1]:  # a killed run leaves at most a partial last line
            logger.warning("%s: line %d is damaged and was removed", file, steps.index(None) + 1)
        with atomic_path(file) as temporary:
            temporary.write_text("".join(kept))


class TensorBoard(Callback):
    """Writes the metrics for TensorBoard."""

    def __init__(self) -> None:
        self._file: TensorBoardFile | None = None  # opened with the first metrics: a rejected run has none

    def on_start(self, run: RunProgress) -> None:
        """Record which steps will be repeated."""
        self._purge_step = run.step + 1

    def on_step(self, run: RunProgress, metrics: dict[str, float]) -> None:
        """Write the metrics, if there are any."""
        if not metrics:
            return
        if self._file is None:
            self._file = TensorBoardFile(run.output / TENSORBOARD, purge_step=self._purge_step)
        self._file.add({"learning_rate": run.learning_rate} | metrics, run.step)

    def on_evaluation(self, run: RunProgress, metrics: dict[str, float]) -> None:
        """Write the metrics, and show all of them."""
        self.on_step(run, metrics)
        if self._file:
            self._file.flush()

    def on_rollback(self, run: RunProgress, metrics: dict[str, Any]) -> None:
        """Drop the metrics of the steps that will be repeated."""
        self._purge_step = run.step + 1
        if self._file:
            self._file.purge(self._purge_step)

    def on_end(self, run: RunProgress) -> None:
        """Close the file."""
        if self._file:
            self._file.close()


class LogLines(Callback):
    """Logs a line for the metrics of a step."""

    def __init__(self, settings: TrainingSettings) -> None:
        self._length = f"/{settings.length}" if settings.unit == "steps" else ""

    def on_step(self, run: RunProgress, metrics: dict[str, float]) -> None:
        """Log a line, if there are metrics."""
        if metrics:
            shown = (f"{name} {value:.4g}" for name, value in metrics.items())
            logger.info("%s", "  ".join([f"step {run.step}{self._length}", *shown]))

    on_evaluation = on_step


class Curves(Callback):
    """Draws `curves.png` after evaluations, at most every half a minute, and at the end."""

    def on_start(self, run: RunProgress) -> None:
        """Start the clock."""
        self._drawn, self._outdated = time.monotonic(), False

    def on_evaluation(self, run: RunProgress, metrics: dict[str, float]) -> None:
        """Draw, unless the last image is recent."""
        self._outdated = True
        if time.monotonic() - self._drawn > _SECONDS_BETWEEN_PICTURES:
            self.on_end(run)

    def on_end(self, run: RunProgress) -> None:
        """Draw, unless the image shows all evaluations."""
        if self._outdated:
            plot_curves(run.output)
            self._drawn, self._outdated = time.monotonic(), False


class Bar(Callback):
    """Shows a progress bar."""

    def __init__(self, settings: TrainingSettings) -> None:
        self._settings = settings

    def on_start(self, run: RunProgress) -> None:
        """Show the bar."""
        self._bar = ProgressBar(lines=False).__enter__()

    def on_step(self, run: RunProgress, metrics: dict[str, float]) -> None:
        """Move the bar."""
        length, unit = self._settings.length, self._settings.unit
        place = run.step if unit == "steps" else run.tokens
        self._bar.update(f"loss {run.loss:.3f}  {place:,} of {length:,} {unit}", place, length)

    def on_end(self, run: RunProgress) -> None:
        """Remove the bar."""
        self._bar.__exit__()


def metrics_lines(output: Path) -> list[str]:
    """Return the lines of a run's `metrics.jsonl` unchanged, or none if the file does not exist."""
    file = output / METRICS
    if not file.is_file():
        return []
    return file.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)


def step_of(line: str) -> int | None:
    """Return the step of a line of `metrics.jsonl`, or None for a damaged line."""
    try:
        step = json.loads(line)["step"] if line.endswith("\n") else None
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return step if isinstance(step, int) else None
