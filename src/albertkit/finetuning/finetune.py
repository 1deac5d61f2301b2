"""Fine-tune a model for a task: `finetune`, with one seed or several."""

import logging
import math
import statistics
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from albertkit.checkpoints.sentence_modules import TASK, files_of
from albertkit.config import THRESHOLDS_KEY
from albertkit.datasets.options import DataOptions
from albertkit.errors import ConfigError, TrainingError
from albertkit.extras import require
from albertkit.files import atomic_path, copy_file, finite, full_disk_named, read_json, write_json
from albertkit.finetuning.batches import Epochs, fingerprint
from albertkit.finetuning.evaluate import Evaluation, write_report
from albertkit.finetuning.losses import make_objective
from albertkit.finetuning.prepared import Prepared, prepare, starting_model
from albertkit.finetuning.settings import FinetuningSettings
from albertkit.finetuning.trained import COLUMNS_KEY, CONTENTS, check_metric, split_settings
from albertkit.hub import BUNDLED, BUNDLED_SENTENCES
from albertkit.logs import lines_shown
from albertkit.metrics import is_better
from albertkit.modeling import auto
from albertkit.pipelines import pipeline
from albertkit.recipe import build, scalar_values, settings_from, takes_settings
from albertkit.results import with_baseline
from albertkit.tasks.registry import TASKS, task_of
from albertkit.tasks.task import OwnMetrics, Task
from albertkit.training.callbacks import Callback, check_callbacks
from albertkit.training.checkpoints import LOCK, refuse_other_folders, remove_training_files
from albertkit.training.distributed import World, join_world
from albertkit.training.loop import Training
from albertkit.training.progress import CURVES, LOGGED_DIGITS, read_metrics
from albertkit.training.run_folder import RunFolder, base_name
from albertkit.training.settings import TrainingSettings
from albertkit.training.state import RunState

logger = logging.getLogger(__name__)

SEEDS_JSON = "seeds.json"
SPLITS = {"training": "train", "validation": "validation"}
"""The names of the data in the report -> the arguments of `finetune`."""

# A run is checked for a collapse only at its end, because a slow start looks the same.
_NOTHING_LEARNED = 0.99  # share of the prior's loss above which a run has learned nothing
_MIN_STEPS = 30  # shorter runs have no time to learn
_LAST = 0.25  # part of a run whose losses are averaged


