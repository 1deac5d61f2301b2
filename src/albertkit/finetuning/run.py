"""A fine-tuning run: a model and labelled files in, a model for the task and its report out."""

import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from albertkit.config import AlbertConfig
from albertkit.datasets.splits import Splits, load_splits
from albertkit.errors import ConfigError, DataError
from albertkit.finetuning.batches import Epochs, Unit, fingerprint
from albertkit.finetuning.data_options import DataOptions
from albertkit.finetuning.evaluation import Evaluation, EvaluationSet, chunks
from albertkit.finetuning.labelled_task import LabelledTask
from albertkit.finetuning.objective import TaskObjective, balanced_weights
from albertkit.finetuning.registry import labelled_task
from albertkit.finetuning.report import write_report
from albertkit.finetuning.settings import FinetuningSettings, TaskSettings
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.tasks.task import Task
from albertkit.tokenization.auto import AutoTokenizer
from albertkit.tokenization.interface import TokenizerInterface
from albertkit.training.curves import read_metrics
from albertkit.training.distributed import World
from albertkit.training.loop import RunResult, train

MOST_RESTARTS = 2
NOTHING_LEARNT = 0.99  # share of the prior's loss above which a run has learnt nothing
_LAST = 0.25  # part of a run whose losses are looked at for that

# Settings that do not change what is learnt; the loop compares its own.
_FREE = ("early_stopping", "evaluate_every", "log_every", "max_minutes", "epochs", "steps")


@dataclass(frozen=True)
class FinetuningResult:
    """How a call of `finetune` ended."""

    run: RunResult
    report: dict[str, Any] | None
    """What `report.json` holds; None for a run that is not finished, and in other processes than the main."""
    restarts: int = 0
    """How often it collapsed."""


@dataclass(frozen=True)
class Prepared:
    """What all runs on the same data share."""

    labelled: LabelledTask
    task: Task
    tokenizer: TokenizerInterface
    config: AlbertConfig
    start: str
    """The model to begin with."""
    units: list[Unit]
    validation: EvaluationSet
    data: dict[str, Any]
    """What is reported about the data."""

    @property
    def rows(self) -> list[Any]:
        """Return all training rows."""
        return [row for unit in self.units for row in unit]

    @property
    def main_metric(self) -> str:
        """Name of the task's own main metric."""
        return self.labelled.main_metric(self.config, self.validation.examples)


def finetune(
    task: str,
    settings: FinetuningSettings,
    *,
    model: str | Path,
    train_data: str | Path,
    validation_data: str | Path,
    output: Path,
    options: DataOptions | None = None,
    world: World | None = None,
    console: Console | None = None,
) -> FinetuningResult:
    """Fine-tune a model, or go on with the run in `output`, and report how good it is.

    A run that collapsed, saying the same of everything or learning nothing, is started again in
    `output/restart-1` with half the learning rate and another seed, and once more; the model of the last one
    is in `output`.

    Args:
        task: its name, see `albertkit.finetuning.registry`.
        settings: how to train.
        model: folder or name of the model to begin with.
        train_data, validation_data: labelled files, as the task's reader takes them.
        output: folder of the run.
        options: columns and layout of the files.
        world: the processes of the run, and the device of this one.
        console: where progress goes.

    Raises:
        DataError: files that cannot be read, without examples, or with labels that training does not have.
        ConfigError: settings that the task or the model does not have.
        TrainingError: a resume with other settings or data, or losses that stay bad.
    """
    world = world or World(torch.device("cpu"))
    console = console or Console(stderr=True)
    say = sayer(world, console)
    prepared = prepare(
        task, settings, model=model, train_data=train_data, validation_data=validation_data,
        options=options or DataOptions(), say=say,
    )  # fmt: skip
    return run_prepared(prepared, settings, output, world=world, console=console)


def sayer(world: World, console: Console) -> Callable[[str], None]:
    """Return what prints a line, in the main process."""

    def say(line: str) -> None:
        if world.is_main:
            console.print(line, highlight=False, markup=False, soft_wrap=True)

    return say


