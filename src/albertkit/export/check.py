"""Compare an ONNX file with its model on real text, and measure the accuracy drop of int8.

The batches differ in number of texts, length, padding, segments, and in the omitted inputs. A file in
floating point must equal the NumPy reference. For int8, the accuracy drop is that of the task's metric on
labeled data, or the share of predictions that change on texts.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from albertkit import reference
from albertkit.checkpoints.arrays import DTYPES
from albertkit.checkpoints.folder import read_onnx
from albertkit.checkpoints.match import fit
from albertkit.checkpoints.sentence_modules import TASK as SENTENCE_EMBEDDING
from albertkit.checkpoints.sentence_modules import sentence_modules
from albertkit.config import AlbertConfig
from albertkit.conversion import cast
from albertkit.devices import CPU
from albertkit.engines.light_model import LightModel
from albertkit.errors import CheckpointError
from albertkit.extras import optional
from albertkit.finetuning.evaluate import EvaluationSet
from albertkit.finetuning.trained import open_trained
from albertkit.heads import head_of
from albertkit.tasks.loading import load_splits
from albertkit.tasks.registry import TASKS
from albertkit.tokenization.base import TokenizerBase

onnxruntime = optional("onnxruntime")

TEXTS = (
    "It rains.",
    "The captain looked at the sea, and then at the map that nobody else had seen.",
    "When was the bridge over the Elbe, which is 1,245 metres long, opened to traffic for the first time?",
    "A wonderful film: funny, sad and never too long.",
    "Anna Schmidt moved from Zürich to the São Paulo office of Müller & Sons in May 2019.",
    "他昨天在图书馆借了三本书。",
    "Вчера вечером мы долго говорили про новую книгу, которую она привезла из Петербурга.",
    "No one believed him. He had said it too often; and this time, as it happened, it was true. They "
    "searched the house, the garden and the shed behind it until late in the night, and found nothing "
    "but an old coat, two empty bottles and a letter without a name.",
)
"""Sentences of several lengths, scripts and kinds."""

TOLERANCES = {"float32": 1e-4, "float16": 2e-2}
"""Largest difference from the reference, by the data type of the computation.

In float16, it is relative to the largest number of an output if that is above 1.
"""

BATCH = 8
_LONGEST = 512

Batch = dict[str, np.ndarray]


def run_batches(
    path: Path,
    model: LightModel,
    tokenizer: TokenizerBase | None,
    texts: Sequence[str],
    *,
    optional_inputs: bool,
) -> Iterator[tuple[Batch, Batch]]:
    """Run a file in ONNX Runtime on the CPU. Yield the inputs of each batch, and the outputs by name.

    Without a tokenizer, the ids are random. With `optional_inputs`, some batches omit mask or segments.
    """
    session = open_session(path)
    names = [output.name for output in session.get_outputs()]
    for batch in _batches(model, tokenizer, texts, optional_inputs=optional_inputs):
        yield batch, dict(zip(names, session.run(names, batch), strict=True))


def _batches(
    model: LightModel, tokenizer: TokenizerBase | None, texts: Sequence[str], *, optional_inputs: bool
) -> Iterator[Batch]:
    """Yield inputs (B, T), or (B, C, T) for choices; without a tokenizer random ids of similar lengths."""
    config = model.config
    longest = min(_LONGEST, config.max_position_embeddings)
    required = () if optional_inputs else ("attention_mask", "token_type_ids")

    def encode(texts: Sequence[str], pairs: Sequence[str] | None = None, *, names: Sequence[str]) -> Batch:
        if tokenizer is None:
            batch = _random_batch(texts, config, longest=longest, pairs=pairs is not None)
        else:
            seconds = None if pairs is None else list(pairs)
            encoded = tokenizer(
                list(texts), seconds, padding=True, truncation=True, max_length=longest, return_tensors="np"
            )
            batch = {name: np.asarray(values, np.int64) for name, values in encoded.items()}
        batch = {name: batch[name] for name in (*names, *required) if name in batch}
        if not head_of(model.architecture).has_choices:
            return batch
        rows, length = batch["input_ids"].shape
        count = 2 if rows % 2 == 0 else rows  # two rows form one question if possible
        return {name: values.reshape(rows // count, count, length) for name, values in batch.items()}

    yield encode(texts[:1], names=("input_ids",))
    for start in range(0, len(texts), BATCH):
        yield encode(texts[start : start + BATCH], names=("input_ids", "attention_mask"))
    if config.type_vocab_size > 1:
        pairs = [*texts[1:BATCH], texts[0]][: len(texts[:BATCH])]
        yield encode(texts[:BATCH], pairs, names=("input_ids", "attention_mask", "token_type_ids"))
    yield encode([" ".join([*texts] * (1 + longest // len(texts)))], names=("input_ids",))


def _random_batch(texts: Sequence[str], config: AlbertConfig, *, longest: int, pairs: bool) -> Batch:
    generator = np.random.default_rng(len(texts))
    lengths = [min(longest, 2 + len(text) // 4) for text in texts]
    shape = (len(texts), max(lengths))
    mask = (np.arange(shape[1]) < np.array(lengths)[:, None]).astype(np.int64)
    segments = np.zeros(shape, np.int64)
    if pairs:
        segments[:, shape[1] // 2 :] = 1
    ids = generator.integers(config.vocab_size, size=shape)
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}


def compare(
    path: Path,
    model: LightModel,
    tokenizer: TokenizerBase | None,
    texts: Sequence[str],
    *,
    optional_inputs: bool,
    compute: str,
) -> tuple[float, list[tuple[int, ...]]]:
    """Compare a file in ONNX Runtime with its model. `compute` is the data type of the file's computation.

    Returns:
        The largest difference of any output, without the scores of padding, and the shapes of the batches.
    """
    dtype: type = np.float32
    tolerance = TOLERANCES[compute]
    largest, shapes = 0.0, []
    for batch, outputs in run_batches(path, model, tokenizer, texts, optional_inputs=optional_inputs):
        expected = expected_outputs(model, batch, dtype)
        difference, name = _largest_difference(model, batch, outputs, expected, compute)
        if not difference <= tolerance and dtype == np.float32:
            # For large numbers in large models, the difference may be the reference's own rounding.
            dtype = np.float64
            expected = expected_outputs(model, batch, dtype)
            difference, name = _largest_difference(model, batch, outputs, expected, compute)
        if not difference <= tolerance:  # this form also fails for NaN
            exact = compute == "float32"
            advice = "Please report this error" if exact else "Choose the compute 'float32'"
            raise CheckpointError(
                f"The ONNX graph's output {name} differs from the model's on inputs of shape "
                f"{batch['input_ids'].shape} by {difference:.1e}. Expected at most {tolerance:.0e}. "
                f"Nothing was written. {advice}."
            )
        largest = max(largest, difference)
        shapes.append(batch["input_ids"].shape)
    return largest, shapes


def expected_outputs(model: LightModel, batch: Batch, dtype: type = np.float32) -> Batch:
    with np.errstate(invalid="ignore"):  # NaN in weights is found in the outputs
        return reference.forward(
            model.architecture, model.config, model.weights, **batch, dtype=dtype, all_layers=False
        )


def _largest_difference(
    model: LightModel, batch: Batch, outputs: Batch, expected: Batch, compute: str
) -> tuple[float, str]:
    """Return the largest difference of any output from the expected one, and the name of that output.

    Padding does not count. No model has learned it, and nobody reads its scores, but they are rounded up to
    ten times more than those of the texts.
    """
    real = batch.get("attention_mask", np.ones_like(batch["input_ids"])).astype(bool)
    heads = head_of(model.architecture).scores.values()
    of_tokens = {name for one in heads if not one.reads_first for name in one.names}  # (B, T) or (B, T, K)
    differences = []
    for name, values in outputs.items():
        wanted = expected[name]
        if name in of_tokens:
            values, wanted = values[real], wanted[real]
        unit = max(1.0, float(np.abs(wanted).max())) if compute == "float16" else 1.0
        differences.append((float(np.abs(values - wanted).max()) / unit, name))
    return next((one for one in differences if np.isnan(one[0])), max(differences))


def open_session(path: Path) -> Any:
    """Open a file in ONNX Runtime on the CPU."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # only errors, which are raised as well
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the library's errors have no common base class
        raise CheckpointError(
            f"ONNX Runtime {onnxruntime.__version__} cannot run the graph: "
            f"{' '.join(str(error).split()).rstrip('.')}. Try an older opset."
        ) from error


