"""Accuracy against depth: a model that exits early, evaluated with every patience."""

import time
from dataclasses import dataclass
from pathlib import Path

from albertkit.early_exit import exits_of, most_patience
from albertkit.engines.light_model import LightModel, Model
from albertkit.engines.torch_engine import TorchEngine
from albertkit.errors import ConfigError
from albertkit.extras import optional
from albertkit.files import write_picture
from albertkit.finetuning.evaluation import EvaluationSet
from albertkit.modeling.task_heads import AlbertForSequenceClassification

_ROUNDS = 2  # the faster one counts: the first also warms up

matplotlib_figure = optional("matplotlib.figure", extra="train")


@dataclass(frozen=True)
class CurvePoint:
    """An evaluation with one patience."""

    patience: int | None
    """None: all depths."""
    metric: float
    """The main one."""
    mean_depth: float
    """Layers that an example went through."""
    seconds: float


def early_exit_curve(
    examples: EvaluationSet, model: Model, *, main_metric: str | None = None
) -> tuple[str, list[CurvePoint]]:
    """Return the name of the metric, and an evaluation with each patience, at last with all depths.

    Raises:
        ConfigError: the model was not trained with early exit.
    """
    if isinstance(model, LightModel):
        model = model.to_module()
    if not isinstance(model, AlbertForSequenceClassification) or exits_of(model.config) is None:
        raise ConfigError(
            "this model has no classifiers to exit at: albertkit finetune text-classification --early-exit "
            "makes a model that has"
        )
    depth, before, name = model.config.depth, model.patience, ""
    points: dict[int | None, CurvePoint] = {}
    for _ in range(_ROUNDS):
        for patience in (*range(1, most_patience(model.config) + 1), None):
            model.set_patience(patience)
            engine = TorchEngine(model)
            begin = time.perf_counter()
            found = examples.evaluate(model, model.config, main_metric=main_metric, engine=engine)
            seconds, name = time.perf_counter() - begin, found.main_metric
            if patience in points:
                seconds = min(seconds, points[patience].seconds)
            counts = engine.exit_depths or {depth: len(found.examples)}
            mean = sum(number * count for number, count in counts.items()) / len(found.examples)
            points[patience] = CurvePoint(patience, found.metrics[name], mean, seconds)
    model.set_patience(before)
    return name, list(points.values())


def draw_curve(name: str, points: list[CurvePoint], target: Path) -> None:
    """Draw a curve to a .png, .svg or .pdf file; the name was checked (`files.check_picture`).

    Raises:
        MissingExtraError: Matplotlib is not installed.
    """
    figure = matplotlib_figure.Figure(figsize=(8, 3.6), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    whole = points[-1]
    for panel, label, values in zip(
        panels,
        ("layers of an example, on average", "times as fast as all layers"),
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
