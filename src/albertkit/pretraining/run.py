"""Pretrain a model on prepared shards: `pretrain` (Lan et al. 2019, sections 3.1 and 4.1)."""

import itertools
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from albertkit.cores import usable_cores
from albertkit.errors import TrainingError
from albertkit.files import full_disk_named
from albertkit.logs import lines_shown
from albertkit.metrics import is_better
from albertkit.modeling.heads import AlbertForPreTraining
from albertkit.pipelines import pipeline
from albertkit.pretraining.batches import ExampleStream, Position, PretrainingBatch, fixed_batches
from albertkit.pretraining.initialization import check_vocabulary, initialize
from albertkit.pretraining.loss import PretrainingObjective
from albertkit.pretraining.masking import WordTable
from albertkit.pretraining.settings import PretrainingSettings
from albertkit.pretraining.shards import ShardSet
from albertkit.recipe import scalar_values, settings_from, takes_settings
from albertkit.tokenization.folder import locate_model_file
from albertkit.tokenization.tokenizer import AlbertTokenizer
from albertkit.training.callbacks import Callback, check_callbacks
from albertkit.training.checkpoints import checkpoint_step, checkpoints, choose_precision
from albertkit.training.distributed import World, ignore_stop_signals, join_world
from albertkit.training.loop import Training
from albertkit.training.progress import read_metrics
from albertkit.training.run_folder import RunFolder, base_name
from albertkit.training.state import RunState

logger = logging.getLogger(__name__)

MAX_WORKERS = 4  # together they draw several times what a GPU needs
OVERFITTED = 0.1  # share of its first loss below which one batch counts as learned
# Settings that are not part of a run's identity here: the loop compares the training settings itself, and the
# other two do not change the steps.
_FREE = ("training", "evaluation_sequences", "average_checkpoints")


@dataclass(frozen=True, repr=False)
class PretrainingRun(RunFolder):
    """The result of `pretrain`."""

    folder: Path
    """Folder of the model and of its checkpoints."""
    finished: bool
    """False if time or a signal stopped the run; the same call resumes it."""
    step: int
    """Number of optimizer steps."""
    tokens: int
    """Tokens seen, without padding."""
    minutes: float
    """Time spent in training."""
    metrics: dict[str, float]
    """Metrics on the held-out text, of the last evaluation; with `early_stopping`, of the best one."""
    signal: int | None = None
    """Number of the signal that stopped the run."""
    settings: dict[str, Any] = field(default_factory=dict)
    """The settings of the run, as tables of a recipe."""

    def _card(self) -> dict[str, Any]:
        rows = "\n".join(f"| {name} | {value:.4f} |" for name, value in self.metrics.items())
        settings: dict[str, Any] = self.settings
        start = settings.get("init_from") or ""
        if start:
            # The card is public, so it must not show the path of a local folder.
            settings = settings | {"init_from": base_name(start)}
        examples = settings.get("examples", {})
        if not settings.get("order_weight", 1.0):
            examples = examples | {"sentence_order": False}
        objectives = {"masked_lm": "masked language modeling", "sentence_order": "sentence order"}
        trained_on = [title for name, title in objectives.items() if examples.get(name, True)]
        table = f"## Evaluation\n\nOn held-out text.\n\n| metric | value |\n|---|---|\n{rows}"
        return {
            "task": "fill-mask",
            "start": start,
            "about": f"An ALBERT model, pretrained on {' and '.join(trained_on)}",
            "sections": [table] if self.metrics else [],
            "settings": settings,
            "took": f"steps: {self.step:,}; tokens: {self.tokens:,}; "
            f"minutes of training: {round(self.minutes, 1):,}.",
            "limits": ["The model repeats the biases of its training text."],
            "results": self.metrics,
            "data": "held-out text",
        }

    def summary(self) -> dict[str, Any]:
        """Return the values to show, by name."""
        state = "finished" if self.finished else "stopped; the same call resumes the run"
        figures = {"run": state, "step": self.step, "tokens": self.tokens, "minutes": round(self.minutes, 1)}
        return figures | self.metrics | {"folder": self.folder}

    def pipeline(self, task: str = "fill-mask", **options: Any) -> Any:
        """Return a pipeline of the model.

        Args:
            task: name of the task.
            options: further arguments of `albertkit.pipeline`.
        """
        return pipeline(task, str(self.folder), **options)


