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

from albertkit.config import ACTIVATION_NAMES, AlbertConfig
from albertkit.engines.engine import check_output
from albertkit.errors import warn_caller
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

_PARTS = frozenset(
    {
        *(AlbertModel, AlbertEmbeddings, AlbertTransformer, AlbertLayerGroup, AlbertLayer, AlbertAttention),
        *(nn.Linear, nn.LayerNorm, nn.Embedding, nn.Dropout, nn.ModuleList, nn.Tanh),
    }
)
_Made = TypeVar("_Made")
Head = Callable[[Tensor], Tensor]
"""A function from hidden states (P, H) to scores (P, K)."""


def fits(model: AlbertPreTrainedModel) -> bool:
    """Return whether a model's weights determine its output, as for the unchanged classes of this package."""
    has_global_hooks = torch_module._global_forward_hooks or torch_module._global_forward_pre_hooks
    if model.config.attn_implementation == "eager" or has_global_hooks:
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


def as_configured(model: AlbertPreTrainedModel, output: Output) -> bool:
    """Return whether a fitting model computes an output as a new model of its config, with its weights, does.

    The graphs compute what a new model computes: they do not see other modules, activations, ties or values
    of eps.
    """
    config, encoder = model.config, encoder_of(model)
    layers = encoder.encoder.executed_layers()
    if config.hidden_act not in ACTIVATION_NAMES or len(layers) != config.depth:
        return False
    expected = _settings(make_activation(config.hidden_act))
    norms = (part for part in parts_of(encoder) if isinstance(part, nn.LayerNorm))
    if not all(norm.eps == config.layer_norm_eps for norm in norms):
        return False
    if not all(_settings(layer.activation) == expected for layer in layers):
        return False
    return model is encoder or output == "hidden_states" or _describe_head(model) == _describe_new_head(model)


def _describe_new_head(model: AlbertPreTrainedModel) -> list[Any]:
    """Return `_describe_head` for a new model with the config of this model."""
    config, described = _NEW_HEADS.get(model, (None, []))
    if config != model.config:
        config = model.config.replace()
        with torch.device("meta"):
            described = _describe_head(type(model)(config))
        _NEW_HEADS[model] = config, described
    return described


_NEW_HEADS: WeakKeyDictionary[nn.Module, tuple[AlbertConfig, list[Any]]] = WeakKeyDictionary()


def _describe_head(model: AlbertPreTrainedModel) -> list[Any]:
    """Return what determines the scores of a head besides its weights: modules, settings and ties."""
    encoder = encoder_of(model)
    names = {id(encoder.embeddings.word_embeddings.weight): "words"}  # of each parameter
    described: list[Any] = []
    for child_name, child in model.named_children():
        if child is not encoder:
            for number, part in enumerate(parts_of(child)):
                ties = [
                    (name, names.setdefault(id(parameter), f"{child_name} {number} {name}"))
                    for name, parameter in part._parameters.items()
                    if parameter is not None
                ]
                described.append((child_name, list(part._modules), _settings(part), ties))
    return described


def _settings(part: nn.Module) -> tuple[Any, ...]:
    """Return the class of a module, whether it has hooks, and its settings, such as `eps`."""
    values = {} if isinstance(part, nn.Dropout) else vars(part)
    settings = {name: value for name, value in values.items() if isinstance(value, float | str)}
    return type(part), _has_hooks(part), settings


def _has_hooks(part: nn.Module) -> bool:
    return bool(part._forward_hooks or part._forward_pre_hooks or "forward" in vars(part))


def warn_of_call(engine: str) -> None:
    """Warn that the model is called, although the user chose an engine that computes it from its weights."""
    warn_caller(
        f"the engine {engine!r} cannot compute this model, so albertkit calls the model, as the engine "
        "'plain' does. Expected a class of albertkit without hooks, with its own modules, with the "
        "activation and layer_norm_eps of its config, with weights of one type, and with "
        "attn_implementation='sdpa'."
    )


def encoder_of(model: AlbertPreTrainedModel) -> AlbertModel:
    """Return the encoder of a fitting model."""
    return cast(AlbertModel, model.base_model)


def head_of(model: AlbertPreTrainedModel, output: Output) -> Head | None:
    """Return the function that computes an output from hidden states, or None if the model must be called.

    Raises:
        ConfigError: The model does not have the output.
    """
    if output == "hidden_states":
        return lambda states: states
    architecture = type(model).__name__
    if architecture not in HEADS or type(model) is not model_class(architecture):
        return None
    check_output(output, HEADS[architecture], model=architecture)
    return partial(model.score, output=output)


class MadeFromWeights(Generic[_Made]):
    """Caches values that are computed from a model's weights; recomputes them when the weights change.

    It keeps a copy of the weights to detect changes.
    """

    def __init__(self) -> None:
        self._made: WeakKeyDictionary[nn.Module, dict[Any, tuple[Any, Any, _Made]]] = WeakKeyDictionary()

    def get(
        self,
        model: nn.Module,
        modules: Sequence[nn.Module],
        make: Callable[[], _Made],
        *,
        key: Any = None,
        is_current: Callable[[_Made], bool] = lambda _: True,
    ) -> _Made:
        """Return the cached result of `make` for the weights of these modules of a model.

        `is_current` tells whether a result still matches everything besides the weights.
        """
        made = self._made.setdefault(model, {})
        parameters = [parameter for module in modules for parameter in own_parameters(module)]
        # Writing to `parameter.data` changes neither the address nor the version, so compare the values too.
        versions = [(parameter.data_ptr(), parameter._version) for parameter in parameters]
        distinct = [*dict.fromkeys(parameters)]
        if cached := made.get(key):
            versions_before, copies, value = cached
            if versions == versions_before and all(map(torch.equal, distinct, copies)) and is_current(value):
                return value
            made.pop(key, None)  # another thread may have removed it
            del cached, copies, value  # frees memory before `make` allocates more
        value = make()
        made[key] = versions, [parameter.detach().clone() for parameter in distinct], value
        return value
