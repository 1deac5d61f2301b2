"""Build the graph of a file, which computes the outputs of a model class for padded batches.

If the head reads only [CLS], the last layer computes only [CLS], as in the PyTorch classes.

Shapes: B batch, C choices, T tokens, E embedding, H hidden, V vocabulary, K labels.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from albertkit.checkpoints.names import executed_layers
from albertkit.config import AlbertConfig
from albertkit.heads import head_of
from albertkit.onnx.graph import Graph, onnx
from albertkit.onnx.network import UNSEEN, Network, word_table


def build(
    architecture: str,
    config: AlbertConfig,
    weights: Mapping[str, np.ndarray],
    *,
    opset: int,
    compute: np.dtype,
    int8: bool,
    optional_inputs: bool,
) -> tuple[Any, int]:
    """Build the graph of a model.

    Args:
        architecture: the name of a model class.
        config: the config of the model.
        weights: the tensors of the model by their names in the state dict. Without a pooler, `AlbertModel`
            has no `pooler_output`.
        opset: version of the ONNX operators.
        compute: data type of the computation, float32 or float16.
        int8: whether to multiply the layers' matrices as integers. Needs float32.
        optional_inputs: whether `attention_mask` and `token_type_ids` are optional.

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
    _write_outputs(network, _encode(network, *given))
    return graph.model(architecture), graph.weight_bytes


def _encode(network: Network, input_ids: str, attention_mask: str, token_type_ids: str) -> str:
    """Return the last hidden states of inputs (B, T): (B, T, H), or only those of [CLS], (B, 1, H)."""
    graph = network.graph
    graph.scope = "mask/"
    bias = _mask(graph, attention_mask)
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


def _mask(graph: Graph, attention_mask: str) -> str:
    """Return the bias (B, 1, 1, T) of attention scores for a mask (B, T). A mask of zeros masks nothing."""
    seen = graph.node("Cast", attention_mask, to=onnx.TensorProto.BOOL)
    count = graph.node(
        "ReduceSum", graph.node("Cast", seen, to=onnx.TensorProto.INT64), graph.vector(1), keepdims=1
    )
    seen = graph.node("Or", seen, graph.node("Equal", count, graph.index(0)))
    bias = graph.node("Where", seen, graph.number(0.0), graph.number(UNSEEN))
    return graph.node("Unsqueeze", bias, graph.vector(1, 2))


def _write_outputs(network: Network, states: str) -> None:
    """Compute and declare the outputs of the model class from states (B, T, H)."""
    graph, head = network.graph, head_of(network.architecture)
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
            graph.output(scores.names[0], values, [*shape, head.size(scores.width, network.config)])
        else:
            for column, name in enumerate(scores.names):
                graph.output(name, graph.node("Gather", values, graph.index(column), axis=len(shape)), shape)
