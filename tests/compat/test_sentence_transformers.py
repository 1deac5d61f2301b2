"""Tests with sentence-transformers: albertkit opens its folders, and it opens the folders of albertkit.

    pip install sentence-transformers
    pytest tests/compat/test_sentence_transformers.py

pytest skips the tests if the library is not installed. The suite does not install it, because it pins
versions of transformers.
"""

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from albertkit import finetune, pipeline
from albertkit.conversion import convert
from albertkit.modeling.model import AlbertModel
from albertkit.tokenization.tokenizer import AlbertTokenizer

WHY = "sentence-transformers is not installed: pip install sentence-transformers"
SentenceTransformer = pytest.importorskip("sentence_transformers", reason=WHY).SentenceTransformer
_modules = import_module("sentence_transformers.base.modules")
Dense, Normalize, Transformer = _modules.Dense, _modules.Normalize, _modules.Transformer
Pooling = import_module("sentence_transformers.sentence_transformer.modules").Pooling

TEXTS = [
    "The captain opened an empty house.",
    "My sister lost the silver key in 1847, Queen Anne says!",
    "Rain.",
    "An old letter about the river and the harbour, which nobody had read before the dinner.",
]
POOLINGS = ["cls", "max", "mean"]


@pytest.fixture(scope="module")
def encoder(save_model: Callable[..., Path]) -> Path:
    return save_model(AlbertModel, intermediate_size=48, max_position_embeddings=64)


def ours(folder: Path, texts: list[str] = TEXTS, **options: Any) -> np.ndarray:
    """Return the vectors of albertkit, with truncation, from the engine that does not need PyTorch."""
    encode = pipeline("feature-extraction", folder, engine="onnx")
    return np.stack(encode(texts, truncation=True, return_tensors="np", **options))


def theirs(model: Any, texts: list[str] = TEXTS, **options: Any) -> np.ndarray:
    return model.encode(texts, convert_to_numpy=True, **options)


def same(actual: np.ndarray, expected: np.ndarray) -> None:
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5)


def dense(inputs: int, outputs: int, activation: torch.nn.Module, **options: Any) -> Any:
    torch.manual_seed(1)
    return Dense(inputs, outputs, activation_function=activation, **options)


MODULES: dict[str, Any] = {
    **{name: lambda name=name: [Pooling(32, name)] for name in POOLINGS},
    "normalize": lambda: [Pooling(32), Normalize()],
    "dense": lambda: [Pooling(32), dense(32, 7, torch.nn.Tanh()), Normalize()],
    "relu": lambda: [Pooling(32), Normalize(), dense(32, 7, torch.nn.ReLU(), bias=False)],
    "gelu": lambda: [Pooling(32), dense(32, 7, torch.nn.GELU(), use_residual=True)],
    "residual": lambda: [Pooling(32), dense(32, 32, torch.nn.Identity(), use_residual=True)],
}


@pytest.mark.parametrize("name", MODULES)
def test_both_libraries_open_the_folders_of_the_other(encoder: Path, name: str, tmp_path: Path) -> None:
    model = SentenceTransformer(modules=[Transformer(str(encoder)), *MODULES[name]()], device="cpu")
    model.save(str(tmp_path / "theirs"), create_model_card=False)
    expected = theirs(model)
    same(ours(tmp_path / "theirs"), expected)
    convert(tmp_path / "theirs", tmp_path / "ours")
    same(theirs(SentenceTransformer(str(tmp_path / "ours"), device="cpu")), expected)


def test_length_and_prompts(encoder: Path, tmp_path: Path) -> None:
    prompts = {"query": "search: ", "document": "a text: "}
    model = SentenceTransformer(
        modules=[Transformer(str(encoder)), Pooling(32, "mean")],
        prompts=prompts,
        default_prompt_name="document",
        device="cpu",
    )
    model.max_seq_length = 12
    model.save(str(tmp_path / "theirs"), create_model_card=False)
    pipeline("feature-extraction", tmp_path / "theirs").save_pretrained(tmp_path / "saved")
    for path in (tmp_path / "theirs", tmp_path / "saved"):
        again = SentenceTransformer(str(path), device="cpu")
        assert again.max_seq_length == 12
        for options in ({}, {"prompt_name": "query"}, {"prompt": "ask: "}):
            expected = theirs(model, **options)
            same(ours(path, **options), expected)
            same(theirs(again, **options), expected)


def test_lower_case_and_older_folders(tiny_vocabulary: Path, encoder: Path, tmp_path: Path) -> None:
    """Open the layout of version 2 and earlier: the transformer in a subfolder, and other names."""
    inner = tmp_path / "0_Transformer"
    AlbertModel.from_pretrained(encoder).save_pretrained(inner)
    AlbertTokenizer(tiny_vocabulary, do_lower_case=False).save_pretrained(inner)
    (inner / "sentence_bert_config.json").write_text('{"max_seq_length": 20, "do_lower_case": true}')
    (tmp_path / "1_Pooling").mkdir()
    flags = {
        f"pooling_mode_{name}": name == "max_tokens" for name in ("cls_token", "mean_tokens", "max_tokens")
    }
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(flags | {"word_embedding_dimension": 32}))
    modules = [
        {
            "idx": number,
            "name": kind,
            "path": f"{number}_{kind}",
            "type": f"sentence_transformers.models.{kind}",
        }
        for number, kind in enumerate(("Transformer", "Pooling"))
    ]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    expected = theirs(SentenceTransformer(str(tmp_path), device="cpu"))
    assert expected.shape == (4, 32)
    same(ours(tmp_path), expected)


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_sentence_transformers_opens_a_fine_tuned_model(encoder: Path, pooling: str, tmp_path: Path) -> None:
    rows = [{"text": text, "text_pair": text.upper()} for text in TEXTS]
    finetune(
        "sentence-embedding",
        train=rows,
        validation=rows,
        model=encoder,
        output=tmp_path,
        steps=2,
        batch_size=4,
        max_length=16,
        pair_column="text_pair",
        pooling=pooling,
        normalize=pooling != "max",
        precision="fp32",
        device="cpu",
    )
    model = SentenceTransformer(str(tmp_path), device="cpu")
    assert model.max_seq_length == 16
    same(ours(tmp_path), theirs(model))
