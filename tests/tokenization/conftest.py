"""Fixtures of the tests of tokenizers: tokenizers from each file of a vocabulary."""

from pathlib import Path

import pytest
from tokenizer_files import FILES, load
from wordpiece_vocabulary import PIECES

from albertkit.tokenization.base import TokenizerBase
from albertkit.tokenization.tokenizer import AutoTokenizer
from albertkit.tokenization.wordpiece import AlbertWordPieceTokenizer


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


@pytest.fixture(scope="session")
def wordpiece_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that contains only a vocab.txt."""
    folder = tmp_path_factory.mktemp("wordpiece")
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in PIECES), encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def wordpiece_tokenizer(wordpiece_folder: Path) -> AlbertWordPieceTokenizer:
    """Return the tokenizer of the folder with a vocab.txt."""
    tokenizer = AutoTokenizer.from_pretrained(wordpiece_folder)
    assert isinstance(tokenizer, AlbertWordPieceTokenizer)
    return tokenizer
