"""Devices as callers of `transformers` name them, and the best one of this machine."""

import ctypes
import platform
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from albertkit.errors import ConfigError, warn_caller
from albertkit.extras import optional

torch: Any = optional("torch", extra="torch")

Device = Any
"""None, a name, a number, or a `torch.device`."""

CPU = "cpu"


def read_device(device: Device) -> Any:
    """Return the device meant, as `transformers` reads numbers; None where none was given.

    Args:
        device: "auto" for the best one.

    Returns:
        A `torch.device`; "cpu" for the CPU, which needs no torch.

    Raises:
        ConfigError: a device that this machine does not have.
        MissingExtraError: another device than the CPU, and torch is not installed.
    """
    if device is None:
        return None
    if isinstance(device, str) and device == "auto":
        return best_device()
    if isinstance(device, str) and device.removeprefix("-").isdecimal():
        device = int(device)
    if str(device) == CPU or (isinstance(device, int) and device < 0):
        return CPU
    _ = torch.device  # before anything of ours imports it
    from albertkit.modeling.loading import choose_device

    if isinstance(device, int):
        best = choose_device("auto")
        if best.type == CPU:
            warn_caller(f"device={device}, but this machine has no GPU: using the CPU")
            return CPU
        device = f"{best.type}:{device}"
    try:
        chosen = choose_device(device)
        torch.empty(0, device=chosen)  # a device that torch can name may still not be here
    except (AssertionError, ConfigError, RuntimeError, TypeError) as error:
        raise ConfigError(
            f"device {str(device)!r} cannot be used ({str(error).splitlines()[0]}); expected such as 'cpu', "
            "'cuda', 'cuda:1', 'mps', or a number, of a device that this machine has"
        ) from error
    return CPU if chosen.type == CPU else chosen


def best_device() -> Any:
    """Return the best single device: CUDA, then MPS, then the CPU.

    Torch is asked only where it is installed and the machine has a driver of such a device: importing it
    takes longer than answering a sentence.
    """
    if find_spec("torch") is None or not _has_accelerator():
        return CPU
    from albertkit.modeling.loading import choose_device

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
