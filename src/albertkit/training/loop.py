"""The only training loop: steps, evaluation, logging, checkpoints, signals, one process or many.

What is learned is the caller's: an objective (model, batch -> loss and metrics), a source of batches that
can start at any position, and an evaluation. The loop owns the optimizer, the schedule and the clock.
"""

import logging
import math
import shutil
import time
from collections.abc import Callable, Iterator, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock, Timeout
from torch import Tensor, nn

from albertkit.errors import ConfigError, TrainingError
from albertkit.files import contents, full_disk_named
from albertkit.metrics.comparing import is_better
from albertkit.training.distributed import World
from albertkit.training.health import CONSTANT
from albertkit.training.objective import OUTPUT_SPREAD, Batch, BatchSource, Objective
from albertkit.training.optimizers import build_optimizer, clip_gradients
from albertkit.training.progress import METRICS, TENSORBOARD, Reporter, metrics_lines, step_of
from albertkit.training.schedules import learning_rate_factor
from albertkit.training.settings import TrainingSettings
from albertkit.training.signals import stop_signals
from albertkit.training.state import (
    RunState,
    checkpoint_step,
    checkpoints,
    load_checkpoint,
    replace_folder,
    save_checkpoint,
    saved_precision,
)
from albertkit.training.throughput import computes_in_bf16, peak_flops, peak_memory

logger = logging.getLogger(__name__)

LOCK = ".lock"
BEST = "best"


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
    best_metric: str | None = None,
    lower_is_better: bool = False,
    is_hopeless: Callable[[RunState], str | None] | None = None,
    fingerprint: dict[str, Any] | None = None,
    world: World | None = None,
    flops_per_token: float = 0.0,
) -> RunResult:
    """Train until the length of `settings`, from the newest checkpoint in `output` if there is one.

    Args:
        model: trained in place, on the device it is on; all its parameters that require a gradient get one.
        objective: computes the loss of a batch.
        batches: the stream of batches; of several processes, each has its own rows.
        settings: how to train.
        output: folder of the run, see `albertkit.training.state`; for several machines, on a disk they share.
        save_model: writes a complete model folder (weights, config, tokenizer).
        evaluate: returns metrics on held-out data; given to all processes and called in the main one, with
            the model in evaluation mode. A run whose metric "output_spread" falls to nothing is stopped.
        best_metric: metric of the evaluation by which the final model is chosen and kept in `best/`
            meanwhile; without it, that is the last one.
        lower_is_better: whether lower values of the metric are better.
        is_hopeless: asked in the main process after each evaluation but the last: why the run is to end
            there, or None. The reason stays in the state, so the same command does not go on either.
        fingerprint: what else must be the same for a resume (data, shape).
        world: the processes of the run.
        flops_per_token: operations of a training step for each token, for the utilisation figure.

    Raises:
        TrainingError: a resume with other settings, a folder in use or that holds something else than a run,
            losses that stay bad after several rollbacks, or outputs that became constant.
    """
    world = world or World(next(model.parameters()).device)
    run = _Run(model, settings, output, world, save_model, fingerprint or {}, flops_per_token, best_metric)
    run.lower_is_better = lower_is_better
    with run.opened(), stop_signals() as run.stopping:
        run.resume_or_start()
        run.wrap()
        run.steps(objective, batches, evaluate, is_hopeless)
    return RunResult(
        run.state, finished=run.is_finished(), signal=run.signal, metrics=run.last_evaluation or {}
    )


def _refuse_other_folders(output: Path) -> None:
    """Raise a TrainingError for a folder that holds files but no run: they would be overwritten."""
    if checkpoints(output):
        return
    # What a run leaves that was killed before its first checkpoint.
    left = {METRICS, TENSORBOARD, LOCK, "curves.png", "checkpoints"}
    refuse_other_folders(output, left | ({BEST} if (output / METRICS).is_file() else set()))
    if any(line.endswith("\n") and step_of(line) != 0 for line in metrics_lines(output)):
        raise TrainingError(
            f"{output / METRICS} has figures, but {output} has no checkpoint: a new run would overwrite the "
            "figures. Put the checkpoints back, or choose another output folder."
        )


