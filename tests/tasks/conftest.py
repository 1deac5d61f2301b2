"""Fixtures of the tests of tasks: a small model, and runs of a small task and of a classifier."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from random_models import random_model
from small_task import FAST, ROWS, Small, tiny_model, train

from albertkit.finetuning.finetune import FinetuningRun, finetune
from albertkit.tokenization.tokenizer import AlbertTokenizer


@pytest.fixture(scope="session")
def make(tokenizer: AlbertTokenizer) -> Callable[..., Any]:
    """Return a function that makes a random model of a class, without dropout."""
    sizes = {"num_hidden_layers": 2, "max_position_embeddings": 64}
    return lambda model_class, **settings: random_model(model_class, tokenizer, **sizes, **settings).eval()


@pytest.fixture(scope="session")
def model(tiny_vocabulary: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tiny_vocabulary, tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def small_run(model: Path, tmp_path_factory: pytest.TempPathFactory) -> FinetuningRun:
    """Return a run of two steps of the task `Small`."""
    return train(Small(), model, tmp_path_factory.mktemp("small") / "run")


@pytest.fixture(scope="session")
def classifier(model: Path, tmp_path_factory: pytest.TempPathFactory) -> FinetuningRun:
    """Return a run of two steps of text classification."""
    settings = {"train": ROWS, "validation": ROWS, "steps": 2} | FAST
    return finetune(
        "text-classification", model=model, output=tmp_path_factory.mktemp("run") / "run", **settings
    )
