"""The speed of a run relative to its machine: model FLOPs utilization (Chowdhery et al. 2022, appendix B)."""

import math
import re
import resource
import sys
import time
from functools import cache
from pathlib import Path

import torch

from albertkit.training.run_state import RunState

_SIZES = (512, 1024, 2048)  # one fits a CPU's caches, one fills a GPU
_LONG_ENOUGH = 0.02  # seconds per product; larger ones are not faster
_REPEATS = 5

# Dense bfloat16 tensor-core speeds stated by the makers, in FLOP/s, by a word of the device's name. The cards
# H100 PCIe, H100 NVL and H200 NVL are slower than the modules of these names.
STATED_BF16 = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "L4": 121e12}
_SLOWER = re.compile(r"\bH[12]00\b.*\b(PCIe|NVL)\b")


class Meter:
    """Measures the training time, and the speed since the last log line.

    Args:
        device: the device of the run.
        state: state of the run when this process starts or resumes it.
        done: the length of the run so far, in steps or tokens.
    """

    def __init__(self, device: torch.device, state: RunState, *, done: int) -> None:
        self._device = device
        self.utilization = 0.0
        """Model FLOPs utilization at one token per second; 0 if unknown."""
        self._clock = time.perf_counter()
        self._tokens, self._seconds = state.tokens, state.seconds
        self._first_done, self._first_seconds = done, state.seconds

    def start(self) -> None:
        """Start the clock: time since `tick` does not count as training."""
        self._clock = time.perf_counter()

    def tick(self, state: RunState) -> None:
        """Count the time until now."""
        now = time.perf_counter()
        state.seconds += now - self._clock
        self._clock = now

    def mark(self, state: RunState) -> None:
        """Measure the speed from now on."""
        self._tokens, self._seconds = state.tokens, state.seconds

    def figures(
        self, state: RunState, *, done: int, length: int, seconds_left: float = math.inf
    ) -> dict[str, float]:
        """Return speed and memory since the last mark, and set a new mark.

        Args:
            state: state of the run.
            done: the length of the run so far, in steps or tokens.
            length: the length of the whole run, in the same unit.
            seconds_left: the time until the limit of this call, which may come first.
        """
        self.tick(state)
        speed = (state.tokens - self._tokens) / max(state.seconds - self._seconds, 1e-9)
        self.mark(state)
        # Only this process counts: before a resume, the machine may have been another one.
        seconds_each = (state.seconds - self._first_seconds) / max(done - self._first_done, 1)
        figures = {
            "tokens_per_second": speed,
            "memory_gb": peak_memory(self._device) / 1e9,
            "minutes_left": min(seconds_each * (length - done), max(seconds_left, 0.0)) / 60,
        }
        if self.utilization:  # "mfu" is model FLOPs utilization
            figures["mfu"] = speed * self.utilization
        return figures


def peak_flops(device: torch.device, dtype: torch.dtype) -> float:
    """Return the peak FLOP/s for the utilization.

    For known GPUs in bfloat16 it is the maker's figure; otherwise the speed of a large matrix product, which
    takes a few tenths of a second to measure.
    """
    if device.type == "cuda" and dtype == torch.bfloat16:
        name = torch.cuda.get_device_name(device)
        words = set() if _SLOWER.search(name) else set(re.split(r"[ -]", name))
        for word in words & STATED_BF16.keys():
            return STATED_BF16[word]
    return measured_flops(device, dtype)


def measured_flops(device: torch.device, dtype: torch.dtype, sizes: tuple[int, ...] = _SIZES) -> float:
    """Return the best FLOP/s of square matrix products of ascending sizes."""
    best, seconds = 0.0, 0.0
    for size in sizes:
        if seconds > _LONG_ENOUGH:
            break
        left, right = (torch.ones(size, size, device=device, dtype=dtype) for _ in range(2))
        for _ in range(_REPEATS):
            _synchronize(device)
            begin = time.perf_counter()
            torch.mm(left, right)
            _synchronize(device)
            seconds = time.perf_counter() - begin
            best = max(best, 2 * size**3 / seconds)
    return best


def peak_memory(device: torch.device) -> int:
    """Return the peak memory of this process in bytes: on a GPU of its tensors, otherwise resident memory."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    status = Path("/proc/self/status")  # some sandboxes do not have the peak in it
    if status.exists() and (peak := re.search(r"VmHWM:\s*(\d+) kB", status.read_text())):
        # Not `ru_maxrss`, which starts at the value of the parent process.
        return int(peak[1]) * 1024
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes if sys.platform == "darwin" else kilobytes * 1024


@cache
def computes_in_bf16(device: torch.device) -> bool:
    """Return whether matrix products are faster in bfloat16; without the instructions they are much slower.

    CPUs are measured (about 20 ms), because those instructions are not always faster: of two servers with
    AVX512-BF16, one trains 1.7 times as fast with them, the other half as fast.
    """
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "cpu" and (torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()):
        return measured_flops(device, torch.bfloat16, (512,)) > measured_flops(device, torch.float32, (512,))
    return False


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
