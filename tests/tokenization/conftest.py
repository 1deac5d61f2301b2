"""Tokenizers from each file of a vocabulary."""

from pathlib import Path

import pytest
from tokenizer_files import FILES, load

from albertkit.tokenization.base import TokenizerBase


@pytest.fixture(scope="session")
def published_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder for the tokenizer.json of the published vocabulary."""
    return tmp_path_factory.mktemp("published")


@pytest.fixture(params=FILES, scope="session")
def published(request: pytest.FixtureRequest, shared: Path, published_folder: Path) -> TokenizerBase:
    """Return a tokenizer with the published vocabulary."""
    return load(request.param, shared / "data" / "spiece.model", published_folder)


@pytest.fixture(params=FILES, scope="session")
def tiny(
    request: pytest.FixtureRequest, tiny_vocabulary: Path, tmp_path_factory: pytest.TempPathFactory
) -> TokenizerBase:
    """Return a tokenizer with a vocabulary of 500 pieces."""
    return load(request.param, tiny_vocabulary, tmp_path_factory.mktemp("tiny"))