@takes_settings(PretrainingSettings)
def pretrain(
    recipe: str | Path | Mapping[str, Any] | PretrainingSettings | None = None,
    *,
    data: str | Path,
    tokenizer: str | Path,
    output: str | Path,
    device: str = "auto",
    callbacks: Sequence[Callback] = (),
    **settings: Any,
) -> PretrainingRun:
    """Pretrain a model on masked language modeling and sentence order, or resume the run in `output`.

    Ctrl-C stops the run after the current step and writes a checkpoint. The same call resumes the run. On a
    GPU, up to four other processes draw the batches. They import your script, so call this function under
    `if __name__ == "__main__":`.

    Args:
        recipe: TOML file with settings, or the name of a recipe in the package, such as mini. Other
            arguments override it. In Python also its content as a dict; None for the default settings.
        data: folder with the shards that `albertkit prepare` wrote.
        tokenizer: folder or name of the tokenizer of the shards; it is copied into every checkpoint.
        output: folder of the run. An existing run is resumed.
        device: "auto" (the best available device), "cpu", "cuda", "cuda:1", "mps" and so on.
        callbacks: callbacks that the training loop calls in the main process: at the start of the run, after
            each step, evaluation and checkpoint, and at its end.
        **settings: fields of `PretrainingSettings` and its tables, which override the recipe; `model` is a
            dict of arguments of `AlbertConfig`.

    Returns:
        The run: its folder, its last step, and its metrics.

    Raises:
        MissingExtraError: the `train` extra is not installed.
        DataError: the shards are missing or damaged, or were prepared with another tokenizer.
        ConfigError: a setting is unknown or out of range, or the sizes of the model do not match.
        TrainingError: a run is resumed with other settings or data, the loss keeps diverging, or the outputs
            are constant.
        DiskFullError: the disk has no space left.
    """
    check_callbacks(callbacks)
    chosen = settings_from(PretrainingSettings, recipe, settings)
    output = Path(output)
    with lines_shown(), join_world(device) as world, full_disk_named(output):
        result = run_pretraining(chosen, data, tokenizer, output, world=world, callbacks=callbacks)
        ending = "finished" if result.finished else "stopped"
        logger.info(
            f"{ending} at step {result.step} after {result.tokens:,} tokens and "
            f"{result.seconds / 60:.1f} minutes of training; the model is in {output}"
            f"{'' if result.finished else '; the same command resumes the run'}"
        )
    return PretrainingRun(
        folder=output,
        finished=result.finished,
        step=result.step,
        tokens=result.tokens,
        minutes=result.seconds / 60,
        metrics=result.metrics,
        signal=result.signal,
        settings=asdict(chosen),
    )


