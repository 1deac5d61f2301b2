"""Fine-tune a model for a task: `finetune`, with one seed or several."""

import logging
import statistics
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from albertkit.checkpoints.sentence_modules import files_of
from albertkit.datasets.options import DataOptions
from albertkit.errors import ConfigError
from albertkit.extras import require
from albertkit.files import copy_file, finite, full_disk_named, write_json
from albertkit.finetuning.prepared import Prepared, prepare
from albertkit.finetuning.run import FinetuningRun, run_prepared
from albertkit.finetuning.settings import FinetuningSettings
from albertkit.finetuning.trained import check_metric, split_settings
from albertkit.hub import BUNDLED
from albertkit.logs import lines_shown
from albertkit.metrics.comparing import is_better
from albertkit.recipe import build, settings_from, takes_settings
from albertkit.tasks.measuring import OwnMetrics
from albertkit.tasks.registry import task_of
from albertkit.tasks.task import Task
from albertkit.training.callbacks import Callback, checked_callbacks
from albertkit.training.checkpoints import refuse_other_folders
from albertkit.training.distributed import World, join_world

logger = logging.getLogger(__name__)

SEEDS_JSON = "seeds.json"


@takes_settings(FinetuningSettings, DataOptions)
@lines_shown()
def finetune(
    task: str | Task,
    *,
    train: Any,
    validation: Any = None,
    model: str | Path = BUNDLED,
    output: str | Path,
    metrics: OwnMetrics = None,
    callbacks: Sequence[Callback] = (),
    recipe: str | Path | FinetuningSettings | None = None,
    seeds: int = 1,
    device: str = "auto",
    world: World | None = None,
    **settings: Any,
) -> FinetuningRun:
    """Fine-tune a model on labeled data, or resume the run in `output`, and report its metrics.

    Ctrl-C stops the run after the current step and writes a checkpoint. The same call resumes the run.

    Args:
        task: name of the task, or a task of your own.
        train: labeled training examples: the path of a file or folder, a list of dicts, a DataFrame, an
            Arrow table, a `datasets.Dataset`, or an iterable of dicts or of the task's examples.
        validation: labeled examples that select the best model; None holds out a tenth of `train`.
        model: folder or name of the initial model.
        output: folder of the run.
        metrics: your own metrics: functions of the true and the predicted answers, or `Metric`. The first one
            selects the best model.
        callbacks: callbacks that the training loop calls in the main process: at the start of the run, after
            each step, evaluation and checkpoint, and at its end. Each seed is a separate run.
        recipe: TOML file of settings, or the settings.
        seeds: number of runs with different seeds. With several seeds, the runs are in `output/seed-0` and so
            on. `output` has the best model, and the mean and standard deviation of the metrics. `max_minutes`
            applies to each run.
        device: "auto", "cpu", "cuda" and so on.
        world: the processes of the run, instead of those that `torchrun` started.
        **settings: fields of `FinetuningSettings`, `TaskSettings` and `DataOptions`, which override the
            recipe.

    Returns:
        The run: its folder, metrics and report. With several seeds, the best run.

    Raises:
        MissingExtraError: the extra `train` is not installed.
        DataError: the data cannot be read or has no examples, or the validation data has labels that are not
            in the training data.
        ConfigError: the task is unknown, or the task or the model does not support a setting.
        TrainingError: a run is resumed with other settings or data, or the loss keeps diverging.
        DiskFullError: the disk has no space left.
    """
    require("matplotlib.figure", extra="train")  # raise for missing libraries before any work
    if type(seeds) is not int or seeds < 1:
        raise ConfigError(
            f"seeds is {seeds!r}. Expected the number of runs, at least 1. Their seeds count up from the "
            "setting `seed`: seed=0, seeds=3 runs with 0, 1 and 2."
        )
    called = checked_callbacks(callbacks)
    flags, columns = split_settings(FinetuningSettings, settings, call=finetune)
    options = build(DataOptions, columns, where="columns")
    chosen = settings_from(FinetuningSettings, recipe, flags)
    own = task_of(task).with_metrics(metrics)
    if chosen.best_metric is not None:
        check_metric(chosen.best_metric, own.directions, name="best_metric")
    output = Path(output)

    processes = join_world(device) if world is None else nullcontext(world)
    with full_disk_named(output), processes as joined:
        prepared = prepare(own, chosen, model=model, train=train, validation=validation, options=options)
        if seeds > 1:
            return run_seeds(prepared, chosen, output, seeds=seeds, world=joined, callbacks=called)
        return run_prepared(prepared, chosen, output, world=joined, callbacks=called)


def run_seeds(
    prepared: Prepared,
    settings: FinetuningSettings,
    output: Path,
    *,
    seeds: int,
    world: World,
    callbacks: Sequence[Callback] = (),
) -> FinetuningRun:
    """Run in `output/seed-0` and so on, and copy the best model with its report to `output`.

    `seeds.json`, and the report under "seeds", have the mean and standard deviation (over n - 1) of each
    metric.

    Returns:
        The best run, or the interrupted run.
    """
    if world.is_main and not (output / SEEDS_JSON).is_file():
        refuse_other_folders(output, {f"seed-{number}" for number in range(seeds)})
    results: list[FinetuningRun] = []
    for number in range(seeds):
        folder, seeded = output / f"seed-{number}", replace(settings, seed=settings.seed + number)
        logger.info("run %d of %d, in %s", number + 1, seeds, folder)
        result = run_prepared(prepared, seeded, folder, world=world, callbacks=callbacks)
        if not result.loop.finished:
            return result
        if number + 1 < seeds and world.any(result.signal is not None):  # in the last step
            return replace(result, report=None, loop=replace(result.loop, finished=False))
        results.append(result)
    if not world.is_main:
        return results[-1]
    reports = [result.report for result in results if result.report]
    summary = summarize([report["metrics"] for report in reports])
    name = reports[0]["main_metric"]
    lower = prepared.task.directions.get(name) == "lower"
    best = best_run([report["metrics"][name] for report in reports], lower=lower)
    report = reports[best] | {"seeds": summary, "seed": best}
    # First, so that the folder is marked as belonging to these runs.
    write_json(output / SEEDS_JSON, finite(summary))
    for file in (output / f"seed-{best}").iterdir():
        if file.is_file() and file.suffix in _COPIED:
            copy_file(file, output / file.name)
    for name in files_of(prepared.task.config):  # of sentence embedding, some in folders
        copy_file(output / f"seed-{best}" / name, output / name)
    write_json(output / "report.json", finite(report))
    for name, one in summary.items():
        logger.info(f"{name}: {one['mean']:.4f} +- {one['deviation']:.4f} over {seeds} seeds")
    logger.info("best run: seed-%d", best)
    return replace(results[best], folder=output, report=report)


# Model, tokenizer, report, plots, curves; not the lock.
_COPIED = (".json", ".safetensors", ".model", ".vocab", ".txt", ".md", ".png", ".jsonl")


def best_run(values: list[float], *, lower: bool) -> int:
    """Return the index of the run with the best value; the first of equal ones."""
    best = 0
    for number, value in enumerate(values):
        if is_better(value, values[best], lower=lower):
            best = number
    return best


def summarize(metrics: list[dict[str, float]]) -> dict[str, dict[str, Any]]:
    """Return mean, standard deviation and the values of each metric."""
    values = {name: [one[name] for one in metrics] for name in metrics[0]}
    return {
        name: {"mean": statistics.fmean(given), "deviation": statistics.stdev(given), "values": given}
        for name, given in values.items()
    }
