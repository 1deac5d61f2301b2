"""Functions of `albertkit.checkpoints` with PyTorch tensors instead of arrays."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from albertkit.checkpoints import folder, tensor_bundle
from albertkit.checkpoints import match as matching
from albertkit.checkpoints.arrays import to_arrays, to_tensors, to_torch


def read_folder(*given: Any, **options: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    config, arrays = folder.read_folder(*given, **options)
    return config, to_tensors(arrays)


def write_folder(path: Any, config: Mapping[str, Any], tensors: Mapping[str, Tensor], **options: Any) -> None:
    folder.write_folder(path, config, to_arrays(tensors), **options)


def match(tensors: Mapping[str, Tensor], *given: Any, **options: Any) -> tuple[dict[str, Tensor], Any]:
    """Call `match.match` with tensors. If two names have the same array, they get the same tensor."""
    matched, account = matching.match(to_arrays(tensors), *given, **options)
    return to_tensors(matched), account


def write_bundle(prefix: Any, tensors: Mapping[str, Tensor]) -> Any:
    return tensor_bundle.write_bundle(prefix, to_arrays(tensors))


class Bundle(tensor_bundle.Bundle):
    def read(self, name: str, *, check: bool = True) -> Any:
        return to_torch(super().read(name, check=check))
