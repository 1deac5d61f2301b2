"""Early exit: its config entries, enabling it in a model, and its accuracy by number of layers."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from albertkit.config import AlbertConfig
from albertkit.early_exit import KEY, Exits, exits_of, most_patience
from albertkit.engines.light_model import LightModel, Model, class_names
from albertkit.errors import ConfigError
from albertkit.extras import optional
from albertkit.files import write_picture
from albertkit.finetuning.evaluation import EvaluationSet
from albertkit.finetuning.settings import FinetuningSettings
from albertkit.tasks.task import Task

_CLASS = "AlbertForSequenceClassification"
_ROUNDS = 2  # the faster one is used, because the first also warms up

matplotlib_figure = optional("matplotlib.figure", extra="train")


def note_exits(task: Task, config: AlbertConfig, settings: FinetuningSettings) -> None:
    """Record in a config whether the model to train has classifiers after all layers.

    Raises:
        ConfigError: the task or a setting does not support early exit.
    """
    config.extra.pop(KEY, None)  # from the initial model
    if not settings.early_exit:
        return
    if task.architecture != _CLASS:
        raise ConfigError("early_exit is for text-classification. Omit it.")
    if task.objective != "head":
        raise ConfigError(
            f"early_exit needs the objective 'head', but {task.name} has {task.objective_name!r}, which "
            "would not train the classifiers of earlier layers. Omit early_exit."
        )
    if settings.class_weights != "none":
        raise ConfigError("early_exit and class_weights cannot be combined. Omit one of them.")
    if most_patience(config) < 1:
        raise ConfigError(
            f"early_exit needs a model with at least 3 layers, but this one has {config.depth}. Omit it."
        )
    Exits(settings.exit_classifiers, settings.exit_tolerance).note(config)


def set_patience(model: Model, patience: int | None) -> None:
    """Enable early exit in a model, which becomes a PyTorch model for this; None changes nothing.

    Raises:
        ConfigError: the model has no early exit.
        MissingExtraError: torch is not installed.
    """
    if patience is None:
        return
    if _CLASS not in class_names(model):
        raise ConfigError(
            f"patience is {patience}, but the model is not an AlbertForSequenceClassification. Omit "
            "patience, or choose a model for text-classification."
        )
    cast(Any, model).set_patience(patience)


@dataclass(frozen=True)
class CurvePoint:
    """An evaluation with one patience."""

    patience: int | None
    """Number of consecutive layers that must agree; None for all layers."""
    metric: float
    """The main metric."""
    mean_depth: float
    """Mean number of layers executed per example."""
    seconds: float


def measure_curve(
    examples: EvaluationSet, model: Model, *, main_metric: str | None = None
) -> tuple[str, list[CurvePoint]]:
    """Return the name of the metric, and an evaluation for each patience, the last one with all layers.

    Raises:
        ConfigError: the model was not trained with early exit.
    """
    from albertkit.engines.torch_engine import TorchEngine  # counts the layers, and needs torch

    module: Any = model.to_module() if isinstance(model, LightModel) else model
    if _CLASS not in class_names(model) or exits_of(model.config) is None:
        raise ConfigError(
            "this model has no classifiers to exit at. To train one that has them, use albertkit finetune "
            "text-classification --early-exit"
        )
    depth, before, name = module.config.depth, module.patience, ""
    points: dict[int | None, CurvePoint] = {}
    for _ in range(_ROUNDS):
        for patience in (*range(1, most_patience(module.config) + 1), None):
            module.set_patience(patience)
            engine = TorchEngine(module)
            begin = time.perf_counter()
            found = examples.evaluate(module, module.config, main_metric=main_metric, engine=engine)
            seconds, name = time.perf_counter() - begin, found.main_metric
            if patience in points:
                seconds = min(seconds, points[patience].seconds)
            counts = engine.exit_depths or {depth: len(found.examples)}
            mean = sum(number * count for number, count in counts.items()) / len(found.examples)
            points[patience] = CurvePoint(patience, found.metrics[name], mean, seconds)
    module.set_patience(before)
    return name, list(points.values())


def draw_curve(name: str, points: list[CurvePoint], target: Path) -> None:
    """Draw a curve to a .png, .svg or .pdf file; `files.check_picture` has checked the name.

    Raises:
        MissingExtraError: Matplotlib is not installed.
    """
    figure = matplotlib_figure.Figure(figsize=(8, 3.6), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    whole = points[-1]
    for panel, label, values in zip(
        panels,
        ("mean number of layers", "speedup over all layers"),
        ([one.mean_depth for one in points], [whole.seconds / one.seconds for one in points]),
        strict=True,
    ):
        panel.plot(values, [one.metric for one in points], "o-")
        for value, one in zip(values, points, strict=True):
            text = "all" if one.patience is None else str(one.patience)
            panel.annotate(text, (value, one.metric), xytext=(4, 4), textcoords="offset points")
        panel.set(xlabel=label)
        panel.grid(alpha=0.3)
    panels[0].set(ylabel=name, title="by patience")
    write_picture(figure, target, dpi=130)
