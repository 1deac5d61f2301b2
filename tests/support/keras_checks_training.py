"""Checks of training with Keras, and of models inside other models."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import torch
from keras_models import (
    NO_DROPOUT,
    SHALLOW,
    TOLERANCE,
    UNCOMPILED,
    USES_TENSORFLOW,
    arrays,
    assert_same_bytes,
    cross_entropy,
    largest_difference,
    on_tensorflow_alone,
    pair,
)
from modeling_twins import batch, labels_for, make

import albertkit
import albertkit.keras
from albertkit.checkpoints.arrays import to_tensors
from albertkit.keras.pretrained import tensors_of

ANSWERS = {"start_positions": torch.tensor([3, 0, 4]), "end_positions": torch.tensor([5, 11, 6])}
STARTS_AND_ENDS = dict(zip(("start_logits", "end_logits"), arrays(ANSWERS).values(), strict=True))
WORDS, ORDER = arrays(labels_for("AlbertForPreTraining")).values()


@pytest.mark.parametrize(
    ("head", "labels", "compiled"),
    [
        ("AlbertForSequenceClassification", np.array([1, 0, 1]), {"loss": cross_entropy()}),
        ("AlbertForPreTraining", (WORDS, ORDER), {"loss": [cross_entropy(), cross_entropy()]}),
        # The loss of PyTorch is the mean of the losses of starts and ends.
        ("AlbertForQuestionAnswering", STARTS_AND_ENDS, {"loss": cross_entropy()}),
    ][: None if USES_TENSORFLOW else 1],  # JAX needs seconds to compile each step
    ids=["one output", "two in a tuple", "two by name"][: None if USES_TENSORFLOW else 1],
)
def test_a_step_of_training_equals_that_of_torch(
    head: str, labels: Any, compiled: dict[str, Any], tmp_path: Path
) -> None:
    ours, model = pair(head, tmp_path, **SHALLOW, **NO_DROPOUT)
    inputs = batch(mask=True, segments=True)
    loss = ours.train()(**inputs, **(ANSWERS if head.endswith("Answering") else labels_for(head))).loss
    loss.backward()
    factor = 2 if head.endswith("Answering") else 1
    torch.optim.SGD(ours.parameters(), lr=0.1 * factor).step()
    given = arrays(inputs)
    if head == "AlbertForSequenceClassification":  # a list in the documented order works too
        given = list(given.values())
        model.compile(optimizer=keras.optimizers.SGD(0.1), **compiled)  # compiled, unlike in other checks
    else:
        model.compile(optimizer=keras.optimizers.SGD(0.1), **compiled, **UNCOMPILED)
    history = model.fit(given, labels, batch_size=3, verbose=0).history
    assert history["loss"][0] == pytest.approx(factor * loss.item(), abs=TOLERANCE)
    after = to_tensors(tensors_of(model))
    for name, tensor in ours.state_dict().items():
        assert (after[name] - tensor).abs().max() < 1e-5, name


@on_tensorflow_alone
def test_outputs_of_a_tokenizer_and_missing_labels(tmp_path: Path) -> None:
    _, model = pair("AlbertForSequenceClassification", tmp_path, **SHALLOW, **NO_DROPOUT)
    inputs, labels = arrays(batch(mask=True, segments=True)), np.array([1, 0, 1])
    encoded = albertkit.BatchEncoding(inputs)
    model.compile(optimizer=keras.optimizers.SGD(0.0), loss=cross_entropy(), **UNCOMPILED)
    loss = model.evaluate(inputs, labels, verbose=0)
    assert model.evaluate(encoded, labels, verbose=0) == loss
    history = model.fit(encoded, labels, validation_data=(encoded, labels), verbose=0).history
    assert history["val_loss"][0] == pytest.approx(loss)
    assert (model.predict(encoded, verbose=0).logits == model.predict(inputs, verbose=0).logits).all()
    for given in (encoded, inputs):
        with pytest.raises(albertkit.DataError, match="there are no labels"):
            model.fit(given, verbose=0)


def test_dropout_acts_with_training_only(tmp_path: Path) -> None:
    values = {"hidden_dropout_prob": 0.5, "attention_probs_dropout_prob": 0.5, "classifier_dropout_prob": 0.5}
    _, model = pair("AlbertForSequenceClassification", tmp_path, **SHALLOW, **values)
    assert [layer.name for layer in model.layers] == ["albert", "dropout", "classifier"]
    ids = batch()["input_ids"].numpy()

    def logits(**options: Any) -> np.ndarray:
        return keras.ops.convert_to_numpy(model(ids, **options)[0])

    assert (logits() == logits(training=False)).all()
    assert (logits(training=True) != logits()).any()
    assert (logits(training=True) != logits(training=True)).any()
    model.compile(optimizer=keras.optimizers.SGD(0.0), loss=cross_entropy(), **UNCOMPILED)
    labels = np.array([1, 0, 1])
    trained = model.fit(ids, labels, epochs=3, verbose=0).history["loss"]
    assert len({round(loss, 4) for loss in trained}) == 3
    if not USES_TENSORFLOW:
        return  # JAX needs seconds to compile each step
    tested = [model.evaluate(ids, labels, verbose=0) for _ in range(2)]
    assert len({round(loss, 4) for loss in [*trained, tested[0]]}) == 4
    assert tested[0] == tested[1]


def in_batches(inputs: dict[str, np.ndarray], labels: np.ndarray) -> Any:
    """Return a `tf.data.Dataset` of one batch, or a Keras `PyDataset` if TensorFlow is not the backend."""
    if USES_TENSORFLOW:
        import tensorflow as tf

        return tf.data.Dataset.from_tensor_slices((inputs, labels)).batch(len(labels))

    class OneBatch(keras.utils.PyDataset):
        def __len__(self) -> int:
            return 1

        def __getitem__(self, index: int) -> Any:
            return inputs, labels

    return OneBatch()


@pytest.mark.filterwarnings("ignore:.*shuffle=True. was passed")
def test_datasets_metrics_and_a_keras_file(tmp_path: Path) -> None:
    _, model = pair("AlbertForSequenceClassification", tmp_path, **SHALLOW, **NO_DROPOUT)
    data = in_batches(arrays(batch(mask=True, segments=True)), np.array([1, 0, 1]))
    optimizer = keras.optimizers.Adam(1e-2)
    model.compile(optimizer=optimizer, loss=cross_entropy(), metrics=["accuracy"], **UNCOMPILED)
    history = model.fit(data, epochs=6, verbose=0).history
    assert history["accuracy"][-1] == 1
    assert history["loss"][-1] < 0.2
    if USES_TENSORFLOW:  # JAX needs seconds to compile each step
        predicted = model.predict(data, verbose=0)
        assert isinstance(predicted.logits, np.ndarray)
        assert predicted[0].argmax(-1).tolist() == [1, 0, 1]

    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert type(again) is type(model)
    assert again.config == model.config
    loaded = tensors_of(again)
    for name, tensor in tensors_of(model).items():
        assert np.array_equal(loaded[name], tensor), name
    assert again.optimizer.iterations == 6
    if not USES_TENSORFLOW:
        return  # JAX would compile the step again
    again.run_eagerly = True
    more = again.fit(data, verbose=0).history
    assert more["accuracy"] == [1]
    assert more["loss"][0] < history["loss"][-1]


def test_inside_a_functional_model(tmp_path: Path) -> None:
    ours, model = pair("AlbertModel", tmp_path, **SHALLOW)
    inputs = {
        name: keras.Input((None,), dtype="int32", name=name) for name in ("input_ids", "attention_mask")
    }
    outputs = model(inputs)
    assert tuple(outputs.last_hidden_state.shape) == (None, None, 32)
    outer = keras.Model(inputs, outputs.pooler_output)
    expected = ours(**batch(mask=True)).pooler_output.detach().numpy()
    outer.save(tmp_path / "outer.keras")
    again = keras.saving.load_model(tmp_path / "outer.keras")
    assert np.abs(again(arrays(batch(mask=True))) - expected).max() < TOLERANCE


def test_as_the_base_of_another_model(tmp_path: Path) -> None:
    class Regressor(albertkit.keras.TFAlbertModel):
        def __init__(self, config: Any, **options: Any) -> None:
            super().__init__(config, **options)
            self.score = keras.layers.Dense(1)

        def call(self, inputs: Any, training: bool = False, **options: Any) -> Any:
            return self.score(super().call(inputs, training, **options).pooler_output)

    make("AlbertModel", **SHALLOW).save_pretrained(tmp_path)
    model = Regressor.from_pretrained(tmp_path)
    ids = batch()["input_ids"].numpy()
    assert tuple(model([ids]).shape) == (3, 1)
    assert len(model.trainable_weights) == 27


@on_tensorflow_alone
@pytest.mark.parametrize(("policy", "tolerance"), [("mixed_bfloat16", 0.1), ("mixed_float16", 0.02)])
def test_mixed_precision_is_close(policy: str, tolerance: float, tmp_path: Path) -> None:
    ours, _ = pair("AlbertForSequenceClassification", tmp_path, **SHALLOW)
    model = albertkit.keras.TFAlbertForSequenceClassification.from_pretrained(tmp_path, dtype=policy)
    inputs = batch(mask=True, segments=True)
    outputs = model(arrays(inputs))
    assert keras.backend.standardize_dtype(outputs[0].dtype) == policy.removeprefix("mixed_")
    assert {variable.dtype for variable in model.trainable_weights} == {"float32"}
    difference = largest_difference(outputs, ours(**inputs))
    assert 0 < difference < tolerance
    model.save_pretrained(tmp_path / "again")
    assert_same_bytes(tmp_path / "again/model.safetensors", tmp_path / "model.safetensors")
    if policy == "mixed_float16":  # Keras scales the gradients of float16 only
        model.compile(optimizer=keras.optimizers.SGD(0.05), loss=cross_entropy(), **UNCOMPILED)
        losses = model.fit(arrays(inputs), np.array([1, 0, 1]), epochs=4, verbose=0).history["loss"]
        assert losses[-1] < losses[0] / 2
