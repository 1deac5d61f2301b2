"""The Keras models: the encoder, and the encoder with each head.

`TFAlbertPreTrainedModel` makes the layers, and `albertkit.heads.HEADS` computes the scores. For the inputs
see `TFAlbertPreTrainedModel.__call__`.

Shapes: B batch, C choices, T tokens, H hidden, V vocabulary, K labels.
"""

from albertkit.keras.layers import keras
from albertkit.keras.pretrained import TFAlbertPreTrainedModel

_register = keras.saving.register_keras_serializable(package="albertkit")


@_register
class TFAlbertModel(TFAlbertPreTrainedModel):
    """The encoder: `outputs[0]` is last_hidden_state (B, T, H), `outputs[1]` is pooler_output (B, H)."""

    architecture = "AlbertModel"
    output_name = "BaseModelOutputWithPooling"


@_register
class TFAlbertForPreTraining(TFAlbertPreTrainedModel):
    """ALBERT with both pretraining heads: `outputs[:2]` are logits (B, T, V) and (B, 2)."""

    architecture = "AlbertForPreTraining"
    output_name = "AlbertForPreTrainingOutput"
    label_names = ("labels", "sentence_order_label")


@_register
class TFAlbertForMaskedLM(TFAlbertPreTrainedModel):
    """ALBERT with the masked language modeling head: `outputs[0]` is logits (B, T, V)."""

    architecture = "AlbertForMaskedLM"
    output_name = "MaskedLMOutput"


@_register
class TFAlbertForQuestionAnswering(TFAlbertPreTrainedModel):
    """ALBERT with a start score and an end score for each token: `outputs[:2]` are logits, each (B, T)."""

    architecture = "AlbertForQuestionAnswering"
    output_name = "QuestionAnsweringModelOutput"
    label_names = ("start_positions", "end_positions")


@_register
class TFAlbertForSequenceClassification(TFAlbertPreTrainedModel):
    """ALBERT with one score per label for the whole sequence: `outputs[0]` is logits (B, K)."""

    architecture = "AlbertForSequenceClassification"
    output_name = "SequenceClassifierOutput"


@_register
class TFAlbertForTokenClassification(TFAlbertPreTrainedModel):
    """ALBERT with one score per label for each token: `outputs[0]` is logits (B, T, K)."""

    architecture = "AlbertForTokenClassification"
    output_name = "TokenClassifierOutput"


@_register
class TFAlbertForMultipleChoice(TFAlbertPreTrainedModel):
    """ALBERT with one score per choice: inputs are (B, C, T), and `outputs[0]` is logits (B, C)."""

    architecture = "AlbertForMultipleChoice"
    output_name = "MultipleChoiceModelOutput"