def run_pretraining(
    settings: PretrainingSettings,
    data: str | Path,
    tokenizer: str | Path,
    output: str | Path,
    *,
    world: World | None = None,
    callbacks: Sequence[Callback] = (),
) -> RunState:
    """Pretrain on the shards in `data`, or continue the run in `output`; see `pretrain`."""
    data, output = Path(data), Path(output)
    world = world or World(torch.device("cpu"))
    settings = settings.with_learning_rate()
    if settings.overfit_one_batch:  # log the loss at each tenth of the run or more often, to compare
        training = settings.training
        steps = training.steps or training.length // settings.step_tokens
        log_every = max(1, min(training.log_every, steps // 10))
        settings = replace(settings, training=replace(training, log_every=log_every))
    train_shards = ShardSet(data / "train")
    words = WordTable(locate_model_file(tokenizer))

    def stream(start: Position | None = None) -> ExampleStream:
        return ExampleStream(
            train_shards,
            words,
            settings.examples,
            settings.batch_size,
            batch_tokens=settings.batch_tokens,
            seed=settings.training.seed,
            start=start,
            rank=world.rank,
            world_size=world.size,
        )

    stream()  # raises if the settings, the shards and the tokenizer do not match
    if world.is_main:
        train_shards.check_files()
    pieces = AlbertTokenizer.from_pretrained(tokenizer)
    model = initialize(settings, train_shards).to(world.device)
    if settings.init_from is not None:
        check_vocabulary(settings.init_from, words)
    pieces.model_max_length = model.config.max_position_embeddings
    objective = PretrainingObjective(settings, world.device)
    objective.freeze_unused(model)
    for warning in settings.warnings():
        logger.warning("%s", warning)

    def batches(position: dict[str, int] | None) -> Iterator[tuple[PretrainingBatch, dict[str, int]]]:
        if settings.overfit_one_batch:  # a resumed run repeats the first batch too
            return ((batch, asdict(batch.position)) for batch in itertools.repeat(next(iter(stream()))))
        examples = stream(Position(**position) if position else None)
        source = _in_background(examples) if world.device.type == "cuda" else iter(examples)
        return ((batch, asdict(batch.position)) for batch in source)

    if not (data / "validation").is_dir():
        logger.warning(
            "no text is held out, so the run has no evaluations and cannot detect outputs that do not "
            "depend on the input. To hold out text, use `albertkit prepare --holdout-every N`."
        )
    evaluated = (data / "validation").is_dir() and not settings.overfit_one_batch
    held_out: list[PretrainingBatch] = []
    if evaluated and world.is_main:
        validation_shards = ShardSet(data / "validation")
        validation_shards.check_files()
        # Independent of the run's seed: all runs on these shards are measured with the same masks.
        whole = fixed_batches(
            validation_shards,
            words,
            settings.examples,
            settings.batch_size,
            batch_tokens=settings.batch_tokens,
            limit=settings.evaluation_sequences,
        )
        # A training part of this process fits into its memory, but a whole batch may not.
        held_out = [
            part for batch in whole for part in batch.split(settings.training.accumulation * world.size)
        ]

    def save_model(folder: Path) -> None:
        model.save_pretrained(folder)
        pieces.save_pretrained(folder)

    best_metric = objective.main_metric if evaluated and settings.training.early_stopping else None
    result = Training(
        model,
        objective,
        batches,
        settings.training,
        output,
        save_model=save_model,
        evaluate=(lambda: objective.evaluate(model, held_out)) if evaluated else None,
        best_metric=best_metric,
        lower_is_better=True,
        fingerprint={key: value for key, value in asdict(settings).items() if key not in _FREE}
        | {"shards of data": [shard.sha256 for shard in train_shards.manifest.shards]},
        world=world,
        counts_flops=True,
        callbacks=callbacks,
        about=scalar_values(settings)
        | {"model": settings.model, "data": str(data), "tokenizer": str(tokenizer)},
    ).run()
    if not world.is_main:
        return result
    if settings.overfit_one_batch and result.finished:
        _require_overfitted(output)
    metrics = result.metrics
    if settings.average_checkpoints > 1:
        steps = average_checkpoints(model, output, settings.average_checkpoints)
        save_model(output)
        bf16 = choose_precision(settings.training, output, world) == "bf16"
        with torch.no_grad(), torch.autocast(world.device.type, torch.bfloat16, enabled=bf16):
            metrics = objective.evaluate(model.eval(), held_out) if evaluated else {}
        shown = "  ".join(f"{name} {value:.4g}" for name, value in metrics.items())
        logger.info("the model is the mean of the checkpoints at steps %s: %s", steps, shown)
    elif best_metric is not None and result.finished and result.best is not None:
        metrics = result.best_metrics  # the best model is kept
    if evaluated and result.finished:
        _warn_if_worse(output, objective.main_metric, metrics)
    return replace(result, metrics=metrics)


def _warn_if_worse(output: Path, name: str, metrics: dict[str, float]) -> None:
    """Log a warning if the held-out loss is higher than before the first step."""
    before = [line.get(f"eval/{name}") for line in read_metrics(output) if line["step"] == 0]
    first, last = next((value for value in before if value is not None), None), metrics.get(name)
    if first is not None and last is not None and is_better(first, last, lower=True):
        logger.warning(
            f"the held-out {name} rose from {first:.4g} before training to {last:.4g}. Lower the learning "
            "rate, or use early_stopping, which keeps the best model."
        )


def average_checkpoints(model: AlbertForPreTraining, output: Path, count: int) -> str:
    """Set the weights of `model` to the mean of the last checkpoints of a run, and return their steps.

    The checkpoint from before the first step is left out, because its model is untrained.
    """
    average = AveragedModel(model)
    folders = checkpoints(output)
    folders = [folder for folder in folders if checkpoint_step(folder)][-count:] or folders
    for folder in folders:
        average.update_parameters(AlbertForPreTraining.from_pretrained(folder))
    model.load_state_dict(average.module.state_dict())
    return ", ".join(str(checkpoint_step(folder)) for folder in folders)


class _Stream(IterableDataset[PretrainingBatch]):
    """The stream of one of several workers, which take turns."""

    def __init__(self, stream: ExampleStream) -> None:
        self.stream = stream

    def __iter__(self) -> Iterator[PretrainingBatch]:
        worker = get_worker_info()
        assert worker is not None
        return self.stream.every(worker.num_workers, worker.id)


def _in_background(stream: ExampleStream) -> Iterator[PretrainingBatch]:
    """Draw batches in other processes, in the same order, so that a fast device never waits for them.

    Each process is a new interpreter, because forking a process with threads (torch's) can hang.
    """
    cores = max(1, (usable_cores() - 1) // stream.world_size)
    loader = DataLoader(
        _Stream(stream),
        batch_size=None,
        num_workers=min(cores, MAX_WORKERS),
        prefetch_factor=8,
        multiprocessing_context="spawn",
        worker_init_fn=ignore_stop_signals,
    )
    return iter(loader)


def _require_overfitted(output: Path) -> None:
    """Raise TrainingError unless the losses on the one batch fell to almost nothing."""
    lines = [line for line in read_metrics(output) if "grad_norm" in line]
    names = [name for name in lines[0] if name.endswith("_loss")]
    shown = ", ".join(f"{name} {lines[0][name]:.3f} -> {lines[-1][name]:.3f}" for name in names)
    if any(lines[-1][name] > OVERFITTED * lines[0][name] for name in names):
        raise TrainingError(
            f"the run did not learn the batch ({shown}). Try more steps or another learning rate, in another "
            "output folder."
        )
    logger.info("the run learned the batch: %s", shown)
