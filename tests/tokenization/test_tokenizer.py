"""From both files: the original's ids, segments and pieces; calls as `transformers` users know them."""

import copy
import gc
import json
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from tokenizer_files import FILES, load

from albertkit.errors import MissingExtraError, TokenizerError
from albertkit.tokenization.base import TokenizerBase
from albertkit.tokenization.model_file import WORD_START
from albertkit.tokenization.tokenizer import AlbertTokenizer, AlbertTokenizerFast

BOTH = [AlbertTokenizer, AlbertTokenizerFast]
LIGHT_FILES = [pytest.param(name, marks=pytest.mark.light) for name in FILES]


@pytest.fixture(scope="module")
def published_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `load` saves the published vocabulary, once for all tests."""
    return tmp_path_factory.mktemp("published")


@pytest.fixture(params=LIGHT_FILES, scope="module")
def tokenizer(request: pytest.FixtureRequest, shared: Path, published_folder: Path) -> TokenizerBase:
    """The published vocabulary, from each file."""
    return load(request.param, shared / "data" / "spiece.model", published_folder)


@pytest.fixture(params=LIGHT_FILES, scope="module")
def tiny(request: pytest.FixtureRequest, tiny_vocabulary: Path, tmp_path_factory) -> TokenizerBase:
    """A vocabulary of 500 pieces, from each file."""
    return load(request.param, tiny_vocabulary, tmp_path_factory.mktemp("tiny"))


# ---- the original's answers ----


def test_ids_and_pieces_are_the_originals_on_every_line(tokenizer: TokenizerBase, shared: Path) -> None:
    lines = [json.loads(line) for line in (shared / "fixtures" / "tokenizer.jsonl").open(encoding="utf-8")]
    texts = [line["text"] for line in lines]
    encoded = tokenizer(texts, add_special_tokens=False, parse_special_tokens=False, verbose=False)
    assert len(lines) == 1_628
    assert encoded["input_ids"] == [line["ids"] for line in lines]
    for line in lines:
        assert tokenizer.tokenize(line["text"], parse_special_tokens=False) == line["pieces"]
        one = tokenizer.encode(
            line["text"], add_special_tokens=False, parse_special_tokens=False, verbose=False
        )
        assert one == line["ids"]


def test_mask_in_a_text_and_segments_of_a_pair(tokenizer: TokenizerBase) -> None:
    assert tokenizer("Test sentence with [MASK].")["input_ids"] == [2, 1289, 5123, 29, 4, 13, 9, 3]
    pair = tokenizer("Question?", "Answer")
    assert pair["input_ids"] == [2, 1301, 60, 3, 1623, 3]
    assert pair["token_type_ids"] == [0, 0, 0, 0, 1, 1]
    assert pair["attention_mask"] == [1] * 6
    assert list(pair.keys()) == ["input_ids", "token_type_ids", "attention_mask"]


def test_cased_text_as_the_julia_article_has_it(tokenizer: TokenizerBase, shared: Path) -> None:
    cased = type(tokenizer)(shared / "data" / "spiece.model", do_lower_case=False)
    ids = cased.encode("God is Great! I won a lottery.", add_special_tokens=False)
    counted_from_one = [14, 2, 5649, 26, 14, 2, 100, 722, 188, 14, 2, 231, 22, 17519, 10]
    assert [token_id + 1 for token_id in ids] == counted_from_one


def test_both_files_give_the_same(shared: Path, published_folder: Path) -> None:
    vocabulary = shared / "data" / "spiece.model"
    model, converted = (
        load(name, vocabulary, published_folder) for name in ("spiece.model", "tokenizer.json")
    )
    texts = (shared / "data" / "wikitext2" / "valid.txt").read_text(encoding="utf-8").splitlines()[:300]
    texts += ["a [MASK] word <unk>", "", "  ", "½ ﬃ\u0301 İ ΣΑΣ", "in 1947, the 1990s, 5,", "x\x01\u200by"]
    one, other = (each(texts, return_offsets_mapping=True, verbose=False) for each in (model, converted))
    assert dict(one) == dict(other)
    assert [row.word_ids for row in one.encodings or ()] == [row.word_ids for row in other.encodings or ()]


@pytest.mark.parametrize("rules", [{"keep_accents": True}, {"do_lower_case": False}, {"remove_space": False}])
def test_both_files_give_the_same_under_other_rules(
    rules: dict[str, bool], shared: Path, published_folder: Path
) -> None:
    vocabulary = shared / "data" / "spiece.model"
    model, converted = (
        load(name, vocabulary, published_folder, **rules) for name in ("spiece.model", "tokenizer.json")
    )
    for text in [
        "Ça va?  déjà vu",
        "e\u0301 ½ \u212b",
        "\u3000wide\u200bspace ",
        "Ⅷ, 12, \u20135",
        "\x01 a\n\nb",
    ]:
        assert model.tokenize(text) == converted.tokenize(text)
        assert model(text, return_offsets_mapping=True) == converted(text, return_offsets_mapping=True)


# ---- special tokens in a text ----


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
    plain.add_tokens(["covid-19"])  # found another way
    assert plain.encode(text, parse_special_tokens="mask") == tiny.encode(text)


@pytest.mark.parametrize("text", ["[MASK]", "[MASK][MASK]", " [MASK]  [MASK] ", "[CLS][SEP]<pad><unk>"])
def test_special_tokens_need_nothing_around_them(text: str, tiny: TokenizerBase) -> None:
    expected = {"[MASK]": [4], "[CLS][SEP]<pad><unk>": [2, 3, 0, 1]}.get(text, [4, 4])
    assert tiny.encode(text, add_special_tokens=False) == expected


def test_roles(tiny: TokenizerBase) -> None:
    assert (tiny.pad_token, tiny.unk_token, tiny.cls_token) == ("<pad>", "<unk>", "[CLS]")
    assert (tiny.sep_token, tiny.mask_token, tiny.bos_token, tiny.eos_token) == (
        *("[SEP]", "[MASK]", "[CLS]", "[SEP]"),
    )
    assert [tiny.pad_token_id, tiny.unk_token_id, tiny.cls_token_id, tiny.sep_token_id] == [0, 1, 2, 3]
    assert (tiny.mask_token_id, tiny.bos_token_id, tiny.eos_token_id) == (4, 2, 3)
    assert tiny.all_special_tokens == ["[CLS]", "[SEP]", "<unk>", "<pad>", "[MASK]"]
    assert tiny.all_special_ids == [2, 3, 1, 0, 4]
    assert tiny.special_tokens_map["mask_token"] == "[MASK]"


# ---- against transformers ----


@pytest.fixture(scope="module")
def theirs(tiny_vocabulary: Path, tmp_path_factory: pytest.TempPathFactory):
    """`transformers`' tokenizer, reading a folder that ours wrote."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("saved")
    AlbertTokenizer(tiny_vocabulary).save_pretrained(folder)
    return transformers.AutoTokenizer.from_pretrained(folder)


