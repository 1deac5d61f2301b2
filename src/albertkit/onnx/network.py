"""Write ALBERT as an ONNX graph: of padded batches for files, and of rows without padding for the engine.

The nodes of a layer are repeated for each time that it is applied. They share its weights. If only some
tokens are read, the last layer computes only these tokens.

Shapes: ... rows of any form, E embedding, H hidden, N heads, D head width, V vocabulary, K scores of a token;
B batch, C choices, R queries and T keys of a row; M tokens and Q read tokens of all packed rows.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from albertkit.checkpoints.names import executed_layers
from albertkit.config import ACTIVATION_ALIASES, AlbertConfig
from albertkit.heads import Output, base_prefix, head_of, scores_of
from albertkit.onnx.graph import COMPUTED_LARGEST, OPSET, RUNTIME, STORED_LARGEST, Graph, is_computed, onnx

UNSEEN = -10000.0
"""The number that is added to the attention scores of masked tokens, as in the original."""
_ZERO_POINT = 128  # represents 0 in a rounded activation, because these bytes have no sign
_TINY = 1e-30

Attend = Callable[[str, str, str], str]
"""A function of queries, keys and values, each (..., N*D), that returns contexts, shaped as the queries."""


def word_table(architecture: str) -> str:
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

    def embed(self, words: str, token_type_ids: str, positions: Callable[[str], str]) -> str:
        """Return the mapped embeddings (..., H) of words (..., E) and segments (...).

        `positions` returns the position embeddings, which broadcast to (..., E), for the name of the table.
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
        graph, width = self.graph, self.config.hidden_size // self.config.num_attention_heads

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

    # --- the operations of `heads.Network` ----------------------------------------------------------

    def pool(self, states: str) -> str:
        return self.graph.node("Tanh", self.linear(states, f"{self.prefix}pooler"))

    def linear(self, values: str, name: str) -> str:
        graph, matrix = self.graph, f"{name}.weight"
        bias = graph.weight(f"{name}.bias")
        if graph.int8 and is_computed(matrix, graph.tensor(matrix)):
            return graph.node("Add", self._integer_product(values, matrix), bias)
        if graph.flat:
            return graph.node("Gemm", values, graph.weight(matrix), bias, transB=1)
        return graph.node("Add", graph.node("MatMul", values, graph.weight(matrix, transposed=True)), bias)

    def activate(self, values: str, _: str = "") -> str:
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
        graph = self.graph
        scale, shift = graph.weight(f"{name}.weight"), graph.weight(f"{name}.bias")
        return graph.node("LayerNormalization", values, scale, shift, epsilon=self.config.layer_norm_eps)

    def multiply_by_words(self, values: str, bias: str) -> str:
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


# --- padded batches ---------------------------------------------------------------------------------


def build_padded(
    architecture: str,
    config: AlbertConfig,
    weights: Mapping[str, np.ndarray],
    *,
    opset: int,
    compute: np.dtype,
    int8: bool,
    optional_inputs: bool,
) -> tuple[Any, int]:
    """Build the graph of a file, which computes the outputs of a model class for padded batches.

    Without the weights of a pooler, `AlbertModel` has no `pooler_output`. `compute` is the data type of the
    computation. With `int8`, which needs float32, the layers' matrices are multiplied as integers.

    Returns:
        The `ModelProto`, and the number of bytes of its weights.
    """
    graph = Graph(weights, opset=opset, compute=compute, int8=int8)
    network = Network(graph, architecture, config)
    head = head_of(architecture)
    shape = ["batch", "choices", "sequence"] if head.has_choices else ["batch", "sequence"]
    given = [graph.input("input_ids", shape)]
    for name, default in (("attention_mask", 1), ("token_type_ids", 0)):
        if optional_inputs:
            given.append(graph.optional_input(name, shape, like="input_ids", default=default))
        else:
            given.append(graph.input(name, shape))
    if head.has_choices:
        rows = graph.node(
            "Concat", graph.vector(-1), graph.node("Shape", given[0], start=2), axis=0
        )  # (-1, T)
        given = [graph.node("Reshape", ids, rows) for ids in given]  # (B, C, T) -> (B*C, T)
    states = _encode(network, *given)
    for scores in head.scores.values():
        if scores.needs and scores.needs not in graph.weights:
            continue
        read, shape = states, ["batch", "sequence"]
        if scores.reads_first:
            read, shape = graph.node("Gather", states, graph.index(0), axis=1), ["batch"]  # (B, H)
        values = scores.compute(network, read)
        if head.has_choices:  # (B * C, 1) -> (B, C)
            values = graph.node("Reshape", values, graph.node("Shape", "input_ids", end=2))
            graph.output(scores.names[0], values, ["batch", "choices"])
        elif len(scores.names) == 1:
            graph.output(scores.names[0], values, [*shape, head.size(scores.width, config)])
        else:
            for column, name in enumerate(scores.names):
                graph.output(name, graph.node("Gather", values, graph.index(column), axis=len(shape)), shape)
    return graph.model(architecture), graph.weight_bytes


