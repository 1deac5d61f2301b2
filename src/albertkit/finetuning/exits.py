"""Early exit: what a config notes of it, and letting a model exit early."""

from typing import Any, cast

from albertkit.config import AlbertConfig
from albertkit.early_exit import KEY, Exits, most_patience
from albertkit.engines.light_model import Model, class_names
from albertkit.errors import ConfigError
from albertkit.finetuning.labelled_task import LabelledTask
from albertkit.finetuning.settings import FinetuningSettings


def note_exits(labelled: LabelledTask, config: AlbertConfig, settings: FinetuningSettings) -> None:
    """Put into a config whether the model that is to be trained has classifiers at all depths.

    Raises:
        ConfigError: a task or setting that does not go with it.
    """
    config.extra.pop(KEY, None)  # of the model to begin with
    if not settings.early_exit:
        return
    if labelled.architecture != "AlbertForSequenceClassification":
        raise ConfigError("early_exit is for text-classification; leave it out")
    if settings.class_weights != "none":
        raise ConfigError("early_exit and class_weights do not go together; leave one of them out")
    if most_patience(config) < 1:
        raise ConfigError(f"early_exit needs a model of at least 3 depths, and this one has {config.depth}")
    Exits(settings.exit_classifiers, settings.exit_tolerance).note(config)


def set_patience(model: Model, patience: int | None) -> None:
    """Let a model exit early, for which it becomes a PyTorch model; None leaves it as it is.

    Raises:
        ConfigError: it cannot.
        MissingExtraError: torch is not installed.
    """
    if patience is None:
        return
    if "AlbertForSequenceClassification" not in class_names(model):
        raise ConfigError(
            f"patience is {patience}, but the model is no AlbertForSequenceClassification: leave it out, or "
            "choose a model for text-classification"
        )
    cast(Any, model).set_patience(patience)
