"""Checks of the ways to call a Keras model: inputs, options, outputs, data sets and errors."""

from pathlib import Path

import keras
import numpy as np
import pytest
from keras_models import (
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
from modeling_twins import batch, tiny

import albertkit
import albertkit.keras
from albertkit import AlbertTokenizer
from albertkit.errors import ConfigError


def test_the_documented_input_styles(tmp_path: Path) -> None:
    ours, model = pair("AlbertModel", tmp_path, **SHALLOW)
    inputs = arrays(batch(mask=True, segments=True))
    ids, mask, segments = inputs.values()
    expected = ours(**batch(mask=True, segments=True))
    tokenized = albertkit.BatchEncoding(inputs)
    for outputs in (
        model(inputs),
        model(tokenized),
        model(**inputs),
        model([ids, mask, segments]),
        model((ids, mask, segments)),
        model(ids, mask, segments),
        model(ids, attention_mask=mask, token_type_ids=segments),
        model([ids.tolist(), mask.astype(np.float32), keras.ops.convert_to_tensor(segments)]),
        model({"input_ids": ids, "token_type_ids": segments}, attention_mask=mask),
    ):
        assert largest_difference(outputs, expected) < TOLERANCE
    assert largest_difference(model(ids), ours(batch()["input_ids"])) < TOLERANCE
    assert largest_difference(model([ids, mask]), ours(**batch(mask=True))) < TOLERANCE


def test_outputs_are_tuples_with_names(tmp_path: Path) -> None:
    _, model = pair("AlbertModel", tmp_path, **SHALLOW)
    outputs = model(batch()["input_ids"].numpy())
    states, pooled = outputs
    assert isinstance(outputs, tuple)
    assert outputs[0] is states is outputs.last_hidden_state is outputs["last_hidden_state"]
    assert outputs[1:] == (pooled,) == outputs.to_tuple()[1:]
    with pytest.raises(KeyError, match=r"has no 'logits'. It has last_hidden_state, pooler_output"):
        outputs["logits"]
    model.config.output_hidden_states = model.config.output_attentions = True
    *_, hidden_states, attentions = model(batch()["input_ids"].numpy())
    assert (len(hidden_states), len(attentions)) == (2, 1)
    assert tuple(attentions[0].shape) == (3, 4, 12, 12)


def test_options_within_the_inputs(tmp_path: Path) -> None:
    _, model = pair("AlbertForMaskedLM", tmp_path, **SHALLOW)
    inputs = arrays(batch())
    output = model({**inputs, "output_attentions": True, "output_hidden_states": True})
    assert output.keys() == ["logits", "hidden_states", "attentions"]
    assert model({**inputs, "output_attentions": True}, output_attentions=False).keys() == ["logits"]
    assert model(inputs).attentions is model(inputs).get("attentions") is None
    for plain in (model(inputs, return_dict=False), model({**inputs, "return_dict": False})):
        assert type(plain) is tuple
        assert len(plain) == 1
    model.config.return_dict = False
    assert type(model(inputs)) is tuple
    assert type(model(inputs, return_dict=True)) is not tuple
    if USES_TENSORFLOW:  # JAX needs seconds to compile each step
        model.compile(loss=cross_entropy(), **UNCOMPILED)
        assert np.isfinite(model.evaluate(inputs, inputs["input_ids"], verbose=0))


@on_tensorflow_alone
def test_a_model_is_built_from_a_config() -> None:
    model = albertkit.keras.TFAlbertForPreTraining.from_config(tiny(**SHALLOW, num_labels=3), name="mine")
    assert model.name == "mine"
    assert tuple(model(arrays(batch())).sop_logits.shape) == (3, 3)
    again = type(model).from_config(model.get_config())
    assert again.config == model.config


def test_data_sets_become_batches(tmp_path: Path) -> None:
    _, model = pair("AlbertForQuestionAnswering", tmp_path, **SHALLOW)
    rows = [
        {"input_ids": [5 + index] * (4 + index % 2), "start_positions": 1, "end_positions": 2, "text": "a"}
        for index in range(5)
    ]
    tokenizer = AlbertTokenizer.from_pretrained("bundled")
    if not USES_TENSORFLOW:
        with pytest.raises(albertkit.MissingExtraError, match="pip install tensorflow"):
            model.prepare_tf_dataset(rows, tokenizer=tokenizer)
        return
    batches = model.prepare_tf_dataset(rows, 2, shuffle=False, tokenizer=tokenizer)
    assert len(batches) == 3
    inputs, labels = next(iter(batches))
    assert inputs["input_ids"].numpy().tolist() == [[5, 5, 5, 5, 0], [6, 6, 6, 6, 6]]
    assert inputs["attention_mask"].numpy().sum() == 9
    assert labels["start_logits"].numpy().tolist() == [1, 1]
    model.compile(optimizer="sgd", loss=cross_entropy(), **UNCOMPILED)
    assert np.isfinite(model.fit(batches, verbose=0).history["loss"][0])
    assert (
        len(list(model.prepare_tf_dataset(rows[::2], 2, tokenizer=tokenizer))) == 1
    )  # shuffled data has only full batches
    orders = []
    for _ in range(2):
        keras.utils.set_random_seed(0)
        seen = model.prepare_tf_dataset(rows, 5, tokenizer=tokenizer)
        orders.append(next(iter(seen))[0]["input_ids"].numpy()[:, 0].tolist())
    assert sorted(orders[0]) == [5, 6, 7, 8, 9]
    assert orders[0] == orders[1]
    with pytest.raises(ValueError, match="same shape"):
        model.prepare_tf_dataset(rows, 2)
    with pytest.raises(albertkit.DataError, match=r"rows \(5\) than a batch \(8\)\. .* drop_remainder=False"):
        model.prepare_tf_dataset(rows, tokenizer=tokenizer)
    assert len(model.prepare_tf_dataset(rows, tokenizer=tokenizer, drop_remainder=False)) == 1
    unnamed = model.prepare_tf_dataset([rows[0] | {"label": 1}], 1, shuffle=False)  # no label of this model
    assert next(iter(unnamed))[0].keys() == {"input_ids"}

    _, tagger = pair("AlbertForTokenClassification", tmp_path, **SHALLOW)
    words = [{"input_ids": [5] * length, "label": [1] * length} for length in (2, 3)]
    inputs, labels = next(iter(tagger.prepare_tf_dataset(words, 2, shuffle=False, tokenizer=tokenizer)))
    assert labels.numpy().tolist() == [[1, 1, -100], [1, 1, 1]]
    tokenizer.padding_side = "left"
    inputs, labels = next(iter(tagger.prepare_tf_dataset(words, 2, shuffle=False, tokenizer=tokenizer)))
    assert inputs["attention_mask"].numpy().tolist() == [[0, 1, 1], [1, 1, 1]]
    assert labels.numpy().tolist() == [[-100, 1, 1], [1, 1, 1]]
    several = [{"input_ids": [5] * length, "labels": [1.0, 0.0, 1.0]} for length in (2, 3, 5)]
    inputs, labels = next(iter(tagger.prepare_tf_dataset(several, 3, shuffle=False, tokenizer=tokenizer)))
    assert labels.numpy().tolist() == [[1, 0, 1]] * 3  # labels of texts, not of tokens
    unaligned = [words[0], {"input_ids": [5, 6, 7], "label": [1, 1, 1, 1]}]
    with pytest.raises(ValueError, match="same shape"):
        tagger.prepare_tf_dataset(unaligned, 2, shuffle=False, tokenizer=tokenizer)
    inputs = next(iter(tagger.prepare_tf_dataset([{"input_ids": [5, 6]}], 1, shuffle=False)))
    assert inputs["input_ids"].numpy().tolist() == [[5, 6]]


@on_tensorflow_alone
def test_data_sets_of_choices_become_batches(tmp_path: Path) -> None:
    _, model = pair("AlbertForMultipleChoice", tmp_path, **SHALLOW)
    tokenizer = AlbertTokenizer.from_pretrained("bundled")
    rows = [{"input_ids": [[5, 6], [7]], "labels": 1}, {"input_ids": [[8], [5, 6, 7]], "labels": 0}]
    inputs, labels = next(iter(model.prepare_tf_dataset(rows, 2, shuffle=False, tokenizer=tokenizer)))
    assert inputs["input_ids"].numpy().tolist() == [[[5, 6, 0], [7, 0, 0]], [[8, 0, 0], [5, 6, 7]]]
    assert inputs["attention_mask"].numpy().tolist() == [[[1, 1, 0], [1, 0, 0]], [[1, 0, 0], [1, 1, 1]]]
    assert labels.numpy().tolist() == [1, 0]
    assert tuple(model(inputs).logits.shape) == (2, 2)
    rows[0]["input_ids"] = [[5], [6], [7], [8]]
    with pytest.raises(albertkit.DataError, match=r"have \[2, 4\] choices. Expected the same number"):
        model.prepare_tf_dataset(rows, 2, shuffle=False, tokenizer=tokenizer)


def test_saved_models(tmp_path: Path) -> None:
    ours, model = pair("AlbertForQuestionAnswering", tmp_path, **SHALLOW)
    if not USES_TENSORFLOW:
        with pytest.raises(ConfigError, match=r"saved_model=True needs the TensorFlow backend.* runs on jax"):
            model.save_pretrained(tmp_path / "new", saved_model=True)
        assert not (tmp_path / "new").exists()
        return
    import tensorflow

    model.save_pretrained(tmp_path / "new", saved_model=True, version=2)
    assert_same_bytes(tmp_path / "new" / "model.safetensors", tmp_path / "model.safetensors")
    serve = tensorflow.saved_model.load(tmp_path / "new" / "saved_model" / "2").signatures["serving_default"]
    inputs = batch(mask=True, segments=True)
    served = serve(**{name: tensorflow.constant(value.numpy(), "int32") for name, value in inputs.items()})
    assert sorted(served) == ["end_logits", "start_logits"]
    expected = ours(**inputs).end_logits.detach().numpy()
    assert np.abs(served["end_logits"].numpy() - expected).max() < TOLERANCE


def test_wrong_inputs_are_an_error(tmp_path: Path) -> None:
    _, model = pair("AlbertModel", tmp_path, **SHALLOW)
    ids = batch()["input_ids"].numpy()
    for call, message in (
        (lambda: model(), "both or neither of input_ids and inputs_embeds"),
        (lambda: model({"input_id": ids}), "no input 'input_id'. Did you mean 'input_ids'"),
        (lambda: model([ids], input_ids=ids), "input_ids is passed twice"),
        (lambda: model([ids] * 7), "got 7 inputs. Expected at most 6"),
        (lambda: model(ids[0]), r"input_ids must have shape \(B, T\), got \(12,\)"),
        (lambda: model(ids.astype(np.float32)), "must be whole numbers, got float32"),
        (lambda: model(ids, ids[:, :5]), r"attention_mask must have shape .*, got \(3, 5\)"),
        (lambda: model(ids, (1.0 - np.ones_like(ids)) - 1e4), "attention_mask contains -10000.0. Expected 1"),
        (lambda: model(np.ones((2, 0), int)), r"input_ids .* at least one token .T > 0., got \(2, 0\)"),
        (lambda: model(np.ones((1, 25), int)), "25 tokens, more than max_position_embeddings"),
        (lambda: model(keras.Input((None,))), "an Input of Keras needs dtype='int32'"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    for inputs in ({"input_ids": ids + 50}, {"input_ids": ids, "token_type_ids": ids}):
        with pytest.raises(IndexError, match=r"size is .*\. Expected 0 to"):
            model(inputs)
    with pytest.raises(ConfigError, match="received a config of type dict"):
        albertkit.keras.TFAlbertModel({})


def test_compiled_code_returns_nan_for_unknown_ids(tmp_path: Path) -> None:
    _, model = pair("AlbertModel", tmp_path, **SHALLOW)
    model.compile(jit_compile=True)
    ids = np.full((1, 4), 60)  # the first id without an embedding
    if keras.backend.backend() == "torch":  # PyTorch compiles nothing here
        with pytest.raises(IndexError):
            model.predict(ids, verbose=0)
    else:
        assert np.isnan(model.predict(ids, verbose=0).last_hidden_state).all()
