"""Small models without PyTorch: random weights, a tokenizer, and their outputs from the NumPy reference."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from answers import assert_close

from albertkit.checkpoints.folder import write_folder
from albertkit.checkpoints.match import expected_shapes
from albertkit.checkpoints.names import TIED
from albertkit.config import AlbertConfig
from albertkit.reference import forward
from albertkit.tokenization.tokenizer import AlbertTokenizer

SIZES: dict[str, Any] = {
    "vocab_size": 500,
    "embedding_size": 16,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "max_position_embeddings": 64,
}
SHAPES: dict[str, dict[str, Any]] = {
    "shared": {},
    "groups": {"num_hidden_groups": 2, "inner_group_num": 2},
    "gelu": {"hidden_act": "gelu"},
}
TEXT, PAIR = "The captain opened an empty house.", "My sister lost the silver key in 1847."
MASKED = "The captain opened the [MASK] house."
QUESTION, CHOICES = "Who opened it?", ["the captain", "an old fox", "Queen Anne of the harbour"]


def weights_of(architecture: str, config: AlbertConfig) -> dict[str, np.ndarray]:
    """Return random float32 weights. Two names of one tensor get the same array."""
    rng = np.random.default_rng(0)
    weights = {
        name: rng.normal("orm.weight" in name, 0.4, shape).astype(np.float32)
        for name, shape in expected_shapes(architecture, config).items()
    }
    return weights | {name: weights[of] for name, of in TIED.items() if name in weights}


class Model:
    """A model folder with random weights, and the outputs that the NumPy reference computes with them."""

    def __init__(self, folder: Path, architecture: str, config: AlbertConfig, vocabulary: Path) -> None:
        self.folder, self.architecture, self.config = folder, architecture, config
        self.weights = weights_of(architecture, config)
        self.tokenizer = AlbertTokenizer(vocabulary)
        self.tokenizer.save_pretrained(folder)
        write_folder(folder, config.replace(architectures=[architecture]).to_dict(), self.weights)

    def outputs(self, text: str, pair: str | None = None) -> dict[str, np.ndarray]:
        shape = (1, 1, -1) if self.architecture == "AlbertForMultipleChoice" else (1, -1)
        encoded = {name: np.reshape(ids, shape) for name, ids in self.tokenizer(text, pair).items()}
        return forward(self.architecture, self.config, self.weights, **encoded)


Make = Callable[..., Model]


@pytest.fixture(scope="module", name="make")
def make_fixture(tiny_vocabulary: Path, tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Return a function that writes the model of an architecture and a shape, once for each pair."""
    root = tmp_path_factory.mktemp("models")

    @cache
    def make_model(architecture: str, shape: str = "shared") -> Model:
        labels = {"num_labels": 3} if "Classification" in architecture else {}
        config = AlbertConfig(**SIZES | SHAPES[shape] | labels)
        return Model(root / f"{architecture}-{shape}", architecture, config, tiny_vocabulary)

    return make_model


def close(ours: Any, theirs: Any) -> None:
    np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=0)


def same(ours: Any, theirs: Any) -> None:
    assert_close(ours, theirs, tolerance=1e-6)
