"""Fine-tuning from files to a model with its report."""

from pathlib import Path

import torch

from albertkit.finetuning.data_options import DataOptions
from albertkit.finetuning.labelled_task import check_best_metric
from albertkit.finetuning.prepared import prepare
from albertkit.finetuning.registry import labelled_task
from albertkit.finetuning.run import FinetuningResult, run_prepared, sayer
from albertkit.finetuning.seeds import run_seeds
from albertkit.finetuning.settings import FinetuningSettings
from albertkit.training.curves import load_plotting
from albertkit.training.distributed import World


def finetune(
    task: str,
    settings: FinetuningSettings,
    *,
    model: str | Path,
    train_data: str | Path,
    validation_data: str | Path,
    output: str | Path,
    options: DataOptions | None = None,
    seeds: int = 1,
    world: World | None = None,
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
        seeds: how many runs, with as many seeds; several lie in `output/seed-0` and so on, and the best
            model, the mean and the deviation in `output`.
        world: the processes of the run, and the device of this one.

    Raises:
        MissingExtraError: the extra `train` is not installed.
        DataError: files that cannot be read, without examples, or with labels that training does not have.
        ConfigError: settings that the task or the model does not have.
        TrainingError: a resume with other settings or data, or losses that stay bad.
    """
    load_plotting()  # what is missing is said before any work
    check_best_metric(labelled_task(task), settings.best_metric)
    world = world or World(torch.device("cpu"))
    prepared = prepare(
        task,
        settings,
        model=model,
        train_data=train_data,
        validation_data=validation_data,
        options=options or DataOptions(),
        say=sayer(world),
    )
    output = Path(output)
    if seeds > 1:
        return run_seeds(prepared, settings, output, seeds=seeds, world=world)
    return run_prepared(prepared, settings, output, world=world)
