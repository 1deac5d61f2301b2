"""Fuzz tests of tokenizer files: readers raise errors of albertkit, in bounded memory and time."""

import json
import random
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structural_fuzz import MEGABYTE, SLOW_CASES, count_refused, damaged, damaged_files, damaged_json_files

from albertkit import protobuf
from albertkit.tokenization.auto import AutoTokenizer
from albertkit.tokenization.tokenizer import AlbertTokenizer
from albertkit.tokenization.wordpiece import AlbertWordPieceTokenizer

TEXT = "The fox, in 1847, found\ta caf\u00e9 \ufb00 <x> Foxtrot [MASK]"
WRONG_FIELDS = [0, 1, 6, 1 << 31, 1 << 63, 0.5, float("nan"), float("-inf"), b"", b"\xff", b"x" * 999]
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


def message(fields: list[tuple[int, Any]]) -> bytes:
    """Encode a protocol buffer message with whole numbers, floats of 4 bytes, and bytes."""
    content = b""
    for field, value in fields:
        if isinstance(value, int):
            content += protobuf.number(field, value)
        elif isinstance(value, float):
            content += protobuf.fixed32(field, struct.pack("<f", value))
        else:
            content += protobuf.message(field, value)
    return content


def fields_of(content: bytes) -> list[tuple[int, Any]]:
    return [(field, value) for field, value, _ in protobuf.read_fields(content)]


def damaged_model(content: bytes, rng: random.Random) -> bytes:
    """Return a SentencePiece model with changes in fields of the file or of its messages."""
    fields = fields_of(content)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(fields))
        if rng.random() < 0.5:  # inside a piece or a specification
            specifications = [index for index, (field, _) in enumerate(fields) if field > 1]
            at = rng.choice([at, *specifications])
            inner = fields_of(fields[at][1])
            index = rng.randrange(len(inner)) if inner else 0
            wrong = rng.choice(WRONG_FIELDS)
            inner[index : index + 1] = [(rng.choice([inner[index][0] if inner else 1, 3, 9]), wrong)]
            fields[at] = (fields[at][0], message(inner))
        elif rng.random() < 0.5:
            fields.insert(at, fields[rng.randrange(len(fields))])
        else:
            del fields[at : at + rng.choice((1, 1, 100))]
            fields = fields or [(1, b"")]
    return message(fields)


def test_sentencepiece_models(tiny_vocabulary: Path, tmp_path: Path) -> None:
    path = tmp_path / "spiece.model"
    model = tiny_vocabulary.read_bytes()
    rng = random.Random(0)

    def cases() -> Iterator[bytes]:
        for _ in range(SLOW_CASES):
            content = damaged_model(model, rng) if rng.random() < 0.6 else damaged(model, rng)
            path.write_bytes(content)
            yield content[-600:]

    def read() -> None:
        tokenizer = AlbertTokenizer(path)
        encoding = tokenizer(TEXT, return_offsets_mapping=True)
        tokenizer.decode(encoding["input_ids"])
        tokenizer._vocabulary_files()

    assert count_refused(read, cases(), largest_growth=LARGEST_GROWTH) > SLOW_CASES * 0.2
