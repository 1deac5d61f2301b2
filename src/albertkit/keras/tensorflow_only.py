"""The features of the Keras classes that need TensorFlow: data sets and SavedModels."""

import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from albertkit.errors import DataError, MissingExtraError
from albertkit.keras.layers import keras
from albertkit.model_inputs import NAMES


def _tensorflow() -> Any:
    try:
        import tensorflow
    except ImportError as error:
        raise MissingExtraError(
            f"this needs TensorFlow, which cannot be imported ({error}): pip install tensorflow"
        ) from error
    return tensorflow


def collate(tokenizer: Any, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Stack rows into a batch. If there is a tokenizer, pad the inputs, and labels of tokens with -100."""
    batch: dict[str, Any] = {}
    is_left = tokenizer is not None and tokenizer.padding_side == "left"
    if tokenizer is not None:
        inputs = [{name: value for name, value in row.items() if name in NAMES} for row in rows]
        if np.ndim(inputs[0]["input_ids"][0]):
            batch = _pad_choices(tokenizer, inputs)
        else:
            batch = dict(tokenizer.pad(inputs, return_tensors="np"))
    for name in rows[0].keys() - batch.keys():
        values = [np.asarray(row[name]) for row in rows]
        lengths = [len(row["input_ids"]) for row in rows] if batch else []
        # Labels of a whole text, such as several classes, do not have the length of its tokens.
        if name == "labels" and [value.shape for value in values] == [(length,) for length in lengths]:
            missing = [batch["input_ids"].shape[-1] - length for length in lengths]
            sides = [(more, 0) if is_left else (0, more) for more in missing]
            values = [
                np.pad(value, side, constant_values=-100) for value, side in zip(values, sides, strict=True)
            ]
        batch[name] = np.stack(values)
    return batch


def _pad_choices(tokenizer: Any, rows: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Pad and stack rows of choices: values (C, T) of each row -> (B, C, T)."""
    counts = sorted({len(values) for row in rows for values in row.values()})
    if len(counts) > 1:
        raise DataError(f"the rows of a batch have {counts} choices. Expected the same number in each.")
    choices = [{name: row[name][index] for name in row} for row in rows for index in range(counts[0])]
    batch = tokenizer.pad(choices, return_tensors="np")
    return {name: values.reshape(len(rows), counts[0], -1) for name, values in batch.items()}


def batches_of(
    dataset: Any,
    *,
    labels: Mapping[str, str],
    batch_size: int,
    shuffle: bool,
    collate: Callable[[list[dict[str, Any]]], Mapping[str, Any]],
    drop_remainder: bool,
) -> Any:
    """Return a `tf.data.Dataset` of batches; see `TFAlbertPreTrainedModel.prepare_tf_dataset`.

    `labels` has the name of the scores that each label column is compared with.
    """
    tensorflow = _tensorflow()
    if not len(dataset) or not {"input_ids", "inputs_embeds"} & {*dataset[0]}:
        raise DataError("the data set has no rows with input_ids. Tokenize it first.")
    columns = {name: "labels" if name == "label" else name for name in dataset[0]}
    columns = {name: column for name, column in columns.items() if column in (*NAMES, *labels)}
    count = len(dataset) // batch_size if drop_remainder else -(-len(dataset) // batch_size)
    if not count:
        raise DataError(
            f"the data set has fewer rows ({len(dataset)}) than a batch ({batch_size}). Reduce batch_size, "
            "or set drop_remainder=False."
        )

    def split(rows: list[dict[str, Any]]) -> Any:
        batch = dict(collate([{column: row[name] for name, column in columns.items()} for row in rows]))
        targets = {labels[name]: np.asarray(batch.pop(name)) for name in labels if name in batch}
        inputs = {name: np.asarray(value) for name, value in batch.items()}
        if not targets:
            return inputs
        return inputs, targets if len(labels) > 1 else next(iter(targets.values()))

    def generate() -> Iterator[Any]:
        order = range(len(dataset))
        if shuffle:
            order = random.sample(order, len(order))  # `keras.utils.set_random_seed` seeds this generator
        last = len(order) - len(order) % batch_size if drop_remainder else len(order)
        for start in range(0, last, batch_size):
            yield split([dataset[index] for index in order[start : start + batch_size]])

    first = [dataset[index] for index in range(min(batch_size, len(dataset)))]
    signature = tensorflow.nest.map_structure(  # sizes may differ between batches
        lambda values: tensorflow.TensorSpec((None,) * values.ndim, values.dtype), split(first)
    )
    batches = tensorflow.data.Dataset.from_generator(generate, output_signature=signature)
    return batches.apply(tensorflow.data.experimental.assert_cardinality(count)).prefetch(1)


def write_saved_model(model: Any, folder: Path) -> None:
    """Write a SavedModel; its signature "serving_default" takes ids, mask and segments."""
    tensorflow = _tensorflow()
    shape = (None,) * (3 if model.head.has_choices else 2)
    names = ("input_ids", "attention_mask", "token_type_ids")
    signature = {name: tensorflow.TensorSpec(shape, "int32", name=name) for name in names}

    def serve(inputs: dict[str, Any]) -> dict[str, Any]:
        output = model(inputs, return_dict=True)
        return {name: value for name, value in output.items() if not isinstance(value, tuple)}

    archive: Any = keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint("serving_default", serve, input_signature=[signature])
    archive.write_out(str(folder), verbose=False)
