"""Choose the device that computes a model and the data type of its weights, as in `transformers`."""

import ctypes
import platform
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from albertkit.checkpoints.arrays import is_floating
from albertkit.errors import ConfigError, suggestion, warn_caller
from albertkit.extras import optional

torch: Any = optional("torch", extra="torch")

Device = Any
"""None, a device name, a GPU number, or a `torch.device`."""

CPU = "cpu"
_TYPES = ("cpu", "cuda", "hpu", "meta", "mps", "mtia", "npu", "privateuseone", "xla", "xpu")
"""PyTorch's device types, for use when PyTorch is not installed."""


def read_device(device: Device) -> Any:
    """Return the device that a name, number or `torch.device` means, as in `transformers`.

    Args:
        device: A device. "auto" means the best available device; None returns None.

    Returns:
        A `torch.device`, or "cpu" for the CPU, which does not need PyTorch.
    """
    if device is None:
        return None
    if isinstance(device, str) and device == "auto":
        return best_device()
    if isinstance(device, str) and device.removeprefix("-").isdecimal():
        device = int(device)
    if str(device) == CPU or (isinstance(device, int) and device < 0):
        return CPU
    if isinstance(device, int):
        best = choose_device("auto").type if _has_accelerator() else CPU
        if best == CPU:
            warn_caller(f"device={device}, but this machine has no GPU: using the CPU")
            return CPU
        device = f"{best}:{device}"
    if find_spec("torch") is None and (name := str(device).partition(":")[0]) not in _TYPES:
        raise ConfigError(f"there is no device {device!r}. {suggestion(name, _TYPES)}")
    chosen = choose_device(device)
    return CPU if chosen.type == CPU else chosen


def best_device() -> Any:
    """Return the best single device: CUDA, then MPS, then the CPU.

    It imports PyTorch only if it is installed and the machine has a driver for such a device, because the
    import takes longer than processing a sentence.
    """
    if find_spec("torch") is None or not _has_accelerator():
        return CPU
    best = choose_device("auto")
    return CPU if best.type == CPU else best


def _has_accelerator() -> bool:
    if sys.platform == "darwin":
        return platform.machine() == "arm64"
    if Path("/dev/kfd").exists():  # AMD
        return True
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True


def choose_device(device_map: Device | Mapping[str, Device]) -> Any:
    """Return PyTorch's device for the whole model. "auto" means the best available device.

    An ALBERT model fits on one device, so the strategies of accelerate also mean the best device.
    """
    if isinstance(device_map, Mapping):
        if set(device_map) != {""}:
            raise ConfigError(f"device_map must name one device for the whole model, got {dict(device_map)}")
        device_map = device_map[""]
    if isinstance(device_map, str) and device_map in ("auto", "balanced", "balanced_low_0", "sequential"):
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    if device_map is None:
        return torch.device("cpu")
    gpus = ["mps"] if torch.backends.mps.is_available() else []
    gpus += [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    present = ", ".join(["cpu", *gpus])
    expected = f"Expected 'auto' (the best available device) or one of this machine's devices: {present}."
    try:
        device = torch.device(device_map)
    except (RuntimeError, TypeError):
        raise ConfigError(f"there is no device {device_map!r}. {expected}") from None
    try:
        holds_values = torch.ones(1, device=device).item() == 1
    except (RuntimeError, AssertionError, ImportError):  # PyTorch's message can fill a page
        holds_values = False
    if not holds_values:
        raise ConfigError(f"this machine has no device '{device}' to compute on. {expected}")
    return device


def choose_dtype(dtype: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Return PyTorch's data type for a name. "auto" means the data type of the arrays, None means float32."""
    if dtype is None:
        return torch.float32
    if dtype == "auto":
        stored = next((array for array in arrays.values() if is_floating(array)), None)
        return torch.float32 if stored is None else getattr(torch, stored.dtype.name)
    chosen: Any = getattr(torch, dtype.removeprefix("torch."), None) if isinstance(dtype, str) else dtype
    # PyTorch stores float8, but cannot compute with it.
    if not isinstance(chosen, torch.dtype) or not chosen.is_floating_point or chosen.itemsize == 1:
        raise ConfigError(
            f"dtype is {dtype!r}. Use 'auto' or a floating-point type such as 'float32' or 'bfloat16'."
        )
    return chosen