@dataclass(frozen=True, repr=False)
class FinetuningRun(RunFolder):
    """The result of `finetune`."""

    folder: Path
    """Folder of the model, its report and the last checkpoint."""
    task: Task
    loop: RunState
    """The result of the training loop."""
    report: dict[str, Any] | None
    """The content of `report.json`; None for an unfinished run, and in processes of `torchrun` other than the
    main one."""
    is_main: bool = True
    """Whether this is the main process of `torchrun`."""

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of the best model on the validation data; for an unfinished run, of the last model."""
        return self.report["metrics"] if self.report else self.loop.metrics

    @property
    def baseline(self) -> dict[str, float]:
        """The metrics of the best prediction that ignores the input."""
        return self.report["baseline"] if self.report else {}

    @property
    def step(self) -> int:
        """Number of optimizer steps."""
        return self.loop.step

    @property
    def signal(self) -> int | None:
        """Number of the signal that stopped the run, if any; the same call resumes it."""
        return self.loop.signal

    def pipeline(self, **options: Any) -> Any:
        """Return the pipeline of the trained model.

        Args:
            options: arguments of `albertkit.pipeline`.
        """
        return pipeline(None if self.task.name in TASKS else self.task, self.folder, **options)

    def _card(self) -> dict[str, Any]:
        if (report := self.report) is None:
            raise TrainingError(f"the run in {self.folder} is not finished. Repeat the call to finish it.")
        task, data, lower = report["task"], report["data"], report["lower_is_better"]
        sources = {name: Path(split["source"]).name for name, split in data.items()}
        results = {name: value for name, value in report["metrics"].items() if isinstance(value, float)}
        baseline = {name: f"{value:.4f}" for name, value in report["baseline"].items() if value is not None}
        rows = [f"| {name} | {value:.4f} | {baseline.get(name, '')} |\n" for name, value in results.items()]
        pictures = [path.name for path in sorted(self.folder.glob("*.png")) if path.name != CURVES]
        counts = [
            f"* {name}: {split['examples']:,} of {split['rows']:,} rows of {sources[name]}"
            for name, split in data.items()
        ]
        return {
            "task": task,
            "start": report["model"],
            "about": f"A model for {task.replace('-', ' ')}, fine-tuned from `{base_name(report['model'])}`",
            "sections": [
                f"## Evaluation\n\n{report['examples']:,} examples of {sources['validation']}. The baseline "
                "ignores the text."
                + (f" Lower is better for {', '.join(lower)}." if lower else "")
                + "\n\n| metric | value | baseline |\n|---|---|---|\n"
                + "".join([*rows, *(f"\n![{name}]({name})" for name in pictures)]),
                "## Training data\n\n" + "\n".join(counts),
            ],
            "settings": report["settings"],
            "took": f"Training took {report['minutes']:.1f} minutes. "
            f"The model of step {report['step']:,} was kept.",
            "limits": _limits(self.folder, report),
            "results": results,
            "data": sources["validation"],
        }

    def summary(self) -> dict[str, Any]:
        """Return the values to show, by name."""
        state = "finished" if self.loop.finished else "stopped; the same call resumes the run"
        kept = {}
        if self.report:
            name = self.report["main_metric"]
            kept["model"] = (
                f"of step {self.report['step']:,}, selected by {name} "
                f"({self.task.directions.get(name, 'higher')} is better)"
            )
        return (
            {"run": state, "task": self.task.name, "step": self.step}
            | kept
            | with_baseline(self.metrics, self.baseline)
            | {"folder": self.folder}
        )


@takes_settings(FinetuningSettings, DataOptions)
@lines_shown()
def finetune(
    task: str | Task,
    *,
    train: Any,
    validation: Any = None,
    model: str | Path | None = None,
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
        task: name of the task: text-classification, token-classification, question-answering,
            multiple-choice or sentence-embedding. In Python also a task of your own.
        train: labeled training data: a file or a folder. In Python also a list of dicts, a DataFrame, an
            Arrow table, a `datasets.Dataset`, or an iterable of dicts or of the task's examples.
        validation: labeled data that selects the best model: a file or a folder (default: a tenth of the
            training data, held out).
        model: model to start from: folder, Hugging Face Hub name, 'bundled' or 'bundled-sentences' (default:
            bundled; for sentence embedding bundled-sentences).
        output: folder of the run. An existing run is resumed.
        metrics: your own metrics: functions of the true and the predicted answers, or `Metric`. The first one
            selects the best model.
        callbacks: callbacks that the training loop calls in the main process: at the start of the run, after
            each step, evaluation and checkpoint, and at its end. Each seed is a separate run.
        recipe: TOML file with settings, or the name of a recipe in the package, such as squad1. Other
            arguments override it. In Python also the settings.
        seeds: number of runs with different seeds, which count up from the setting `seed`. With several,
            the runs are in `output/seed-0` and so on. `output` has the best model, and the mean and standard
            deviation of the metrics. `max_minutes` applies to each run.
        device: the device: auto (the best available device), cpu, cuda, cuda:1, mps, ...
        world: the processes of the run, instead of those that `torchrun` started.
        **settings: fields of `FinetuningSettings`, `TaskSettings` and `DataOptions`, which override the
            recipe.

    Returns:
        The run: its folder, metrics and report. With several seeds, the best run.

    Raises:
        MissingExtraError: the `train` extra is not installed.
        DataError: the data cannot be read or has no examples, or the validation data has labels that are not
            in the training data.
        ConfigError: the task is unknown, or the task or the model does not support a setting.
        TrainingError: a run is resumed with other settings or data, or the loss keeps diverging.
        DiskFullError: the disk has no space left.
    """
    require("matplotlib.figure", extra="train")  # raise for missing libraries before any work
    if type(seeds) is not int or seeds < 1:
        raise ConfigError(f"seeds is {seeds!r}. Expected the number of runs, at least 1.")
    check_callbacks(callbacks)
    flags, columns = split_settings(FinetuningSettings, settings, call=finetune)
    options = build(DataOptions, columns, where="columns")
    chosen = settings_from(FinetuningSettings, recipe, flags)
    own = task_of(task).with_metrics(metrics)
    if chosen.best_metric is not None:
        check_metric(chosen.best_metric, own.directions, name="best_metric")
    output = Path(output)

    processes = join_world(device) if world is None else nullcontext(world)
    with full_disk_named(output), processes as joined:
        model = model or (BUNDLED_SENTENCES if own.name == TASK else BUNDLED)
        prepared = prepare(own, chosen, model=model, train=train, validation=validation, options=options)
        if seeds > 1:
            return run_seeds(prepared, chosen, output, seeds=seeds, world=joined, callbacks=callbacks)
        return run_prepared(prepared, chosen, output, world=joined, callbacks=callbacks)


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
    summary: dict[str, dict[str, Any]] = {}
    for name in reports[0]["metrics"]:
        values = [report["metrics"][name] for report in reports]
        summary[name] = {
            "mean": statistics.fmean(values),
            "deviation": statistics.stdev(values),
            "values": values,
        }
    name = reports[0]["main_metric"]
    best = best_run(summary[name]["values"], lower=prepared.task.directions.get(name) == "lower")
    folder, report = output / f"seed-{best}", reports[best] | {"seeds": summary, "seed": best}
    # First, so that the folder is marked as belonging to these runs.
    write_json(output / SEEDS_JSON, finite(summary))
    for file in folder.iterdir():
        if file.is_file() and file.name != LOCK:  # model, tokenizer, report, plots, curves
            copy_file(file, output / file.name)
    for name in files_of(prepared.task.config):  # of sentence embedding, some in folders
        copy_file(folder / name, output / name)
    write_json(output / "report.json", finite(report))
    for name, figures in summary.items():
        mean, deviation = figures["mean"], figures["deviation"]
        logger.info(f"{name}: mean {mean:.4f}, standard deviation {deviation:.4f} ({seeds} seeds)")
    logger.info("best run: seed-%d", best)
    return replace(results[best], folder=output, report=report)