# --- the accuracy drop of int8 ---------------------------------------------------------------------

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
            f"{100 / self.examples:.1f} points, so smaller drops are not visible. Calibrate on labeled "
            f"examples or texts for at least {ENOUGH_EXAMPLES} predictions"
        )

    def excess(self, most: float) -> str | None:
        """Return why the drop is not at most `most` percentage points, or None if it is."""
        if most == ANY_DROP or self.points <= most:
            return None
        if math.isnan(self.points):
            return (
                f"The accuracy drop of int8 cannot be computed: the {self.metric} is {self.exact:.2f} in "
                f"float32 and {self.rounded:.2f} in int8, on {self.examples} examples. Check the weights of "
                "the model, or calibrate on other examples."
            )
        return (
            f"In int8 the model {self}. Expected at most {most:g}. Allow a larger drop, or measure it on "
            "more examples of the model's task."
        )


def labeled_task(file: Path, architecture: str, config: AlbertConfig) -> str | None:
    """Return the task whose labeled examples a file has, or None for texts.

    A `.txt` file has texts, unless the model tags words.
    """
    task = head_of(architecture).task
    if task == "feature-extraction" and sentence_modules(config) is not None:
        task = SENTENCE_EMBEDDING
    return task if task in TASKS and (file.suffix != ".txt" or task == "token-classification") else None


def measure_on_labels(
    source: str | Path, task: str, architecture: str, rounded: Path, data: Path, columns: dict[str, Any]
) -> AccuracyDrop:
    """Return the drop of the task's main metric in the file `rounded`, measured on labeled examples.

    `columns` are fields of `DataOptions`, which override those of the fine-tuning.
    """
    own_task, exact, reader, options = open_trained(
        str(source),
        task,
        str(data),
        columns,
        call=measure_on_labels,
        name="calibrate",
        labeled=True,
        device=CPU,
    )
    weights, _ = fit(architecture, exact.config, cast(read_onnx(rounded), DTYPES["float32"]))
    splits = load_splits(
        own_task,
        {"data": reader},
        labels=own_task.labels,
        merge_labels=options["merge_labels"],
    )
    own_task.check_fit(splits.examples["data"])
    examples = EvaluationSet(own_task, splits.examples["data"])
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