LONG = "The captain opened a silver key near the harbour without a word"
SHORT = "An old fox found the river"
NAMES = ["input_ids", "attention_mask"]


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
    except BaseException:  # a panic of the Rust library is no Exception
        with pytest.raises(TokenizerError):
            tiny(*pair, **options)
        return
    ours = tiny(*pair, **options)
    for name in [*NAMES, "special_tokens_mask", "overflow_to_sample_mapping"]:
        assert ours[name] == expected[name], name
    for row, other in zip(ours.encodings or (), expected.encodings, strict=True):
        assert row.sequence_ids == other.sequence_ids
        assert row.type_ids == other.type_ids


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


def test_their_folder_opens_in_ours_and_ours_in_theirs(tiny: TokenizerBase, theirs, tmp_path: Path) -> None:
    assert theirs(SHORT)["input_ids"] == tiny(SHORT)["input_ids"]
    assert theirs.model_max_length == 512
    theirs.save_pretrained(tmp_path)
    again = AlbertTokenizerFast.from_pretrained(tmp_path)
    assert again(LONG, SHORT) == tiny(LONG, SHORT)
    assert again.special_tokens_map == tiny.special_tokens_map
    assert len(again) == len(tiny)


@pytest.mark.parametrize("rules", [{}, {"keep_accents": True, "do_lower_case": False, "sep_token": "<s>"}])
def test_tokenizer_json_is_written_as_the_library_writes_it(rules, tiny_vocabulary: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = AlbertTokenizer(tiny_vocabulary, **rules)
    tokenizer.add_tokens(["foxtrot"])
    text = tokenizer._vocabulary_files()["tokenizer.json"].decode()
    ours, theirs = json.loads(text), json.loads(tokenizers.Tokenizer.from_str(text).to_str())
    pieces, scores = zip(*ours["model"].pop("vocab"), strict=True)
    their_pieces, their_scores = zip(*theirs["model"].pop("vocab"), strict=True)
    assert (json.dumps(ours), pieces) == (json.dumps(theirs), their_pieces)  # in the same order too
    np.testing.assert_allclose(scores, their_scores, rtol=1e-15)  # the library parses numbers to one bit


def test_other_readers_of_tokenizer_json(shared: Path, published_folder: Path) -> None:
    """What the Rust library makes of the file alone, without anything of ours."""
    ours = AlbertTokenizer(shared / "data" / "spiece.model")
    again = load("tokenizer.json", shared / "data" / "spiece.model", published_folder)
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
    # The digit-comma rule is only approximated: pieces that it splits are never chosen.
    texts = [f"in {number}, he" for number in range(10_000)]
    assert [one.ids for one in reader.encode_batch(texts)] == ours(texts)["input_ids"]
    assert reader.encode("21,096", add_special_tokens=False).tokens == [f"{WORD_START}2", "1,0", "96"]
    assert ours.tokenize("21,096") == [f"{WORD_START}21", ",", "09", "6"]
    texts = [f"{number % 97},{number % 1009}" for number in range(10_000)]
    expected = ours(texts)["input_ids"]
    read = [one.ids for one in reader.encode_batch(texts)]
    assert sum(one != other for one, other in zip(read, expected, strict=True)) <= 28
    # Our own class takes the rule's part of the scores back, exactly.
    learned, found = (
        [score for piece, score in zip(table.pieces, table.scores, strict=True) if len(piece) > 1]
        for table in (ours._model.table(), again._model.table())
    )
    assert sum(one == other for one, other in zip(learned, found, strict=True)) > 29_000
    assert min(found) == min(learned)
    assert again(texts)["input_ids"] == expected
    # A word's span begins at the space before it; ours begins at the word.
    assert reader.encode("the fox").offsets == [(0, 0), (0, 3), (3, 7), (0, 0)]
    assert ours("the fox", return_offsets_mapping=True)["offset_mapping"] == [(0, 0), (0, 3), (4, 7), (0, 0)]


def test_another_reader_of_a_tokenizer_json(tiny: TokenizerBase, tmp_path: Path) -> None:
    """Vocabulary, special tokens, pairs and decoding are all in the file."""
    tiny.save_pretrained(tmp_path)
    tokenizers = pytest.importorskip("tokenizers")
    reader = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert reader.get_vocab() == tiny.get_vocab()
    for first, second in ((LONG, SHORT), (SHORT, LONG), ("the [MASK] fox[MASK].", "")):
        own = tiny(first, second)
        theirs = reader.encode(first, second)
        assert theirs.ids == own["input_ids"]
        assert theirs.type_ids == own["token_type_ids"]
        assert theirs.tokens == own.tokens()
    plain = tiny.encode(SHORT)
    assert reader.decode(plain, skip_special_tokens=True) == tiny.decode(plain, skip_special_tokens=True)


# ---- other inputs and outputs ----


def test_a_batch_of_pairs_in_every_form(tiny: TokenizerBase) -> None:
    expected = tiny([LONG, SHORT], [SHORT, LONG])
    assert tiny([(LONG, SHORT), (SHORT, LONG)]) == expected
    assert tiny.batch_encode_plus([(LONG, SHORT), (SHORT, LONG)]) == expected
    assert tiny(np.array([LONG, SHORT]), (SHORT, LONG)) == expected
    assert expected["input_ids"][0] == tiny.encode(LONG, SHORT)


def test_the_empty_batch_and_the_empty_text(tiny: TokenizerBase) -> None:
    assert dict(tiny([])) == {"input_ids": [], "token_type_ids": [], "attention_mask": []}
    assert tiny("")["input_ids"] == [2, 3]
    assert tiny("", "")["input_ids"] == [2, 3, 3]
    assert tiny("", "")["token_type_ids"] == [0, 0, 1]
    assert tiny("", add_special_tokens=False)["input_ids"] == []


def test_only_a_large_batch_counts_as_looked_through(tiny: TokenizerBase) -> None:
    gc.collect()
    kept = [[] for _ in range(300)]
    before = gc.get_count()[0]
    tiny(SHORT)
    assert gc.get_count()[0] > before >= len(kept)  # else cycles of others would hardly ever be looked for
    tiny([SHORT] * 4_000)
    assert gc.get_count()[0] < before
    assert gc.isenabled()


def test_tensors(tiny: TokenizerBase) -> None:
    torch = pytest.importorskip("torch")
    one = tiny.encode_plus("Who?", "The captain", return_tensors="pt")
    assert one["input_ids"].shape == one.token_type_ids.shape == (1, len(tiny.encode("Who?", "The captain")))
    assert one["input_ids"].dtype == torch.int64
    assert one.to("cpu") is one
    batch = tiny([LONG, SHORT], padding=True, return_tensors="np")
    assert batch["attention_mask"].sum(axis=1).tolist() == [len(tiny.encode(LONG)), len(tiny.encode(SHORT))]
    assert tiny.encode("fox", return_tensors="pt").tolist() == [tiny.encode("fox")]
    assert tiny("fox").convert_to_tensors("pt", prepend_batch_axis=True)["input_ids"].shape[0] == 1
    with pytest.raises(TokenizerError, match="padding=True"):
        tiny([LONG, "fox"], return_tensors="pt")


def test_tensorflow_where_it_is_installed(tiny: TokenizerBase, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", types.SimpleNamespace(constant=np.array))
    assert tiny(["fox"], return_tensors="tf")["input_ids"].tolist() == [tiny.encode("fox")]
    monkeypatch.setitem(sys.modules, "tensorflow", None)  # as if it were not
    with pytest.raises(MissingExtraError, match="needs TensorFlow"):
        tiny("fox", return_tensors="tf")


def test_pad_by_hand(tiny: TokenizerBase) -> None:
    torch = pytest.importorskip("torch")
    rows = [tiny(LONG), tiny(SHORT)]
    assert dict(tiny.pad(rows)) == dict(tiny([LONG, SHORT], padding=True))
    padded = tiny.pad({"input_ids": [[2, 9, 3], [2, 3]]}, return_tensors="pt")
    assert padded["input_ids"].tolist() == [[2, 9, 3], [2, 3, 0]]
    assert padded["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]
    assert tiny.pad({"input_ids": [2, 3]}, padding="max_length", max_length=4)["input_ids"] == [2, 3, 0, 0]
    assert tiny.pad({"input_ids": torch.tensor([[2, 3]])}, pad_to_multiple_of=4)["attention_mask"] == [
        [1, 1, 0, 0]
    ]
    with pytest.raises(TokenizerError, match="input_ids"):
        tiny.pad({"ids": [[1]]})


def test_ids_that_exist_already(tiny: TokenizerBase) -> None:
    ids = tiny.encode(SHORT, add_special_tokens=False)
    assert tiny.prepare_for_model(ids) == tiny(SHORT)
    fitted = {"max_length": len(ids) + 6, "truncation": "only_second"}
    assert tiny.prepare_for_model(ids, ids, **fitted) == tiny(SHORT, SHORT, **fitted)
    assert tiny.encode(ids) == tiny.encode(SHORT)
    assert tiny.encode(tiny.tokenize(SHORT)) == tiny.encode(SHORT)
    assert tiny.truncate_sequences([10, 11, 12, 13], num_tokens_to_remove=2, stride=1) == (
        [10, 11],
        None,
        [11, 12, 13],
    )
    assert tiny.truncate_sequences([10, 11], [12, 13, 14], 1, "only_second") == ([10, 11], [12, 13], [14])


def test_masks_and_segments_of_the_layout(tiny: TokenizerBase) -> None:
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


def test_no_silent_cut_of_a_long_text(tiny: TokenizerBase, tiny_vocabulary: Path, caplog) -> None:
    fresh = type(tiny)(tiny_vocabulary, model_max_length=8)
    assert len(fresh.encode(LONG)) > 8
    assert "the maximum length is 8" in caplog.text
    caplog.clear()
    assert len(fresh.encode(LONG, truncation=True)) == 8
    assert len(type(tiny)(tiny_vocabulary, model_max_length=8).encode(LONG, verbose=False)) > 8
    assert caplog.text == ""


def test_a_length_that_truncates_unasked_is_said(tiny: TokenizerBase, tiny_vocabulary: Path, caplog) -> None:
    fresh = type(tiny)(tiny_vocabulary)
    for truncation, said in ((True, False), (None, True), (None, False)):  # once
        caplog.clear()
        assert len(fresh("a well-kept secret " * 9, max_length=10, truncation=truncation).input_ids) == 10
        assert ("truncates longer texts" in caplog.text) == said


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((None,), {}, "NoneType"),
        ((5,), {}, "int"),
        ((["a", None],), {}, "None"),
        ((b"bytes",), {}, "bytes"),
        ((["a", "b"], ["c"]), {}, "2 texts and 1"),
        (("a",), {"padding": "longst"}, "longst"),
        (("a",), {"truncation": "first"}, "first"),
        (("a",), {"return_tensors": "jx"}, "'pt', 'np' or 'tf'"),
        (("a",), {"max_length": 2, "truncation": True}, "no room"),
        ((LONG,), {"max_length": 8, "truncation": True, "stride": 6}, "stride=6"),
        ((LONG,), {"max_length": 8, "truncation": "only_second"}, "second text"),
        ((LONG, "a"), {"max_length": 8, "truncation": "only_second"}, "is not truncated"),
        (
            (LONG,),
            {"max_length": 9, "truncation": True, "padding": True, "pad_to_multiple_of": 8},
            "multiple",
        ),
        (("a\ud800b",), {}, "surrogate"),
        ((["a"] * 39 + ["a\ud800b"],), {}, r"the text '\S*a\\ud800b' contains a lone surrogate"),
        ((LONG,), {"max_length": 8, "truncation": True, "stride": -1}, "stride=-1: expected at least 0"),
        (("a",), {"padding": True, "pad_to_multiple_of": -8}, "pad_to_multiple_of=-8"),
        (("a",), {"padding": True, "padding_side": "up"}, "padding_side='up': expected one of left, right"),
        ((LONG, LONG), {"max_length": 4, "truncation": True}, "no room for one of the texts"),
    ],
)
def test_what_cannot_be_done_says_why(arguments, options, message: str, tiny: TokenizerBase) -> None:
    with pytest.raises(TokenizerError, match=message):
        tiny(*arguments, **options)


def test_unknown_arguments_are_errors(tiny: TokenizerBase, tiny_vocabulary: Path) -> None:
    with pytest.raises(TypeError, match="do_lowercase"):
        type(tiny)(tiny_vocabulary, do_lowercase=True)
    with pytest.raises(TypeError, match="return_tensor"):
        tiny("a", return_tensor="pt")


# ---- ids to text ----


def test_decoding(tokenizer: TokenizerBase) -> None:
    torch = pytest.importorskip("torch")
    ids = tokenizer.encode("Hello, I'm a [MASK] model. It is [MASK].")
    assert tokenizer.decode(ids) == "[CLS] hello, i'm a [MASK] model. it is [MASK].[SEP]"
    assert tokenizer.decode(ids, skip_special_tokens=True) == "hello, i'm a model. it is ."
    assert tokenizer.decode(torch.tensor([ids]), skip_special_tokens=True) == ["hello, i'm a model. it is ."]
    assert tokenizer.batch_decode([ids[:2], ids[-1:]]) == ["[CLS] hello", "[SEP]"]
    assert (
        tokenizer.decode(tokenizer.encode("it did n't . so", add_special_tokens=False)) == "it did n't . so"
    )
    cleaned = tokenizer.decode(
        tokenizer.encode("it did n't . so", add_special_tokens=False), clean_up_tokenization_spaces=True
    )
    assert cleaned == "it didn't. so"
    assert tokenizer.decode(14) == "the"
    assert tokenizer.convert_tokens_to_string(["▁the", "▁state", "-", "of"]) == "the state-of"


def test_special_tokens_are_joined_as_in_transformers(tokenizer: TokenizerBase, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer.save_pretrained(tmp_path)
    theirs = transformers.AlbertTokenizer.from_pretrained(tmp_path)
    for text in ("the cat", "it's the well-kept secret (again), for 12 or 5.", "a", ""):
        ids = [*tokenizer.encode(text), 0, 0]
        assert tokenizer.decode(ids) == theirs.decode(ids)
        assert tokenizer.decode(ids, skip_special_tokens=True) == theirs.decode(ids, skip_special_tokens=True)
    assert tokenizer.decode([2, *tokenizer.encode("the cat")[1:], 0, 0]) == "[CLS] the cat[SEP]<pad><pad>"
    assert tokenizer.decode([3, 0, 0]) == theirs.decode([3, 0, 0]) == "[SEP]<pad><pad>"


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
def test_spaces_beside_a_mask_come_back(text: str, tokenizer: TokenizerBase) -> None:
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_length_is_a_list_also_of_one_text(tiny: TokenizerBase, theirs) -> None:
    for texts in ("The captain", ["The captain"], ["The captain", "My sister lost"]):
        ours = tiny(texts, return_length=True)["length"]
        assert ours == theirs(texts, return_length=True)["length"]
    assert tiny("", return_length=True)["length"] == [2]


def test_a_deep_copy_knows_its_words(tiny: TokenizerBase) -> None:
    encoding = tiny("The captain lost", return_offsets_mapping=True)
    words = encoding.word_ids()
    copied = copy.deepcopy(encoding)
    assert copied == encoding
    assert copied.word_ids() == words
    copied["input_ids"].append(0)
    assert len(encoding["input_ids"]) == len(copied["input_ids"]) - 1


def test_tokens_and_ids(tokenizer: TokenizerBase) -> None:
    assert tokenizer.convert_tokens_to_ids("▁the") == 14
    assert tokenizer.convert_tokens_to_ids(["▁the", "no such piece", "[MASK]"]) == [14, 1, 4]
    assert tokenizer.convert_ids_to_tokens(14) == "▁the"
    assert tokenizer.convert_ids_to_tokens([2, 14, 3], skip_special_tokens=True) == ["▁the"]
    assert tokenizer.vocab_size == len(tokenizer) == len(tokenizer.get_vocab()) == 30_000
    assert tokenizer.get_vocab()["▁the"] == 14
    with pytest.raises(TokenizerError, match="30000"):
        tokenizer.convert_ids_to_tokens([30_000])
    for wrong in ([1.5], 1.5, None, ["a"], "abc"):
        for method in (tokenizer.convert_ids_to_tokens, tokenizer.decode):
            with pytest.raises(TokenizerError, match=r"Expected (ids, which are )?a? ?whole number"):
                method(wrong)


# ---- added tokens ----


def test_added_tokens(tiny: TokenizerBase, tiny_vocabulary: Path, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    grown = type(tiny)(tiny_vocabulary)
    assert grown.add_tokens(["Covid-19", "fox trot"]) == 2
    assert grown.add_tokens("Covid-19") == 0
    assert grown.add_special_tokens({"additional_special_tokens": ["<e1>", "</e1>"]}) == 2
    assert (len(grown), grown.vocab_size) == (tiny.vocab_size + 4, tiny.vocab_size)
    own = {"<pad>": 0, "<unk>": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
    new = {"Covid-19": 500, "fox trot": 501, "<e1>": 502, "</e1>": 503}
    assert grown.get_added_vocab() == grown.added_tokens_encoder == {**own, **new}
    assert list(grown.added_tokens_encoder.values()) == [0, 1, 2, 3, 4, 500, 501, 502, 503]
    ids = grown.encode("<e1>COVID-19</e1> and a fox trot", add_special_tokens=False)
    assert ids[:3] == [502, 500, 503]
    assert ids[-1] == 501
    assert 502 not in grown.encode("<e1> x", parse_special_tokens=False)
    assert 500 in grown.encode("covid-19", parse_special_tokens=False)
    assert grown.decode(ids, skip_special_tokens=True).startswith("Covid-19 and")
    assert grown.additional_special_tokens_ids == [502, 503]
    longer = type(tiny)(tiny_vocabulary, added_tokens={"ab": 500, "abc": 501})
    assert longer.encode("abcab", add_special_tokens=False) == [501, 500]  # the longest wins

    for cls in BOTH:
        grown.save_pretrained(tmp_path)
        again = cls.from_pretrained(tmp_path)
        assert again.get_added_vocab() == grown.get_added_vocab()
        assert again.additional_special_tokens == ["<e1>", "</e1>"]
        assert again.encode("<e1>COVID-19</e1> and a fox trot", add_special_tokens=False) == ids
    alone = AlbertTokenizerFast(tokenizer_file=tmp_path / "tokenizer.json")
    assert alone.encode("<e1>COVID-19</e1> and a fox trot", add_special_tokens=False) == ids
    assert alone.additional_special_tokens == ["<e1>", "</e1>"]


def test_a_role_can_be_given_to_another_token(
    tiny: TokenizerBase, tiny_vocabulary: Path, tmp_path: Path
) -> None:
    grown = type(tiny)(tiny_vocabulary)
    grown.pad_token = "[PAD]"
    assert (grown.pad_token, grown.pad_token_id, len(grown)) == ("[PAD]", 500, 501)
    assert grown(["fox", SHORT], padding=True)["input_ids"][0][-1] == 500
    grown.save_pretrained(tmp_path)
    assert type(tiny).from_pretrained(tmp_path).pad_token_id == 500
    with pytest.raises(TokenizerError, match="padd_token"):
        grown.add_special_tokens({"padd_token": "x"})


def test_an_unknown_argument_is_named_with_the_nearest(tiny_vocabulary: Path) -> None:
    with pytest.raises(TypeError, match=r"no argument 'max_lenght'\. Did you mean 'max_length'\?"):
        AlbertTokenizer(tiny_vocabulary)("text", max_lenght=3)  # type: ignore[call-arg]
