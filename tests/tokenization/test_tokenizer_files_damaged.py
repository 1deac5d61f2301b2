"""Tests of the errors for damaged tokenizer files and for files of other kinds."""

import json
from pathlib import Path

import pytest

from albertkit.errors import ModelNotFoundError, TokenizerError
from albertkit.tokenization.auto import AutoTokenizer
from albertkit.tokenization.tokenizer import AlbertTokenizer, AlbertTokenizerFast

DAMAGED_MODELS = {
    "empty": (b"", "empty"),
    "picture": (b"\x89PNG\r\n\x1a\n" + bytes(range(200)), "SentencePiece cannot read it"),
    "words": (b"[PAD]\n[UNK]\nthe\n", "vocab.txt"),
    "json": (b'{"model": 1}', "JSON"),
    "pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "Git LFS"),
}
"""The name of each case, with the content of spiece.model and the error message."""


@pytest.mark.parametrize("name", DAMAGED_MODELS)
def test_the_error_names_a_file_of_another_kind(name: str, tmp_path: Path) -> None:
    content, message = DAMAGED_MODELS[name]
    (tmp_path / "spiece.model").write_bytes(content)
    with pytest.raises(TokenizerError, match=message) as caught:
        AlbertTokenizer.from_pretrained(tmp_path)
    assert str(tmp_path / "spiece.model") in str(caught.value)


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.99])
def test_the_error_names_a_truncated_model_file(keep: float, tiny_vocabulary: Path, tmp_path: Path) -> None:
    model = tiny_vocabulary.read_bytes()
    (tmp_path / "spiece.model").write_bytes(model[: int(len(model) * keep)])
    with pytest.raises(TokenizerError, match=r"spiece\.model"):
        AlbertTokenizer(tmp_path / "spiece.model")


def test_missing_and_damaged_files(tiny_vocabulary: Path, tmp_path: Path) -> None:
    for cls in (AlbertTokenizer, AlbertTokenizerFast):
        with pytest.raises(ModelNotFoundError, match=r"nowhere\.model"):
            cls(tmp_path / "nowhere.model")
    with pytest.raises(ModelNotFoundError, match=r"nowhere\.model does not exist\. Expected a tokenizer"):
        AutoTokenizer.from_pretrained(tiny_vocabulary, vocab_file="nowhere.model")
    with pytest.raises(TokenizerError, match="vocab_file"):
        AlbertTokenizerFast()
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "WordPiece", "vocab": {}}}')
    with pytest.raises(TokenizerError, match="WordPiece"):
        AlbertTokenizerFast.from_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": ')
    with pytest.raises(TokenizerError, match=r"tokenizer\.json.*damaged"):
        AlbertTokenizerFast.from_pretrained(tmp_path)
    (tmp_path / "spiece.model").write_bytes(tiny_vocabulary.read_bytes())
    (tmp_path / "tokenizer_config.json").write_text("[]")
    with pytest.raises(TokenizerError, match=r"tokenizer_config\.json.*object"):
        AlbertTokenizer.from_pretrained(tmp_path)


def test_a_piece_with_too_many_characters(tiny_vocabulary: Path, tmp_path: Path) -> None:
    AlbertTokenizer(tiny_vocabulary).save_pretrained(tmp_path)
    (tmp_path / "spiece.model").unlink()
    path = tmp_path / "tokenizer.json"
    content = json.loads(path.read_text())
    content["model"]["vocab"][-1][0] = "x" * 100_000  # the Rust library crashes when it frees the trie
    path.write_text(json.dumps(content))
    with pytest.raises(TokenizerError, match=r"'xx.* has 100,000 characters. Expected at most 1,000"):
        AlbertTokenizerFast.from_pretrained(tmp_path)


def test_byte_fallback_in_a_tokenizer_json(tiny_vocabulary: Path, tmp_path: Path) -> None:
    AlbertTokenizer(tiny_vocabulary).save_pretrained(tmp_path)
    file = tmp_path / "tokenizer.json"
    content = json.loads(file.read_text())
    content["model"]["byte_fallback"] = True
    file.write_text(json.dumps(content))
    with pytest.raises(TokenizerError, match=r"byte_fallback is true.*Load the spiece\.model"):
        AlbertTokenizerFast(tokenizer_file=file)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", {"model": {"type": "Unigram", "unk_id": 0}}, "KeyError.*'vocab'"),
        (
            "tokenizer.json",
            {"model": {"type": "Unigram", "unk_id": 3, "vocab": [["a", -1.0]]}},
            "unk_id is 3",
        ),
        ("tokenizer.json", {"model": {"type": "Unigram", "unk_id": 0, "vocab": [["a", None]]}}, "TypeError"),
        ("tokenizer.json", {"model": ["Unigram"]}, "AttributeError"),
        (
            "tokenizer_config.json",
            {"model_max_length": "512"},
            "model_max_length='512': expected a whole number",
        ),
        (
            "tokenizer_config.json",
            {"padding_side": "lefft"},
            "padding_side='lefft': expected one of left, right",
        ),
        ("tokenizer_config.json", {"do_lower_case": "yes"}, "do_lower_case='yes': expected True or False"),
        ("tokenizer_config.json", {"added_tokens_decoder": ["a"]}, "AttributeError"),
        ("tokenizer_config.json", {"added_tokens_decoder": {"x": {"content": "a"}}}, "invalid literal"),
        ("tokenizer_config.json", {"mask_token": 4}, "received 4 for a token"),
        (
            "added_tokens.json",
            {"<x>": "500"},
            "'<x>' has the id '500'. Expected a whole number of at least 500",
        ),
        ("added_tokens.json", {"<x>": 3}, "'<x>' has the id 3"),
        ("added_tokens.json", {"<x>": 500, "<y>": 500}, "two of the added tokens have the same id"),
    ],
)
def test_wrong_values_in_json_files(
    name: str, content: dict, message: str, tiny_vocabulary: Path, tmp_path: Path
) -> None:
    AlbertTokenizer(tiny_vocabulary).save_pretrained(tmp_path)
    (tmp_path / "spiece.model").unlink()
    (tmp_path / name).write_text(json.dumps(content))
    if name == "added_tokens.json":  # otherwise added_tokens.json is not read
        (tmp_path / "tokenizer_config.json").unlink()
    with pytest.raises(TokenizerError, match=message) as caught:
        AutoTokenizer.from_pretrained(tmp_path)
    assert str(tmp_path) in str(caught.value)
