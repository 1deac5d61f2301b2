"""Tests of the tokenizer with each file of a vocabulary: ids, special tokens, decoding and added tokens."""

import json
from pathlib import Path

import pytest

from albertkit.errors import TokenizerError
from albertkit.tokenization.base import TokenizerBase
from albertkit.tokenization.tokenizer import AlbertTokenizerFast

pytestmark = pytest.mark.light

# ---- ids ----


def test_ids_and_pieces_equal_those_of_the_original(published: TokenizerBase, shared: Path) -> None:
    lines = [json.loads(line) for line in (shared / "fixtures" / "tokenizer.jsonl").open(encoding="utf-8")]
    texts = [line["text"] for line in lines]
    encoded = published(texts, add_special_tokens=False, parse_special_tokens=False, verbose=False)
    assert len(lines) == 1_628
    assert encoded["input_ids"] == [line["ids"] for line in lines]
    for line in lines:
        assert published.tokenize(line["text"], parse_special_tokens=False) == line["pieces"]
        ids = published.encode(
            line["text"], add_special_tokens=False, parse_special_tokens=False, verbose=False
        )
        assert ids == line["ids"]


def test_mask_in_a_text_and_segments_of_a_pair(published: TokenizerBase) -> None:
    assert published("Test sentence with [MASK].")["input_ids"] == [2, 1289, 5123, 29, 4, 13, 9, 3]
    pair = published("Question?", "Answer")
    assert pair["input_ids"] == [2, 1301, 60, 3, 1623, 3]
    assert pair["token_type_ids"] == [0, 0, 0, 0, 1, 1]
    assert pair["attention_mask"] == [1] * 6
    assert list(pair.keys()) == ["input_ids", "token_type_ids", "attention_mask"]


def test_cased_text_of_the_julia_article(published: TokenizerBase, shared: Path) -> None:
    cased = type(published)(shared / "data" / "spiece.model", do_lower_case=False)
    ids = cased.encode("God is Great! I won a lottery.", add_special_tokens=False)
    ids_in_julia = [14, 2, 5649, 26, 14, 2, 100, 722, 188, 14, 2, 231, 22, 17519, 10]  # ids start at 1
    assert [token_id + 1 for token_id in ids] == ids_in_julia


def test_tokens_and_ids(published: TokenizerBase) -> None:
    assert published.convert_tokens_to_ids("▁the") == 14
    assert published.convert_tokens_to_ids(["▁the", "no such piece", "[MASK]"]) == [14, 1, 4]
    assert published.convert_ids_to_tokens(14) == "▁the"
    assert published.convert_ids_to_tokens([2, 14, 3], skip_special_tokens=True) == ["▁the"]
    assert published.vocab_size == len(published) == len(published.get_vocab()) == 30_000
    assert published.get_vocab()["▁the"] == 14
    with pytest.raises(TokenizerError, match="30000"):
        published.convert_ids_to_tokens([30_000])


def test_layout_of_special_tokens_and_segments(tiny: TokenizerBase) -> None:
    assert tiny.num_special_tokens_to_add() == 2
    assert tiny.num_special_tokens_to_add(pair=True) == 3
    assert tiny.build_inputs_with_special_tokens([7], [8, 9]) == [2, 7, 3, 8, 9, 3]
    assert tiny.create_token_type_ids_from_sequences([7], [8, 9]) == [0, 0, 0, 1, 1, 1]
    assert tiny.create_token_type_ids_from_sequences([7]) == [0, 0, 0]
    assert tiny.get_special_tokens_mask([7], [8, 9]) == [1, 0, 1, 0, 0, 1]
    assert tiny.get_special_tokens_mask([2, 7, 3, 0], already_has_special_tokens=True) == [1, 0, 1, 1]
    assert (tiny.max_len_single_sentence, tiny.max_len_sentences_pair) == (510, 509)
    encoded = tiny(
        "fox", "key", padding="max_length", max_length=12, return_special_tokens_mask=True, return_length=True
    )
    assert encoded["special_tokens_mask"][0] == 1
    assert encoded["special_tokens_mask"][-1] == 1
    assert encoded["length"] == [12]


# ---- special tokens ----