def refuse_other_folders(output: Path, own: Set[str]) -> None:
    """Raise a TrainingError if a folder holds files that a new run would overwrite.

    Args:
        output: folder of the run; it may be missing.
        own: names of the files and folders that the run itself may have left there.
    """
    if not output.exists():
        return
    if not output.is_dir():
        raise TrainingError(f"{output} is a file. Choose another output folder.")
    if any(not name.endswith(".tmp") for name in {file.name for file in output.iterdir()} - own):
        raise TrainingError(
            f"{output} {contents(output)}: a new run would overwrite it. Choose another output folder."
        )


class _Run:
    """The state of one call of `train`."""

    reporter: Reporter | None = None  # of the main process
    wrapped: nn.Module  # `model`, or what averages its gradients over the processes
    called: Callable[..., Any]  # `wrapped`, perhaps compiled
    stopping: list[int]  # signals received
    bad_loss = math.nan
    lower_is_better = False  # of the metric that the best model is chosen by

    def __init__(
        self,
        model: nn.Module,
        settings: TrainingSettings,
        output: Path,
        world: World,
        save_model: Callable[[Path], object],
        fingerprint: dict[str, Any],
        flops_per_token: float,
        best_metric: str | None,
    ) -> None:
        if settings.learning_rate is None:
            raise ConfigError("learning_rate must be given")
        self.model, self.settings, self.output, self.world = model, settings, output, world
        self.learning_rate = settings.learning_rate
        self.save_model = save_model
        self.flops_per_token = flops_per_token
        self.best_metric = best_metric
        self.optimizer = build_optimizer(
            model, settings.optimizer, learning_rate=self.learning_rate, weight_decay=settings.weight_decay
        )
        # A resume elsewhere must compute alike: the precision that "auto" chose belongs to the run.
        precision = settings.precision
        if precision == "auto":
            precision = saved_precision(output)
        if precision is None:  # a new run: all processes alike, whatever their machines are
            precision = "fp32" if world.any(not computes_in_bf16(world.device)) else "bf16"
        self.bf16 = precision == "bf16"
        self.fingerprint = settings.fingerprint() | {"precision": precision} | fingerprint
        self.state = RunState()
        self.last_evaluation: dict[str, float] | None = None
        self.sums: dict[str, list[Any]] = {}
        self.signal: int | None = None
        self.peak_flops = 0.0
        self.saved_step: int | None = None
        self.rollbacks = 0  # since the last checkpoint that was written
        self._clock = time.perf_counter()

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Keep the folder for this run alone, and report while inside."""
        if not self.world.is_main:
            self.world.wait()  # for the main process to find the folder fit
            yield
            return
        _refuse_other_folders(self.output)
        self.output.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.output / LOCK)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise TrainingError(
                f"{self.output} is in use by another run; wait for it, stop it, or choose another folder"
            ) from None
        newest = checkpoints(self.output)[-1:]
        step = checkpoint_step(newest[0]) if newest else 0
        settings = self.settings
        try:
            self.reporter = Reporter(self.output, step=step, length=settings.length, unit=settings.unit)
            self.world.wait()
            yield
        finally:
            if self.reporter:
                self.reporter.close()
            lock.release()

    def wrap(self) -> None:
        """Prepare the model for being called: checkpointed layers, several processes, compiled."""
        if self.settings.gradient_checkpointing:
            self.model.gradient_checkpointing_enable()  # type: ignore[operator]
        self.wrapped = self.world.wrap(self.model)
        self.called = torch.compile(self.wrapped, dynamic=True) if self.settings.compile else self.wrapped

    def is_finished(self) -> bool:
        """Tell whether the run has reached its length, stopped getting better, or was given up."""
        state, settings = self.state, self.settings
        if state.given_up is not None:
            return True
        if settings.early_stopping and state.stale_evaluations >= settings.early_stopping:
            return True
        return (state.step if settings.unit == "steps" else state.tokens) >= settings.length

    def resume_or_start(self) -> None:
        """Load the newest checkpoint, or write the first one: what a rollback can always go back to."""
        settings = self.settings
        saved = checkpoints(self.output)
        self.world.wait()  # nobody writes a checkpoint before all have looked
        if not saved and self.reporter:
            self.reporter.forget_after(-1)  # the evaluation before the first step comes again
        if saved:
            self.load(saved[-1])
            state = self.state
            expected = learning_rate_factor(settings, step=state.step, tokens=state.tokens)
            if state.step and not math.isclose(state.schedule_factor, expected, abs_tol=1e-9):
                raise TrainingError(
                    f"{saved[-1]} was written at {state.schedule_factor:.4f} of the peak rate, but with "
                    f"{settings.unit}={settings.length} and decay_{settings.unit}={settings.decay} it would "
                    f"be {expected:.4f} there: the decay had begun. Use the saved settings or a new output "
                    "folder."
                )
            if self.reporter:
                self.reporter.forget_after(state.step)
            self.say(f"resuming from {saved[-1].name} ({state.tokens:,} tokens seen)")
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        processes = f", {self.world.size} processes" if self.world.size > 1 else ""
        self.say(
            f"training {parameters:,} parameters on {self.world.device}{processes} in "
            f"{self.fingerprint['precision']} for {settings.length:,} {settings.unit}; "
            f"a line every {settings.log_every} steps"
        )
        if self.bf16 and not computes_in_bf16(self.world.device):
            logger.warning("%s gains nothing by bf16; fp32 is faster", self.world.device)
        if self.flops_per_token and self.world.is_main:
            self.peak_flops = peak_flops(self.world.device, torch.bfloat16 if self.bf16 else torch.float32)

    def steps(
        self,
        objective: Objective,
        batches: BatchSource,
        evaluate: Callable[[], dict[str, float]] | None,
        is_hopeless: Callable[[RunState], str | None] | None,
    ) -> None:
        """Take steps until the run has its length, its time is up or a signal comes."""
        settings, state = self.settings, self.state
        deadline = time.perf_counter() + settings.max_minutes * 60
        if self.saved_step is None:
            if evaluate:
                self.evaluate(evaluate)
            self.save()
        self.model.train()
        self._clock = time.perf_counter()
        logged_tokens, logged_seconds = state.tokens, state.seconds
        stopping = self.stopping
        if self.is_finished():
            self.say(f"already finished, at step {state.step}")
        else:
            for batch, next_position in batches(state.position):
                grad_norm = self.step(objective, batch)
                if grad_norm is None:
                    self.roll_back(next_position)
                    state = self.state
                    logged_tokens, logged_seconds = state.tokens, state.seconds
                    continue
                state.position = next_position
                last = self.is_finished()
                ending = last or self.world.any(bool(stopping) or time.perf_counter() >= deadline)
                if state.step % settings.log_every == 0 or ending:
                    self._tick()
                    seconds = max(state.seconds - logged_seconds, 1e-9)
                    speed = self.speed((state.tokens - logged_tokens) / seconds)
                    self.log({"grad_norm": float(grad_norm)} | speed | self.averages())
                    logged_tokens, logged_seconds = state.tokens, state.seconds
                if evaluate and (last or state.step % settings.evaluate_every == 0):
                    self.evaluate(evaluate)
                    if is_hopeless and not last:
                        self.give_up_if(is_hopeless)
                    logged_seconds = state.seconds
                    if not last and state.given_up is None and self.is_finished():
                        count = f"{state.stale_evaluations} evaluations"
                        self.say(f"ended early: {count} without a better one than at step {state.best_step}")
                    ending = ending or self.world.any(self.is_finished())
                if state.step % settings.save_every == 0 or ending:
                    self.save()
                if ending:
                    self.signal = stopping[0] if stopping else None
                    break
        if state.step != self.saved_step:  # the stream of batches ended before the steps did
            self.save()
        if self.world.is_main:
            best = self.output / BEST
            if self.is_finished() and best.is_dir():
                with full_disk_named(self.output):
                    shutil.copytree(best, self.output, dirs_exist_ok=True)
            else:
                self.save_model(self.output)

    def step(self, objective: Objective, batch: Batch) -> Tensor | None:
        """Take one optimizer step and return the norm of the gradients; None for a bad loss, and no step."""
        settings, state, world = self.settings, self.state, self.world
        # Dropout of each step has its own seed, so a resumed run needs no state of the generators.
        seeds = np.random.SeedSequence((settings.seed, state.step, world.rank))
        torch.manual_seed(int(seeds.generate_state(1, np.uint64)[0]))
        parts = batch.split(settings.accumulation)
        counts = world.sum_counts(_sum_counts([objective.counts(part) for part in parts]))
        factor = learning_rate_factor(settings, step=state.step + 1, tokens=state.tokens + counts["tokens"])
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate * factor
        self.optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=world.device)
        sums: list[dict[str, tuple[Tensor, int]]] = []
        for part in parts:
            with self._averaging(part is parts[-1]):
                with self.autocast():
                    result = objective(self.called, part, counts)
                (result.loss * world.size).backward()  # averaged over the processes, it is the sum again
            total += result.loss.detach()
            sums.append(result.sums)
        loss = float(world.sum(total))
        grad_norm = clip_gradients(self.model.parameters(), settings.max_grad_norm)
        if state.watch.is_bad(loss, settings.spike) or not torch.isfinite(grad_norm):
            self.bad_loss = loss
            return None
        self.optimizer.step()
        state.watch.add(loss)
        state.step += 1
        state.tokens += counts["tokens"]
        state.schedule_factor = factor
        for name, (value, count) in (item for part_sums in sums for item in part_sums.items()):
            entry = self.sums.setdefault(name, [0.0, 0])
            entry[0] = entry[0] + value.detach()
            entry[1] += count
        if self.reporter:
            self.reporter.advance(state.step if settings.unit == "steps" else state.tokens, loss)
        return grad_norm

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the context in which the model computes in the precision of the run."""
        return torch.autocast(self.world.device.type, torch.bfloat16, enabled=self.bf16)

    def _averaging(self, last_part: bool) -> AbstractContextManager[Any]:
        """Average gradients over the processes once for a batch, after its last part."""
        if self.world.size == 1 or last_part:
            return nullcontext()
        return self.wrapped.no_sync()  # type: ignore[operator]

    def roll_back(self, position: dict[str, int]) -> None:
        """Go back to the last checkpoint after a bad loss; the data since then, up to `position`, is skipped.

        Raises:
            TrainingError: it has happened too often since the last checkpoint was written.
        """
        step, self.rollbacks = self.state.step + 1, self.rollbacks + 1
        newest = checkpoints(self.output)[-1]
        what = (
            f"the loss of step {step} is {self.bad_loss:.4g} (running mean {self.state.watch.mean:.4g}) "
            "or its gradients are not finite"
        )
        if self.rollbacks > self.settings.max_rollbacks:
            raise TrainingError(
                f"{what}, after {self.settings.max_rollbacks} rollbacks to {newest}, which is intact. Lower "
                f"the learning rate ({self.learning_rate:g}) or use more warm-up."
            )
        seconds = self.state.seconds
        self.load(newest)
        self.state.seconds = seconds
        self.state.position = position
        self.sums.clear()
        self.say(f"{what}: going back to {newest.name} and skipping the data since then")
        if self.reporter:
            self.reporter.forget_after(self.state.step)
            self.reporter.write(self._head() | {"rolled_back_from": step, "bad_loss": str(self.bad_loss)})

    def speed(self, tokens_per_second: float) -> dict[str, float]:
        """Return what people watch beside the losses; "mfu" is model FLOPs utilisation."""
        state, settings = self.state, self.settings
        done = state.step if settings.unit == "steps" else state.tokens
        figures = {
            "tokens_per_second": tokens_per_second,
            "memory_gb": peak_memory(self.world.device) / 1e9,
            "minutes_left": state.seconds / done * (settings.length - done) / 60,
        }
        if self.peak_flops:
            of_all = self.peak_flops * self.world.size
            figures["mfu"] = tokens_per_second * self.flops_per_token / of_all
        return figures

    def averages(self) -> dict[str, float]:
        """Return the averages of the training metrics since the last call, over all processes."""
        names = list(self.sums)
        pairs = [[float(total), float(count)] for total, count in self.sums.values()]
        self.sums.clear()
        summed = self.world.sum(torch.tensor(pairs, dtype=torch.float32, device=self.world.device))
        return {
            f"train/{name}": total / max(count, 1)
            for name, (total, count) in zip(names, summed.tolist(), strict=True)
        }

    def evaluate(self, evaluate: Callable[[], dict[str, float]]) -> None:
        """Evaluate in the main process, while the others wait.

        Raises:
            TrainingError: the outputs have been constant twice in a row.
        """
        self._tick()
        before = self.last_evaluation or {}
        if self.world.is_main:
            self.model.eval()
            with torch.no_grad(), self.autocast():
                self.last_evaluation = evaluate()
            self.model.train()
            self.log({f"eval/{name}": value for name, value in self.last_evaluation.items()})
            self.keep_if_best()
        if self.reporter:
            self.reporter.plot()
        spreads = [values.get(OUTPUT_SPREAD, math.inf) for values in (before, self.last_evaluation or {})]
        if self.world.any(max(spreads) < CONSTANT):
            raise TrainingError(
                f"the outputs no longer depend on the input: their spread over positions is {spreads[1]:.2g} "
                f"at step {self.state.step}, and was {spreads[0]:.2g} before. Such a run does not recover: "
                "start again with a lower learning rate, more warm-up, or frequency_bias."
            )
        self._clock = time.perf_counter()  # evaluation is not training time

    def keep_if_best(self) -> None:
        """Save the model to `best/` if its last evaluation is the best so far."""
        if self.best_metric is None:
            return
        state, value = self.state, (self.last_evaluation or {})[self.best_metric]
        # Of equals the first is kept, unless that was before any training.
        is_best = is_better(
            value, math.nan if state.best is None else state.best, lower=self.lower_is_better
        ) or (value == state.best and not state.best_step)
        if not is_best:
            state.stale_evaluations += 1
            return
        state.best, state.best_step, state.stale_evaluations = value, state.step, 0
        temporary = self.output / f".{BEST}.tmp"
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            self.save_model(temporary)
        except OSError:  # a full disk, say: leave it no fuller than it was
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        replace_folder(temporary, self.output / BEST)

    def give_up_if(self, is_hopeless: Callable[[RunState], str | None]) -> None:
        """Note in the state that the run is to end here, in all processes."""
        reason = is_hopeless(self.state) if self.world.is_main else None
        if self.world.any(reason is not None):
            self.state.given_up = reason or "the main process knows why"

    def load(self, checkpoint: Path) -> None:
        """Put a checkpoint's weights, optimizer and state in place."""
        self.state = load_checkpoint(
            checkpoint, model=self.model, optimizer=self.optimizer, fingerprint=self.fingerprint
        )
        self.saved_step = self.state.step

    def save(self) -> None:
        """Write a checkpoint; all processes go on when it is there."""
        self._tick()
        if self.world.is_main:
            save_checkpoint(
                self.output,
                self.state,
                optimizer=self.optimizer,
                save_model=self.save_model,
                fingerprint=self.fingerprint,
                keep=self.settings.keep_checkpoints,
            )
        self.world.wait()
        self.saved_step, self.rollbacks = self.state.step, 0
        self._clock = time.perf_counter()

    def log(self, values: dict[str, float]) -> None:
        """Report figures of the present step."""
        if self.reporter:
            length = f"/{self.settings.length}" if self.settings.unit == "steps" else ""
            self.reporter.log(self._head(), values, shown=f"step {self.state.step}{length}")

    def say(self, line: str) -> None:
        """Log a line, in the main process."""
        if self.world.is_main:
            logger.info("%s", line)

    def _head(self) -> dict[str, Any]:
        state = self.state
        return {
            "step": state.step,
            "tokens": state.tokens,
            "seconds": round(state.seconds, 1),
            "learning_rate": self.learning_rate * state.schedule_factor,
        }

    def _tick(self) -> None:
        now = time.perf_counter()
        self.state.seconds += now - self._clock
        self._clock = now


def _sum_counts(parts: list[dict[str, int]]) -> dict[str, int]:
    return {name: sum(counts[name] for counts in parts) for name in parts[0]}
