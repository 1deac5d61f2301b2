"""Measure the accuracy drop of a model in int8.

On labeled data, it is the drop of the task's metric. On texts, it is the share of predictions that change.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from albertkit.checkpoints.arrays import DTYPES
from albertkit.checkpoints.match import fit
from albertkit.checkpoints.onnx_file import read_onnx
from albertkit.checkpoints.sentence_modules import TASK as SENTENCE_EMBEDDING
from albertkit.checkpoints.sentence_modules import sentence_modules
from albertkit.config import AlbertConfig
from albertkit.conversion import cast
from albertkit.datasets.rows import format_of
from albertkit.devices import CPU
from albertkit.engines.light_model import LightModel
from albertkit.errors import CheckpointError, DataError
from albertkit.export.check import Batch, expected_outputs, run_batches
from albertkit.finetuning.evaluate import EvaluationSet
from albertkit.finetuning.trained import open_trained
from albertkit.heads import head_of
from albertkit.tasks.loading import load_splits
from albertkit.tasks.registry import TASKS
from albertkit.tokenization.base import TokenizerBase

AGREEMENT = "agreement"
ENOUGH_EXAMPLES = 200
"""Number of examples of which one changes a metric by the default maximum drop, 0.5 points."""
ANY_DROP = math.inf
"""A maximum accuracy drop that accepts every drop, also NaN."""


@dataclass(frozen=True, slots=True)
class AccuracyDrop:
    """The accuracy drop of a model in int8."""

    metric: str
    exact: float
    """The metric in float32, in percentage points."""
    rounded: float
    """The metric in int8."""
    examples: int

    @property
    def points(self) -> float:
        """The drop in percentage points."""
        return self.exact - self.rounded

    def __str__(self) -> str:
        return (
            f"loses {self.points:.2f} points of {self.metric} ({self.exact:.2f} to {self.rounded:.2f}, on "
            f"{self.examples} examples)"
        )

    @property
    def note(self) -> str | None:
        """What a drop on few examples cannot show; None for enough examples."""
        if self.examples >= ENOUGH_EXAMPLES:
            return None
        return (
            f"the accuracy drop of int8 is measured on {self.examples} predictions. One of them is "
            f"{100 / self.examples:.1f} points, so smaller drops are not visible. Pass labeled examples or "
            f"texts for at least {ENOUGH_EXAMPLES} predictions as calibrate (--calibrate)"
        )

    @property
    def advice(self) -> str:
        """What to do if the drop is too large."""
        if math.isnan(self.points):
            return "Check the model's weights for numbers that are NaN or infinite."
        return (
            "Raise max_drop (--max-drop), or measure on more examples of the model's task (calibrate, "
            "--calibrate)."
        )

    def refuse_beyond(self, most: float) -> None:
        """Raise CheckpointError if the drop exceeds `most` percentage points."""
        if most != ANY_DROP and not self.points <= most:  # this form also fails for NaN
            raise CheckpointError(
                f"In int8 the model loses {self.points:.2f} points of {self.metric} ({self.exact:.2f} to "
                f"{self.rounded:.2f}, {self.examples} examples). Expected at most {most:g}. Nothing was "
                f"written. {self.advice}"
            )


def labeled_task(file: Path, architecture: str, config: AlbertConfig) -> str | None:
    """Return the task whose labeled examples a file has, or None for texts.

    A `.txt` file has texts, unless the model tags words.

    Args:
        file: the file.
        architecture: the name of the model class.
        config: of the model.
    """
    task = head_of(architecture).task
    if task == "feature-extraction" and sentence_modules(config) is not None:
        task = SENTENCE_EMBEDDING
    if task in TASKS and (file.suffix != ".txt" or task == "token-classification"):
        return task
    try:
        format_of(file)
    except DataError:
        raise DataError(
            f"{file} is not a file of texts, and the accuracy drop of a model for {task} is not measured on "
            "labeled examples. Expected a .txt file with one text per line as calibrate (--calibrate)."
        ) from None
    return None


def measure_on_labels(
    source: str | Path, task: str, architecture: str, rounded: Path, data: Path, columns: dict[str, Any]
) -> AccuracyDrop:
    """Return the drop of the task's main metric.

    Args:
        source: the model.
        task: the name of the task.
        architecture: the name of the model class.
        rounded: the file in int8.
        data: labeled examples.
        columns: fields of `DataOptions`, which override those of the fine-tuning.
    """
    setup = open_trained(
        str(source),
        task,
        str(data),
        columns,
        call=measure_on_labels,
        name="calibrate",
        labeled=True,
        device=CPU,
    )
    exact = setup.model
    weights, _ = fit(architecture, exact.config, cast(read_onnx(rounded), DTYPES["float32"]))
    splits = load_splits(setup.task, {"data": setup.reader}, labels=setup.task.labels)
    setup.task.check_fit(splits.examples["data"])
    examples = EvaluationSet(setup.task, splits.examples["data"])
    before, after = (
        examples.evaluate(model, exact.config, engine=engine)
        for model, engine in (
            (exact, "onnx"),
            (LightModel(architecture, exact.config, weights), "onnx-int8"),
        )
    )
    name = before.main_metric
    return AccuracyDrop(name, 100 * before.metrics[name], 100 * after.metrics[name], len(examples.examples))


def measure_agreement(
    rounded: Path,
    model: LightModel,
    tokenizer: TokenizerBase | None,
    texts: Sequence[str],
    *,
    optional_inputs: bool,
) -> AccuracyDrop:
    """Return how many predictions of the int8 file equal the model's, for the output with the fewest."""
    # Other heads ignore the problem type, which may be that of another head's labels.
    classifies = head_of(model.architecture).task == "text-classification"
    several = classifies and model.config.problem_type == "multi_label_classification"
    agreed: dict[str, list[float]] = {}
    for batch, outputs in run_batches(rounded, model, tokenizer, texts, optional_inputs=optional_inputs):
        expected = expected_outputs(model, batch)
        for name, actual in outputs.items():
            decisions = _agreements(name, actual, expected[name], batch, several=several)
            agreed.setdefault(name, []).extend(decisions)
    name = min(agreed, key=lambda one: np.nan_to_num(np.mean(agreed[one]), nan=-1.0))
    return AccuracyDrop(AGREEMENT, 100.0, 100 * float(np.mean(agreed[name])), len(agreed[name]))


