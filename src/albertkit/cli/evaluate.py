"""The verb evaluate."""

from pathlib import Path
from typing import Annotated, Any

import typer

from albertkit.cli.completing import FINETUNING_TASKS, SUITES, models, one_of
from albertkit.cli.flags import settings_flags
from albertkit.cli.options import BatchTokens, Engine, JsonFigures, RunDevice
from albertkit.cli.printing import print_json, print_metrics
from albertkit.datasets.options import DataOptions
from albertkit.errors import ConfigError
from albertkit.hub import BUNDLED
from albertkit.tasks.settings import TaskSettings


@settings_flags(TaskSettings, parameter="settings", panel="task", default="as the model was fine-tuned")
@settings_flags(DataOptions, parameter="columns", panel="data")
def evaluate(
    data: Annotated[
        str, typer.Option(help="Labeled data: a file or a folder. For a suite, the folder of its files.")
    ],
    task: Annotated[
        str | None,
        typer.Argument(
            help="Task, as for finetune. Omit it with --suite.",
            metavar="TASK",
            autocompletion=one_of(FINETUNING_TASKS),
        ),
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(
            help="Benchmark suite to evaluate and compare with published results: glue, squad, race or all.",
            autocompletion=one_of(SUITES),
        ),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            help="Model folder, Hugging Face Hub name, or 'bundled'. For a suite, a folder of models.",
            autocompletion=models,
        ),
    ] = BUNDLED,
    output: Annotated[
        Path | None, typer.Option(help="Folder to write report.json, report.md, predictions and plots to.")
    ] = None,
    device: RunDevice = "auto",
    batch_tokens: BatchTokens = None,
    engine: Engine = "auto",
    json: JsonFigures = False,
    *,
    columns: dict[str, Any],
    settings: dict[str, Any],
) -> None:
    """Evaluate a fine-tuned model on labeled data, or one model for each task of a benchmark suite.

    Example: albertkit evaluate text-classification --model run --data test.csv --output run/test
    """
    from albertkit.finetuning.evaluate import evaluate
    from albertkit.finetuning.suites import evaluate_suite, results_page, write_results

    if task is not None and suite is not None:
        raise ConfigError(f"received the task {task} and the suite {suite}. Expected only one of them.")
    common = {"output": output, "device": device, "batch_tokens": batch_tokens, "engine": engine}
    if task is not None:
        evaluation = evaluate(model, data=data, task=task, **common, **columns, **settings)
        print_metrics(evaluation.report, json)
        return
    if suite is None:
        raise ConfigError("received neither a task nor a suite. Expected a task, or --suite.")
    if columns:
        raise ConfigError(f"a suite has its own files, in known columns. Omit {', '.join(columns)}.")
    reports = evaluate_suite(suite, data, model, **settings, **common)
    if output is not None:
        write_results(suite, model, reports, output)
    if json:
        print_json({name: report.get("metrics") for name, report in reports.items()})
    else:
        typer.echo(results_page(suite, model, reports))