def best_run(values: Sequence[float], *, lower: bool) -> int:
    best = 0
    for number, value in enumerate(values):
        if is_better(value, values[best], lower=lower):
            best = number
    return best


def run_prepared(
    prepared: Prepared,
    settings: FinetuningSettings,
    output: Path,
    *,
    world: World,
    callbacks: Sequence[Callback] = (),
) -> FinetuningRun:
    epochs = Epochs(
        prepared.units, settings.batch_size, seed=settings.seed, rank=world.rank, world_size=world.size
    )
    size = prepared.task.config.hidden_size
    settings = settings.completed(steps_per_epoch=epochs.steps, hidden_size=size)
    logger.info("learning rate %g, %d steps per epoch", settings.learning_rate, epochs.steps)
    result = _train(prepared, settings, epochs, output, world, callbacks)
    report = None
    if result.finished and world.is_main:
        report = _finish(prepared, settings, output, world, result)
    if result.finished:
        world.wait()
    return FinetuningRun(output, prepared.task, result, report, world.is_main)


def _finish(
    prepared: Prepared, settings: FinetuningSettings, output: Path, world: World, state: RunState
) -> dict[str, Any]:
    model_class = auto.model_class(prepared.task.architecture)
    validation, metric = prepared.validation, prepared.metric
    model = model_class.from_pretrained(output, device_map=world.device)
    model.config.extra.pop(THRESHOLDS_KEY, None)  # of an earlier call for the same run
    evaluation = validation.evaluate(model, model.config, main_metric=metric)
    if tuned := evaluation.task.tuned(evaluation.examples, evaluation.predictions):
        model.config.extra |= tuned
        before, evaluation = evaluation, validation.evaluate(model, model.config, main_metric=metric)
        if settings.task.threshold == "auto":
            shown = ", ".join(f"{name} {value:g}" for name, value in tuned[THRESHOLDS_KEY].items())
            name = "f1" if "f1" in before.metrics else "f1_macro"
            figures = f"{name} {before.metrics[name]:.4f} before, {evaluation.metrics[name]:.4f} after"
            logger.info(f"thresholds tuned on the validation data: {shown} ({figures})")
    collapsed = collapse(evaluation, output, prior=prior_loss(prepared))
    # If no evaluation had a value, the loop keeps the last model.
    kept_step = state.step if state.best is None else state.best_step
    name = f"eval/{metric}"
    before = [line[name] for line in read_metrics(output) if line["step"] == 0 and name in line]
    beats_untrained = None  # the untrained model may not have been evaluated
    if before:
        best, untrained = (math.nan if value is None else value for value in (state.best, before[0]))
        beats_untrained = is_better(round(best, LOGGED_DIGITS), untrained, lower=prepared.lower_is_better)
    if collapsed:
        baseline = f", baseline {evaluation.baseline[metric]:.4f}" if metric in evaluation.baseline else ""
        logger.warning(
            f"the run collapsed: {collapsed} ({metric} {evaluation.metrics[metric]:.4f}{baseline}). "
            "Train longer, change the learning rate, or try several seeds."
        )
    elif beats_untrained is False:
        logger.warning(
            f"no checkpoint beats the untrained model. The model of step {kept_step} is kept. "
            "Train longer, or change the learning rate."
        )
    model_class.from_pretrained(output, config=evaluation.task.config).save_pretrained(output)
    prepared.task.tokenizer.save_pretrained(output)
    with atomic_path(output / CONTENTS) as file:
        file.write_text("".join(f'"{digest}"\n' for digest in prepared.contents), encoding="utf-8")
    about = {
        "task": prepared.task.name,
        "model": prepared.start,
        "collapsed": collapsed,
        # A run without a limit has None: JSON cannot represent infinity.
        "settings": {name: value for name, value in asdict(settings).items() if value != math.inf},
        "step": kept_step,
        "beats_untrained": beats_untrained,
        "minutes": state.seconds / 60,
        "data": prepared.data,
        COLUMNS_KEY: prepared.columns,
    }
    report = write_report(evaluation, output, about=about)
    remove_training_files(output)
    return report


