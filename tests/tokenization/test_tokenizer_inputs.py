"""Tests of the inputs and outputs of the tokenizer: batches, tensors, padding, warnings and errors."""

import copy
import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizer_files import LONG, SHORT

from albertkit.errors import TokenizerError
from albertkit.tokenization.base import TokenizerBase
from albertkit.tokenization.tokenizer import AlbertTokenizer

pytestmark = pytest.mark.light


def test_a_batch_of_pairs_in_every_form(tiny: TokenizerBase) -> None:
    expected = tiny([LONG, SHORT], [SHORT, LONG])
    assert tiny([(LONG, SHORT), (SHORT, LONG)]) == expected
    assert tiny.batch_encode_plus([(LONG, SHORT), (SHORT, LONG)]) == expected
    assert tiny(np.array([LONG, SHORT]), (SHORT, LONG)) == expected
    assert expected["input_ids"][0] == tiny.encode(LONG, SHORT)


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_missing_second_text_in_a_batch_is_an_error(tiny: TokenizerBase, missing: Any) -> None:
    for pairs in ([LONG, missing], [missing, missing]):
        with pytest.raises(TokenizerError, match=f"received {missing}"):
            tiny([LONG, SHORT], pairs)
    assert tiny([LONG, SHORT], None) == tiny([LONG, SHORT])
    assert tiny(LONG, None) == tiny(LONG)


def test_the_empty_batch_and_the_empty_text(tiny: TokenizerBase) -> None:
    assert dict(tiny([])) == {"input_ids": [], "token_type_ids": [], "attention_mask": []}
    assert tiny("")["input_ids"] == [2, 3]
    assert tiny("", "")["input_ids"] == [2, 3, 3]
    assert tiny("", "")["token_type_ids"] == [0, 0, 1]
    assert tiny("", add_special_tokens=False)["input_ids"] == []


def test_arrays_of_ids(tiny: TokenizerBase) -> None:
    ids = tiny.encode(SHORT, add_special_tokens=False)
    for mixed in ([2, *np.array(ids)], [np.int64(2), *ids]):
        assert tiny.decode(mixed) == tiny.decode([2, *ids])
        assert tiny.convert_ids_to_tokens(mixed) == tiny.convert_ids_to_tokens([2, *ids])
    with pytest.raises(TokenizerError, match=r"received None \(NoneType\) for a text"):
        tiny.tokenize(None)  # type: ignore[arg-type]


def test_tensors(tiny: TokenizerBase) -> None:
    torch = pytest.importorskip("torch")
    pair = tiny.encode_plus("Who?", "The captain", return_tensors="pt")
    shape = (1, len(tiny.encode("Who?", "The captain")))
    assert pair["input_ids"].shape == pair.token_type_ids.shape == shape
    assert pair["input_ids"].dtype == torch.int64
    assert pair.to("cpu") is pair
    batch = tiny([LONG, SHORT], padding=True, return_tensors="np")
    assert batch["attention_mask"].sum(axis=1).tolist() == [len(tiny.encode(LONG)), len(tiny.encode(SHORT))]
    assert tiny.encode("fox", return_tensors="pt").tolist() == [tiny.encode("fox")]
    assert tiny("fox").convert_to_tensors("pt", prepend_batch_axis=True)["input_ids"].shape[0] == 1
    with pytest.raises(TokenizerError, match="padding=True"):
        tiny([LONG, "fox"], return_tensors="pt")
    for empty in ([], [""]):  # the libraries choose a float type for empty lists
        assert tiny(empty, add_special_tokens=False, return_tensors="pt")["input_ids"].dtype == torch.int64
        assert tiny(empty, add_special_tokens=False, return_tensors="np")["input_ids"].dtype == np.int64


class TensorFlowTensor:
    """A tensor with the interface of TensorFlow: `numpy`, but no `tolist`. A single number has no length."""

    def __init__(self, values: Any) -> None:
        self.values = np.array(values)

    def numpy(self) -> Any:
        return self.values[()]

    def __iter__(self) -> Iterator["TensorFlowTensor"]:
        return map(TensorFlowTensor, self.values)


def test_ids_of_tensorflow(tiny: TokenizerBase) -> None:
    ids = tiny.encode(SHORT)
    assert tiny.decode(TensorFlowTensor(ids)) == tiny.decode(ids)
    assert tiny.decode(TensorFlowTensor(ids[1])) == tiny.decode(ids[1])
    assert tiny.decode([*TensorFlowTensor(ids)]) == tiny.decode(ids)
    assert tiny.batch_decode(TensorFlowTensor([ids, ids])) == [tiny.decode(ids)] * 2
    assert tiny.convert_ids_to_tokens(TensorFlowTensor(ids)) == tiny.convert_ids_to_tokens(ids)
    assert tiny.convert_ids_to_tokens(TensorFlowTensor(ids[1])) == tiny.convert_ids_to_tokens(ids[1])


