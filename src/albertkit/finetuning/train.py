"""Fine-tune a model for a task: `finetune`, with one seed or several."""

import logging
import shutil
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from albertkit.checkpoints.sentence_modules import files_of
from albertkit.datasets.options import DataOptions
from albertkit.files import finite, full_disk_named, write_json
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
from albertkit.training.curves import load_plotting
from albertkit.training.distributed import World, join_world
from albertkit.training.folder import refuse_other_folders

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
    """Fine-tune a model on labeled data, or continue the run in `output`, and report how good it is.

    Ctrl-C stops after the current step and writes a checkpoint; the same call continues from there.

    If a run collapses (it gives the same answer to everything, or learns nothing), it starts again in
    `output/restart-1` with half the learning rate and another seed, and once more; the model of the last run
    is in `output`.

    Args:
        task: name of the task, or a task of your own.
        train: labeled examples to learn from: the path of a file or folder, a list of dicts, a DataFrame, an
            Arrow table, a `datasets.Dataset`, or an iterable of dicts or of the task's examples.
        validation: labeled examples to choose the best model by; None holds out a tenth of `train`.
        model: folder or name of the model to start from.
        output: folder of the run.
        metrics: metrics of your own: functions of the true and the predicted answers, or `Metric`. The first
            one chooses the best model.
        callbacks: called in the main process as the run goes: at its start, steps, evaluations, checkpoints
            and end. Each seed and each restart is a run of its own for them.
        recipe: TOML file of settings, or the settings.
        seeds: number of runs with different seeds. Several runs are in `output/seed-0` and so on; the best
            model, the mean and the deviation are in `output`.
        device: "auto", "cpu", "cuda" and so on.
        world: the processes of the run, in place of those that `torchrun` started.
        **settings: fields of `FinetuningSettings`, `TaskSettings` and `DataOptions`, which override the
            recipe.

    Raises:
        MissingExtraError: the extra `train` is not installed.
        DataError: data that cannot be read, without examples, or with labels that training does not have.
        ConfigError: an unknown task, or settings that the task or the model does not have.
        TrainingError: a resume with other settings or data, or losses that stay bad.
    """
    load_plotting()  # what is missing is said before any work
    called = checked_callbacks(callbacks)
    flags, columns = split_settings(FinetuningSettings, settings, call=finetune)
    options = build(DataOptions, columns, where="columns")
    chosen = settings_from(FinetuningSettings, recipe, flags)
    own = task_of(task).with_metrics(metrics)
    if chosen.best_metric is not None:
        check_metric(chosen.best_metric, own.directions, name="best_metric")
    output = Path(output)

    def run(world: World) -> FinetuningRun:
        prepared = prepare(
            own,
            chosen,
            model=model,
            train=train,
            validation=validation,
            options=options,
        )
        if seeds > 1:
            return run_seeds(prepared, chosen, output, seeds=seeds, world=world, callbacks=called)
        return run_prepared(prepared, chosen, output, world=world, callbacks=called)

    with full_disk_named(output):
        if world is not None:
            return run(world)
        with join_world(device) as joined:
            return run(joined)


def run_seeds(
    prepared: Prepared,
    settings: FinetuningSettings,
    output: Path,
    *,
    seeds: int,
    world: World,
    callbacks: Sequence[Callback] = (),
) -> FinetuningRun:
    """Do runs in `output/seed-0` and so on, and put the best model with its report into `output`.

    `seeds.json`, and the report under "seeds", have mean and standard deviation (over n - 1) of each metric.

    Args:
        prepared: what all runs share.
        settings: of all runs, but for the seed, which counts up from theirs.
        output: folder of the runs; runs that are there go on.
        seeds: how many runs, at least 2.
        world: the processes.
        callbacks: called for each run.

    Returns:
        The best run, or the one that was interrupted.
    """
    assert seeds > 1
    if world.is_main and not (output / SEEDS_JSON).is_file():
        refuse_other_folders(output, {f"seed-{number}" for number in range(seeds)})
    results: list[FinetuningRun] = []
    for number in range(seeds):
        folder, seeded = output / f"seed-{number}", replace(settings, seed=settings.seed + number)
        logger.info("run %d of %d, in %s", number + 1, seeds, folder)
        result = run_prepared(prepared, seeded, folder, world=world, callbacks=callbacks)
        if not result.loop.finished:
            return result
        results.append(result)
    if not world.is_main:
        return results[-1]
    reports = [result.report for result in results if result.report]
    summary = summarize([report["metrics"] for report in reports])
    name = reports[0]["main_metric"]
    lower = prepared.task.directions.get(name) == "lower"
    best = best_run([report["metrics"][name] for report in reports], lower=lower)
    report = reports[best] | {"seeds": summary, "seed": best}
    # First: it says that what follows in this folder is of these runs.
    write_json(output / SEEDS_JSON, finite(summary))
    for file in (output / f"seed-{best}").iterdir():
        if file.is_file() and file.suffix in _COPIED:
            shutil.copy2(file, output)
    for name in files_of(prepared.config):  # of sentence embedding, some in folders
        (output / name).parent.mkdir(exist_ok=True)
        shutil.copy2(output / f"seed-{best}" / name, output / name)
    write_json(output / "report.json", finite(report))
    for name, one in summary.items():
        logger.info(f"{name}: {one['mean']:.4f} +- {one['deviation']:.4f} over {seeds} seeds")
    logger.info("the best is seed-%d", best)
    return replace(results[best], folder=output, report=report)


# Model, tokenizer, report, pictures, curves; not the lock.
_COPIED = (".json", ".safetensors", ".model", ".vocab", ".txt", ".md", ".png", ".jsonl")


def best_run(values: list[float], *, lower: bool) -> int:
    """Return the number of the run with the best value; of equal ones the first."""
    best = 0
    for number, value in enumerate(values):
        if is_better(value, values[best], lower=lower):
            best = number
    return best


def summarize(metrics: list[dict[str, float]]) -> dict[str, dict[str, Any]]:
    """Return mean, standard deviation and the values of each metric."""
    return {
        name: {
            "mean": statistics.fmean(one[name] for one in metrics),
            "deviation": statistics.stdev(one[name] for one in metrics),
            "values": [one[name] for one in metrics],
        }
        for name in metrics[0]
    }
