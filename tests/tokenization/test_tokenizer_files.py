"""Tests of tokenizer folders: which files albertkit writes, and which files and settings it reads."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import sentencepiece

from albertkit.errors import ModelNotFoundError, TokenizerError
from albertkit.tokenization.base import TokenizerBase
from albertkit.tokenization.tokenizer import AlbertTokenizer, AlbertTokenizerFast, AutoTokenizer

BOTH = [AlbertTokenizer, AlbertTokenizerFast]
TEXT = "The captain, in 1847, found a well-kept [MASK] near the café."


def train_model(prefix: Path, texts: list[str], **options: Any) -> Path:
    """Train a SentencePiece model with ALBERT's special tokens; return its file."""
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(texts),
        model_prefix=str(prefix),
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        control_symbols="[CLS],[SEP],[MASK]",
        minloglevel=2,
        **options,
    )
    return prefix.with_suffix(".model")


# ---- folders ----


def test_a_folder_keeps_all_settings(tiny_vocabulary: Path, tmp_path: Path) -> None:
    for cls in BOTH:
        tokenizer = cls(
            tiny_vocabulary,
            do_lower_case=False,
            remove_space=False,
            keep_accents=True,
            clean_up_tokenization_spaces=True,
            model_max_length=128,
            parse_special_tokens=False,
            padding_side="left",
            truncation_side="left",
        )
        paths = tokenizer.save_pretrained(tmp_path)
        assert sorted(Path(path).name for path in paths) == [
            *("special_tokens_map.json", "spiece.model", "tokenizer.json", "tokenizer_config.json")
        ]
        assert (tmp_path / "spiece.model").read_bytes() == tiny_vocabulary.read_bytes()
        assert not list(tmp_path.glob("*.tmp"))
        for other in BOTH:
            reloaded = other.from_pretrained(tmp_path)
            assert reloaded(TEXT, "É") == tokenizer(TEXT, "É")
            assert (reloaded.do_lower_case, reloaded.keep_accents, reloaded.model_max_length) == (
                False,
                True,
                128,
            )
            assert (reloaded.remove_space, reloaded.clean_up_tokenization_spaces) == (False, True)
            assert (reloaded.padding_side, reloaded.truncation_side, reloaded.parse_special_tokens) == (
                "left",
                "left",
                False,
            )
        assert cls.from_pretrained(tmp_path, do_lower_case=True, model_max_length=64).model_max_length == 64
        assert cls.from_pretrained(tmp_path, do_lower_case=True).do_lower_case


def test_names_and_paths_of_a_vocabulary(tiny_vocabulary: Path, tmp_path: Path) -> None:
    expected = AlbertTokenizer(tiny_vocabulary)(TEXT)
    for name in ("30k-clean.model", "mine.spm"):
        folder = tmp_path / name.partition(".")[0]
        folder.mkdir()
        (folder / name).write_bytes(tiny_vocabulary.read_bytes())
        assert AlbertTokenizer.from_pretrained(folder)(TEXT) == expected
        assert AlbertTokenizerFast.from_pretrained(str(folder / name))(TEXT) == expected
    (folder / "other.model").write_bytes(b"x")
    with pytest.raises(TokenizerError, match=r"mine\.spm"):
        AlbertTokenizer.from_pretrained(folder)


def test_a_folder_without_spiece_model(tiny_vocabulary: Path, tmp_path: Path) -> None:
    AlbertTokenizer(tiny_vocabulary, keep_accents=True).save_pretrained(tmp_path)
    (tmp_path / "spiece.model").unlink()
    fast = AlbertTokenizerFast.from_pretrained(tmp_path)
    assert fast(TEXT) == AlbertTokenizer(tiny_vocabulary, keep_accents=True)(TEXT)
    assert AlbertTokenizer.from_pretrained(tmp_path)(TEXT) == fast(TEXT)
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "tokenizer_config.json").write_text("{}")
    with pytest.raises(ModelNotFoundError, match=r"spiece\.model.* or tokenizer\.json in its place"):
        AlbertTokenizer.from_pretrained(tmp_path / "none")
    alone = AlbertTokenizerFast(tokenizer_file=tmp_path / "tokenizer.json")
    assert alone.keep_accents
    assert alone(TEXT) == fast(TEXT)
    assert fast.save_vocabulary(tmp_path / "again") == (str(tmp_path / "again" / "tokenizer.json"),)


