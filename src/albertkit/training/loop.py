"""The only training loop: steps, evaluation, logging, checkpoints, signals, one process or many.

The caller defines what is learned: an objective (model, batch -> loss and metrics), a source of batches that
can start at any position, and an evaluation. The loop owns the optimizer, the schedule and the clock.
"""

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from albertkit.allocator import keep_freed_memory
from albertkit.errors import ConfigError, TrainingError
from albertkit.files import copy_file
from albertkit.modeling.layers import compile_layers
from albertkit.training.callbacks import Callback, CallbackList
from albertkit.training.checkpoints import (
    STATE_TENSORS,
    checkpoint_folder,
    checkpoints,
    choose_precision,
    load_checkpoint,
    open_run,
    save_checkpoint,
    written_folder,
)
from albertkit.training.distributed import World, stop_signals
from albertkit.training.optimizers import build_optimizer, clip_gradients
from albertkit.training.progress import BEST, reporters
from albertkit.training.settings import TrainingSettings
from albertkit.training.state import RunState
from albertkit.training.throughput import computes_in_bf16, peak_flops, peak_memory

logger = logging.getLogger(__name__)

OUTPUT_SPREAD = "output_spread"
"""Evaluation metric that the loop watches: the relative spread of the outputs over positions."""
CONSTANT = 1e-3  # relative spread of the outputs over positions below which they count as constant


@dataclass(frozen=True)
class StepOutput:
    """The result of an objective for one part of a batch."""

    loss: Tensor
    """Scalar to minimize: the part's share of the loss of the whole batch."""
    sums: dict[str, tuple[Tensor, int]]
    """Metric name -> (sum over the part, number of items summed); the same names for every part."""


class Averages:
    """Averages of the metrics of the parts of batches, over all processes."""

    def __init__(self) -> None:
        self._sums: dict[str, list[Any]] = {}

    def add(self, sums: dict[str, tuple[Tensor, int]]) -> None:
        for name, (value, count) in sums.items():
            entry = self._sums.setdefault(name, [0.0, 0])
            entry[0] = entry[0] + value.detach()
            entry[1] += count

    def take(self, world: World, *, empty: float = 0.0) -> dict[str, float]:
        """Return the averages over all processes, `empty` where nothing was counted, and start again."""
        names = list(self._sums)
        pairs = [[float(total), float(count)] for total, count in self._sums.values()]
        self._sums.clear()
        summed = world.sum(torch.tensor(pairs, dtype=torch.float32, device=world.device))
        return {
            name: total / count if count else empty
            for name, (total, count) in zip(names, summed.tolist(), strict=True)
        }


class TrainingObjective(Protocol):
    """A loss function of a model, computed part by part."""

    def counts(self, batch: Any) -> dict[str, int]:
        """Count the items over which the losses of a part are averaged, and its tokens as "tokens"."""
        ...

    def __call__(self, model: Callable[..., Any], batch: Any, counts: dict[str, int]) -> StepOutput:
        """Compute a part's share of the loss; `counts` are those of the whole batch."""
        ...


BatchSource = Callable[[dict[str, int] | None], Iterator[tuple[Any, dict[str, int]]]]
"""Starts the stream of batches at a position (None: the beginning). Each batch comes with the position of
the next one. Its method `split(parts)` returns it in this number of parts, or fewer if it has fewer rows."""


