"""Outputs of forward passes: dataclasses that also allow access by key, index and slice, and unpacking.

Fields that are None are skipped: `loss, logits = outputs[:2]`, `start, end = model(**inputs)`.
Shapes: B batch, T tokens, H hidden, N heads, V vocabulary, C choices, P masked positions.
`hidden_states` contains the embeddings (mapped to H) and the output of each executed layer, each (B, T, H).
`attentions` contains the attention probabilities of each executed layer, each (B, N, T, T).
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NoReturn, Self

from torch import Tensor
from torch.utils._pytree import MappingKey, register_pytree_node

Tensors = tuple[Tensor, ...]

if TYPE_CHECKING:  # `keys`, `values` and `items` return lists, which a subclass of dict must not
    _Dict = object
else:
    _Dict = dict


@dataclass(eq=False)
class ModelOutput(_Dict):
    """Base class of all outputs: a dataclass that is also a tuple or a mapping of the fields that are set.

    It is a dict because `transformers.Trainer` reads the logits of other objects as `output[1:]`, even if the
    output has no loss. It has the methods of a dict, but iterating yields values, not names.

    A mapping as the only argument sets all fields: `MaskedLMOutput({"logits": logits})`. Libraries that move,
    gather or pad the tensors of a `Mapping` build their result this way.
    """

    def __init_subclass__(cls) -> None:
        def flatten_with_keys(output: Any) -> tuple[list[tuple[Any, Any]], Any]:
            return [(MappingKey(name), value) for name, value in output.items()], output.keys()

        # Needed by torch.export, torch.func and distributed training.
        register_pytree_node(
            cls,
            lambda output: (output.values(), output.keys()),
            lambda values, names: cls(**dict(zip(names, values, strict=True))),
            serialized_type_name=f"{cls.__module__}.{cls.__qualname__}",
            flatten_with_keys_fn=flatten_with_keys,
        )

    def __post_init__(self) -> None:
        names = [field.name for field in fields(self)]
        given = getattr(self, names[0])
        if isinstance(given, Mapping):
            for name in names:
                setattr(self, name, given.get(name))

    def keys(self) -> list[str]:
        """Return the names of the fields that are set, in order."""
        return [name for name, value in vars(self).items() if value is not None]

    def values(self) -> list[Any]:
        """Return the values of the fields that are set, in order."""
        return [getattr(self, name) for name in self.keys()]

    def items(self) -> list[tuple[str, Any]]:
        """Return (name, value) for each field that is set, in order."""
        return [(name, getattr(self, name)) for name in self.keys()]

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a field, or the default if the field is not set."""
        return dict(self.items()).get(name, default)

    def to_tuple(self) -> tuple[Any, ...]:
        """Return the fields that are set as a plain tuple."""
        return tuple(self.values())

    def __getitem__(self, key: str | int | slice) -> Any:
        if isinstance(key, str):
            if key not in self:
                raise KeyError(f"{type(self).__name__} has no {key!r}. It has {', '.join(self.keys())}.")
            return getattr(self, key)
        return self.to_tuple()[key]

    def __setitem__(self, key: str, value: Any) -> None:
        setattr(self, key, value)

    def __contains__(self, name: object) -> bool:
        return name in self.keys()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values())

    def __len__(self) -> int:
        return len(self.keys())

    # The values are attributes. The dict itself is empty, so its other methods would ignore them.
    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__

    def copy(self) -> Self:
        """Return a copy that shares the tensors."""
        return copy.copy(self)

    def update(self, *_: Any, **__: Any) -> NoReturn:
        """Raise TypeError: values can be set with `output[name] = value`, but not removed."""
        raise TypeError(f"{type(self).__name__} does not have this method of a dict. Use dict(output).")

    __delitem__ = __or__ = __ior__ = clear = pop = popitem = setdefault = update


@dataclass(eq=False)
class BaseModelOutput(ModelOutput):
    """Output of the encoder: last_hidden_state (B, T, H)."""

    last_hidden_state: Tensor
    hidden_states: Tensors | None = None
    attentions: Tensors | None = None


@dataclass(eq=False)
class BaseModelOutputWithPooling(ModelOutput):
    """Output of AlbertModel: last_hidden_state (B, T, H), pooler_output (B, H)."""

    last_hidden_state: Tensor
    pooler_output: Tensor | None = None
    hidden_states: Tensors | None = None
    attentions: Tensors | None = None


@dataclass(eq=False)
class AlbertForPreTrainingOutput(ModelOutput):
    """Output of AlbertForPreTraining: prediction_logits (B, T, V) or (P, V), sop_logits (B, 2)."""

    loss: Tensor | None = None
    prediction_logits: Tensor | None = None
    sop_logits: Tensor | None = None
    hidden_states: Tensors | None = None
    attentions: Tensors | None = None


@dataclass(eq=False)
class LogitsOutput(ModelOutput):
    """Base class of the outputs of models with one tensor of logits."""

    loss: Tensor | None = None
    logits: Tensor | None = None
    hidden_states: Tensors | None = None
    attentions: Tensors | None = None


class MaskedLMOutput(LogitsOutput):
    """Output of AlbertForMaskedLM: logits (B, T, V), or (P, V) at the masked positions."""


class SequenceClassifierOutput(LogitsOutput):
    """Output of AlbertForSequenceClassification: logits (B, num_labels)."""


class TokenClassifierOutput(LogitsOutput):
    """Output of AlbertForTokenClassification: logits (B, T, num_labels)."""


class MultipleChoiceModelOutput(LogitsOutput):
    """Output of AlbertForMultipleChoice: logits (B, C)."""


@dataclass(eq=False)
class QuestionAnsweringModelOutput(ModelOutput):
    """Output of AlbertForQuestionAnswering: start_logits and end_logits, each (B, T)."""

    loss: Tensor | None = None
    start_logits: Tensor | None = None
    end_logits: Tensor | None = None
    hidden_states: Tensors | None = None
    attentions: Tensors | None = None
