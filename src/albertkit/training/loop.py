"""The only training loop: steps, evaluation, logging, checkpoints, signals, one process or many.

The caller defines what is learned: an objective (model, batch -> loss and metrics), a source of batches that
can start at any position, and an evaluation. The loop owns the optimizer, the schedule and the clock.
"""

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from albertkit.allocator import keep_freed_memory
from albertkit.errors import ConfigError, TrainingError
from albertkit.files import copy_file
from albertkit.recipe import default_values
from albertkit.training.callback_list import CallbackList
from albertkit.training.callbacks import Callback, RunProgress
from albertkit.training.distributed import World
from albertkit.training.folder import BEST, open_run, written_folder
from albertkit.training.objective import OUTPUT_SPREAD, Averages, Batch, BatchSource, TrainingObjective
from albertkit.training.optimizers import build_optimizer, clip_gradients, learning_rate_factor
from albertkit.training.progress import reporters
from albertkit.training.run_state import RunResult, RunState
from albertkit.training.settings import TrainingSettings
from albertkit.training.signals import stop_signals
from albertkit.training.state import (
    check_schedule,
    checkpoints,
    choose_precision,
    load_checkpoint,
    save_checkpoint,
)
from albertkit.training.throughput import Meter, computes_in_bf16, peak_flops

logger = logging.getLogger(__name__)

CONSTANT = 1e-3  # relative spread of the outputs over positions below which they count as constant


def train(
    model: nn.Module,
    objective: TrainingObjective,
    batches: BatchSource,
    settings: TrainingSettings,
    output: Path,
    *,
    save_model: Callable[[Path], object],
    evaluate: Callable[[], dict[str, float]] | None = None,
    best_metric: str | None = None,
    lower_is_better: bool = False,
    is_hopeless: Callable[[RunState], str | None] | None = None,
    fingerprint: dict[str, Any] | None = None,
    defaults: dict[str, Any] | None = None,
    world: World | None = None,
    flops_per_token: float = 0.0,
    callbacks: Sequence[Callback] = (),
    about: dict[str, Any] | None = None,
) -> RunResult:
    """Train for the length of `settings`, from the newest checkpoint in `output` if there is one.

    Args:
        model: trained in place, on its device. Every parameter that requires a gradient gets one.
        objective: computes the loss of a batch.
        batches: the stream of batches; with several processes, each gets its own rows.
        settings: how to train.
        output: folder of the run, see `albertkit.training.state`. Several machines need a shared disk.
        save_model: writes a complete model folder (weights, config, tokenizer).
        evaluate: returns metrics on held-out data. All processes pass it, the main process calls it, with
            the model in evaluation mode. A run whose metric "output_spread" falls to nothing is stopped.
        best_metric: evaluation metric that selects the final model, which is kept in `best/` during the run.
            Without it, the last model is the final one.
        lower_is_better: whether lower values of the metric are better.
        is_hopeless: called in the main process after each evaluation except the last. Returns why the run
            should end, or None. The reason is saved in the state, so the same command does not continue.
        fingerprint: further values that must be the same on resume (data, shape).
        defaults: values of `fingerprint` for checkpoints of earlier versions that lack them.
        world: the processes of the run.
        flops_per_token: operations of a training step per token, for the utilization metric.
        callbacks: called in the main process. An exception in a callback ends the run with a checkpoint.
        about: the settings passed to callbacks (default: `settings`).

    Raises:
        ConfigError: `early_stopping` is set without a metric that selects the model.
        TrainingError: a run is resumed with other settings, the folder is in use or has other files, losses
            stay bad after several rollbacks, or the outputs became constant.
    """
    if settings.early_stopping and not (evaluate and best_metric):
        raise ConfigError(
            f"early_stopping is {settings.early_stopping}, but the run keeps no best model, because it has "
            "no evaluation. Omit early_stopping, or pass validation data."
        )
    world = world or World(next(model.parameters()).device)
    progress = RunProgress(output=output, settings=about or asdict(settings))
    called = [*reporters(settings), *callbacks] if world.is_main else []
    callback_list = CallbackList(called, progress, world, settings.learning_rate or 0.0)
    run = _Run(
        *(model, objective, settings, output, world, save_model, evaluate, best_metric, lower_is_better),
        *(is_hopeless, fingerprint or {}, defaults or {}, flops_per_token, callback_list),
    )
    with run.opened(), stop_signals() as stopping:
        run.resume_or_start()
        run.wrap()
        try:
            signal = run.steps(batches, stopping)
        finally:
            callback_list.end(run.state, finished=run.is_finished())
        callback_list.raise_error(run.state)
    return RunResult(run.state, run.is_finished(), signal, run.state.metrics if world.is_main else {})