def _agreements(
    name: str, actual: np.ndarray, expected: np.ndarray, batch: Batch, *, several: bool
) -> Iterator[float]:
    """Yield 1 for each prediction that is equal and 0 for each other one; for vectors, yield their cosine.

    With `several`, each label of a text is a prediction. If a number is not finite, yield NaN, because
    `argmax` finds the first NaN in both.
    """
    if not (np.isfinite(actual).all() and np.isfinite(expected).all()):
        yield math.nan
        return
    real = batch.get("attention_mask", np.ones_like(batch["input_ids"])).astype(bool)
    if name in ("start_logits", "end_logits"):  # (B, T): the decision is a place in the text
        actual, expected = (np.where(real, logits, -np.inf) for logits in (actual, expected))
    elif expected.ndim == 3:  # (B, T, K): a decision for each token
        actual, expected = actual[real], expected[real]
    if name in ("last_hidden_state", "pooler_output"):
        lengths = np.linalg.norm(actual, axis=-1) * np.linalg.norm(expected, axis=-1)
        cosines = (actual * expected).sum(-1) / np.where(lengths, lengths, 1)
        yield from np.where((actual == expected).all(-1), 1.0, cosines)  # also for vectors that are zero
    elif expected.shape[-1] == 1 and batch["input_ids"].ndim == 2:  # a score, not the only choice
        yield from np.maximum(0, 1 - np.abs(actual - expected)[:, 0] / np.maximum(1, np.abs(expected[:, 0])))
    elif several:
        yield from ((actual > 0) == (expected > 0)).astype(float).reshape(-1)
    else:
        yield from (actual.argmax(-1) == expected.argmax(-1)).astype(float)
