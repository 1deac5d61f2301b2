"""Build the graphs of engines, which compute the states or scores of the read tokens of rows without padding.

The tokens of a batch are concatenated. Only attention uses rows: queries, keys and values are gathered into
padded rows for it, and its contexts are gathered back. This padding costs little, because attention is a
small part of the work for short rows, and the rows of one batch have similar lengths. The last layer computes
only the read tokens.

Shapes: M tokens of a batch, Q read tokens of a batch, B rows, T tokens of the longest row, R maximum number
of read tokens of a row, H hidden, K scores of a token.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from albertkit.checkpoints.names import executed_layers
from albertkit.config import AlbertConfig
from albertkit.heads import Output, head_of, scores_of
from albertkit.onnx.graph import OPSET, Graph
from albertkit.onnx.network import Network


def build_rows(
    architecture: str,
    config: AlbertConfig,
    weights: Mapping[str, np.ndarray],
    *,
    int8: bool = False,
    inside: bool = False,
) -> tuple[Any, dict[str, np.ndarray]]:
    """Build the graph of the encoder. Its output is `states` (Q, H), the hidden states of the read tokens.

    The inputs in float32 are `words` (M, E), the word embeddings, and `bias` (B, 1, 1, T), 0 or
    `network.UNSEEN`. The other inputs are in int64:

    * `token_type_ids` and `position_ids` (M,)
    * `row_tokens` (B, T), the index of the token at each place of the padded rows
    * `token_places` (M,), the place in B * T of each token
    * `read_tokens` (Q,), the indices of the read tokens
    * `row_reads` (B, R) and `read_places` (Q,), the same as `row_tokens` and `token_places` for read tokens

    Args:
        architecture: the name of a model class.
        config: the config of the model.
        weights: the tensors of the model by their names in the state dict.
        int8: whether to multiply the layers' matrices as integers.
        inside: whether to also return, after `states`, the inputs of each layer, `hidden_states_0` and so on
            (M, H), and then the attention probabilities of each layer, `attentions_0` and so on
            (B, N, T, T); of the last layer (B, N, R, T).

    Returns:
        The `ModelProto` without the large weights, and these weights by name. A session uses their memory
        directly (`add_external_initializers`).
    """
    graph = Graph(weights, opset=OPSET, compute=np.dtype(np.float32), int8=int8, flat=True)
    network = Network(graph, architecture, config)
    words = graph.input("words", ["tokens", config.embedding_size], kind="FLOAT")
    token_type_ids, position_ids = (
        graph.input(name, ["tokens"]) for name in ("token_type_ids", "position_ids")
    )
    bias = graph.input("bias", ["rows", 1, 1, "longest"], kind="FLOAT")
    row_tokens = graph.input("row_tokens", ["rows", "longest"])
    token_places = graph.input("token_places", ["tokens"])
    read_tokens = graph.input("read_tokens", ["read"])
    row_reads = graph.input("row_reads", ["rows", "most_read"])
    read_places = graph.input("read_places", ["read"])

    def attend(query: str, key: str, value: str, *, queries: str, places: str) -> str:
        """Return contexts of queries, both (M or Q, N*D), which attend to keys and values (M, N*D)."""
        padded_query = graph.node("Gather", query, queries)
        padded_key, padded_value = (graph.node("Gather", values, row_tokens) for values in (key, value))
        contexts = network.attend(padded_query, padded_key, padded_value, bias)
        flat = graph.node("Reshape", contexts, graph.vector(-1, config.hidden_size))  # -> (B * R, H)
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
        attention = partial(attend, queries=queries, places=places)
        states = network.layer(layer, queried, states, attention)
    graph.output("states", states, ["read", config.hidden_size])
    if inside:
        for index, values in enumerate(layer_inputs):
            graph.output(f"hidden_states_{index}", values, ["tokens", config.hidden_size])
        for index, values in enumerate(network.attentions):
            shape = ["rows", config.num_attention_heads, "queries", "longest"]
            graph.output(f"attentions_{index}", values, shape)
    return graph.model(architecture), graph.external


def build_head(
    architecture: str, config: AlbertConfig, weights: Mapping[str, np.ndarray], output: Output
) -> tuple[Any, dict[str, np.ndarray]]:
    """Build the graph of a head, which computes `scores` (Q, K) from `states` (Q, H).

    For the other arguments, the result and the errors see `build_rows`; `output` is an output of the class.
    """
    graph = Graph(weights, opset=OPSET, compute=np.dtype(np.float32), flat=True)
    network = Network(graph, architecture, config)
    graph.scope = "head/"
    states = graph.input("states", ["read", config.hidden_size], kind="FLOAT")
    scores = scores_of(architecture, output)
    assert scores is not None
    width = head_of(architecture).size(scores.width, config)
    graph.output("scores", scores.compute(network, states), ["read", width])
    return graph.model(architecture), graph.external
