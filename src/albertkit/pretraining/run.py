"""A pretraining run: from shards to a model folder (Lan et al. 2019, sections 3.1 and 4.1)."""

import itertools
import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from albertkit.cores import usable_cores
from albertkit.errors import TrainingError
from albertkit.metrics import is_better
from albertkit.modeling.heads import AlbertForPreTraining
from albertkit.pretraining.batches import ExampleStream, Position, PretrainingBatch, fixed_batches
from albertkit.pretraining.initialization import check_vocabulary, initialize
from albertkit.pretraining.loss import PretrainingObjective
from albertkit.pretraining.settings import PretrainingSettings
from albertkit.pretraining.shards import ShardSet
from albertkit.pretraining.words import WordTable
from albertkit.recipe import scalar_values
from albertkit.tokenization.folder import locate_model_file
from albertkit.tokenization.tokenizer import AlbertTokenizer
from albertkit.training.callbacks import Callback
from albertkit.training.checkpoints import checkpoint_step, checkpoints, choose_precision
from albertkit.training.distributed import World, ignore_stop_signals
from albertkit.training.loop import Training
from albertkit.training.progress import read_metrics
from albertkit.training.state import RunState

logger = logging.getLogger(__name__)

MAX_WORKERS = 4  # together they draw several times what a GPU needs
OVERFITTED = 0.1  # share of its first loss below which one batch counts as learned


def run_pretraining(
    settings: PretrainingSettings,
    data: str | Path,
    tokenizer: str | Path,
    output: str | Path,
    *,
    world: World | None = None,
    callbacks: Sequence[Callback] = (),
) -> RunState:
    """Pretrain on the shards in `data`, or continue the run in `output`; see `albertkit.pretrain`."""
    data, output = Path(data), Path(output)
    world = world or World(torch.device("cpu"))
    settings = settings.with_learning_rate()
    if settings.overfit_one_batch:
        settings = _with_tenths_logged(settings)
    train_shards = ShardSet(data / "train")
    vocabulary = locate_model_file(tokenizer)
    train_shards.check_tokenizer(vocabulary)
    if world.is_main:
        train_shards.check_files()
    pieces = AlbertTokenizer.from_pretrained(tokenizer)
    words = WordTable(vocabulary)
    model = initialize(settings, train_shards).to(world.device)
    if settings.init_from is not None:
        check_vocabulary(settings.init_from, words)
    pieces.model_max_length = model.config.max_position_embeddings
    objective = PretrainingObjective(settings, world.device)
    objective.freeze_unused(model)
    if world.is_main:
        for warning in settings.warnings():
            logger.warning("%s", warning)

    def batches(position: dict[str, int] | None) -> Iterator[tuple[PretrainingBatch, dict[str, int]]]:
        if settings.overfit_one_batch:
            position = None  # a resumed run repeats the first batch too
        stream = ExampleStream(
            train_shards,
            words,
            settings.examples,
            settings.batch_size,
            batch_tokens=settings.batch_tokens,
            seed=settings.training.seed,
            start=Position(**position) if position else None,
            rank=world.rank,
            world_size=world.size,
        )
        if settings.overfit_one_batch:
            return ((batch, asdict(batch.position)) for batch in itertools.repeat(next(iter(stream))))
        source = _in_background(stream) if world.device.type == "cuda" else iter(stream)
        return ((batch, asdict(batch.position)) for batch in source)

    if not (data / "validation").is_dir() and world.is_main:
        logger.warning(
            "no text is held out, so the run has no evaluations and cannot detect constant outputs. To hold "
            "out text, use `albertkit prepare --holdout-every`."
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

    best_metric = None
    if evaluated and settings.training.early_stopping:
        best_metric = objective.main_metric
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
        about=scalar_values(settings) | {"model": settings.model},
    ).run()
    if settings.overfit_one_batch and result.finished and world.is_main:
        _require_overfitted(output)
    if not world.is_main:
        return result
    metrics = result.metrics
    if settings.average_checkpoints > 1:
        steps = average_checkpoints(model, output, settings.average_checkpoints)
        save_model(output)
        bf16 = choose_precision(settings.training, output, world) == "bf16"
        with torch.no_grad(), torch.autocast(world.device.type, torch.bfloat16, enabled=bf16):
            metrics = objective.evaluate(model.eval(), held_out) if evaluated else {}
        shown = "  ".join(f"{name} {value:.4g}" for name, value in metrics.items())
        logger.info("the model is the mean of the checkpoints at steps %s  %s", steps, shown)
    elif best_metric is not None and result.finished and result.best is not None:
        metrics = result.best_metrics  # the best model is kept
    if evaluated and result.finished:
        _warn_if_worse(output, objective.main_metric, metrics)
    return replace(result, metrics=metrics)


def _warn_if_worse(output: Path, name: str, metrics: dict[str, float]) -> None:
    """Log a warning if the held-out loss is higher than before the first step."""
    before = [line.get(f"eval/{name}") for line in read_metrics(output) if line["step"] == 0]
    first, last = next((one for one in before if one is not None), None), metrics.get(name)
    if first is not None and last is not None and is_better(first, last, lower=True):
        logger.warning(
            f"the held-out {name} rose from {first:.4g} before training to {last:.4g}. Lower the learning "
            "rate, or use early_stopping, which keeps the best model."
        )


# Settings that are not part of a run's identity here: the loop compares the training settings itself, and the
# other two do not change the steps.
_FREE = ("training", "evaluation_sequences", "average_checkpoints")


def average_checkpoints(model: AlbertForPreTraining, output: Path, count: int) -> str:
    """Set the weights of `model` to the mean of the last checkpoints of a run, and return their steps.

    The checkpoint from before the first step is left out, because its model is untrained.
    """
    average = AveragedModel(model)
    found = checkpoints(output)
    folders = [folder for folder in found if checkpoint_step(folder)][-count:] or found
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


def _with_tenths_logged(settings: PretrainingSettings) -> PretrainingSettings:
    """Return settings with a log line for each tenth of the run or more often, to compare the losses."""
    training = settings.training
    steps = training.steps or training.length // settings.step_tokens
    return replace(
        settings, training=replace(training, log_every=max(1, min(training.log_every, steps // 10)))
    )


def _require_overfitted(output: Path) -> None:
    """Raise TrainingError unless the losses on the one batch fell to almost nothing."""
    lines = [line for line in read_metrics(output) if "grad_norm" in line]
    names = [name for name in lines[0] if name.endswith("_loss")]
    shown = ", ".join(f"{name} {lines[0][name]:.3f} -> {lines[-1][name]:.3f}" for name in names)
    if any(lines[-1][name] > OVERFITTED * lines[0][name] for name in names):
        raise TrainingError(
            f"the run did not learn the batch ({shown}). Try more steps or another learning rate, in another "
            "output folder. If that does not help, the model, the data or the optimizer is broken."
        )
    logger.info("the run learned the batch: %s", shown)
