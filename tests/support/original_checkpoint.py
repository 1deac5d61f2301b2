"""Fixtures with a checkpoint of the original TensorFlow code, and with the outputs of that code.

A test module imports a fixture as `tf1_fixture`, and its tests request it as `tf1`.
"""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from conversion_models import WORDS
from places import ROOT
from torch_files import write_bundle

GOLDEN = ROOT / "tests" / "golden" / "google_tf1_small"

Tensors = dict[str, torch.Tensor]


@pytest.fixture(name="arrays", scope="module")
def arrays_fixture() -> Tensors:
    with np.load(GOLDEN / "arrays.npz") as file:
        return {key: torch.from_numpy(file[key]) for key in file}


@pytest.fixture(name="original", scope="module")
def original_fixture(arrays: Tensors) -> Tensors:
    """Return the tensors of a checkpoint of the original code, with some state of the optimizer."""
    tensors = {
        key.removeprefix("weight:"): value for key, value in arrays.items() if key.startswith("weight:")
    }
    state = {f"{WORDS}/{slot}": torch.zeros(512, 16) for slot in ("adam_m", "adam_v")}
    return tensors | state | {"global_step": torch.tensor(125_000)}


@pytest.fixture(name="tf1")
def tf1_fixture(tmp_path: Path, original: Tensors) -> Path:
    folder = tmp_path / "tf1"
    folder.mkdir()
    write_bundle(folder / "model.ckpt-best", original)
    shutil.copy(GOLDEN / "albert_config.json", folder)
    return folder
