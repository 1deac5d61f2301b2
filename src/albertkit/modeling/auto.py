"""The Auto classes, for code that names no architecture. ALBERT is the only one here."""

from pathlib import Path
from typing import Any, ClassVar, NoReturn

import torch

from albertkit.checkpoints.formats import split_options
from albertkit.config import AlbertConfig
from albertkit.config_fields import one_of
from albertkit.devices import choose_dtype
from albertkit.errors import ConfigError
from albertkit.hub import take_loading_options
from albertkit.modeling import model, pretraining_heads, task_heads
from albertkit.modeling.model import AlbertModel
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.modeling.pretraining_heads import AlbertForMaskedLM, AlbertForPreTraining
from albertkit.modeling.task_heads import (
    AlbertForMultipleChoice,
    AlbertForQuestionAnswering,
    AlbertForSequenceClassification,
    AlbertForTokenClassification,
)


def model_class(architecture: str) -> type[AlbertPreTrainedModel]:
    """Return the model class of that name, which `heads.HEADS` has."""
    rooms = (model, pretraining_heads, task_heads)
    return next(getattr(room, architecture) for room in rooms if hasattr(room, architecture))


class _AutoModel:
    model_class: ClassVar[type[AlbertPreTrainedModel]]

    def __init__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} is not instantiated; use from_pretrained or from_config")

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path, **options: Any) -> Any:
        """Load a model as `AlbertPreTrainedModel.from_pretrained` does, of the class this one stands for.

        Raises:
            ConfigError: the checkpoint's model_type is not "albert".
        """
        return cls.model_class.from_pretrained(pretrained_model_name_or_path, **options)

    @classmethod
    def from_config(
        cls,
        config: AlbertConfig,
        *,
        attn_implementation: str | None = None,
        dtype: torch.dtype | str | None = None,
        torch_dtype: torch.dtype | str | None = None,
        **options: Any,
    ) -> Any:
        """Return a newly initialized model of that shape.

        Args:
            config: the shape.
            attn_implementation: "sdpa" or "eager", in place of the config's.
            dtype: type of the weights, such as "bfloat16"; default float32.
            torch_dtype: older name of `dtype`.
            options: arguments of the class, such as `add_pooling_layer=False`; and loading options, as
                `take_loading_options` says.

        Raises:
            ConfigError: no config of an ALBERT, no such type or implementation, or an unknown option.
        """
        if not isinstance(config, AlbertConfig):
            raise ConfigError(f"{cls.__name__} needs an AlbertConfig, got {type(config).__name__}")
        if attn_implementation is not None:
            config = config.replace(attn_implementation=attn_implementation)
        constructor, unknown = split_options(cls.model_class, take_loading_options(options))
        if unknown:
            raise ConfigError(
                f"{cls.__name__}.from_config has no argument {', '.join(map(repr, unknown))}; set values "
                "of the config with config.replace(...)"
            )
        wanted = choose_dtype(one_of(dtype=dtype, torch_dtype=torch_dtype), {})
        return cls.model_class(config, **constructor).to(wanted)


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
