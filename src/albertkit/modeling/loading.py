"""What `from_pretrained` settles before there is a model: config and tensors, their type, the device."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from albertkit.checkpoints.folder import locate, read_folder
from albertkit.checkpoints.report import LoadReport
from albertkit.config import AlbertConfig
from albertkit.errors import ConfigError


def find(
    name_or_folder: str | Path | None,
    *,
    config: AlbertConfig | str | Path | None,
    state_dict: Mapping[str, Tensor] | None,
    **hub: Any,
) -> tuple[AlbertConfig, Mapping[str, Tensor]]:
    """Config and tensors: those given, the rest from the checkpoint.

    Raises:
        ConfigError: no checkpoint is named, and config or tensors are not given.
    """
    if isinstance(config, str | Path):
        config = AlbertConfig.from_pretrained(config, **hub)
    if state_dict is not None:
        # The tensors become the parameters, and training them must not change the caller's.
        state_dict = {name: tensor.detach().clone() for name, tensor in state_dict.items()}
    if config is not None and state_dict is not None:
        return config, state_dict
    if name_or_folder is None:
        raise ConfigError("without a model name or folder, give both config and state_dict")
    if state_dict is not None:
        return AlbertConfig.from_pretrained(name_or_folder, **hub), state_dict
    values, tensors = read_folder(locate(name_or_folder, **hub))
    return AlbertConfig.from_dict(values) if config is None else config, tensors


def choose_dtype(dtype: torch.dtype | str | None, tensors: Mapping[str, Tensor]) -> torch.dtype:
    """The floating type asked for; "auto" is that of the tensors, None is float32.

    Raises:
        ConfigError: not the name of a floating type.
    """
    if dtype is None:
        return torch.float32
    if dtype == "auto":
        return next(
            (tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()), torch.float32
        )
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
        ConfigError: several devices (an ALBERT fits on one), or none that torch knows.
    """
    if device_map is None:
        return torch.device("cpu")
    if isinstance(device_map, Mapping):
        if set(device_map) != {""}:
            raise ConfigError(f"device_map must name one device for the whole model, got {dict(device_map)}")
        device_map = torch.device(device_map[""])
    if device_map != "auto":
        try:
            return torch.device(device_map)
        except RuntimeError as error:
            raise ConfigError(
                f"device_map is {device_map!r}; expected 'auto' or one device, such as 'cpu' or 'cuda:1'"
            ) from error
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def describe(report: LoadReport) -> dict[str, Any]:
    """The report under the names that `transformers` gives its parts."""
    return {
        "missing_keys": list(report.missing),
        "unexpected_keys": list(report.unexpected),
        "mismatched_keys": [(name, *shapes) for name, shapes in report.reshaped.items()],
        "error_msgs": [],
        "report": report,
    }
