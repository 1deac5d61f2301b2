"""Tests of `AutoTokenizer`: the classes, the files and the errors."""

from pathlib import Path

import pytest

from albertkit.config import AlbertConfig
from albertkit.errors import AlbertKitError, ModelNotFoundError
from albertkit.tokenization.tokenizer import AlbertTokenizer, AutoTokenizer


@pytest.fixture(scope="module")
def folder(tiny_vocabulary: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files of a tokenizer and the config of a model."""
    folder = tmp_path_factory.mktemp("model")
    AlbertTokenizer(tiny_vocabulary).save_pretrained(folder)
    AlbertConfig(vocab_size=500).save_pretrained(folder)
    return folder


def test_both_classes(folder: Path) -> None:
    text = "The harbour's [MASK] (12,000)!"
    default = AutoTokenizer.from_pretrained(folder)
    slow = AutoTokenizer.from_pretrained(folder, use_fast=False)
    fast = AutoTokenizer.from_pretrained(folder, use_fast=True)
    assert [type(one).__name__ for one in (slow, fast)] == ["AlbertTokenizer", "AlbertTokenizerFast"]
    assert type(default) is type(slow)
    assert slow(text)["input_ids"] == fast(text)["input_ids"]
    assert default.name_or_path == str(folder)


def test_tokenizer_json_alone(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    alone = AutoTokenizer.from_pretrained(tmp_path)
    assert alone.is_fast
    assert alone("the word")["input_ids"] == AutoTokenizer.from_pretrained(folder)("the word")["input_ids"]


def test_vocabulary_file_and_overrides(tiny_vocabulary: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_vocabulary, do_lower_case=False)
    assert not tokenizer.do_lower_case


def test_folders_without_a_tokenizer_of_albert(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "albert"}')
    with pytest.raises(ModelNotFoundError, match=r"holds config\.json"):
        AutoTokenizer.from_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("[PAD]\n")
    with pytest.raises(AlbertKitError, match=r"1 pieces do not contain '\[UNK\]'"):
        AutoTokenizer.from_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    with pytest.raises(AlbertKitError, match="tokenizer class 'BertTokenizer'"):
        AutoTokenizer.from_pretrained(tmp_path)


def test_the_class_cannot_be_instantiated() -> None:
    with pytest.raises(TypeError, match="from_pretrained"):
        AutoTokenizer()
