"""Fine-tune a model for a task: `finetune`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from albertkit.files import full_disk_named
from albertkit.finetuning.data_options import DataOptions
from albertkit.finetuning.finetune import finetune as finetune_files
from albertkit.finetuning.settings import FinetuningSettings
from albertkit.finetuning.trained_settings import split_settings
from albertkit.hub import BUNDLED
from albertkit.recipe import build, merge, read_recipe
from albertkit.training.distributed import join_world


@dataclass(frozen=True)
class FinetuningRun:
    """How a call of `finetune` ended."""

    folder: Path
    """Folder of the model, its report and its checkpoints."""
    report: dict[str, Any] | None
    """The content of `report.json`; None for a run that is not finished, and in processes of `torchrun` other
    than the main one."""
    step: int
    """Optimizer steps done."""
    restarts: int = 0
    """Number of restarts after a collapse."""
    signal: int | None = None
    """Number of the signal that stopped the run, if any; the same call continues it."""

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of the best model on the validation data; empty for a run that is not finished."""
        return self.report["metrics"] if self.report else {}

    def pipeline(self, **options: Any) -> Any:
        """Return the pipeline of the trained model.

        Args:
            options: arguments of `albertkit.pipeline`.
        """
        from albertkit.pipelines import pipeline

        return pipeline(model=self.folder, **options)


def finetune(
    task: Any,
    *,
    train: Any,
    validation: Any = None,
    model: str | Path = BUNDLED,
    output: str | Path,
    metrics: Any = None,
    recipe: str | Path | None = None,
    seeds: int = 1,
    device: str = "auto",
    **settings: Any,
) -> FinetuningRun:
    """Fine-tune a model on labelled data, or continue the run in `output`, and report how good it is.

    Args:
        task: name of the task.
        train: labelled examples to learn from.
        validation: labelled examples to choose the best model by.
        model: folder or name of the model to start from.
        output: folder of the run.
        metrics: metrics of your own.
        recipe: TOML file of settings.
        seeds: number of runs with different seeds; the best model is kept.
        device: "auto", "cpu", "cuda" and so on.
        settings: fields of `FinetuningSettings`, `TaskSettings` and `DataOptions`, which override the recipe.
    """
    assert metrics is None
    flags, columns = split_settings(FinetuningSettings, settings)
    table = merge(read_recipe(Path(recipe)) if recipe else {}, flags, FinetuningSettings)
    built = build(FinetuningSettings, table, where=str(recipe or "settings"))
    with join_world(device) as world, full_disk_named(Path(output)):
        result = finetune_files(
            task,
            built,
            model=model,
            train_data=train,
            validation_data=validation,
            output=output,
            options=build(DataOptions, columns, where="columns"),
            seeds=seeds,
            world=world,
        )
    run = result.run
    return FinetuningRun(Path(output), result.report, run.state.step, result.restarts, run.signal)
