"""Which engine computes, and with how many threads."""

import os
from importlib.util import find_spec

import torch

from albertkit.cores import VARIABLE, usable_cores
from albertkit.engines.onnx_engine import OnnxEngine
from albertkit.engines.onnx_network import require_runtime
from albertkit.engines.padding_free import PaddingFreeEngine
from albertkit.errors import ConfigError, suggestion
from albertkit.graphs.int8 import INT8, QUANTIZATION
from albertkit.modeling.pretrained import AlbertPreTrainedModel
from albertkit.tasks.engine import Engine, PlainEngine

ENGINES = ("auto", "torch", "plain", "onnx", "onnx-int8")
"""`torch` computes without padding, `onnx` does so in ONNX Runtime, `onnx-int8` with the layers' matrices in
int8, and `plain` calls the model. `auto` is `onnx-int8` for a model that was exported in int8, and otherwise
`torch` on the CPU and on CUDA, and `plain` on other devices."""

_WELL_TESTED = ("cpu", "cuda")  # devices on which `auto` computes without padding


def make_engine(model: AlbertPreTrainedModel, name: str = "auto") -> Engine:
    """Return the engine of a name for a model.

    Args:
        model: any; every engine calls a model with hooks, or with modules of its own, as it is.
        name: one of `ENGINES`.

    Raises:
        ConfigError: another name, or a model on a device that the engine does not compute on.
        MissingExtraError: the engine needs the extra `onnx`, which is not installed.
    """
    if name not in ENGINES:
        raise ConfigError(f"there is no engine {name!r}; {suggestion(name, ENGINES)}")
    settle_threads()
    if getattr(model.config, QUANTIZATION, None) == INT8 and (name == "onnx" or _is_ready(model, name)):
        name = "onnx-int8"
    if name == "plain" or (name == "auto" and model.device.type not in _WELL_TESTED):
        return PlainEngine(model)
    if name in ("auto", "torch"):
        return PaddingFreeEngine(model)
    if model.device.type != "cpu":
        raise ConfigError(
            f"the model is on {model.device}, and the engine {name!r} computes on the CPU: move the model "
            "there, or choose the engine 'torch'"
        )
    require_runtime()
    return OnnxEngine(model, int8=name == "onnx-int8")


def _is_ready(model: AlbertPreTrainedModel, name: str) -> bool:
    return name == "auto" and model.device.type == "cpu" and find_spec("onnxruntime") is not None


def settle_threads() -> None:
    """Give torch as many threads as there are cores for this process, unless it has fewer, or was told.

    It sees the affinity of a process, and not the limit of a container: two cores of 64 then have 64 threads.
    """
    cores = usable_cores()
    told = os.environ.get("OMP_NUM_THREADS") or os.environ.get("MKL_NUM_THREADS")
    if os.environ.get(VARIABLE) or (cores < torch.get_num_threads() and not told):
        torch.set_num_threads(cores)
