"""Tests of the tokenizer compared with that of `transformers`: windows, padding, words and folders."""

from pathlib import Path

import numpy as np
import pytest
import transformers
from tokenizer_files import LONG, SHORT

from albertkit.errors import TokenizerError
from albertkit.tokenization.base import TokenizerBase
from albertkit.tokenization.tokenizer import AlbertTokenizer, AlbertTokenizerFast

NAMES = ["input_ids", "attention_mask"]


@pytest.fixture(scope="module")
def theirs(tiny_vocabulary: Path, tmp_path_factory: pytest.TempPathFactory):
    """Return the tokenizer of `transformers`, loaded from a folder that albertkit wrote."""
    folder = tmp_path_factory.mktemp("saved")
    AlbertTokenizer(tiny_vocabulary).save_pretrained(folder)
    return transformers.AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("truncation", [True, "longest_first", "only_first", "only_second"])
@pytest.mark.parametrize("max_length", [14, 15, 24])
@pytest.mark.parametrize("pair", [(LONG, SHORT), (SHORT, LONG), (SHORT, SHORT)])
@pytest.mark.parametrize("stride", [0, 2])
def test_windows_of_pairs(truncation, max_length, pair, stride, tiny: TokenizerBase, theirs) -> None:
    options = {
        "truncation": truncation,
        "max_length": max_length,
        "stride": stride,
        "return_overflowing_tokens": True,
        "return_offsets_mapping": True,
        "return_special_tokens_mask": True,
        "padding": True,
    }
    try:
        expected = theirs(*pair, **options)
    except BaseException:  # a panic of the Rust library is not an Exception
        with pytest.raises(TokenizerError):
            tiny(*pair, **options)
        return
    ours = tiny(*pair, **options)
    for name in [*NAMES, "special_tokens_mask", "overflow_to_sample_mapping"]:
        assert ours[name] == expected[name], name
    for row, expected_row in zip(ours.encodings or (), expected.encodings, strict=True):
        assert row.sequence_ids == expected_row.sequence_ids
        assert row.type_ids == expected_row.type_ids


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("stride", [0, 1, 3])
def test_windows_of_a_batch(side, stride, tiny: TokenizerBase, tiny_vocabulary: Path, theirs) -> None:
    tiny = type(tiny)(tiny_vocabulary, truncation_side=side)
    theirs.truncation_side = side
    options = {"max_length": 11, "truncation": True, "stride": stride, "return_overflowing_tokens": True}
    ours, expected = tiny([LONG, SHORT, "fox"], **options), theirs([LONG, SHORT, "fox"], **options)
    theirs.truncation_side = "right"
    for name in [*NAMES, "overflow_to_sample_mapping"]:
        assert ours[name] == expected[name]


@pytest.mark.parametrize(
    "options",
    [
        {"padding": True},
        {"padding": "longest", "pad_to_multiple_of": 8},
        {"padding": "max_length", "max_length": 32},
        {"padding": "max_length", "max_length": 16, "truncation": True},
        {"padding": True, "padding_side": "left"},
        {"padding": True, "max_length": 12, "truncation": True, "pad_to_multiple_of": 4},
        {"max_length": 9},
        {"truncation": True},
        {"add_special_tokens": False},
        {"padding": False, "truncation": False},
    ],
)
def test_padding_and_truncation_of_a_batch(options, tiny: TokenizerBase, theirs) -> None:
    ours, expected = tiny([LONG, SHORT, ""], **options), theirs([LONG, SHORT, ""], **options)
    for name in NAMES:
        assert ours[name] == expected[name]
    assert [len(row) for row in ours["token_type_ids"]] == [len(row) for row in ours["input_ids"]]


