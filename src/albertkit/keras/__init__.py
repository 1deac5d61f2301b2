"""The documented TensorFlow classes in Keras 3, with the same code for the backends TensorFlow and JAX.

    from albertkit.keras import TFAlbertModel

Keras chooses its backend when it is imported: from the environment variable KERAS_BACKEND ("tensorflow" or
"jax"), or else from ~/.keras/keras.json.
"""

from albertkit.keras.heads import (
    TFAlbertForMaskedLM,
    TFAlbertForMultipleChoice,
    TFAlbertForPreTraining,
    TFAlbertForQuestionAnswering,
    TFAlbertForSequenceClassification,
    TFAlbertForTokenClassification,
    TFAlbertModel,
)
from albertkit.keras.pretrained import TFAlbertPreTrainedModel

__all__ = [
    "TFAlbertForMaskedLM",
    "TFAlbertForMultipleChoice",
    "TFAlbertForPreTraining",
    "TFAlbertForQuestionAnswering",
    "TFAlbertForSequenceClassification",
    "TFAlbertForTokenClassification",
    "TFAlbertModel",
    "TFAlbertPreTrainedModel",
]
