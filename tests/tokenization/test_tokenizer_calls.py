"""Tests of calls that are written for tokenizers of `transformers`."""

from pathlib import Path
from typing import Any

import numpy
import pytest
import tokenizers
import torch
import transformers

from albertkit.errors import ConfigError, DataError, TokenizerError
from albertkit.tokenization.base import TokenizerBase
from albertkit.tokenization.tokenizer import AlbertTokenizer, AlbertTokenizerFast, AutoTokenizer
from albertkit.tokenization.wordpiece import AlbertWordPieceTokenizer

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "fox", "##es", "[", "]", "mask"]
CLASSES = [AlbertTokenizer, AlbertTokenizerFast, AlbertWordPieceTokenizer]
TEXT = "The fox, in 1847 [MASK]."


@pytest.fixture(scope="module")
def folders(tiny_vocabulary: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[type, Path]:
    """Return a folder for each class."""
    root = tmp_path_factory.mktemp("tokenizers")
    (root / "vocab.txt").write_text("\n".join(PIECES))
    result = {}
    for cls in CLASSES:
        source = root / "vocab.txt" if cls is AlbertWordPieceTokenizer else tiny_vocabulary
        result[cls] = root / cls.__name__
        cls(source).save_pretrained(result[cls])
    return result


@pytest.fixture(params=CLASSES, ids=lambda cls: cls.__name__)
def tokenizer(request: pytest.FixtureRequest, folders: dict[type, Path]) -> TokenizerBase:
    return request.param.from_pretrained(folders[request.param])


# ---- options and attributes of transformers ----


@pytest.mark.parametrize("cls", [*CLASSES, AutoTokenizer], ids=lambda cls: cls.__name__)
def test_loading_options(cls: Any, folders: dict[type, Path]) -> None:
    folder = folders.get(cls, folders[AlbertTokenizer])
    options = {"trust_remote_code": True, "use_fast": True, "verbose": False, "add_prefix_space": True}
    loaded = cls.from_pretrained(folder, **options, trim_offsets=True, sp_model_kwargs={}, config=object())
    assert loaded(TEXT) == cls.from_pretrained(folder)(TEXT)
    with pytest.raises(TokenizerError, match=r"add_prefix_space.*not supported"):
        cls.from_pretrained(folder, add_prefix_space=False)
    assert cls.from_pretrained(folder.parent, subfolder=folder.name)(TEXT) == loaded(TEXT)
    with pytest.raises(ConfigError, match="gguf_file"):
        cls.from_pretrained(folder, gguf_file="x")
    with pytest.raises(TypeError, match=r"no argument 'paddingside' .did you mean 'padding_side'"):
        cls.from_pretrained(folder, paddingside="left")
    for name, value in (("padding_side", "lefft"), ("model_max_length", 0), ("do_lower_case", "no")):
        with pytest.raises(TokenizerError, match=f"{name}="):
            cls.from_pretrained(folder, **{name: value})
    assert cls.from_pretrained(folder, model_max_length=int(1e30)).model_max_length == int(1e30)


def test_the_argument_tokenizer_file(folders: dict[type, Path]) -> None:
    folder = folders[AlbertTokenizer]
    file = folder / "tokenizer.json"
    expected = AlbertTokenizerFast.from_pretrained(folder)(TEXT)
    for built in (
        AlbertTokenizer(tokenizer_file=file),
        AlbertTokenizer(tokenizer_file=str(file), model_max_length=64),
        AlbertTokenizer.from_pretrained(folder, tokenizer_file=file),
        AutoTokenizer.from_pretrained(folder, tokenizer_file=str(file)),
    ):
        assert isinstance(built, AlbertTokenizer)
        assert built.backend_tokenizer.get_vocab_size() == built.vocab_size
        assert built.vocab_file is None
        assert built(TEXT) == expected
    assert not AlbertTokenizer(None, False, tokenizer_file=file).do_lower_case
    assert type(AlbertTokenizer(folder / "spiece.model", tokenizer_file=file)) is AlbertTokenizer
    with pytest.raises(TokenizerError, match="received no file"):
        AlbertTokenizer()


def test_a_file_and_the_settings_of_a_folder(folders: dict[type, Path], tmp_path: Path) -> None:
    """A given file replaces the vocabulary of the folder, but not its settings."""
    for cls, name in (
        (AlbertTokenizer, "vocab_file"),
        (AlbertTokenizerFast, "tokenizer_file"),
        (AlbertWordPieceTokenizer, "vocab_file"),
        (AlbertWordPieceTokenizer, "tokenizer_file"),
    ):
        files = {"vocab_file": "spiece.model", "tokenizer_file": "tokenizer.json"}
        if cls is AlbertWordPieceTokenizer:
            files["vocab_file"] = "vocab.txt"
        other = tmp_path / f"{cls.__name__} {name}"
        cls.from_pretrained(folders[cls], model_max_length=77).save_pretrained(other)
        expected = cls.from_pretrained(folders[cls])(TEXT)
        for loader in (cls, AutoTokenizer):
            loaded = loader.from_pretrained(other, **{name: str(folders[cls] / files[name])})
            assert (type(loaded), loaded.model_max_length, loaded(TEXT)) == (cls, 77, expected)
            for file in files.values():
                (other / file).unlink(missing_ok=True)  # the second loader does not need them


def test_both_names_of_a_setting(folders: dict[type, Path], tmp_path: Path) -> None:
    for cls in CLASSES:
        tokenizer = cls.from_pretrained(folders[cls], extra_special_tokens=["<x>"])
        folder = tmp_path / cls.__name__
        tokenizer.save_pretrained(folder)
        for name in ("extra_special_tokens", "additional_special_tokens"):
            for built in (
                cls.from_pretrained(folder, **{name: ["<a>"]}),
                cls(tokenizer_file=folder / "tokenizer.json", **{name: ["<a>"]}),
            ):
                assert built.extra_special_tokens == built.additional_special_tokens == ["<a>"]
        both = {"additional_special_tokens": ["<a>"], "extra_special_tokens": ["<b>"]}
        theirs = transformers.AutoTokenizer.from_pretrained(folder, **both)
        for built in (cls.from_pretrained(folder, **both), theirs):
            assert built.extra_special_tokens == ["<b>"]
            with pytest.raises(ValueError, match="additional_special_tokens"):
                built.add_special_tokens(both)


def test_special_tokens_as_text(tokenizer: TokenizerBase, folders: dict[type, Path], tmp_path: Path) -> None:
    parsed, split = tokenizer.encode("[MASK]"), tokenizer.encode("[MASK]", parse_special_tokens=False)
    assert parsed != split
    assert tokenizer.encode("[MASK]", split_special_tokens=True) == split
    assert tokenizer.encode("[MASK]", split_special_tokens=False) == parsed
    assert (
        tokenizer.tokenize("[MASK]") == tokenizer.tokenize("[MASK]", split_special_tokens=False) == ["[MASK]"]
    )
    assert "[MASK]" not in tokenizer.tokenize("[MASK]", split_special_tokens=True)
    other = type(tokenizer).from_pretrained(folders[type(tokenizer)], split_special_tokens=True)
    assert (other.split_special_tokens, other.parse_special_tokens) == (True, False)
    assert other.encode("[MASK]") == split
    other.save_pretrained(tmp_path)
    assert type(tokenizer).from_pretrained(tmp_path).split_special_tokens
    assert type(tokenizer).from_pretrained(tmp_path, split_special_tokens=False).encode("[MASK]") == parsed


def test_attributes(tokenizer: TokenizerBase, folders: dict[type, Path]) -> None:
    theirs = transformers.AlbertTokenizer.from_pretrained(folders[AlbertTokenizer])
    if type(tokenizer) is not AlbertWordPieceTokenizer:
        assert tokenizer.added_tokens_encoder == theirs.added_tokens_encoder
        assert list(tokenizer.added_tokens_encoder) == list(theirs.added_tokens_encoder)
        assert {number: str(token) for number, token in tokenizer.added_tokens_decoder.items()} == {
            number: str(token) for number, token in theirs.added_tokens_decoder.items()
        }
        assert tokenizer.get_added_vocab() == theirs.get_added_vocab()
        assert tokenizer.extra_special_tokens == theirs.extra_special_tokens == []
        assert list(tokenizer.SPECIAL_TOKENS_ATTRIBUTES) == theirs.SPECIAL_TOKENS_ATTRIBUTES
        assert tokenizer.special_tokens_map == theirs.special_tokens_map
    assert all(isinstance(token, tokenizers.AddedToken) for token in tokenizer.added_tokens_decoder.values())
    assert tokenizer.vocab == tokenizer.get_vocab()
    assert tokenizer.init_kwargs["padding_side"] == "right"
    assert tokenizer.init_kwargs["mask_token"] == "[MASK]"
    assert type(tokenizer)(tokenizer.vocab_file, **tokenizer.init_kwargs)(TEXT) == tokenizer(TEXT)


def test_decoding_accepts_the_inputs_of_transformers(tokenizer: TokenizerBase) -> None:
    ids = tokenizer.encode("the fox", add_special_tokens=False)
    for given_ids in (
        ids,
        [torch.tensor(token_id) for token_id in ids],
        torch.tensor(ids),
        numpy.array(ids),
        {"input_ids": ids},
    ):
        assert tokenizer.decode(given_ids) == "the fox"
        assert tokenizer.decode(given_ids, spaces_between_special_tokens=False) == "the fox"
    assert tokenizer.decode(ids[0]) == tokenizer.decode(torch.tensor(ids[0])) == tokenizer.decode(ids[:1])
    assert tokenizer.decode([ids, ids]) == tokenizer.batch_decode(torch.tensor([ids, ids])) == ["the fox"] * 2
    assert tokenizer.convert_ids_to_tokens(
        [torch.tensor(token_id) for token_id in ids]
    ) == tokenizer.tokenize("the fox")
    assert tokenizer.convert_ids_to_tokens(torch.tensor(ids[0])) == tokenizer.tokenize("the fox")[0]


def test_ids_of_roles_can_be_set(tokenizer: TokenizerBase) -> None:
    for role in tokenizer.SPECIAL_TOKENS_ATTRIBUTES:
        setattr(tokenizer, f"{role}_id", None)
        assert (getattr(tokenizer, role), getattr(tokenizer, f"{role}_id")) == (None, None)
        setattr(tokenizer, f"{role}_id", 5)
        assert getattr(tokenizer, role) == tokenizer.convert_ids_to_tokens(5)
    tokenizer.additional_special_tokens_ids = [6, 7]
    assert tokenizer.additional_special_tokens == tokenizer.convert_ids_to_tokens([6, 7])
    tokenizer.additional_special_tokens_ids = []
    assert tokenizer.extra_special_tokens == []


def test_the_collator_of_transformers(tokenizer: TokenizerBase) -> None:
    rows = [tokenizer("the fox"), tokenizer("the")]
    collate = transformers.DataCollatorWithPadding(tokenizer)  # type: ignore[arg-type]
    first, second = collate(rows), collate(rows)
    assert first["attention_mask"].tolist() == second["attention_mask"].tolist()
    assert first["attention_mask"].sum(-1).tolist() == [len(row["input_ids"]) for row in rows]
    assert tokenizer.pad(rows, verbose=False)["input_ids"] == first["input_ids"].tolist()


def test_saving_options(tokenizer: TokenizerBase, tmp_path: Path) -> None:
    paths = tokenizer.save_pretrained(tmp_path, legacy_format=False, filename_prefix="mine")
    assert all(Path(path).name.startswith("mine-") for path in paths)
    with pytest.raises(ConfigError, match=r"push_to_hub=True is not supported.*hf upload"):
        tokenizer.save_pretrained(tmp_path, push_to_hub=True)


def test_training_on_other_texts(
    tiny_vocabulary: Path, tiny_texts: list[str], folders: dict[type, Path]
) -> None:
    for cls in (AlbertTokenizer, AlbertTokenizerFast):
        old = cls(tiny_vocabulary, do_lower_case=False, model_max_length=99, extra_special_tokens=["<a>"])
        batches = [tiny_texts[at : at + 20] for at in range(0, 100, 20)]
        new = old.train_new_from_iterator(batches, 300, length=5, new_special_tokens=["<b>"])
        assert type(new) is cls
        assert (new.vocab_size, len(new), new.model_max_length, new.do_lower_case) == (300, 302, 99, False)
        assert new.extra_special_tokens == ["<a>", "<b>"]
        assert new(TEXT) == old.train_new_from_iterator(iter(tiny_texts[:100]), 300)(TEXT)
        old.add_tokens(["kiwistan"])
        grown = old.train_new_from_iterator(tiny_texts[:100], 300, new_special_tokens=["<b>"])
        assert grown.get_added_vocab().keys() >= {"kiwistan", "<a>", "<b>"}
        assert grown.extra_special_tokens == ["<a>", "<b>"]
        assert "kiwistan" in grown.tokenize("a kiwistan")
        with pytest.raises(TokenizerError, match="special_tokens_map"):
            old.train_new_from_iterator(batches, 300, special_tokens_map={"[CLS]": "<cls>"})
        for unusable in ("a text " * 99, [{"text": "a text"}] * 99, [["a text", None]]):
            with pytest.raises(TokenizerError, match=r"received .* for (a text|the texts)\."):
                old.train_new_from_iterator(unusable, 20)


def test_training_wordpieces_on_other_texts(tiny_texts: list[str], folders: dict[type, Path]) -> None:
    old = AlbertWordPieceTokenizer.from_pretrained(folders[AlbertWordPieceTokenizer], model_max_length=99)
    old.add_tokens(["kiwistan"])
    batches = [tiny_texts[at : at + 20] for at in range(0, 100, 20)]
    new = old.train_new_from_iterator(batches, 300, new_special_tokens=["<b>"])
    assert (new.vocab_size, len(new), new.model_max_length) == (300, 302, 99)
    assert new.convert_ids_to_tokens(range(5)) == PIECES[:5]
    assert (new.extra_special_tokens, new.tokenize("a kiwistan")) == (["<b>"], ["a", "kiwistan"])
    theirs = transformers.BertTokenizer.from_pretrained(folders[AlbertWordPieceTokenizer])
    theirs = theirs.train_new_from_iterator(batches, 300)
    # Their training decides ties between pieces at random, ours does not.
    for _ in range(3):
        again = old.train_new_from_iterator(batches, 300, new_special_tokens=["<b>"])
        assert again.get_vocab() == new.get_vocab()
    assert len(new.get_vocab().keys() & theirs.get_vocab().keys()) > 240
    for texts, size, message in (([""], 300, "no text"), (batches, 9, "too few: .* alone need")):
        with pytest.raises(DataError, match=message):
            old.train_new_from_iterator(texts, size)
    for unusable, size in (("a text " * 99, 20), ([["a text", None]], 20), (batches, 0)):
        with pytest.raises(ValueError, match=r"received .* for (a text|the texts)\.|vocab_size is 0"):
            old.train_new_from_iterator(unusable, size)
