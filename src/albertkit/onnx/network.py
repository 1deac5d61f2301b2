"""The parts of the ALBERT network as nodes of an ONNX graph, for padded batches and for rows without padding.

A layer's nodes are written as often as it is applied, and all refer to the one copy of its weights.

Shapes: ... rows of any form, E embedding, H hidden, N heads, D head width, V vocabulary, K labels; B batch,
R queries and T keys of a row.
"""

import math
from collections.abc import Callable
from typing import Literal

from albertkit.checkpoints.names import BASE_PREFIX
from albertkit.config import AlbertConfig
from albertkit.onnx.graph import Graph

MULTIPLE_CHOICE = "AlbertForMultipleChoice"
SEQUENCE_CLASSIFICATION = "AlbertForSequenceClassification"
PRETRAINING = "AlbertForPreTraining"
MASKED_LM = "AlbertForMaskedLM"
QUESTION_ANSWERING = "AlbertForQuestionAnswering"
ENCODER = "AlbertModel"

UNSEEN = -10000.0
"""Added to the scores of tokens that may not be seen, as in the original."""

Output = Literal["logits", "order", "hidden_states"]
Attend = Callable[[str, str, str], str]
"""Queries (..., N*D), keys and values (..., N*D) of what is looked at -> contexts, shaped as the queries."""


def word_table(architecture: str) -> str:
    """Return the name of the tensor with the embeddings of the words (V, E)."""
    return f"{_prefix(architecture)}embeddings.word_embeddings.weight"


def _prefix(architecture: str) -> str:
    return "" if architecture == ENCODER else BASE_PREFIX


class Network:
    """Writes the parts of one model into a graph; values are known by their names."""

    def __init__(self, graph: Graph, architecture: str, config: AlbertConfig) -> None:
        self.graph = graph
        self.architecture = architecture
        self.config = config
        self.prefix = _prefix(architecture)
        self.attentions: list[str] = []
        """The attention probabilities (B, N, R, T) of each layer that has been written."""

    @property
    def head_width(self) -> int:
        """D, the same for all heads."""
        return self.config.hidden_size // self.config.num_attention_heads

    def embed(self, words: str, token_type_ids: str, positions: Callable[[str], str]) -> str:
        """Embeddings of words (..., E) and segments (...) -> mapped embeddings (..., H).

        Args:
            words: (..., E).
            token_type_ids: (...).
            positions: given the table's name, returns the position embeddings, (..., E) or of a shape that
                can be added to it.
        """
        graph, table = self.graph, f"{self.prefix}embeddings"
        segments = graph.rows(f"{table}.token_type_embeddings.weight", token_type_ids)
        places = positions(f"{table}.position_embeddings.weight")
        total = graph.node("Add", graph.node("Add", words, segments), places)
        normal = graph.layer_norm(total, f"{table}.LayerNorm", epsilon=self.config.layer_norm_eps)
        return graph.linear(normal, f"{self.prefix}encoder.embedding_hidden_mapping_in")

    def layer(self, name: str, queried: str, states: str, attend: Attend) -> str:
        """States (..., H) of the tokens that query, and of all tokens -> new states of those that query."""
        graph, epsilon = self.graph, self.config.layer_norm_eps
        scope = graph.scope
        graph.scope = f"{scope}attention/"
        query = graph.linear(queried, f"{name}.attention.query")
        key, value = (graph.linear(states, f"{name}.attention.{part}") for part in ("key", "value"))
        context = graph.linear(attend(query, key, value), f"{name}.attention.dense")
        attended = graph.layer_norm(
            graph.node("Add", queried, context), f"{name}.attention.LayerNorm", epsilon=epsilon
        )
        graph.scope = f"{scope}ffn/"
        expanded = graph.activation(graph.linear(attended, f"{name}.ffn"), str(self.config.hidden_act))
        output = graph.linear(expanded, f"{name}.ffn_output")
        return graph.layer_norm(
            graph.node("Add", attended, output), f"{name}.full_layer_layer_norm", epsilon=epsilon
        )

    def attend(self, query: str, key: str, value: str, bias: str) -> str:
        """(B, R, N*D), twice (B, T, N*D), and a bias (B, 1, 1, T) -> (B, R, N*D)."""
        graph, width = self.graph, self.head_width

        def split(values: str, order: list[int]) -> str:
            apart = graph.node("Reshape", values, graph.whole(0, 0, -1, width))  # (B, R, N, D)
            return graph.node("Transpose", apart, perm=order)

        scaled = graph.node("Mul", split(query, [0, 2, 1, 3]), graph.number(1 / math.sqrt(width)))
        scores = graph.node("MatMul", scaled, split(key, [0, 2, 3, 1]))  # (B, N, R, T)
        weights = graph.node("Softmax", graph.node("Add", scores, bias), axis=-1)
        self.attentions.append(weights)
        context = graph.node("MatMul", weights, split(value, [0, 2, 1, 3]))  # (B, N, R, D)
        merged = graph.node("Transpose", context, perm=[0, 2, 1, 3])
        return graph.node("Reshape", merged, graph.whole(0, 0, -1))

    def pool(self, states: str) -> str:
        """(..., H) of [CLS] -> (..., H)."""
        return self.graph.node("Tanh", self.graph.linear(states, f"{self.prefix}pooler"))

    def scores(self, states: str, output: Output = "logits") -> str:
        """Return an output (..., K) of tokens from their states (..., H); heads for texts are given [CLS]."""
        graph, architecture = self.graph, self.architecture
        if output == "hidden_states":
            return states
        if output == "order":
            return graph.linear(self.pool(states), "sop_classifier.classifier")
        if architecture in (MASKED_LM, PRETRAINING):
            return self._score_words(states)
        if architecture in (SEQUENCE_CLASSIFICATION, MULTIPLE_CHOICE):
            return graph.linear(self.pool(states), "classifier")
        return graph.linear(states, "qa_outputs" if architecture == QUESTION_ANSWERING else "classifier")

    def width(self, output: Output = "logits") -> int:
        """Return K."""
        config, architecture = self.config, self.architecture
        if output == "hidden_states":
            return config.hidden_size
        if output == "order":
            return config.num_labels
        if architecture == QUESTION_ANSWERING:
            return 2
        if architecture in (MASKED_LM, PRETRAINING):
            return config.vocab_size
        return 1 if architecture == MULTIPLE_CHOICE else config.num_labels

    def _score_words(self, states: str) -> str:
        graph, config = self.graph, self.config
        narrow = graph.activation(graph.linear(states, "predictions.dense"), str(config.hidden_act))
        narrow = graph.layer_norm(narrow, "predictions.LayerNorm", epsilon=config.layer_norm_eps)
        if not config.tie_word_embeddings:
            return graph.linear(narrow, "predictions.decoder")
        return graph.product_with_rows(narrow, word_table(self.architecture), bias="predictions.bias")
