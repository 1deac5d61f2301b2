"""ALBERT's layers for packed rows, whose tokens stand one after the other without padding.

Everything in a layer but attention is done for each token alone. Attention takes rows of equal length as a
batch without a mask. Long rows on a CPU attend head by head: torch's kernel for all heads leaves the matrix
products to a library that is half as fast on some CPUs. On a GPU, in half precision, one kernel takes rows of
any lengths.

On a CPU oneDNN multiplies by matrices in an order of its own. Each matrix is reordered once, however often
its layer is shared or called, and the activation is applied to each block of a product while it is in the
cache. Where torch does not offer these operators (they are not documented), or they fail a small test, layers
compute with `F.linear`. Without AVX-512 that is the faster one for many tokens, and the activation is faster
by itself (dev/lab-notes.md has the speeds).

Shapes: M tokens of all rows, Q of them that query, B rows of one length, T their tokens, R of them that
query, H hidden, N heads, D head width.
"""

import math
from collections.abc import Callable
from functools import cache
from itertools import accumulate
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from albertkit.engines.batches import Group
from albertkit.modeling.layers import AlbertLayer

Attend = Callable[[Tensor, Tensor, int], Tensor]
"""Queries (Q, N*D), keys and values side by side (M, 2*N*D), head width -> contexts (Q, N*D)."""

_TYPICAL_TOKENS = 256  # oneDNN chooses the order for about so many; any other number works as well
_MAX_REORDERED = 256  # tokens, without AVX-512
_LONG = 320  # tokens from which on products head by head are faster
_MULTIPLE = 32
_FEW_THREADS = 2  # more of them are better used by one head each


@cache
def can_reorder(dtype: torch.dtype) -> bool:
    """Tell whether oneDNN multiplies with reordered matrices of this type, and correctly, on this CPU."""
    if dtype not in (torch.float32, torch.bfloat16) or not torch.backends.mkldnn.is_available():
        return False
    weight = torch.linspace(-1, 1, 24 * 16, dtype=dtype).view(24, 16)
    bias, values = weight[:, 0].contiguous(), weight[:5].contiguous() * 3
    tolerance = 1e-5 if dtype == torch.float32 else 0.1
    try:
        reordered, plain = (ReorderedLinear(weight, bias, reorder=reorder) for reorder in (True, False))
        with torch.inference_mode(), torch.autocast("cpu", enabled=False):
            return all(
                torch.allclose(reordered(values, one), plain(values, one), atol=tolerance)
                for one in (None, nn.GELU(approximate="tanh"), nn.GELU(), nn.ReLU())
            )
    except (AttributeError, RuntimeError):
        return False


@cache
def has_avx512() -> bool:
    """Tell whether torch uses this CPU's AVX-512, which oneDNN is written for."""
    return torch.backends.cpu.get_cpu_capability().startswith("AVX512")


def multiply(left: Tensor, right: Tensor) -> Tensor:
    """Multiply by a matrix used once, with oneDNN: (Q, inputs) and (outputs, inputs) -> (Q, outputs)."""
    return torch.ops.mkldnn._linear_pointwise(left, right, None, "none", [], "")


