"""Tokenizer folders, damaged files, processes and threads, and texts of a megabyte."""

import copy
import json
import multiprocessing
import pickle
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import transformers
from tokenizer_files import FILES, load

from albertkit.errors import ModelNotFoundError, TokenizerError
from albertkit.tokenization.auto import AutoTokenizer
from albertkit.tokenization.base import TokenizerBase
from albertkit.tokenization.model_file import CONTROL, UNKNOWN, USER_DEFINED, read_piece_table
from albertkit.tokenization.tokenizer import AlbertTokenizer, AlbertTokenizerFast

BOTH = [AlbertTokenizer, AlbertTokenizerFast]
TEXT = "The captain, in 1847, found a well-kept [MASK] near the café."


@pytest.fixture(params=FILES)
def tiny(request: pytest.FixtureRequest, tiny_vocabulary: Path, tmp_path_factory) -> TokenizerBase:
    return load(request.param, tiny_vocabulary, tmp_path_factory.mktemp("tiny"))


# ---- folders ----


def test_a_folder_keeps_everything(tiny_vocabulary: Path, tmp_path: Path) -> None:
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
            *("special_tokens_map.json", "spiece.model", "tokenizer.json", "tokenizer_config.json"),
        ]
        assert (tmp_path / "spiece.model").read_bytes() == tiny_vocabulary.read_bytes()
        assert not list(tmp_path.glob("*.tmp"))
        for other in BOTH:
            again = other.from_pretrained(tmp_path)
            assert again(TEXT, "É") == tokenizer(TEXT, "É")
            assert (again.do_lower_case, again.keep_accents, again.model_max_length) == (False, True, 128)
            assert (again.remove_space, again.clean_up_tokenization_spaces) == (False, True)
            assert (again.padding_side, again.truncation_side, again.parse_special_tokens) == (
                "left",
                "left",
                False,
            )
        assert cls.from_pretrained(tmp_path, do_lower_case=True, model_max_length=64).model_max_length == 64
        assert cls.from_pretrained(tmp_path, do_lower_case=True).do_lower_case


def test_special_tokens_as_plain_text_in_the_words_of_transformers(
    tiny: TokenizerBase, tmp_path: Path
) -> None:
    tiny.save_pretrained(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"split_special_tokens": True}))
    loaded = type(tiny).from_pretrained(tmp_path)
    assert loaded.parse_special_tokens is False
    assert loaded.mask_token_id not in loaded.encode("[MASK]")


def test_every_way_to_name_a_vocabulary(tiny_vocabulary: Path, tmp_path: Path) -> None:
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


def test_only_tokenizer_json(tiny_vocabulary: Path, tmp_path: Path) -> None:
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


def test_a_piece_of_many_characters(tiny_vocabulary: Path, tmp_path: Path) -> None:
    AlbertTokenizer(tiny_vocabulary).save_pretrained(tmp_path)
    (tmp_path / "spiece.model").unlink()
    path = tmp_path / "tokenizer.json"
    content = json.loads(path.read_text())
    content["model"]["vocab"][-1][0] = "x" * 100_000  # crashes the Rust library as it frees the trie
    path.write_text(json.dumps(content))
    with pytest.raises(TokenizerError, match=r"'xx.* has 100,000 characters. Expected at most 1,000"):
        AlbertTokenizerFast.from_pretrained(tmp_path)


def test_tokens_that_only_tokenizer_json_knows(tiny_vocabulary: Path, tmp_path: Path) -> None:
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


def test_a_piece_that_is_a_special_token(tiny_vocabulary: Path, tmp_path: Path) -> None:
    """It stays a piece of plain text: in another case, or if special tokens are not parsed."""
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


def test_tokens_that_transformers_adds_beside_a_model(tiny_vocabulary: Path, tmp_path: Path) -> None:
    """`transformers` 5 writes them into tokenizer.json alone, and leaves the spiece.model as it is."""
    AlbertTokenizer(tiny_vocabulary).save_pretrained(tmp_path)
    theirs = transformers.AlbertTokenizer.from_pretrained(tmp_path)
    theirs.add_tokens(["foxtrot"])
    theirs.add_special_tokens({"additional_special_tokens": ["<x>"]})
    theirs.save_pretrained(tmp_path)
    for cls in (*BOTH, AutoTokenizer):
        tokenizer = cls.from_pretrained(tmp_path)
        assert tokenizer("a foxtrot <x>")["input_ids"] == theirs("a foxtrot <x>")["input_ids"]
        assert (tokenizer.extra_special_tokens, len(tokenizer)) == (["<x>"], len(theirs))


