"""The verbs for labelled data: finetune, evaluate, predict."""

import logging
from pathlib import Path
from typing import Annotated, Any

import typer

from albertkit.cli.completing import FINETUNING_TASKS, RUNNERS, SUITES, models, one_of
from albertkit.cli.flags import settings_flags
from albertkit.cli.options import Engine, Model, Patience
from albertkit.cli.printing import print_json
from albertkit.datasets.options import DataOptions
from albertkit.errors import ConfigError
from albertkit.extras import require
from albertkit.finetuning.settings import FinetuningSettings
from albertkit.hub import BUNDLED
from albertkit.logs import ProgressBar
from albertkit.tasks.settings import TaskSettings

logger = logging.getLogger(__name__)

_Task = Annotated[
    str,
    typer.Argument(
        help="text-classification, token-classification, question-answering, multiple-choice or "
        "sentence-embedding.",
        metavar="TASK",
        autocompletion=one_of(FINETUNING_TASKS),
    ),
]
_Device = Annotated[
    str,
    typer.Option(
        help="auto (the best there is), cpu, cuda, cuda:1, mps ...",
        autocompletion=one_of(["auto", "cpu", "cuda", "mps"]),
    ),
]
_BatchTokens = Annotated[
    int | None,
    typer.Option(
        help="Most tokens computed at once, padding included (default: what suits the device).", min=1
    ),
]
_Json = Annotated[bool, typer.Option("--json", help="Print the figures as one JSON line.")]


@settings_flags(FinetuningSettings, parameter="flags")
@settings_flags(DataOptions, parameter="columns", panel="data")
def finetune(
    task: _Task,
    train: Annotated[str, typer.Option(help="Labelled file or folder to learn from.")],
    validation: Annotated[str, typer.Option(help="Labelled file or folder to choose the best model by.")],
    output: Annotated[Path, typer.Option(help="Folder of the run; a run that is there goes on.")],
    model: Model = BUNDLED,
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
    require("torch", extra="train")
    from albertkit.finetuning.train import finetune as run

    result = run(
        task,
        train=train,
        validation=validation,
        model=model,
        output=output,
        recipe=recipe,
        seeds=seeds,
        device=device,
        **(columns or {}),
        **(flags or {}),
    )
    if result.report:
        logger.info("best at step %d; model and report in %s", result.report["step"], output)
        _print_metrics(result.report, json)
    elif result.is_main:
        logger.info("stopped at step %d (the same command goes on)", result.step)
    if result.signal is not None:
        raise typer.Exit(128 + result.signal)


@settings_flags(TaskSettings, parameter="flags", panel="task", default="as the model was fine-tuned")
@settings_flags(DataOptions, parameter="columns", panel="data")
def evaluate(
    data: Annotated[str, typer.Option(help="Labelled file or folder; of a suite its folder.")],
    task: Annotated[
        str | None,
        typer.Argument(
            help="As of finetune; left out with --suite.",
            metavar="TASK",
            autocompletion=one_of(FINETUNING_TASKS),
        ),
    ] = None,
    suite: Annotated[
        str | None,
        typer.Option(
            help="glue, squad, race or all, on the official files, beside the published figures.",
            autocompletion=one_of(SUITES),
        ),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            help="Folder, name on the Hugging Face hub, or 'bundled'; of a suite a folder of models.",
            autocompletion=models,
        ),
    ] = BUNDLED,
    output: Annotated[
        Path | None, typer.Option(help="Folder for report.json, report.md, predictions and pictures.")
    ] = None,
    device: _Device = "auto",
    batch_tokens: _BatchTokens = None,
    engine: Engine = "auto",
    patience: Patience = None,
    early_exit_curve: Annotated[
        Path | None,
        typer.Option(
            help="Also evaluate with every patience, and draw it to this .png, .svg or .pdf file.",
            show_default=False,
        ),
    ] = None,
    json: _Json = False,
    columns: dict[str, Any] | None = None,
    flags: dict[str, Any] | None = None,
) -> None:
    """Measure a fine-tuned model on labelled data, or one for each task of a suite.

    Example: albertkit evaluate text-classification --model run --data test.csv --output run/test
    """
    from albertkit.devices import read_device
    from albertkit.files import check_picture
    from albertkit.finetuning.evaluate import evaluate as run
    from albertkit.finetuning.suites import evaluate_suite, results_page, write_results

    if task is not None and suite is not None:
        raise ConfigError(f"received the task {task} and the suite {suite}; expected one of the two")
    common = {
        "output": output,
        "device": read_device(device),
        "batch_tokens": batch_tokens,
        "engine": engine,
        "say": logger.info,
    }
    if early_exit_curve is not None:
        check_picture(early_exit_curve)
    if task is not None:
        evaluation = run(
            model,
            data=data,
            task=task,
            patience=patience,
            early_exit_curve=early_exit_curve,
            **common,
            **(columns or {}),
            **(flags or {}),
        )
        _print_metrics(evaluation.report, json)
        return
    if patience is not None or early_exit_curve is not None:
        raise ConfigError("--patience and --early-exit-curve are for one task, text-classification")
    if suite is None:
        raise ConfigError("received neither a task nor a suite; expected a task, or --suite")
    if columns:
        raise ConfigError(f"a suite has its own files; leave out {', '.join(columns)}")
    reports = evaluate_suite(suite, data, model, given=flags, **common)
    if output is not None:
        write_results(suite, model, reports, output)
    if json:
        print_json({name: report.get("metrics") for name, report in reports.items()})
    else:
        typer.echo(results_page(suite, model, reports))


