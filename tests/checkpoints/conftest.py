"""Fixtures of the tests of checkpoints."""

from pathlib import Path
from typing import Any

import pytest
from sentence_folders import Encoder, WriteModel, list_modules, pooling_of, write_json


@pytest.fixture
def tensors() -> dict[str, Any]:
    """Return tensors with different shapes and types."""
    from checkpoint_models import tensors_of_each_type  # imports PyTorch, which the base install lacks

    return tensors_of_each_type()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a config and without weights."""
    (tmp_path / "config.json").write_text('{"model_type": "albert"}')
    return tmp_path


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """Return a folder with a small checkpoint of TensorFlow 1."""
    from fuzzed_checkpoint import write_checkpoint  # imports PyTorch, which the base install lacks

    write_checkpoint(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def encoder(tiny_vocabulary: Path) -> Encoder:
    """Return a random encoder."""
    return Encoder(tiny_vocabulary)


@pytest.fixture
def write_model(encoder: Encoder, tmp_path: Path) -> WriteModel:
    """Return a function that writes a folder with a transformer and further modules."""

    def write(*kinds: str, pooling: Any = None, inner: str = "", **options: Any) -> Path:
        folder = tmp_path / "model"
        encoder.write(folder / inner)
        list_modules(folder, *kinds, inner=inner, **options)
        write_json(folder / "1_Pooling" / "config.json", pooling or pooling_of("mean_tokens"))
        return folder

    return write
