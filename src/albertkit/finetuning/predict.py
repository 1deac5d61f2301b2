"""Predict with a fine-tuned model for data of any size: `predict`."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from albertkit.devices import CPU, Device, read_device
from albertkit.errors import ConfigError
from albertkit.finetuning.exits import set_patience
from albertkit.finetuning.labelled_task import room_note
from albertkit.finetuning.prediction import predict_file
from albertkit.finetuning.settings import TaskSettings
from albertkit.finetuning.trained_model import load_task
from albertkit.finetuning.trained_settings import named_options, split_settings, task_settings
from albertkit.parallel import RUNNERS


@dataclass(frozen=True)
class Predictions:
    """The predictions for a file or for examples in memory."""

    count: int
    """Number of predictions."""
    cut: list[int]
    """Number of dropped tokens of each example that was too long."""
    path: Path | None = None
    """The file of the predictions."""


def predict(
    model: str | Path,
    *,
    input: Any,
    output: str | Path,
    task: Any = None,
    device: Device = "auto",
    batch_tokens: int | None = None,
    engine: str = "auto",
    patience: int | None = None,
    runner: str = "local",
    workers: int | None = None,
    keep_columns: bool = False,
    progress: Callable[[int, int], None] = lambda *_: None,
    say: Callable[[str], None] = lambda _: None,
    **settings: Any,
) -> Predictions:
    """Predict for each example; the same call continues after an interruption.

    Args:
        model: folder or name of the model.
        input: examples; labels are not read.
        output: file for the predictions: .jsonl, .csv, .tsv or .parquet.
        task: name of the task.
        device: "auto", "cpu", "cuda" and so on.
        batch_tokens: maximum number of tokens computed at once.
        engine: what computes: "auto", "onnx", "onnx-int8", "torch" or "plain".
        patience: number of consecutive layers that must agree before an example exits early.
        runner: "local" for this process, "ray" for a Ray cluster.
        workers: number of Ray workers.
        keep_columns: copy the columns of the input beside its predictions.
        progress: called with the number of finished examples and the number of all.
        say: takes notes about the data.
        settings: fields of `TaskSettings` and `DataOptions`; by default as the model was fine-tuned.
    """
    if engine in RUNNERS:
        raise ConfigError(f"engine is {engine!r}, which is a runner: write --runner {engine}")
    flags, columns = split_settings(TaskSettings, settings)
    read = task_settings(model, flags)
    options = named_options(task, model, str(input), columns, say, labelled=False)
    # With Ray only its workers compute.
    labelled, own, loaded = load_task(
        task, model, read, device=CPU if runner == "ray" else read_device(device)
    )
    if note := room_note(loaded.config, read):
        say(note)
    set_patience(loaded, patience)
    cut: list[int] = []
    count = predict_file(
        labelled,
        own,
        loaded,
        loaded.config,
        labelled.reader(str(input), options, labelled=False),
        output,
        about={"task": task, "patience": patience} | asdict(read) | asdict(options),
        batch_tokens=batch_tokens,
        engine=engine,
        runner=runner,
        workers=workers,
        device=str(device),
        keep_columns=keep_columns,
        progress=progress,
        on_cut=cut.append,
        say=say,
    )
    return Predictions(count, cut, Path(output))
