"""What a run tells: lines of `metrics.jsonl`, TensorBoard, lines of the log, a progress bar."""

import json
import logging
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from albertkit.extras import optional
from albertkit.files import atomic_path, finite, full_disk_named, json_text
from albertkit.logs import ProgressBar
from albertkit.training.curves import load_plotting, plot_curves
from albertkit.training.run_state import RunState
from albertkit.training.settings import TrainingSettings

tensorboard = optional("torch.utils.tensorboard", extra="train")
# TensorBoard's own way to be told to write files without TensorFlow: where that is installed, importing it
# takes seconds and hundreds of megabytes.
sys.modules.setdefault("tensorboard.compat.notf", ModuleType("tensorboard.compat.notf"))

logger = logging.getLogger(__name__)

METRICS = "metrics.jsonl"
TENSORBOARD = "tensorboard"
_SECONDS_BETWEEN_PICTURES = 30.0  # drawing takes most of a second, and an evaluation may take less


class Reporter:
    """Writes the figures of a run; only the main process has one.

    Args:
        output: folder of the run.
        settings: of the run.
        step: where the run stands.
    """

    def __init__(self, output: Path, settings: TrainingSettings, *, step: int) -> None:
        self.output, self.settings = output, settings
        self._board: Any = None  # opened with the first figures: a refused run leaves no trace
        self._purge_step = step + 1
        load_plotting()  # what is not installed must show before an hour's work
        tensorboard.SummaryWriter  # noqa: B018
        self._bar = ProgressBar(lines=False).__enter__()
        self._drawn, self._outdated = time.monotonic(), False

    def close(self) -> None:
        """End the bar and flush."""
        self._bar.__exit__()
        if self._board:
            self._board.close()

    def advance(self, place: int, loss: float) -> None:
        """Move the bar."""
        length, unit = self.settings.length, self.settings.unit
        self._bar.update(f"loss {loss:.3f}  {place:,} of {length:,} {unit}", place, length)

    def log(self, state: RunState, values: dict[str, float]) -> None:
        """Write figures of the step that the run is at."""
        head = self.write(state, {name: round(value, 6) for name, value in values.items()})
        if self._board is None:
            folder = str(self.output / TENSORBOARD)
            self._board = tensorboard.SummaryWriter(folder, purge_step=self._purge_step)
        for name, value in ({"learning_rate": head["learning_rate"]} | values).items():
            self._board.add_scalar(name, value, state.step)
        length = f"/{self.settings.length}" if self.settings.unit == "steps" else ""
        shown = (f"{name} {value:.4g}" for name, value in values.items())
        logger.info("%s", "  ".join([f"step {state.step}{length}", *shown]))

    def publish(self) -> None:
        """Show the newest figures in TensorBoard, and in `curves.png` if it is older than half a minute."""
        self._outdated = True
        if time.monotonic() - self._drawn > _SECONDS_BETWEEN_PICTURES:
            self.draw()
        if self._board:
            self._board.flush()

    def draw(self) -> None:
        """Draw `curves.png`, unless it shows all that was published."""
        if self._outdated:
            plot_curves(self.output)
            self._drawn, self._outdated = time.monotonic(), False

    def write(self, state: RunState, values: dict[str, Any]) -> dict[str, Any]:
        """Append a line to `metrics.jsonl`; return its beginning, which says where the run is.

        A value that is no number becomes null, as JSON has no NaN.
        """
        head = {
            "step": state.step,
            "tokens": state.tokens,
            "seconds": round(state.seconds, 1),
            "learning_rate": (self.settings.learning_rate or 0.0) * state.schedule_factor,
        }
        file = self.output / METRICS
        with full_disk_named(file), file.open("a") as stream:
            stream.write(json_text(finite(head | values)) + "\n")
        return head

    def forget_after(self, step: int) -> None:
        """Remove the lines of steps that will be taken again, and damaged lines.

        A run that was killed has written them after its last checkpoint.
        """
        lines = metrics_lines(self.output)
        steps = [step_of(line) for line in lines]
        kept = [line for line, at in zip(lines, steps, strict=True) if at is not None and at <= step]
        if len(kept) == len(lines) and all(line.endswith("\n") for line in lines):
            return
        if None in steps[:-1]:  # half a line at the end is what a killed run leaves
            logger.warning("%s, line %d: damaged, and removed", self.output / METRICS, steps.index(None) + 1)
        with atomic_path(self.output / METRICS) as file:
            file.write_text("".join(kept))


def metrics_lines(output: Path) -> list[str]:
    """Return the lines of a run's `metrics.jsonl` as they are; none where there is no file."""
    file = output / METRICS
    if not file.is_file():
        return []
    return file.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)


def step_of(line: str) -> int | None:
    """Return the step of a line of `metrics.jsonl`; None for a damaged line."""
    try:
        step = json.loads(line)["step"] if line.endswith("\n") else None
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return step if isinstance(step, int) else None
