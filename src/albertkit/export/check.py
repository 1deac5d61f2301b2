"""Compare an ONNX file with the NumPy reference of its model on real text.

The batches differ in number of texts, length, padding, segments, and in the omitted inputs.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from albertkit import reference
from albertkit.config import AlbertConfig
from albertkit.engines.light_model import LightModel
from albertkit.errors import CheckpointError
from albertkit.extras import optional
from albertkit.heads import head_of
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

    Args:
        path: the file.
        model: the model of the file.
        tokenizer: the model's tokenizer; None uses random ids instead of texts.
        texts: at least one.
        optional_inputs: whether some batches omit the mask, the segments, or both.
    """
    session = open_session(path)
    names = [output.name for output in session.get_outputs()]
    for batch in _batches(model, tokenizer, texts, optional_inputs=optional_inputs):
        yield batch, dict(zip(names, session.run(names, batch), strict=True))


def _batches(
    model: LightModel, tokenizer: TokenizerBase | None, texts: Sequence[str], *, optional_inputs: bool
) -> Iterator[Batch]:
    """Yield inputs (B, T), or (B, C, T) for choices."""
    config, choices = model.config, head_of(model.architecture).has_choices
    longest = min(_LONGEST, config.max_position_embeddings)
    encode = partial(_encode, tokenizer=tokenizer, config=config, longest=longest)
    names = () if optional_inputs else ("attention_mask", "token_type_ids")
    yield _shape(encode(texts[:1]), choices, ("input_ids", *names))
    for start in range(0, len(texts), BATCH):
        yield _shape(encode(texts[start : start + BATCH]), choices, ("input_ids", "attention_mask", *names))
    if config.type_vocab_size > 1:
        pairs = encode(texts[:BATCH], [*texts[1:BATCH], texts[0]][: len(texts[:BATCH])])
        yield _shape(pairs, choices, ("input_ids", "attention_mask", "token_type_ids"))
    yield _shape(encode([" ".join([*texts] * (1 + longest // len(texts)))]), choices, ("input_ids", *names))


def _encode(
    texts: Sequence[str],
    pairs: Sequence[str] | None = None,
    *,
    tokenizer: TokenizerBase | None,
    config: AlbertConfig,
    longest: int,
) -> Batch:
    """Return texts, or pairs, as one padded batch; without a tokenizer random ids of similar lengths."""
    if tokenizer is not None:
        seconds = None if pairs is None else list(pairs)
        encoded = tokenizer(
            list(texts), seconds, padding=True, truncation=True, max_length=longest, return_tensors="np"
        )
        return {name: np.asarray(values, np.int64) for name, values in encoded.items()}
    generator = np.random.default_rng(len(texts))
    lengths = [min(longest, 2 + len(text) // 4) for text in texts]
    shape = (len(texts), max(lengths))
    mask = (np.arange(shape[1]) < np.array(lengths)[:, None]).astype(np.int64)
    segments = np.zeros(shape, np.int64)
    if pairs is not None:
        segments[:, shape[1] // 2 :] = 1
    ids = generator.integers(config.vocab_size, size=shape)
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}


def _shape(batch: Batch, choices: bool, names: Sequence[str]) -> Batch:
    """Keep some of the inputs; for choices, two rows form one question if possible."""
    kept = {name: batch[name] for name in names}
    if not choices:
        return kept
    rows, length = batch["input_ids"].shape
    count = 2 if rows % 2 == 0 else rows
    return {name: values.reshape(rows // count, count, length) for name, values in kept.items()}


def compare(
    path: Path,
    model: LightModel,
    tokenizer: TokenizerBase | None,
    texts: Sequence[str],
    *,
    optional_inputs: bool,
    compute: str,
) -> tuple[float, list[tuple[int, ...]]]:
    """Compare a file in ONNX Runtime with its model.

    The model is computed in float32, and again in float64 if that is needed to distinguish rounding from a
    difference. For the arguments see `run_batches`; `compute` is the data type of the file's computation,
    whose tolerance in `TOLERANCES` applies to all outputs.

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
            advice = "Please report this error" if exact else "Choose the compute 'float32' (--compute)"
            raise CheckpointError(
                f"The ONNX graph's output {name} differs from the model's on inputs of shape "
                f"{batch['input_ids'].shape} by {difference:.1e}. Expected at most {tolerance:.0e}. "
                f"Nothing was written. {advice}."
            )
        largest = max(largest, difference)
        shapes.append(batch["input_ids"].shape)
    return largest, shapes


def expected_outputs(model: LightModel, batch: Batch, dtype: type = np.float32) -> Batch:
    """Return a model's outputs for a batch by name, computed in the given data type."""
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
