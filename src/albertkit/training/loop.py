"""The only training loop: steps, evaluation, logging, checkpoints, signals.

What is learned is the caller's: an objective (model, batch -> loss and metrics), a source of batches that
can start at any position, and an evaluation. The loop owns the optimizer, the schedule and the clock.
"""

import json
import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor, nn

from albertkit.errors import TrainingError
from albertkit.files import contents
from albertkit.training.curves import plot_curves
from albertkit.training.optimizers import build_optimizer, clip_gradients
from albertkit.training.schedules import learning_rate_factor
from albertkit.training.settings import TrainingSettings
from albertkit.training.state import RunState, checkpoints, load_checkpoint, save_checkpoint


@dataclass(frozen=True)
class StepOutput:
    """What an objective returns for one batch."""

    loss: Tensor
    """Scalar, to be minimised."""
    sums: dict[str, tuple[Tensor, int]]
    """Metric name -> (sum over the batch, number of items summed)."""
    tokens: int
    """Real tokens of the batch."""


Objective = Callable[[nn.Module, Any], StepOutput]
"""Computes the loss of a batch."""

BatchSource = Callable[[dict[str, int] | None], Iterator[tuple[Any, dict[str, int]]]]
"""Starts the stream of batches at a position (None: the beginning); with each batch comes the position of
the one after it."""


@dataclass(frozen=True)
class RunResult:
    """How a call of `train` ended."""

    state: RunState
    finished: bool
    """False when time or a signal ended it; the same command goes on."""
    signal: int | None
    """Number of the signal that ended it."""
    metrics: dict[str, float]
    """Of the last evaluation."""


def train(
    model: nn.Module,
    objective: Objective,
    batches: BatchSource,
    settings: TrainingSettings,
    output: Path,
    *,
    save_model: Callable[[Path], object],
    evaluate: Callable[[], dict[str, float]] | None = None,
    fingerprint: dict[str, Any] | None = None,
    console: Console | None = None,
) -> RunResult:
    """Train until `settings.steps`, from the newest checkpoint in `output` if there is one.

    Args:
        model: trained in place, on the device it is on.
        objective: computes the loss of a batch.
        batches: the stream of batches.
        settings: how to train.
        output: folder of the run, see `albertkit.training.state`.
        save_model: writes a complete model folder (weights, config, tokenizer).
        evaluate: returns metrics on held-out data; the model is in evaluation mode meanwhile.
        fingerprint: what else must be the same for a resume (data, shape).
        console: where progress goes.

    Raises:
        TrainingError: a resume with other settings, a folder that holds something else than a run, or a loss
            that is not a number.
    """
    console = console or Console(stderr=True)
    _refuse_other_folders(output)
    output.mkdir(parents=True, exist_ok=True)
    optimizer = build_optimizer(
        model,
        settings.optimizer,
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
    )
    run = _Run(model, optimizer, settings, output, save_model, fingerprint or {}, console)
    run.resume_or_start()
    run.steps(objective, batches, evaluate)
    return RunResult(
        run.state,
        finished=run.state.step >= settings.steps,
        signal=run.signal,
        metrics=run.last_evaluation,
    )


def _refuse_other_folders(output: Path) -> None:
    """Raise a TrainingError for a folder that holds files but no run: they would be overwritten."""
    if not output.is_dir() or checkpoints(output):
        return
    # What a run leaves that was killed before its first checkpoint.
    others = {file.name for file in output.iterdir()} - {"metrics.jsonl", "curves.png", "checkpoints"}
    if others:
        raise TrainingError(
            f"{output} {contents(output)}, and no checkpoint of a run: a new run would overwrite it. "
            "Choose another output folder."
        )


