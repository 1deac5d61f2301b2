"""Checks of the Keras network: outputs, masks, pruning and initial weights, compared with PyTorch."""

from pathlib import Path

import keras
import numpy as np
import pytest
import torch
from keras_models import (
    DEEP,
    EVERYTHING,
    GROUPS,
    SHALLOW,
    TOLERANCE,
    USES_TENSORFLOW,
    arrays,
    assert_same_bytes,
    largest_difference,
    on_tensorflow_alone,
    pair,
)
from modeling_twins import HEADS, batch, make, tiny

import albertkit
import albertkit.keras
from albertkit.config import ACTIVATION_ALIASES, ACTIVATION_NAMES
from albertkit.keras.pretrained import tensors_of, variables_by_name


@pytest.mark.parametrize("head", HEADS if USES_TENSORFLOW else ["AlbertForPreTraining"])
def test_outputs_and_folders_equal_those_of_torch(head: str, tmp_path: Path) -> None:
    """Compare outputs for all kinds of inputs, and the files of saved models.

    The models have repeated layers, inner layers and segments. The inputs include masks of tokens and heads,
    positions, and embeddings instead of ids.
    """
    ours, keras_model = pair(head, tmp_path / "torch", num_labels=3, **DEEP)
    head_mask = torch.tensor([1.0, 0.0, 0.5, 1.0])
    for which in ({}, {"mask": True, "segments": True}, {"embeds": True, "mask": True, "positions": True}):
        inputs = batch(head, **which) | ({"head_mask": head_mask} if which else {})
        expected = ours(**inputs, **EVERYTHING)
        outputs = keras_model(arrays(inputs), **EVERYTHING)
        assert largest_difference(outputs, expected) < TOLERANCE
        assert [len(outputs[name]) for name in ("hidden_states", "attentions")] == [5, 4]

    assert tensors_of(keras_model).keys() == ours.state_dict().keys()
    keras_model.save_pretrained(tmp_path / "keras")
    for file in ("config.json", "model.safetensors"):
        assert_same_bytes(tmp_path / "keras" / file, tmp_path / "torch" / file)
    again, info = HEADS[head].from_pretrained(tmp_path / "keras", output_loading_info=True)
    assert info["report"].ok
    assert all(torch.equal(again.state_dict()[name], tensor) for name, tensor in ours.state_dict().items())


def test_every_activation_and_mask(tmp_path: Path) -> None:
    for activation in set(ACTIVATION_NAMES) - ACTIVATION_ALIASES.keys() | {"gelu_fast"}:
        ours, keras_model = pair("AlbertModel", tmp_path, hidden_act=activation, **SHALLOW)
        ids = batch()["input_ids"]
        assert largest_difference(keras_model(ids.numpy()), ours(ids)) < TOLERANCE
    causal = torch.ones(3, 12, 12).tril()
    causal[:, 4] = 0  # a query that attends to nothing
    for mask in (causal, causal[:, None]):
        outputs = keras_model(ids.numpy(), mask.numpy())
        assert largest_difference(outputs, ours(ids, mask)) < TOLERANCE
    heads = torch.tensor([[0.0, 1.0, 0.0, 1.0]])
    for mask in (heads, heads[0].long()):
        outputs = keras_model(input_ids=ids.numpy(), head_mask=mask.numpy())
        assert largest_difference(outputs, ours(ids, head_mask=mask)) < TOLERANCE


@on_tensorflow_alone
def test_untied_models(tmp_path: Path) -> None:
    ours = make("AlbertForMaskedLM", tie_word_embeddings=False, **GROUPS)
    ours.save_pretrained(tmp_path)
    keras_model = albertkit.keras.TFAlbertForMaskedLM.from_pretrained(tmp_path)
    inputs = batch(mask=True) | {"head_mask": torch.tensor([1.0, 0.0, 0.5, 1.0])}
    assert largest_difference(keras_model(arrays(inputs)), ours(**inputs)) < TOLERANCE
    keras_model.save_pretrained(tmp_path / "again")
    assert_same_bytes(tmp_path / "again/model.safetensors", tmp_path / "model.safetensors")


@on_tensorflow_alone
def test_initial_weights_are_drawn_as_configured() -> None:
    keras.utils.set_random_seed(0)  # the standard deviation of a small matrix varies too much otherwise
    model = albertkit.keras.TFAlbertForPreTraining(tiny(initializer_range=0.05, hidden_size=64))
    for name, variable in variables_by_name(model).items():
        values = keras.ops.convert_to_numpy(variable.value)
        if name.endswith("bias"):
            assert not values.any(), name
        elif values.ndim == 1:
            assert (values == 1).all(), name
        else:
            assert np.abs(values).max() <= 0.1 + 1e-6, name
            # Truncation at two standard deviations reduces the standard deviation to 0.88 of its value.
            assert values.std() == pytest.approx(0.044, rel=0.3 if values.size < 500 else 0.1), name
