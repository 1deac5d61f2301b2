"""The speed and the memory of the machine that trains."""

import re
import resource
import sys
import time
from functools import cache
from pathlib import Path

import torch

_SIZES = (512, 1024, 2048)  # one fits a CPU's caches, one fills a GPU
_LONG_ENOUGH = 0.02  # seconds per product; larger ones are not faster
_REPEATS = 5

# Dense bfloat16 tensor-core speeds stated by the makers, in FLOP/s, by a word of the device's name. The cards
# H100 PCIe, H100 NVL and H200 NVL are slower than the modules of these names.
STATED_BF16 = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "L4": 121e12}
_SLOWER = re.compile(r"\bH[12]00\b.*\b(PCIe|NVL)\b")


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


@cache
def measured_flops(device: torch.device, dtype: torch.dtype, sizes: tuple[int, ...] = _SIZES) -> float:
    """Return the best FLOP/s of square matrix products of ascending sizes."""
    best, seconds = 0.0, 0.0
    synchronize = torch.cuda.synchronize if device.type == "cuda" else lambda _: None
    for size in sizes:
        if seconds > _LONG_ENOUGH:
            break
        left, right = (torch.ones(size, size, device=device, dtype=dtype) for _ in range(2))
        for _ in range(_REPEATS):
            synchronize(device)
            begin = time.perf_counter()
            torch.mm(left, right)
            synchronize(device)
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
