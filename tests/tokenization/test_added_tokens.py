"""Tests of added tokens and special tokens, with random tokens and texts."""

import json
import random
import string
import time
from pathlib import Path

import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st

from albertkit.errors import TokenizerError
from albertkit.tokenization.special_tokens import SpecialTokens, fold
from albertkit.tokenization.tokenizer import AlbertTokenizer
from albertkit.tokenization.wordpiece import AlbertWordPieceTokenizer

# Characters whose upper and lower case differ in length, or that fold to letters of another alphabet.
AWKWARD = "iI\u0131\u0130sS\u017f\u00df\u1e9ekK\u212a\u03c3\u03c2\u03a3\u00e5"
AWKWARD += "\u212b\u00b5\u03bc\ufb00\u0149\u0390\u01c6\u01c5\u0345\u0307\u0301 aA-"
characters = st.one_of(st.sampled_from(AWKWARD), st.characters(exclude_categories=["Cs"]))


def texts(**sizes: int) -> st.SearchStrategy[str]:
    # Not st.text, which merges the two alphabets into one, of which nearly no character is awkward.
    return st.lists(characters, **sizes).map("".join)


words = texts(min_size=1, max_size=6)
CASES = (str, str.lower, str.upper, str.title, str.swapcase, str.casefold, fold)
WORD_PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *string.ascii_lowercase]
WORD_PIECES += [f"##{letter}" for letter in string.ascii_lowercase] + ["ing", "##ing"]


@pytest.fixture(scope="module")
def files(tiny_vocabulary: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[type, Path]:
    """Return the file of a vocabulary for each class."""
    word_list = tmp_path_factory.mktemp("words") / "vocab.txt"
    word_list.write_text("\n".join(WORD_PIECES))
    return {AlbertTokenizer: tiny_vocabulary, AlbertWordPieceTokenizer: word_list}


classes = pytest.mark.parametrize("cls", [AlbertTokenizer, AlbertWordPieceTokenizer])


@classes
@settings(max_examples=150)
@given(
    added=st.lists(words, min_size=1, max_size=3),
    filler=st.lists(texts(max_size=5), min_size=4, max_size=4),
    case=st.sampled_from(CASES),
    special=st.booleans(),
    parse=st.booleans(),
    lower=st.booleans(),
)
@example(["kiwistan"], ["", " k\u0131wistan kiwi\u017ftan", "", ""], str, False, True, True)
@example(["ing"], ["x ", " kings rings", "", ""], str.upper, False, False, True)
@example(["aaaaa", "AAAAA"], ["", " ", "", ""], str, False, True, True)
def test_added_tokens_in_random_texts(cls, files, added, filler, case, special, parse, lower) -> None:
    tokenizer = cls(files[cls], do_lower_case=lower)
    tokenizer.add_tokens(added, special_tokens=special)
    text = case("".join(part for pair in zip(filler, [*added, ""], strict=False) for part in pair))
    ids = tokenizer.encode(text, add_special_tokens=False, parse_special_tokens=parse)
    encoding = tokenizer(
        text, add_special_tokens=False, parse_special_tokens=parse, return_offsets_mapping=True
    )
    assert encoding["input_ids"] == ids
    pieces = tokenizer.tokenize(text, parse_special_tokens=parse)
    assert len(pieces) == len(encoding["offset_mapping"]) == len(ids)
    assert encoding["offset_mapping"] == sorted(encoding["offset_mapping"])
    by_id = {token_id: token for token, token_id in tokenizer.added_tokens_encoder.items()}
    same = fold if lower and not special else str
    num_matches = 0
    for token_id, piece, (start, end) in zip(ids, pieces, encoding["offset_mapping"], strict=True):
        assert 0 <= start <= end <= len(text)
        if by_id.get(token_id) in added:
            num_matches += 1
            # If the token is also a piece, the tokenizer may take it from a text with accents.
            if token_id >= tokenizer.vocab_size:
                assert start < end
                assert same(text[start:end]) == same(by_id[token_id])
                assert piece == by_id[token_id]
    roles = any(token in text for token in cls.default_roles.values())  # they match first
    if same(added[0]) in same(text) and (parse or not special) and len(added) == 1 and not roles:
        assert num_matches


@classes
def test_tokens_that_differ_only_in_case(cls, files) -> None:
    tokenizer = cls(files[cls])
    assert tokenizer.add_tokens(["aaaaa bbb", "AAAAA BBB", "Aaaaa Bbb"]) == 1
    assert tokenizer.convert_tokens_to_ids("AAAAA BBB") == tokenizer.vocab_size
    for text in ("x aaaaa bbb", "x AAAAA BBB"):
        assert tokenizer.tokenize(text)[-1] == "aaaaa bbb"
    cased = cls(files[cls], do_lower_case=False)
    assert cased.add_tokens(["aaaaa", "AAAAA"]) == 2
    assert cased.tokenize("AAAAA")[-1] != cased.tokenize("aaaaa")[-1]


@classes
def test_a_piece_as_an_added_token(cls, files) -> None:
    tokenizer = cls(files[cls])
    tokenizer.add_tokens(["ing"])
    assert tokenizer.tokenize("x ING")[-1] == "ing"
    encoding = tokenizer("kings rings", parse_special_tokens=False, return_offsets_mapping=True)
    assert [
        token
        for token, span in zip(encoding.tokens(), encoding["offset_mapping"], strict=True)
        if span == (1, 4)
    ] == ["ing"]
    assert len(encoding["offset_mapping"]) == len(encoding["input_ids"])


@classes
def test_both_files_describe_an_added_token_alike(cls, files, tmp_path: Path) -> None:
    tokenizer = cls(files[cls])
    tokenizer.add_tokens(["foxtrot"])
    tokenizer.add_special_tokens({"extra_special_tokens": ["<x>"]})
    tokenizer.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())["added_tokens_decoder"]
    theirs = json.loads((tmp_path / "tokenizer.json").read_text())["added_tokens"]
    assert {str(token.pop("id")): token for token in theirs} == config
    decoder = tokenizer.added_tokens_decoder
    assert {number: vars_of(token) for number, token in decoder.items()} == {
        int(number): token for number, token in config.items()
    }


