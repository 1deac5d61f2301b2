"""Attention among the tokens of each row, where rows stand one after the other without padding.

Rows of equal length make a batch without any mask. Long ones on a CPU attend head by head: torch's kernel for
all at once leaves the matrix products to a library that is half as fast on some CPUs. On a GPU, in half
precision, one kernel takes rows of any lengths.

Shapes: M tokens of all rows, Q of them that ask, B rows of one length, T their tokens, R of them that ask,
N heads, D head width.
"""

import math
from collections.abc import Callable
from functools import cache
from itertools import accumulate
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from albertkit.engines.packing import can_pack, multiply
from albertkit.engines.plan import Group

_LONG = 320  # tokens from which on products head by head are faster
_MULTIPLE = 32
_FEW_THREADS = 2  # more of them are better used by one head each


class RowAttention:
    """Attention for the rows of one batch: see `packing.Attend`."""

    def __init__(self, groups: list[Group]) -> None:
        self.groups = groups

    def __call__(self, query: Tensor, key_value: Tensor, head_size: int) -> Tensor:
        """Return the contexts (Q, N*D) of queries (Q, N*D) over keys and values (M, 2*N*D).

        Tokens that belong to no row, at the end of either, get zeros and are not looked at.
        """
        key, value = key_value.chunk(2, dim=1)
        half = query.is_cuda and query.dtype in (torch.float16, torch.bfloat16)
        if half and (kernel := _kernel_of_any_lengths()):
            split = (one.unflatten(1, (-1, head_size)) for one in (query, key, value))
            found = self._attend_at_once(kernel, *split).flatten(1)
            return torch.cat([found, torch.zeros_like(query[len(found) :])])
        contexts = torch.empty_like(query)
        asked = seen = 0
        for group in self.groups:
            asking = slice(asked, asked + group.rows * group.asking)
            looked_at = slice(seen, seen + group.rows * group.length)
            asked, seen = asking.stop, looked_at.stop
            if group.asking:
                queries, keys, values = (
                    one.view(group.rows, -1, one.shape[1] // head_size, head_size).transpose(1, 2)
                    for one in (query[asking], key[looked_at], value[looked_at])
                )  # (B * T, N * D) -> (B, N, T, D)
                attend = attend_by_products if _is_long(group, query) else F.scaled_dot_product_attention
                found = attend(queries, keys, values)
                contexts[asking].view(group.rows, group.asking, -1, head_size).copy_(found.transpose(1, 2))
        contexts[asked:] = 0
        return contexts

    def _attend_at_once(
        self, kernel: Callable[..., Tensor], query: Tensor, key: Tensor, value: Tensor
    ) -> Tensor:
        """(Q, N, D) and twice (M, N, D) -> (Q, N, D), with the kernel for rows of any lengths."""
        asking = [group.asking for group in self.groups for _ in range(group.rows)]
        lengths = [group.length for group in self.groups for _ in range(group.rows)]
        ends = [
            torch.tensor([0, *accumulate(sizes)], dtype=torch.int32, device=query.device)
            for sizes in (asking, lengths)
        ]
        return kernel(
            query[: sum(asking)],
            key[: sum(lengths)].contiguous(),
            value[: sum(lengths)].contiguous(),
            *ends,
            max(asking),
            max(lengths),
        )


def _is_long(group: Group, query: Tensor) -> bool:
    return (
        group.length >= _LONG
        and group.asking >= _LONG
        and query.dtype == torch.float32
        and query.device.type == "cpu"
        and torch.get_num_threads() <= _FEW_THREADS
        and can_pack(query.dtype)
    )


def attend_by_products(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """(B, N, R, D) and twice (B, N, T, D) -> (B, N, R, D): two products for each head of each row."""
    asking, length = queries.shape[2], keys.shape[2]
    more, extra = -asking % _MULTIPLE, -length % _MULTIPLE  # few shapes: see `padding_free`
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
    return contexts[:, :, :asking]


@cache
def _kernel_of_any_lengths() -> Callable[..., Tensor] | None:
    """Return the kernel, where torch has one for this machine's GPUs."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    return cast(Any, varlen_attn) if torch.cuda.get_device_capability() >= (8, 0) else None
