"""Write the parts of ALBERT as nodes of an ONNX graph, for padded batches and for rows without padding.

The nodes of a layer are repeated for each time that it is applied. They share its weights.

Shapes: ... rows of any form, E embedding, H hidden, N heads, D head width, V vocabulary, K labels; B batch,
R queries and T keys of a row.
"""

import math
from collections.abc import Callable

import numpy as np

from albertkit.config import ACTIVATION_ALIASES, AlbertConfig
from albertkit.heads import base_prefix
from albertkit.onnx.graph import OPSET, RUNTIME, Graph
from albertkit.onnx.int8 import COMPUTED_LARGEST, STORED_LARGEST, is_computed

UNSEEN = -10000.0
"""The number that is added to the attention scores of masked tokens, as in the original."""
_ZERO_POINT = 128  # represents 0 in a rounded activation, because these bytes have no sign
_TINY = 1e-30

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
        self._rounded: dict[str, tuple[str, str]] = {}  # values -> the same in bytes, and their scales

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
        embedded = positions(f"{table}.position_embeddings.weight")
        total = graph.node("Add", graph.node("Add", words, segments), embedded)
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
        graph, matrix = self.graph, f"{name}.weight"
        bias = graph.weight(f"{name}.bias")
        if graph.int8 and is_computed(matrix, graph.tensor(matrix)):
            return graph.node("Add", self._integer_product(values, matrix), bias)
        if graph.flat:
            return graph.node("Gemm", values, graph.weight(matrix), bias, transB=1)
        return graph.node("Add", graph.node("MatMul", values, graph.weight(matrix, transposed=True)), bias)

    def activate(self, values: str, _: str = "") -> str:
        """Apply `hidden_act`."""
        graph, name = self.graph, str(self.config.hidden_act)
        name = ACTIVATION_ALIASES.get(name, name)
        if name == "linear":
            return values
        if name in ("relu", "tanh"):
            return graph.node(name.capitalize(), values)
        if name == "leaky_relu":
            return graph.node("LeakyRelu", values, alpha=0.01)
        if name == "silu":
            return graph.node("Mul", values, graph.node("Sigmoid", values))
        if name == "quick_gelu":
            steeper = graph.node("Mul", values, graph.number(1.702))
            return graph.node("Mul", values, graph.node("Sigmoid", steeper))
        if name == "mish":
            return graph.node("Mul", values, graph.node("Tanh", graph.node("Softplus", values)))
        tanh = name == "gelu_new"
        if graph.opset >= OPSET:
            return graph.node("Gelu", values, approximate="tanh" if tanh else "none")
        if tanh:
            cube = graph.node("Mul", values, graph.node("Mul", values, values))
            inner = graph.node("Add", values, graph.node("Mul", cube, graph.number(0.044715)))
            bend = graph.node("Tanh", graph.node("Mul", inner, graph.number(math.sqrt(2 / math.pi))))
        else:
            bend = graph.node("Erf", graph.node("Mul", values, graph.number(math.sqrt(0.5))))
        share = graph.node("Mul", graph.node("Add", bend, graph.number(1.0)), graph.number(0.5))
        return graph.node("Mul", values, share)

    def layer_norm(self, values: str, name: str) -> str:
        """Normalize the last dimension."""
        graph = self.graph
        scale, shift = graph.weight(f"{name}.weight"), graph.weight(f"{name}.bias")
        return graph.node("LayerNormalization", values, scale, shift, epsilon=self.config.layer_norm_eps)

    def multiply_by_words(self, values: str, bias: str) -> str:
        """Multiply by the word embeddings, and add a bias: (..., E) -> (..., V)."""
        graph = self.graph
        words = graph.weight(word_table(self.architecture))
        if graph.flat:
            return graph.node("Gemm", values, words, graph.weight(bias), transB=1)
        columns = graph.node("Transpose", words, perm=[1, 0])
        return graph.node("Add", graph.node("MatMul", values, columns), graph.weight(bias))

    def _integer_product(self, values: str, name: str) -> str:
        """Multiply by a matrix as integers: (..., inputs) -> (..., outputs)."""
        graph = self.graph
        matrix, scales = graph.round_rows(name, COMPUTED_LARGEST, transposed=True)
        if values not in self._rounded:
            self._rounded[values] = self._round(values, width=graph.tensor(name).shape[1])
        rounded, token_scales = self._rounded[values]
        inputs = rounded, matrix, graph.number(1.0), scales, self._zero()
        return graph.node("Mul", graph.node("MatMulIntegerToFloat", *inputs, domain=RUNTIME), token_scales)

    def _round(self, values: str, *, width: int) -> tuple[str, str]:
        """Round values (..., width) to bytes, and return them with the scale of each token, (..., 1)."""
        graph = self.graph
        least = graph.node("Neg", graph.node("ReduceMin", values, graph.vector(-1)))
        most = graph.node("ReduceMax", values, graph.vector(-1))
        most = graph.node("Max", most, least, graph.number(_TINY))
        scales = graph.node("Mul", most, graph.number(1 / STORED_LARGEST))
        flat_scales = graph.node("Reshape", scales, graph.vector(-1))
        zeros = graph.node("Expand", self._zero(), graph.node("Shape", flat_scales))
        flat = graph.node("Reshape", values, graph.vector(-1, width))
        rounded = graph.node("QuantizeLinear", flat, flat_scales, zeros, axis=0)
        return graph.node("Reshape", rounded, graph.node("Shape", values)), scales

    def _zero(self) -> str:
        return self.graph.constant("constants/uint8_zero", np.array(_ZERO_POINT, np.uint8))