def test_files_of_an_older_tokenizer(tiny_vocabulary: Path, tmp_path: Path) -> None:
    """Saving over them: no token of theirs is read, and no vocabulary is read in place of the saved one."""
    (tmp_path / "added_tokens.json").write_text('{"word": 500}')
    AlbertTokenizer(tiny_vocabulary).save_pretrained(tmp_path)
    assert len(AlbertTokenizer.from_pretrained(tmp_path)) == 500
    alone = AlbertTokenizerFast(tokenizer_file=tmp_path / "tokenizer.json")
    with pytest.raises(TokenizerError, match=r"spiece\.model is the vocabulary of another tokenizer"):
        alone.save_pretrained(tmp_path)
    (tmp_path / "spiece.model").unlink()
    alone.save_pretrained(tmp_path)
    alone.save_pretrained(tmp_path / "new")


@pytest.mark.parametrize("name", FILES)
def test_transformers_gives_the_segments_of_a_pair(name: str, tiny_vocabulary: Path, tmp_path: Path) -> None:
    tokenizer = load(name, tiny_vocabulary, tmp_path / "source")
    tokenizer.save_pretrained(tmp_path / "saved")
    expected = dict(tokenizer("a captain", "the sea"))
    assert set(expected["token_type_ids"]) == {0, 1}
    for cls in (transformers.AutoTokenizer, getattr(transformers, tokenizer.saved_class)):
        assert dict(cls.from_pretrained(tmp_path / "saved")("a captain", "the sea")) == expected


def _as_transformers_saves(model: Path, folder: Path) -> None:
    """Write the folder that `transformers` 5 makes of a spiece.model: user-defined symbols are added tokens
    in its tokenizer.json, special ones in the settings, and keep SentencePiece's score of 0."""
    table = read_piece_table(model.read_bytes())
    symbols = [number for number, kind in enumerate(table.kinds) if kind == USER_DEFINED]
    AlbertTokenizer(model).save_pretrained(folder / "ours")
    theirs = transformers.AlbertTokenizer.from_pretrained(folder / "ours")
    theirs.save_pretrained(folder)
    assert not (folder / "spiece.model").exists()
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    for number in symbols:
        content["model"]["vocab"][number][1] = 0.0
        token = {**content["added_tokens"][0], "content": table.pieces[number], "id": number}
        content["added_tokens"].append({**token, "special": False})
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    config["extra_special_tokens"] = ["<pad>", "[CLS]", "[SEP]", "[MASK]"] + [
        table.pieces[number] for number in symbols
    ]
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")