def prepare(
    task: str,
    settings: FinetuningSettings,
    *,
    model: str | Path,
    train_data: str | Path,
    validation_data: str | Path,
    options: DataOptions,
    say: Callable[[str], None],
) -> Prepared:
    """Read the files and cut their texts into rows, and say what was found."""
    labelled = labelled_task(task)
    splits = load_splits(
        {
            "training": labelled.reader(str(train_data), options),
            "validation": labelled.reader(str(validation_data), options),
        },
        problem_type=settings.problem_type,
    )
    for report in splits.reports.values():
        for line in report.lines():
            say(line)
    config = AlbertConfig.from_pretrained(str(model)).replace(
        **labelled.config_changes(splits.labels), **settings.dropouts
    )
    tokenizer = AutoTokenizer.from_pretrained(str(model))
    own = labelled.task(tokenizer, config, settings.task)
    units, cut = _units(labelled, own, splits.examples["training"])
    validation = EvaluationSet(labelled, own, splits.examples["validation"])
    data = {
        "training": splits.reports["training"].to_json() | {"examples_cut": cut},
        "validation": splits.reports["validation"].to_json() | {"examples_cut": validation.cut},
    }
    for name, count in (("training", cut), ("validation", validation.cut)):
        if count:
            say(f"{name}: {count:,} of {len(splits.examples[name]):,} texts are longer than "
                f"{own.max_length} tokens, and what is beyond is cut off")  # fmt: skip
    _say_labels(splits, say)
    return Prepared(labelled, own, tokenizer, config, str(model), units, validation, data)


def _units(labelled: LabelledTask, task: Task, examples: list[Any]) -> tuple[list[Unit], int]:
    """Return the training units, and how many examples were cut."""
    units: list[Unit] = []
    cut = 0
    for chunk in chunks(examples):
        rows = task.features(chunk)
        cut += len({row.example for row in rows if row.cut})
        units += [[labelled.lean(row) for row in unit] for unit in task.units(rows)]
    return units, cut


def _say_labels(splits: Splits[Any], say: Callable[[str], None]) -> None:
    labels = splits.labels
    if labels is None or labels.problem_type == "regression":
        return
    counts = splits.label_counts("training")
    shown = ", ".join(f"{name} {counts[name]:,}" for name in labels.names[:20])
    say(f"{len(labels.names)} labels ({labels.problem_type.replace('_', ' ')}): {shown}")


def run_prepared(
    prepared: Prepared,
    settings: FinetuningSettings,
    output: Path,
    *,
    world: World,
    console: Console,
    restarts: int = 0,
) -> FinetuningResult:
    """Do a run on prepared data; if it collapses, the next one."""
    say = sayer(world, console)
    rate = settings.rate(prepared.config.hidden_size) / 2**restarts
    # Seeds of restarts are far from those of several runs.
    tried = replace(settings, learning_rate=rate, seed=settings.seed + 1000 * restarts)
    folder = output / f"restart-{restarts}" if restarts else output
    result = _train(prepared, tried, folder, world, console)
    if not result.finished:
        return FinetuningResult(result, None, restarts)
    evaluation = _evaluate_best(prepared, tried, folder, world) if world.is_main else None
    reason = _collapse(prepared, evaluation, folder) if evaluation else None
    if world.any(reason is not None) and restarts < MOST_RESTARTS:
        say(
            f"collapsed: {reason}. Starting again with half the learning rate, {rate / 2:g}, and another seed"
        )
        return run_prepared(prepared, settings, output, world=world, console=console, restarts=restarts + 1)
    report = None
    if evaluation:
        if reason:
            say(f"warning: collapsed again: {reason}. The model in {output} has learnt nothing")
        about = {
            "task": prepared.task.name,
            "model": prepared.start,
            "restarts": restarts,
            "collapsed": reason,
            "settings": asdict(tried),
            "step": result.state.best_step,
            "minutes": result.state.seconds / 60,
            "data": prepared.data,
        }
        _save(evaluation.config, prepared, folder, output)
        report = write_report(evaluation, output, about=about)
    world.wait()
    return FinetuningResult(result, report, restarts)


