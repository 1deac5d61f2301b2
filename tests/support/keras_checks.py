"""What must hold on every backend of Keras; `keras_process.py` runs this file in a process for each.

KERAS_BACKEND=jax python -m pytest --noconftest tests/support/keras_checks.py

Only the backend TensorFlow has the checks of code that does nothing with a backend.
"""

import importlib
import re
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import torch
from modeling_twins import HEADS, batch, labels_for, make, tiny
from places import ROOT
from torch import Tensor

import albertkit
import albertkit.keras
from albertkit import AlbertForMaskedLM, AlbertForSequenceClassification, AlbertModel, AlbertTokenizer
from albertkit.checkpoints.arrays import to_tensors, to_torch
from albertkit.conversion import convert
from albertkit.early_exit import Exits
from albertkit.errors import CheckpointError, ConfigError
from albertkit.keras.weights import tensors_of, variables_by_name

BLOCKS = re.findall(
    r"^```python\n(.*?)^```",
    "".join((ROOT / "docs" / page).read_text() for page in ("how-to/keras.md", "reference/keras.md")),
    re.DOTALL | re.MULTILINE,
)

TOLERANCE = 1e-4
DEEP = {"num_hidden_layers": 4, "num_hidden_groups": 2, "inner_group_num": 2, "hidden_act": "gelu_new"}
SHALLOW = {"num_hidden_layers": 1}  # compiling is what takes time here
NO_DROPOUT = {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0, "classifier_dropout_prob": 0}
EVERYTHING = {"output_attentions": True, "output_hidden_states": True}

USES_TENSORFLOW = keras.backend.backend() == "tensorflow"
UNCOMPILED = {"run_eagerly": USES_TENSORFLOW}
"""For `Model.compile`: TensorFlow needs ten times as long to trace a training step as to compute it."""


def on_tensorflow_alone(check: Any) -> Any:
    """Leave the check out where TensorFlow is not the backend, and count it nowhere."""
    check.__test__ = USES_TENSORFLOW
    return check


def pair(head: str, folder: Path, **values: Any) -> tuple[Any, Any]:
    """The PyTorch model, and the one of Keras that is loaded from its folder."""
    ours = make(head, **values)
    ours.save_pretrained(folder)
    return ours, getattr(albertkit.keras, f"TF{head}").from_pretrained(folder, from_pt=True)


def arrays(inputs: dict[str, Tensor]) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in inputs.items()}


def largest_difference(found: Any, expected: Any) -> float:
    """Between outputs of Keras and of PyTorch, entry by entry and layer by layer."""
    assert list(found.keys()) == list(expected.keys())
    assert type(found).__name__ == type(expected).__name__
    differences = []
    for name in expected.keys():  # noqa: SIM118 - iterating over outputs gives their values
        ours, theirs = found[name], expected[name]
        assert isinstance(ours, tuple) == isinstance(theirs, tuple)
        pairs = zip(ours, theirs, strict=True) if isinstance(theirs, tuple) else [(ours, theirs)]
        for one, other in pairs:
            assert tuple(one.shape) == tuple(other.shape)
            values = keras.ops.convert_to_numpy(keras.ops.cast(one, "float32"))
            differences.append(np.abs(values - other.detach().float().numpy()).max())
    return float(max(differences))


def assert_same_bytes(one: Path, other: Path) -> None:
    assert one.read_bytes() == other.read_bytes()


def cross_entropy() -> keras.losses.Loss:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-100)


# --- the network ------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", HEADS if USES_TENSORFLOW else ["AlbertForPreTraining"])
def test_outputs_and_folders_equal_those_of_torch(head: str, tmp_path: Path) -> None:
    """Groups, inner layers, masks of tokens and heads, segments, positions, embeddings in place of ids.

    A folder has the same bytes, and `AlbertModel` and the others of PyTorch load it.
    """
    ours, keras_model = pair(head, tmp_path / "torch", num_labels=3, **DEEP)
    head_mask = torch.tensor([1.0, 0.0, 0.5, 1.0])
    for which in ({}, {"mask": True, "segments": True}, {"embeds": True, "mask": True, "positions": True}):
        inputs = batch(head, **which) | ({"head_mask": head_mask} if which else {})
        expected = ours(**inputs, **EVERYTHING)
        found = keras_model(arrays(inputs), **EVERYTHING)
        assert largest_difference(found, expected) < TOLERANCE
        assert [len(found[name]) for name in ("hidden_states", "attentions")] == [9, 8]

    assert tensors_of(keras_model).keys() == ours.state_dict().keys()
    keras_model.save_pretrained(tmp_path / "keras")
    for file in ("config.json", "model.safetensors"):
        assert_same_bytes(tmp_path / "keras" / file, tmp_path / "torch" / file)
    again, info = HEADS[head].from_pretrained(tmp_path / "keras", output_loading_info=True)
    assert info["report"].ok
    assert all(torch.equal(again.state_dict()[name], tensor) for name, tensor in ours.state_dict().items())


