"""The verbs for labelled data: finetune, evaluate, predict."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from albertkit.cli.flags import settings_flags
from albertkit.finetuning.data_options import DataOptions
from albertkit.finetuning.settings import FinetuningSettings, TaskSettings
from albertkit.hub import BUNDLED
from albertkit.recipe import build, merge, read_recipe

_Task = Annotated[
    str,
    typer.Argument(
        help="text-classification, token-classification, question-answering or multiple-choice.",
        metavar="TASK",
    ),
]
_Model = Annotated[str, typer.Option(help="Folder, name on the Hugging Face hub, or 'bundled'.")]
_Device = Annotated[str, typer.Option(help="auto (the best there is), cpu, cuda, cuda:1, mps ...")]
_BatchTokens = Annotated[int, typer.Option(help="Most tokens computed at once, padding included.", min=1)]
_Json = Annotated[bool, typer.Option("--json", help="Print the figures as one JSON line.")]


@settings_flags(FinetuningSettings, parameter="flags")
@settings_flags(DataOptions, parameter="columns")
def finetune(
    task: _Task,
    train: Annotated[str, typer.Option(help="Labelled file or folder to learn from.")],
    validation: Annotated[str, typer.Option(help="Labelled file or folder to choose the best model by.")],
    output: Annotated[Path, typer.Option(help="Folder of the run; a run that is there goes on.")],
    model: _Model = BUNDLED,
    recipe: Annotated[Path | None, typer.Option(help="TOML file of settings, which flags override.")] = None,
    seeds: Annotated[
        int, typer.Option(help="So many runs; mean and deviation are reported, the best is kept.", min=1)
    ] = 1,
    device: _Device = "auto",
    json: _Json = False,
    columns: dict[str, Any] | None = None,
    flags: dict[str, Any] | None = None,
) -> None:
    """Fine-tune a model on labelled data, and report how good it is.

    Example: albertkit finetune text-classification --train train.csv --validation dev.csv --output run
    """
    from albertkit.finetuning.finetune import finetune as run
    from albertkit.training.distributed import join_world

    table = merge(read_recipe(recipe) if recipe else {}, flags or {}, FinetuningSettings)
    settings = build(FinetuningSettings, table, where=str(recipe or "settings"))
    console = Console(stderr=True)
    with join_world(device) as world:
        result = run(
            task,
            settings,
            model=model,
            train_data=train,
            validation_data=validation,
            output=output,
            options=_options(columns),
            seeds=seeds,
            world=world,
            console=console,
        )
    if result.report:
        console.print(f"best at step {result.report['step']}; model and report in {output}", soft_wrap=True)
        _print_metrics(result.report, json)
    elif world.is_main:
        console.print(f"stopped at step {result.run.state.step} (the same command goes on)", soft_wrap=True)
    if result.run.signal is not None:
        raise typer.Exit(128 + result.run.signal)


@settings_flags(TaskSettings, parameter="flags")
@settings_flags(DataOptions, parameter="columns")
def evaluate(
    task: _Task,
    data: Annotated[str, typer.Option(help="Labelled file or folder.")],
    model: _Model = BUNDLED,
    output: Annotated[
        Path | None, typer.Option(help="Folder for report.json, report.md, predictions and pictures.")
    ] = None,
    device: _Device = "auto",
    batch_tokens: _BatchTokens = 8192,
    json: _Json = False,
    columns: dict[str, Any] | None = None,
    flags: dict[str, Any] | None = None,
) -> None:
    """Measure a fine-tuned model on labelled data.

    Example: albertkit evaluate text-classification --model run --data test.csv --output run/test
    """
    from albertkit.datasets.splits import load_splits
    from albertkit.finetuning.evaluation import EvaluationSet
    from albertkit.finetuning.prepared import load_task
    from albertkit.finetuning.report import write_report
    from albertkit.modeling.loading import choose_device

    console = Console(stderr=True)
    labelled, own, loaded = load_task(task, model, _task(flags), device=choose_device(device))
    reader = labelled.reader(data, _options(columns))
    splits = load_splits({"data": reader}, labels=labelled.labels(loaded.config))
    for line in splits.reports["data"].lines():
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    evaluated = EvaluationSet(labelled, own, splits.examples["data"], batch_tokens=batch_tokens)
    evaluation = evaluated.evaluate(loaded, loaded.config)
    report = {"metrics": evaluation.metrics}
    if output is not None:
        about = {"task": task, "model": model, "data": splits.reports["data"].to_json()}
        report = write_report(evaluation, output, about=about)
    _print_metrics(report, json)


@settings_flags(TaskSettings, parameter="flags")
@settings_flags(DataOptions, parameter="columns")
def predict(
    task: _Task,
    input: Annotated[str, typer.Option(help="File or folder; labels are not looked at.")],
    output: Annotated[Path, typer.Option(help="File: .jsonl, .csv or .parquet.")],
    model: _Model = BUNDLED,
    device: _Device = "auto",
    batch_tokens: _BatchTokens = 8192,
    columns: dict[str, Any] | None = None,
    flags: dict[str, Any] | None = None,
) -> None:
    """Predict for each example of a file of any size; the same command goes on after an interruption.

    Example: albertkit predict text-classification --model run --input new.jsonl --output answers.jsonl
    """
    from dataclasses import asdict

    from albertkit.finetuning.prediction import predict_file
    from albertkit.finetuning.prepared import load_task
    from albertkit.modeling.loading import choose_device

    console = Console(stderr=True)
    settings, options = _task(flags), _options(columns)
    labelled, own, loaded = load_task(task, model, settings, device=choose_device(device))
    about = {"task": task, "model": model, "input": input} | asdict(settings) | asdict(options)
    with console.status("predicting") as status:
        count = predict_file(
            labelled,
            own,
            loaded,
            loaded.config,
            labelled.reader(input, options, labelled=False),
            output,
            about=about,
            batch_tokens=batch_tokens,
            progress=lambda done: status.update(f"{done:,} examples"),
        )
    console.print(f"{count:,} predictions in {output}", highlight=False, soft_wrap=True)


def _options(columns: dict[str, Any] | None) -> DataOptions:
    return build(DataOptions, columns or {}, where="columns")


def _task(flags: dict[str, Any] | None) -> TaskSettings:
    return build(TaskSettings, flags or {}, where="settings")


def _print_metrics(report: dict[str, Any], as_json: bool) -> None:
    metrics = report["metrics"]
    if as_json:
        import json

        typer.echo(json.dumps(metrics))
        return
    width = max(map(len, metrics))
    for name, value in metrics.items():
        typer.echo(f"{name:<{width}}  {value:.4f}")