@pytest.fixture(scope="module")
def folder_of_transformers(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("transformers")
    _as_transformers_saves(shared / "data" / "spiece.model", folder)
    return folder


@pytest.mark.parametrize("cls", [AlbertTokenizer, AutoTokenizer])
def test_a_folder_of_transformers_gives_the_originals_ids(
    cls, shared: Path, folder_of_transformers: Path
) -> None:
    tokenizer = cls.from_pretrained(folder_of_transformers)
    assert isinstance(tokenizer, AlbertTokenizer)
    assert tokenizer.all_special_tokens == ["[CLS]", "[SEP]", "<unk>", "<pad>", "[MASK]"]
    lines = [json.loads(line) for line in (shared / "fixtures" / "tokenizer.jsonl").open(encoding="utf-8")]
    ids = tokenizer(
        [line["text"] for line in lines],
        add_special_tokens=False,
        parse_special_tokens=False,
        verbose=False,
    )
    assert ids["input_ids"] == [line["ids"] for line in lines]
    # transformers itself cuts at the bracket and the hyphen, and begins a word after each.
    text = "the cat (again) a-b."
    expected = ["▁the", "▁cat", "▁", "(", "again", ")", "▁a", "-", "b", "."]
    assert tokenizer.tokenize(text) == expected
    theirs = transformers.AlbertTokenizer.from_pretrained(folder_of_transformers).tokenize(text)
    assert theirs == ["▁the", "▁cat", "(", "▁again", ")", "▁a", "-", "▁b", "."]
    assert tokenizer.decode(tokenizer.encode(text), skip_special_tokens=True) == text


def test_a_tokenizer_json_without_the_table_of_characters_warns(
    tiny_vocabulary: Path, tmp_path: Path
) -> None:
    _as_transformers_saves(tiny_vocabulary, tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    steps = content["normalizer"]["normalizers"]
    content["normalizer"]["normalizers"] = [step for step in steps if step["type"] != "Precompiled"]
    assert len(content["normalizer"]["normalizers"]) == len(steps) - 1
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.warns(UserWarning, match="without SentencePiece's table of characters"):
        tokenizer = AlbertTokenizer.from_pretrained(tmp_path)
    assert tokenizer(TEXT)["input_ids"] == AlbertTokenizer(tiny_vocabulary)(TEXT)["input_ids"]


@pytest.mark.parametrize("cls", [AlbertTokenizer, AlbertTokenizerFast, AutoTokenizer])
def test_the_name_of_transformers_for_the_folder(cls, tiny_vocabulary: Path) -> None:
    named = cls.from_pretrained(pretrained_model_name_or_path=tiny_vocabulary)
    assert named(TEXT) == cls.from_pretrained(tiny_vocabulary)(TEXT)
    assert named.name_or_path == str(tiny_vocabulary)


def test_settings_as_older_folders_have_them(tiny_vocabulary: Path, tmp_path: Path) -> None:
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


# ---- files that are not what they should be ----

DAMAGE = {
    "empty": (b"", "empty"),
    "picture": (b"\x89PNG\r\n\x1a\n" + bytes(range(200)), "not a SentencePiece model"),
    "words": (b"[PAD]\n[UNK]\nthe\n", "vocab.txt"),
    "json": (b'{"model": 1}', "JSON"),
    "pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "Git LFS"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_foreign_model_file_is_named(name: str, tmp_path: Path) -> None:
    content, message = DAMAGE[name]
    (tmp_path / "spiece.model").write_bytes(content)
    with pytest.raises(TokenizerError, match=message) as caught:
        AlbertTokenizer.from_pretrained(tmp_path)
    assert str(tmp_path / "spiece.model") in str(caught.value)
    assert "Expected" in str(caught.value)


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.99])
def test_a_truncated_model_file_is_named(keep: float, tiny_vocabulary: Path, tmp_path: Path) -> None:
    model = tiny_vocabulary.read_bytes()
    (tmp_path / "spiece.model").write_bytes(model[: int(len(model) * keep)])
    with pytest.raises(TokenizerError, match=r"spiece\.model.*cut off|spiece\.model.*do not contain"):
        AlbertTokenizer(tmp_path / "spiece.model")


def test_other_damage(tiny_vocabulary: Path, tmp_path: Path) -> None:
    for cls in BOTH:
        with pytest.raises(ModelNotFoundError, match=r"nowhere\.model"):
            cls(tmp_path / "nowhere.model")
    with pytest.raises(TokenizerError, match="vocab_file"):
        AlbertTokenizerFast()
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "WordPiece", "vocab": {}}}')
    with pytest.raises(TokenizerError, match="WordPiece"):
        AlbertTokenizerFast.from_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": ')
    with pytest.raises(TokenizerError, match=r"tokenizer\.json.*damaged"):
        AlbertTokenizerFast.from_pretrained(tmp_path)
    (tmp_path / "spiece.model").write_bytes(tiny_vocabulary.read_bytes())
    (tmp_path / "tokenizer_config.json").write_text("[]")
    with pytest.raises(TokenizerError, match=r"tokenizer_config\.json.*object"):
        AlbertTokenizer.from_pretrained(tmp_path)


def test_a_bpe_vocabulary_has_no_tokenizer_json(tiny_texts: list[str], tmp_path: Path) -> None:
    import sentencepiece

    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(tiny_texts),
        model_prefix=str(tmp_path / "bpe"),
        model_type="bpe",
        vocab_size=300,
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        control_symbols="[CLS],[SEP],[MASK]",
        minloglevel=2,
    )
    tokenizer = AlbertTokenizer(tmp_path / "bpe.model")
    assert tokenizer.decode(tokenizer.encode("the river"), skip_special_tokens=True) == "the river"
    saved = tokenizer.save_pretrained(tmp_path / "saved")
    assert not any(path.endswith("tokenizer.json") for path in saved)
    with pytest.raises(TokenizerError, match="Unigram"):
        _ = tokenizer.backend_tokenizer


