"""The network for engines: rows without padding in, the states or scores of the tokens to read out.

The tokens of a batch are concatenated. Only attention uses rows: queries, keys and values are gathered into
padded rows for it, and its contexts are gathered back. This padding costs little, because attention is a
small part of the work for short rows, and the rows of one batch have similar lengths. The last layer computes
only the tokens to read.

Shapes: M tokens of a batch, Q of them to read, B rows, T tokens of the longest row, R maximum number of
tokens to read in a row, H hidden, K scores of a token.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from albertkit import __version__
from albertkit.checkpoints.names import executed_layers
from albertkit.checkpoints.onnx_file import PRODUCER
from albertkit.config import AlbertConfig
from albertkit.heads import Output, head_of, scores_of
from albertkit.onnx.graph import Graph
from albertkit.onnx.network import Network

OPSET = 20
"""The first with Gelu."""


def build_rows(
    architecture: str,
    config: AlbertConfig,
    weights: Mapping[str, np.ndarray],
    *,
    int8: bool = False,
    inside: bool = False,
) -> tuple[Any, dict[str, np.ndarray]]:
    """Write the encoder, whose output is the hidden states of the tokens that are read.

    The graph's inputs are, in float32, `words` (M, E), the embeddings of the words, and `bias`
    (B, 1, 1, T), 0 or `network.UNSEEN`; in int64, `token_type_ids` and `position_ids` (M,); `row_tokens`
    (B, T), the token at each place of the rows; `token_places` (M,), the place in B * T of each token; and,
    for the tokens that are read, `read_tokens` (Q,), their numbers, `row_reads` (B, R) and `read_places` (Q,)
    as above. Its output is `states` (Q, H).

    Args:
        architecture: the name of a model class.
        config: its shape.
        weights: its tensors by the names of its state dict.
        int8: multiply in whole numbers.
        inside: after `states`, also return the inputs of each layer, `hidden_states_0` and so on (M, H), and
            then the attention probabilities of each layer, `attentions_0` and so on (B, N, T, T); of the
            last layer (B, N, R, T).

    Returns:
        The `ModelProto` without the large weights, and these by name: a session uses their
        memory directly (`add_external_initializers`).

    Raises:
        CheckpointError: a tensor is missing.
    """
    graph = Graph(weights, opset=OPSET, compute=np.dtype(np.float32), int8=int8, flat=True)
    network = Network(graph, architecture, config)
    words = graph.float_input("words", ["tokens", config.embedding_size])
    token_type_ids, position_ids = (
        graph.input(name, ["tokens"]) for name in ("token_type_ids", "position_ids")
    )
    bias = graph.float_input("bias", ["rows", 1, 1, "longest"])
    row_tokens = graph.input("row_tokens", ["rows", "longest"])
    token_places = graph.input("token_places", ["tokens"])
    read_tokens = graph.input("read_tokens", ["read"])
    row_reads = graph.input("row_reads", ["rows", "most_read"])
    read_places = graph.input("read_places", ["read"])

    def attend(query: str, key: str, value: str, *, queries: str, places: str, width: int) -> str:
        """Attend within rows: (M or Q, N*D) and twice (M, N*D) -> (M or Q, N*D)."""
        padded_query = graph.node("Gather", query, queries)
        padded_key, padded_value = (graph.node("Gather", values, row_tokens) for values in (key, value))
        contexts = network.attend(padded_query, padded_key, padded_value, bias)
        flat = graph.node("Reshape", contexts, graph.vector(-1, width))  # (B, R, N*D) -> (B * R, N*D)
        return graph.node("Gather", flat, places)

    graph.scope = "embeddings/"
    states = network.embed(words, token_type_ids, lambda table: graph.rows(table, position_ids))
    layer_inputs = []
    layers = executed_layers(config, network.prefix)
    for index, layer in enumerate(layers):
        graph.scope = f"layer_{index}/"
        layer_inputs.append(states)
        last = index == len(layers) - 1
        queried = graph.node("Gather", states, read_tokens) if last else states
        queries, places = (row_reads, read_places) if last else (row_tokens, token_places)
        width = len(weights[f"{layer}.attention.query.bias"])  # N*D, less than H where heads are pruned
        attention = partial(attend, queries=queries, places=places, width=width)
        states = network.layer(layer, queried, states, attention)
    graph.output("states", states, ["read", config.hidden_size])
    if inside:
        for index, values in enumerate(layer_inputs):
            graph.output(f"hidden_states_{index}", values, ["tokens", config.hidden_size])
        for index, values in enumerate(network.attentions):
            heads = len(weights[f"{layers[index]}.attention.query.bias"]) // network.head_width
            graph.output(f"attentions_{index}", values, ["rows", heads, "queries", "longest"])
    return graph.model(architecture, producer=PRODUCER, version=__version__), graph.external


def build_head(
    architecture: str, config: AlbertConfig, weights: Mapping[str, np.ndarray], output: Output
) -> tuple[Any, dict[str, np.ndarray]]:
    """Write a head: `states` (Q, H) in, `scores` (Q, K) out.

    Args:
        architecture: the name of a model class.
        config: its shape.
        weights: its tensors by the names of its state dict.
        output: an output that the model class has.

    Returns:
        As `build_rows`.

    Raises:
        CheckpointError: a tensor is missing.
    """
    graph = Graph(weights, opset=OPSET, compute=np.dtype(np.float32), flat=True)
    network = Network(graph, architecture, config)
    graph.scope = "head/"
    states = graph.float_input("states", ["read", config.hidden_size])
    scores = scores_of(architecture, output)
    assert scores is not None
    width = head_of(architecture).size(scores.width, config)
    graph.output("scores", scores.compute(network, states), ["read", width])
    return graph.model(architecture, producer=PRODUCER, version=__version__), graph.external