def _encode(network: Network, input_ids: str, attention_mask: str, token_type_ids: str) -> str:
    """Return the last hidden states of inputs (B, T): (B, T, H), or only those of [CLS], (B, 1, H)."""
    graph = network.graph
    graph.scope = "mask/"
    seen = graph.node("Cast", attention_mask, to=onnx.TensorProto.BOOL)
    numbers = graph.node("Cast", seen, to=onnx.TensorProto.INT64)
    count = graph.node("ReduceSum", numbers, graph.vector(1), keepdims=1)
    seen = graph.node("Or", seen, graph.node("Equal", count, graph.index(0)))  # a mask of zeros masks nothing
    bias = graph.node("Where", seen, graph.number(0.0), graph.number(UNSEEN))
    bias = graph.node("Unsqueeze", bias, graph.vector(1, 2))  # (B, T) -> (B, 1, 1, T)
    graph.scope = "embeddings/"

    def first_positions(table: str) -> str:
        """Return the first T position embeddings (T, E). If T exceeds their number, the sum fails."""
        length = graph.node("Shape", input_ids, start=1)  # (1,)
        return graph.node("Slice", graph.weight(table), graph.vector(0), length)

    words = graph.rows(word_table(network.architecture), input_ids)
    states = network.embed(words, token_type_ids, first_positions)

    def attend(query: str, key: str, value: str) -> str:
        return network.attend(query, key, value, bias)

    layers = executed_layers(network.config, network.prefix)
    reads_first = head_of(network.architecture).reads_first
    for index, layer in enumerate(layers):
        graph.scope = f"layer_{index}/"
        queried = states
        if reads_first and index == len(layers) - 1:
            queried = graph.node("Slice", states, graph.vector(0), graph.vector(1), graph.vector(1))
        states = network.layer(layer, queried, states, attend)
    graph.scope = "head/"
    return states


# --- rows without padding ---------------------------------------------------------------------------


def build_rows(
    architecture: str,
    config: AlbertConfig,
    weights: Mapping[str, np.ndarray],
    *,
    int8: bool = False,
    inside: bool = False,
) -> tuple[Any, dict[str, np.ndarray]]:
    """Build the graph of the encoder for rows whose tokens are concatenated without padding.

    Its output is `states` (Q, H), the hidden states of the read tokens. Only attention uses rows: queries,
    keys and values are gathered into padded rows for it, and its contexts are gathered back. This padding
    costs little, because attention is a small part of the work for short rows, and the rows of one batch have
    similar lengths.

    The inputs in float32 are `words` (M, E), the word embeddings, and `bias` (B, 1, 1, T), 0 or
    `network.UNSEEN`. The other inputs are in int64:

    * `token_type_ids` and `position_ids` (M,)
    * `row_tokens` (B, T), the index of the token at each place of the padded rows
    * `token_places` (M,), the place in B * T of each token
    * `read_tokens` (Q,), the indices of the read tokens
    * `row_reads` (B, R) and `read_places` (Q,), the same as `row_tokens` and `token_places` for read tokens

    With `inside`, the outputs after `states` are the inputs of each layer, `hidden_states_0` and so on
    (M, H), and then the attention probabilities of each layer, `attentions_0` and so on (B, N, T, T); of the
    last layer (B, N, R, T).

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
    """Build the graph of a head, which computes `scores` (Q, K) from `states` (Q, H); see `build_rows`."""
    graph = Graph(weights, opset=OPSET, compute=np.dtype(np.float32), flat=True)
    network = Network(graph, architecture, config)
    graph.scope = "head/"
    states = graph.input("states", ["read", config.hidden_size], kind="FLOAT")
    scores = scores_of(architecture, output)
    assert scores is not None
    width = head_of(architecture).size(scores.width, config)
    graph.output("scores", scores.compute(network, states), ["read", width])
    return graph.model(architecture), graph.external