def test_bytes_of_unknown_characters(tiny_texts: list[str], tmp_path: Path) -> None:
    import sentencepiece

    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(tiny_texts),
        model_prefix=str(tmp_path / "bytes"),
        model_type="unigram",
        vocab_size=400,
        byte_fallback=True,
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        control_symbols="[CLS],[SEP],[MASK]",
        minloglevel=2,
    )
    tokenizer = AlbertTokenizer(tmp_path / "bytes.model")
    text = "in 日é [MASK] 本."
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    numbers = [index for index, token in enumerate(encoded.tokens()) if token.startswith("<0x")]
    assert [encoded.tokens()[index] for index in numbers[:3]] == ["<0xE6>", "<0x97>", "<0xA5>"]
    assert [encoded["offset_mapping"][index] for index in numbers] == [(3, 4)] * 3 + [(13, 14)] * 3
    assert [encoded.word_ids()[index] for index in numbers] == [1] * 3 + [3] * 3
    assert tokenizer.decode(encoded["input_ids"]) == "in 日e [MASK] 本."
    saved = tokenizer.save_pretrained(tmp_path / "saved")
    assert not any(path.endswith("tokenizer.json") for path in saved)
    assert AlbertTokenizer.from_pretrained(tmp_path / "saved")(text) == tokenizer(text)


def test_bytes_in_a_tokenizer_json(tiny_vocabulary: Path, tmp_path: Path) -> None:
    AlbertTokenizer(tiny_vocabulary).save_pretrained(tmp_path)
    file = tmp_path / "tokenizer.json"
    content = json.loads(file.read_text())
    content["model"]["byte_fallback"] = True
    file.write_text(json.dumps(content))
    with pytest.raises(TokenizerError, match=r"byte_fallback is true.*Load the spiece\.model"):
        AlbertTokenizerFast(tokenizer_file=file)


def test_the_piece_table_is_what_sentencepiece_reads(tiny_vocabulary: Path) -> None:
    table = read_piece_table(tiny_vocabulary.read_bytes())
    processor = AlbertTokenizer(tiny_vocabulary).sp_model
    assert list(table.pieces) == processor.id_to_piece(list(range(processor.get_piece_size())))
    assert list(table.scores) == processor.get_score(list(range(processor.get_piece_size())))
    assert table.kinds[:5] == (CONTROL, UNKNOWN, CONTROL, CONTROL, CONTROL)
    assert {
        piece for piece, kind in zip(table.pieces, table.kinds, strict=True) if kind == USER_DEFINED
    } == set('()"-.\u2013£€')


# ---- processes and threads ----


def test_copies_and_pickles(tiny: TokenizerBase, tmp_path: Path) -> None:
    tiny.add_tokens(["newword"])
    for other in (pickle.loads(pickle.dumps(tiny)), copy.deepcopy(tiny), copy.copy(tiny)):
        assert other(TEXT + " newword") == tiny(TEXT + " newword")
        assert len(other) == 501
    other = copy.deepcopy(tiny)
    other.add_tokens(["more"])
    assert len(tiny) == 501
    assert pickle.loads(pickle.dumps(other)).save_pretrained(tmp_path)


def _encode(tokenizer: TokenizerBase, texts: list[str], queue) -> None:
    queue.put(tokenizer(texts)["input_ids"])


def test_forked_processes(tiny: TokenizerBase) -> None:
    texts = [f"{TEXT} {number}" for number in range(50)]
    expected = tiny(texts)["input_ids"]  # threads have run before the fork
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    children = [context.Process(target=_encode, args=(tiny, texts, queue)) for _ in range(3)]
    for child in children:
        child.start()
    assert [queue.get() for _ in children] == [expected] * 3
    for child in children:
        child.join(20)
        assert child.exitcode == 0