@dataclass
class Training:
    """A run of the training loop. `run` trains for the length of `settings`.

    If `output` has checkpoints, the run continues from the newest one.
    """

    model: nn.Module
    """Trained in place, on its device. Every parameter that requires a gradient gets one."""
    objective: TrainingObjective
    """Computes the loss of a batch."""
    batches: BatchSource
    """The stream of batches. With several processes, each gets its own rows."""
    settings: TrainingSettings
    output: Path
    """Folder of the run, see `albertkit.training.checkpoints`. Several machines need a shared disk."""
    save_model: Callable[[Path], object]
    """Writes a complete model folder (weights, config, tokenizer)."""
    evaluate: Callable[[], dict[str, float]] | None = None
    """Returns metrics on held-out data. All processes pass it, the main process calls it, with the model in
    evaluation mode. A run whose metric "output_spread" falls to nothing is stopped."""
    best_metric: str | None = None
    """Evaluation metric that selects the final model, which is kept in `best/` during the run. Without it,
    the last model is the final one."""
    lower_is_better: bool = False
    """Whether lower values of the metric are better."""
    keep_untrained: bool = True
    """Whether the model before the first step can be the final one, if no later model is better."""
    fingerprint: dict[str, Any] = field(default_factory=dict)
    """Further values that must be the same on resume (data, shape)."""
    world: World = field(default_factory=lambda: World(torch.device("cpu")))
    """The processes of the run."""
    counts_flops: bool = False
    """Whether to count the operations of the first batch, for the utilization metric."""
    callbacks: Sequence[Callback] = ()
    """Called in the main process. An exception in a callback ends the run with a checkpoint."""
    about: dict[str, Any] = field(default_factory=dict)
    """The settings that callbacks get."""

    def __post_init__(self) -> None:
        settings = self.settings
        if settings.early_stopping and not (self.evaluate and self.best_metric):
            raise ConfigError("early_stopping needs validation data. Pass some, or omit early_stopping.")
        called = [*reporters(settings), *self.callbacks] if self.world.is_main else []
        self._state = RunState(output=self.output, settings=self.about)
        self._callbacks = CallbackList(called, self._state, self.world)
        # The precision that "auto" chose belongs to the run, so that a resume on another machine uses it too.
        precision = choose_precision(settings, self.output, self.world)
        self._bf16 = precision == "bf16"
        self._optimizer = build_optimizer(self.model, settings, bf16=self._bf16)
        self._peak_rates: list[float] = [group["lr"] for group in self._optimizer.param_groups]
        self.fingerprint = settings.fingerprint() | {"precision": precision} | self.fingerprint
        self._saved_step: int | None = None
        self._deadline = math.inf  # as `time.perf_counter`
        self._rollbacks = 0  # number of rollbacks since the last checkpoint was written
        self._averages = Averages()  # means of the training metrics since the last log line
        self._utilization = 0.0  # model FLOPs utilization (Chowdhery et al. 2022, B) at one token per second

    def run(self) -> RunState:
        """Train, and return the state at the end."""
        state = self._state
        with open_run(self.output) if self.world.is_main else nullcontext(), stop_signals() as stopping:
            self.world.wait()  # wait until the main process has checked the folder
            self._resume_or_start()
            if self.settings.gradient_checkpointing:
                self.model.gradient_checkpointing_enable()  # type: ignore[operator]
            keep_freed_memory()
            self._wrapped = self.world.wrap(self.model)
            if self.settings.compile:
                compile_layers(self.model)
            try:
                self._train(stopping)
            finally:
                state.finished = self._is_finished()
                self._callbacks.end()
            self._callbacks.raise_error()
        state.finished = self._is_finished()
        return state

    def _done(self) -> int:
        """Return the progress of the run, in the unit of its length."""
        return self._state.step if self.settings.unit == "steps" else self._state.tokens

    def _is_stale(self) -> bool:
        return 0 < self.settings.early_stopping <= self._state.stale_evaluations

    def _is_finished(self) -> bool:
        """Return whether the run has its length, does not improve any more, or was stopped by a callback."""
        return self._is_stale() or self._state.stopped is not None or self._done() >= self.settings.length

    def _resume_or_start(self) -> None:
        """Load the newest checkpoint. A new run writes its first checkpoint before its first step."""
        settings = self.settings
        saved = checkpoints(self.output)
        self.world.wait()  # no process writes a checkpoint before all have looked for one
        if saved:
            self._state.restore(self._load(saved[-1]))
            self._state.resumed = True
            if not (self._is_finished() or (saved[-1] / STATE_TENSORS).is_file()):
                raise TrainingError(
                    f"{saved[-1]} has no {STATE_TENSORS}, which a finished run removes, so the run cannot be "
                    "extended. Start a new run from this model in another output folder."
                )
            self._state.learning_rate = (settings.learning_rate or 0.0) * self._state.schedule_factor
            factor = settings.learning_rate_factor(step=self._state.step, tokens=self._state.tokens)
            if self._state.step and not math.isclose(self._state.schedule_factor, factor, abs_tol=1e-9):
                raise TrainingError(
                    f"{saved[-1]}: the decay had begun, so {settings.unit} and decay_{settings.unit} cannot "
                    "change. Use the saved values, or choose another output folder to start a new run."
                )
        if self._is_finished():
            logger.info(f"the run already finished at step {self._state.step:,}")
        else:
            self._log_start(saved[-1].name if saved else None)
        # The speed before a resume does not count: the machine may have been another one.
        self._first = self._done(), self._state.seconds
        self._clock = time.perf_counter()

    def _log_start(self, checkpoint: str | None) -> None:
        settings = self.settings
        if checkpoint:
            logger.info(f"resuming from {checkpoint} ({self._state.tokens:,} tokens seen)")
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        processes = f", {self.world.size} processes" if self.world.size > 1 else ""
        logger.info(
            f"training {parameters:,} parameters on {self.world.device}{processes} in "
            f"{self.fingerprint['precision']} for a total of {settings.length:,} {settings.unit}; "
            f"logging training metrics every {settings.log_every} steps"
        )
        if self._bf16 and not computes_in_bf16(self.world.device):
            logger.warning("bf16 is not faster than fp32 on %s. Consider fp32.", self.world.device)

    def _train(self, stopping: list[int]) -> None:
        """Train until the run is finished, its time is up, a signal arrives or a callback fails."""
        settings, state = self.settings, self._state
        self._deadline = time.perf_counter() + settings.max_minutes * 60
        self._callbacks.call("on_start")
        if self._callbacks.failed:
            return
        if self._saved_step is None:
            self._evaluate()
            self._save()
        self.model.train()
        self._clock = time.perf_counter()
        self._marked = state.tokens, state.seconds
        was_finished = self._is_finished()
        if not (was_finished or self._callbacks.failed):
            self._steps(stopping)
        if state.step != self._saved_step:  # the stream of batches ended early
            self._save()
        if self.world.is_main:
            self._write_model(was_finished=was_finished)

    def _steps(self, stopping: list[int]) -> None:
        settings, state = self.settings, self._state
        for batch, next_position in self.batches(state.position):
            if self.counts_flops and not self._utilization and self.world.is_main:
                self._utilization = self._measure_utilization(batch)
                self._clock = time.perf_counter()
            grad_norm = self._step(batch, next_position)
            if grad_norm is None:
                continue
            interrupted = self.world.any(bool(stopping) or time.perf_counter() >= self._deadline)
            is_logged = state.step % settings.log_every == 0 or interrupted or self._is_finished()
            self._callbacks.call("on_step", self._figures(grad_norm) if is_logged else {})
            was_finished = self._is_finished()
            if self.evaluate and (was_finished or state.step % settings.evaluate_every == 0):
                self._evaluate()
                if self._is_stale() and not was_finished:
                    logger.info(
                        f"stopped early at step {state.step}: {self.best_metric} did not improve in "
                        f"{state.stale_evaluations} evaluations"
                    )
            ends = interrupted or self._is_finished() or self._callbacks.failed
            if state.step % settings.save_every == 0 or ends:
                self._save()
            if ends or self._callbacks.failed:
                state.signal = stopping[0] if stopping else None
                return

    def _write_model(self, *, was_finished: bool) -> None:
        """Write the last model, or the best one if the run has ended and keeps it."""
        best = self.output / BEST
        if not (self._is_finished() and self.best_metric and self._state.best is not None):
            self.save_model(self.output)
        elif best.is_dir():
            for file in filter(Path.is_file, best.rglob("*")):
                copy_file(file, self.output / file.relative_to(best))
        elif not was_finished:
            raise TrainingError(
                f"{best}, the best model, is missing. Restore it, or choose another output folder."
            )

    def _measure_utilization(self, batch: Any) -> float:
        """Return the model FLOPs utilization at one token per second, counted on a part of a batch."""
        part = batch.split(self.settings.accumulation)[0]
        counts = self.objective.counts(part)
        with self._uncompiled(), FlopCounterMode(display=False) as counter:
            with self._autocast():
                result = self.objective(self.model, part, counts)
            result.loss.backward()
        self._optimizer.zero_grad(set_to_none=True)
        peak = peak_flops(self.world.device, torch.bfloat16 if self._bf16 else torch.float32)
        return counter.get_total_flops() / counts["tokens"] / (peak * self.world.size)

    def _step(self, batch: Any, next_position: dict[str, int]) -> float | None:
        """Take one optimizer step and return the norm of the gradients; roll back after a bad loss."""
        settings, state, world = self.settings, self._state, self.world
        # The dropout of each step has its own seed, so resuming needs no state of the generators.
        seeds = np.random.SeedSequence((settings.seed, state.step, world.rank))
        torch.manual_seed(int(seeds.generate_state(1, np.uint64)[0]))
        parts = batch.split(settings.accumulation)
        counts = world.sum_counts([self.objective.counts(part) for part in parts])
        factor = settings.learning_rate_factor(step=state.step + 1, tokens=state.tokens + counts["tokens"])
        for group, rate in zip(self._optimizer.param_groups, self._peak_rates, strict=True):
            group["lr"] = rate * factor
        self._optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=world.device)
        sums: list[dict[str, tuple[Tensor, int]]] = []
        for part in parts:
            # Gradients are averaged over the processes once per batch, after its last part.
            with nullcontext() if part is parts[-1] else world.no_averaging(self._wrapped):
                with self._autocast():
                    result = self.objective(self._wrapped, part, counts)
                (result.loss * world.size).backward()  # undoes the averaging over the processes
            total += result.loss.detach()
            sums.append(result.sums)
        norm = clip_gradients(self.model.parameters(), settings.max_grad_norm)
        loss, grad_norm = torch.stack([world.sum(total), norm]).tolist()  # the only wait for a GPU in a step
        if state.watch.is_bad(loss, settings.spike) or not math.isfinite(grad_norm):
            self._roll_back(loss, next_position)
            return None
        self._optimizer.step()
        state.loss = loss
        state.watch.add(loss)
        state.step += 1
        state.tokens += counts["tokens"]
        state.schedule_factor = factor
        state.learning_rate = (settings.learning_rate or 0.0) * factor
        state.position = next_position
        for part_sums in sums:
            self._averages.add(part_sums)
        return grad_norm

    def _autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.world.device.type, torch.bfloat16, enabled=self._bf16)

    def _uncompiled(self) -> AbstractContextManager[Any]:
        """Return the context in which compiled layers are called without compilation."""
        # Importing the compiler takes two seconds.
        return torch.compiler.set_stance("force_eager") if self.settings.compile else nullcontext()

    def _roll_back(self, loss: float, position: dict[str, int]) -> None:
        """Return to the last checkpoint after a bad loss, and skip the data since then, up to `position`."""
        step, self._rollbacks = self._state.step + 1, self._rollbacks + 1
        newest = checkpoints(self.output)[-1]
        what = (
            f"the loss or a gradient of step {step} is out of range (loss {loss:.4g}, running mean "
            f"{self._state.watch.mean:.4g})"
        )
        if self._rollbacks > self.settings.max_rollbacks:
            raise TrainingError(
                f"{what}, after {self.settings.max_rollbacks} rollbacks to {newest}, which is intact. Lower "
                "the learning rate. If every loss is NaN, check the data and the objective."
            )
        self._state.roll_back_to(self._load(newest), position)
        self._averages = Averages()
        self._marked = self._state.tokens, self._state.seconds
        logger.info(f"{what}: rolling back to {newest.name} and skipping the data since that checkpoint")
        self._callbacks.call("on_rollback", {"rolled_back_from": step, "bad_loss": str(loss)})

    def _figures(self, grad_norm: float) -> dict[str, float]:
        """Return the averages of the training metrics, speed and memory since the last call."""
        self._tick()
        state, (tokens, seconds) = self._state, self._marked
        speed = (state.tokens - tokens) / max(state.seconds - seconds, 1e-9)
        self._marked = state.tokens, state.seconds
        done, (first_done, first_seconds) = self._done(), self._first
        seconds_each = (state.seconds - first_seconds) / max(done - first_done, 1)
        # The limit of this call may come before the last step.
        seconds_left = min(
            seconds_each * (self.settings.length - done), max(self._deadline - time.perf_counter(), 0.0)
        )
        figures = {
            "grad_norm": grad_norm,
            "tokens_per_second": speed,
            "memory_gb": peak_memory(self.world.device) / 1e9,
            "minutes_left": seconds_left / 60,
        }
        if self._utilization:
            figures["mfu"] = speed * self._utilization
        averages = self._averages.take(self.world)
        return figures | {f"train/{name}": value for name, value in averages.items()}

    def _tick(self) -> None:
        """Count the time since the clock was started as training, and start it again."""
        now = time.perf_counter()
        self._state.seconds += now - self._clock
        self._clock = now

    def _evaluate(self) -> None:
        """Evaluate in the main process, while the others wait."""
        if self.evaluate is None:
            return
        self._tick()
        before = self._state.metrics
        if self.world.is_main:
            self.model.eval()
            with torch.no_grad(), self._autocast(), self._uncompiled():
                self._state.metrics = self.evaluate()
            self.model.train()
        shown = {f"eval/{name}": value for name, value in self._state.metrics.items()}
        self._callbacks.call("on_evaluation", shown)
        metric, lower = self.best_metric, self.lower_is_better
        is_candidate = self.world.is_main and (self._state.step or self.keep_untrained)
        if is_candidate and metric and self._state.is_best(self._state.metrics[metric], lower=lower):
            with written_folder(self.output / BEST) as folder:
                self.save_model(folder)
        stale = self._state.stale_evaluations if self.world.is_main else 0
        self._state.stale_evaluations = self.world.sum_counts([{"stale": stale}])["stale"]
        spreads = [values.get(OUTPUT_SPREAD, math.inf) for values in (before, self._state.metrics)]
        if self.world.any(self.world.is_main and max(spreads) < CONSTANT):
            raise TrainingError(
                f"the outputs no longer depend on the input: their spread over positions is {spreads[1]:.2g} "
                f"at step {self._state.step}. Start again with a lower learning rate or more warm-up."
            )
        self._clock = time.perf_counter()  # evaluation does not count as training time

    def _load(self, checkpoint: Path) -> RunState:
        saved = load_checkpoint(
            checkpoint, model=self.model, optimizer=self._optimizer, fingerprint=self.fingerprint
        )
        self._saved_step = saved.step
        return saved

    def _save(self) -> None:
        """Write a checkpoint; all processes continue when it is complete."""
        self._tick()
        if self.world.is_main:
            save_checkpoint(
                self._state,
                optimizer=self._optimizer,
                save_model=self.save_model,
                fingerprint=self.fingerprint,
                keep=self.settings.keep_checkpoints,
            )
        folder = checkpoint_folder(self.output, self._state.step)
        self._callbacks.call("on_checkpoint", folder)
        self._saved_step, self._rollbacks = self._state.step, 0
        self._clock = time.perf_counter()
