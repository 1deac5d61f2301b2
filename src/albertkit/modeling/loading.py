"""The type of a model's weights, and its device."""

from collections.abc import Mapping

import numpy as np
import torch

from albertkit.checkpoints.arrays import is_floating
from albertkit.errors import ConfigError


def choose_dtype(dtype: torch.dtype | str | None, arrays: Mapping[str, np.ndarray]) -> torch.dtype:
    """The floating type asked for; "auto" is that of the arrays, None is float32.

    Raises:
        ConfigError: not the name of a floating type.
    """
    if dtype is None:
        return torch.float32
    if dtype == "auto":
        stored = next((array for array in arrays.values() if is_floating(array)), None)
        return torch.float32 if stored is None else getattr(torch, stored.dtype.name)
    found = getattr(torch, dtype.removeprefix("torch."), None) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise ConfigError(
            f"dtype is {dtype!r}; use 'auto' or a floating type such as 'float32' or 'bfloat16'"
        )
    return found


def choose_device(
    device_map: str | torch.device | Mapping[str, str | int | torch.device] | None,
) -> torch.device:
    """The one device for the whole model; "auto" is the best there is.

    Raises:
        ConfigError: several devices (an ALBERT fits on one), one that torch does not know, that is not
            there, or that holds no values ("meta").
    """
    if device_map is None:
        return torch.device("cpu")
    if isinstance(device_map, Mapping):
        if set(device_map) != {""}:
            raise ConfigError(f"device_map must name one device for the whole model, got {dict(device_map)}")
        wanted = device_map[""]
    else:
        wanted = device_map
    if wanted != "auto":
        found = ", ".join(["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))])
        expected = f"expected 'auto' (the best there is) or one of those here: {found}"
        try:
            device = torch.device(wanted)
        except RuntimeError:
            raise ConfigError(f"there is no device {wanted!r}; {expected}") from None
        try:
            holds_values = torch.ones(1, device=device).item() == 1
        except (RuntimeError, AssertionError):  # pages of torch's insides, for a device that is not there
            holds_values = False
        if not holds_values:
            raise ConfigError(f"this machine has no device '{device}' to compute on; {expected}")
        return device
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
