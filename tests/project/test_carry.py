"""Tests of `scripts/carry.py`: the mix of texts, what is held out, and the packed file."""

from pathlib import Path

import numpy as np
import pytest
from pages_of_books import write_books
from pyarrow import parquet

from albertkit.pretraining.shards import ShardSet


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_books(tmp_path)
    return tmp_path


def test_small_sources_are_whole_and_large_ones_have_an_equal_share(script, data: Path) -> None:
    carry = script("carry")
    texts = parquet.read_table(data / "modern.parquet")["text"].to_pylist()
    large, small = set(texts[:60]), texts[60:]
    chosen = [*carry.modern(data / "modern.parquet", 150_000, held_out=False)]
    assert sum(map(len, chosen)) >= 150_000  # the last text of a source is not cut
    smallest = sorted(small, key=len)[:10]
    assert {*smallest} - {texts[80]} <= {*chosen}  # number 80 is held out
    assert sum(len(text) for text in chosen if text in large) < 60_000
    held_out = [*carry.modern(data / "modern.parquet", 10**9, held_out=True)]
    assert held_out == [texts[0], texts[40], texts[80]]
    assert not {*held_out} & {*carry.modern(data / "modern.parquet", 10**9, held_out=False)}


def test_books_give_passages_of_about_the_same_length(script, data: Path) -> None:
    carry = script("carry")
    texts = parquet.read_table(data / "books.parquet")["text"].to_pylist()
    chosen = [*carry.books(data / "books.parquet", 79 * 2_000, held_out=False)]
    own = [text for number, text in enumerate(texts) if number % 40]
    assert all(passage in text for passage, text in zip(chosen, own, strict=True))
    assert max(map(len, chosen)) <= 2_000
    assert np.median([*map(len, chosen)]) > 1_000
    held_out = [*carry.books(data / "books.parquet", 3 * 2_000, held_out=True)]
    assert all(passage in texts[number] for passage, number in zip(held_out, (0, 40, 80), strict=True))


def test_packed_shards_come_back_equal(script, data: Path, tmp_path: Path) -> None:
    carry = script("carry")
    (tmp_path / "shards").mkdir()
    carry.make_shards(data, "bundled", tmp_path / "shards", 60_000)
    carry.pack(tmp_path / "shards", tmp_path / "shards.tar.xz")
    carry.unpack(tmp_path / "shards.tar.xz", tmp_path / "back")
    assert {path.name for path in (tmp_path / "back").iterdir()} == {"train", "validation", "books", "modern"}
    for name in ("train", "validation", "books", "modern"):
        back, packed = (ShardSet(tmp_path / folder / name) for folder in ("back", "shards"))
        assert back.manifest == packed.manifest
        back.check_files()
    kilobytes = sum(file.stat().st_size for file in (tmp_path / "shards").rglob("*.arrow")) / 1000
    assert (tmp_path / "shards.tar.xz").stat().st_size / 1000 < 0.7 * kilobytes


def test_missing_text_is_an_error_before_any_work(script, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("sys.argv", ["carry.py", str(tmp_path), "--output", str(tmp_path / "out")])
    with pytest.raises(SystemExit, match=r"books\.parquet: no such file"):
        script("carry").main()
    assert not (tmp_path / "out").exists()
