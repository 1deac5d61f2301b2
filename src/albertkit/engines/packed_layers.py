"""ALBERT's layers for packed rows, whose tokens are concatenated without padding.

Except for attention, a layer computes each token independently. Attention computes rows of equal length as a
batch without a mask. On a CPU, attention for long rows is computed head by head, because PyTorch's kernel for
all heads multiplies matrices with a library that is half as fast on some CPUs. On a GPU, in half precision,
one kernel computes rows of different lengths.

On a CPU, oneDNN multiplies by matrices in its own layout. Each matrix is reordered once, even if several
layers share it, and the activation is applied to each block of a product while the block is in the cache.
Layers compute with `F.linear` instead if PyTorch does not have these (undocumented) operators, or if they
fail a small test. Without AVX-512, `F.linear` is faster for many tokens, and a separate activation is faster
too (see dev/lab-notes.md for measurements).

Shapes: M tokens of all rows, Q query tokens of all rows, B rows of equal length, T tokens of such a row, R
query tokens of such a row. H hidden, N heads, D size of a head.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from albertkit.engines.batches import Group
from albertkit.modeling.layers import AlbertLayer

Attend = Callable[[Tensor, Tensor, int], Tensor]
"""A function of queries (Q, N*D), keys and values (M, 2*N*D), and D; it returns contexts (Q, N*D)."""

_TYPICAL_TOKENS = 256  # oneDNN chooses the layout for about this many tokens; it works for any number
_MAX_REORDERED = 256  # maximum number of tokens for reordered matrices without AVX-512
_LONG = 320  # minimum number of tokens for which attention head by head is faster
_MULTIPLE = 32
_MAX_HEAD_SIZE = 256  # of the kernel for rows of different lengths
_FEW_THREADS = 2  # with more threads, each thread should compute its own head


@cache
def can_reorder(dtype: torch.dtype) -> bool:
    """Return whether oneDNN multiplies correctly with reordered matrices of this data type on this CPU."""
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
    """Return whether PyTorch uses AVX-512 on this CPU; oneDNN is optimized for it."""
    return torch.backends.cpu.get_cpu_capability().startswith("AVX512")


def multiply(left: Tensor, right: Tensor) -> Tensor:
    """Multiply (Q, inputs) by a matrix (outputs, inputs) that is used once, in oneDNN: (Q, outputs)."""
    return torch.ops.mkldnn._linear_pointwise(left, right, None, "none", [], "")


class ReorderedLinear:
    """A linear map of hidden states with bias: (M, inputs) -> (M, outputs)."""

    def __init__(self, weight: Tensor, bias: Tensor, *, reorder: bool) -> None:
        self.bias = bias
        self.fuses = has_avx512() or weight.dtype != torch.float32
        self.max_reordered = 0 if not reorder else math.inf if self.fuses else _MAX_REORDERED
        self.weight = weight if self.max_reordered < math.inf else None
        self.reordered = None
        if reorder:
            self.reordered = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _TYPICAL_TOKENS)

    def __call__(self, states: Tensor, activation: nn.Module | None = None) -> Tensor:
        """Apply the map, then the activation."""
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
    """Return oneDNN's name and algorithm for an activation, if oneDNN can apply it."""
    if type(activation) is nn.GELU:
        return "gelu", activation.approximate
    if type(activation) is nn.ReLU:
        return "relu", ""
    return None, ""


class PackedLayer:
    """A layer with its own weights, prepared for packed rows."""

    def __init__(self, layer: AlbertLayer, *, reorder: bool) -> None:
        attention = layer.attention
        self.layer = layer  # its activation and normalizations may be replaced later
        self.head_size = attention.attention_head_size
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
        """Return the new states (Q, H) of the tokens `queries` (Q, H), which attend to `states` (M, H)."""
        context = attend(self.query(queries), self.key_value(states), self.head_size)
        attended = self.layer.attention.LayerNorm(self.dense(context).add_(queries))
        expanded = self.ffn(attended, self.layer.activation)
        return self.layer.full_layer_layer_norm(self.ffn_output(expanded).add_(attended))


class RowAttention:
    """Attention within the rows of one batch; an `Attend` function."""

    def __init__(self, groups: list[Group]) -> None:
        self.groups = groups
        self._ends: tuple[Tensor, Tensor, int, int] | None = None

    def __call__(self, query: Tensor, key_value: Tensor, head_size: int) -> Tensor:
        """Return the contexts (Q, N*D) of queries (Q, N*D) over keys and values (M, 2*N*D).

        Extra tokens at the end, which belong to no row, are ignored; their contexts are zeros.
        """
        key, value = key_value.chunk(2, dim=1)
        has_queries = any(group.queries for group in self.groups)
        if has_queries and _suits_kernel(query, head_size) and (kernel := _kernel_of_any_lengths()):
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
        """Attend with the kernel for different lengths: (Q, N, D), (M, N, D) twice -> (Q, N, D)."""
        groups = self.groups
        if self._ends is None:  # all layers of a batch need the same
            rows = [group.rows for group in groups]
            query_ends, key_ends = (
                torch.from_numpy(np.cumsum([0, *np.repeat(sizes, rows)], dtype=np.int32)).to(query.device)
                for sizes in ([group.queries for group in groups], [group.length for group in groups])
            )
            most = max(group.queries for group in groups), max(group.length for group in groups)
            self._ends = query_ends, key_ends, *most
        num_queries = sum(group.rows * group.queries for group in groups)
        num_keys = sum(group.rows * group.length for group in groups)
        keys, values = (part[:num_keys].contiguous() for part in (key, value))
        return kernel(query[:num_queries], keys, values, *self._ends)


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
    """Compute attention as two products for each head: (B, N, R, D), (B, N, T, D) twice -> (B, N, R, D)."""
    count, length = queries.shape[2], keys.shape[2]
    more, extra = -count % _MULTIPLE, -length % _MULTIPLE  # few different shapes, see `torch_engine.rounded`
    # oneDNN is very slow with matrices that are not contiguous.
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


def _suits_kernel(query: Tensor, head_size: int) -> bool:
    """Return whether PyTorch's kernel for rows of different lengths accepts heads of this size and type."""
    is_half = query.dtype in (torch.float16, torch.bfloat16)
    return query.is_cuda and is_half and head_size % 8 == 0 and head_size <= _MAX_HEAD_SIZE


@cache
def _kernel_of_any_lengths() -> Callable[..., Tensor] | None:
    """Return PyTorch's kernel for rows of different lengths, or None if this GPU or PyTorch lacks it."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    return cast(Any, varlen_attn) if torch.cuda.get_device_capability() >= (8, 0) else None
