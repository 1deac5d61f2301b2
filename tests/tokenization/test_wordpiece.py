"""Tests of the WordPiece tokenizer compared with `BertTokenizer` of `transformers`, and of its caches."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import transformers
from wordpiece_texts import RULES, TEXTS, random_texts
from wordpiece_vocabulary import PIECES

from albertkit import AlbertWordPieceTokenizer, AutoTokenizer


@pytest.fixture(scope="module")
def theirs(wordpiece_folder: Path) -> Any:
    """Return the tokenizer of `transformers` with the same vocabulary."""
    return transformers.BertTokenizer.from_pretrained(wordpiece_folder, model_max_length=512)


@pytest.mark.parametrize("rules", RULES, ids=str)
def test_ids_offsets_and_words_equal_those_of_transformers(
    wordpiece_folder: Path, rules: dict[str, bool]
) -> None:
    ours = AlbertWordPieceTokenizer.from_pretrained(wordpiece_folder, **rules)
    theirs = transformers.BertTokenizer.from_pretrained(wordpiece_folder, **rules)
    texts = TEXTS + random_texts(600, seed=1)
    expected = theirs(texts, return_offsets_mapping=True, return_special_tokens_mask=True)
    got = ours(texts, return_offsets_mapping=True, return_special_tokens_mask=True)
    for name in expected:
        for text, actual, row in zip(texts, got[name], expected[name], strict=True):
            values = [tuple(value) if isinstance(value, (list, tuple)) else value for value in actual]
            assert values == row, (name, text)
    for index in range(len(TEXTS)):
        assert got.tokens(index) == expected.tokens(index)
        assert ours.tokenize(texts[index]) == theirs.tokenize(texts[index])
    plain = [index for index, text in enumerate(texts) if "[" not in text]
    assert [got.word_ids(index) for index in plain] == [expected.word_ids(index) for index in plain]


def test_real_texts(shared: Path, tmp_path: Path) -> None:
    texts = [
        paragraph["context"] + " " + question["question"]
        for language in ("zh", "en", "ru")
        for article in json.loads((shared / "data" / "xquad" / f"xquad.{language}.json").read_text())["data"]
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"][:1]
    ][::3]
    assert len(texts) == 240
    pieces = [*PIECES, *sorted({c for text in texts for c in text if not c.isspace()} - set(PIECES))]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces), encoding="utf-8")
    ours = AutoTokenizer.from_pretrained(tmp_path)
    theirs = transformers.BertTokenizer.from_pretrained(tmp_path)
    options: dict[str, Any] = {"truncation": True, "max_length": 256, "return_offsets_mapping": True}
    got, expected = ours(texts, **options), theirs(texts, **options)
    assert got["input_ids"] == expected["input_ids"]
    assert got["offset_mapping"] == expected["offset_mapping"]


OPTIONS: list[dict[str, Any]] = [
    {"padding": True, "truncation": True, "max_length": 12},
    {"padding": "max_length", "max_length": 40, "truncation": "only_second"},
    {"truncation": True, "max_length": 11, "stride": 2, "return_overflowing_tokens": True, "padding": True},
    {"add_special_tokens": False},
    {"padding": True, "padding_side": "left", "pad_to_multiple_of": 8},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_pairs_windows_and_padding(wordpiece_tokenizer: Any, theirs: Any, options: dict[str, Any]) -> None:
    first = ["今天天气很好", "the fox", "我"]
    second = ["the fox is running, words!", "北京大学生活的真谛", "我喜欢 words"]
    got = wordpiece_tokenizer(first, second, return_offsets_mapping=True, **options)
    expected = theirs(first, second, return_offsets_mapping=True, **options)
    assert dict(got) == dict(expected)
    assert got["token_type_ids"][0].count(1) > 0


def test_texts_that_are_split_into_words(wordpiece_tokenizer: Any, theirs: Any) -> None:
    texts = [["今天", "天气!", "the", "unaffable", "☃"], ["Café"]]
    options = {"is_split_into_words": True, "return_offsets_mapping": True}
    got, expected = wordpiece_tokenizer(texts, **options), theirs(texts, **options)
    assert dict(got) == dict(expected)
    assert [got.word_ids(row) for row in (0, 1)] == [expected.word_ids(row) for row in (0, 1)]


def test_special_tokens(wordpiece_tokenizer: AlbertWordPieceTokenizer) -> None:
    ours = wordpiece_tokenizer
    assert ours.special_tokens_map == {
        "bos_token": "[CLS]",
        "eos_token": "[SEP]",
        "unk_token": "[UNK]",
        "sep_token": "[SEP]",
        "pad_token": "[PAD]",
        "cls_token": "[CLS]",
        "mask_token": "[MASK]",
    }
    assert (ours.pad_token_id, ours.unk_token_id, ours.cls_token_id) == (0, 20, 21)
    assert (ours.sep_token_id, ours.mask_token_id, len(ours)) == (22, 23, len(PIECES))
    assert ours.encode("[MASK]", add_special_tokens=False) == [23]
    plain = ours("[MASK]", parse_special_tokens=False, add_special_tokens=False)
    assert plain.tokens() == ["[", "m", "##a", "##s", "##k", "]"]
    assert ours.convert_tokens_to_ids(["fox", "nowhere"]) == [PIECES.index("fox"), 20]


def test_decoding(wordpiece_tokenizer: Any, theirs: Any) -> None:
    ours = wordpiece_tokenizer
    for text in TEXTS + random_texts(100, seed=2):
        ids = theirs(text)["input_ids"]
        for skip in (False, True):
            assert ours.decode(ids, skip_special_tokens=skip) == theirs.decode(ids, skip_special_tokens=skip)
    ids = ours("the fox is playing, 北京!")["input_ids"]
    assert ours.decode(ids, skip_special_tokens=True) == "the fox is playing, 北 京!"


def test_pickling(wordpiece_tokenizer: AlbertWordPieceTokenizer) -> None:
    unpickled = pickle.loads(pickle.dumps(wordpiece_tokenizer))
    assert unpickled(TEXTS) == wordpiece_tokenizer(TEXTS)