def test_threads(tiny: TokenizerBase) -> None:
    texts = [f"{TEXT} {number}" for number in range(40)]
    expected = dict(tiny(texts, return_offsets_mapping=True))
    results: list[dict] = []
    threads = [
        threading.Thread(target=lambda: results.append(dict(tiny(texts, return_offsets_mapping=True))))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert results == [expected] * 8


def test_neither_torch_nor_the_rust_library_is_loaded_for_ids(tiny_vocabulary: Path) -> None:
    program = (
        "import sys; from albertkit.tokenization.tokenizer import AlbertTokenizer;"
        f"AlbertTokenizer({str(tiny_vocabulary)!r})('a fox');"
        "print([name for name in ('torch', 'tokenizers', 'numpy', 'transformers') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "[]\n"


# ---- half a megabyte ----

UNITS = {
    "one letter": "a",
    "words": "the captain found a key ",
    "digits": "1990,",
    "unknown": "\u2603",
    "accents": "e\u0301\u0327 ",
    "quotes": "''",
    "spaces": " \t",
    "control tokens": "[MASK]",
}


def _seconds(tokenizer: TokenizerBase, unit: str, size: int, *, offsets: bool) -> float:
    text = unit * (size // len(unit.encode()))
    start = time.process_time()
    tokenizer(text, return_offsets_mapping=offsets, verbose=False)
    return time.process_time() - start


# Twenty times the text may take twenty times the processor's time, more on a busy machine; quadratic is 400.
@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
def test_time_grows_with_the_text_and_not_faster(unit: str, tiny_vocabulary: Path) -> None:
    tokenizer = AlbertTokenizer(tiny_vocabulary)
    for offsets, size in ((False, 25_000), (True, 2_500)):
        small = max(0.001, min(_seconds(tokenizer, unit, size, offsets=offsets) for _ in range(2)))
        assert _seconds(tokenizer, unit, 20 * size, offsets=offsets) < 100 * small


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", {"model": {"type": "Unigram", "unk_id": 0}}, "KeyError.*'vocab'"),
        (
            "tokenizer.json",
            {"model": {"type": "Unigram", "unk_id": 3, "vocab": [["a", -1.0]]}},
            "unk_id is 3",
        ),
        ("tokenizer.json", {"model": {"type": "Unigram", "unk_id": 0, "vocab": [["a", None]]}}, "TypeError"),
        ("tokenizer.json", {"model": ["Unigram"]}, "AttributeError"),
        (
            "tokenizer_config.json",
            {"model_max_length": "512"},
            "model_max_length='512': expected a whole number",
        ),
        (
            "tokenizer_config.json",
            {"padding_side": "lefft"},
            "padding_side='lefft': expected one of left, right",
        ),
        ("tokenizer_config.json", {"do_lower_case": "yes"}, "do_lower_case='yes': expected True or False"),
        ("tokenizer_config.json", {"added_tokens_decoder": ["a"]}, "AttributeError"),
        ("tokenizer_config.json", {"added_tokens_decoder": {"x": {"content": "a"}}}, "ValueError"),
        ("tokenizer_config.json", {"mask_token": 4}, "received 4 for a token"),
        (
            "added_tokens.json",
            {"<x>": "500"},
            "'<x>' has the id '500'. Expected a whole number of at least 500",
        ),
        ("added_tokens.json", {"<x>": 3}, "'<x>' has the id 3"),
        ("added_tokens.json", {"<x>": 500, "<y>": 500}, "two of the added tokens have the same id"),
    ],
)
def test_damage_inside_json(
    name: str, content: dict, message: str, tiny_vocabulary: Path, tmp_path: Path
) -> None:
    AlbertTokenizer(tiny_vocabulary).save_pretrained(tmp_path)
    (tmp_path / "spiece.model").unlink()
    (tmp_path / name).write_text(json.dumps(content))
    if name == "added_tokens.json":  # not read if the settings list the tokens
        (tmp_path / "tokenizer_config.json").unlink()
    with pytest.raises(TokenizerError, match=message) as caught:
        AutoTokenizer.from_pretrained(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_empty_entries_are_none(tiny_vocabulary: Path, tmp_path: Path) -> None:
    AlbertTokenizer(tiny_vocabulary).save_pretrained(tmp_path)
    empty = {"added_tokens_decoder": None, "additional_special_tokens": None, "model_max_length": None}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(empty))
    for cls in BOTH:
        assert cls.from_pretrained(tmp_path)(TEXT) == cls(tiny_vocabulary)(TEXT)


def test_both_names_of_the_special_tokens_without_a_role(tiny_vocabulary: Path, tmp_path: Path) -> None:
    """`transformers` 4 writes one into special_tokens_map.json, 5 the other into tokenizer_config.json."""
    AlbertTokenizer(tiny_vocabulary).save_pretrained(tmp_path)
    for name, content in {
        "special_tokens_map.json": {"additional_special_tokens": ["<x>"]},
        "tokenizer_config.json": {"extra_special_tokens": {"image_token": "<y>"}},
    }.items():
        (tmp_path / name).write_text(json.dumps(content))
    for cls in BOTH:
        assert cls.from_pretrained(tmp_path).extra_special_tokens == ["<x>", "<y>"]
