"""Tests of offsets: they refer to the original text, despite normalization and the rule for digits."""

import os
import pickle
import random
import time
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from albertkit.errors import TokenizerError
from albertkit.tokenization.model_file import CONTROL, UNKNOWN, WORD_START, read_model
from albertkit.tokenization.normalization import Normalization, align
from albertkit.tokenization.tokenizer import AlbertTokenizer
from albertkit.tokenization.unigram import UnigramModel

RULES = [
    Normalization(do_lower_case=lower, remove_space=space, keep_accents=accents)
    for lower in (True, False)
    for space in (True, False)
    for accents in (True, False)
]

# Characters that make offsets difficult: normalization changes their number, or moves spaces.
AWKWARD = "aE1,2 \u00a0\t\n\u3000\u200b'`\"-.(\u2013é\u0301\u0323½ﬃ\u0130Σ\u03c2ßǄ\u1e9e\u212b"
AWKWARD += "\x01\ufeff\u4e94\u0663가ᄀ\U0001f600▁"
BLOCKS = [(32, 126), (0, 0x24F), (0x300, 0x36F), (0x370, 0x1FFF), (0x2000, 0x2BFF), (0x3000, 0x30FF)]
BLOCKS += [(0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xF900, 0xFFFF), (0x10000, 0x1FFFF), (0, 0x10FFFF)]
CASES = int(os.environ.get("ALBERTKIT_FUZZ_CASES", "300"))
# Not st.text, which merges the two alphabets into one, of which nearly no character is awkward.
texts = st.lists(
    st.one_of(st.sampled_from(AWKWARD), st.characters(exclude_categories=["Cs"])), max_size=30
).map("".join)


@pytest.fixture(scope="module")
def models(tiny_vocabulary: Path) -> dict[Normalization, UnigramModel]:
    """Return a model for each combination of the settings."""
    return {rules: UnigramModel(tiny_vocabulary, rules) for rules in RULES}


@settings(max_examples=300)
@given(text=texts, rules=st.sampled_from(RULES))
def test_every_piece_covers_its_characters(models, text: str, rules: Normalization) -> None:
    encoder = models[rules]
    pieces = encoder.pieces(text)
    spans = encoder.spans(text)
    assert [piece for piece, _, _ in spans] == pieces

    starts, ends = [start for _, start, _ in spans], [end for _, _, end in spans]
    assert starts == sorted(starts)
    assert ends == sorted(ends)
    for index, (piece, start, end) in enumerate(spans):
        assert 0 <= start <= end <= len(text)
        body = _body(piece)
        if not body:
            assert start == end
            continue
        alone = _body("".join(encoder.pieces(text[start:end])))
        # If a character becomes several, pieces overlap: each of them covers the character.
        overlaps = start < max([0, *ends[:index]]) or end > min([len(text), *starts[index + 1 :]])
        assert body in alone if overlaps else body == alone


def _body(piece: str) -> str:
    """Return the characters of a piece without the start of a word, and with one form of sigma."""
    return piece.replace(WORD_START, "").replace("\u03c2", "\u03c3")


@settings(max_examples=300)
@given(text=texts, rules=st.sampled_from(RULES))
def test_alignment_is_the_twin_of_normalization(text: str, rules: Normalization) -> None:
    normalized, starts, ends = align(text, rules)
    assert normalized == rules(text)
    assert len(starts) == len(ends) == len(normalized)
    assert starts == sorted(starts)
    assert ends == sorted(ends)
    assert all(0 <= start < end <= len(text) for start, end in zip(starts, ends, strict=True))
    # No character is lost between two others, or at the end: a removed one belongs to the one before it.
    assert all(start <= end for start, end in zip(starts[1:], ends, strict=False))
    if normalized:
        assert ends[-1] == len(text.rstrip() if rules.remove_space else text)


@settings(max_examples=200)
@given(batch=st.lists(texts, max_size=20), rules=st.sampled_from(RULES))
def test_the_fast_path_returns_the_ids_of_the_pieces(models, batch: list[str], rules: Normalization) -> None:
    encoder = models[rules]
    to_id = encoder.processor.piece_to_id
    # Unknown characters can spell a control token. Their id is that of the unknown token.
    plain = [[1 if to_id(piece) < 5 else to_id(piece) for piece in encoder.pieces(text)] for text in batch]
    assert encoder.ids_batch(batch) == encoder.ids_batch(batch, num_threads=1) == plain
    assert [encoder.ids(text) for text in batch] == plain


@settings(max_examples=300)
@given(text=st.text(st.characters(max_codepoint=127), max_size=30), rules=st.sampled_from(RULES))
def test_the_fast_path_for_ascii_equals_its_twin(text: str, rules: Normalization) -> None:
    for variant in (text, f"{text}  {text}\t", f"``{text}''"):
        assert rules(variant) == rules.plain(variant)


@settings(max_examples=100)
@given(st.text(st.sampled_from("\u0301\u0323\u0f73\u0344가\ufdfaéa "), min_size=200, max_size=800))
def test_long_runs_of_marks_are_removed(text: str) -> None:
    decomposed = unicodedata.normalize("NFKD", text)
    expected = "".join(character for character in decomposed if not unicodedata.combining(character))
    rules = Normalization(remove_space=False, do_lower_case=False)
    assert rules.plain(text) == expected


