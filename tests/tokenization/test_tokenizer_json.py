"""Tests of tokenizer.json: the same encodings as spiece.model, also in the library `tokenizers`."""

import json
from pathlib import Path

import numpy as np
import pytest
from tokenizer_files import FILES, LONG, SHORT, load

from albertkit.tokenization.base import TokenizerBase
from albertkit.tokenization.model_file import WORD_START, read_model
from albertkit.tokenization.tokenizer import AlbertTokenizer

pytestmark = pytest.mark.light


def test_both_files_give_the_same_encodings(shared: Path, published_folder: Path) -> None:
    vocabulary = shared / "data" / "spiece.model"
    model, converted = (load(name, vocabulary, published_folder) for name in FILES)
    texts = (shared / "data" / "wikitext2" / "valid.txt").read_text(encoding="utf-8").splitlines()[:300]
    texts += ["a [MASK] word <unk>", "", "  ", "½ ﬃ\u0301 İ ΣΑΣ", "in 1947, the 1990s, 5,", "x\x01\u200by"]
    expected, actual = (
        tokenizer(texts, return_offsets_mapping=True, verbose=False) for tokenizer in (model, converted)
    )
    assert dict(actual) == dict(expected)
    assert [row.word_ids for row in actual.encodings or ()] == [
        row.word_ids for row in expected.encodings or ()
    ]


@pytest.mark.parametrize("rules", [{"keep_accents": True}, {"do_lower_case": False}, {"remove_space": False}])
def test_both_files_give_the_same_encodings_under_other_rules(
    rules: dict[str, bool], shared: Path, published_folder: Path
) -> None:
    vocabulary = shared / "data" / "spiece.model"
    model, converted = (load(name, vocabulary, published_folder, **rules) for name in FILES)
    for text in [
        "Ça va?  déjà vu",
        "e\u0301 ½ \u212b",
        "\u3000wide\u200bspace ",
        "Ⅷ, 12, \u20135",
        "\x01 a\n\nb",
    ]:
        assert model.tokenize(text) == converted.tokenize(text)
        assert model(text, return_offsets_mapping=True) == converted(text, return_offsets_mapping=True)


@pytest.mark.parametrize("rules", [{}, {"keep_accents": True, "do_lower_case": False, "sep_token": "<s>"}])
def test_the_rust_library_writes_the_same_tokenizer_json(rules, tiny_vocabulary: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = AlbertTokenizer(tiny_vocabulary, **rules)
    tokenizer.add_tokens(["foxtrot"])
    text = tokenizer._vocabulary_files()["tokenizer.json"].decode()
    ours, theirs = json.loads(text), json.loads(tokenizers.Tokenizer.from_str(text).to_str())
    pieces, scores = zip(*ours["model"].pop("vocab"), strict=True)
    their_pieces, their_scores = zip(*theirs["model"].pop("vocab"), strict=True)
    assert (json.dumps(ours), pieces) == (json.dumps(theirs), their_pieces)  # the order is the same, too
    # The library's parser of numbers is off by up to one bit.
    np.testing.assert_allclose(scores, their_scores, rtol=1e-15)


def test_the_rust_library_reads_the_published_vocabulary(shared: Path, published_folder: Path) -> None:
    """The Rust library reads only the tokenizer.json, without code of albertkit."""
    ours = AlbertTokenizer(shared / "data" / "spiece.model")
    reloaded = load("tokenizer.json", shared / "data" / "spiece.model", published_folder)
    tokenizers = pytest.importorskip("tokenizers")
    reader = tokenizers.Tokenizer.from_file(str(published_folder / "tokenizer.json"))
    lines = [json.loads(line) for line in (shared / "fixtures" / "tokenizer.jsonl").open(encoding="utf-8")]
    special = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
    lines = [line for line in lines if not any(token in line["text"] for token in special)]
    assert len(lines) > 1_500
    rows = reader.encode_batch([line["text"] for line in lines], add_special_tokens=False)
    assert [row.ids for row in rows] == [line["ids"] for line in lines]
    assert reader.encode("Question?", "Answer").ids == [2, 1301, 60, 3, 1623, 3]
    assert reader.encode("Question?", "Answer").type_ids == [0, 0, 0, 0, 1, 1]
    # The library only approximates the digit-comma rule: it never chooses the pieces that the rule splits.
    texts = [f"in {number}, he" for number in range(10_000)]
    assert [row.ids for row in reader.encode_batch(texts)] == ours(texts)["input_ids"]
    assert reader.encode("21,096", add_special_tokens=False).tokens == [f"{WORD_START}2", "1,0", "96"]
    assert ours.tokenize("21,096") == [f"{WORD_START}21", ",", "09", "6"]
    texts = [f"{number % 97},{number % 1009}" for number in range(10_000)]
    expected = ours(texts)["input_ids"]
    approximate = [row.ids for row in reader.encode_batch(texts)]
    assert sum(ids != exact for ids, exact in zip(approximate, expected, strict=True)) <= 28
    # To approximate the rule, tokenizer.json has lower scores for these pieces. albertkit restores them.
    learned, restored = (
        [piece.score for piece in read_model(model.content).pieces if len(piece.piece) > 1]
        for model in (ours._model, reloaded._model)
    )
    assert sum(score == other for score, other in zip(learned, restored, strict=True)) > 29_000
    assert min(restored) == min(learned)
    assert reloaded(texts)["input_ids"] == expected
    # The offsets of a word start at the space before it in the library, and at the word in albertkit.
    assert reader.encode("the fox").offsets == [(0, 0), (0, 3), (3, 7), (0, 0)]
    assert ours("the fox", return_offsets_mapping=True)["offset_mapping"] == [(0, 0), (0, 3), (4, 7), (0, 0)]


def test_the_rust_library_reads_a_tiny_vocabulary(tiny: TokenizerBase, tmp_path: Path) -> None:
    """The file contains the vocabulary, the special tokens, the layout of pairs and the decoder."""
    tiny.save_pretrained(tmp_path)
    tokenizers = pytest.importorskip("tokenizers")
    reader = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert reader.get_vocab() == tiny.get_vocab()
    for first, second in ((LONG, SHORT), (SHORT, LONG), ("the [MASK] fox[MASK].", "")):
        ours = tiny(first, second)
        theirs = reader.encode(first, second)
        assert theirs.ids == ours["input_ids"]
        assert theirs.type_ids == ours["token_type_ids"]
        assert theirs.tokens == ours.tokens()
    plain = tiny.encode(SHORT)
    assert reader.decode(plain, skip_special_tokens=True) == tiny.decode(plain, skip_special_tokens=True)
