"""A model as config and weights, which needs PyTorch only when a PyTorch module is requested."""

import mmap
import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, Self, Union, Unpack

import numpy as np

from albertkit.checkpoints import formats
from albertkit.checkpoints.arrays import DTYPES, is_floating
from albertkit.checkpoints.folder import write_folder
from albertkit.checkpoints.match import LoadReport, fit
from albertkit.checkpoints.sentence_modules import files_of
from albertkit.config import AlbertConfig
from albertkit.errors import ConfigError, MissingExtraError, suggestion
from albertkit.extras import optional
from albertkit.heads import HEADS
from albertkit.hub import HubOptions
from albertkit.hub_upload import PushToHub
from albertkit.onnx.graph import INT8, QUANTIZATION

if TYPE_CHECKING:
    from albertkit.modeling.pretrained import AlbertPreTrainedModel

torch: Any = optional("torch", extra="torch")

Model = Union["LightModel", "AlbertPreTrainedModel"]
"""A model that engines can compute."""

_ALIGNMENT = 64  # bytes


class LightModel(PushToHub):
    """A model of one class, which the engine `onnx` computes from its weights.

    It becomes a PyTorch model, `module`, when you call it, move it to another device or data type, or use
    `parameters`, hooks or another attribute that only a PyTorch model has. From then on, pipelines compute
    the module. If PyTorch is not installed, calling or moving the model raises MissingExtraError; attributes
    of PyTorch models raise AttributeError with the same message.

    Args:
        architecture: The name of the model class.
        config: The config of the model.
        weights: Tensors by their names in the state dict.
        report: The report of the loaded tensors.
    """

    def __init__(
        self,
        architecture: str,
        config: AlbertConfig,
        weights: Mapping[str, np.ndarray],
        report: LoadReport | None = None,
    ) -> None:
        self.architecture = architecture
        self.config = config
        self.weights = weights
        self.report = report
        self.module: Any = None
        """The PyTorch model if this model has become one, otherwise None."""
        self._owned: mmap.mmap | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_owned": None}  # a copy has its weights in memory

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path,
        architecture: str,
        *,
        config: AlbertConfig | str | Path | None = None,
        dtype: str | None = None,
        disable_mmap: bool | None = False,
        **hub: Unpack[HubOptions],
    ) -> Self:
        """Load a model. Unless `disable_mmap`, weights that are stored in `dtype` are mapped from the file.

        For the arguments and errors see `engines.choosing.load_model`.
        """
        config, arrays = formats.load(name, config, disable_mmap=disable_mmap, **hub)
        weights, report = fit(architecture, config, arrays)
        wanted = _read_dtype(dtype, weights)
        made = {  # shared arrays stay shared
            id(array): array.astype(wanted, copy=False) if is_floating(array) else array
            for array in weights.values()
        }
        weights = {key: made[id(array)] for key, array in weights.items()}
        config = config.replace(dtype=wanted.name)
        config.name_or_path = str(name)
        return cls(architecture, config, weights, report)

    @property
    def dtype(self) -> Any:
        """Data type of the weights: PyTorch's if it is installed, otherwise NumPy's."""
        stored = next(iter(self.weights.values())).dtype
        return getattr(torch, stored.name) if find_spec("torch") else stored

    @property
    def device(self) -> Any:
        """The CPU: a `torch.device` if PyTorch is installed, otherwise "cpu"."""
        return torch.device("cpu") if find_spec("torch") else "cpu"

    @property
    def name_or_path(self) -> str:
        """The name or path that the model was loaded from."""
        return self.config.name_or_path

    def num_parameters(self) -> int:
        """Return the number of parameters; shared parameters count once."""
        return sum(array.size for array in self._distinct())

    def get_memory_footprint(self) -> int:
        """Return the number of bytes of the weights; shared weights count once."""
        return sum(array.nbytes for array in self._distinct())

    def own_weights(self) -> None:
        """Copy the weights out of their mapped file, which can then be overwritten.

        The copy is in a temporary file without a name, so it takes memory only while it is read. If such a
        file cannot be written, the copy is in memory.
        """
        arrays = self._distinct()
        try:
            with TemporaryFile() as file:
                starts = []
                for array in arrays:
                    file.seek(-file.tell() % _ALIGNMENT, os.SEEK_CUR)
                    starts.append(file.tell())
                    array.tofile(file)
                file.flush()
                self._owned = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            content = np.frombuffer(self._owned, np.uint8)
            copies = [
                content[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
                for array, start in zip(arrays, starts, strict=True)
            ]
        except OSError:
            copies = [array.copy() for array in arrays]
        made = {id(array): copy for array, copy in zip(arrays, copies, strict=True)}  # keeps sharing
        self.weights = {name: made[id(array)] for name, array in self.weights.items()}

    def release_memory(self) -> None:
        """Free the memory of the weights that `own_weights` copied. They are read again when needed."""
        if self._owned is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._owned.madvise(mmap.MADV_DONTNEED)

    def _distinct(self) -> list[np.ndarray]:
        return list({id(array): array for array in self.weights.values()}.values())

    def save_pretrained(self, save_directory: str | Path, **options: Any) -> None:
        """Write `config.json` and `model.safetensors`.

        Args:
            save_directory: The folder; it is created if it does not exist. A model in it is replaced
                completely or not at all.
            options: Options of the PyTorch class; see `AlbertPreTrainedModel.save_pretrained`.
        """
        if options or self.module is not None:
            return self.to_module().save_pretrained(save_directory, **options)
        stored = next(iter(self.weights.values())).dtype.name
        config = self.config.replace(architectures=[self.architecture], dtype=stored)
        return write_folder(save_directory, config.to_dict(), self.weights, beside=files_of(config))

    def to_module(self) -> Any:
        """Return the PyTorch model with these weights; every call returns the same object."""
        if self.module is None:
            _ = torch.nn  # raises MissingExtraError before our own modules import torch
            from albertkit.modeling import auto

            self.module, _ = auto.model_class(self.architecture).from_arrays(self.config, self.weights)
            self.module.name_or_path = self.name_or_path
        return self.module

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """Call the PyTorch model."""
        return self.to_module()(*inputs, **options)

    def to(self, *arguments: Any, **options: Any) -> Any:
        """Return the model on a device or in a data type. With "cpu" only, it stays a light model."""
        is_here = (list(map(str, arguments)) or [str(options.get("device"))]) == ["cpu"]
        if self.module is None and is_here and not options.keys() - {"device"}:
            return self
        return self.to_module().to(*arguments, **options)

    def eval(self) -> Any:
        """Return this model, which never applies dropout."""
        return self if self.module is None else self.module.eval()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") and self.__dict__.get("module") is None:
            raise AttributeError(name)  # notebooks, copies and debuggers look up such names in every object
        try:
            module = self.to_module()
        except MissingExtraError as error:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}: {error}") from error
        return getattr(module, name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.architecture}, {self.num_parameters():,} parameters)"


def is_int8(model: Model) -> bool:
    """Return whether a model was exported in int8."""
    return getattr(model.config, QUANTIZATION, None) == INT8


def class_names(model: Model) -> set[str]:
    """Return the names of the albertkit classes that a model is an instance of."""
    if isinstance(model, LightModel):
        return {model.architecture, "AlbertPreTrainedModel"}
    return {one.__name__ for one in type(model).__mro__ if one.__module__.startswith("albertkit.")}


def class_name(model: Model) -> str:
    """Return the name of a model's class in `heads.HEADS`, or else of its Python class."""
    return next(iter(class_names(model) & HEADS.keys()), type(model).__name__)


def _read_dtype(dtype: Any, weights: Mapping[str, np.ndarray]) -> np.dtype:
    if dtype is None:
        return DTYPES["float32"]
    if dtype == "auto":
        stored = next((array.dtype for array in weights.values() if is_floating(array)), None)
        return DTYPES.get(stored.name, DTYPES["float32"]) if stored is not None else DTYPES["float32"]
    name = str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise ConfigError(f"dtype is {dtype!r}. {suggestion(name, ['auto', *DTYPES])}")
    return DTYPES[name]