def test_every_activation_and_mask(tmp_path: Path) -> None:
    for activation in ("gelu", "gelu_new", "relu", "silu"):
        ours, keras_model = pair("AlbertModel", tmp_path, hidden_act=activation, **SHALLOW)
        ids = batch()["input_ids"]
        assert largest_difference(keras_model(ids.numpy()), ours(ids)) < TOLERANCE
    causal = torch.ones(3, 12, 12).tril()
    causal[:, 4] = 0  # a query that may see nothing
    for mask in (causal, causal[:, None]):
        found = keras_model(ids.numpy(), mask.numpy())
        assert largest_difference(found, ours(ids, mask)) < TOLERANCE
    heads = torch.tensor([[0.0, 1.0, 0.0, 1.0]])
    for mask in (heads, heads[0].long()):
        found = keras_model(input_ids=ids.numpy(), head_mask=mask.numpy())
        assert largest_difference(found, ours(ids, head_mask=mask)) < TOLERANCE


@on_tensorflow_alone
def test_pruned_and_untied_models(tmp_path: Path) -> None:
    ours = make("AlbertForMaskedLM", tie_word_embeddings=False, **DEEP)
    ours.prune_heads({0: [1], 3: [0, 2]})
    ours.save_pretrained(tmp_path)
    keras_model = albertkit.keras.TFAlbertForMaskedLM.from_pretrained(tmp_path)
    inputs = batch(mask=True) | {"head_mask": torch.tensor([1.0, 0.0, 0.5, 1.0])}
    assert largest_difference(keras_model(arrays(inputs)), ours(**inputs)) < TOLERANCE
    keras_model.save_pretrained(tmp_path / "again")
    assert_same_bytes(tmp_path / "again/model.safetensors", tmp_path / "model.safetensors")


@on_tensorflow_alone
def test_a_saved_folder_claims_no_exit_classifiers(tmp_path: Path) -> None:
    config = tiny()
    Exits().note(config)
    AlbertForSequenceClassification(config).save_pretrained(tmp_path)
    keras_model = albertkit.keras.TFAlbertForSequenceClassification.from_pretrained(tmp_path)
    keras_model.save_pretrained(tmp_path / "again")
    model, info = AlbertForSequenceClassification.from_pretrained(
        tmp_path / "again", output_loading_info=True
    )
    assert info["report"].ok
    assert "early_exit" not in model.config.extra


@on_tensorflow_alone
def test_initial_weights_are_drawn_as_configured() -> None:
    keras.utils.set_random_seed(0)  # else the deviation of a small matrix may be any
    model = albertkit.keras.TFAlbertForPreTraining(tiny(initializer_range=0.05, hidden_size=64))
    for name, variable in variables_by_name(model).items():
        values = keras.ops.convert_to_numpy(variable.value)
        if name.endswith("bias"):
            assert not values.any(), name
        elif values.ndim == 1:
            assert (values == 1).all(), name
        else:
            assert np.abs(values).max() <= 0.1 + 1e-6, name
            # 0.88 is what cutting at two deviations leaves of one.
            assert values.std() == pytest.approx(0.044, rel=0.3 if values.size < 500 else 0.1), name


# --- the ways to call -------------------------------------------------------------------------------