def test_special_tokens_are_plain_text_on_request(tiny: TokenizerBase, tiny_vocabulary: Path) -> None:
    text = "The [MASK] fox"
    assert tiny.mask_token_id in tiny.encode(text)
    assert tiny.mask_token_id not in tiny.encode(text, parse_special_tokens=False)
    plain = type(tiny)(tiny_vocabulary, parse_special_tokens=False)
    assert plain.encode(text) == tiny.encode(text, parse_special_tokens=False)
    assert plain.encode(text, parse_special_tokens=True) == tiny.encode(text)
    masked = plain.encode(f"{text} [SEP] [CLS]", parse_special_tokens="mask")
    assert masked.count(tiny.mask_token_id) == text.count("[MASK]") > 0
    assert (masked.count(tiny.cls_token_id), masked.count(tiny.sep_token_id)) == (1, 1)
    plain.add_tokens(["covid-19"])  # added tokens are matched by other code
    assert plain.encode(text, parse_special_tokens="mask") == tiny.encode(text)


# ---- decoding ----


def test_decoding(published: TokenizerBase) -> None:
    torch = pytest.importorskip("torch")
    ids = published.encode("Hello, I'm a [MASK] model. It is [MASK].")
    assert published.decode(ids) == "[CLS] hello, i'm a [MASK] model. it is [MASK].[SEP]"
    assert published.decode(ids, skip_special_tokens=True) == "hello, i'm a model. it is ."
    assert published.decode(torch.tensor([ids]), skip_special_tokens=True) == ["hello, i'm a model. it is ."]
    assert published.batch_decode([ids[:2], ids[-1:]]) == ["[CLS] hello", "[SEP]"]
    assert (
        published.decode(published.encode("it did n't . so", add_special_tokens=False)) == "it did n't . so"
    )
    cleaned = published.decode(
        published.encode("it did n't . so", add_special_tokens=False), clean_up_tokenization_spaces=True
    )
    assert cleaned == "it didn't. so"
    assert published.decode(14) == "the"
    assert published.convert_tokens_to_string(["▁the", "▁state", "-", "of"]) == "the state-of"


@pytest.mark.parametrize(
    "text",
    [
        "[MASK] x",
        "[MASK] (x), [MASK].",
        "([MASK]) [MASK]!",
        '[MASK]" he said',
        '[MASK] "he said"',
        "[MASK]-like",
        "[MASK] - like",
        "[MASK]'s [MASK]; [MASK]: [MASK]?",
        "[MASK] £5",
    ],
)
def test_decoding_restores_spaces_beside_a_mask(text: str, published: TokenizerBase) -> None:
    assert published.decode(published.encode(text, add_special_tokens=False)) == text


# ---- added tokens ----


def test_added_tokens(tiny: TokenizerBase, tiny_vocabulary: Path, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    grown = type(tiny)(tiny_vocabulary)
    assert grown.add_tokens(["Covid-19", "fox trot"]) == 2
    assert grown.add_tokens("Covid-19") == 0
    assert grown.add_special_tokens({"additional_special_tokens": ["<e1>", "</e1>"]}) == 2
    assert (len(grown), grown.vocab_size) == (tiny.vocab_size + 4, tiny.vocab_size)
    special = {"<pad>": 0, "<unk>": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
    new = {"Covid-19": 500, "fox trot": 501, "<e1>": 502, "</e1>": 503}
    assert grown.get_added_vocab() == grown.added_tokens_encoder == {**special, **new}
    assert list(grown.added_tokens_encoder.values()) == [0, 1, 2, 3, 4, 500, 501, 502, 503]
    ids = grown.encode("<e1>COVID-19</e1> and a fox trot", add_special_tokens=False)
    assert ids[:3] == [502, 500, 503]
    assert ids[-1] == 501
    assert 502 not in grown.encode("<e1> x", parse_special_tokens=False)
    assert 500 in grown.encode("covid-19", parse_special_tokens=False)
    assert grown.decode(ids, skip_special_tokens=True).startswith("Covid-19 and")
    assert grown.additional_special_tokens_ids == [502, 503]
    longer = type(tiny)(tiny_vocabulary, added_tokens={"ab": 500, "abc": 501})
    assert longer.encode("abcab", add_special_tokens=False) == [501, 500]  # the longest match

    grown.save_pretrained(tmp_path)
    for again in (
        type(tiny).from_pretrained(tmp_path),
        AlbertTokenizerFast(tokenizer_file=tmp_path / "tokenizer.json"),
    ):
        assert again.get_added_vocab() == grown.get_added_vocab()
        assert again.additional_special_tokens == ["<e1>", "</e1>"]
        assert again.encode("<e1>COVID-19</e1> and a fox trot", add_special_tokens=False) == ids