def _train(
    prepared: Prepared,
    settings: FinetuningSettings,
    epochs: Epochs,
    folder: Path,
    world: World,
    callbacks: Sequence[Callback],
) -> RunState:
    model = starting_model(prepared, settings).to(world.device)
    task, metric, validation = prepared.task, prepared.metric, prepared.validation
    training = settings.training(steps_per_epoch=epochs.steps)
    # The settings that affect training, without those that the loop compares itself.
    of_loop = {field.name for field in fields(TrainingSettings)} | {"epochs", "warmup"}
    identity = {name: value for name, value in asdict(settings).items() if name not in of_loop}
    identity["task"].pop("threshold")  # which the finished run may change
    labels = task.config.id2label

    def save_model(target: Path) -> None:
        model.save_pretrained(target)
        task.tokenizer.save_pretrained(target)

    def evaluate() -> dict[str, float]:
        metrics = validation.evaluate(model, task.config).metrics
        if metric not in metrics:  # some metrics apply only to some data
            check_metric(metric, [name for name in task.directions if name in metrics], name="best_metric")
        return metrics

    return Training(
        model,
        make_objective(task, world, class_weights=prepared.class_weights, temperature=settings.temperature),
        epochs.stream,
        training,
        folder,
        save_model=save_model,
        evaluate=evaluate,
        best_metric=metric,
        lower_is_better=prepared.lower_is_better,
        keep_untrained=False,
        fingerprint=identity
        | {
            "model": prepared.start,
            "training_data": fingerprint(prepared.rows),
            "main_metric": metric,
            "own_metrics": {metric.title: task.directions[metric.title] for metric in task.own_metrics},
            "task_name": task.name,  # "task" has the settings of the task
            "objective": task.objective
            if isinstance(task.objective, str)
            else getattr(task.objective, "__qualname__", type(task.objective).__qualname__),
            # The best value so far belongs to this data.
            "validation_data": fingerprint(validation.rows, map(task.truth, validation.examples)),
            # The rows have only the ids of the labels, but the saved models have the names.
            "labels": [labels[number] for number in range(len(labels))],
        },
        world=world,
        callbacks=callbacks,
        about={"task": task.name, "model": prepared.start}
        | {SPLITS[name]: split["source"] for name, split in prepared.data.items()}
        | prepared.columns
        | scalar_values(settings),
    ).run()


