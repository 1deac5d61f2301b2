"""The loss of a model in int8: in its metric on labeled data, or in the share of equal decisions on texts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from albertkit.checkpoints.arrays import DTYPES
from albertkit.checkpoints.onnx_file import read_onnx
from albertkit.checkpoints.shapes import fit
from albertkit.config import AlbertConfig
from albertkit.conversion import cast
from albertkit.datasets.options import DataOptions
from albertkit.engines.light_model import LightModel
from albertkit.errors import CheckpointError, DataError
from albertkit.finetuning.evaluation import EvaluationSet
from albertkit.finetuning.trained import load_task
from albertkit.heads import head_of
from albertkit.inputs import format_of, read_inputs
from albertkit.onnx.check import Batch, Model, batches, expected_outputs, open_session
from albertkit.tasks.loading import load_splits
from albertkit.tasks.registry import TASKS
from albertkit.tasks.settings import TaskSettings
from albertkit.tokenization.base import TokenizerBase

AGREEMENT = "agreement"


@dataclass(frozen=True, slots=True)
class Loss:
    """The loss of a model in int8."""

    metric: str
    exact: float
    """The metric in float32, in points of 100."""
    rounded: float
    """The metric in int8."""
    examples: int

    @property
    def drop(self) -> float:
        """Points lost."""
        return self.exact - self.rounded

    def __str__(self) -> str:
        return (
            f"loses {self.drop:.2f} points of {self.metric} ({self.exact:.2f} to {self.rounded:.2f}, on "
            f"{self.examples} examples)"
        )

    def refuse_beyond(self, most: float) -> None:
        """Raise CheckpointError if more points are lost."""
        if not self.drop <= most:  # this form also fails for NaN
            raise CheckpointError(
                f"In int8 the model loses {self.drop:.2f} points of {self.metric} ({self.exact:.2f} to "
                f"{self.rounded:.2f}, {self.examples} examples). Expected at most {most:g}. Nothing was "
                "written. Raise max_drop (--max-drop), or measure on more examples of the model's task "
                "(calibrate, --calibrate)."
            )


def is_labeled(file: Path, architecture: str) -> bool:
    """Tell whether a file has examples with labels: a `.txt` has texts, unless it is of tagged words."""
    task = head_of(architecture).task
    return task in TASKS and (file.suffix != ".txt" or task == "token-classification")


def read_texts(file: Path) -> list[str]:
    """Return the texts of a file.

    Raises:
        DataError: there are none.
    """
    with file.open("rb") as stream:
        texts = list(read_inputs(stream, str(file), format=format_of(file), fields=("text",)))
    if not texts:
        raise DataError(f"{file} has no texts to compare on. Expected one text per line.")
    return texts


def measure_on_labels(
    source: str | Path, architecture: str, rounded: Path, data: Path, *, options: DataOptions
) -> Loss:
    """Return what the task's main metric loses.

    Args:
        source: the model.
        architecture: the name of a model class whose task has labeled files.
        rounded: the file in int8.
        data: labeled examples.
        options: where the examples are in it.
    """
    task, exact = load_task(head_of(architecture).task, source, TaskSettings())
    weights, _ = fit(architecture, exact.config, cast(read_onnx(rounded), DTYPES["float32"]))
    splits = load_splits(task, {"data": task.reader(str(data), options)}, labels=task.labels)
    examples = EvaluationSet(task, splits.examples["data"])
    before, after = (
        examples.evaluate(model, exact.config, engine=engine)
        for model, engine in (
            (exact, "onnx"),
            (LightModel(architecture, exact.config, weights), "onnx-int8"),
        )
    )
    name = before.main_metric
    return Loss(name, 100 * before.metrics[name], 100 * after.metrics[name], len(examples.examples))


def measure_agreement(
    rounded: Path,
    model: Model,
    tokenizer: TokenizerBase | None,
    texts: Sequence[str],
    *,
    optional_inputs: bool,
) -> Loss:
    """Return how often the file in int8 decides as the model does, by the output that does so least often."""
    session = open_session(rounded)
    names = [output.name for output in session.get_outputs()]
    architecture, config, _ = model
    choices = head_of(architecture).has_choices
    agreed: dict[str, list[float]] = {name: [] for name in names}
    for batch in batches(tokenizer, config, texts, choices=choices, all_inputs=not optional_inputs):
        outputs = dict(zip(names, session.run(names, batch), strict=True))
        expected = expected_outputs(model, batch)
        for name in names:
            agreed[name] += _agreements(name, outputs[name], expected[name], batch, config)
    name = min(names, key=lambda one: np.mean(agreed[one]))
    return Loss(AGREEMENT, 100.0, 100 * float(np.mean(agreed[name])), len(agreed[name]))


def _agreements(
    name: str, actual: np.ndarray, expected: np.ndarray, batch: Batch, config: AlbertConfig
) -> Iterator[float]:
    """Yield 1 for each decision that is the same, else 0; for vectors their cosine."""
    real = batch.get("attention_mask", np.ones_like(batch["input_ids"])).astype(bool)
    if name in ("start_logits", "end_logits"):  # (B, T): the decision is a place in the text
        actual, expected = (np.where(real, logits, -np.inf) for logits in (actual, expected))
    elif expected.ndim == 3:  # (B, T, K): a decision for each token
        actual, expected = actual[real], expected[real]
    if name in ("last_hidden_state", "pooler_output"):
        lengths = np.linalg.norm(actual, axis=-1) * np.linalg.norm(expected, axis=-1)
        yield from (actual * expected).sum(-1) / lengths
    elif expected.shape[-1] == 1:  # a score
        yield from np.maximum(0, 1 - np.abs(actual - expected)[:, 0] / np.maximum(1, np.abs(expected[:, 0])))
    elif config.problem_type == "multi_label_classification":
        yield from ((actual > 0) == (expected > 0)).astype(float).reshape(-1)
    else:
        yield from (actual.argmax(-1) == expected.argmax(-1)).astype(float)
