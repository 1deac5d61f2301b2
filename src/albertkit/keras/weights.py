"""Map the variables of a Keras model to the names and layout of PyTorch's modules.

Keras stores a matrix as inputs x outputs, PyTorch as outputs x inputs.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from albertkit.checkpoints.match import LoadReport, match
from albertkit.checkpoints.names import canonical, shared_names
from albertkit.config import AlbertConfig
from albertkit.heads import BASE_PREFIX
from albertkit.keras.layers import initializer, keras, ops

_ENCODER = "albert"
"""The name of the layer that contains the encoder in every model."""


def fill(
    model: keras.Model, tensors: Mapping[str, np.ndarray], *, ignore_mismatched_sizes: bool = False
) -> LoadReport:
    """Copy tensors of a file to a model created with `uninitialized`; initialize missing matrices."""
    variables = variables_by_name(model)
    sizes = {name: variable.shape[:: _step(variable)] for name, variable in variables.items()}
    sizes |= {alias: sizes[name] for alias, name in _aliases(model.config, variables).items()}
    matched, report = match(
        tensors, sizes, tied=shared_names(model.config), ignore_mismatched_sizes=ignore_mismatched_sizes
    )
    for name, variable in variables.items():
        if name in matched:
            values = matched[name]
            # Not every backend reads half precision.
            values = values.astype(np.promote_types(values.dtype, np.float32), copy=False)
            variable.assign(values.T if _step(variable) < 0 else values)
        elif len(variable.shape) > 1:
            variable.assign(initializer(model.config)(variable.shape, dtype=variable.dtype))
    return report


def tensors_of(model: keras.Model) -> dict[str, np.ndarray]:
    """Return the tensors of PyTorch's `state_dict` for this model, including both names of shared tensors."""
    variables = variables_by_name(model)
    tensors: dict[str, np.ndarray] = {}
    for name, variable in variables.items():
        values: Any = ops.convert_to_numpy(variable.value)
        # Copy the values: training may continue while the file is written.
        tensors[name] = np.array(values.T if _step(variable) < 0 else values, order="C")
    return tensors | {alias: tensors[name] for alias, name in _aliases(model.config, variables).items()}


def variables_by_name(model: keras.Model) -> dict[str, Any]:
    """Return every variable by its name in PyTorch. In an encoder without a head, names have no prefix.

    The path of a variable is this name with slashes, after the name of the model.
    """
    first = model.weights[0].path
    outer = first[: first.rindex(f"{_ENCODER}/embeddings/word_embeddings/")]
    bare = not model.scores
    names: dict[str, Any] = {}
    for variable in model.weights:
        path = re.sub(r"(?<=s)_(?=\d+/)", "/", variable.path.removeprefix(outer))  # albert_layers_0/
        # `canonical` reads names of older Keras files: one level for the model, then the layers.
        name = canonical(f"model/{path}:0")
        names[name.removeprefix(BASE_PREFIX) if bare else name] = variable
    return names


def _aliases(config: AlbertConfig, variables: Mapping[str, Any]) -> dict[str, str]:
    """Return the second name of each shared tensor of this model with its main name."""
    if "predictions.decoder.bias" not in variables:
        return {}  # only models with a decoder share tensors
    pairs = [pair for both in shared_names(config).items() for pair in (both, both[::-1])]
    return {alias: name for alias, name in pairs if name in variables and alias not in variables}


def _step(variable: Any) -> int:
    """Return -1 for a matrix, whose dimensions are swapped in PyTorch, otherwise 1."""
    return -1 if variable.name == "kernel" else 1
