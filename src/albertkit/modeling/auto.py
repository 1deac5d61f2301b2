"""The Auto classes, for code that names no architecture. ALBERT is the only one here."""

from pathlib import Path
from typing import Any, ClassVar, NoReturn

from albertkit.config import AlbertConfig
from albertkit.modeling.model import AlbertModel
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.modeling.pretraining_heads import AlbertForMaskedLM, AlbertForPreTraining
from albertkit.modeling.task_heads import (
    AlbertForMultipleChoice,
    AlbertForQuestionAnswering,
    AlbertForSequenceClassification,
    AlbertForTokenClassification,
)


class AutoConfig:
    """`AutoConfig.from_pretrained` is `AlbertConfig.from_pretrained`."""

    def __init__(self) -> NoReturn:
        raise TypeError("AutoConfig is not instantiated; use AutoConfig.from_pretrained")

    @staticmethod
    def from_pretrained(pretrained_model_name_or_path: str | Path, **options: Any) -> AlbertConfig:
        """As `AlbertConfig.from_pretrained`.

        Raises:
            ConfigError: the checkpoint's model_type is not "albert".
        """
        return AlbertConfig.from_pretrained(pretrained_model_name_or_path, **options)


class _AutoModel:
    model_class: ClassVar[type[AlbertPreTrainedModel]]

    def __init__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} is not instantiated; use from_pretrained or from_config")

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path, **options: Any) -> Any:
        """As `AlbertPreTrainedModel.from_pretrained`, for the class this one stands for.

        Raises:
            ConfigError: the checkpoint's model_type is not "albert".
        """
        return cls.model_class.from_pretrained(pretrained_model_name_or_path, **options)

    @classmethod
    def from_config(cls, config: AlbertConfig) -> Any:
        """A newly initialised model of that shape."""
        return cls.model_class(config)


class AutoModel(_AutoModel):
    """Stands for AlbertModel."""

    model_class = AlbertModel


class AutoModelForPreTraining(_AutoModel):
    """Stands for AlbertForPreTraining."""

    model_class = AlbertForPreTraining


class AutoModelForMaskedLM(_AutoModel):
    """Stands for AlbertForMaskedLM."""

    model_class = AlbertForMaskedLM


class AutoModelForSequenceClassification(_AutoModel):
    """Stands for AlbertForSequenceClassification."""

    model_class = AlbertForSequenceClassification


class AutoModelForTokenClassification(_AutoModel):
    """Stands for AlbertForTokenClassification."""

    model_class = AlbertForTokenClassification


class AutoModelForQuestionAnswering(_AutoModel):
    """Stands for AlbertForQuestionAnswering."""

    model_class = AlbertForQuestionAnswering


class AutoModelForMultipleChoice(_AutoModel):
    """Stands for AlbertForMultipleChoice."""

    model_class = AlbertForMultipleChoice
