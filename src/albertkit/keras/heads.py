"""The Keras models: the encoder, and the encoder with each head.

For the inputs see `TFAlbertPreTrainedModel.__call__`.

Shapes: B batch, C choices, T tokens, E embedding, H hidden, V vocabulary, K labels.
"""

from typing import Any

from albertkit.keras.layers import (
    BaseLayer,
    Tensor,
    initializer,
    keras,
    make_activation,
    make_dense,
    make_dropout,
    make_layer_norm,
    ops,
)
from albertkit.keras.pretrained import TFAlbertPreTrainedModel

_register = keras.saving.register_keras_serializable(package="albertkit")


@_register
class TFAlbertModel(TFAlbertPreTrainedModel):
    """The encoder: `outputs[0]` is last_hidden_state (B, T, H), `outputs[1]` is pooler_output (B, H)."""

    architecture = "AlbertModel"
    output_name = "BaseModelOutputWithPooling"


class AlbertDecoder(keras.layers.Layer):
    """Maps states to logits over the vocabulary: (..., E) -> (..., V).

    It shares the matrix of `table`, the word embeddings, or has a matrix of its own.
    """

    def __init__(self, owner: Any, name: str, *, table: keras.layers.Embedding | None) -> None:
        super().__init__(name=name, dtype=owner.dtype_policy)
        config = owner.config
        self.table = table
        if table is None:
            shape = (config.embedding_size, config.vocab_size)
            self.kernel = self.add_weight(shape=shape, initializer=initializer(config), name="kernel")
        self.bias = self.add_weight(shape=(config.vocab_size,), initializer="zeros", name="bias")
        self.built = True

    def call(self, states: Tensor) -> Tensor:
        kernel = self.kernel if self.table is None else ops.transpose(self.table.embeddings)
        return ops.matmul(states, ops.cast(kernel, self.compute_dtype)) + self.bias


class AlbertMLMHead(BaseLayer):
    """Maps hidden states to logits over the vocabulary: (..., H) -> (..., V)."""

    def _make_parts(self, *, table: keras.layers.Embedding | None) -> None:
        config = self.config
        self.dense = make_dense(self, "dense", config.hidden_size, config.embedding_size)
        self.activation = make_activation(config.hidden_act)
        self.LayerNorm = make_layer_norm(self, "LayerNorm", config.embedding_size)
        self.decoder = AlbertDecoder(self, "decoder", table=table)

    def call(self, hidden_states: Tensor) -> Tensor:
        return self.decoder(self.LayerNorm(self.activation(self.dense(hidden_states))))


class AlbertSOPHead(BaseLayer):
    """Maps (B, H) to logits (B, K): "in order" (0), "swapped" (1); without dropout as in the original."""

    def _make_parts(self) -> None:
        self.classifier = make_dense(self, "classifier", self.config.hidden_size, self.config.num_labels)

    def call(self, pooled: Tensor) -> Tensor:
        return self.classifier(pooled)


class _MaskedWordModel(TFAlbertPreTrainedModel):
    """Base class of the two models with a masked language modeling head."""

    def _make_head(self) -> AlbertMLMHead:
        table = self.get_input_embeddings() if self.config.tie_word_embeddings else None
        return AlbertMLMHead(self, "predictions", table=table)

    def get_output_embeddings(self) -> keras.layers.Layer:
        """Return the decoder that maps E to the vocabulary V."""
        return self.predictions.decoder


@_register
class TFAlbertForPreTraining(_MaskedWordModel):
    """ALBERT with both pretraining heads: `outputs[:2]` are logits (B, T, V) and (B, 2)."""

    architecture = "AlbertForPreTraining"
    output_name = "AlbertForPreTrainingOutput"
    label_names = ("labels", "sentence_order_label")

    def _make_parts(self) -> None:
        self.predictions = self._make_head()
        self.sop_classifier = AlbertSOPHead(self, "sop_classifier")


@_register
class TFAlbertForMaskedLM(_MaskedWordModel):
    """ALBERT with the masked language modeling head: `outputs[0]` is logits (B, T, V)."""

    architecture = "AlbertForMaskedLM"
    output_name = "MaskedLMOutput"

    def _make_parts(self) -> None:
        self.predictions = self._make_head()


@_register
class TFAlbertForQuestionAnswering(TFAlbertPreTrainedModel):
    """ALBERT with a start score and an end score for each token: `outputs[:2]` are logits, each (B, T)."""

    architecture = "AlbertForQuestionAnswering"
    output_name = "QuestionAnsweringModelOutput"
    label_names = ("start_positions", "end_positions")

    def _make_parts(self) -> None:
        self.qa_outputs = make_dense(self, "qa_outputs", self.config.hidden_size, 2)


class _ClassifyingModel(TFAlbertPreTrainedModel):
    """Base class of the models with dropout and a linear map after the encoder."""

    def _make_parts(self) -> None:
        config = self.config
        self.dropout = make_dropout(self, config.classifier_dropout_prob)
        self.classifier = make_dense(self, "classifier", config.hidden_size, self.head.size("K", config))


@_register
class TFAlbertForSequenceClassification(_ClassifyingModel):
    """ALBERT with one score per label for the whole sequence: `outputs[0]` is logits (B, K)."""

    architecture = "AlbertForSequenceClassification"
    output_name = "SequenceClassifierOutput"


@_register
class TFAlbertForTokenClassification(_ClassifyingModel):
    """ALBERT with one score per label for each token: `outputs[0]` is logits (B, T, K)."""

    architecture = "AlbertForTokenClassification"
    output_name = "TokenClassifierOutput"


@_register
class TFAlbertForMultipleChoice(_ClassifyingModel):
    """ALBERT with one score per choice: inputs are (B, C, T), and `outputs[0]` is logits (B, C)."""

    architecture = "AlbertForMultipleChoice"
    output_name = "MultipleChoiceModelOutput"
