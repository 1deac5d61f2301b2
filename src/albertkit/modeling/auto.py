"""The Auto classes, for code that does not name an architecture. In albertkit it is always ALBERT."""

from pathlib import Path
from typing import Any, ClassVar, NoReturn

import torch

from albertkit.config import AlbertConfig, as_config, one_of
from albertkit.devices import choose_dtype
from albertkit.hub import take_loading_options
from albertkit.modeling import heads
from albertkit.modeling.heads import (
    AlbertForMaskedLM,
    AlbertForMultipleChoice,
    AlbertForPreTraining,
    AlbertForQuestionAnswering,
    AlbertForSequenceClassification,
    AlbertForTokenClassification,
)
from albertkit.modeling.model import AlbertModel
from albertkit.modeling.pretrained import AlbertPreTrainedModel


def model_class(architecture: str) -> type[AlbertPreTrainedModel]:
    """Return the model class with this name, a key of `heads.HEADS`."""
    return getattr(heads, architecture)


class _AutoModel:
    model_class: ClassVar[type[AlbertPreTrainedModel]]

    def __init__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(f"{type(self).__name__} cannot be instantiated. Use from_pretrained or from_config.")

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | Path, *model_args: Any, **options: Any
    ) -> Any:
        """Load a model of the class in `model_class`; see `AlbertPreTrainedModel.from_pretrained`."""
        return cls.model_class.from_pretrained(pretrained_model_name_or_path, *model_args, **options)

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
        """Return a model with random weights and this config.

        Args:
            config: The config of the model.
            attn_implementation: "sdpa" or "eager"; None uses the config's setting.
            dtype: Data type of the weights, such as "bfloat16"; default float32.
            torch_dtype: Older name of `dtype`.
            options: Arguments of the model class, such as `add_pooling_layer=False`, and loading options (see
                `take_loading_options`).
        """
        config = as_config(config)
        if attn_implementation is not None:
            config = config.replace(attn_implementation=attn_implementation)
        wanted = choose_dtype(one_of(dtype=dtype, torch_dtype=torch_dtype), {})
        return cls.model_class(config, **take_loading_options(options)).to(wanted)


class AutoModel(_AutoModel):
    """Loads an `AlbertModel`, for code that does not name an architecture."""

    model_class = AlbertModel


class AutoModelForPreTraining(_AutoModel):
    """Loads an `AlbertForPreTraining`, for code that does not name an architecture."""

    model_class = AlbertForPreTraining


class AutoModelForMaskedLM(_AutoModel):
    """Loads an `AlbertForMaskedLM`, for code that does not name an architecture."""

    model_class = AlbertForMaskedLM


class AutoModelForSequenceClassification(_AutoModel):
    """Loads an `AlbertForSequenceClassification`, for code that does not name an architecture."""

    model_class = AlbertForSequenceClassification


class AutoModelForTokenClassification(_AutoModel):
    """Loads an `AlbertForTokenClassification`, for code that does not name an architecture."""

    model_class = AlbertForTokenClassification


class AutoModelForQuestionAnswering(_AutoModel):
    """Loads an `AlbertForQuestionAnswering`, for code that does not name an architecture."""

    model_class = AlbertForQuestionAnswering


class AutoModelForMultipleChoice(_AutoModel):
    """Loads an `AlbertForMultipleChoice`, for code that does not name an architecture."""

    model_class = AlbertForMultipleChoice
