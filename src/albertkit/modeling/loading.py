"""What `from_pretrained` settles before there is a model: config and tensors, their type, the device."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from albertkit.checkpoints.formats import locate, read
from albertkit.checkpoints.report import LoadReport
from albertkit.config import AlbertConfig, is_config_argument
from albertkit.errors import ConfigError
from albertkit.published import warn_of_contradictions


def split(model_class: type, options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of the model's constructor that are none of the config's; and the rest, for the config."""
    constructor = inspect.signature(model_class).parameters.keys() - {"config"}
    own = {name for name in options if name in constructor and not is_config_argument(name)}
    return (
        {name: options[name] for name in own},
        {name: value for name, value in options.items() if name not in own},
    )


def find(
    name_or_folder: str | Path | None,
    *,
    config: AlbertConfig | str | Path | None,
    state_dict: Mapping[str, Tensor] | None,
    overrides: Mapping[str, Any],
    safetensors_only: bool = False,
    **hub: Any,
) -> tuple[AlbertConfig, Mapping[str, Tensor]]:
    """Config, with overrides, and tensors: those given, the rest from the checkpoint.

    Raises:
        ConfigError: no checkpoint is named, and config or tensors are not given; or it has no
            safetensors and `safetensors_only` asks for them; or an override that is none of the config's.
    """
    if isinstance(config, AlbertConfig):
        config = config.replace(**overrides)
    elif config is not None:
        config = AlbertConfig.from_pretrained(config, **hub, **overrides)
    if state_dict is not None:
        # The tensors become the parameters, and training them must not change the caller's.
        state_dict = {name: tensor.detach().clone() for name, tensor in state_dict.items()}
    if config is not None and state_dict is not None:
        return config, state_dict
    if name_or_folder is None:
        raise ConfigError("without a model name or folder, give both config and state_dict")
    if state_dict is not None:
        return AlbertConfig.from_pretrained(name_or_folder, **hub, **overrides), state_dict
    folder = locate(name_or_folder, **hub)
    if safetensors_only and not any(folder.glob("model*.safetensors*")):
        raise ConfigError(
            f"use_safetensors=True, but {folder} has no safetensors; leave it out to read others"
        )
    checkpoint = read(folder)
    if config is None:
        config = AlbertConfig.from_dict(checkpoint.config)
        warn_of_contradictions(name_or_folder, vars(config), settled=overrides.keys(), stacklevel=4)
        config = config.replace(**overrides)
    return config, checkpoint.tensors


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


def describe(report: LoadReport) -> dict[str, Any]:
    """The report under the names that `transformers` gives its parts."""
    return {
        "missing_keys": list(report.missing),
        "unexpected_keys": list(report.unexpected),
        "mismatched_keys": [(name, *shapes) for name, shapes in report.reshaped.items()],
        "error_msgs": [],
        "report": report,
    }
