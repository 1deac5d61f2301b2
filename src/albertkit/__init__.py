"""albertkit: the complete, modern home of ALBERT (A Lite BERT).

Names are imported when first used: `import albertkit` is quick and does not load torch. You can import a
class whose extra is not installed and name it in annotations; to use it raises MissingExtraError.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from albertkit.config import AlbertConfig, AutoConfig
    from albertkit.errors import (
        AlbertKitError,
        CheckpointError,
        ConfigError,
        DataError,
        MissingExtraError,
        ModelNotFoundError,
        ShapeMismatchError,
        TokenizerError,
        TrainingError,
    )
    from albertkit.keras.heads import (  # noqa: F401
        TFAlbertForMaskedLM,
        TFAlbertForMultipleChoice,
        TFAlbertForPreTraining,
        TFAlbertForQuestionAnswering,
        TFAlbertForSequenceClassification,
        TFAlbertForTokenClassification,
    )
    from albertkit.keras.model import TFAlbertModel  # noqa: F401
    from albertkit.modeling.auto import (
        AutoModel,
        AutoModelForMaskedLM,
        AutoModelForMultipleChoice,
        AutoModelForPreTraining,
        AutoModelForQuestionAnswering,
        AutoModelForSequenceClassification,
        AutoModelForTokenClassification,
    )
    from albertkit.modeling.model import AlbertModel
    from albertkit.modeling.pretrained import AlbertPreTrainedModel
    from albertkit.modeling.pretraining_heads import AlbertForMaskedLM, AlbertForPreTraining
    from albertkit.modeling.task_heads import (
        AlbertForMultipleChoice,
        AlbertForQuestionAnswering,
        AlbertForSequenceClassification,
        AlbertForTokenClassification,
    )
    from albertkit.pipelines import (
        FeatureExtractionPipeline,
        FillMaskPipeline,
        MultipleChoicePipeline,
        Pipeline,
        QuestionAnsweringPipeline,
        SentenceOrderPipeline,
        TextClassificationPipeline,
        TokenClassificationPipeline,
        pipeline,
    )
    from albertkit.tokenization.auto import AutoTokenizer
    from albertkit.tokenization.encoding import BatchEncoding
    from albertkit.tokenization.tokenizer import AlbertTokenizer, AlbertTokenizerFast
    from albertkit.tokenization.wordpiece import AlbertWordPieceTokenizer

__version__ = "0.1.0"

_MODULES = {
    "AlbertConfig": "config",
    "AlbertForMaskedLM": "modeling.pretraining_heads",
    "AlbertForMultipleChoice": "modeling.task_heads",
    "AlbertForPreTraining": "modeling.pretraining_heads",
    "AlbertForQuestionAnswering": "modeling.task_heads",
    "AlbertForSequenceClassification": "modeling.task_heads",
    "AlbertForTokenClassification": "modeling.task_heads",
    "AlbertKitError": "errors",
    "AlbertModel": "modeling.model",
    "AlbertPreTrainedModel": "modeling.pretrained",
    "AlbertTokenizer": "tokenization.tokenizer",
    "AlbertTokenizerFast": "tokenization.tokenizer",
    "AlbertWordPieceTokenizer": "tokenization.wordpiece",
    "AutoConfig": "config",
    "AutoModel": "modeling.auto",
    "AutoModelForMaskedLM": "modeling.auto",
    "AutoModelForMultipleChoice": "modeling.auto",
    "AutoModelForPreTraining": "modeling.auto",
    "AutoModelForQuestionAnswering": "modeling.auto",
    "AutoModelForSequenceClassification": "modeling.auto",
    "AutoModelForTokenClassification": "modeling.auto",
    "AutoTokenizer": "tokenization.auto",
    "BatchEncoding": "tokenization.encoding",
    "CheckpointError": "errors",
    "ConfigError": "errors",
    "DataError": "errors",
    "FeatureExtractionPipeline": "pipelines",
    "FillMaskPipeline": "pipelines",
    "MissingExtraError": "errors",
    "ModelNotFoundError": "errors",
    "MultipleChoicePipeline": "pipelines",
    "Pipeline": "pipelines",
    "QuestionAnsweringPipeline": "pipelines",
    "SentenceOrderPipeline": "pipelines",
    "ShapeMismatchError": "errors",
    "TextClassificationPipeline": "pipelines",
    "TokenClassificationPipeline": "pipelines",
    "TokenizerError": "errors",
    "TrainingError": "errors",
    "pipeline": "pipelines",
}

_KERAS_MODULES = {
    "TFAlbertForMaskedLM": "keras.heads",
    "TFAlbertForMultipleChoice": "keras.heads",
    "TFAlbertForPreTraining": "keras.heads",
    "TFAlbertForQuestionAnswering": "keras.heads",
    "TFAlbertForSequenceClassification": "keras.heads",
    "TFAlbertForTokenClassification": "keras.heads",
    "TFAlbertModel": "keras.model",
}
"""Not among the names of `import *`, which would then import Keras."""

__all__ = [
    "AlbertConfig",
    "AlbertForMaskedLM",
    "AlbertForMultipleChoice",
    "AlbertForPreTraining",
    "AlbertForQuestionAnswering",
    "AlbertForSequenceClassification",
    "AlbertForTokenClassification",
    "AlbertKitError",
    "AlbertModel",
    "AlbertPreTrainedModel",
    "AlbertTokenizer",
    "AlbertTokenizerFast",
    "AlbertWordPieceTokenizer",
    "AutoConfig",
    "AutoModel",
    "AutoModelForMaskedLM",
    "AutoModelForMultipleChoice",
    "AutoModelForPreTraining",
    "AutoModelForQuestionAnswering",
    "AutoModelForSequenceClassification",
    "AutoModelForTokenClassification",
    "AutoTokenizer",
    "BatchEncoding",
    "CheckpointError",
    "ConfigError",
    "DataError",
    "FeatureExtractionPipeline",
    "FillMaskPipeline",
    "MissingExtraError",
    "ModelNotFoundError",
    "MultipleChoicePipeline",
    "Pipeline",
    "QuestionAnsweringPipeline",
    "SentenceOrderPipeline",
    "ShapeMismatchError",
    "TextClassificationPipeline",
    "TokenClassificationPipeline",
    "TokenizerError",
    "TrainingError",
    "__version__",
    "pipeline",
]


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name) or _KERAS_MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'albertkit' has no attribute {name!r}")
    from albertkit.errors import MissingExtraError
    from albertkit.extras import MissingName

    try:
        value = getattr(importlib.import_module(f"albertkit.{module}"), name)
    except MissingExtraError as error:
        return MissingName(name, (), {"message": f"albertkit.{name}: {error}"})
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