def test_a_folder_with_only_tokenizer_json(tiny_vocabulary: Path, tmp_path: Path) -> None:
    tokenizer = AlbertTokenizer(tiny_vocabulary)
    tokenizer.add_tokens(["foxtrot"])
    tokenizer.add_special_tokens({"additional_special_tokens": ["<x>"]})
    tokenizer.save_pretrained(tmp_path)
    for name in ("spiece.model", "tokenizer_config.json", "special_tokens_map.json"):
        (tmp_path / name).unlink()
    alone = AlbertTokenizerFast.from_pretrained(tmp_path)
    assert alone("a foxtrot<x>") == tokenizer("a foxtrot<x>")
    assert alone.additional_special_tokens == ["<x>"]
    assert len(alone) == len(tokenizer)


def test_a_piece_that_is_also_a_special_token(tiny_vocabulary: Path, tmp_path: Path) -> None:
    """Plain text still contains the piece: in another case, or if special tokens are not parsed."""
    tokenizer = AlbertTokenizer(tiny_vocabulary)
    tokenizer.extra_special_tokens = ["a", "("]
    tokenizer.save_pretrained(tmp_path)
    alone = AlbertTokenizerFast(tokenizer_file=tmp_path / "tokenizer.json")
    assert alone.extra_special_tokens == ["(", "a"]
    for text in ("(A BABA)", "a baba ("):
        for parse in (True, False):
            expected = tokenizer(text, parse_special_tokens=parse)
            assert tokenizer.unk_token_id not in expected["input_ids"]
            assert alone(text, parse_special_tokens=parse) == expected


def test_saving_over_an_older_tokenizer(tiny_vocabulary: Path, tmp_path: Path) -> None:
    """Loading the folder reads neither the added tokens nor the vocabulary of the older tokenizer."""
    (tmp_path / "added_tokens.json").write_text('{"word": 500}')
    AlbertTokenizer(tiny_vocabulary).save_pretrained(tmp_path)
    assert len(AlbertTokenizer.from_pretrained(tmp_path)) == 500
    alone = AlbertTokenizerFast(tokenizer_file=tmp_path / "tokenizer.json")
    with pytest.raises(TokenizerError, match=r"spiece\.model is the vocabulary of another tokenizer"):
        alone.save_pretrained(tmp_path)
    (tmp_path / "spiece.model").unlink()
    alone.save_pretrained(tmp_path)
    alone.save_pretrained(tmp_path / "new")


def test_auto_tokenizer_loads_both_classes(tiny_vocabulary: Path, tmp_path: Path) -> None:
    AlbertTokenizer(tiny_vocabulary).save_pretrained(tmp_path)
    default, slow, fast = (
        AutoTokenizer.from_pretrained(tmp_path, use_fast=use) for use in (None, False, True)
    )
    assert [type(tokenizer) for tokenizer in (default, slow, fast)] == [AlbertTokenizer, *BOTH]
    assert slow(TEXT) == fast(TEXT)
    assert default.name_or_path == str(tmp_path)
    assert not AutoTokenizer.from_pretrained(tiny_vocabulary, do_lower_case=False).do_lower_case


def test_folders_without_a_tokenizer_of_albert(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "albert"}')
    with pytest.raises(ModelNotFoundError, match=r"holds config\.json"):
        AutoTokenizer.from_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    with pytest.raises(TokenizerError, match="tokenizer class 'BertTokenizer'"):
        AutoTokenizer.from_pretrained(tmp_path)


# ---- settings ----


def test_settings_of_older_folders(tiny_vocabulary: Path, tmp_path: Path) -> None:
    (tmp_path / "spiece.model").write_bytes(tiny_vocabulary.read_bytes())
    mask = {"content": "[MASK]", "single_word": False, "lstrip": True, "rstrip": False, "normalized": False}
    (tmp_path / "special_tokens_map.json").write_text(
        json.dumps({"mask_token": {**mask, "__type": "AddedToken"}, "additional_special_tokens": ["<x>"]})
    )
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<x>": 500, "word": 501}))
    config = {
        "do_lower_case": False,
        "mask_token": mask,
        "model_max_length": 10**30,
        "tokenizer_class": "A",
        "x": 1,
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    for cls in BOTH:
        tokenizer = cls.from_pretrained(tmp_path)
        assert tokenizer.mask_token == "[MASK]"
        assert tokenizer.encode("<x> word [MASK]", add_special_tokens=False) == [500, 501, 4]
        assert tokenizer.additional_special_tokens == ["<x>"]
        assert (len(tokenizer), tokenizer.model_max_length, tokenizer.do_lower_case) == (502, 512, False)


def test_null_settings_are_defaults(tiny_vocabulary: Path, tmp_path: Path) -> None:
    AlbertTokenizer(tiny_vocabulary).save_pretrained(tmp_path)
    empty = {"added_tokens_decoder": None, "additional_special_tokens": None, "model_max_length": None}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(empty))
    for cls in BOTH:
        assert cls.from_pretrained(tmp_path)(TEXT) == cls(tiny_vocabulary)(TEXT)


