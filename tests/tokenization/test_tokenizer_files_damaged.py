"""Tests of the errors for damaged tokenizer files and for files of other kinds."""

import json
from pathlib import Path

import pytest

from albertkit.errors import ModelNotFoundError, TokenizerError
from albertkit.tokenization.tokenizer import AlbertTokenizer, AlbertTokenizerFast, AutoTokenizer


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x89PNG\r\n\x1a\n" + bytes(range(200)),
        b"[PAD]\n[UNK]\nthe\n",
        b'{"model": 1}',
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n",
    ],
    ids=["empty", "picture", "words", "json", "pointer"],
)
def test_a_model_file_of_another_kind(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "spiece.model").write_bytes(content)
    with pytest.raises(TokenizerError) as caught:
        AlbertTokenizer.from_pretrained(tmp_path)
    assert str(tmp_path / "spiece.model") in str(caught.value)


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.99])
def test_a_truncated_model_file(keep: float, tiny_vocabulary: Path, tmp_path: Path) -> None:
    model = tiny_vocabulary.read_bytes()
    (tmp_path / "spiece.model").write_bytes(model[: int(len(model) * keep)])
    with pytest.raises(TokenizerError, match=r"spiece\.model"):
        AlbertTokenizer(tmp_path / "spiece.model")


def test_missing_files(tiny_vocabulary: Path, tmp_path: Path) -> None:
    for cls in (AlbertTokenizer, AlbertTokenizerFast):
        with pytest.raises(ModelNotFoundError, match=r"nowhere\.model"):
            cls(tmp_path / "nowhere.model")
    with pytest.raises(ModelNotFoundError, match=r"nowhere\.model does not exist\. Expected a tokenizer"):
        AutoTokenizer.from_pretrained(tiny_vocabulary, vocab_file="nowhere.model")
    with pytest.raises(TokenizerError, match="received no file"):
        AlbertTokenizerFast()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"byte_fallback": True}, "byte_fallback"),
        ({"type": "WordPiece", "vocab": {}}, "WordPiece"),
        (
            {"vocab": [["x" * 100_000, -1.0]], "unk_id": 0},
            "characters",
        ),  # the Rust library crashes when it frees its trie
        ({"vocab": [["a", -1.0], ["a", -1.0]]}, "twice"),
        ({"vocab": [["a", None]]}, "TypeError"),
        ({"vocab": [["a", -1.0]], "unk_id": 3}, "unk_id is 3"),
        ({"vocab": None}, "TypeError"),
    ],
)
def test_a_model_that_a_tokenizer_json_cannot_have(
    change: dict, message: str, tiny_vocabulary: Path, tmp_path: Path
) -> None:
    AlbertTokenizer(tiny_vocabulary).save_pretrained(tmp_path)
    file = tmp_path / "tokenizer.json"
    content = json.loads(file.read_text())
    content["model"] |= change
    file.write_text(json.dumps(content))
    with pytest.raises(TokenizerError, match=message) as caught:
        AlbertTokenizerFast(tokenizer_file=file)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", "{", "damaged"),
        ("tokenizer_config.json", "[]", "object"),
        ("tokenizer_config.json", {"model_max_length": "512"}, "model_max_length='512'"),
        ("tokenizer_config.json", {"padding_side": "lefft"}, "expected one of left, right"),
        ("tokenizer_config.json", {"do_lower_case": "yes"}, "do_lower_case='yes'"),
        ("tokenizer_config.json", {"added_tokens_decoder": {"x": {"content": "a"}}}, "invalid literal"),
        ("tokenizer_config.json", {"mask_token": 4}, "received 4 for a token"),
        ("added_tokens.json", {"<x>": "500"}, "'<x>' has the id '500'"),
        ("added_tokens.json", {"<x>": 3}, "'<x>' has the id 3"),
        ("added_tokens.json", {"<x>": 500, "<y>": 500}, "the same id"),
    ],
)
def test_wrong_values_in_json_files(
    name: str, content: str | dict, message: str, tiny_vocabulary: Path, tmp_path: Path
) -> None:
    AlbertTokenizer(tiny_vocabulary).save_pretrained(tmp_path)
    (tmp_path / "spiece.model").unlink()
    (tmp_path / name).write_text(content if isinstance(content, str) else json.dumps(content))
    if name == "added_tokens.json":  # otherwise added_tokens.json is not read
        (tmp_path / "tokenizer_config.json").unlink()
    with pytest.raises(TokenizerError, match=message) as caught:
        AutoTokenizer.from_pretrained(tmp_path)
    assert str(tmp_path) in str(caught.value)
