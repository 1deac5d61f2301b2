"""A model by its name: a light model on the CPU, which needs no torch, and a PyTorch model elsewhere."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

from albertkit.checkpoints.report import LoadReport
from albertkit.checkpoints.shapes import check_head
from albertkit.config import AlbertConfig
from albertkit.engines.devices import CPU
from albertkit.engines.light_model import LightModel, Model
from albertkit.hub import HubOptions


def load_model(
    name: str | Path,
    architecture: str,
    *,
    device: Any = CPU,
    config: AlbertConfig | str | Path | None = None,
    dtype: Any = None,
    model_kwargs: Mapping[str, Any] | None = None,
    **hub: Unpack[HubOptions],
) -> tuple[Model, LoadReport]:
    """Return a model, and what became of each tensor of its file, which the caller must judge.

    Args:
        name: a folder, a checkpoint of another writer, or a hub name.
        architecture: the name of the model class.
        device: where it is computed, as `read_device` returns it.
        config: replaces the checkpoint's own.
        dtype: type of the weights; "auto" for that of the file, None for float32.
        model_kwargs: further arguments of the PyTorch class, which loads the model where there are any.
        hub: as `hub.HubOptions` says.

    Raises:
        ModelNotFoundError: no model has that name.
        CheckpointError: a file is damaged, lacks tensors of the encoder, or has the head of another task.
        ConfigError: the config describes no possible model, or an unknown type.
        MissingExtraError: a PyTorch model is needed, and torch is not installed.
    """
    if not isinstance(config, AlbertConfig):
        config = AlbertConfig.from_pretrained(name if config is None else config, **hub)
    check_head(config, architecture, name=str(name))
    if str(device) == CPU and not model_kwargs:
        light = LightModel.from_pretrained(name, architecture, config=config, dtype=dtype, **hub)
        assert light.report is not None
        return light, light.report
    from albertkit.modeling import auto

    with warnings.catch_warnings():  # of what the report says
        warnings.simplefilter("ignore", UserWarning)
        model, info = getattr(auto, architecture).from_pretrained(
            name,
            config=config,
            dtype=dtype,
            device_map=device,
            output_loading_info=True,
            **hub,
            **(model_kwargs or {}),
        )
    return model, info["report"]