@classes
def test_a_token_added_after_saving_is_saved(cls, files, tmp_path: Path) -> None:
    tokenizer = cls(files[cls])
    tokenizer.save_pretrained(tmp_path)
    before = (tmp_path / "tokenizer.json").read_bytes()
    tokenizer.save_pretrained(tmp_path)
    assert (tmp_path / "tokenizer.json").read_bytes() == before
    tokenizer.add_tokens(["foxtrot"])
    tokenizer.save_pretrained(tmp_path)
    assert "foxtrot" in (tmp_path / "tokenizer.json").read_text(encoding="utf-8")


def vars_of(token: tokenizers.AddedToken) -> dict:
    return {name: value for name, value in token.__getstate__().items() if name != "__type"}


@classes
def test_additional_special_tokens_are_replaced(cls, files) -> None:
    tokenizer = cls(files[cls])
    assert tokenizer.add_special_tokens({"additional_special_tokens": ["<a>", "<b>"]}) == 2
    assert tokenizer.add_special_tokens({"additional_special_tokens": ["<c>"]}) == 1
    assert tokenizer.extra_special_tokens == tokenizer.additional_special_tokens == ["<c>"]
    assert "<a>" in tokenizer.tokenize("x<a>")  # still a token, but no longer special
    assert "<a>" in tokenizer.decode(tokenizer.encode("x<a><c>"), skip_special_tokens=True)
    tokenizer.add_special_tokens({"extra_special_tokens": ["<d>"]}, replace_extra_special_tokens=False)
    assert tokenizer.extra_special_tokens == ["<c>", "<d>"]
    tokenizer.extra_special_tokens = ["<e>"]
    assert tokenizer.extra_special_tokens_ids == [tokenizer.vocab_size + 4]
    tokenizer.add_tokens(["<f>"], special_tokens=True)
    assert tokenizer.extra_special_tokens == ["<e>", "<f>"]