def test_long_runs_of_marks_are_removed_in_linear_time() -> None:
    start = time.process_time()
    assert Normalization()("a" + "\u0301" * 50_000 + "\u0323" * 50_000) == "a"  # sorting them takes minutes
    assert time.process_time() - start < 5


def test_threads_keep_the_order_of_a_batch(models) -> None:
    encoder = models[RULES[0]]
    batch = [f" Text {number:,} of {number % 7}  d\u00e9j\u00e0 vu" for number in range(1_300)]
    expected = [encoder.ids(text) for text in batch]
    assert encoder.ids_batch(batch, num_threads=2) == expected
    assert encoder.ids_batch(batch, num_threads=1) == expected
    with pytest.raises(TokenizerError, match=r"the text '\\ud800' contains a lone surrogate"):
        encoder.ids_batch([*batch[:1_290], "\ud800", *batch], num_threads=2)


def test_offsets_and_word_ids_of_an_example(shared: Path) -> None:
    tokenizer = AlbertTokenizer(shared / "data" / "spiece.model")
    text = "  \u0130stanbul  in  1990, x\u200b½ ``a'' "
    encoded = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
    covered = [
        (token, text[start:end])
        for token, (start, end) in zip(encoded.tokens(), encoded.offset_mapping, strict=True)
    ]
    assert covered == [
        *[("▁istanbul", "\u0130stanbul"), ("▁in", "in"), ("▁1990", "1990"), (",", ","), ("▁x", "x")],
        *[("▁1", "½"), ("<unk>", "½"), ("2", "½")],
        *[("▁", ""), ('"', "``"), ("a", "a"), ('"', "''")],
    ]
    assert encoded.word_ids() == [0, 1, 2, 2, 3, 4, 4, 4, 5, 5, 5, 5]


def test_offsets_with_special_tokens_and_pairs(shared: Path) -> None:
    tokenizer = AlbertTokenizer(shared / "data" / "spiece.model")
    first, second = "Hello  [MASK] wörld", "And  1990, too"
    encoded = tokenizer(first, second, return_offsets_mapping=True)
    for index, (token, sequence) in enumerate(zip(encoded.tokens(), encoded.sequence_ids(), strict=True)):
        span = encoded.token_to_chars(index)
        if sequence is None:
            assert span is None
            assert encoded.offset_mapping[index] == (0, 0)
        else:
            covered = (first, second)[sequence][span.start : span.end]
            assert tokenizer.tokenize(covered)[-1].removeprefix("▁") == token.removeprefix("▁")
    assert encoded.tokens()[encoded.char_to_token(first.index("wörld") + 3)] == "▁world"
    assert encoded.tokens()[encoded.char_to_token(second.index(","), sequence_index=1)] == ","
    assert encoded.char_to_token(5) is None  # a space
    assert encoded.char_to_word(first.index("[")) == 1
    assert encoded.word_to_chars(2) == (first.index("wörld"), len(first))
    assert encoded.word_to_tokens(1, sequence_index=1) == (6, 8)
    assert encoded.token_to_sequence(0) is None
    assert encoded.token_to_word(1) == 0


def test_offsets_of_windows(shared: Path) -> None:
    tokenizer = AlbertTokenizer(shared / "data" / "spiece.model")
    question, context = "Who?", "The captain, in 1847, lost a silver key near the old harbour. " * 4
    windows = tokenizer(
        *(question, context),
        max_length=24,
        truncation="only_second",
        stride=6,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        padding="max_length",
    )
    expected = tokenizer(context, return_offsets_mapping=True, add_special_tokens=False)
    actual = set()
    for index in range(len(windows["input_ids"])):
        for token, sequence, offset in zip(
            windows["input_ids"][index],
            windows.sequence_ids(index),
            windows["offset_mapping"][index],
            strict=True,
        ):
            if sequence == 1:
                actual.add((token, offset))
    assert actual == set(zip(expected["input_ids"], expected["offset_mapping"], strict=True))
    assert len(windows["input_ids"]) > 3
    assert windows[0].overflowing[0].ids == windows["input_ids"][1]


