"""The layers as an ONNX graph for rows without padding: the tokens of a batch one after the other.

Only attention sees rows: queries, keys and values are gathered into padded rows for it, and its contexts
gathered back. Padding there costs little, as attention is a small part of the work for short rows, and rows
of one batch are of about one length. The last layer computes only the tokens that are read.

Shapes: M tokens of a batch, Q of them that are read, B rows, T tokens of the longest, R most that are read of
one, H hidden.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from albertkit import __version__
from albertkit.checkpoints.names import executed_layers
from albertkit.checkpoints.onnx_file import PRODUCER
from albertkit.config import AlbertConfig
from albertkit.graphs.graph import Graph
from albertkit.graphs.layers import attend_rows, write_layer

OPSET = 20
"""The first with Gelu."""


def build_layers(config: AlbertConfig, weights: Mapping[str, np.ndarray], *, int8: bool) -> Any:
    """Return the `ModelProto` of all layers.

    Its inputs are `states` (M, H); `row_tokens` (B, T), which token stands at each place of the rows; `bias`
    (B, 1, 1, T), 0 or `layers.UNSEEN`; `token_places` (M,), the place in B * T of each token; and, for those
    that are read, `read_tokens` (Q,), which tokens they are, `row_reads` (B, R) and `read_places` (Q,) as
    above. Its output is `read_states` (Q, H).

    Args:
        config: of the model.
        weights: float32, under the names of the encoder's state dict.
        int8: multiply in whole numbers.
    """
    graph = Graph(weights, opset=OPSET, compute=np.dtype(np.float32), int8=int8)
    states = graph.float_input("states", ["tokens", config.hidden_size])
    bias = graph.float_input("bias", ["rows", 1, 1, "longest"])
    row_tokens = graph.input("row_tokens", ["rows", "longest"])
    token_places = graph.input("token_places", ["tokens"])
    read_tokens = graph.input("read_tokens", ["read"])
    row_reads = graph.input("row_reads", ["rows", "most_read"])
    read_places = graph.input("read_places", ["read"])
    width = config.hidden_size // config.num_attention_heads

    def attend(query: str, key: str, value: str, *, asking: str, places: str, hidden: int) -> str:
        """(M or Q, N*D) and twice (M, N*D) -> (M or Q, N*D)."""
        queries, keys, values = (
            graph.node("Gather", one, tokens)
            for one, tokens in ((query, asking), (key, row_tokens), (value, row_tokens))
        )
        found = attend_rows(graph, queries, keys, values, bias, width=width)
        flat = graph.node("Reshape", found, graph.whole(-1, hidden))  # (B, R, N*D) -> (B * R, N*D)
        return graph.node("Gather", flat, places)

    layers = executed_layers(config, "")
    for index, layer in enumerate(layers):
        graph.scope = f"layer_{index}/"
        last = index == len(layers) - 1
        asking = graph.node("Gather", states, read_tokens) if last else states
        rows, places = (row_reads, read_places) if last else (row_tokens, token_places)
        heads = len(weights[f"{layer}.attention.query.bias"])  # N*D, less than H where pruned
        attention = partial(attend, asking=rows, places=places, hidden=heads)
        states = write_layer(graph, config, layer, asking, states, attention)
    graph.output("read_states", states, ["read", config.hidden_size])
    return graph.model("layers", producer=PRODUCER, version=__version__)
