"""Write the parts of ALBERT as nodes of an ONNX graph, for padded batches and for rows without padding.

The nodes of a layer are repeated for each time that it is applied. They share its weights.

Shapes: ... rows of any form, E embedding, H hidden, N heads, D head width, V vocabulary, K labels; B batch,
R queries and T keys of a row.
"""

import math
from collections.abc import Callable

from albertkit.config import AlbertConfig
from albertkit.heads import base_prefix
from albertkit.onnx.graph import Graph

UNSEEN = -10000.0
"""The number that is added to the attention scores of masked tokens, as in the original."""

Attend = Callable[[str, str, str], str]
"""A function of queries, keys and values, each (..., N*D), that returns contexts, shaped as the queries."""


def word_table(architecture: str) -> str:
    """Return the name of the tensor with the embeddings of the words (V, E)."""
    return f"{base_prefix(architecture)}embeddings.word_embeddings.weight"


class Network:
    """Writes the parts of one model into a graph. Methods take and return the names of values."""

    def __init__(self, graph: Graph, architecture: str, config: AlbertConfig) -> None:
        self.graph = graph
        self.architecture = architecture
        self.config = config
        self.prefix = base_prefix(architecture)
        self.attentions: list[str] = []
        """The attention probabilities (B, N, R, T) of each layer that has been written."""

    @property
    def head_width(self) -> int:
        """D, the same for all heads."""
        return self.config.hidden_size // self.config.num_attention_heads

    def embed(self, words: str, token_type_ids: str, positions: Callable[[str], str]) -> str:
        """Return the mapped embeddings (..., H).

        Args:
            words: embeddings of the words, (..., E).
            token_type_ids: segments, (...).
            positions: function of the table's name that returns the position embeddings, (..., E) or in a
                shape that broadcasts to it.
        """
        graph, table = self.graph, f"{self.prefix}embeddings"
        segments = graph.rows(f"{table}.token_type_embeddings.weight", token_type_ids)
        places = positions(f"{table}.position_embeddings.weight")
        total = graph.node("Add", graph.node("Add", words, segments), places)
        normal = self.layer_norm(total, f"{table}.LayerNorm")
        return self.linear(normal, f"{self.prefix}encoder.embedding_hidden_mapping_in")

    def layer(self, name: str, queried: str, states: str, attend: Attend) -> str:
        """Return the new states of the tokens `queried` (..., H), which attend to all tokens `states`."""
        graph = self.graph
        scope = graph.scope
        graph.scope = f"{scope}attention/"
        query = self.linear(queried, f"{name}.attention.query")
        key, value = (self.linear(states, f"{name}.attention.{part}") for part in ("key", "value"))
        context = self.linear(attend(query, key, value), f"{name}.attention.dense")
        attended = self.layer_norm(graph.node("Add", queried, context), f"{name}.attention.LayerNorm")
        graph.scope = f"{scope}ffn/"
        output = self.linear(self.activate(self.linear(attended, f"{name}.ffn")), f"{name}.ffn_output")
        return self.layer_norm(graph.node("Add", attended, output), f"{name}.full_layer_layer_norm")

    def attend(self, query: str, key: str, value: str, bias: str) -> str:
        """Return contexts of queries, both (B, R, N*D); keys and values (B, T, N*D); bias (B, 1, 1, T)."""
        graph, width = self.graph, self.head_width

        def split(values: str, order: list[int]) -> str:
            apart = graph.node("Reshape", values, graph.vector(0, 0, -1, width))  # (B, R, N, D)
            return graph.node("Transpose", apart, perm=order)

        scaled = graph.node("Mul", split(query, [0, 2, 1, 3]), graph.number(1 / math.sqrt(width)))
        scores = graph.node("MatMul", scaled, split(key, [0, 2, 3, 1]))  # (B, N, R, T)
        weights = graph.node("Softmax", graph.node("Add", scores, bias), axis=-1)
        self.attentions.append(weights)
        context = graph.node("MatMul", weights, split(value, [0, 2, 1, 3]))  # (B, N, R, D)
        merged = graph.node("Transpose", context, perm=[0, 2, 1, 3])
        return graph.node("Reshape", merged, graph.vector(0, 0, -1))

    # --- what heads are made of, as `heads.Network` describes it ------------------------------------

    def pool(self, states: str) -> str:
        """Return the pooled states of [CLS]: (..., H) -> (..., H)."""
        return self.graph.node("Tanh", self.linear(states, f"{self.prefix}pooler"))

    def linear(self, values: str, name: str) -> str:
        """Apply the linear map of that name: (..., inputs) -> (..., outputs)."""
        return self.graph.linear(values, name)

    def activate(self, values: str) -> str:
        """Apply `hidden_act`."""
        return self.graph.activation(values, str(self.config.hidden_act))

    def layer_norm(self, values: str, name: str) -> str:
        """Normalize the last dimension."""
        return self.graph.layer_norm(values, name, epsilon=self.config.layer_norm_eps)

    def multiply_by_words(self, values: str, bias: str) -> str:
        """Multiply by the word embeddings, and add a bias: (..., E) -> (..., V)."""
        return self.graph.product_with_rows(values, word_table(self.architecture), bias=bias)