class ReorderedLinear:
    """An affine map of token states: (M, inputs) -> (M, outputs)."""

    def __init__(self, weight: Tensor, bias: Tensor, *, reorder: bool) -> None:
        self.bias = bias
        self.fuses = has_avx512() or weight.dtype != torch.float32
        self.max_reordered = 0 if not reorder else math.inf if self.fuses else _MAX_REORDERED
        self.weight = weight if self.max_reordered < math.inf else None
        self.reordered = None
        if reorder:
            self.reordered = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _TYPICAL_TOKENS)

    def __call__(self, states: Tensor, activation: nn.Module | None = None) -> Tensor:
        """Map, then apply the activation."""
        if len(states) > self.max_reordered:
            assert self.weight is not None
            mapped = F.linear(states, self.weight, self.bias)
            return mapped if activation is None else activation(mapped)
        name, algorithm = _fused(activation) if self.fuses else (None, "")
        mapped = torch.ops.mkldnn._linear_pointwise(
            states, self.reordered, self.bias, name or "none", [], algorithm
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

    def __init__(self, layer: AlbertLayer, *, reorder: bool) -> None:
        attention = layer.attention
        self.activation = layer.activation
        self.head_size = attention.head_size
        self.attention_norm, self.norm = attention.LayerNorm, layer.full_layer_layer_norm
        self.query = ReorderedLinear(attention.query.weight, attention.query.bias, reorder=reorder)
        self.key_value = ReorderedLinear(
            torch.cat([attention.key.weight, attention.value.weight]),
            torch.cat([attention.key.bias, attention.value.bias]),
            reorder=reorder,
        )
        self.dense = ReorderedLinear(attention.dense.weight, attention.dense.bias, reorder=reorder)
        self.ffn = ReorderedLinear(layer.ffn.weight, layer.ffn.bias, reorder=reorder)
        self.ffn_output = ReorderedLinear(layer.ffn_output.weight, layer.ffn_output.bias, reorder=reorder)

    def __call__(self, states: Tensor, queries: Tensor, attend: Attend) -> Tensor:
        """Return the new states (Q, H) of the tokens `queries` (Q, H), which see all `states` (M, H)."""
        context = attend(self.query(queries), self.key_value(states), self.head_size)
        attended = self.attention_norm(self.dense(context).add_(queries))
        expanded = self.ffn(attended, self.activation)
        return self.norm(self.ffn_output(expanded).add_(attended))


class RowAttention:
    """Attention for the rows of one batch: an `Attend`."""

    def __init__(self, groups: list[Group]) -> None:
        self.groups = groups

    def __call__(self, query: Tensor, key_value: Tensor, head_size: int) -> Tensor:
        """Return the contexts (Q, N*D) of queries (Q, N*D) over keys and values (M, 2*N*D).

        Tokens that belong to no row, at the end of either, get zeros and are not looked at.
        """
        key, value = key_value.chunk(2, dim=1)
        half = query.is_cuda and query.dtype in (torch.float16, torch.bfloat16)
        if half and (kernel := _kernel_of_any_lengths()):
            split = (values.unflatten(1, (-1, head_size)) for values in (query, key, value))
            contexts = self._attend_at_once(kernel, *split).flatten(1)
            return torch.cat([contexts, torch.zeros_like(query[len(contexts) :])])
        contexts = torch.empty_like(query)
        query_stop = key_stop = 0
        for group in self.groups:
            query_part = slice(query_stop, query_stop + group.rows * group.queries)
            key_part = slice(key_stop, key_stop + group.rows * group.length)
            query_stop, key_stop = query_part.stop, key_part.stop
            if group.queries:
                queries, keys, values = (
                    part.view(group.rows, -1, part.shape[1] // head_size, head_size).transpose(1, 2)
                    for part in (query[query_part], key[key_part], value[key_part])
                )  # (B * T, N * D) -> (B, N, T, D)
                attend = attend_by_products if _is_long(group, query) else F.scaled_dot_product_attention
                context = attend(queries, keys, values).transpose(1, 2)
                contexts[query_part].view(group.rows, group.queries, -1, head_size).copy_(context)
        contexts[query_stop:] = 0
        return contexts

    def _attend_at_once(
        self, kernel: Callable[..., Tensor], query: Tensor, key: Tensor, value: Tensor
    ) -> Tensor:
        """Attend with the kernel for rows of any lengths: (Q, N, D) and twice (M, N, D) -> (Q, N, D)."""
        queries = [group.queries for group in self.groups for _ in range(group.rows)]
        lengths = [group.length for group in self.groups for _ in range(group.rows)]
        ends = [
            torch.tensor([0, *accumulate(sizes)], dtype=torch.int32, device=query.device)
            for sizes in (queries, lengths)
        ]
        keys, values = (part[: sum(lengths)].contiguous() for part in (key, value))
        return kernel(query[: sum(queries)], keys, values, *ends, max(queries), max(lengths))


def _is_long(group: Group, query: Tensor) -> bool:
    return (
        group.length >= _LONG
        and group.queries >= _LONG
        and query.dtype == torch.float32
        and query.device.type == "cpu"
        and torch.get_num_threads() <= _FEW_THREADS
        and can_reorder(query.dtype)
    )


def attend_by_products(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Attend by two products for each head of each row: (B, N, R, D), twice (B, N, T, D) -> (B, N, R, D)."""
    count, length = queries.shape[2], keys.shape[2]
    more, extra = -count % _MULTIPLE, -length % _MULTIPLE  # few shapes: see `torch_engine.rounded`
    # oneDNN is very slow with matrices that are not in one piece.
    queries = F.pad(queries / math.sqrt(queries.shape[3]), (0, 0, 0, more)).contiguous()
    keys = F.pad(keys, (0, 0, 0, extra)).contiguous()
    values = F.pad(values, (0, 0, 0, extra)).transpose(2, 3).contiguous()
    contexts = torch.empty_like(queries)
    for row in range(len(queries)):
        for head in range(queries.shape[1]):
            scores = multiply(queries[row, head], keys[row, head])  # (R, T)
            scores[:, length:] = -math.inf
            contexts[row, head] = multiply(scores.softmax(dim=-1), values[row, head])
    return contexts[:, :, :count]


@cache
def _kernel_of_any_lengths() -> Callable[..., Tensor] | None:
    """Return the kernel, where torch has one for this machine's GPUs."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    return cast(Any, varlen_attn) if torch.cuda.get_device_capability() >= (8, 0) else None
