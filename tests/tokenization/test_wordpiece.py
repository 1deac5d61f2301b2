"""WordPiece vocabularies: against transformers' BertTokenizer; files, pipelines and conversions."""

import json
import pickle
import random
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers

import albertkit
from albertkit import (
    AlbertConfig,
    AlbertForMaskedLM,
    AlbertTokenizer,
    AlbertTokenizerFast,
    AlbertWordPieceTokenizer,
    AutoTokenizer,
    CheckpointError,
    ConfigError,
    ModelNotFoundError,
    TokenizerError,
)
from albertkit.conversion import convert
from albertkit.tokenization import wordpiece
from albertkit.tokenization.normalization import BertNormalization
from albertkit.tokenization.wordpiece import CharacterTable

HAN = "今天气很好我喜欢北京大学生活的真谛是爱不一二三中国人民银行长龍龜"
WORDS = "the an fox word words run ##ning play ##ed ##ing albert is good cafe naive un ##aff ##able"
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
MARKS = ".,;:!?()[]'\"-/@#$%&*。，、！？「」（）《》"  # noqa: RUF001
# As the Chinese models have it: padding first, unused places, then the other special tokens.
PIECES = (
    *("[PAD]", *(f"[unused{number}]" for number in range(1, 20)), "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *(*HAN, *MARKS, *LETTERS, *(f"##{letter}" for letter in LETTERS), *WORDS.split()),
    *("The", "É", "é", "##é", "ü", "##Ü", "Fox", "㐀", "𠀀", "한국", "한", "##국", "ア", "##イ", "ー"),
)
TEXTS = [
    "",
    " ",
    "\n\t \u3000",
    "今天天气很好。",
    "我喜欢Albert和北京大学!",
    "the fox is running, unaffable; words-words",
    "  The   Café\tnaïve ÉÉ é e\u0301 Ü  ",
    "生活的真谛是[MASK]。",
    "[CLS]a[SEP] [PAD] [UNK] [mask] [MASK][MASK]x",
    "[unused3] is [unused 3]",
    "㐀𠀀龍\U0002f800한국 アイー ﾊﾝ",
    "x" * 101 + " " + "a" * 100,
    "emoji 👩‍👩‍👧 ☃ flags 🇩🇪, zero\u200bwidth \ufeffmark \u00adsoft \x00\x07control \ufffd",
    "İstanbul ǅ ß ﬃ ① ½ ᾳ ϒ",  # noqa: RUF001
    "don't U.S.A. 1,000.5 a_b c/d #hash @me ##ing",
]


CHARACTERS = CharacterTable(BertNormalization())


@cache
def differs_in_the_rust_library(characters: str) -> bool:
    """Return whether the Rust library finds other words than we do around any of the characters."""
    text = " ".join(f"a{character}b" for character in characters)
    normalizer = tokenizers.normalizers.BertNormalizer()
    words = tokenizers.pre_tokenizers.BertPreTokenizer()
    theirs = [word for word, _ in words.pre_tokenize_str(normalizer.normalize_str(text))]
    return theirs != text.translate(CHARACTERS).split()


def test_few_characters_differ_in_the_rust_library() -> None:
    """The original has the categories of Python's Unicode, as we have; the Rust library has Unicode 8."""
    different = [
        character
        for start in range(0, 0x110000, 64)
        if differs_in_the_rust_library(block := "".join(map(chr, assigned(start, start + 64))))
        for character in block
        if differs_in_the_rust_library(character)
    ]
    assert len(different) < 0.005 * 140_000
    assert all(unicodedata.ucd_3_2_0.category(one) != unicodedata.category(one) for one in different)


def assigned(start: int, stop: int) -> list[int]:
    return [code for code in range(start, stop) if unicodedata.category(chr(code)) not in ("Cn", "Cs", "Co")]


def random_texts(count: int, seed: int) -> list[str]:
    """Texts of the vocabulary's pieces, of any characters, and of both."""
    rng = random.Random(seed)

    def character() -> str:
        kind = rng.random()
        if kind < 0.35:
            return rng.choice(HAN + LETTERS + MARKS + "    ÉÜ")
        if kind < 0.5:
            return rng.choice([piece.removeprefix("##") for piece in PIECES])
        if kind < 0.85:
            return chr(rng.randrange(0x20, 0x3000))
        while 0xD800 <= (code := rng.randrange(0x110000)) < 0xE000:
            pass
        return chr(code)

    def known() -> str:
        while differs_in_the_rust_library(drawn := character()):
            pass
        return drawn

    return ["".join(known() for _ in range(rng.randrange(40))) for _ in range(count)]


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a vocab.txt and nothing else."""
    folder = tmp_path_factory.mktemp("wordpiece")
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in PIECES), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def ours(vocabulary: Path) -> AlbertWordPieceTokenizer:
    tokenizer = AutoTokenizer.from_pretrained(vocabulary)
    assert isinstance(tokenizer, AlbertWordPieceTokenizer)
    return tokenizer


@pytest.fixture(scope="module")
def theirs(vocabulary: Path) -> Any:
    return transformers.BertTokenizer.from_pretrained(vocabulary, model_max_length=512)


RULES = [
    {},
    {"do_lower_case": False},
    {"strip_accents": False},
    {"do_lower_case": False, "strip_accents": True},
    {"tokenize_chinese_chars": False},
]


@pytest.mark.parametrize("rules", RULES, ids=str)
def test_ids_offsets_and_words_are_those_of_transformers(vocabulary: Path, rules: dict[str, bool]) -> None:
    ours = AlbertWordPieceTokenizer.from_pretrained(vocabulary, **rules)
    theirs = transformers.BertTokenizer.from_pretrained(vocabulary, **rules)
    texts = TEXTS + random_texts(600, seed=1)
    expected = theirs(texts, return_offsets_mapping=True, return_special_tokens_mask=True)
    got = ours(texts, return_offsets_mapping=True, return_special_tokens_mask=True)
    for name in expected:
        for text, one, other in zip(texts, got[name], expected[name], strict=True):
            assert [tuple(x) if isinstance(x, (list, tuple)) else x for x in one] == other, (name, text)
    for index in range(len(TEXTS)):
        assert got.tokens(index) == expected.tokens(index)
        assert ours.tokenize(texts[index]) == theirs.tokenize(texts[index])
    plain = [index for index, text in enumerate(texts) if "[" not in text]
    assert [got.word_ids(index) for index in plain] == [expected.word_ids(index) for index in plain]


def test_real_texts(shared: Path, vocabulary: Path) -> None:
    texts = [
        paragraph["context"] + " " + question["question"]
        for language in ("zh", "en", "ru")
        for article in json.loads((shared / "data" / "xquad" / f"xquad.{language}.json").read_text())["data"]
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"][:1]
    ][::3]
    assert len(texts) == 240
    pieces = [*PIECES, *sorted({c for text in texts for c in text if not c.isspace()} - set(PIECES))]
    folder = vocabulary / "real"
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(pieces), encoding="utf-8")
    ours = AutoTokenizer.from_pretrained(folder)
    theirs = transformers.BertTokenizer.from_pretrained(folder)
    options: dict[str, Any] = {"truncation": True, "max_length": 256, "return_offsets_mapping": True}
    got, expected = ours(texts, **options), theirs(texts, **options)
    assert got["input_ids"] == expected["input_ids"]
    assert got["offset_mapping"] == expected["offset_mapping"]


FORMS: list[dict[str, Any]] = [
    {"padding": True, "truncation": True, "max_length": 12},
    {"padding": "max_length", "max_length": 40, "truncation": "only_second"},
    {"truncation": True, "max_length": 11, "stride": 2, "return_overflowing_tokens": True, "padding": True},
    {"add_special_tokens": False},
    {"padding": True, "padding_side": "left", "pad_to_multiple_of": 8},
]


@pytest.mark.parametrize("options", FORMS, ids=str)
def test_pairs_windows_and_padding(ours: Any, theirs: Any, options: dict[str, Any]) -> None:
    first = ["今天天气很好", "the fox", "我"]
    second = ["the fox is running, words!", "北京大学生活的真谛", "我喜欢 words"]
    got = ours(first, second, return_offsets_mapping=True, **options)
    expected = theirs(first, second, return_offsets_mapping=True, **options)
    assert dict(got) == dict(expected)
    assert got["token_type_ids"][0].count(1) > 0


def test_texts_that_are_split_into_words(ours: Any, theirs: Any) -> None:
    texts = [["今天", "天气!", "the", "unaffable", "☃"], ["Café"]]
    options = {"is_split_into_words": True, "return_offsets_mapping": True}
    got, expected = ours(texts, **options), theirs(texts, **options)
    assert dict(got) == dict(expected)
    assert [got.word_ids(row) for row in (0, 1)] == [expected.word_ids(row) for row in (0, 1)]


def test_special_tokens(ours: AlbertWordPieceTokenizer) -> None:
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


def test_decoding(ours: Any, theirs: Any) -> None:
    for text in TEXTS + random_texts(100, seed=2):
        ids = theirs(text)["input_ids"]
        for skip in (False, True):
            assert ours.decode(ids, skip_special_tokens=skip) == theirs.decode(ids, skip_special_tokens=skip)
    ids = ours("the fox is playing, 北京!")["input_ids"]
    assert ours.decode(ids, skip_special_tokens=True) == "the fox is playing, 北 京!"


def test_added_tokens(vocabulary: Path, tmp_path: Path) -> None:
    tokenizer = AlbertWordPieceTokenizer.from_pretrained(vocabulary)
    assert tokenizer.add_tokens(["foxtrot"]) == 1
    tokenizer.add_special_tokens({"additional_special_tokens": ["<x>"]})
    size = len(PIECES)
    assert tokenizer.encode("The FOXTROT<x>a", add_special_tokens=False)[1:3] == [size, size + 1]
    for cls in (AutoTokenizer, AlbertWordPieceTokenizer):
        tokenizer.save_pretrained(tmp_path)
        again = cls.from_pretrained(tmp_path)
        assert again("The FOXTROT<x>a") == tokenizer("The FOXTROT<x>a")
        assert again.additional_special_tokens == ["<x>"]
        assert len(again) == size + 2
    for name in ("vocab.txt", "tokenizer_config.json", "special_tokens_map.json"):
        (tmp_path / name).unlink()
    alone = AutoTokenizer.from_pretrained(tmp_path)
    assert alone("The FOXTROT<x>a") == tokenizer("The FOXTROT<x>a")


@pytest.mark.parametrize("has_word_list", [True, False])
def test_a_folder_of_transformers_with_added_tokens(
    vocabulary: Path, tmp_path: Path, has_word_list: bool
) -> None:
    if has_word_list:
        (tmp_path / "vocab.txt").write_bytes((vocabulary / "vocab.txt").read_bytes())
    theirs = transformers.BertTokenizer(str(vocabulary / "vocab.txt"))
    theirs.add_tokens(["kiwistan"])
    theirs.add_special_tokens({"additional_special_tokens": ["<x>"]})
    theirs.save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer("a kiwistan <x>")["input_ids"] == theirs("a kiwistan <x>")["input_ids"]
    assert (tokenizer.extra_special_tokens, len(tokenizer)) == (["<x>"], len(theirs))


@pytest.mark.parametrize("rules", RULES, ids=str)
def test_saving_and_loading(vocabulary: Path, tmp_path: Path, rules: dict[str, bool]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(vocabulary, model_max_length=128, **rules)
    names = {Path(path).name for path in tokenizer.save_pretrained(tmp_path)}
    assert names == {"vocab.txt", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}
    assert (tmp_path / "vocab.txt").read_bytes() == (vocabulary / "vocab.txt").read_bytes()
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert config["tokenizer_class"] == "BertTokenizer"
    expected = {"do_lower_case": True, "strip_accents": None, "tokenize_chinese_chars": True, **rules}
    assert {name: config[name] for name in expected} == expected
    assert "keep_accents" not in config
    texts = TEXTS + random_texts(50, seed=3)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert type(again) is AlbertWordPieceTokenizer
    assert again.normalization == expected
    assert again.model_max_length == 128
    assert again(texts) == tokenizer(texts)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs(texts)["input_ids"] == tokenizer(texts)["input_ids"]
    assert theirs("a", "b")["token_type_ids"] == tokenizer("a", "b")["token_type_ids"]
    # The tokenizer.json alone, for us and for any other reader: nothing is lost in it.
    reader = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    got = reader.encode_batch([(text, "我") for text in texts])
    wanted = tokenizer(texts, ["我"] * len(texts), return_offsets_mapping=True)
    assert [one.ids for one in got] == wanted["input_ids"]
    assert [one.type_ids for one in got] == wanted["token_type_ids"]
    assert [one.offsets for one in got] == wanted["offset_mapping"]
    plain = AutoTokenizer.from_pretrained(tmp_path, parse_special_tokens=False)
    assert tokenizer.mask_token_id not in plain.encode("[MASK]")
    only = AlbertWordPieceTokenizer(tokenizer_file=tmp_path / "tokenizer.json")
    assert only(texts) == tokenizer(texts)
    resolved = {**expected, "strip_accents": only.normalization["strip_accents"]}
    assert only.normalization == resolved


def test_memory_for_words_and_characters_is_bounded(
    vocabulary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever texts hold: long words, more words, and more characters than are remembered."""
    monkeypatch.setattr(wordpiece, "_REMEMBERED_WORDS", 50)
    monkeypatch.setattr(wordpiece, "_REMEMBERED_CHARACTERS", 50)
    tokenizer = AutoTokenizer.from_pretrained(vocabulary)
    model = tokenizer._model
    texts = [f"{'a' * number} {chr(0x4E00 + number)}{number}" for number in range(1, 200)]
    wanted = tokenizer(texts[:3])["input_ids"]
    tokenizer(texts)
    assert 0 < len(model._word_ids) <= 50
    assert 0 < len(model._characters) <= 50
    assert max(map(len, model._word_ids)) <= 30
    assert tokenizer(texts[:3])["input_ids"] == wanted


def test_threads(ours: AlbertWordPieceTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wordpiece, "_REMEMBERED_WORDS", 5)  # so that words are forgotten all the time
    texts = TEXTS + random_texts(50, seed=4)
    expected = [ours(text)["input_ids"] for text in texts]
    with ThreadPoolExecutor(8) as threads:
        rows = threads.map(lambda text: ours(text)["input_ids"], texts * 20)
        assert list(rows) == expected * 20


def test_pickling(ours: AlbertWordPieceTokenizer) -> None:
    again = pickle.loads(pickle.dumps(ours))
    assert again(TEXTS) == ours(TEXTS)


def test_which_class_is_chosen(vocabulary: Path, tiny_vocabulary: Path, tmp_path: Path) -> None:
    words = (vocabulary / "vocab.txt").read_bytes()
    (tmp_path / "vocab.txt").write_bytes(words)
    for named in ("BertTokenizer", "BertTokenizerFast", "AlbertTokenizer", "AlbertWordPieceTokenizer"):
        (tmp_path / "tokenizer_config.json").write_text(
            json.dumps({"tokenizer_class": named, "do_lower_case": False})
        )
        tokenizer = AutoTokenizer.from_pretrained(tmp_path)
        assert type(tokenizer) is AlbertWordPieceTokenizer
        assert not tokenizer.do_lower_case
    assert type(AutoTokenizer.from_pretrained(tmp_path / "vocab.txt")) is AlbertWordPieceTokenizer
    assert albertkit.AlbertWordPieceTokenizer is AlbertWordPieceTokenizer
    # A SentencePiece model, or its tokenizer.json, wins over a word list.
    (tmp_path / "tokenizer_config.json").unlink()
    AlbertTokenizer(tiny_vocabulary).save_pretrained(tmp_path / "both")
    (tmp_path / "both" / "vocab.txt").write_bytes(words)
    assert type(AutoTokenizer.from_pretrained(tmp_path / "both")) is AlbertTokenizer
    (tmp_path / "both" / "spiece.model").unlink()
    assert type(AutoTokenizer.from_pretrained(tmp_path / "both")) is AlbertTokenizerFast
    with pytest.raises(ModelNotFoundError, match=r"spiece\.model.*AutoTokenizer opens its vocab\.txt"):
        AlbertTokenizer.from_pretrained(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "RobertaTokenizer"}')
    with pytest.raises(TokenizerError, match=r"'RobertaTokenizer'.*BertTokenizer"):
        AutoTokenizer.from_pretrained(tmp_path)


def test_lines_of_the_word_list(tmp_path: Path) -> None:
    """A line is what stands between line feeds; of a piece that stands twice, the last place counts."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    content = "\r\n".join([*special, "a", "b\u2028", "\u0085", "a", "b"])
    (tmp_path / "vocab.txt").write_bytes(content.encode())
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert len(tokenizer) == 10
    assert tokenizer.encode("a b", add_special_tokens=False) == [8, 9]
    assert tokenizer.convert_ids_to_tokens([5, 6, 7, 8]) == ["a", "b\u2028", "\u0085", "a"]
    tokenizer.save_pretrained(tmp_path / "again")
    again = AutoTokenizer.from_pretrained(tmp_path / "again")
    (tmp_path / "again" / "vocab.txt").unlink()
    with pytest.raises(TokenizerError, match=r"9 pieces are not 0 to 8.*Put the vocab\.txt"):
        AutoTokenizer.from_pretrained(tmp_path / "again")
    assert again.convert_ids_to_tokens(list(range(10))) == tokenizer.convert_ids_to_tokens(list(range(10)))
    assert again.encode("a b", add_special_tokens=False) == [8, 9]


def test_damage_is_named(vocabulary: Path, tmp_path: Path) -> None:
    file = tmp_path / "vocab.txt"
    with pytest.raises(ModelNotFoundError, match=r"vocab\.txt: no file"):
        AlbertWordPieceTokenizer(file)
    for content, message in (
        (b"", "is empty"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"the\nfox\n", r"2 pieces do not contain '\[CLS\]'.*\[UNK\]"),
        ("<pad>\t0\n<unk>\t0\n▁the\t-3\n".encode(), r"do not contain '\[CLS\]'"),
    ):
        file.write_bytes(content)
        with pytest.raises(TokenizerError, match=message):
            AutoTokenizer.from_pretrained(tmp_path)
    with pytest.raises(TokenizerError, match="received no file"):
        AlbertWordPieceTokenizer()
    with pytest.raises(TokenizerError, match="lone surrogate"):
        AutoTokenizer.from_pretrained(vocabulary)(["a", "b\ud800"])
    with pytest.raises(TypeError, match="keep_accents"):
        AlbertWordPieceTokenizer.from_pretrained(vocabulary, keep_accents=True)
    file.unlink()
    other = tokenizers.Tokenizer(tokenizers.models.WordPiece({"a": 0}, unk_token="a"))
    other.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(TokenizerError, match=r"WordPiece model with the normalizer none"):
        AutoTokenizer.from_pretrained(tmp_path)


# ---- with a model ----


def small(**values: Any) -> AlbertConfig:
    sizes = {"vocab_size": len(PIECES), "embedding_size": 8, "hidden_size": 16, "num_attention_heads": 2}
    ids = {"bos_token_id": 21, "eos_token_id": 22}
    return AlbertConfig(**{**sizes, "num_hidden_layers": 2, "intermediate_size": 32, **ids, **values})


@pytest.fixture
def model_folder(vocabulary: Path, tmp_path: Path) -> Path:
    """A model as a Chinese checkpoint comes: weights, config, vocab.txt."""
    torch.manual_seed(0)
    folder = tmp_path / "zh"
    AlbertForMaskedLM(small(hidden_act="relu")).save_pretrained(folder)
    (folder / "vocab.txt").write_bytes((vocabulary / "vocab.txt").read_bytes())
    return folder


def test_fill_mask_as_in_transformers(model_folder: Path) -> None:
    texts = ["生活的真谛是[MASK]。", "the fox [MASK]☃ words", "我[MASK]欢北[MASK]"]
    ours = albertkit.pipeline("fill-mask", model_folder, device="cpu")
    theirs = transformers.pipeline(
        "fill-mask",
        transformers.AutoModelForMaskedLM.from_pretrained(model_folder),
        tokenizer=transformers.BertTokenizer.from_pretrained(model_folder),
        device="cpu",
    )
    for text in texts:
        for one, other in zip(_flat(ours(text)), _flat(theirs(text)), strict=True):
            assert (one["token"], one["token_str"]) == (other["token"], other["token_str"])
            assert one["score"] == pytest.approx(other["score"], abs=1e-6)
            assert one["sequence"] == other["sequence"]
    assert ours(texts[0], targets=["爱"])[0]["token_str"] == "爱"
    with pytest.raises(albertkit.DataError, match=r"北 京.*## marks a piece inside a word"):
        ours(texts[0], targets=["北京"])


def _flat(answers: list[Any]) -> list[Any]:
    return [one for some in answers for one in some] if isinstance(answers[0], list) else answers


def test_a_vocabulary_of_another_model_is_refused(model_folder: Path, ours: AlbertWordPieceTokenizer) -> None:
    AlbertForMaskedLM(small(vocab_size=50)).save_pretrained(model_folder)
    with pytest.raises(TokenizerError, match=rf"{len(PIECES)} pieces, but its model has 50 embeddings"):
        AutoTokenizer.from_pretrained(model_folder)
    with pytest.raises(ConfigError, match=rf"{len(PIECES)} pieces, but the model has 50"):
        albertkit.pipeline("fill-mask", model_folder, tokenizer=ours)
    with pytest.raises(CheckpointError, match=rf"{len(PIECES)} pieces, but the model has 50 embeddings"):
        convert(model_folder, model_folder.parent / "out")


def test_conversion_carries_it_along(model_folder: Path, ours: AlbertWordPieceTokenizer) -> None:
    words = (model_folder / "vocab.txt").read_bytes()
    tf1, again, julia = (model_folder.parent / name for name in ("tf1", "again", "zh.tfbson"))
    convert(model_folder, tf1, to="tf1")
    assert (tf1 / "vocab.txt").read_bytes() == words
    report = convert(tf1, again, verify=True)
    assert report.largest_difference < 1e-5
    assert {Path(path).name for path in report.checksums} > {"vocab.txt", "tokenizer_config.json"}
    for folder in (again, tf1):
        assert AutoTokenizer.from_pretrained(folder)(TEXTS) == ours(TEXTS)
    theirs = transformers.AutoTokenizer.from_pretrained(again)
    assert theirs(TEXTS)["input_ids"] == ours(TEXTS)["input_ids"]
    answers = [
        albertkit.pipeline("fill-mask", folder, device="cpu")("生活的真谛是[MASK]。")
        for folder in (model_folder, again)
    ]
    assert answers[0] == answers[1]
    (note,) = convert(model_folder, julia).notes
    assert note == "vocab.txt was left out: Julia's files list SentencePiece's pieces only"


def test_embeddings_without_pieces_are_noted(model_folder: Path) -> None:
    size = len(PIECES) + 7
    AlbertForMaskedLM(small(vocab_size=size)).save_pretrained(model_folder)
    (note,) = convert(model_folder, model_folder.parent / "out").notes
    assert (
        note == f"the vocabulary has {len(PIECES)} pieces, but the model has {size} embeddings: "
        "7 embeddings have no piece"
    )
    assert len(AutoTokenizer.from_pretrained(model_folder.parent / "out")) == len(PIECES)