def _train(
    prepared: Prepared, settings: FinetuningSettings, folder: Path, world: World, console: Console
) -> RunResult:
    labelled, task = prepared.labelled, prepared.task
    model = starting_model(prepared, settings).to(world.device)
    epochs = Epochs(
        prepared.units, settings.batch_size, seed=settings.seed, rank=world.rank, world_size=world.size
    )
    objective = TaskObjective(labelled, task, world.device, class_weights=_class_weights(prepared, settings))
    metric = settings.best_metric or prepared.main_metric

    def save_model(target: Path) -> None:
        model.save_pretrained(target)
        prepared.tokenizer.save_pretrained(target)

    def evaluate() -> dict[str, float]:
        metrics = prepared.validation.evaluate(model, prepared.config).metrics
        if metric not in metrics:
            raise ConfigError(f"best_metric is {metric!r}; expected one of {', '.join(metrics)}")
        return metrics

    return train(
        model,
        objective,
        epochs.stream,
        settings.training(steps_per_epoch=epochs.steps, hidden_size=prepared.config.hidden_size),
        folder,
        save_model=save_model,
        evaluate=evaluate,
        best_metric=metric,
        fingerprint={name: value for name, value in asdict(settings).items() if name not in _FREE}
        | {"model": prepared.start, "data": fingerprint(prepared.units)},
        world=world,
        console=console,
    )


def starting_model(prepared: Prepared, settings: FinetuningSettings) -> AlbertPreTrainedModel:
    """Return the model with a new head, or with random weights."""
    torch.manual_seed(settings.seed)
    if settings.from_scratch:
        return prepared.labelled.model_class(prepared.config)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that the head is new: so it should be
        return prepared.labelled.model_class.from_pretrained(
            prepared.start, config=prepared.config, ignore_mismatched_sizes=True
        )


def _class_weights(prepared: Prepared, settings: FinetuningSettings) -> Tensor | None:
    if settings.class_weights == "none":
        return None
    return balanced_weights(prepared.labelled.learnt_classes(prepared.rows), prepared.config.num_labels)


def _evaluate_best(
    prepared: Prepared, settings: FinetuningSettings, folder: Path, world: World
) -> Evaluation:
    """Return the evaluation of the model in a folder, with what is tuned on it in its config."""
    model = prepared.labelled.model_class.from_pretrained(folder, device_map=world.device)
    validation, metric = prepared.validation, settings.best_metric
    evaluation = validation.evaluate(model, model.config, main_metric=metric)
    if prepared.labelled.tune(model.config, evaluation.examples, evaluation.predictions):
        return validation.evaluate(model, model.config, main_metric=metric)
    return evaluation


def _collapse(prepared: Prepared, evaluation: Evaluation, folder: Path) -> str | None:
    """Return why a run is said to have collapsed, or None."""
    judged = evaluation.judged()
    if prepared.labelled.is_constant(judged):
        return f"the best model says {judged[0].predicted!r} of everything"
    prior = prepared.labelled.prior_loss(prepared.rows, prepared.config)
    lines = [line for line in read_metrics(folder) if "train/loss" in line]
    late = [line["train/loss"] for line in lines if line["step"] > (1 - _LAST) * lines[-1]["step"]]
    if prior is not None and late and sum(late) / len(late) > NOTHING_LEARNT * prior:
        return (
            f"the training loss ends at {sum(late) / len(late):.4f}, and it would be {prior:.4f} without "
            "looking at the input"
        )
    return None


def _save(config: AlbertConfig, prepared: Prepared, folder: Path, output: Path) -> None:
    """Put the model of the last run, with what was tuned, into `output`."""
    model = prepared.labelled.model_class.from_pretrained(folder, config=config)
    model.save_pretrained(output)
    prepared.tokenizer.save_pretrained(output)


def load_task(
    task: str, model: str | Path, settings: TaskSettings, *, device: torch.device
) -> tuple[LabelledTask, Task, AlbertPreTrainedModel]:
    """Return a task with a model that was fine-tuned for it.

    Raises:
        DataError: the model has no head for the task.
    """
    labelled = labelled_task(task)
    tokenizer = AutoTokenizer.from_pretrained(str(model))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a missing head is an error below
        loaded, info = labelled.model_class.from_pretrained(
            model, device_map=device, output_loading_info=True
        )  # type: ignore[misc]
    if info["missing_keys"]:
        raise DataError(
            f"{model} lacks {', '.join(info['missing_keys'][:3])}: it was not fine-tuned for {task}; "
            f"albertkit finetune {task} makes a model that was"
        )
    return labelled, labelled.task(tokenizer, loaded.config, settings), loaded
