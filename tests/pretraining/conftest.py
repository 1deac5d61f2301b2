"""Fixtures of the pretraining tests: the words of the small vocabulary, and data."""

from pathlib import Path

import pytest
from pretraining_rows import make_shards
from pretraining_runs import write_corpus, write_pretraining_data

from albertkit.pretraining.masking import WordTable
from albertkit.pretraining.shards import ShardSet


@pytest.fixture(scope="session")
def words(tiny_vocabulary: Path) -> WordTable:
    return WordTable(tiny_vocabulary)


@pytest.fixture(scope="session")
def shards(
    tmp_path_factory: pytest.TempPathFactory, tiny_texts: list[str], tiny_vocabulary: Path
) -> ShardSet:
    """Return the training shards of the small texts."""
    return make_shards(tmp_path_factory.mktemp("shards"), tiny_texts, tiny_vocabulary)


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory, tiny_texts: list[str], tiny_vocabulary: Path) -> Path:
    """Return a folder with shards in `shards/` and their tokenizer in `tokenizer/`."""
    folder = tmp_path_factory.mktemp("run")
    return write_pretraining_data(folder, tiny_texts, tiny_vocabulary, holdout_every=10)


@pytest.fixture
def corpus_file(tmp_path: Path, tiny_texts: list[str]) -> Path:
    return write_corpus(tmp_path, tiny_texts)
