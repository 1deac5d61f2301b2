"""Devices as callers of `transformers` name them."""

import re

import torch

from albertkit.errors import ConfigError, warn_caller
from albertkit.modeling.loading import choose_device

Device = int | str | torch.device | None


def read_device(device: Device) -> torch.device | None:
    """Return the device meant, as `transformers` reads numbers; None where none was given."""
    if device is None:
        return None
    if isinstance(device, str) and re.fullmatch(r"-?\d+", device):
        device = int(device)
    if isinstance(device, int):
        best = choose_device("auto" if device >= 0 else "cpu")
        if device >= 0 and best.type == "cpu":
            warn_caller(f"device={device}, but this machine has no GPU: using the CPU")
        if best.type == "cpu":
            return best
        device = f"{best.type}:{device}"
    try:
        chosen = choose_device(device)
        torch.empty(0, device=chosen)  # a device that torch can name may still not be here
    except (AssertionError, ConfigError, RuntimeError, TypeError) as error:
        raise ConfigError(
            f"device {str(device)!r} cannot be used ({str(error).splitlines()[0]}); expected such as 'cpu', "
            "'cuda', 'cuda:1', 'mps', or a number, of a device that this machine has"
        ) from error
    return chosen