@dataclass
class _Run:
    """One call of `train`: its arguments and its progress."""

    model: nn.Module
    objective: TrainingObjective
    settings: TrainingSettings
    output: Path
    world: World
    save_model: Callable[[Path], object]
    evaluate_model: Callable[[], dict[str, float]] | None
    best_metric: str | None
    lower_is_better: bool
    is_hopeless: Callable[[RunState], str | None] | None
    fingerprint: dict[str, Any]
    defaults: dict[str, Any]
    flops_per_token: float
    callbacks: CallbackList

    def __post_init__(self) -> None:
        # The precision that "auto" chose belongs to the run, so that a resume on another machine uses it too.
        precision = choose_precision(self.settings, self.output, self.world)
        self.bf16 = precision == "bf16"
        self.optimizer = build_optimizer(self.model, self.settings, bf16=self.bf16)
        self.peak_rates: list[float] = [group["lr"] for group in self.optimizer.param_groups]
        self.fingerprint = self.settings.fingerprint() | {"precision": precision} | self.fingerprint
        self.state = RunState()
        self.saved_step: int | None = None
        self.deadline = math.inf  # as `time.perf_counter`
        self.rollbacks = 0  # number of rollbacks since the last checkpoint was written
        self.averages = Averages()  # means of the training metrics since the last log line

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Lock the folder for this run."""
        is_new = not checkpoints(self.output)
        with open_run(self.output, is_new=is_new) if self.world.is_main else nullcontext():
            self.world.wait()  # wait until the main process has checked the folder
            yield

    def wrap(self) -> None:
        """Prepare the model for calls: checkpointed layers, several processes, compilation."""
        if self.settings.gradient_checkpointing:
            self.model.gradient_checkpointing_enable()  # type: ignore[operator]
        keep_freed_memory()
        self.wrapped = self.world.wrap(self.model)
        self.called = torch.compile(self.wrapped, dynamic=True) if self.settings.compile else self.wrapped

    def place(self) -> int:
        """Return the progress of the run, in the unit of its length."""
        return self.state.step if self.settings.unit == "steps" else self.state.tokens

    def is_finished(self) -> bool:
        """Return whether the run has reached its length, or ended before it."""
        state = self.state
        ended = self.is_stale() or state.given_up is not None or state.stopped is not None
        return ended or self.place() >= self.settings.length

    def is_stale(self) -> bool:
        return 0 < self.settings.early_stopping <= self.state.stale_evaluations

    def resume_or_start(self) -> None:
        """Load the newest checkpoint. A new run writes its first checkpoint before its first step."""
        settings = self.settings
        saved = checkpoints(self.output)
        self.world.wait()  # no process writes a checkpoint before all have looked for one
        if saved:
            self.load(saved[-1])
            check_schedule(saved[-1], self.state, settings)
            self.say(f"resuming from {saved[-1].name} ({self.state.tokens:,} tokens seen)")
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        processes = f", {self.world.size} processes" if self.world.size > 1 else ""
        self.say(
            f"training {parameters:,} parameters on {self.world.device}{processes} in "
            f"{self.fingerprint['precision']} for {settings.length:,} {settings.unit}; "
            f"a line every {settings.log_every} steps"
        )
        if self.bf16 and not computes_in_bf16(self.world.device):
            logger.warning("bf16 is not faster than fp32 on %s. Consider fp32.", self.world.device)
        utilization = 0.0
        if self.flops_per_token and self.world.is_main:
            peak = peak_flops(self.world.device, torch.bfloat16 if self.bf16 else torch.float32)
            utilization = self.flops_per_token / (peak * self.world.size)
        self.meter = Meter(self.world.device, utilization, self.state, done=self.place())

    def steps(self, batches: BatchSource, stopping: list[int]) -> int | None:
        """Train until the run has its length, its time is up or a signal arrives; return the signal."""
        settings, signal = self.settings, None
        self.deadline = time.perf_counter() + settings.max_minutes * 60
        self.callbacks.start(self.state, resumed=self.saved_step is not None)
        if self.callbacks.failed:
            return None
        if self.saved_step is None:
            self.evaluate()
            self.save()
        self.model.train()
        self.meter.start()
        self.meter.mark(self.state)
        was_finished = self.is_finished()
        if was_finished:
            self.say(f"already finished, at step {self.state.step}")
        elif not self.callbacks.failed:
            for batch, next_position in batches(self.state.position):
                grad_norm = self.step(batch, next_position)
                if grad_norm is None:
                    continue
                step = self.state.step
                ending = self.is_finished() or self.world.any(
                    bool(stopping) or time.perf_counter() >= self.deadline
                )
                figures = self.figures(grad_norm) if step % settings.log_every == 0 or ending else {}
                self.callbacks.call("on_step", self.state, figures)
                self.callbacks.agree(self.state)
                last = self.is_finished()
                if self.evaluate_model and (last or step % settings.evaluate_every == 0):
                    self.evaluate()
                    if not last:
                        self.end_if_hopeless()
                        last = self.is_finished()
                ending = ending or last or self.callbacks.failed
                if step % settings.save_every == 0 or ending:
                    self.save()
                if ending or self.callbacks.failed:
                    signal = stopping[0] if stopping else None
                    break
        if self.state.step != self.saved_step:  # the stream of batches ended early
            self.save()
        if self.world.is_main:
            self.write_model(was_finished=was_finished)
        return signal

    def write_model(self, *, was_finished: bool) -> None:
        """Write the last model, or the best one if the run has ended and keeps it.

        Raises:
            TrainingError: the best model is missing, and no earlier call has written it.
        """
        best = self.output / BEST
        if not (self.is_finished() and self.best_metric and self.state.best is not None):
            self.save_model(self.output)
        elif best.is_dir():
            for file in filter(Path.is_file, best.rglob("*")):
                copy_file(file, self.output / file.relative_to(best))
        elif not was_finished:
            raise TrainingError(
                f"{best} is missing. It had the best model, that of step {self.state.best_step}. Restore the "
                "folder, or start again in another output folder."
            )

    def step(self, batch: Batch, next_position: dict[str, int]) -> float | None:
        """Take one optimizer step and return the norm of the gradients; roll back after a bad loss."""
        settings, state, world = self.settings, self.state, self.world
        # The dropout of each step has its own seed, so resuming needs no state of the generators.
        seeds = np.random.SeedSequence((settings.seed, state.step, world.rank))
        torch.manual_seed(int(seeds.generate_state(1, np.uint64)[0]))
        parts = batch.split(settings.accumulation)
        counts = world.sum_counts([self.objective.counts(part) for part in parts])
        factor = learning_rate_factor(settings, step=state.step + 1, tokens=state.tokens + counts["tokens"])
        for group, rate in zip(self.optimizer.param_groups, self.peak_rates, strict=True):
            group["lr"] = rate * factor
        self.optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=world.device)
        sums: list[dict[str, tuple[Tensor, int]]] = []
        for part in parts:
            # Gradients are averaged over the processes once per batch, after its last part.
            with nullcontext() if part is parts[-1] else world.no_averaging(self.wrapped):
                with self.autocast():
                    result = self.objective(self.called, part, counts)
                (result.loss * world.size).backward()  # undoes the averaging over the processes
            total += result.loss.detach()
            sums.append(result.sums)
        loss = float(world.sum(total))
        grad_norm = clip_gradients(self.model.parameters(), settings.max_grad_norm)
        if state.watch.is_bad(loss, settings.spike) or not torch.isfinite(grad_norm):
            self.roll_back(loss, next_position)
            return None
        self.optimizer.step()
        state.watch.add(loss)
        state.step += 1
        state.tokens += counts["tokens"]
        state.schedule_factor = factor
        state.position = next_position
        for part_sums in sums:
            self.averages.add(part_sums)
        self.callbacks.run.loss = loss
        return float(grad_norm)

    def autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.world.device.type, torch.bfloat16, enabled=self.bf16)

    def roll_back(self, loss: float, position: dict[str, int]) -> None:
        """Return to the last checkpoint after a bad loss, and skip the data since then, up to `position`.

        Raises:
            TrainingError: it has happened too often since the last checkpoint was written.
        """
        step, self.rollbacks = self.state.step + 1, self.rollbacks + 1
        newest = checkpoints(self.output)[-1]
        what = (
            f"the loss of step {step} is {loss:.4g} (running mean {self.state.watch.mean:.4g}) "
            "or its gradients are not finite"
        )
        if self.rollbacks > self.settings.max_rollbacks:
            cause = "" if self.state.step else " If every loss is NaN, check the data and the objective."
            raise TrainingError(
                f"{what}, after {self.settings.max_rollbacks} rollbacks to {newest}, which is intact. Lower "
                f"the learning rate ({self.settings.learning_rate:g}) or use more warm-up.{cause}"
            )
        before = self.state
        self.load(newest)
        self.state.keep_after_rollback(before, position)
        self.averages = Averages()
        self.meter.mark(self.state)
        self.say(f"{what}: rolling back to {newest.name} and skipping the data since then")
        self.callbacks.call("on_rollback", self.state, {"rolled_back_from": step, "bad_loss": str(loss)})

    def figures(self, grad_norm: float) -> dict[str, float]:
        """Return the speed and the averages of the training metrics since the last call."""
        figures = {"grad_norm": grad_norm}
        seconds_left = self.deadline - time.perf_counter()
        figures |= self.meter.figures(
            self.state, done=self.place(), length=self.settings.length, seconds_left=seconds_left
        )
        return figures | {f"train/{name}": value for name, value in self.averages.take(self.world).items()}

    def evaluate(self) -> None:
        """Evaluate in the main process, while the others wait.

        Raises:
            TrainingError: the outputs have been constant twice in a row.
        """
        if self.evaluate_model is None:
            return
        self.meter.tick(self.state)
        before = self.state.metrics
        if self.world.is_main:
            self.model.eval()
            with torch.no_grad(), self.autocast():
                self.state.metrics = self.evaluate_model()
            self.model.train()
            shown = {f"eval/{name}": value for name, value in self.state.metrics.items()}
            self.callbacks.call("on_evaluation", self.state, shown)
            metric, lower = self.best_metric, self.lower_is_better
            if metric and self.state.is_best(metric, lower=lower):
                with written_folder(self.output / BEST) as folder:
                    self.save_model(folder)
        stale = self.state.stale_evaluations if self.world.is_main else 0
        self.state.stale_evaluations = self.world.sum_counts([{"stale": stale}])["stale"]
        spreads = [values.get(OUTPUT_SPREAD, math.inf) for values in (before, self.state.metrics)]
        if self.world.any(self.world.is_main and max(spreads) < CONSTANT):
            raise TrainingError(
                f"the outputs no longer depend on the input: their spread over positions is {spreads[1]:.2g} "
                f"at step {self.state.step}, and was {spreads[0]:.2g} before. Such a run does not recover. "
                "Start again with a lower learning rate, more warm-up, or frequency_bias."
            )
        self.callbacks.agree(self.state)
        self.meter.start()  # evaluation does not count as training time

    def end_if_hopeless(self) -> None:
        """Record in the state of all processes that the run ends here; log the reason for an early end."""
        state = self.state
        if self.is_hopeless:
            reason = self.is_hopeless(state) if self.world.is_main else None
            if self.world.any(reason is not None):
                state.given_up = reason or "see the log of the main process"
        if state.given_up is None and self.is_stale():
            count = f"{state.stale_evaluations} evaluations"
            self.say(f"ended early: {count} without improvement since step {state.best_step}")

    def load(self, checkpoint: Path) -> None:
        run = {"model": self.model, "optimizer": self.optimizer, "fingerprint": self.fingerprint}
        defaults = default_values(TrainingSettings) | self.defaults
        self.state = load_checkpoint(checkpoint, **run, defaults=defaults)
        self.saved_step = self.state.step

    def save(self) -> None:
        """Write a checkpoint; all processes continue when it is complete."""
        self.meter.tick(self.state)
        if self.world.is_main:
            folder = save_checkpoint(
                self.output,
                self.state,
                optimizer=self.optimizer,
                save_model=self.save_model,
                fingerprint=self.fingerprint,
                keep=self.settings.keep_checkpoints,
            )
            self.callbacks.call("on_checkpoint", self.state, folder)
        self.world.wait()
        self.callbacks.agree(self.state)
        self.saved_step, self.rollbacks = self.state.step, 0
        self.meter.start()

    def say(self, line: str) -> None:
        if self.world.is_main:
            logger.info("%s", line)