def test_pad(tiny: TokenizerBase) -> None:
    torch = pytest.importorskip("torch")
    rows = [tiny(LONG), tiny(SHORT)]
    assert dict(tiny.pad(rows)) == dict(tiny([LONG, SHORT], padding=True))
    padded = tiny.pad({"input_ids": [[2, 9, 3], [2, 3]]}, return_tensors="pt")
    assert padded["input_ids"].tolist() == [[2, 9, 3], [2, 3, 0]]
    assert padded["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]
    assert tiny.pad({"input_ids": [2, 3]}, padding="max_length", max_length=4)["input_ids"] == [2, 3, 0, 0]
    for convert in (torch.tensor, np.array):  # as the rows of `datasets` with a format
        padded = tiny.pad([{"input_ids": convert([2, 9, 3])}, {"input_ids": convert([2, 3])}])
        assert type(padded["attention_mask"]) is type(convert([]))
        assert padded["input_ids"].tolist() == [[2, 9, 3], [2, 3, 0]]
    padded = tiny.pad({"input_ids": torch.tensor([[2, 3]])}, pad_to_multiple_of=4)
    assert padded["attention_mask"].tolist() == [[1, 1, 0, 0]]
    with pytest.raises(TokenizerError, match="input_ids"):
        tiny.pad({"ids": [[1]]})
    for column in ("a text", ["a", "text"]):
        with pytest.raises(TokenizerError, match="words cannot become a tensor"):
            tiny.pad([{"input_ids": [2, 3], "words": column}], return_tensors="pt")
    for rows in ("ab", [1, 2], 5, [{"input_ids": [1]}, {"attention_mask": [1]}]):
        with pytest.raises(TokenizerError, match=r"received .* to pad"):
            tiny.pad(rows)


def test_a_deep_copy_keeps_the_word_ids(tiny: TokenizerBase) -> None:
    encoding = tiny("The captain lost", return_offsets_mapping=True)
    words = encoding.word_ids()
    copied = copy.deepcopy(encoding)
    assert copied == encoding
    assert copied.word_ids() == words
    copied["input_ids"].append(0)
    assert len(encoding["input_ids"]) == len(copied["input_ids"]) - 1


class Cycle:
    """An object that only the garbage collector can free."""

    def __init__(self) -> None:
        self.itself = self


@pytest.mark.parametrize("num_texts", [1, 200])
def test_cyclic_garbage_of_the_caller_is_collected(tiny: TokenizerBase, num_texts: int) -> None:
    gc.collect()
    references = []
    for _ in range(20):
        references.append(weakref.ref(Cycle()))
        tiny([SHORT] * num_texts)
    _ = [[] for _ in range(1_000)]  # starts a collection of the youngest objects
    assert sum(reference() is not None for reference in references) < 10
    assert gc.isenabled()
    gc.disable()
    try:
        tiny([SHORT] * num_texts)
        assert not gc.isenabled()
    finally:
        gc.enable()


# ---- maximum length ----


def test_long_texts_are_truncated_only_on_request(tiny: TokenizerBase, tiny_vocabulary: Path, caplog) -> None:
    fresh = type(tiny)(tiny_vocabulary, model_max_length=8)
    assert len(fresh.encode(LONG)) > 8
    assert "the maximum length is 8" in caplog.text
    caplog.clear()
    assert len(fresh.encode(LONG, truncation=True)) == 8
    assert len(type(tiny)(tiny_vocabulary, model_max_length=8).encode(LONG, verbose=False)) > 8
    assert caplog.text == ""


def test_padding_without_a_maximum_length(tiny_vocabulary: Path) -> None:
    tokenizer = AlbertTokenizer(tiny_vocabulary, model_max_length=10**30)
    with pytest.raises(TokenizerError, match="needs max_length"):
        tokenizer("a", padding="max_length")
    assert len(tokenizer("a", padding="max_length", max_length=7)["input_ids"]) == 7
    assert tokenizer("a", truncation=True) == tokenizer("a")


# ---- errors ----


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((None,), {}, "NoneType"),
        ((5,), {}, "int"),
        ((["a", None],), {}, "None"),
        ((b"bytes",), {}, "bytes"),
        ((["a", "b"], ["c"]), {}, "2 texts and 1"),
        (("a b",), {"is_split_into_words": True}, "Expected a list of words"),
        (("a",), {"padding": "longst"}, "longst"),
        (("a",), {"truncation": "first"}, "first"),
        (("a",), {"return_tensors": "jx"}, "'pt', 'np' or 'tf'"),
        (("a",), {"max_length": 1, "truncation": True}, "no room"),
        ((LONG,), {"max_length": 8, "truncation": True, "stride": 6}, "stride=6"),
        ((LONG,), {"max_length": 8, "truncation": "only_second"}, "second text"),
        ((LONG, "a"), {"max_length": 8, "truncation": "only_second"}, "is not truncated"),
        (
            (LONG,),
            {"max_length": 9, "truncation": True, "padding": True, "pad_to_multiple_of": 8},
            "max_length=9 is not a multiple of 8",
        ),
        (("a\ud800b",), {}, "surrogate"),
        ((["a"] * 39 + ["a\ud800b"],), {}, r"the text '\S*a\\ud800b' contains a lone surrogate"),
        ((LONG,), {"max_length": 8, "truncation": True, "stride": -1}, "stride=-1"),
        (("a",), {"padding": True, "pad_to_multiple_of": -8}, "pad_to_multiple_of=-8"),
        (("a",), {"padding": True, "padding_side": "up"}, "padding_side='up': expected one of left, right"),
        ((LONG, LONG), {"max_length": 4, "truncation": True}, "max_length leaves 0 tokens"),
        ((LONG,), {"max_length": 8.0, "truncation": True}, "max_length=8.0: expected a whole number"),
        (("a",), {"parse_special_tokens": "false"}, "parse_special_tokens='false': expected True, False or"),
    ],
)
def test_wrong_inputs_and_options(arguments, options, message: str, tiny: TokenizerBase) -> None:
    with pytest.raises(TokenizerError, match=message):
        tiny(*arguments, **options)


def test_unknown_arguments(tiny: TokenizerBase, tiny_vocabulary: Path) -> None:
    with pytest.raises(TypeError, match=r"no argument 'do_lowercase' .did you mean 'do_lower_case'"):
        type(tiny)(tiny_vocabulary, do_lowercase=True)
    with pytest.raises(TypeError, match="max_lenght"):
        tiny("text", max_lenght=3)  # type: ignore[call-arg]
