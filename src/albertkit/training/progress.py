"""What a run tells: lines of `metrics.jsonl`, TensorBoard, a progress bar on a terminal, lines elsewhere."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from albertkit.extras import optional
from albertkit.training.curves import load_plotting, plot_curves

tensorboard = optional("torch.utils.tensorboard", extra="train")
# TensorBoard's own way to be told to write files without TensorFlow: where that is installed, importing it
# takes seconds and hundreds of megabytes.
sys.modules.setdefault("tensorboard.compat.notf", ModuleType("tensorboard.compat.notf"))

METRICS = "metrics.jsonl"
TENSORBOARD = "tensorboard"


class Reporter:
    """Writes the figures of a run; only the main process has one.

    Args:
        output: folder of the run.
        console: where people read.
        step: where the run stands; lines of later steps, which a killed run wrote after its last
            checkpoint, are forgotten.
        length: of the whole run, in `unit`.
        unit: "steps" or "tokens".
    """

    def __init__(self, output: Path, console: Console, *, step: int, length: int, unit: str) -> None:
        self.output, self.console = output, console
        self.forget_after(step)
        self._board: Any = None  # opened with the first figures: a refused run leaves no trace
        self._purge_step = step + 1
        load_plotting()  # what is not installed must show before an hour's work
        tensorboard.SummaryWriter  # noqa: B018
        self._bar = Progress(
            TextColumn("{task.fields[shown]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(unit),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=length, shown="")
        self._bar.start()

    def close(self) -> None:
        """End the bar and flush."""
        self._bar.stop()
        if self._board:
            self._board.close()

    def say(self, line: str) -> None:
        """Print a line; never wrapped: logs are searched line by line."""
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def advance(self, place: int, loss: float) -> None:
        """Move the bar."""
        self._bar.update(self._task, completed=place, shown=f"loss {loss:.3f}")

    def log(self, head: dict[str, Any], values: dict[str, float], *, shown: str) -> None:
        """Write figures: `head` says where the run stands, `shown` introduces the line for people."""
        self.write(head | {name: round(value, 6) for name, value in values.items()})
        if self._board is None:
            folder = str(self.output / TENSORBOARD)
            self._board = tensorboard.SummaryWriter(folder, purge_step=self._purge_step)
        for name, value in ({"learning_rate": head["learning_rate"]} | values).items():
            self._board.add_scalar(name, value, head["step"])
        self.say("  ".join([shown, *(f"{name} {value:.4g}" for name, value in values.items())]))

    def plot(self) -> None:
        """Draw `curves.png` and let TensorBoard see the newest figures."""
        plot_curves(self.output)
        if self._board:
            self._board.flush()

    def write(self, line: dict[str, Any]) -> None:
        """Append a line to `metrics.jsonl`."""
        with (self.output / METRICS).open("a") as file:
            file.write(json.dumps(line) + "\n")

    def forget_after(self, step: int) -> None:
        """Drop the lines of steps that will be taken again."""
        file = self.output / METRICS
        if file.exists():
            lines = [line for line in file.read_text().splitlines() if line.endswith("}")]
            kept = [line for line in lines if json.loads(line)["step"] <= step]
            file.write_text("".join(line + "\n" for line in kept))
