"""Tests of `datasets.IterableDataset` as the input of `prepare`, which streams it, and of `finetune`."""

import gc
from collections.abc import Iterator
from pathlib import Path

import datasets
import pytest

import albertkit
from albertkit.errors import DataError
from albertkit.pretraining.corpus import Corpus

SENTENCES = "The captain {0} opened the door. He looked at the sea. It was number {0}. Nobody answered him."


class Text(str):
    """A text that counts how many are held at once."""

    held = most = 0

    def __new__(cls, text: str) -> "Text":
        cls.held += 1
        cls.most = max(cls.most, cls.held)
        return super().__new__(cls, text)

    def __del__(self) -> None:
        type(self).held -= 1


class Stream:
    """Rows that can be iterated repeatedly, and that count the rows that were read."""

    def __init__(self, count: int) -> None:
        self.count, self.asked = count, 0

    def __iter__(self) -> Iterator[dict[str, str]]:
        for number in range(self.count):
            self.asked += 1
            yield {"text": Text(SENTENCES.format(number))}


@pytest.mark.parametrize("kind", ["stream", "generator"])
def test_prepare_keeps_the_texts_of_a_unit_in_memory(kind: str, tmp_path: Path) -> None:
    stream = Stream(1500)
    gc.collect()
    Text.most = Text.held
    streamed = albertkit.prepare(
        stream if kind == "stream" else iter(stream),
        tokenizer="bundled", output=tmp_path / "streamed", workers=1, unit_characters=4_000,
    )  # fmt: skip
    gc.collect()
    assert 0 < Text.most < 150  # a unit has about 45, and the next one is read meanwhile
    # A generator is read once; otherwise the first thousand rows are read before, to see the columns.
    assert stream.asked == (2500 if kind == "stream" else 1500)
    rows = [{"text": SENTENCES.format(number)} for number in range(1500)]
    whole = albertkit.prepare(
        rows, tokenizer="bundled", output=tmp_path / "whole", workers=1, unit_characters=4_000
    )
    assert [shard.sha256 for shard in streamed.train.shards] == [shard.sha256 for shard in whole.train.shards]
    assert len(streamed.train.shards) > 10


def test_an_iterable_dataset_is_prepared_as_its_rows_are(tmp_path: Path) -> None:
    rows = [{"body": SENTENCES.format(number)} for number in range(50)]
    dataset = datasets.Dataset.from_list(rows)
    found = [
        albertkit.prepare(
            data, tokenizer="bundled", output=tmp_path / name, workers=1, text_column="body", holdout_every=10
        )
        for name, data in {"streamed": dataset.to_iterable_dataset(), "whole": dataset}.items()
    ]
    hashes = [[shard.sha256 for shard in one.train.shards] for one in found]
    assert hashes[0] == hashes[1]
    assert found[0].summary()["source_documents"] == 50
    for stream in (dataset.to_iterable_dataset(), iter(rows)):
        with pytest.raises(DataError, match=r"the given rows: no column 'text'. The columns are body"):
            Corpus(stream)


def test_a_generator_of_other_values_is_an_error(tmp_path: Path) -> None:
    for values, message in (
        ([], "there is no input"),
        ([1, 2], "row 1: expected a mapping from column names"),
        (["nowhere.txt"], "'nowhere.txt': no .txt"),
    ):
        with pytest.raises(DataError, match=message):
            Corpus(iter(values))
    with pytest.raises(DataError, match="row 2: expected a mapping"):
        list(Corpus(iter([{"text": "a"}, "b"])))
    (tmp_path / "a.txt").write_text("A text.")
    assert [one.text for one in Corpus(tmp_path.glob("*.txt"))] == ["A text."]


def test_a_vocabulary_is_trained_from_a_generator(tmp_path: Path) -> None:
    stream = Stream(300)
    found = albertkit.train_tokenizer(iter(stream), output=tmp_path / "tokenizer", vocab_size=60)
    assert (found.pieces, stream.asked) == (60, 300)


@pytest.mark.usefixtures("blank_pictures")
def test_an_iterable_dataset_is_learned_with_the_names_of_its_labels(tmp_path: Path) -> None:
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["fine", "rain"])}
    )
    rows = [{"text": f"Rain {n}." if n % 2 else f"Fine {n}.", "label": n % 2} for n in range(16)]
    stream = datasets.Dataset.from_list(rows, features=features).to_iterable_dataset()
    run = albertkit.finetune(
        "text-classification", train=stream.shuffle(seed=1), validation=stream.take(8), output=tmp_path,
        steps=1, batch_size=4, max_length=8, precision="fp32", device="cpu",
    )  # fmt: skip
    assert run.report
    assert run.report["data"]["training"]["examples"] == 16
    assert run.report["data"]["validation"]["examples"] == 8
    assert {one["label"] for one in run.pipeline()(["Rain 3.", "Fine 2."])} <= {"fine", "rain"}