def prior_loss(prepared: Prepared) -> float | None:
    """Return the training loss of the best prediction that ignores the input, or None if there is none."""
    weights, counts = prepared.class_weights, prepared.task.learnt_classes(prepared.rows)
    if weights is None or counts is None:
        return prepared.task.prior_loss(prepared.rows)
    weighted = np.array([count * float(weights[label]) for label, count in counts.items()])
    return float(-(weighted * np.log(weighted / weighted.sum())).sum() / counts.total())


def collapse(evaluation: Evaluation, folder: Path, *, prior: float | None) -> str | None:
    """Return why the finished run in a folder has collapsed, or None; `prior` is its `prior_loss`."""
    lines = [line for line in read_metrics(folder) if "train/loss" in line]
    if not lines or lines[-1]["step"] < _MIN_STEPS:
        return None
    constant = evaluation.task.constant_answer(evaluation.examples, evaluation.predictions)
    if constant is not None:
        return f"the best model predicts {constant} for every example"
    late = [line["train/loss"] for line in lines if line["step"] > (1 - _LAST) * lines[-1]["step"]]
    mean = sum(late) / len(late)
    if prior is not None and mean > _NOTHING_LEARNED * prior:
        what = f"the final training loss, {mean:.4f}, is close to the loss of a model that ignores its input"
        return f"{what} ({prior:.4f})"
    return None


def _limits(folder: Path, report: dict[str, Any]) -> list[str]:
    """Return the limits of the model that follow from the report."""
    name, metrics, baseline = report["main_metric"], report["metrics"], report["baseline"]
    lines = ["The checkpoint was selected on the evaluation data, so metrics on new data may be lower."]
    if report["examples_cut"]:
        lines.append(
            f"{report['examples_cut']:,} of the {report['examples']:,} evaluated examples were truncated."
        )
    if labels := read_json(folder / "config.json", ConfigError).get("id2label"):
        shown = ", ".join(f"`{label}`" for label in list(labels.values())[:20])
        lines.append(f"Its only labels are {shown}{' and others' if len(labels) > 20 else ''}.")
    if report["calibration_error"] is not None:
        lines.append(
            f"Its confidence differs from its accuracy by {report['calibration_error']:.2f} on average "
            "(expected calibration error)."
        )
    lower = name in report["lower_is_better"]
    if name in baseline and not is_better(metrics[name], baseline[name], lower=lower):
        lines.append(f"Its {name} is no better than the baseline.")
    if report["beats_untrained"] is False:
        lines.append("Training did not improve on the untrained model.")
    if report["collapsed"]:
        lines.append(f"The run collapsed: {report['collapsed']}.")
    return lines