@classes
def test_roles_without_a_token(cls, files, tmp_path: Path) -> None:
    tokenizer = cls(files[cls])
    tokenizer.pad_token = None
    tokenizer.bos_token_id = None
    assert (tokenizer.pad_token, tokenizer.pad_token_id, tokenizer.bos_token) == (None, None, None)
    assert "pad_token" not in tokenizer.special_tokens_map
    ids = tokenizer("a b")["input_ids"]
    with pytest.raises(TokenizerError, match="no pad_token"):
        tokenizer(["a", "a b"], padding=True)
    with pytest.raises(TokenizerError, match="no pad_token"):
        tokenizer.pad([{"input_ids": ids}])
    tokenizer.save_pretrained(tmp_path)
    assert cls.from_pretrained(tmp_path).pad_token is None
    tokenizer.cls_token = None
    for call in (tokenizer, tokenizer.encode, tokenizer.build_inputs_with_special_tokens):
        with pytest.raises(TokenizerError, match="no cls_token"):
            call("ab" if call != tokenizer.build_inputs_with_special_tokens else [5])
    assert tokenizer.encode("a b", add_special_tokens=False) == ids[1:-1]
    tokenizer.unk_token = None
    assert tokenizer.convert_tokens_to_ids("no such piece") is None


@classes
def test_roles_of_tokens_that_are_not_in_the_vocabulary(cls, files, tmp_path: Path) -> None:
    cls(files[cls]).save_pretrained(tmp_path)
    tokenizer = cls.from_pretrained(tmp_path, eos_token="[NEW]", pad_token="[PADDING]")
    assert (tokenizer.eos_token_id, tokenizer.pad_token_id) == (
        tokenizer.vocab_size,
        tokenizer.vocab_size + 1,
    )
    assert tokenizer.tokenize("a[NEW]")[-1] == "[NEW]"
    assert tokenizer.sep_token_id == 3
    assert tokenizer(["a", "a b"], padding=True)["input_ids"][0][-1] == tokenizer.pad_token_id
    tokenizer.save_pretrained(tmp_path)
    assert cls.from_pretrained(tmp_path).pad_token_id == tokenizer.vocab_size + 1
    with pytest.raises(TokenizerError, match="padd_token"):
        tokenizer.add_special_tokens({"padd_token": "x"})


@classes
def test_many_added_tokens(cls, files) -> None:
    rng = random.Random(0)
    added = ["".join(rng.choices("abcxyz", k=rng.randint(5, 12))) for _ in range(20_000)]
    tokenizer = cls(files[cls])
    start = time.process_time()
    for token in added[:10_000]:
        tokenizer.add_tokens(token)
    tokenizer.add_tokens(added[10_000:])
    ids = tokenizer.encode(" ".join(added), add_special_tokens=False)
    for _ in range(100):
        decoded = tokenizer.decode(ids[:20])
    assert time.process_time() - start < 4  # quadratic searches take longer
    tokens = [token for token in tokenizer.convert_ids_to_tokens(ids) if token != "▁"]
    assert decoded == " ".join(tokens[: len(decoded.split())])
    assert tokens == added


@given(
    added=st.lists(st.text("ab.", min_size=1, max_size=5), min_size=1, max_size=8, unique=True),
    text=st.text("ab.", max_size=30),
)
def test_the_leftmost_longest_token_matches(added: list[str], text: str) -> None:
    tokens = SpecialTokens(size=5, ignore_case=False, token_to_id=lambda _: None)
    for token in added:
        tokens.add(token)
    found = [
        part.text for part in tokens.split(text, parse_special_tokens=False) if part.token_id is not None
    ]
    expected, position = [], 0
    while position < len(text):
        longest = max((token for token in added if text.startswith(token, position)), key=len, default="")
        expected += [longest] if longest else []
        position += len(longest) or 1
    assert found == expected


@classes
def test_letters_with_unusual_case_folding(cls, files) -> None:
    tokenizer = cls(files[cls])
    tokenizer.add_tokens(["kiwistan", "straße"])
    new = tokenizer.vocab_size
    assert new in tokenizer.encode("a kiwi\u017ftan")
    assert new in tokenizer.encode("a \u212aIWISTAN")
    assert new not in tokenizer.encode("a k\u0131wistan")
    assert new + 1 in tokenizer.encode("STRAẞE")
    assert new + 1 not in tokenizer.encode("STRASSE")