class _Run:
    """The state of one call of `train`."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        settings: TrainingSettings,
        output: Path,
        save_model: Callable[[Path], object],
        fingerprint: dict[str, Any],
        console: Console,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.settings = settings
        self.output = output
        self.save_model = save_model
        self.fingerprint = settings.fingerprint() | fingerprint
        self.console = console
        self.state = RunState()
        self.last_evaluation: dict[str, float] = {}
        self.device = next(model.parameters()).device
        self.sums: dict[str, list[Any]] = {}
        self.signal: int | None = None
        self._clock = time.perf_counter()

    def factor(self, step: int) -> float:
        return learning_rate_factor(
            step,
            schedule=self.settings.schedule,
            steps=self.settings.steps,
            warmup_steps=self.settings.warmup_steps,
            decay_steps=self.settings.decay_steps,
        )

    def resume_or_start(self) -> None:
        if saved := checkpoints(self.output):
            self.state = load_checkpoint(
                saved[-1], model=self.model, optimizer=self.optimizer, fingerprint=self.fingerprint
            )
            expected = self.factor(self.state.step)
            if not math.isclose(self.state.schedule_factor, expected, abs_tol=1e-9):
                raise TrainingError(
                    f"{saved[-1]} was written at {self.state.schedule_factor:.4f} of the peak rate, but with "
                    f"steps={self.settings.steps} and decay_steps={self.settings.decay_steps} it would be "
                    f"{expected:.4f} there: the decay had begun. Use the saved steps or a new output folder."
                )
            self.say(f"resuming from {saved[-1].name} ({self.state.tokens:,} tokens seen)")
        else:
            torch.manual_seed(self.settings.seed)
        self._forget_metrics_after(self.state.step)
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        self.say(
            f"training {parameters:,} parameters on {self.device} to step {self.settings.steps}; "
            f"a line every {self.settings.log_every} steps"
        )

    def steps(
        self, objective: Objective, batches: BatchSource, evaluate: Callable[[], dict[str, float]] | None
    ) -> None:
        settings, state = self.settings, self.state
        deadline = time.perf_counter() + settings.max_minutes * 60
        self.model.train()
        self._clock = time.perf_counter()
        logged_tokens, logged_seconds, saved_step = state.tokens, state.seconds, state.step
        with _stop_signals(self.say) as stopping:
            stream = batches(state.position) if state.step < settings.steps else iter(())
            for batch, next_position in stream:
                grad_norm = self.step(objective, batch)
                state.position = next_position
                last = state.step >= settings.steps
                ending = last or bool(stopping) or time.perf_counter() >= deadline
                if state.step % settings.log_every == 0 or ending:
                    self._tick()
                    rate = (state.tokens - logged_tokens) / max(state.seconds - logged_seconds, 1e-9)
                    self.log({"grad_norm": float(grad_norm), "tokens_per_second": rate} | self.averages())
                    logged_tokens, logged_seconds = state.tokens, state.seconds
                if evaluate and (last or state.step % settings.evaluate_every == 0):
                    self.evaluate(evaluate)
                    logged_seconds = state.seconds
                if state.step % settings.save_every == 0 or ending:
                    self.save()
                    saved_step = state.step
                if ending:
                    self.signal = stopping[0] if stopping else None
                    break
        if state.step > saved_step:  # the stream of batches ended before the steps did
            self.save()
        self.save_model(self.output)

    def step(self, objective: Objective, batch: Any) -> Tensor:
        """Take one optimizer step and return the norm of the gradients."""
        settings, state = self.settings, self.state
        factor = self.factor(state.step + 1)
        for group in self.optimizer.param_groups:
            group["lr"] = settings.learning_rate * factor
        with torch.autocast(self.device.type, torch.bfloat16, enabled=settings.precision == "bf16"):
            result = objective(self.model, batch)
        self.optimizer.zero_grad(set_to_none=True)
        result.loss.backward()
        grad_norm = clip_gradients(self.model.parameters(), settings.max_grad_norm)
        if not torch.isfinite(grad_norm):
            raise TrainingError(
                f"the gradients of step {state.step + 1} are not finite "
                f"(loss {float(result.loss.detach())}); the last checkpoint is intact. Lower the learning "
                f"rate ({settings.learning_rate:g}) or use more warm-up."
            )
        self.optimizer.step()
        state.step += 1
        state.tokens += result.tokens
        state.schedule_factor = factor
        for name, (total, count) in result.sums.items():
            entry = self.sums.setdefault(name, [0.0, 0])
            entry[0] = entry[0] + total.detach()
            entry[1] += count
        return grad_norm

    def averages(self) -> dict[str, float]:
        """Return the averages of the training metrics since the last call."""
        result = {f"train/{name}": float(total) / max(count, 1) for name, (total, count) in self.sums.items()}
        self.sums.clear()
        return result

    def evaluate(self, evaluate: Callable[[], dict[str, float]]) -> None:
        self._tick()
        self.model.eval()
        with torch.no_grad():
            self.last_evaluation = evaluate()
        self.model.train()
        self.log({f"eval/{name}": value for name, value in self.last_evaluation.items()})
        plot_curves(self.output)
        self._clock = time.perf_counter()  # evaluation is not training time

    def save(self) -> None:
        self._tick()
        save_checkpoint(
            self.output,
            self.state,
            optimizer=self.optimizer,
            save_model=self.save_model,
            fingerprint=self.fingerprint,
            keep=self.settings.keep_checkpoints,
        )
        self._clock = time.perf_counter()

    def log(self, values: dict[str, float]) -> None:
        state = self.state
        line = {
            "step": state.step,
            "tokens": state.tokens,
            "seconds": round(state.seconds, 1),
            "learning_rate": self.settings.learning_rate * state.schedule_factor,
        } | {name: round(value, 6) for name, value in values.items()}
        with (self.output / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        shown = "  ".join(f"{name} {value:.4g}" for name, value in values.items())
        self.say(f"step {state.step}/{self.settings.steps}  {shown}")

    def say(self, line: str) -> None:
        # Never wrapped: logs are searched line by line.
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _tick(self) -> None:
        now = time.perf_counter()
        self.state.seconds += now - self._clock
        self._clock = now

    def _forget_metrics_after(self, step: int) -> None:
        """Drop the lines that a killed run wrote after its last checkpoint: they will be written again."""
        file = self.output / "metrics.jsonl"
        if file.exists():
            lines = [line for line in file.read_text().splitlines() if line.endswith("}")]
            kept = [line for line in lines if json.loads(line)["step"] <= step]
            file.write_text("".join(line + "\n" for line in kept))


@contextmanager
def _stop_signals(say: Callable[[str], None]) -> Iterator[list[int]]:
    """Collect SIGTERM and SIGINT instead of dying: the loop ends after the step it is in.

    A second one ends the process at once.
    """
    received: list[int] = []

    def receive(number: int, _frame: object) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)
        say("stopping with a checkpoint after this step; once more stops at once, without one")

    try:
        previous = {number: signal.signal(number, receive) for number in (signal.SIGTERM, signal.SIGINT)}
    except ValueError:  # not the main thread, where signals do not arrive
        previous = {}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
