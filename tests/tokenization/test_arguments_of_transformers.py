"""Tests that arguments of a tokenizer call give the rows of transformers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers

import albertkit
from albertkit.errors import TokenizerError


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    folder: Path = tmp_path_factory.mktemp("tokenizer")
    ours = albertkit.AlbertTokenizer.from_pretrained("bundled")
    ours.save_pretrained(folder)
    return ours, transformers.AutoTokenizer.from_pretrained(folder)


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
def test_rows(tokenizers: tuple[Any, Any], inputs: list[Any], options: dict[str, Any]) -> None:
    ours, theirs = (tokenizer(*inputs, **options) for tokenizer in tokenizers)
    assert ours.keys() == theirs.keys()
    for name, values in theirs.items():
        np.testing.assert_array_equal(ours[name], values)


def test_rows_without_text_have_no_offsets(tokenizers: tuple[Any, Any]) -> None:
    row = tokenizers[0]("hello there", max_length=2, truncation=True, return_offsets_mapping=True)
    assert row["offset_mapping"] == [(0, 0), (0, 0)]
    assert row.word_ids() == [None, None]
    assert row.char_to_token(0) is None


@pytest.mark.parametrize(
    "options", [{"max_length": 1}, {"max_length": 0}, {"max_length": 2, "return_overflowing_tokens": True}]
)
def test_text_that_would_be_lost_is_an_error(tokenizers: tuple[Any, Any], options: dict[str, Any]) -> None:
    with pytest.raises(TokenizerError, match="leaves no room for text"):
        tokenizers[0]("hello there", truncation=True, **options)
