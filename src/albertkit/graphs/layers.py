"""A layer of the network as nodes of a graph, whether its rows are padded or stand one after the other.

Shapes: B batch, T tokens, R of them that ask, H hidden, N heads, D head width; M and Q as in `packed.py`.
"""

import math
from collections.abc import Callable

from albertkit.config import AlbertConfig
from albertkit.graphs.graph import Graph

UNSEEN = -10000.0
"""What is added to the scores of what may not be seen, as in the original."""

Attend = Callable[[str, str, str], str]
"""Queries (..., N*D), keys and values (..., N*D) of what is looked at -> contexts, shaped as the queries."""


def write_layer(
    graph: Graph, config: AlbertConfig, name: str, asking: str, states: str, attend: Attend
) -> str:
    """States of what asks (..., H), looking at all `states` (..., H) -> its new states (..., H)."""
    epsilon = config.layer_norm_eps
    scope = graph.scope
    graph.scope = f"{scope}attention/"
    query = graph.linear(asking, f"{name}.attention.query")
    key, value = (graph.linear(states, f"{name}.attention.{part}") for part in ("key", "value"))
    context = graph.linear(attend(query, key, value), f"{name}.attention.dense")
    attended = graph.layer_norm(
        graph.node("Add", asking, context), f"{name}.attention.LayerNorm", epsilon=epsilon
    )
    graph.scope = f"{scope}ffn/"
    expanded = graph.activation(graph.linear(attended, f"{name}.ffn"), str(config.hidden_act))
    output = graph.linear(expanded, f"{name}.ffn_output")
    return graph.layer_norm(
        graph.node("Add", attended, output), f"{name}.full_layer_layer_norm", epsilon=epsilon
    )


def attend_rows(graph: Graph, query: str, key: str, value: str, bias: str, *, width: int) -> str:
    """(B, R, N*D), twice (B, T, N*D), and a bias (B, 1, 1, T) -> (B, R, N*D)."""

    def split(values: str, order: list[int]) -> str:
        apart = graph.node("Reshape", values, graph.whole(0, 0, -1, width))  # (B, R, N, D)
        return graph.node("Transpose", apart, perm=order)

    scaled = graph.node("Mul", split(query, [0, 2, 1, 3]), graph.number(1 / math.sqrt(width)))
    scores = graph.node("MatMul", scaled, split(key, [0, 2, 3, 1]))  # (B, N, R, T)
    weights = graph.node("Softmax", graph.node("Add", scores, bias), axis=-1)
    context = graph.node("MatMul", weights, split(value, [0, 2, 1, 3]))  # (B, N, R, D)
    return graph.node("Reshape", graph.node("Transpose", context, perm=[0, 2, 1, 3]), graph.whole(0, 0, -1))
