"""Measure a fine-tuned model on labelled data: `evaluate`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from albertkit.devices import Device, read_device
from albertkit.finetuning.measure import measure
from albertkit.finetuning.settings import TaskSettings
from albertkit.finetuning.trained_settings import named_options, split_settings, task_settings


@dataclass(frozen=True)
class Evaluation:
    """The metrics of a model on labelled data."""

    metrics: dict[str, float]
    baseline: dict[str, float]
    """Metrics of the best prediction that does not look at the input."""
    examples: int
    """Number of examples."""
    report: dict[str, Any]
    """The content of `report.json`."""


def evaluate(
    model: str | Path,
    *,
    data: Any,
    task: Any = None,
    output: str | Path | None = None,
    metrics: Any = None,
    device: Device = "auto",
    batch_tokens: int | None = None,
    engine: str = "auto",
    patience: int | None = None,
    early_exit_curve: str | Path | None = None,
    say: Callable[[str], None] = lambda _: None,
    **settings: Any,
) -> Evaluation:
    """Measure a fine-tuned model on labelled data.

    Args:
        model: folder or name of the model.
        data: labelled examples.
        task: name of the task.
        output: folder for the report; None for none.
        metrics: metrics of your own.
        device: "auto", "cpu", "cuda" and so on.
        batch_tokens: maximum number of tokens computed at once.
        engine: what computes: "auto", "onnx", "onnx-int8", "torch" or "plain".
        patience: number of consecutive layers that must agree before an example exits early.
        early_exit_curve: picture file of the main metric by patience.
        say: takes notes about the data.
        settings: fields of `TaskSettings` and `DataOptions`; by default as the model was fine-tuned.
    """
    assert metrics is None
    flags, columns = split_settings(TaskSettings, settings)
    report = measure(
        task,
        model,
        data,
        settings=task_settings(model, flags),
        options=named_options(task, model, str(data), columns, say, labelled=True),
        output=output,
        device=read_device(device),
        batch_tokens=batch_tokens,
        engine=engine,
        patience=patience,
        exit_curve=early_exit_curve,
        say=say,
    )
    return Evaluation(report["metrics"], report["baseline"], report["examples"], report)
