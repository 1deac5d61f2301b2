"""The ALBERT network as an ONNX graph, from config and tensors.

A layer's nodes are written as often as it is applied, and all refer to the one copy of its weights. Where
only [CLS] is read, the last layer computes nothing else, as the models here do.

Shapes: B batch, C choices, T tokens, E embedding, H hidden, V vocabulary, K labels.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from albertkit import __version__
from albertkit.checkpoints.names import BASE_PREFIX, executed_layers
from albertkit.checkpoints.onnx_file import PRODUCER
from albertkit.config import AlbertConfig
from albertkit.graphs.graph import Graph, onnx
from albertkit.graphs.layers import UNSEEN, attend_rows, write_layer

MULTIPLE_CHOICE = "AlbertForMultipleChoice"
_READ_FIRST = ("AlbertForSequenceClassification", MULTIPLE_CHOICE)


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
    """Write the network.

    Args:
        architecture: the name of a model class.
        config: its shape.
        weights: its tensors by the names of its state dict; without a pooler `AlbertModel` has no
            `pooler_output`.
        opset: version of the ONNX operators.
        compute: float32 or float16.
        int8: multiply in whole numbers; needs float32.
        optional_inputs: whether `attention_mask` and `token_type_ids` may be left out.

    Returns:
        The `ModelProto`, and the bytes of the weights in it.

    Raises:
        CheckpointError: a tensor is missing.
    """
    graph = Graph(weights, opset=opset, compute=compute, int8=int8)
    network = _Network(graph, config, "" if architecture == "AlbertModel" else BASE_PREFIX)
    shape = ["batch", "choices", "sequence"] if architecture == MULTIPLE_CHOICE else ["batch", "sequence"]
    given = [graph.input("input_ids", shape)]
    for name, default in (("attention_mask", 1), ("token_type_ids", 0)):
        if optional_inputs:
            given.append(graph.optional_input(name, shape, like="input_ids", default=default))
        else:
            given.append(graph.input(name, shape))
    if architecture == MULTIPLE_CHOICE:
        rows = graph.node(
            "Concat", graph.whole(-1), graph.node("Shape", given[0], start=2), axis=0
        )  # (-1, T)
        given = [graph.node("Reshape", ids, rows) for ids in given]  # (B, C, T) -> (B*C, T)
    states = network.encode(*given, first_only=architecture in _READ_FIRST)
    _HEADS[architecture](network, states)
    return graph.model(architecture, producer=PRODUCER, version=__version__), graph.weight_bytes


class _Network:
    """The encoder and what heads share."""

    def __init__(self, graph: Graph, config: AlbertConfig, prefix: str) -> None:
        self.graph = graph
        self.config = config
        self.prefix = prefix

    def encode(self, input_ids: str, attention_mask: str, token_type_ids: str, *, first_only: bool) -> str:
        """(B, T) each -> the last hidden states (B, T, H), or (B, 1, H) of [CLS]."""
        graph, config = self.graph, self.config
        graph.scope = "mask/"
        bias = self._mask(attention_mask)
        graph.scope = "embeddings/"
        states = graph.linear(
            self._embed(input_ids, token_type_ids), f"{self.prefix}encoder.embedding_hidden_mapping_in"
        )
        layers = executed_layers(config, self.prefix)
        width = config.hidden_size // config.num_attention_heads

        def attend(query: str, key: str, value: str) -> str:
            return attend_rows(graph, query, key, value, bias, width=width)

        for index, layer in enumerate(layers):
            graph.scope = f"layer_{index}/"
            asking = states
            if first_only and index == len(layers) - 1:
                asking = graph.node("Slice", states, graph.whole(0), graph.whole(1), graph.whole(1))
            states = write_layer(graph, config, layer, asking, states, attend)
        graph.scope = "head/"
        return states

    def _mask(self, attention_mask: str) -> str:
        """(B, T) of 0 and 1 -> what is added to scores, (B, 1, 1, T). Rows that may see nothing see all."""
        graph = self.graph
        seen = graph.node("Cast", attention_mask, to=onnx.TensorProto.BOOL)
        count = graph.node(
            "ReduceSum", graph.node("Cast", seen, to=onnx.TensorProto.INT64), graph.whole(1), keepdims=1
        )
        seen = graph.node("Or", seen, graph.node("Equal", count, graph.index(0)))
        bias = graph.node("Where", seen, graph.number(0.0), graph.number(UNSEEN))
        return graph.node("Unsqueeze", bias, graph.whole(1, 2))

    def _embed(self, input_ids: str, token_type_ids: str) -> str:
        """(B, T) each -> (B, T, E)."""
        graph, name = self.graph, f"{self.prefix}embeddings"
        words = graph.rows(f"{name}.word_embeddings.weight", input_ids)
        segments = graph.rows(f"{name}.token_type_embeddings.weight", token_type_ids)
        length = graph.node("Shape", input_ids, start=1)  # (1,)
        positions = graph.node(
            "Slice", graph.weight(f"{name}.position_embeddings.weight"), graph.whole(0), length
        )  # (T, E); a longer text than there are positions cannot be added
        total = graph.node("Add", graph.node("Add", words, segments), positions)
        return graph.layer_norm(total, f"{name}.LayerNorm", epsilon=self.config.layer_norm_eps)

    def pool(self, states: str) -> str:
        """(B, T, H) -> (B, H)."""
        first = self.graph.node("Gather", states, self.graph.index(0), axis=1)
        return self.graph.node("Tanh", self.graph.linear(first, f"{self.prefix}pooler"))

    def score_words(self, states: str) -> str:
        """(B, T, H) -> (B, T, V)."""
        graph, config = self.graph, self.config
        narrow = graph.activation(graph.linear(states, "predictions.dense"), str(config.hidden_act))
        narrow = graph.layer_norm(narrow, "predictions.LayerNorm", epsilon=config.layer_norm_eps)
        if not config.tie_word_embeddings:
            return graph.linear(narrow, "predictions.decoder")
        words = graph.weight(f"{self.prefix}embeddings.word_embeddings.weight")
        scores = graph.node("MatMul", narrow, graph.node("Transpose", words, perm=[1, 0]))
        return graph.node("Add", scores, graph.weight("predictions.bias"))


# --- heads --------------------------------------------------------------------------------------


def _encoder_alone(network: _Network, states: str) -> None:
    width = network.config.hidden_size
    network.graph.output("last_hidden_state", states, ["batch", "sequence", width])
    if "pooler.weight" in network.graph.weights:
        network.graph.output("pooler_output", network.pool(states), ["batch", width])


def _pretraining(network: _Network, states: str) -> None:
    graph = network.graph
    words, size = network.score_words(states), network.config.vocab_size
    graph.output("prediction_logits", words, ["batch", "sequence", size])
    order = graph.linear(network.pool(states), "sop_classifier.classifier")
    graph.output("sop_logits", order, ["batch", 2])


def _masked_words(network: _Network, states: str) -> None:
    size = network.config.vocab_size
    network.graph.output("logits", network.score_words(states), ["batch", "sequence", size])


def _sequence_labels(network: _Network, states: str) -> None:
    logits = network.graph.linear(network.pool(states), "classifier")
    network.graph.output("logits", logits, ["batch", network.config.num_labels])


def _token_labels(network: _Network, states: str) -> None:
    logits = network.graph.linear(states, "classifier")
    network.graph.output("logits", logits, ["batch", "sequence", network.config.num_labels])


def _answers(network: _Network, states: str) -> None:
    graph = network.graph
    logits = graph.linear(states, "qa_outputs")  # (B, T, 2)
    for column, name in enumerate(("start_logits", "end_logits")):
        graph.output(name, graph.node("Gather", logits, graph.index(column), axis=2), ["batch", "sequence"])


def _choices(network: _Network, states: str) -> None:
    graph = network.graph
    scores = graph.linear(network.pool(states), "classifier")  # (B*C, 1)
    shape = graph.node("Shape", "input_ids", end=2)
    graph.output("logits", graph.node("Reshape", scores, shape), ["batch", "choices"])


_HEADS = {
    "AlbertModel": _encoder_alone,
    "AlbertForPreTraining": _pretraining,
    "AlbertForMaskedLM": _masked_words,
    "AlbertForSequenceClassification": _sequence_labels,
    "AlbertForTokenClassification": _token_labels,
    "AlbertForQuestionAnswering": _answers,
    MULTIPLE_CHOICE: _choices,
}
ARCHITECTURES = tuple(_HEADS)
"""Names of the model classes that can be exported."""
