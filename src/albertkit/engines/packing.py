"""Layers of ALBERT with their matrices in the order that oneDNN computes with.

A matrix is put in that order once, however often its layer is shared or called, and the activation is applied
to each block of a product while it is in the cache. Where torch does not offer these operators (they are not
documented), or they fail a small test, the same layer computes with `F.linear`. Without AVX-512 that is the
faster one for many tokens, and the activation is faster by itself (docs/lab-notes.md has the speeds).

Shapes: M tokens of a batch, Q of them that are asked for, H hidden, N heads, D head width.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from albertkit.engines.fitting import own_parameters
from albertkit.modeling.layers import AlbertLayer

Attend = Callable[[Tensor, Tensor, int], Tensor]
"""Queries (Q, N*D), keys and values side by side (M, 2*N*D), head width -> contexts (Q, N*D)."""

_TYPICAL_TOKENS = 256  # oneDNN chooses the order for about so many; any other number works as well
_MOST_PACKED = 256  # tokens, without AVX-512
_SAMPLES = 61  # numbers of each matrix that are compared to see whether it has changed


@cache
def can_pack(dtype: torch.dtype) -> bool:
    """Tell whether oneDNN multiplies with packed matrices of this type, and correctly, on this CPU."""
    if dtype not in (torch.float32, torch.bfloat16) or not torch.backends.mkldnn.is_available():
        return False
    weight = torch.linspace(-1, 1, 24 * 16, dtype=dtype).view(24, 16)
    bias, values = weight[:, 0].contiguous(), weight[:5].contiguous() * 3
    tolerance = 1e-5 if dtype == torch.float32 else 0.1
    try:
        packed, plain = (PackedLinear(weight, bias, packed=packed) for packed in (True, False))
        with torch.inference_mode():
            return all(
                torch.allclose(packed(values, one), plain(values, one), atol=tolerance)
                for one in (None, nn.GELU(approximate="tanh"), nn.GELU(), nn.ReLU())
            )
    except (AttributeError, RuntimeError):
        return False


@cache
def has_avx512() -> bool:
    """Tell whether torch uses this CPU's AVX-512, which oneDNN is written for."""
    return torch.backends.cpu.get_cpu_capability().startswith("AVX512")


def multiply(left: Tensor, right: Tensor) -> Tensor:
    """(Q, inputs) and (outputs, inputs) -> (Q, outputs): the product with a matrix used once, by oneDNN."""
    return torch.ops.mkldnn._linear_pointwise(left, right, None, "none", [], "")


class PackedLinear:
    """An affine map of token states: (M, inputs) -> (M, outputs)."""

    def __init__(self, weight: Tensor, bias: Tensor, *, packed: bool) -> None:
        self.bias = bias
        self.fuses = has_avx512() or weight.dtype != torch.float32
        self.most_packed = 0 if not packed else math.inf if self.fuses else _MOST_PACKED
        self.weight = weight if self.most_packed < math.inf else None
        self.packed = None
        if packed:
            self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _TYPICAL_TOKENS)

    def __call__(self, states: Tensor, activation: nn.Module | None = None) -> Tensor:
        """Map, then apply the activation."""
        if len(states) > self.most_packed:
            assert self.weight is not None
            mapped = F.linear(states, self.weight, self.bias)
            return mapped if activation is None else activation(mapped)
        name, algorithm = _fused(activation) if self.fuses else (None, "")
        mapped = torch.ops.mkldnn._linear_pointwise(
            states, self.packed, self.bias, name or "none", [], algorithm
        )
        return mapped if activation is None or name else activation(mapped)


def _fused(activation: nn.Module | None) -> tuple[str | None, str]:
    """Return the name and the algorithm of an activation that oneDNN applies itself."""
    if type(activation) is nn.GELU:
        return "gelu", activation.approximate
    if type(activation) is nn.ReLU:
        return "relu", ""
    return None, ""


class PackedLayer:
    """One of the distinct layers of a model, with matrices of its own."""

    def __init__(self, layer: AlbertLayer, *, packed: bool) -> None:
        attention = layer.attention
        self.activation = layer.activation
        self.head_size = attention.head_size
        self.attention_norm, self.norm = attention.LayerNorm, layer.full_layer_layer_norm
        self.query = PackedLinear(attention.query.weight, attention.query.bias, packed=packed)
        self.key_value = PackedLinear(
            torch.cat([attention.key.weight, attention.value.weight]),
            torch.cat([attention.key.bias, attention.value.bias]),
            packed=packed,
        )
        self.dense = PackedLinear(attention.dense.weight, attention.dense.bias, packed=packed)
        self.ffn = PackedLinear(layer.ffn.weight, layer.ffn.bias, packed=packed)
        self.ffn_output = PackedLinear(layer.ffn_output.weight, layer.ffn_output.bias, packed=packed)

    def __call__(self, states: Tensor, asking: Tensor, attend: Attend) -> Tensor:
        """Return the new states (Q, H) of the tokens that ask, (Q, H), looking at all `states` (M, H)."""
        context = attend(self.query(asking), self.key_value(states), self.head_size)
        attended = self.attention_norm(self.dense(context).add_(asking))
        expanded = self.ffn(attended, self.activation)
        return self.norm(self.ffn_output(expanded).add_(attended))


def fingerprint(modules: Sequence[nn.Module]) -> tuple[list[tuple[int, int]], Tensor]:
    """Return the places and versions of the modules' weights, and samples of them, to detect changes.

    Writing into `parameter.data` changes no version, so a few numbers of each are compared as well.
    """
    parameters = [parameter for module in modules for parameter in own_parameters(module)]
    with torch.inference_mode():
        samples = [one.reshape(-1)[:: max(1, one.numel() // _SAMPLES)] for one in parameters]
        return [(one.data_ptr(), one._version) for one in parameters], torch.cat(samples)


def unchanged(one: tuple[list[tuple[int, int]], Tensor], other: tuple[list[tuple[int, int]], Tensor]) -> bool:
    """Compare two fingerprints."""
    return one[0] == other[0] and torch.equal(one[1], other[1])
