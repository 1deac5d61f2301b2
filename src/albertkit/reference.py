"""The forward pass of ALBERT in plain NumPy. Tests compare all other implementations with it.

It reads the config and the tensors of a checkpoint, by their names in `model.safetensors`. It fuses and skips
nothing, so that you can compare each line with Lan et al. 2019 (arXiv:1909.11942).

Shapes: B batch, C choices, T tokens, E embedding, H hidden, N heads, D size of a head, V vocabulary, K
labels.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from albertkit.checkpoints.names import executed_layers
from albertkit.config import ACTIVATION_ALIASES, AlbertConfig
from albertkit.errors import CheckpointError
from albertkit.heads import base_prefix, head_of

Array = NDArray[np.floating]
Weights = Mapping[str, NDArray]

_ERF_STEP, _ERF_END = 1 / 1024, 6.0  # above _ERF_END, erf rounds to 1
_ERF = np.array([math.erf(place * _ERF_STEP) for place in range(int(_ERF_END / _ERF_STEP) + 1)])


def forward(
    architecture: str,
    config: AlbertConfig,
    weights: Weights,
    input_ids: NDArray,
    attention_mask: NDArray | None = None,
    token_type_ids: NDArray | None = None,
    *,
    dtype: type = np.float32,
    all_layers: bool = True,
) -> dict[str, Array]:
    """Compute all outputs of a model, without dropout.

    Args:
        architecture: The name of a model class, such as "AlbertForMaskedLM".
        config: The config of the model; `hidden_act` must be a name.
        weights: The tensors by their names in the class's state dict, in any floating-point type.
        input_ids: Token ids, (B, T), or (B, C, T) for multiple choice.
        attention_mask: 1 for tokens and 0 for padding, in the shape of `input_ids`; None for no padding.
        token_type_ids: 0 for the first segment and 1 for the second, in the same shape; None for zeros.
        dtype: The data type of the computation. `np.float64` shows the rounding errors of float32.
        all_layers: Whether to also return the hidden states and attentions of all layers.

    Returns:
        The outputs by their names in the class ("logits", "start_logits", ...). With `all_layers` also
        "hidden_states" (L + 1, B, T, H), the mapped embeddings and the output of each layer, and
        "attentions" (L, B, N, T, T).
    """
    ids = input_ids.reshape(-1, input_ids.shape[-1])  # (B, C, T) -> (B * C, T)
    mask = np.ones_like(ids) if attention_mask is None else attention_mask.reshape(ids.shape)
    segments = np.zeros_like(ids) if token_type_ids is None else token_type_ids.reshape(ids.shape)
    network = _Network(config, weights, base_prefix(architecture), dtype)
    seen = mask != 0
    seen |= ~seen.any(-1, keepdims=True)  # a row without tokens attends to all positions
    state = network.embed(ids, segments)
    states, attentions = [state], []
    for name in executed_layers(config, network.prefix):
        state, probabilities = network.layer(state, seen[:, None, None], name)
        if all_layers:
            states.append(state)
            attentions.append(probabilities)
    outputs: dict[str, Array] = {}
    for scores in head_of(architecture).scores.values():
        if scores.needs and scores.needs not in weights:
            continue
        values = scores.compute(network, state[:, 0] if scores.reads_first else state)
        if input_ids.ndim == 3:
            values = values.reshape(input_ids.shape[:2])  # (B * C, 1) -> (B, C)
        columns = [values] if len(scores.names) == 1 else np.moveaxis(values, -1, 0)
        outputs |= zip(scores.names, columns, strict=True)
    if all_layers:
        outputs["hidden_states"] = np.stack(states)
        outputs["attentions"] = np.stack(attentions)
    return outputs


class _Network:
    """The tensors of one model, and the operations that its heads use."""

    def __init__(self, config: AlbertConfig, weights: Weights, prefix: str, dtype: type) -> None:
        self.config = config
        self.weights = weights
        self.prefix = prefix
        self.dtype = dtype

    def weight(self, name: str) -> Array:
        if name not in self.weights:
            raise CheckpointError(f"The checkpoint has no tensor {name}, which this model needs.")
        return np.asarray(self.weights[name]).astype(self.dtype, copy=False)

    def rows(self, name: str, ids: NDArray) -> Array:
        """Look up rows of a table: (...) -> (..., size). NumPy would accept negative ids."""
        table = self.weight(name)
        if ids.size and not 0 <= ids.min() <= ids.max() < len(table):
            raise IndexError(f"{name} has the rows 0 to {len(table) - 1}; got {ids.min()} to {ids.max()}")
        return table[ids]

    def linear(self, values: Array, name: str) -> Array:
        """Apply the linear map with this name: (..., inputs) -> (..., outputs)."""
        return _product(values, self.weight(f"{name}.weight")) + self.weight(f"{name}.bias")

    def layer_norm(self, values: Array, name: str) -> Array:
        """Normalize the last dimension."""
        centered = values - values.mean(-1, keepdims=True)
        variance = np.square(centered).mean(-1, keepdims=True)
        normal = centered / np.sqrt(variance + self.dtype(self.config.layer_norm_eps))
        return normal * self.weight(f"{name}.weight") + self.weight(f"{name}.bias")

    def activate(self, values: Array, name: str = "") -> Array:  # noqa: ARG002
        function = str(self.config.hidden_act)
        return ACTIVATIONS[ACTIVATION_ALIASES.get(function, function)](values)

    def embed(self, ids: NDArray, segments: NDArray) -> Array:
        """Return the embeddings of ids and segments (B, T), mapped to the hidden size: (B, T, H)."""
        table = f"{self.prefix}embeddings"
        embedded = (
            self.rows(f"{table}.word_embeddings.weight", ids)
            + self.rows(f"{table}.token_type_embeddings.weight", segments)
            + self.rows(f"{table}.position_embeddings.weight", np.arange(ids.shape[1]))
        )  # (B, T, E)
        normal = self.layer_norm(embedded, f"{table}.LayerNorm")
        return self.linear(normal, f"{self.prefix}encoder.embedding_hidden_mapping_in")

    def layer(self, states: Array, seen: NDArray, name: str) -> tuple[Array, Array]:
        """Apply attention and feed-forward network, each with residual and LayerNorm: (B, T, H)."""
        width = self.config.hidden_size // self.config.num_attention_heads

        def split(part: str) -> Array:
            projected = self.linear(states, f"{name}.attention.{part}")  # (B, T, N*D)
            return projected.reshape(*states.shape[:2], -1, width).swapaxes(1, 2)  # (B, N, T, D)

        scores = split("query") @ split("key").swapaxes(2, 3) / self.dtype(math.sqrt(width))
        probabilities = softmax(np.where(seen, scores, -np.inf))
        context = (probabilities @ split("value")).swapaxes(1, 2).reshape(*states.shape[:2], -1)
        attended = self.layer_norm(
            states + self.linear(context, f"{name}.attention.dense"), f"{name}.attention.LayerNorm"
        )
        expanded = self.activate(self.linear(attended, f"{name}.ffn"))
        output = self.linear(expanded, f"{name}.ffn_output")
        return self.layer_norm(attended + output, f"{name}.full_layer_layer_norm"), probabilities

    def pool(self, states: Array) -> Array:
        """Return the pooled vectors of [CLS]: (..., H) -> (..., H)."""
        return np.tanh(self.linear(states, f"{self.prefix}pooler"))

    def multiply_by_words(self, values: Array, bias: str) -> Array:
        """Multiply by the word embeddings and add a bias: (..., E) -> (..., V)."""
        words = self.weight(f"{self.prefix}embeddings.word_embeddings.weight")
        return _product(values, words) + self.weight(bias)


# --- functions ----------------------------------------------------------------------------------


def _product(values: Array, matrix: Array) -> Array:
    """Multiply (..., inputs) by (outputs, inputs) as one product, which is faster than one per text."""
    return (values.reshape(-1, values.shape[-1]) @ matrix.T).reshape(*values.shape[:-1], len(matrix))


def softmax(scores: Array) -> Array:
    """Return the exponentials along the last dimension, divided by their sum."""
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def log_sum_exp(scores: Array) -> Array:
    """Return the logarithm of the sum of exponentials along the last dimension: (..., K) -> (...)."""
    largest = scores.max(axis=-1)
    return np.log(np.exp(scores - largest[..., None]).sum(axis=-1)) + largest


def largest_indices(scores: np.ndarray, count: int) -> np.ndarray:
    """Return the indices (..., count) of the largest of K scores in descending order; at most K of them."""
    if count >= scores.shape[-1]:
        return np.argsort(-scores, axis=-1, kind="stable")
    indices = np.sort(np.argpartition(-scores, count, axis=-1)[..., :count], axis=-1)
    largest = np.take_along_axis(scores, indices, axis=-1)
    return np.take_along_axis(indices, np.argsort(-largest, axis=-1, kind="stable"), axis=-1)


def erf(values: NDArray) -> NDArray[np.float64]:
    """Return the error function, accurate to 1e-13, from Taylor series at table entries; NumPy has none."""
    blocks = np.array_split(values.reshape(-1), 1 + values.size // 2**14)  # blocks fit into the cache
    return np.concatenate([_erf(block) for block in blocks]).reshape(values.shape)


def _erf(values: NDArray) -> NDArray[np.float64]:
    values = np.clip(values.astype(np.float64), -_ERF_END, _ERF_END)
    entries = np.rint(np.nan_to_num(np.abs(values)) / _ERF_STEP).astype(np.int64)
    nearest = np.copysign(entries * _ERF_STEP, values)
    rest = values - nearest
    series = rest * (1 - rest * (nearest - rest * (2 * nearest**2 - 1) / 3))
    slope = 2 / math.sqrt(math.pi) * np.exp(-(nearest**2))
    return np.copysign(_ERF[entries], values) + slope * series


def _sigmoid(values: Array) -> Array:
    with np.errstate(over="ignore"):  # division by infinity correctly gives 0
        return 1 / (1 + np.exp(-values))


def _silu(values: Array) -> Array:
    with np.errstate(over="ignore"):
        return values / (1 + np.exp(-values))


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "gelu": lambda values: values * (1 + erf(values * math.sqrt(0.5)).astype(values.dtype)) / 2,
    "gelu_new": lambda values: (
        values * (1 + np.tanh(math.sqrt(2 / math.pi) * (values + 0.044715 * values * values * values))) / 2
    ),
    "relu": lambda values: np.maximum(values, 0),
    "silu": _silu,
    "leaky_relu": lambda values: np.maximum(values, values * 0.01),
    "linear": lambda values: values,
    "mish": lambda values: values * np.tanh(np.logaddexp(values, 0, dtype=values.dtype)),
    "quick_gelu": lambda values: values * _sigmoid(values * 1.702),
    "tanh": np.tanh,
    # Used only by Dense modules after the pooling.
    "identity": lambda values: values,
    "sigmoid": _sigmoid,
}
