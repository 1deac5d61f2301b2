"""The most operations per second that matrix products reach on this machine, which no model can pass."""

import itertools
import math
import time
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F

from albertkit.engines.packing import PackedLinear, can_pack

Product = tuple[int, int, int]
"""M rows of K numbers times a matrix K x N: (M, K, N), 2 * M * K * N operations."""

PRODUCTS: tuple[Product, ...] = ((256, 768, 3072), (1024, 768, 3072), (1024, 3072, 768), (2048, 2048, 2048))
GPU_PRODUCTS: tuple[Product, ...] = ((4096, 768, 3072), (8192, 4096, 4096), (8192, 8192, 8192))
_RUNS = 5


def largest_product(
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    *,
    products: Sequence[Product] | None = None,
    seconds: float = math.inf,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Return the operations per second of the fastest product, by either way that torch has on a CPU.

    Args:
        device, dtype: where and in what to compute, with as many threads as torch has.
        products: those to try, small ones first; None for what suits the device.
        seconds: no more products are begun after this time; one is always computed.
        clock: seconds; on a GPU one that waits until it is done (`timing.clock_of`).
    """
    best, end = 0.0, clock() + seconds
    ways = (False, True) if device.type == "cpu" and can_pack(dtype) else (False,)
    for (rows, inputs, outputs), packed in itertools.product(products or _products_for(device), ways):
        if best and clock() >= end:
            break
        states = torch.ones(rows, inputs, device=device, dtype=dtype)
        weight = torch.ones(outputs, inputs, device=device, dtype=dtype)
        bias = torch.ones(outputs, device=device, dtype=dtype)
        with torch.inference_mode():
            linear = PackedLinear(weight, bias, packed=True) if packed else None
            for run in range(_RUNS + 1):
                begin = clock()
                F.linear(states, weight, bias) if linear is None else linear(states)
                now = clock()
                if run:  # the first one is to warm up
                    best = max(best, 2 * rows * inputs * outputs / (now - begin))
                if best and now >= end:
                    break
    return best


def _products_for(device: torch.device) -> Sequence[Product]:
    return PRODUCTS if device.type == "cpu" else GPU_PRODUCTS
