"""Models and comparisons for the checks of Keras in `keras_checks_*.py`.

`keras_process.py` runs the checks in a separate process for each backend. To run them on one backend:

    KERAS_BACKEND=jax python -m pytest --noconftest tests/support/keras_checks_*.py

Checks of code that does not depend on the backend run only on TensorFlow.
"""

from pathlib import Path
from typing import Any

import keras
import numpy as np
from modeling_twins import make
from torch import Tensor

import albertkit.keras

TOLERANCE = 1e-4
DEEP = {"num_hidden_layers": 2, "num_hidden_groups": 1, "inner_group_num": 2, "hidden_act": "gelu_new"}
"""Layers that are repeated, with several in a group."""
GROUPS = {"num_hidden_layers": 2, "num_hidden_groups": 2}
SHALLOW = {"num_hidden_layers": 1}  # compiling takes most of the time
NO_DROPOUT = {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0, "classifier_dropout_prob": 0}
EVERYTHING = {"output_attentions": True, "output_hidden_states": True}

USES_TENSORFLOW = keras.backend.backend() == "tensorflow"
UNCOMPILED = {"run_eagerly": USES_TENSORFLOW}
"""Options of `Model.compile`. TensorFlow takes ten times as long to trace a step as to compute it."""


def on_tensorflow_alone(check: Any) -> Any:
    """Decorate a check that runs only if TensorFlow is the backend."""
    check.__test__ = USES_TENSORFLOW
    return check


def pair(head: str, folder: Path, **values: Any) -> tuple[Any, Any]:
    """Return a PyTorch model, and the Keras model loaded from its folder."""
    ours = make(head, **values)
    ours.save_pretrained(folder)
    return ours, getattr(albertkit.keras, f"TF{head}").from_pretrained(folder, from_pt=True)


def arrays(inputs: dict[str, Tensor]) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in inputs.items()}


def largest_difference(outputs: Any, expected: Any) -> float:
    """Return the largest absolute difference of all tensors in outputs of Keras and of PyTorch."""
    assert list(outputs.keys()) == list(expected.keys())
    assert type(outputs).__name__ == type(expected).__name__
    differences = []
    for name in expected.keys():  # noqa: SIM118  # iterating over outputs yields values
        ours, theirs = outputs[name], expected[name]
        assert isinstance(ours, tuple) == isinstance(theirs, tuple)
        pairs = zip(ours, theirs, strict=True) if isinstance(theirs, tuple) else [(ours, theirs)]
        for tensor, expected_tensor in pairs:
            assert tuple(tensor.shape) == tuple(expected_tensor.shape)
            values = keras.ops.convert_to_numpy(keras.ops.cast(tensor, "float32"))
            differences.append(np.abs(values - expected_tensor.detach().float().numpy()).max())
    return float(max(differences))


def assert_same_bytes(file: Path, expected: Path) -> None:
    assert file.read_bytes() == expected.read_bytes()


def cross_entropy() -> keras.losses.Loss:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-100)
