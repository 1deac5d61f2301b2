"""`tf_model.h5`: the weights of the former TensorFlow classes of `transformers`, as Keras 2 stored them.

Each top-level group is a layer; its attribute `weight_names` lists the paths of its tensors below it, such as
"tf_albert_model/albert/encoder/embedding_hidden_mapping_in/kernel:0".
"""

from pathlib import Path

import numpy as np
import torch

from albertkit.checkpoints.names import is_turned
from albertkit.errors import AlbertKitError, CheckpointError
from albertkit.extras import optional

h5py = optional("h5py", extra="convert")


def read_h5(path: Path) -> dict[str, torch.Tensor]:
    """Every tensor by its Keras name, in PyTorch's layout.

    Raises:
        CheckpointError: the file is damaged or not of this kind.
    """
    try:
        with h5py.File(path, "r") as file:
            tensors = {
                name: _tensor(np.asarray(file[group][name]), name)
                for group in _names(file, "layer_names")
                for name in _names(file[group], "weight_names")
            }
    except AlbertKitError:
        raise
    except Exception as error:  # a damaged file can make the library raise almost anything
        raise CheckpointError(
            f"{path} ({path.stat().st_size:,} bytes) is damaged, or no file of Keras weights "
            f"({type(error).__name__}: {error})."
        ) from error
    if not tensors:
        raise CheckpointError(f"{path} holds no weights of Keras layers.")
    return tensors


def _names(group: object, attribute: str) -> list[str]:
    """A list of names; lists over 64 kB, the limit of an attribute, are in parts numbered from 0."""
    attributes = group.attrs  # type: ignore[attr-defined]
    parts = [attribute] if attribute in attributes else []
    while f"{attribute}{len(parts)}" in attributes and attribute not in attributes:
        parts.append(f"{attribute}{len(parts)}")
    return [
        name.decode() if isinstance(name, bytes) else str(name) for part in parts for name in attributes[part]
    ]


def _tensor(array: np.ndarray, name: str) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array.T if array.ndim == 2 and is_turned(name) else array))
