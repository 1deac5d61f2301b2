"""The variables of a Keras model under the names, and in the layout, of PyTorch's modules.

Keras stores a matrix as inputs x outputs, PyTorch as outputs x inputs.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from albertkit.checkpoints.names import canonical, shared_names
from albertkit.checkpoints.report import LoadReport, match
from albertkit.config import AlbertConfig
from albertkit.heads import BASE_PREFIX
from albertkit.keras.layers import initializer, keras, ops

_ENCODER = "albert"
"""The layer of every model that holds the encoder."""


def fill(
    model: keras.Model, tensors: Mapping[str, np.ndarray], *, ignore_mismatched_sizes: bool = False
) -> LoadReport:
    """Give the variables of a model made `undrawn` the values of a file; draw the matrices that it lacks.

    Raises:
        CheckpointError: as `checkpoints.report.match`.
    """
    variables = variables_by_name(model)
    sizes = {name: variable.shape[:: _step(variable)] for name, variable in variables.items()}
    sizes |= {alias: sizes[name] for alias, name in _aliases(model.config, variables).items()}
    matched, report = match(
        tensors, sizes, tied=shared_names(model.config), ignore_mismatched_sizes=ignore_mismatched_sizes
    )
    for name, variable in variables.items():
        if name in matched:
            values = matched[name].astype(np.float32)
            variable.assign(values.T if _step(variable) < 0 else values)
        elif len(variable.shape) > 1:
            variable.assign(initializer(model.config)(variable.shape, dtype=variable.dtype))
    return report


def tensors_of(model: keras.Model) -> dict[str, np.ndarray]:
    """Return what PyTorch's `state_dict` of the same model holds, both names of shared tensors included."""
    variables = variables_by_name(model)
    tensors: dict[str, np.ndarray] = {}
    for name, variable in variables.items():
        values: Any = ops.convert_to_numpy(variable.value)
        # A copy: training may continue, and the file is written from this memory.
        tensors[name] = np.array(values.T if _step(variable) < 0 else values, order="C")
    return tensors | {alias: tensors[name] for alias, name in _aliases(model.config, variables).items()}


def variables_by_name(model: keras.Model) -> dict[str, Any]:
    """Return every weight under its name in PyTorch; a bare encoder's without a prefix.

    The path of a variable is that name with slashes, below what the model itself is called.
    """
    first = model.weights[0].path
    outer = first[: first.rindex(f"{_ENCODER}/embeddings/word_embeddings/")]
    bare = not model.scores
    names: dict[str, Any] = {}
    for variable in model.weights:
        path = re.sub(r"(?<=s)_(?=\d+/)", "/", variable.path.removeprefix(outer))  # albert_layers_0/
        # As Keras wrote it in older files: one level for the model, then the layers.
        name = canonical(f"model/{path}:0")
        names[name.removeprefix(BASE_PREFIX) if bare else name] = variable
    return names


def _aliases(config: AlbertConfig, variables: Mapping[str, Any]) -> dict[str, str]:
    """Second name of a shared tensor -> the name it has here, for those that the model has."""
    aliases = {}
    for pair in shared_names(config).items():
        for alias, name in (pair, pair[::-1]):
            if name in variables and alias not in variables:
                aliases[alias] = name
    # Only models with a decoder know its names.
    return aliases if "predictions.decoder.bias" in variables else {}


def _step(variable: Any) -> int:
    """Return -1 for a matrix, whose sizes are in the reverse order in PyTorch, else 1."""
    return -1 if variable.name == "kernel" else 1
