"""One fine-tuning run on prepared data."""

import logging
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from albertkit.errors import ConfigError, TrainingError
from albertkit.finetuning.batches import Epochs, fingerprint
from albertkit.finetuning.collapse import collapse, prior_loss
from albertkit.finetuning.evaluation import Evaluation
from albertkit.finetuning.objectives import make_objective
from albertkit.finetuning.prepared import Prepared, starting_model
from albertkit.finetuning.report import write_report
from albertkit.finetuning.settings import FinetuningSettings
from albertkit.finetuning.trained import COLUMNS_KEY
from albertkit.metrics.comparing import is_better
from albertkit.pipelines import pipeline
from albertkit.recipe import scalar_values
from albertkit.results import with_baseline
from albertkit.tasks.registry import TASKS
from albertkit.tasks.task import Task
from albertkit.training.callbacks import Callback
from albertkit.training.distributed import World
from albertkit.training.loop import Training
from albertkit.training.model_card import PushOptions, finetuning_card
from albertkit.training.progress import LOGGED_DIGITS, read_metrics
from albertkit.training.run_folder import RunFolder
from albertkit.training.settings import TrainingSettings
from albertkit.training.state import RunState

logger = logging.getLogger(__name__)


@dataclass(frozen=True, repr=False)
class FinetuningRun(RunFolder):
    """The result of `finetune`."""

    folder: Path
    """Folder of the model, its report and its checkpoints."""
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

    def _card(self, repo_id: str, options: PushOptions) -> str:
        if self.report is None:
            raise TrainingError(
                f"the run in {self.folder} has no report. Finish it with the same call, and push from the "
                "main process."
            )
        return finetuning_card(self.folder, repo_id, self.report, options)

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


def run_prepared(
    prepared: Prepared,
    settings: FinetuningSettings,
    output: Path,
    *,
    world: World,
    callbacks: Sequence[Callback] = (),
) -> FinetuningRun:
    """Train and write the report, or resume the run in `output`."""
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
    """Evaluate the best model, and write and return the report."""
    evaluation = _evaluate_best(prepared, output, world)
    collapsed = collapse(evaluation, output, prior=prior_loss(prepared))
    # If no evaluation had a value, the loop keeps the last model.
    kept_step = state.step if state.best is None else state.best_step
    beats_untrained = _beats_untrained(state, output, prepared.metric, prepared.lower_is_better)
    if collapsed:
        name, baseline = evaluation.main_metric, evaluation.baseline
        beside = f", baseline {baseline[name]:.4f}" if name in baseline else ""
        logger.warning(
            f"the run collapsed: {collapsed} ({name} {evaluation.metrics[name]:.4f}{beside}); train longer, "
            "change the learning rate, or try several seeds"
        )
    elif beats_untrained is False:
        logger.warning(
            f"no checkpoint beats the untrained model. The model of step {kept_step} is kept. "
            "Train longer, or change the learning rate."
        )
    model = prepared.model_class.from_pretrained(output, config=evaluation.task.config)
    model.save_pretrained(output)
    prepared.task.tokenizer.save_pretrained(output)
    prepared.save_contents(output)
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
    return write_report(evaluation, output, about=about)


def _beats_untrained(state: RunState, folder: Path, metric: str, lower: bool) -> bool | None:
    """Return whether the best model beats the untrained one; None if the untrained one was not evaluated."""
    name = f"eval/{metric}"
    before = [line[name] for line in read_metrics(folder) if line["step"] == 0 and name in line]
    if not before:
        return None
    best, untrained = (math.nan if value is None else value for value in (state.best, before[0]))
    return is_better(round(best, LOGGED_DIGITS), untrained, lower=lower)


def _train(
    prepared: Prepared,
    settings: FinetuningSettings,
    epochs: Epochs,
    folder: Path,
    world: World,
    callbacks: Sequence[Callback],
) -> RunState:
    """Train or resume."""
    model = starting_model(prepared, settings).to(world.device)
    task, metric, validation = prepared.task, prepared.metric, prepared.validation
    training = settings.training(steps_per_epoch=epochs.steps)
    labels = task.config.id2label
    checked = False

    def save_model(target: Path) -> None:
        model.save_pretrained(target)
        task.tokenizer.save_pretrained(target)

    def evaluate() -> dict[str, float]:
        nonlocal checked
        evaluation = validation.evaluate(model, task.config)
        if not checked:
            evaluation.check()
            checked = True
        metrics = evaluation.metrics
        if metric not in metrics:
            expected = ", ".join(name for name in task.directions if name in metrics)
            if not (settings.best_metric and expected):
                raise task.lacking(metric, metrics)
            raise ConfigError(f"best_metric is {metric!r}. Expected one of {expected}.")
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
        fingerprint=_identity(settings)
        | {
            "model": prepared.start,
            "training_data": fingerprint(prepared.rows),
            "main_metric": metric,
            "own_metrics": task.own_directions,
            "task_name": task.name,  # "task" has the settings of the task
            "objective": task.objective_name,
            # The best value so far belongs to this data.
            "validation_data": fingerprint(validation.rows, map(task.checked_truth, validation.examples)),
            # The rows have only the ids of the labels, but the saved models have the names.
            "labels": [labels[number] for number in range(len(labels))],
        },
        world=world,
        callbacks=callbacks,
        about={"task": task.name, "model": prepared.start} | scalar_values(settings),
    ).run()


def _identity(settings: FinetuningSettings) -> dict[str, Any]:
    """Return the settings that affect training, without those that the loop compares itself."""
    of_loop = {one.name for one in fields(TrainingSettings)} | {"epochs", "warmup"}
    return {name: value for name, value in asdict(settings).items() if name not in of_loop}


def _evaluate_best(prepared: Prepared, folder: Path, world: World) -> Evaluation:
    """Return the evaluation of the model in a folder, with the tuned values in its config."""
    model = prepared.model_class.from_pretrained(folder, device_map=world.device)
    validation, metric = prepared.validation, prepared.metric
    evaluation = validation.evaluate(model, model.config, main_metric=metric)
    if tuned := evaluation.task.tuned(evaluation.examples, evaluation.predictions):
        model.config.extra |= tuned
        return validation.evaluate(model, model.config, main_metric=metric)
    return evaluation
