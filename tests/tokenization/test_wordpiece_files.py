"""Tests of the files of WordPiece tokenizers: folders, added tokens, the choice of the class, and damage."""

import json
from pathlib import Path

import pytest
import tokenizers
import transformers
from wordpiece_texts import RULES, TEXTS, random_texts
from wordpiece_vocabulary import PIECES

import albertkit
from albertkit import (
    AlbertTokenizer,
    AlbertTokenizerFast,
    AlbertWordPieceTokenizer,
    AutoTokenizer,
    ModelNotFoundError,
    TokenizerError,
)


@pytest.mark.parametrize("rules", RULES, ids=str)
def test_saving_and_loading(wordpiece_folder: Path, tmp_path: Path, rules: dict[str, bool]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(wordpiece_folder, model_max_length=128, **rules)
    names = {Path(path).name for path in tokenizer.save_pretrained(tmp_path)}
    assert names == {"vocab.txt", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}
    assert (tmp_path / "vocab.txt").read_bytes() == (wordpiece_folder / "vocab.txt").read_bytes()
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert config["tokenizer_class"] == "BertTokenizer"
    expected = {"do_lower_case": True, "strip_accents": None, "tokenize_chinese_chars": True, **rules}
    assert {name: config[name] for name in expected} == expected
    assert "keep_accents" not in config
    texts = TEXTS + random_texts(50, seed=3)
    reloaded = AutoTokenizer.from_pretrained(tmp_path)
    assert type(reloaded) is AlbertWordPieceTokenizer
    assert reloaded.normalization == expected
    assert reloaded.model_max_length == 128
    assert reloaded(texts) == tokenizer(texts)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs(texts)["input_ids"] == tokenizer(texts)["input_ids"]
    assert theirs("a", "b")["token_type_ids"] == tokenizer("a", "b")["token_type_ids"]
    # The tokenizer.json alone is enough for the library `tokenizers` and for albertkit.
    reader = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    rows = reader.encode_batch([(text, "我") for text in texts])
    ours = tokenizer(texts, ["我"] * len(texts), return_offsets_mapping=True)
    assert [row.ids for row in rows] == ours["input_ids"]
    assert [row.type_ids for row in rows] == ours["token_type_ids"]
    assert [row.offsets for row in rows] == ours["offset_mapping"]
    plain = AutoTokenizer.from_pretrained(tmp_path, parse_special_tokens=False)
    assert tokenizer.mask_token_id not in plain.encode("[MASK]")
    alone = AlbertWordPieceTokenizer(tokenizer_file=tmp_path / "tokenizer.json")
    assert alone(texts) == tokenizer(texts)
    resolved = {**expected, "strip_accents": alone.normalization["strip_accents"]}
    assert alone.normalization == resolved


def test_added_tokens(wordpiece_folder: Path, tmp_path: Path) -> None:
    tokenizer = AlbertWordPieceTokenizer.from_pretrained(wordpiece_folder)
    assert tokenizer.add_tokens(["foxtrot"]) == 1
    tokenizer.add_special_tokens({"additional_special_tokens": ["<x>"]})
    size = len(PIECES)
    assert tokenizer.encode("The FOXTROT<x>a", add_special_tokens=False)[1:3] == [size, size + 1]
    for cls in (AutoTokenizer, AlbertWordPieceTokenizer):
        tokenizer.save_pretrained(tmp_path)
        reloaded = cls.from_pretrained(tmp_path)
        assert reloaded("The FOXTROT<x>a") == tokenizer("The FOXTROT<x>a")
        assert reloaded.additional_special_tokens == ["<x>"]
        assert len(reloaded) == size + 2
    for name in ("vocab.txt", "tokenizer_config.json", "special_tokens_map.json"):
        (tmp_path / name).unlink()
    alone = AutoTokenizer.from_pretrained(tmp_path)
    assert alone("The FOXTROT<x>a") == tokenizer("The FOXTROT<x>a")


@pytest.mark.parametrize("has_word_list", [True, False])
def test_a_folder_of_transformers_with_added_tokens(
    wordpiece_folder: Path, tmp_path: Path, has_word_list: bool
) -> None:
    if has_word_list:
        (tmp_path / "vocab.txt").write_bytes((wordpiece_folder / "vocab.txt").read_bytes())
    theirs = transformers.BertTokenizer(str(wordpiece_folder / "vocab.txt"))
    theirs.add_tokens(["kiwistan"])
    theirs.add_special_tokens({"additional_special_tokens": ["<x>"]})
    theirs.save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer("a kiwistan <x>")["input_ids"] == theirs("a kiwistan <x>")["input_ids"]
    assert (tokenizer.extra_special_tokens, len(tokenizer)) == (["<x>"], len(theirs))


def test_auto_tokenizer_chooses_the_class(
    wordpiece_folder: Path, tiny_vocabulary: Path, tmp_path: Path
) -> None:
    words = (wordpiece_folder / "vocab.txt").read_bytes()
    (tmp_path / "vocab.txt").write_bytes(words)
    for name in ("BertTokenizer", "BertTokenizerFast", "AlbertTokenizer", "AlbertWordPieceTokenizer"):
        (tmp_path / "tokenizer_config.json").write_text(
            json.dumps({"tokenizer_class": name, "do_lower_case": False})
        )
        tokenizer = AutoTokenizer.from_pretrained(tmp_path)
        assert type(tokenizer) is AlbertWordPieceTokenizer
        assert not tokenizer.do_lower_case
    assert type(AutoTokenizer.from_pretrained(tmp_path / "vocab.txt")) is AlbertWordPieceTokenizer
    assert albertkit.AlbertWordPieceTokenizer is AlbertWordPieceTokenizer
    # A SentencePiece model, or its tokenizer.json, has priority over a vocab.txt.
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
    """Only line feeds end a line. A piece that occurs twice has the id of its last line. A BOM is skipped."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    content = "\r\n".join([*special, "a", "b\u2028", "\u0085", "a", "b"])
    (tmp_path / "vocab.txt").write_bytes(content.encode("utf-8-sig"))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert len(tokenizer) == 10
    assert tokenizer.encode("a b", add_special_tokens=False) == [8, 9]
    assert tokenizer.convert_ids_to_tokens([5, 6, 7, 8]) == ["a", "b\u2028", "\u0085", "a"]
    tokenizer.save_pretrained(tmp_path / "again")
    reloaded = AutoTokenizer.from_pretrained(tmp_path / "again")
    (tmp_path / "again" / "vocab.txt").unlink()
    with pytest.raises(TokenizerError, match=r"9 pieces have gaps\. Add the vocab\.txt"):
        AutoTokenizer.from_pretrained(tmp_path / "again")
    ids = list(range(10))
    assert reloaded.convert_ids_to_tokens(ids) == tokenizer.convert_ids_to_tokens(ids)
    assert reloaded.encode("a b", add_special_tokens=False) == [8, 9]


def test_errors_for_damaged_and_foreign_files(wordpiece_folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "vocab.txt"
    with pytest.raises(ModelNotFoundError, match=r"vocab\.txt: no file"):
        AlbertWordPieceTokenizer(file)
    for content, message in (
        (b"", r"1 pieces do not contain '\[UNK\]'"),
        (b"\xff\xfe\x00", "is damaged"),
        (b"the\nfox\n", r"2 pieces do not contain '\[UNK\]'"),
        (b"[UNK]\nfox\n", r"2 pieces do not contain '\[CLS\]'"),
    ):
        file.write_bytes(content)
        with pytest.raises(TokenizerError, match=message):
            AutoTokenizer.from_pretrained(tmp_path)
    with pytest.raises(TokenizerError, match="received no file"):
        AlbertWordPieceTokenizer()
    with pytest.raises(TokenizerError, match="lone surrogate"):
        AutoTokenizer.from_pretrained(wordpiece_folder)(["a", "b\ud800"])
    with pytest.raises(TypeError, match="keep_accents"):
        AlbertWordPieceTokenizer.from_pretrained(wordpiece_folder, keep_accents=True)
    file.unlink()
    other = tokenizers.Tokenizer(tokenizers.models.WordPiece({"a": 0}, unk_token="a"))
    other.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(TokenizerError, match="expected a WordPiece model"):
        AutoTokenizer.from_pretrained(tmp_path)
