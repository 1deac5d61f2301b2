"""Fuzz tests of tokenizer files: readers raise errors of albertkit, in bounded memory and time."""

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from structural_fuzz import MEGABYTE, SLOW_CASES, count_refused, damaged, damaged_files, damaged_json_files

from albertkit.tokenization.tokenizer import AlbertTokenizer, AutoTokenizer
from albertkit.tokenization.wordpiece import AlbertWordPieceTokenizer

TEXT = "The fox, in 1847, found\ta caf\u00e9 \ufb00 <x> Foxtrot [MASK]"
LARGEST_GROWTH = 16 * MEGABYTE


@pytest.fixture(scope="module")
def folders(tiny_vocabulary: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a folder of each kind, with added tokens and special tokens."""
    root = tmp_path_factory.mktemp("folders")
    (root / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "fox", "##es"])
    )
    tokenizers = {
        "sentencepiece": AlbertTokenizer(tiny_vocabulary),
        "wordpiece": AlbertWordPieceTokenizer(root / "vocab.txt"),
    }
    for name, tokenizer in tokenizers.items():
        tokenizer.add_tokens(["foxtrot"])
        tokenizer.add_special_tokens({"extra_special_tokens": ["<x>"]})
        tokenizer.save_pretrained(root / name)
    shutil.copytree(root / "sentencepiece", root / "rust")
    (root / "rust" / "spiece.model").unlink()
    shutil.copytree(root / "wordpiece", root / "word list")
    (root / "word list" / "tokenizer.json").unlink()
    shutil.copytree(root / "wordpiece", root / "wordpiece json")
    (root / "wordpiece json" / "vocab.txt").unlink()
    older = root / "older"
    shutil.copytree(root / "sentencepiece", older)
    config = json.loads((older / "tokenizer_config.json").read_text())
    del config["added_tokens_decoder"], config["additional_special_tokens"], config["mask_token"]
    (older / "tokenizer_config.json").write_text(json.dumps(config))
    (older / "added_tokens.json").write_text(json.dumps({"foxtrot": 500, "<x>": 501}))
    return {path.name: path for path in root.iterdir() if path.is_dir()}


def use(folder: Path) -> None:
    """Load a tokenizer and call methods that use all parts of its files."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    encoding = tokenizer(TEXT, return_offsets_mapping=True)
    tokenizer.decode(encoding["input_ids"])
    assert tokenizer.init_kwargs
    assert getattr(tokenizer, "backend_tokenizer", True)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("rust", "tokenizer.json"),
        ("wordpiece json", "tokenizer.json"),
        ("rust", "tokenizer_config.json"),
        ("sentencepiece", "tokenizer_config.json"),
        ("word list", "tokenizer_config.json"),
        ("older", "special_tokens_map.json"),
        ("older", "added_tokens.json"),
    ],
)
def test_json_files(name: str, file: str, folders: dict[str, Path]) -> None:
    folder = folders[name]
    use(folder)
    cases = damaged_json_files(folder / file, cases=SLOW_CASES)
    assert count_refused(lambda: use(folder), cases, largest_growth=LARGEST_GROWTH) > SLOW_CASES * 0.3


def test_word_lists(folders: dict[str, Path]) -> None:
    folder = folders["word list"]
    cases = damaged_files(folder / "vocab.txt", cases=SLOW_CASES)
    assert count_refused(lambda: use(folder), cases, largest_growth=LARGEST_GROWTH) > SLOW_CASES * 0.2


def test_sentencepiece_models(tiny_vocabulary: Path, tmp_path: Path) -> None:
    path = tmp_path / "spiece.model"
    model = tiny_vocabulary.read_bytes()
    rng = random.Random(0)

    def cases() -> Iterator[bytes]:
        for _ in range(SLOW_CASES):
            content = damaged(model, rng)
            path.write_bytes(content)
            yield content[-600:]

    def read() -> None:
        tokenizer = AlbertTokenizer(path)
        encoding = tokenizer(TEXT, return_offsets_mapping=True)
        tokenizer.decode(encoding["input_ids"])
        tokenizer._vocabulary_files()

    assert count_refused(read, cases(), largest_growth=LARGEST_GROWTH) > SLOW_CASES * 0.2
