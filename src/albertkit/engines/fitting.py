"""Decide whether a model can be computed from its weights, layer by layer, instead of calling it.

A model with hooks, replaced modules or a custom class computes more than its weights say, so engines call
such a model (`PlainEngine`).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from albertkit.config_fields import ACTIVATION_NAMES
from albertkit.heads import HEADS, Output
from albertkit.modeling.auto import model_class
from albertkit.modeling.layers import (
    AlbertAttention,
    AlbertEmbeddings,
    AlbertLayer,
    AlbertLayerGroup,
    AlbertTransformer,
    make_activation,
)
from albertkit.modeling.model import AlbertModel
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.modeling.pretraining_heads import AlbertMLMHead, AlbertSOPHead, MaskedWordModel

_PARTS = frozenset(
    {
        *(AlbertModel, AlbertEmbeddings, AlbertTransformer, AlbertLayerGroup, AlbertLayer, AlbertAttention),
        *(nn.Linear, nn.LayerNorm, nn.Embedding, nn.Dropout, nn.ModuleList, nn.Tanh),
    }
)
_HEAD_PARTS = frozenset({AlbertMLMHead, AlbertSOPHead})
_SAMPLES = 61  # number of values of each matrix that are compared to detect changes
_Made = TypeVar("_Made")
Head = Callable[[Tensor], Tensor]
"""A function from hidden states (P, H) to scores (P, K)."""


def fits(model: AlbertPreTrainedModel) -> bool:
    """Return whether a model's weights determine its output, as for the unchanged classes of this package."""
    if model.config.attn_implementation == "eager" or _global_hooks():
        return False
    encoder = model.base_model
    if type(encoder) is not AlbertModel:
        return False
    # Heads and activations are called as they are, so they may be replaced.
    called = {id(layer.activation) for layer in encoder.encoder.executed_layers()}
    parts = [part for part in parts_of(encoder) if id(part) not in called]
    parts += [part for part in model.children() if isinstance(part, nn.Dropout)]
    if any(type(part) not in _PARTS or _has_hooks(part) for part in parts) or _has_hooks(model):
        return False
    parameters = own_parameters(model)
    if any(parameter.is_inference() for parameter in parameters):
        return False  # changes of such tensors cannot be detected
    kinds = {(parameter.dtype, parameter.device) for parameter in parameters}
    return len(kinds) == 1 and next(iter(kinds))[1].type != "meta"


def parts_of(module: nn.Module) -> list[nn.Module]:
    """Return a module and all modules in it. Shared modules occur several times.

    `modules()` takes three times as long, which delays short texts.
    """
    parts = [module]
    for part in parts:  # the list grows during the loop
        parts += [child for child in part._modules.values() if child is not None]
    return parts


def own_parameters(module: nn.Module) -> list[Tensor]:
    """Return all parameters of a module. Shared parameters occur several times."""
    return [one for part in parts_of(module) for one in part._parameters.values() if one is not None]


def as_configured(model: AlbertPreTrainedModel) -> bool:
    """Return whether the layers of a fitting model match its config."""
    config, layers = model.config, encoder_of(model).encoder.executed_layers()
    if config.hidden_act not in ACTIVATION_NAMES or len(layers) != config.depth:
        return False
    expected = make_activation(config.hidden_act)
    norms = (norm for layer in layers for norm in (layer.attention.LayerNorm, layer.full_layer_layer_norm))
    return all(norm.eps == config.layer_norm_eps for norm in norms) and all(
        type(layer.activation) is type(expected)
        and getattr(layer.activation, "approximate", None) == getattr(expected, "approximate", None)
        and not _has_hooks(layer.activation)
        for layer in layers
    )


def head_as_configured(model: AlbertPreTrainedModel) -> bool:
    """Return whether the head of a fitting model has the modules, activation and ties of its class."""
    encoder = encoder_of(model)
    parts = [part for child in model.children() if child is not encoder for part in parts_of(child)]
    expected = None if callable(model.config.hidden_act) else type(make_activation(model.config.hidden_act))
    if any(type(part) not in {*_PARTS, *_HEAD_PARTS, expected} or _has_hooks(part) for part in parts):
        return False
    if not isinstance(model, MaskedWordModel):
        return True
    head = model.predictions
    tied = head.decoder.weight is encoder.embeddings.word_embeddings.weight
    same = type(head.activation) is expected and head.LayerNorm.eps == model.config.layer_norm_eps
    return same and tied == model.config.tie_word_embeddings and (not tied or head.decoder.bias is head.bias)


def _has_hooks(part: nn.Module) -> bool:
    return bool(part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part))


def _global_hooks() -> bool:
    return bool(torch_module._global_forward_hooks or torch_module._global_forward_pre_hooks)


def encoder_of(model: AlbertPreTrainedModel) -> AlbertModel:
    """Return the encoder of a fitting model."""
    return cast(AlbertModel, model.base_model)


def head_of(model: AlbertPreTrainedModel, output: Output) -> Head | None:
    """Return the function that computes an output from hidden states, or None if the model must be called."""
    if output == "hidden_states":
        return lambda states: states
    architecture = type(model).__name__
    if architecture not in HEADS or type(model) is not model_class(architecture):
        return None
    return partial(model.score, output=output) if output in HEADS[architecture].scores else None


class MadeFromWeights(Generic[_Made]):
    """Caches values that are computed from a model's weights; recomputes them when the weights change."""

    def __init__(self) -> None:
        self._made: WeakKeyDictionary[nn.Module, dict[Any, tuple[Any, _Made]]] = WeakKeyDictionary()

    def get(
        self, model: nn.Module, modules: Sequence[nn.Module], make: Callable[[], _Made], *, key: Any = None
    ) -> _Made:
        """Return the cached result of `make` for the weights of these modules of a model."""
        (places, samples), made = _fingerprint(modules), self._made.setdefault(model, {})
        if key in made:
            (places_before, samples_before), value = made[key]
            if places == places_before and torch.equal(samples, samples_before):
                return value
            del made[key], value  # frees memory before `make` allocates more
        value = make()
        made[key] = (places, samples), value
        return value


def _fingerprint(modules: Sequence[nn.Module]) -> tuple[list[tuple[int, int]], Tensor]:
    """Return a fingerprint of the modules' weights, to detect changes: addresses, versions and samples.

    Writing to `parameter.data` does not change the version, so the fingerprint also contains some of the
    values.
    """
    parameters = [parameter for module in modules for parameter in own_parameters(module)]
    with torch.inference_mode():
        samples = [one.reshape(-1)[:: max(1, one.numel() // _SAMPLES)] for one in parameters]
        return [(one.data_ptr(), one._version) for one in parameters], torch.cat(samples)
