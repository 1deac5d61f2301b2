"""Tasks that are bound to a config, with or without a tokenizer, but without a model."""

from collections.abc import Sequence
from typing import Any, TypeVar

from albertkit.config import AlbertConfig
from albertkit.tasks.registry import TASKS
from albertkit.tasks.settings import TaskSettings
from albertkit.tasks.task import Task
from albertkit.tokenization.base import TokenizerBase

TaskT = TypeVar("TaskT", bound=Task)


def bound(
    task: TaskT,
    tokenizer: TokenizerBase,
    *,
    labels: Sequence[str] | None = None,
    problem_type: str | None = "single_label_classification",
    truncation: bool = False,
    **settings: Any,
) -> TaskT:
    """Return a task with these settings and labels. The maximum length is 512 tokens."""
    named = {} if labels is None else {"id2label": dict(enumerate(labels)), "problem_type": problem_type}
    return task.bind(tokenizer, AlbertConfig(**named), TaskSettings(truncation=truncation, **settings))


def unread(task: str, **config: Any) -> Any:
    """Return a task for a config, without a tokenizer."""
    return TASKS[task]().bind(None, AlbertConfig(**config))  # type: ignore[arg-type]
