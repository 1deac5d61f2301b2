"""Tests of `prepare` after interruptions and failures, and with invalid settings or texts."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from pretraining_runs import folder_bytes

from albertkit import files
from albertkit.errors import ConfigError, DataError, DiskFullError, ModelNotFoundError
from albertkit.pretraining import prepare as prepare_module
from albertkit.pretraining.prepare import PreparedFolder, PrepareProgress, PrepareReport, prepare
from albertkit.pretraining.shards import ShardSet
from albertkit.tokenization.unigram import UnigramModel


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"workers": 0}, "workers is 0. Expected at least 1"),
        ({"workers": -1}, "workers is -1. Expected at least 1"),
        ({"unit_characters": 0}, "unit_characters must be 1 or more, not 0"),
    ],
)
def test_invalid_settings_are_an_error(
    settings: dict[str, int], message: str, tmp_path: Path, tiny_vocabulary: Path
) -> None:
    (tmp_path / "a.txt").write_text("The river is long. A man sat there.\n")
    with pytest.raises(ConfigError, match=message):
        prepare([tmp_path / "a.txt"], tiny_vocabulary, tmp_path / "shards", **settings)
    assert not (tmp_path / "shards").exists()


def test_an_interrupted_call_is_resumed(tmp_path: Path, corpus_file: Path, tiny_vocabulary: Path) -> None:
    def run(output: Path, progress: Any = None) -> PrepareReport:
        return prepare(
            [corpus_file], tiny_vocabulary, output, workers=1, unit_characters=20_000, progress=progress
        )

    def interrupt(done: PrepareProgress) -> None:
        if done.units == 3:
            raise KeyboardInterrupt

    run(tmp_path / "whole")
    expected = folder_bytes(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "cut", interrupt)
    with pytest.raises(DataError, match=r"no manifest\.json, so it is not a finished shard folder"):
        ShardSet(tmp_path / "cut/train")
    # Damage a finished shard, and add a shard of another corpus.
    damaged = tmp_path / "cut/train/shard-00001.arrow"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    shutil.copy(damaged, tmp_path / "cut/train/shard-09999.arrow")
    assert run(tmp_path / "cut").reused_shards == 2
    assert folder_bytes(tmp_path / "cut") == expected
    with pytest.raises(DataError, match="has finished shards"):
        run(tmp_path / "cut")


class FailingEncoder(UnigramModel):
    """An encoder that fails for the text with the word poison."""

    def ids_batch(self, texts: list[str], num_threads: int | None = None) -> list[list[int]]:
        if any("poison" in text for text in texts):
            raise MemoryError("too much")
        return super().ids_batch(texts, num_threads)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_error_of_a_worker_names_the_document(
    tmp_path: Path, corpus_file: Path, tiny_vocabulary: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    with corpus_file.open("a", encoding="utf-8") as file:
        file.write('{"text": "This is poison. Beware."}\n')
    monkeypatch.setattr(prepare_module, "UnigramModel", FailingEncoder)
    with pytest.raises(DataError, match=r"corpus.jsonl, line 201: MemoryError: too much"):
        prepare([corpus_file], tiny_vocabulary, tmp_path / "out", workers=workers, unit_characters=20_000)
    assert not (tmp_path / "out/train/manifest.json").exists()


@pytest.mark.parametrize("full_at", ["shard-00002.arrow", "00002.json", "manifest.json"])
def test_a_full_disk_keeps_finished_shards(
    tmp_path: Path, corpus_file: Path, tiny_vocabulary: Path, monkeypatch: pytest.MonkeyPatch, full_at: str
) -> None:
    def run(output: Path):
        return prepare(
            [corpus_file], tiny_vocabulary, output, workers=1, unit_characters=20_000, holdout_every=10
        )

    whole = run(tmp_path / "whole")
    flush = files.flush_to_disk

    def full(path: Path, *flags: int) -> None:
        if full_at in path.name:
            path.write_bytes(path.read_bytes()[:10])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        flush(path, *flags)

    monkeypatch.setattr(files, "flush_to_disk", full)
    with pytest.raises(DiskFullError, match=r"out/.*: no space left.*Free some space"):
        run(tmp_path / "out")
    for split in ("train", "validation"):
        with pytest.raises(DataError, match="not a finished shard folder"):
            ShardSet(tmp_path / "out" / split)
    monkeypatch.setattr(files, "flush_to_disk", flush)
    shards = [*whole.train.shards, *whole.validation.shards]
    finished = [one for one in shards if full_at == "manifest.json" or one.file <= "shard-00001.arrow"]
    assert run(tmp_path / "out").reused_shards == len(finished) >= 2
    assert folder_bytes(tmp_path / "out") == folder_bytes(tmp_path / "whole")


def test_prepare_removes_only_its_own_files(tmp_path: Path, corpus_file: Path, tiny_vocabulary: Path) -> None:
    for name in ("train/data.arrow", "validation/notes.txt", "train/.shard-00001.arrow.0a1b.tmp"):
        (tmp_path / "out" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "out" / name).write_text("mine")
    (tmp_path / "out/validation/manifest.json").write_text("of an interrupted run")
    (tmp_path / "out/.progress").mkdir()
    prepare([corpus_file], tiny_vocabulary, tmp_path / "out", workers=1)
    assert sorted(folder_bytes(tmp_path / "out")) == [
        "train/data.arrow", "train/manifest.json", "train/shard-00000.arrow", "validation/notes.txt"
    ]  # fmt: skip


def test_two_calls_cannot_share_a_folder(tmp_path: Path, corpus_file: Path, tiny_vocabulary: Path) -> None:
    """Without a lock, the second call removed shards of the first when it ended."""
    with (
        PreparedFolder(tmp_path / "out").open(),
        pytest.raises(DataError, match="out is in use by another `prepare`"),
    ):
        prepare([corpus_file], tiny_vocabulary, tmp_path / "out", workers=1)
    assert prepare([corpus_file], tiny_vocabulary, tmp_path / "out", workers=1).train.documents
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["train"]


def die(unit: object) -> None:
    os._exit(1)


def test_a_killed_worker_is_an_error(
    tmp_path: Path, corpus_file: Path, tiny_vocabulary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("albertkit.pretraining.prepare.partial", lambda *_, **__: die)
    with pytest.raises(DataError, match=r"a worker process was killed after .*corpus.jsonl, line 1,"):
        prepare([corpus_file], tiny_vocabulary, tmp_path / "out", workers=2, unit_characters=20_000)


def test_a_write_error_does_not_block_the_next_call(
    tmp_path: Path, corpus_file: Path, tiny_vocabulary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(prepare_module, "write_json", fail)
        with pytest.raises(OSError, match="Input/output error"):
            prepare([corpus_file], tiny_vocabulary, tmp_path / "out", workers=1)
    assert not (tmp_path / "out").exists()
    assert prepare([corpus_file], tiny_vocabulary, tmp_path / "out", workers=1).reused_shards == 0


def test_corpora_without_usable_text_are_an_error(tmp_path: Path, tiny_vocabulary: Path) -> None:
    """`prepare` leaves no folder, so that the next call may have other settings."""
    file = tmp_path / "corpus.txt"
    file.write_text("\ufeff\u200b\n", encoding="utf-8")  # normalization removes these characters
    with pytest.raises(DataError, match="no text to train on"):
        prepare([file], tiny_vocabulary, tmp_path / "out", workers=1)
    file.write_text("One line\n\nAnother\n", encoding="utf-8")
    with pytest.raises(DataError, match="none of the 2 documents has two sentences"):
        prepare([file], tiny_vocabulary, tmp_path / "out", workers=1, sentence_per_line=True)
    file.write_text("One line. Another.", encoding="utf-8")
    for seed, message in enumerate(("no text to train on", "no text is held out for validation")):
        with pytest.raises(DataError, match=rf"{message}.*A \.txt file is one source document\. Split it"):
            prepare([file], tiny_vocabulary, tmp_path / "out", workers=1, holdout_every=5, seed=seed)
    assert not (tmp_path / "out").exists()
    with pytest.raises(ConfigError, match="holdout_every must be 2 or more"):
        prepare([file], tiny_vocabulary, tmp_path / "out", workers=1, holdout_every=1)
    with pytest.raises(ConfigError, match=r"language must be an ISO 639 code .* not 'english'"):
        prepare([file], tiny_vocabulary, tmp_path / "out", language="english")
    with pytest.raises(ConfigError, match=r"no runner 'rya'\. Did you mean 'ray'"):
        prepare([file], tiny_vocabulary, tmp_path / "out", runner="rya")
    with pytest.raises(ModelNotFoundError, match=r"\*\.model"):
        prepare([file], tmp_path, tmp_path / "out")


def test_a_corpus_without_usable_text_removes_interrupted_shards(
    tmp_path: Path, corpus_file: Path, tiny_vocabulary: Path
) -> None:
    def stop(progress: prepare_module.PrepareProgress) -> None:
        if progress.units == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare([corpus_file], tiny_vocabulary, tmp_path / "out", workers=1, unit_characters=20_000,
            holdout_every=10, progress=stop)  # fmt: skip
    assert len(folder_bytes(tmp_path / "out")) > 6
    (tmp_path / "out/train/.shard-00004.arrow.0a1b.tmp").write_text("partial")
    file = tmp_path / "corpus.txt"
    file.write_text("One line\n\nAnother\n", encoding="utf-8")
    with pytest.raises(DataError, match="has two sentences"):
        prepare([file], tiny_vocabulary, tmp_path / "out", workers=1, sentence_per_line=True)
    assert list((tmp_path / "out").iterdir()) == []
    assert prepare([corpus_file], tiny_vocabulary, tmp_path / "out", workers=1).reused_shards == 0
