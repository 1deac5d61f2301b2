"""Tests of tokenizer folders that albertkit and `transformers` exchange."""

import json
from pathlib import Path

import pytest
import transformers
from tokenizer_files import FILES, load

from albertkit.tokenization.model_file import USER_DEFINED, read_model
from albertkit.tokenization.tokenizer import AlbertTokenizer, AlbertTokenizerFast, AutoTokenizer

TEXT = "The captain, in 1847, found a well-kept [MASK] near the café."


def save_as_transformers(model: Path, folder: Path) -> None:
    """Write the folder that `transformers` 5 writes for a spiece.model.

    User-defined symbols are added tokens in its tokenizer.json and special tokens in its settings. They keep
    the score of SentencePiece, which is 0.
    """
    pieces = read_model(model.read_bytes()).pieces
    symbols = {number: piece.piece for number, piece in enumerate(pieces) if piece.type == USER_DEFINED}
    AlbertTokenizer(model).save_pretrained(folder / "ours")
    theirs = transformers.AlbertTokenizer.from_pretrained(folder / "ours")
    theirs.save_pretrained(folder)
    assert not (folder / "spiece.model").exists()
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    for number, text in symbols.items():
        content["model"]["vocab"][number][1] = 0.0
        token = {**content["added_tokens"][0], "content": text, "id": number}
        content["added_tokens"].append({**token, "special": False})
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    config["extra_special_tokens"] = ["<pad>", "[CLS]", "[SEP]", "[MASK]", *symbols.values()]
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


@pytest.fixture(scope="module")
def folder_of_transformers(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the published vocabulary, as `transformers` saves it."""
    folder = tmp_path_factory.mktemp("transformers")
    save_as_transformers(shared / "data" / "spiece.model", folder)
    return folder


@pytest.mark.parametrize("cls", [AlbertTokenizer, AutoTokenizer])
def test_ids_from_a_folder_of_transformers_equal_those_of_the_original(
    cls, shared: Path, folder_of_transformers: Path
) -> None:
    tokenizer = cls.from_pretrained(folder_of_transformers)
    assert isinstance(tokenizer, AlbertTokenizer)
    assert tokenizer.all_special_tokens == ["[CLS]", "[SEP]", "<unk>", "<pad>", "[MASK]"]
    lines = [json.loads(line) for line in (shared / "fixtures" / "tokenizer.jsonl").open(encoding="utf-8")]
    ids = tokenizer(
        [line["text"] for line in lines], add_special_tokens=False, parse_special_tokens=False, verbose=False
    )
    assert ids["input_ids"] == [line["ids"] for line in lines]
    # transformers itself splits at the brackets and the hyphen, and starts a new word after them.
    text = "the cat (again) a-b."
    expected = ["▁the", "▁cat", "▁", "(", "again", ")", "▁a", "-", "b", "."]
    assert tokenizer.tokenize(text) == expected
    theirs = transformers.AlbertTokenizer.from_pretrained(folder_of_transformers).tokenize(text)
    assert theirs == ["▁the", "▁cat", "(", "▁again", ")", "▁a", "-", "▁b", "."]
    assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=True) == text


def test_a_tokenizer_json_without_a_table_of_characters_warns(tiny_vocabulary: Path, tmp_path: Path) -> None:
    save_as_transformers(tiny_vocabulary, tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    steps = content["normalizer"]["normalizers"]
    content["normalizer"]["normalizers"] = [step for step in steps if step["type"] != "Precompiled"]
    assert len(content["normalizer"]["normalizers"]) == len(steps) - 1
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.warns(UserWarning, match="without SentencePiece's table of characters"):
        tokenizer = AlbertTokenizer.from_pretrained(tmp_path)
    assert tokenizer(TEXT)["input_ids"] == AlbertTokenizer(tiny_vocabulary)(TEXT)["input_ids"]


def test_tokens_added_by_transformers(tiny_vocabulary: Path, tmp_path: Path) -> None:
    """`transformers` 5 writes added tokens only into tokenizer.json, and does not change the spiece.model."""
    AlbertTokenizer(tiny_vocabulary).save_pretrained(tmp_path)
    theirs = transformers.AlbertTokenizer.from_pretrained(tmp_path)
    theirs.add_tokens(["foxtrot"])
    theirs.add_special_tokens({"additional_special_tokens": ["<x>"]})
    theirs.save_pretrained(tmp_path)
    for cls in (AlbertTokenizer, AlbertTokenizerFast, AutoTokenizer):
        tokenizer = cls.from_pretrained(tmp_path)
        assert tokenizer("a foxtrot <x>")["input_ids"] == theirs("a foxtrot <x>")["input_ids"]
        assert (tokenizer.extra_special_tokens, len(tokenizer)) == (["<x>"], len(theirs))


@pytest.mark.parametrize("name", FILES)
def test_transformers_returns_the_segments_of_a_pair(
    name: str, tiny_vocabulary: Path, tmp_path: Path
) -> None:
    tokenizer = load(name, tiny_vocabulary, tmp_path / "source")
    tokenizer.save_pretrained(tmp_path / "saved")
    expected = dict(tokenizer("a captain", "the sea"))
    assert set(expected["token_type_ids"]) == {0, 1}
    for cls in (transformers.AutoTokenizer, getattr(transformers, tokenizer.saved_class)):
        assert dict(cls.from_pretrained(tmp_path / "saved")("a captain", "the sea")) == expected