def test_the_documented_input_styles(tmp_path: Path) -> None:
    ours, model = pair("AlbertModel", tmp_path, **SHALLOW)
    inputs = arrays(batch(mask=True, segments=True))
    ids, mask, segments = inputs.values()
    expected = ours(**batch(mask=True, segments=True))
    tokenized = albertkit.BatchEncoding(inputs)
    for found in (
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
        assert largest_difference(found, expected) < TOLERANCE
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
    model.compile(loss=cross_entropy(), **UNCOMPILED)
    assert np.isfinite(model.evaluate(inputs, inputs["input_ids"], verbose=0))


@on_tensorflow_alone
def test_a_model_of_a_config() -> None:
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
    assert len(list(model.prepare_tf_dataset(rows[::2], 2, tokenizer=tokenizer))) == 1  # shuffled: full ones
    seen = model.prepare_tf_dataset(rows, 5, tokenizer=tokenizer)
    assert sorted(next(iter(seen))[0]["input_ids"].numpy()[:, 0]) == [5, 6, 7, 8, 9]
    with pytest.raises(albertkit.DataError, match=r"different lengths\. Pass tokenizer="):
        model.prepare_tf_dataset(rows, 2)
    with pytest.raises(albertkit.DataError, match=r"columns text. Expected input_ids"):
        model.prepare_tf_dataset([{"text": "a"}])
    with pytest.raises(albertkit.DataError, match="no rows"):
        model.prepare_tf_dataset([])

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
    assert labels.numpy().tolist() == [[1, 0, 1]] * 3  # of texts, not of their tokens
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


def test_wrong_inputs_are_named(tmp_path: Path) -> None:
    _, model = pair("AlbertModel", tmp_path, **SHALLOW)
    ids = batch()["input_ids"].numpy()
    for call, message in (
        (lambda: model(), "both or neither of input_ids and inputs_embeds"),
        (lambda: model({"input_id": ids}), "no input 'input_id'. Did you mean 'input_ids'"),
        (lambda: model([ids], input_ids=ids), "input_ids is passed twice"),
        (lambda: model([ids] * 7), "got 7 inputs. Expected at most 6"),
        (lambda: model(ids[0]), r"input_ids must have shape \(B, T\), got \(12,\)"),
        (lambda: model(ids.astype(np.float32)), "must be whole numbers, got float32"),
        (lambda: model(ids, ids[:, :5]), r"attention_mask must have one of the shapes .*, got \(3, 5\)"),
        (lambda: model(ids, (1.0 - np.ones_like(ids)) - 1e4), "attention_mask contains -10000.0. Expected 1"),
        (
            lambda: model(ids, head_mask=np.ones(3)),
            r"head_mask must have one of the shapes \[\(4,\), \(1, 4\)\]",
        ),
        (lambda: model(np.ones((1, 25), int)), "25 tokens, more than max_position_embeddings"),
        (lambda: model(keras.Input((None,))), "an Input of Keras needs dtype='int32'"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    for inputs in ({"input_ids": ids + 50}, {"input_ids": ids, "token_type_ids": ids}):
        with pytest.raises(IndexError, match=r"size is .*\. Expected 0 to"):
            model(inputs)
    with pytest.raises(ConfigError, match="needs an AlbertConfig, got dict"):
        albertkit.keras.TFAlbertModel({})


def test_compiled_code_does_not_answer_for_unknown_ids(tmp_path: Path) -> None:
    _, model = pair("AlbertModel", tmp_path, **SHALLOW)
    model.compile(jit_compile=True)
    ids = np.full((1, 4), 60)  # the first that has no row
    if keras.backend.backend() == "torch":  # it compiles nothing here
        with pytest.raises(IndexError):
            model.predict(ids, verbose=0)
    else:
        assert np.isnan(model.predict(ids, verbose=0).last_hidden_state).all()


# --- training ---------------------------------------------------------------------------------------

ANSWERS = {"start_positions": torch.tensor([3, 0, 4]), "end_positions": torch.tensor([5, 11, 6])}
STARTS_AND_ENDS = dict(zip(("start_logits", "end_logits"), arrays(ANSWERS).values(), strict=True))
WORDS, ORDER = arrays(labels_for("AlbertForPreTraining")).values()


@pytest.mark.parametrize(
    ("head", "labels", "compiled"),
    [
        ("AlbertForSequenceClassification", np.array([1, 0, 1]), {"loss": cross_entropy()}),
        ("AlbertForPreTraining", (WORDS, ORDER), {"loss": [cross_entropy(), cross_entropy()]}),
        # The loss of PyTorch is the mean of both.
        ("AlbertForQuestionAnswering", STARTS_AND_ENDS, {"loss": cross_entropy()}),
    ][: None if USES_TENSORFLOW else 1],  # JAX compiles each step for seconds
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
    if head == "AlbertForSequenceClassification":  # a list in the documented order serves as well
        given = list(given.values())
        model.compile(optimizer=keras.optimizers.SGD(0.1), **compiled)
    else:
        model.compile(optimizer=keras.optimizers.SGD(0.1), **compiled, **UNCOMPILED)
    history = model.fit(given, labels, batch_size=3, verbose=0).history
    assert history["loss"][0] == pytest.approx(factor * loss.item(), abs=TOLERANCE)
    after = to_tensors(tensors_of(model))
    for name, tensor in ours.state_dict().items():
        assert (after[name] - tensor).abs().max() < 1e-5, name


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
    tested = [model.evaluate(ids, labels, verbose=0) for _ in range(2)]
    assert len({round(loss, 4) for loss in [*trained, tested[0]]}) == 4
    assert tested[0] == tested[1]


def in_batches(inputs: dict[str, np.ndarray], labels: np.ndarray) -> Any:
    """A `tf.data.Dataset` of one batch; where TensorFlow is not the backend, a generator of Keras'."""
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
    history = model.fit(data, epochs=8, verbose=0).history
    assert history["accuracy"][-1] == 1
    assert history["loss"][-1] < 0.2
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
    assert again.optimizer.iterations == 8
    if not USES_TENSORFLOW:
        return  # it would compile the step again
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
    whole = keras.Model(inputs, outputs.pooler_output)
    expected = ours(**batch(mask=True)).pooler_output.detach().numpy()
    whole.save(tmp_path / "whole.keras")
    again = keras.saving.load_model(tmp_path / "whole.keras")
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
    found = model(arrays(inputs))
    assert keras.backend.standardize_dtype(found[0].dtype) == policy.removeprefix("mixed_")
    assert {variable.dtype for variable in model.trainable_weights} == {"float32"}
    difference = largest_difference(found, ours(**inputs))
    assert 0 < difference < tolerance
    model.save_pretrained(tmp_path / "again")
    assert_same_bytes(tmp_path / "again/model.safetensors", tmp_path / "model.safetensors")
    if policy == "mixed_float16":  # the one whose gradients Keras scales
        model.compile(optimizer=keras.optimizers.SGD(0.05), loss=cross_entropy(), **UNCOMPILED)
        losses = model.fit(arrays(inputs), np.array([1, 0, 1]), epochs=6, verbose=0).history["loss"]
        assert losses[-1] < losses[0] / 2


# --- files ------------------------------------------------------------------------------------------


@on_tensorflow_alone
def test_every_format_loads(tmp_path: Path) -> None:
    ours = make("AlbertForPreTraining", **DEEP)
    ours.save_pretrained(tmp_path / "hf")
    convert(tmp_path / "hf", tmp_path / "tf1", to="tf1")
    (tmp_path / "bin").mkdir()
    ours.config.save_pretrained(tmp_path / "bin")
    torch.save(ours.bfloat16().state_dict(), tmp_path / "bin/pytorch_model.bin")
    for folder, exact in (("tf1", True), ("bin", False)):
        model, info = albertkit.keras.TFAlbertForPreTraining.from_pretrained(
            tmp_path / folder, output_loading_info=True
        )
        assert info["report"].ok
        expected = AlbertModel.from_pretrained(tmp_path / ("hf" if exact else "bin")).state_dict()
        tensors = tensors_of(model)
        for name, tensor in expected.items():
            assert torch.equal(to_torch(tensors[f"albert.{name}"]), tensor), name


@on_tensorflow_alone
def test_loading_ends_in_a_checked_report(tmp_path: Path) -> None:
    make("AlbertModel", **SHALLOW).save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match=r"newly initialized, not in the file: classifier\.weight"):
        model, info = albertkit.keras.TFAlbertForSequenceClassification.from_pretrained(
            tmp_path, num_labels=5, output_loading_info=True
        )
    assert info["missing_keys"] == {"classifier.weight", "classifier.bias"}
    drawn = keras.ops.convert_to_numpy(model.classifier.kernel.value)
    assert 0.1 < drawn.std() < 0.25  # 0.2, cut at two deviations
    assert tuple(model(batch()["input_ids"].numpy()).logits.shape) == (3, 5)
    model.save_pretrained(tmp_path / "five")
    with pytest.raises(CheckpointError, match=r"classifier\.weight is 5x32 in the file and 2x32"):
        albertkit.keras.TFAlbertForSequenceClassification.from_pretrained(tmp_path / "five", num_labels=2)
    lacking = make("AlbertModel", **SHALLOW).state_dict()
    del lacking["encoder.embedding_hidden_mapping_in.weight"]
    (tmp_path / "model.safetensors").unlink()
    torch.save(lacking, tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"lacks encoder\.embedding_hidden_mapping_in\.weight"):
        albertkit.keras.TFAlbertModel.from_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="no argument 'num_lables'"):
        albertkit.keras.TFAlbertModel.from_pretrained("bundled", num_lables=2)


# --- the documented examples ------------------------------------------------------------------------


def in_a_batch(ids: list[int]) -> Any:
    """The examples' `tf.constant(ids)[None, :]`; the other backends are given NumPy's."""
    if USES_TENSORFLOW:
        import tensorflow as tf

        return tf.constant(ids)[None, :]
    return np.array(ids)[None, :]


@pytest.fixture(scope="module")
def albert_base_v2(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder that stands for the published model: smaller, and random."""
    folder = tmp_path_factory.mktemp("models") / "albert-base-v2"
    tokenizer = AlbertTokenizer.from_pretrained("bundled")
    make("AlbertForPreTraining", vocab_size=len(tokenizer), max_position_embeddings=48).save_pretrained(
        folder
    )
    tokenizer.save_pretrained(folder)
    return str(folder)


@on_tensorflow_alone
def test_outputs_of_the_original(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of the table in docs/how-to/convert.md; test_conversion.py has the others."""
    monkeypatch.syspath_prepend(ROOT / "scripts")
    table = importlib.import_module("checkpoint_table")
    assert table.keras(tmp_path, table.read_golden()) <= 1e-5


@on_tensorflow_alone
def test_features_of_a_text(albert_base_v2: str) -> None:
    """The example of the model card."""
    from albertkit import AlbertTokenizer, TFAlbertModel

    tokenizer = AlbertTokenizer.from_pretrained(albert_base_v2)
    model = TFAlbertModel.from_pretrained(albert_base_v2)
    kind = "tf" if USES_TENSORFLOW else "np"
    encoded_input = tokenizer(
        "Replace me by any text you'd like.", return_tensors=kind, truncation=True, max_length=24
    )
    output = model(encoded_input)
    expected = AlbertModel.from_pretrained(albert_base_v2)(
        **tokenizer("Replace me by any text you'd like.", return_tensors="pt", truncation=True, max_length=24)
    )
    assert largest_difference(output, expected) < TOLERANCE


@on_tensorflow_alone
@pytest.mark.filterwarnings("ignore:TFAlbertForSequenceClassification from")
@pytest.mark.parametrize(
    ("name", "shape"),
    [("TFAlbertModel", (32,)), ("TFAlbertForMaskedLM", (8192,)), ("TFAlbertForSequenceClassification", None)],
)
def test_documented_classes(albert_base_v2: str, name: str, shape: tuple[int] | None) -> None:
    """The examples of the API: ids in a batch of one, and the first entry of the outputs."""
    tokenizer = AlbertTokenizer.from_pretrained(albert_base_v2)
    model = getattr(albertkit, name).from_pretrained(albert_base_v2)
    input_ids = in_a_batch(tokenizer.encode("Hello, my dog is cute"))
    outputs = model(input_ids)
    expected = (1, 2) if shape is None else (1, input_ids.shape[1], *shape)
    assert tuple(outputs[0].shape) == expected
    if name == "TFAlbertForMaskedLM":
        ours = AlbertForMaskedLM.from_pretrained(albert_base_v2)
        assert largest_difference(outputs, ours(torch.tensor(np.asarray(input_ids)))) < TOLERANCE
        states = keras.ops.ones((1, 16))
        assert tuple(model.get_output_embeddings()(states).shape) == (1, 8192)
        assert tuple(model.get_input_embeddings().embeddings.shape) == (8192, 16)


@on_tensorflow_alone
@pytest.mark.filterwarnings("ignore:TFAlbertForSequenceClassification from bundled")
@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_the_pages_on_keras_run(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    variables: dict[str, Any] = {}
    exec(block.replace("num_labels=2", "num_labels=2, num_hidden_layers=2"), variables)  # runs smaller
    if "predicted" in variables:
        assert variables["predicted"] == [1, 0]
