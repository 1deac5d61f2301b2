"""Tests of models with a WordPiece vocabulary: pipelines, conversions and checks of its size."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from wordpiece_texts import TEXTS
from wordpiece_vocabulary import PIECES

import albertkit
from albertkit import (
    AlbertConfig,
    AlbertForMaskedLM,
    AlbertWordPieceTokenizer,
    AutoTokenizer,
    CheckpointError,
    ConfigError,
)
from albertkit.conversion import convert


def small_config(**values: Any) -> AlbertConfig:
    sizes = {"vocab_size": len(PIECES), "embedding_size": 8, "hidden_size": 16, "num_attention_heads": 2}
    ids = {"bos_token_id": 21, "eos_token_id": 22}
    return AlbertConfig(**{**sizes, "num_hidden_layers": 2, "intermediate_size": 32, **ids, **values})


@pytest.fixture
def model_folder(wordpiece_folder: Path, tmp_path: Path) -> Path:
    """Return a model in the files of a Chinese checkpoint: weights, config and vocab.txt."""
    torch.manual_seed(0)
    folder = tmp_path / "zh"
    AlbertForMaskedLM(small_config(hidden_act="relu")).save_pretrained(folder)
    (folder / "vocab.txt").write_bytes((wordpiece_folder / "vocab.txt").read_bytes())
    return folder


def flat(answers: list[Any]) -> list[Any]:
    """Return the answers of all masks in one list."""
    return [answer for mask in answers for answer in mask] if isinstance(answers[0], list) else answers


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
        for answer, expected in zip(flat(ours(text)), flat(theirs(text)), strict=True):
            assert (answer["token"], answer["token_str"]) == (expected["token"], expected["token_str"])
            assert answer["score"] == pytest.approx(expected["score"], abs=1e-6)
            assert answer["sequence"] == expected["sequence"]
    assert ours(texts[0], targets=["爱"])[0]["token_str"] == "爱"
    with pytest.raises(albertkit.DataError, match=r"北 京.*## marks a piece inside a word"):
        ours(texts[0], targets=["北京"])


def test_the_vocabulary_of_another_model_is_an_error(
    model_folder: Path, wordpiece_tokenizer: AlbertWordPieceTokenizer
) -> None:
    AlbertForMaskedLM(small_config(vocab_size=50)).save_pretrained(model_folder)
    with pytest.raises(ConfigError, match=rf"{len(PIECES)} pieces, but the model has 50"):
        albertkit.pipeline("fill-mask", model_folder, tokenizer=wordpiece_tokenizer)
    with pytest.raises(CheckpointError, match=rf"{len(PIECES)} pieces, but the model has 50 embeddings"):
        convert(model_folder, model_folder.parent / "out")


def test_conversion_keeps_the_vocabulary(
    model_folder: Path, wordpiece_tokenizer: AlbertWordPieceTokenizer
) -> None:
    words = (model_folder / "vocab.txt").read_bytes()
    tf1, converted, julia = (model_folder.parent / name for name in ("tf1", "converted", "zh.tfbson"))
    convert(model_folder, tf1, to="tf1")
    assert (tf1 / "vocab.txt").read_bytes() == words
    report = convert(tf1, converted, verify=True)
    assert report.largest_difference < 1e-5
    assert {Path(path).name for path in report.checksums} > {"vocab.txt", "tokenizer_config.json"}
    for folder in (converted, tf1):
        assert AutoTokenizer.from_pretrained(folder)(TEXTS) == wordpiece_tokenizer(TEXTS)
    theirs = transformers.AutoTokenizer.from_pretrained(converted)
    assert theirs(TEXTS)["input_ids"] == wordpiece_tokenizer(TEXTS)["input_ids"]
    answers = [
        albertkit.pipeline("fill-mask", folder, device="cpu")("生活的真谛是[MASK]。")
        for folder in (model_folder, converted)
    ]
    assert answers[0] == answers[1]
    (note,) = convert(model_folder, julia).notes
    assert note == "vocab.txt was left out: Julia's files list SentencePiece's pieces only"


def test_the_report_mentions_embeddings_without_pieces(model_folder: Path) -> None:
    size = len(PIECES) + 7
    AlbertForMaskedLM(small_config(vocab_size=size)).save_pretrained(model_folder)
    (note,) = convert(model_folder, model_folder.parent / "out").notes
    assert (
        note == f"the vocabulary has {len(PIECES)} pieces, but the model has {size} embeddings: "
        "7 embeddings have no piece"
    )
    assert len(AutoTokenizer.from_pretrained(model_folder.parent / "out")) == len(PIECES)
