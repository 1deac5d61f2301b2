"""Checkpoints of TensorFlow 2: keys are places in a graph of objects, which is stored in the same files.

    variables/3/.ATTRIBUTES/VARIABLE_VALUE    a tensor, as in any tensor bundle
    _CHECKPOINTABLE_OBJECT_GRAPH              a string: the variable of each key, and its original name

The graph is the protocol buffer of tensorflow/core/protobuf/trackable_object_graph.proto. TensorFlow Hub
modules (`tensorflow/albert_en_base`) use this format, and so does `save_weights` of Keras 2 for the encoder
of TensorFlow's model garden (official/nlp) and for the TensorFlow classes of `transformers`.
"""

from collections.abc import Iterator

import numpy as np

from albertkit.checkpoints.cursor import Cursor
from albertkit.checkpoints.names import from_google, spec_of, why_no_weight
from albertkit.checkpoints.tensor_bundle import Bundle
from albertkit.errors import CheckpointError, ConfigError

GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


def variable_names(bundle: Bundle) -> dict[str, str]:
    """Map the key of each weight in the bundle to a name for `names.canonical`; {} without a graph.

    Raises:
        CheckpointError: the graph is damaged (the message gives the position), or a weight occurs twice.
    """
    if GRAPH not in bundle.entries:
        return {}
    names: dict[str, str] = {}
    keys: dict[str, str] = {}
    for full_name, key in _variables(bundle.read_string(GRAPH)):
        # An optimizer's variables have the names of their weights, but different keys.
        if not full_name or key not in bundle.entries or why_no_weight(key):
            continue
        # The graph omits the ending that identifies Keras names.
        name = full_name if from_google(full_name) else f"{full_name}:0"
        if keys.setdefault(name, key) != key and spec_of(name):
            raise CheckpointError(
                f"{bundle.prefix} has the variable {full_name} twice, as {keys[name]} and as {key}. "
                "Expected one. Save only the encoder."
            )
        names[key] = name
    return names


def _variables(graph: Cursor) -> Iterator[tuple[str, str]]:
    """Yield name and key of every variable: of each node (1) each attribute (2) its fields 2 and 3."""
    for node in graph.messages(1, "the graph of objects"):
        for attribute in node.messages(2, "an object"):
            texts = {
                number: bytes(value.data).decode("utf-8", errors="replace")
                for number, value in attribute.fields("a variable")
                if isinstance(value, Cursor)
            }
            yield texts.get(2, ""), texts.get(3, "")


def merge_heads(tensors: dict[str, np.ndarray]) -> int | None:
    """Reshape the garden's attention to the original's shapes in place; return its number of heads, if any.

    The garden's queries, keys and values are H x heads x size with biases heads x size, and its output is
    heads x size x H. The order of the numbers is the same as in the original.

    Raises:
        ConfigError: matrices of one model have different numbers of heads.
    """
    names_by_heads: dict[int, str] = {}
    for name, tensor in tensors.items():
        known = from_google(name)
        if known is None or ".attention." not in known[0] or tensor.ndim != (2 if known[1].is_vector else 3):
            continue
        is_output = known[0].endswith(".dense.weight")
        names_by_heads.setdefault(tensor.shape[0 if is_output or known[1].is_vector else 1], name)
        if known[1].is_vector:
            tensors[name] = tensor.reshape(-1)
        else:
            tensors[name] = tensor.reshape((-1, tensor.shape[2]) if is_output else (tensor.shape[0], -1))
    if len(names_by_heads) > 1:
        raise ConfigError(
            "the attention has different numbers of heads: "
            + ", ".join(f"{heads} in {name}" for heads, name in names_by_heads.items())
        )
    return next(iter(names_by_heads), None)