@settings_flags(TaskSettings, parameter="flags", panel="task", default="as the model was fine-tuned")
@settings_flags(DataOptions, parameter="columns", panel="data")
def predict(
    task: _Task,
    input: Annotated[str, typer.Option(help="File or folder; labels are not read.")],
    output: Annotated[Path, typer.Option(help="File: .jsonl, .csv, .tsv or .parquet.")],
    model: Model = BUNDLED,
    device: _Device = "auto",
    batch_tokens: _BatchTokens = None,
    engine: Engine = "auto",
    patience: Patience = None,
    runner: Annotated[
        str,
        typer.Option(
            help="local (this process), or ray: the same predictions from a Ray cluster.",
            autocompletion=one_of(RUNNERS),
        ),
    ] = "local",
    workers: Annotated[
        int | None, typer.Option(help="Of Ray (default: one per GPU, or without any per CPU).", min=1)
    ] = None,
    keep_columns: Annotated[
        bool, typer.Option("--keep-columns", help="Copy the columns of the input beside its predictions.")
    ] = False,
    columns: dict[str, Any] | None = None,
    flags: dict[str, Any] | None = None,
) -> None:
    """Predict for each example of a file of any size; the same command goes on after an interruption.

    Example: albertkit predict text-classification --model run --input new.jsonl --output answers.jsonl
    """
    from albertkit.finetuning.predict import predict as run

    with ProgressBar() as bar:
        found = run(
            model,
            input=input,
            output=output,
            task=task,
            device=device,
            batch_tokens=batch_tokens,
            engine=engine,
            patience=patience,
            runner=runner,
            workers=workers,
            keep_columns=keep_columns,
            progress=lambda done, total: bar.update(f"{done:,} of {total:,} examples", done, total),
            say=logger.info,
            **(columns or {}),
            **(flags or {}),
        )
    logger.info("%s predictions in %s", f"{found.total:,}", output)
    if cut := found.cut:
        logger.info(
            f"{len(cut):,} of {found.total:,} are of examples that were cut ({sum(cut):,} tokens, of one up "
            f"to {max(cut):,}); the column 'cut' says which"
        )


def _print_metrics(report: dict[str, Any], as_json: bool) -> None:
    metrics, baseline = report["metrics"], report["baseline"]
    if as_json:
        curve = {name: report[name] for name in ("early_exit_curve",) if name in report}
        print_json(metrics | curve)
        return
    width = max(map(len, metrics))
    for name, value in metrics.items():
        shown = f"{value:.4f}" if isinstance(value, float) else f"{value:,}"
        beside = f"  (baseline {baseline[name]:.4f})" if name in baseline else ""
        typer.echo(f"{name:<{width}}  {shown}{beside}")
    if points := report.get("early_exit_curve"):
        typer.echo(f"\npatience  {points[0]['metric_name']:>10}  mean depth  times as fast")
        for one in points:
            patience = "all" if one["patience"] is None else one["patience"]
            faster = points[-1]["seconds"] / one["seconds"]
            typer.echo(f"{patience:>8}  {one['metric']:>10.4f}  {one['mean_depth']:>10.2f}  {faster:>13.2f}")
