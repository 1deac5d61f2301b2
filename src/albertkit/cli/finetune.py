"""The verb finetune."""

import logging
from pathlib import Path
from typing import Annotated, Any

import typer

from albertkit.cli.flags import settings_flags
from albertkit.cli.options import JsonFigures, Model, Recipe, RunDevice, Task
from albertkit.cli.printing import print_metrics
from albertkit.datasets.options import DataOptions
from albertkit.extras import require
from albertkit.finetuning.settings import FinetuningSettings
from albertkit.hub import BUNDLED

logger = logging.getLogger(__name__)


@settings_flags(FinetuningSettings, parameter="settings")
@settings_flags(DataOptions, parameter="columns", panel="data")
def finetune(
    task: Task,
    train: Annotated[str, typer.Option(help="Labeled training data: a file or a folder.")],
    output: Annotated[Path, typer.Option(help="Folder of the run. An existing run is resumed.")],
    validation: Annotated[
        str | None,
        typer.Option(
            help="Labeled data that selects the best model: a file or a folder.",
            show_default="a tenth of --train, held out",
        ),
    ] = None,
    model: Model = BUNDLED,
    recipe: Recipe = None,
    seeds: Annotated[
        int,
        typer.Option(
            help="Number of runs with different seeds. The report gives the mean and standard deviation of "
            "their metrics. albertkit keeps the best model. --max-minutes applies to each run.",
            min=1,
        ),
    ] = 1,
    device: RunDevice = "auto",
    json: JsonFigures = False,
    *,
    columns: dict[str, Any],
    settings: dict[str, Any],
) -> None:
    """Fine-tune a model on labeled data and report its metrics.

    Example: albertkit finetune text-classification --train train.csv --validation dev.csv --output run
    """
    require("torch", extra="train")
    from albertkit.finetuning.finetune import finetune

    run = finetune(
        task,
        train=train,
        validation=validation,
        model=model,
        output=output,
        recipe=recipe,
        seeds=seeds,
        device=device,
        **columns,
        **settings,
    )
    if run.report:
        logger.info("best model at step %d; model and report are in %s", run.report["step"], output)
        print_metrics(run.report, json)
    elif run.is_main:
        logger.info("stopped at step %d; the same command resumes the run", run.step)
    if run.signal is not None:
        raise typer.Exit(128 + run.signal)
