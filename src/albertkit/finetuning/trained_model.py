"""A model that was fine-tuned, with its task: what `evaluate` and `predict` begin with."""

from pathlib import Path

from albertkit.devices import CPU, Device
from albertkit.engines.choosing import load_model
from albertkit.engines.light_model import Model
from albertkit.errors import DataError
from albertkit.finetuning.labelled_task import LabelledTask
from albertkit.finetuning.registry import labelled_task
from albertkit.finetuning.settings import TaskSettings
from albertkit.tasks.task import Task
from albertkit.tokenization.auto import AutoTokenizer


def load_task(
    task: str, model: str | Path, settings: TaskSettings, *, device: Device = CPU
) -> tuple[LabelledTask, Task, Model]:
    """Return a task with a model that was fine-tuned for it.

    Args:
        task: its name, see `albertkit.finetuning.registry`.
        model: folder or name.
        settings: how the model reads examples.
        device: as `engines.devices.read_device` returns it.

    Raises:
        DataError: the model has no head for the task.
        CheckpointError: its head is that of another task.
    """
    labelled = labelled_task(task)
    loaded, report = load_model(model, labelled.architecture, device=device)
    missing = [name for name in report.missing if not name.startswith(labelled.unused)]
    if missing:
        raise DataError(
            f"{model} lacks {', '.join(missing[:3])}: it was not fine-tuned for {task}; "
            f"albertkit finetune {task} makes a model that was"
        )
    tokenizer = AutoTokenizer.from_pretrained(str(model))
    return labelled, labelled.task(tokenizer, loaded.config, settings), loaded
