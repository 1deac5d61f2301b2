"""Folders of sentence-transformers with a random encoder, written without that library."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from albertkit import pipeline
from albertkit.checkpoints.folder import write_folder
from albertkit.checkpoints.match import expected_shapes
from albertkit.checkpoints.sentence_modules import ACTIVATIONS
from albertkit.config import AlbertConfig
from albertkit.reference import forward
from albertkit.tokenization.tokenizer import AlbertTokenizer

HIDDEN = 32
PACKAGE = "sentence_transformers.models."
TEXTS = ["The captain opened an empty house.", "My sister lost the silver key in 1847.", "Rain."]
CONFIG = AlbertConfig(
    vocab_size=500,
    embedding_size=16,
    hidden_size=HIDDEN,
    num_attention_heads=4,
    intermediate_size=48,
    num_hidden_layers=2,
    max_position_embeddings=64,
    architectures=["AlbertModel"],
)
WriteModel = Callable[..., Path]
POOLINGS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "cls_token": lambda states: states[0],
    "max_tokens": lambda states: np.max(states, axis=0),
    "mean_tokens": lambda states: np.sum(states, axis=0) / len(states),
}
"""The definition of each pooling, by its flag."""


class Encoder:
    """A random encoder, and its hidden states as the NumPy implementation computes them."""

    def __init__(self, vocabulary: Path, *, lower: bool = True) -> None:
        rng = np.random.default_rng(0)
        self.tokenizer = AlbertTokenizer(vocabulary, do_lower_case=lower)
        self.weights = {
            name: rng.normal("orm.weight" in name, 0.4, shape).astype(np.float32)
            for name, shape in expected_shapes("AlbertModel", CONFIG).items()
        }

    def write(self, folder: Path) -> None:
        """Write the model and the tokenizer."""
        self.tokenizer.save_pretrained(folder)
        write_folder(folder, CONFIG.to_dict(), self.weights)

    def states(self, text: str, *, max_length: int = 64) -> np.ndarray:
        """Return the hidden states (T, H) of a text, truncated to `max_length`."""
        encoded = self.tokenizer(text, truncation=True, max_length=max_length)
        inputs = {name: np.array([ids]) for name, ids in encoded.items()}
        return forward("AlbertModel", CONFIG, self.weights, **inputs)["last_hidden_state"][0]


def write_json(file: Path, value: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value))


def list_modules(folder: Path, *kinds: str, inner: str = "", package: str = PACKAGE) -> None:
    """Write modules.json. `inner` is the folder of the transformer."""
    paths = [inner, *(f"{number}_{kind}" for number, kind in enumerate(kinds, start=1))]
    names = ("Transformer", *kinds)
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"{package}{kind}"}
        for number, (kind, path) in enumerate(zip(names, paths, strict=True))
    ]
    write_json(folder / "modules.json", modules)


def pooling_of(*flags: str) -> dict[str, Any]:
    """Return the config of a Pooling module."""
    return {"word_embedding_dimension": HIDDEN} | {f"pooling_mode_{flag}": flag in flags for flag in POOLINGS}


def add_dense(
    folder: Path,
    *,
    inputs: int = HIDDEN,
    size: int = 5,
    activation: str = "Tanh",
    bias: bool = True,
    **more: Any,
) -> dict[str, np.ndarray]:
    """Write a Dense module; return its tensors."""
    rng = np.random.default_rng(1)
    tensors = {"linear.weight": rng.normal(0, 0.5, (size, inputs)).astype(np.float32)}
    if bias:
        tensors["linear.bias"] = rng.normal(0, 0.5, size).astype(np.float32)
    if more.get("use_residual") and size != inputs:
        tensors["residual.weight"] = rng.normal(0, 0.5, (size, inputs)).astype(np.float32)
    path = next(name for name in ACTIVATIONS if name.endswith(f".{activation}"))
    config = {"in_features": inputs, "out_features": size, "bias": bias, "activation_function": path} | more
    write_json(folder / "config.json", config)
    save_file(tensors, folder / "model.safetensors")
    return tensors


def vectors(folder: Path, texts: list[str] = TEXTS, **options: Any) -> np.ndarray:
    """Return the vectors of texts from the pipeline."""
    return np.stack(pipeline("feature-extraction", folder)(texts, return_tensors="np", **options))


def same(actual: Any, expected: Any) -> None:
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5)