@settings(max_examples=80)
@given(
    first=st.one_of(texts, st.lists(texts, max_size=5)),
    second=texts,
    side=st.sampled_from(["left", "right"]),
    special=st.booleans(),
)
def test_lookups_agree_with_the_columns(tokenizer: AlbertTokenizer, first, second, side, special) -> None:
    is_split = isinstance(first, list)
    encoded = tokenizer(
        *([first], [[second] if is_split else second]),
        is_split_into_words=is_split,
        add_special_tokens=special,
        max_length=16,
        stride=2,
        truncation="longest_first",
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        padding="max_length",
        padding_side=side,
    )
    for row, offsets in enumerate(encoded["offset_mapping"]):
        sequences, words = encoded.sequence_ids(row), encoded.word_ids(row)
        for token, sequence in enumerate(sequences):
            assert encoded.token_to_sequence(row, token) == sequence
            assert encoded.token_to_word(row, token) == words[token]
            assert encoded.token_to_chars(row, token) == (None if sequence is None else offsets[token])
            assert encoded.token_to_word(row, token - 16) == words[token]
        with pytest.raises(IndexError):
            encoded.token_to_chars(row, 16)
        for sequence in (0, 1, 2):
            tokens = [index for index, number in enumerate(sequences) if number == sequence]
            for char in range(-1, 32):
                covering = [token for token in tokens if offsets[token][0] <= char < offsets[token][1]]
                assert encoded.char_to_token(row, char, sequence) == (covering[0] if covering else None)
                assert encoded.char_to_word(row, char, sequence) == (words[covering[0]] if covering else None)
            for word in range(-1, 32):
                ours = [token for token in tokens if words[token] == word]
                span = (ours[0], ours[-1] + 1) if ours else None
                assert encoded.word_to_tokens(row, word, sequence) == span
                chars = (offsets[ours[0]][0], offsets[ours[-1]][1]) if ours else None
                assert encoded.word_to_chars(row, word, sequence) == chars


def test_lookups_do_not_search_the_row(tokenizer: AlbertTokenizer) -> None:
    encoded = tokenizer("the old captain lost a silver key " * 2_000)
    start = time.process_time()
    for index in range(1, 10_000):
        encoded.token_to_chars(index)
        encoded.token_to_word(index)
        encoded.char_to_word(index)
        encoded.word_to_chars(index)
    assert time.process_time() - start < 5  # searching takes minutes


def test_a_removed_accent_belongs_to_the_piece_before_it() -> None:
    text = "cliche\u0301 cliche\u0301\u0302."
    encoded = AlbertTokenizer.from_pretrained("bundled")(
        text, add_special_tokens=False, return_offsets_mapping=True
    )
    assert encoded.tokens() == ["▁cli", "che", "▁cli", "che", "."]
    assert encoded["offset_mapping"] == [(0, 3), (3, 7), (8, 11), (11, 16), (16, 17)]
    assert [encoded.char_to_token(position) for position in (5, 6)] == [encoded.char_to_token(5)] * 2
    assert text[slice(*encoded.word_to_chars(0))] == "cliche\u0301"
    assert encoded.char_to_token(13) == encoded.char_to_token(14) == encoded.char_to_token(15)


def test_encodings_without_words_and_labels(tiny_vocabulary: Path) -> None:
    tokenizer = AlbertTokenizer(tiny_vocabulary)
    encoded = pickle.loads(pickle.dumps(tokenizer("An old fox")))
    assert encoded == tokenizer("An old fox")
    with pytest.raises(TokenizerError, match="unpickled"):
        encoded.word_ids()
    with pytest.raises(AttributeError, match="labels"):
        _ = tokenizer("fox").labels


def random_text(rng: random.Random, pieces: list[str]) -> str:
    """Return up to 80 parts: awkward characters, pieces, numbers with commas, and any characters."""
    parts = []
    for _ in range(rng.randrange(rng.choice((3, 10, 30, 80)))):
        kind = rng.random()
        if kind < 0.25:
            parts.append(rng.choice(AWKWARD))
        elif kind < 0.55:
            parts.append(rng.choice(pieces).replace(WORD_START, " "))
        elif kind < 0.6:
            parts.append(f"{rng.randrange(10 ** rng.randrange(1, 7)):,},")
        else:
            character = chr(rng.randint(*rng.choice(BLOCKS)))
            parts.append("" if unicodedata.category(character) == "Cs" else character)
    return "".join(parts)


# ALBERTKIT_FUZZ_CASES=100000 pytest tests/tokenization/test_tokenizer_offsets.py -k rust_library
def test_ids_from_a_converted_tokenizer_json_equal_those_of_the_rust_library(
    shared: Path, tmp_path: Path
) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    original = AlbertTokenizer(shared / "data" / "spiece.model")
    original.save_pretrained(tmp_path)
    converted = AlbertTokenizer(tokenizer_file=tmp_path / "tokenizer.json")._model
    table = read_model(converted.content).pieces
    scores = [  # a normalized text contains no spaces, so it cannot match these
        (f" {piece.piece}" if piece.type in (CONTROL, UNKNOWN) else piece.piece, piece.score)
        for piece in table
    ]
    unk_id = [piece.type for piece in table].index(UNKNOWN)
    library = tokenizers.Tokenizer(tokenizers.models.Unigram(scores, unk_id=unk_id))
    rng, pieces = random.Random(0), [piece.piece for piece in table]
    different = 0
    for _ in range(CASES):
        text = random_text(rng, pieces)
        assert converted.ids(text) == original._model.ids(text)
        assert converted.spans(text) == original._model.spans(text)
        normalized = converted.normalization(text)
        ids = converted.processor.encode(normalized)
        theirs = library.encode(converted.processor.normalize(normalized)).ids
        if ids != theirs:  # the libraries add scores in different precision
            score, other = (sum(table[token_id].score for token_id in row) for row in (ids, theirs))
            assert score == pytest.approx(other, abs=1e-3)
            different += 1
    assert different <= CASES / 5_000