@pytest.mark.parametrize(
    ("inputs", "options"),
    [
        (["hello there"], {"max_length": 2, "truncation": True}),
        (["hello there"], {"max_length": 2, "truncation": "only_first"}),
        (["hello there", "you"], {"max_length": 3, "truncation": True}),
        ([["hello there", "a"]], {"max_length": 2, "truncation": True}),
        ([["hello there", "a"]], {"max_length": 2, "truncation": True, "padding": True}),
        ([""], {"max_length": 2, "truncation": True}),
        (["hello there"], {"text_target": "you"}),
        ([], {"text_target": "you are"}),
        ([], {"text_target": ["you are", "me"], "padding": True}),
        (["hello there"], {"text_target": "you", "text_pair_target": "b"}),
        (["hello", "there"], {"text_target": "you are the one", "max_length": 5, "truncation": True}),
        ([["hello there", "a"]], {"text_target": ["you", "me too"], "padding": True, "return_tensors": "np"}),
    ],
)
def test_rows(inputs, options, tiny: TokenizerBase, theirs) -> None:
    ours, expected = tiny(*inputs, **options), theirs(*inputs, **options)
    assert ours.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(ours[name], values)


def test_rows_without_text_have_no_offsets(tiny: TokenizerBase) -> None:
    row = tiny("hello there", max_length=2, truncation=True, return_offsets_mapping=True)
    assert row["offset_mapping"] == [(0, 0), (0, 0)]
    assert row.word_ids() == [None, None]
    assert row.char_to_token(0) is None


@pytest.mark.parametrize(
    "options", [{"max_length": 1}, {"max_length": 0}, {"max_length": 2, "return_overflowing_tokens": True}]
)
def test_text_that_would_be_lost_is_an_error(options, tiny: TokenizerBase) -> None:
    with pytest.raises(TokenizerError, match="leaves no room for text"):
        tiny("hello there", truncation=True, **options)


def test_length_is_a_list_even_for_one_text(tiny: TokenizerBase, theirs) -> None:
    for texts in ("The captain", ["The captain"], ["The captain", "My sister lost"]):
        ours = tiny(texts, return_length=True)["length"]
        assert ours == theirs(texts, return_length=True)["length"]
    assert tiny("", return_length=True)["length"] == [2]


def test_texts_split_into_words(tiny: TokenizerBase, theirs) -> None:
    words = ["The", "captain", "of", "1847,", "", "opened"]
    ours = tiny(words, is_split_into_words=True)
    assert ours["input_ids"] == tiny.build_inputs_with_special_tokens(
        [token_id for word in words for token_id in tiny.encode(word, add_special_tokens=False)]
    )
    word_ids = ours.word_ids()
    assert word_ids[0] is None
    assert word_ids[-1] is None
    assert sorted({word for word in word_ids if word is not None}) == [0, 1, 2, 3, 5]
    expected = theirs(["The", "captain", "opened"], is_split_into_words=True)
    ours = tiny(["The", "captain", "opened"], is_split_into_words=True)
    assert ours["input_ids"] == expected["input_ids"]
    assert ours.word_ids() == expected.word_ids()
    pair = tiny([["a", "fox"], ["b"]], [["c"], ["d", "e"]], is_split_into_words=True)
    assert len(pair["input_ids"]) == 2
    assert pair.sequence_ids(1)[0] is None
    assert pair.n_sequences == 2


def test_decoded_special_tokens_are_joined_as_in_transformers(
    published: TokenizerBase, tmp_path: Path
) -> None:
    published.save_pretrained(tmp_path)
    theirs = transformers.AlbertTokenizer.from_pretrained(tmp_path)
    for text in ("the cat", "it's the well-kept secret (again), for 12 or 5.", "a", ""):
        ids = [*published.encode(text), 0, 0]
        assert published.decode(ids) == theirs.decode(ids)
        assert published.decode(ids, skip_special_tokens=True) == theirs.decode(ids, skip_special_tokens=True)
    assert published.decode([2, *published.encode("the cat")[1:], 0, 0]) == "[CLS] the cat[SEP]<pad><pad>"
    assert published.decode([3, 0, 0]) == theirs.decode([3, 0, 0]) == "[SEP]<pad><pad>"


def test_both_libraries_open_folders_of_the_other(tiny: TokenizerBase, theirs, tmp_path: Path) -> None:
    assert theirs(SHORT)["input_ids"] == tiny(SHORT)["input_ids"]
    assert theirs.model_max_length == 512
    theirs.save_pretrained(tmp_path)
    reloaded = AlbertTokenizerFast.from_pretrained(tmp_path)
    assert reloaded(LONG, SHORT) == tiny(LONG, SHORT)
    assert reloaded.special_tokens_map == tiny.special_tokens_map
    assert len(reloaded) == len(tiny)
