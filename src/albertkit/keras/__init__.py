"""The documented TensorFlow classes, on Keras 3: one code for the backends TensorFlow and JAX.

    from albertkit.keras import TFAlbertModel

Keras chooses its backend when it is imported: by the environment variable KERAS_BACKEND ("tensorflow",
"jax"), else by ~/.keras/keras.json.
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
