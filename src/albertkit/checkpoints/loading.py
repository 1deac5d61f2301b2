"""What `from_pretrained` settles before there is a model: config and tensors, and its account afterwards."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from albertkit.checkpoints.formats import locate, read
from albertkit.checkpoints.report import LoadReport
from albertkit.config import ARGUMENTS, AlbertConfig
from albertkit.errors import ConfigError
from albertkit.hub import HubOptions
from albertkit.published import warn_of_contradictions


def split(model_class: type, options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of the model's constructor that are none of the config's; and the rest, for the config."""
    constructor = inspect.signature(model_class).parameters.keys() - {"config"}
    own = {name for name in options if name in constructor and name not in ARGUMENTS}
    return (
        {name: options[name] for name in own},
        {name: value for name, value in options.items() if name not in own},
    )


def find(
    name_or_folder: str | Path | None,
    *,
    config: AlbertConfig | str | Path | None,
    state_dict: Mapping[str, np.ndarray] | None,
    overrides: Mapping[str, Any],
    safetensors_only: bool = False,
    **hub: Unpack[HubOptions],
) -> tuple[AlbertConfig, Mapping[str, np.ndarray]]:
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
        state_dict = {name: tensor.copy() for name, tensor in state_dict.items()}
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
    checkpoint = read(folder, needs_config=config is None)
    if config is None:
        config = AlbertConfig.from_dict(checkpoint.config)
        warn_of_contradictions(name_or_folder, vars(config), settled=overrides.keys(), stacklevel=4)
        config = config.replace(**overrides)
    return config, checkpoint.tensors


def describe(report: LoadReport) -> dict[str, Any]:
    """The report under the names that `transformers` gives its parts."""
    return {
        "missing_keys": set(report.missing),
        "unexpected_keys": set(report.unexpected),
        "mismatched_keys": {(name, *shapes) for name, shapes in report.reshaped.items()},
        "error_msgs": [],
        "report": report,
    }
