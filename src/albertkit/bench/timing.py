"""Measure the time of calls in turn, and the speed of the fastest matrix product on this machine.

Shapes: B rows, K scores.
"""

import itertools
import math
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from albertkit.engines.engine import Row
from albertkit.extras import optional

torch: Any = optional("torch", extra="torch")

Clock = Callable[[], float]


class Side(ABC):
    """An engine or library whose speed is measured."""

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def compute_rows(self, rows: Sequence[Row]) -> Any:
        """Compute rows in one call."""

    @abstractmethod
    def compute_texts(self, texts: Sequence[str]) -> Any:
        """Tokenize texts and compute them in one call."""

    @abstractmethod
    def first_scores(self, rows: Sequence[Row]) -> np.ndarray:
        """Return scores that are compared between the sides.

        They are the scores of each row, or of its first token, (B, K); for question answering, the scores of
        the start, (B, 1).
        """


def clock_of(device: Any) -> Clock:
    """Return a clock in seconds that waits until a device has finished its work."""
    if _is_cpu(device):
        return time.perf_counter
    waits = {"cuda": torch.cuda.synchronize, "mps": torch.mps.synchronize}
    wait = waits.get(device.type, lambda: None)

    def clock() -> float:
        wait()
        return time.perf_counter()

    return clock


def in_turn(
    works: Mapping[str, Callable[[], Any]],
    *,
    seconds: float = math.inf,
    rounds: int = 20,
    warm_up: bool = True,
    clock: Clock = time.perf_counter,
) -> dict[str, float]:
    """Call functions in turn (A B A B), and return the median time of each in seconds.

    If the machine becomes slower, because it is busy or hot, all functions are affected alike.

    Args:
        works: the functions, by name.
        seconds: no round begins after this time, except the first.
        rounds: maximum number of rounds.
        warm_up: whether to call each function once before the first round.
        clock: see `clock_of`.
    """
    end = clock() + seconds
    for work in works.values() if warm_up else ():
        work()
    times: dict[str, list[float]] = {name: [] for name in works}
    for done in range(rounds):
        if done and clock() >= end:
            break
        for name, work in works.items():
            begin = clock()
            work()
            times[name].append(clock() - begin)
    return {name: statistics.median(some) for name, some in times.items()}


Product = tuple[int, int, int]
"""The sizes (M, K, N) of a product of matrices M x K and K x N, which takes 2 * M * K * N operations."""

PRODUCTS: tuple[Product, ...] = ((256, 768, 3072), (1024, 768, 3072), (1024, 3072, 768), (2048, 2048, 2048))
GPU_PRODUCTS: tuple[Product, ...] = ((4096, 768, 3072), (8192, 4096, 4096), (8192, 8192, 8192))
_RUNS = 5


def library() -> str:
    """Return the library that computes the products: "torch" if PyTorch is installed, otherwise "numpy"."""
    return "torch" if find_spec("torch") else "numpy"


def largest_product(
    device: Any,
    dtype: Any = "float32",
    *,
    products: Sequence[Product] | None = None,
    seconds: float = math.inf,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Return the operations per second of the fastest matrix product.

    On a CPU, PyTorch computes each product in two ways: as usual, and with a reordered matrix. NumPy computes
    on the CPU and in float32.

    Args:
        device: the device on which PyTorch computes; on a CPU, with all its threads.
        dtype: the data type of the matrices, as a torch.dtype or by name.
        products: the products to try, small ones first; None for products that suit the device.
        seconds: no product begins after this time, except the first.
        clock: clock in seconds. For a GPU, it must wait until the GPU has finished (`clock_of`).
    """
    best, end = 0.0, clock() + seconds
    ways = [_in_numpy]
    if library() == "torch":
        from albertkit.engines.packed_layers import can_reorder

        dtype = getattr(torch, str(dtype).removeprefix("torch."))
        choices = (False, True) if _is_cpu(device) and can_reorder(dtype) else (False,)
        ways = [partial(_in_torch, device=device, dtype=dtype, reorder=one) for one in choices]
    products = products or (PRODUCTS if _is_cpu(device) else GPU_PRODUCTS)
    for product, way in itertools.product(products, ways):
        if best and clock() >= end:
            break
        compute = way(product)
        for run in range(_RUNS + 1):
            begin = clock()
            compute()
            now = clock()
            if run:  # the first run is a warm-up
                best = max(best, 2 * math.prod(product) / (now - begin))
            if best and now >= end:
                break
    return best


def _in_numpy(product: Product) -> Callable[[], Any]:
    rows, inputs, outputs = product
    states, weight = np.ones((rows, inputs), np.float32), np.ones((outputs, inputs), np.float32)
    return lambda: states @ weight.T


def _in_torch(product: Product, *, device: Any, dtype: Any, reorder: bool) -> Callable[[], Any]:
    from albertkit.engines.packed_layers import ReorderedLinear

    rows, inputs, outputs = product
    states = torch.ones(rows, inputs, device=device, dtype=dtype)
    weight = torch.ones(outputs, inputs, device=device, dtype=dtype)
    bias = torch.ones(outputs, device=device, dtype=dtype)
    with torch.inference_mode():
        linear = ReorderedLinear(weight, bias, reorder=True) if reorder else None
    multiply = torch.nn.functional.linear

    @torch.inference_mode()
    def compute() -> Any:
        return multiply(states, weight, bias) if linear is None else linear(states)

    return compute


def _is_cpu(device: Any) -> bool:
    return str(device).startswith("cpu")
