"""Load a model, and choose the engine that computes it."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from albertkit.checkpoints.formats import load_config
from albertkit.checkpoints.match import LoadReport, check_head, saved_class
from albertkit.config import AlbertConfig
from albertkit.devices import CPU, Device
from albertkit.engines.engine import Engine
from albertkit.engines.light_model import LightModel, Model
from albertkit.engines.onnx import LightEngine
from albertkit.errors import CheckpointError, ConfigError, suggestion, warn_caller
from albertkit.heads import head_of
from albertkit.hub import HubOptions
from albertkit.options import ENGINES

if TYPE_CHECKING:
    from albertkit.modeling.pretrained import AlbertPreTrainedModel

FLOAT32_ENGINES = ("onnx", "onnx-int8")
"""Engines that compute on the CPU and in float32, also with half-precision weights. The other engines compute
on the device and in the data type of the weights."""


def make_engine(model: "LightModel | AlbertPreTrainedModel", name: str = "auto") -> Engine:
    """Return the engine with this name for a model.

    Args:
        model: A light model or a PyTorch model.
        name: One of `ENGINES`. The engines `onnx` and `onnx-int8` compute only light models.
    """
    if name not in ENGINES:
        raise ConfigError(f"there is no engine {name!r}. {suggestion(name, ENGINES)}")
    if isinstance(model, LightModel):
        if name in ("torch", "plain"):
            model.to_module()
        return LightEngine(model, name)
    if name in FLOAT32_ENGINES:
        raise ConfigError(
            f"the engine {name!r} computes models that are loaded by name, but this is a PyTorch model. Pass "
            "the name or folder of the model, or choose the engine 'torch'."
        )
    from albertkit.engines.torch import module_engine

    return module_engine(model, name)


def engine_device(engine: "str | Engine | None", device: Device) -> Device:
    """Return the device to load a model on, for `read_device`.

    If `device` is None or "auto", it is the CPU for an engine that only computes there, and "auto" (the best
    available device) for other engines.
    """
    if device in (None, "auto"):
        return CPU if engine in FLOAT32_ENGINES else "auto"
    return device


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
    """Return a model and the report of its loaded tensors, which the caller must check.

    Args:
        name: A folder, a checkpoint of another library, or a hub name.
        architecture: The name of the model class.
        device: The device of the model, as returned by `read_device`.
        config: A config to use instead of the checkpoint's config.
        dtype: Data type of the weights. "auto" keeps the data type of the file; None means float32.
        model_kwargs: Additional arguments of the PyTorch class. If there are any except `disable_mmap`, the
            model is a PyTorch model.
        hub: Options; see `hub.HubOptions`.
    """
    config = load_config(name if config is None else config, **hub)
    check_head(config, architecture, name=str(name))
    model_kwargs = dict(model_kwargs or {})
    disable_mmap = model_kwargs.pop("disable_mmap", None)
    # Only PyTorch computes a function of the caller.
    if str(device) == CPU and not model_kwargs and not callable(config.hidden_act):
        light = LightModel.from_pretrained(
            name, architecture, config=config, dtype=dtype, disable_mmap=disable_mmap, **hub
        )
        assert light.report is not None
        return light, light.report
    from albertkit.modeling import auto

    with warnings.catch_warnings():  # the report contains the same information
        warnings.simplefilter("ignore", UserWarning)
        model_class: Any = auto.model_class(architecture)
        model, info = model_class.from_pretrained(
            name,
            config=config,
            dtype=dtype,
            device_map=device,
            output_loading_info=True,
            disable_mmap=disable_mmap,
            **hub,
            **model_kwargs,
        )
    return model, info["report"]


def load_complete_model(
    name: str | Path, architecture: str, *, task: str | None = None, **options: Any
) -> Model:
    """Return a model whose head has all its weights. Warn about tensors that the model does not use.

    `task` is for error messages, by default the task of the class. For the other arguments see `load_model`.
    """
    model, report = load_model(name, architecture, **options)
    # Feature extraction does not need the pooler, which some checkpoints lack.
    missing = [tensor for tensor in report.missing if not tensor.startswith("pooler.")]
    if missing:
        raise CheckpointError(
            f"{str(name)!r} was not trained for {task or head_of(architecture).task}: it is saved as "
            f"{saved_class(model.config)}, whose weights lack {', '.join(missing)}. "
            f"Fine-tune it for that task first ({architecture}), or pass a checkpoint that has them."
        )
    if report.unexpected or report.conflicting:
        warn_caller(f"{name}: {report}")
    return model
