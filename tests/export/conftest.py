"""Fixtures of the tests of exports: folders of random models."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from modeling_twins import make

from albertkit.tokenization.tokenizer import AlbertTokenizer

Save = Callable[..., Path]


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Return a function that saves a random model without a tokenizer."""

    def saved(head: str, name: str = "model", **values: Any) -> Path:
        make(head, **values).save_pretrained(tmp_path / name)
        return tmp_path / name

    return saved


@pytest.fixture(scope="module")
def labeled(tiny_vocabulary: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a classifier with a tokenizer and names of labels."""
    folder = tmp_path_factory.mktemp("labeled")
    labels = {0: "bad", 1: "so-so", 2: "très bien"}
    make("AlbertForSequenceClassification", vocab_size=500, id2label=labels).save_pretrained(folder)
    AlbertTokenizer(tiny_vocabulary, model_max_length=24).save_pretrained(folder)
    return folder