def test_both_names_of_special_tokens_without_a_role(tiny_vocabulary: Path, tmp_path: Path) -> None:
    """`transformers` 4 and 5 write these tokens under different names and into different files."""
    AlbertTokenizer(tiny_vocabulary).save_pretrained(tmp_path)
    for name, content in {
        "special_tokens_map.json": {"additional_special_tokens": ["<x>"]},
        "tokenizer_config.json": {"extra_special_tokens": {"image_token": "<y>"}},
    }.items():
        (tmp_path / name).write_text(json.dumps(content))
    for cls in BOTH:
        assert cls.from_pretrained(tmp_path).extra_special_tokens == ["<x>", "<y>"]


def test_split_special_tokens_of_transformers(tiny: TokenizerBase, tmp_path: Path) -> None:
    tiny.save_pretrained(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"split_special_tokens": True}))
    loaded = type(tiny).from_pretrained(tmp_path)
    assert loaded.parse_special_tokens is False
    assert loaded.mask_token_id not in loaded.encode("[MASK]")


# ---- SentencePiece models ----


def test_a_bpe_vocabulary_has_no_tokenizer_json(tiny_texts: list[str], tmp_path: Path) -> None:
    tokenizer = AlbertTokenizer(train_model(tmp_path / "bpe", tiny_texts, model_type="bpe", vocab_size=300))
    assert tokenizer.decode(tokenizer.encode("the river"), skip_special_tokens=True) == "the river"
    saved = tokenizer.save_pretrained(tmp_path / "saved")
    assert not any(path.endswith("tokenizer.json") for path in saved)
    with pytest.raises(TokenizerError, match="Unigram"):
        _ = tokenizer.backend_tokenizer


def test_bytes_of_unknown_characters(tiny_texts: list[str], tmp_path: Path) -> None:
    options = {"model_type": "unigram", "vocab_size": 400, "byte_fallback": True}
    tokenizer = AlbertTokenizer(train_model(tmp_path / "bytes", tiny_texts, **options))
    text = "in 日é [MASK] 本."
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    indices = [index for index, token in enumerate(encoded.tokens()) if token.startswith("<0x")]
    assert [encoded.tokens()[index] for index in indices[:3]] == ["<0xE6>", "<0x97>", "<0xA5>"]
    assert [encoded["offset_mapping"][index] for index in indices] == [(3, 4)] * 3 + [(13, 14)] * 3
    assert [encoded.word_ids()[index] for index in indices] == [1] * 3 + [3] * 3
    assert tokenizer.decode(encoded["input_ids"]) == "in 日e [MASK] 本."
    saved = tokenizer.save_pretrained(tmp_path / "saved")
    assert not any(path.endswith("tokenizer.json") for path in saved)
    assert AlbertTokenizer.from_pretrained(tmp_path / "saved")(text) == tokenizer(text)


@pytest.mark.parametrize("size", [200, 300])
def test_a_vocabulary_that_contradicts_the_tokenizer_json(
    size: int, tiny_texts: list[str], tmp_path: Path
) -> None:
    for name, texts, vocab_size in (("own", tiny_texts, 200), ("other", tiny_texts[::-3], size)):
        model = train_model(tmp_path / name, texts, vocab_size=vocab_size)
        AlbertTokenizer(model).save_pretrained(tmp_path / f"{name}-folder")
        assert AlbertTokenizer.from_pretrained(tmp_path / f"{name}-folder").vocab_size == vocab_size
    shutil.copyfile(tmp_path / "other.model", tmp_path / "own-folder" / "spiece.model")
    with pytest.warns(UserWarning, match=r"spiece.model and tokenizer.json have different pieces"):
        AlbertTokenizer.from_pretrained(tmp_path / "own-folder")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"model": {"vocab": [1]}}'])
def test_a_damaged_tokenizer_json_beside_a_good_vocabulary(
    content: str, tiny_vocabulary: Path, tmp_path: Path
) -> None:
    tokenizer = AlbertTokenizer(tiny_vocabulary)
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.warns(UserWarning, match=r"spiece.model and tokenizer.json have different pieces"):
        assert AlbertTokenizer.from_pretrained(tmp_path)(TEXT) == tokenizer(TEXT)
