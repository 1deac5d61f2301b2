"""Checks of the objective of a task: its arguments, and the loss that it returns."""

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor

from albertkit.errors import ConfigError, short
from albertkit.heads import HEADS
from albertkit.tasks.task import Task


def check_logits(task: Task) -> None:
    """Raise ConfigError if the model lacks the logits that the objective of the task needs."""
    scores = HEADS[task.architecture].scores.get("logits")
    if callable(task.objective) and (scores is None or scores.names != ("logits",)):
        raise ConfigError(
            f"the objective of {task.name} is a function of logits and labels, and {task.architecture} has "
            "none under that name. Expected objective = 'head', or an architecture with one tensor of logits."
        )


def check_loss(task: Task, loss: Any) -> None:
    """Raise ConfigError unless the result of an objective is a loss: a number with gradients."""
    if not isinstance(loss, Tensor):
        problem = f"returned {short(loss)} ({type(loss).__name__})"
    elif loss.numel() != 1:
        problem = f"returned a tensor of shape {tuple(loss.shape)}"
    elif not loss.requires_grad:
        problem = "returned a loss that does not depend on the logits"
    else:
        return
    raise ConfigError(
        f"the objective of {task.name} {problem}. Expected the mean loss over labeled items: a tensor with "
        "one element, computed from the logits with operations of PyTorch."
    )


def check_signature(task: Task, objective: Callable[..., Any]) -> None:
    """Raise ConfigError for a function that cannot be called with logits and labels."""
    try:
        signature = inspect.signature(objective)
    except ValueError:  # functions that are not written in Python may have no signature
        return
    try:
        signature.bind("logits", "labels")
    except TypeError as error:
        raise ConfigError(
            f"the objective of {task.name} cannot be called with logits and labels ({error}). Expected "
            "objective = staticmethod(function), where function takes (logits, labels), or a method of the "
            "task that takes (self, logits, labels)."
        ) from None
