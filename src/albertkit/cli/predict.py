"""The verb predict."""

from pathlib import Path
from typing import Annotated, Any

import typer

from albertkit.cli.completing import RUNNERS, one_of
from albertkit.cli.flags import settings_flags
from albertkit.cli.options import BatchTokens, Engine, Model, RunDevice, Task
from albertkit.datasets.options import DataOptions
from albertkit.hub import BUNDLED
from albertkit.tasks.settings import TaskSettings


@settings_flags(TaskSettings, parameter="settings", panel="task", default="as the model was fine-tuned")
@settings_flags(DataOptions, parameter="columns", panel="data")
def predict(
    task: Task,
    input: Annotated[str, typer.Option(help="File or folder of examples. Labels are ignored.")],
    output: Annotated[
        Path, typer.Option(help="File to write the predictions to: .jsonl, .csv, .tsv or .parquet.")
    ],
    model: Model = BUNDLED,
    device: RunDevice = "auto",
    batch_tokens: BatchTokens = None,
    engine: Engine = "auto",
    runner: Annotated[
        str,
        typer.Option(
            help="Where to run: local (this process) or ray (a Ray cluster). The predictions are the same, "
            "up to rounding.",
            autocompletion=one_of(RUNNERS),
        ),
    ] = "local",
    workers: Annotated[
        int | None,
        typer.Option(help="Number of Ray workers (default: one per GPU, or per CPU without GPUs).", min=1),
    ] = None,
    keep_columns: Annotated[
        bool, typer.Option("--keep-columns", help="Copy the columns of the input to the output.")
    ] = False,
    *,
    columns: dict[str, Any],
    settings: dict[str, Any],
) -> None:
    """Write a prediction for each example of a file of any size.

    To resume after an interruption, run the same command again.

    Example: albertkit predict text-classification --model run --input new.jsonl --output answers.jsonl
    """
    from albertkit.finetuning.predict import predict

    predict(
        model,
        input=input,
        output=output,
        task=task,
        device=device,
        batch_tokens=batch_tokens,
        engine=engine,
        runner=runner,
        workers=workers,
        keep_columns=keep_columns,
        **columns,
        **settings,
    )
