"""Raw text to token shards: readers, sentences, sections, determinism, restart, errors."""

import errno
import gzip
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from albertkit import files, parallel, text_files
from albertkit.errors import ConfigError, DataError, DiskFullError, ModelNotFoundError
from albertkit.pretraining import corpus as corpus_module
from albertkit.pretraining import prepare as prepare_module
from albertkit.pretraining import prepared_folder
from albertkit.pretraining.corpus import Corpus
from albertkit.pretraining.prepare import prepare
from albertkit.pretraining.settings import PreparationSettings
from albertkit.pretraining.shards import ShardBuilder, ShardSet
from albertkit.pretraining.units import Unit, Work, sections
from albertkit.tokenization.normalization import Normalization
from albertkit.tokenization.unigram import UnigramModel


@pytest.fixture
def corpus_file(tmp_path: Path, tiny_texts: list[str]) -> Path:
    file = tmp_path / "corpus.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in tiny_texts), encoding="utf-8")
    return file


def read(*inputs: Path, **settings) -> list[str]:
    return [document.text for document in Corpus.find(inputs, **settings)]


def test_every_format_gives_the_same_documents(tmp_path: Path) -> None:
    texts = ["One. Two.", "Drei. Vier.\nFünf."]
    table = pa.table({"body": texts, "year": [1, 2]})
    parquet.write_table(table, tmp_path / "a.parquet")
    lines = "".join(json.dumps({"body": text, "year": 1}) + "\n" for text in texts)
    (tmp_path / "b.jsonl").write_text(lines, encoding="utf-8")
    for name, plain in (("a.parquet", "c"), ("b.jsonl", "d")):
        content = (tmp_path / name).read_bytes()
        half = len(content) // 2  # as some tools write them: several compressed streams, one after another
        (tmp_path / f"{plain}.{name[2:]}.gz").write_bytes(
            gzip.compress(content[:half]) + gzip.compress(content[half:])
        )
        with pa.CompressedOutputStream(str(tmp_path / f"{plain}.{name[2:]}.zst"), "zstd") as file:
            file.write(content)
    names = ["a.parquet", "b.jsonl", "c.parquet.gz", "c.parquet.zst", "d.jsonl.gz", "d.jsonl.zst"]
    assert sorted(file.name for file in tmp_path.iterdir()) == names
    for name in names:
        assert read(tmp_path / name, text_column="body") == texts
    assert read(tmp_path, text_column="body") == texts * 6
    assert read(tmp_path / "*.jsonl*", text_column="body") == texts * 3


@pytest.mark.parametrize("sentence_per_line", [False, True])
def test_text_files_may_be_compressed(tmp_path: Path, sentence_per_line: bool) -> None:
    content = b"One.\nTwo.\n\nThree.\n"
    (tmp_path / "a.txt").write_bytes(content)
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(content))
    with pa.CompressedOutputStream(str(tmp_path / "c.txt.zst"), "zstd") as file:
        file.write(content)
    expected = read(tmp_path / "a.txt", sentence_per_line=sentence_per_line)
    assert len(expected) == 1 + sentence_per_line
    assert read(tmp_path, sentence_per_line=sentence_per_line) == expected * 3


def test_sentence_per_line_has_a_document_between_blank_lines(tmp_path: Path) -> None:
    file = tmp_path / "original.txt"
    file.write_bytes(b"\xef\xbb\xbf\n\nOne.\nTwo.\n\n \nThree.\r\n\r\nFour.")
    documents = list(Corpus.find([file], sentence_per_line=True))
    assert [document.text.split() for document in documents] == [["One.", "Two."], ["Three."], ["Four."]]
    assert [document.origin.rpartition(" ")[2] for document in documents] == ["3", "7", "9"]
    assert not any(document.continues for document in documents)
    assert len(read(file)) == 1


@pytest.mark.parametrize("sentence_per_line", [False, True])
def test_long_text_comes_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sentence_per_line: bool
) -> None:
    monkeypatch.setattr(corpus_module, "PART_CHARACTERS", 40)
    file = tmp_path / "long.txt"
    text = "".join(f"Sentence number {i}.\n" for i in range(20)) + "\nThe next block.\n"
    file.write_text(text, encoding="utf-8")
    documents = list(Corpus.find([file], sentence_per_line=sentence_per_line))
    assert "".join(document.text for document in documents) == text
    assert all(len(document.text) <= 110 for document in documents)
    assert len(documents) > 3
    assert documents[1].continues
    assert documents[-1].continues != sentence_per_line
    shares = [document.consumed for document in documents]
    assert shares == sorted(shares)
    assert shares[-1] == 1


def test_long_records_come_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_module, "PART_CHARACTERS", 40)
    text = "word " * 30 + "\n\n" + "line\n" * 30 + "x" * 200
    parquet.write_table(pa.table({"text": [text, "short"]}), tmp_path / "long.parquet")
    *parts, last = Corpus.find([tmp_path])
    assert "".join(part.text for part in parts) == text
    assert [part.continues for part in parts] == [False] + [True] * (len(parts) - 1)
    assert max(len(part.text) for part in parts) <= 80
    assert all(part.text.endswith((" ", "\n", "x")) for part in parts)
    assert (last.text, last.continues) == ("short", False)


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "LINE_BYTES", 3 << 20)
    file = tmp_path / "one.txt"
    file.write_bytes(b"fine\n" + b"word " * 500_000 + b"\n")
    assert len(read(file)) == 1
    file.write_bytes(b"fine\n" + b"word " * 1_000_000)
    with pytest.raises(DataError, match=r"one.txt, line 2: over 3 MB without a line end"):
        read(file)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("bad.txt", b"fine\nnot f\xfcr us\n", r"bad.txt, line 2: not UTF-8 \(byte 0xfc at column 6\)"),
        ("bad.jsonl", b'{"text": "a"}\n{"text": \n', "bad.jsonl, line 2: not JSON"),
        ("bad.jsonl", b'{"body": "a"}\n', "bad.jsonl, line 1: expected an object with text in 'text'.*body"),
        ("bad.jsonl", b'{"text": 3}\n', "bad.jsonl, line 1: expected an object with text"),
        (
            "bad.jsonl",
            b'{"text": "a"}\n{"text": "\\ud800"}\n',
            r"bad.jsonl, line 2: \\ud800 is a lone surrogate",
        ),
        ("cut.txt.gz", gzip.compress(b"text\n" * 1000, mtime=0)[:-9], "cut.txt.gz, after line .*Truncated"),
        ("empty.txt", b"", "empty.txt: the file is empty"),
        ("blank.txt", b" \n\n", "blank.txt: no text in these 3 bytes"),
        ("blank.jsonl", b'{"text": " "}\n', "blank.jsonl: no text"),
        ("empty.txt.gz", gzip.compress(b"", mtime=0), "empty.txt.gz: no text"),
        ("empty.parquet", b"", "empty.parquet: not a readable Parquet file"),
        ("bad.txt.gz", b"no gzip", "bad.txt.gz, after line 0: cannot be read"),
        ("bad.parquet", b"no parquet", "bad.parquet: not a readable Parquet file"),
        ("bad.doc", b"", "bad.doc: unknown kind of file"),
    ],
)
def test_reading_errors_name_file_and_line(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read(file)


def test_paths_come_in_any_iterable_as_text_or_path(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(f"Text of {name}.")
    expected = ["Text of a.txt.", "Text of b.txt."]
    for paths in (str(tmp_path), [str(tmp_path)], (tmp_path,), iter(sorted(tmp_path.glob("*.txt")))):
        assert [document.text.strip() for document in Corpus.find(paths)] == expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"workers": 0}, "workers is 0. Expected at least 1, or None"),
        ({"workers": -1}, "workers is -1. Expected at least 1, or None"),
        ({"unit_characters": 0}, "unit_characters must be 1 or more, not 0"),
    ],
)
def test_impossible_settings_are_refused(
    settings: dict[str, int], message: str, tmp_path: Path, tiny_vocabulary: Path
) -> None:
    (tmp_path / "a.txt").write_text("The river is long. A man sat there.\n")
    with pytest.raises(ConfigError, match=message):
        prepare([tmp_path / "a.txt"], tiny_vocabulary, tmp_path / "shards", **settings)
    assert not (tmp_path / "shards").exists()


def test_inputs_that_lead_nowhere(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no input"):
        read()
    with pytest.raises(DataError, match="no such file or folder"):
        read(tmp_path / "nothing*.txt")
    with pytest.raises(DataError, match=r"no \.txt, \.jsonl, \.parquet file"):
        read(tmp_path)
    parquet.write_table(pa.table({"a": ["x"], "b": ["y"]}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"no column 'text'. The columns are a, b"):
        read(tmp_path)
    parquet.write_table(pa.table({"text": ["x", None]}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"t.parquet, row 2: expected text, found None"):
        read(tmp_path)
    latin = pa.Array.from_buffers(pa.string(), 1, pa.array([b"f\xfcr"]).buffers())
    parquet.write_table(pa.table({"text": latin}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"t.parquet, in the rows after row 0: not UTF-8"):
        read(tmp_path)


def test_sentences_and_headings() -> None:
    text = (
        '# A Title\n\nMr. Brown of Washington, D.C. left. "Why? No!" she cried.\nHe was\ngone.\n\n\nThe end.'
    )
    (section,) = sections(text, PreparationSettings())
    assert [" ".join(sentence.split()) for sentence in section] == [
        "A Title",
        "Mr. Brown of Washington, D.C. left.",
        '"Why? No!" she cried.',
        "He was gone.",
        "The end.",
    ]
    assert list(sections("今天很好。我们走吧。", PreparationSettings(language="zh"))) == [
        ["今天很好。", "我们走吧。"]
    ]
    assert list(sections("a. b.\nc\n\nd", PreparationSettings(sentence_per_line=True))) == [
        ["a. b.", "c", "d"]
    ]
    assert list(sections(" \n\n ", PreparationSettings())) == []


def test_sections_keep_order_and_end_at_paragraphs() -> None:
    paragraphs = [" ".join(f"Word {p} {s}." for s in range(1 + p % 5)) for p in range(40)]
    paragraphs[20] = "## Chapter\n"
    paragraphs[30] = " ".join(f"Long {s}." for s in range(25))
    settings = PreparationSettings(section_sentences=10)
    found = list(sections("\n\n".join(paragraphs), settings))
    everything = [sentence for section in found for sentence in section]
    assert [everything] == list(sections("\n\n".join(paragraphs), PreparationSettings(section_sentences=0)))
    assert all(len(section) <= 10 for section in found)
    starts = [section[0] for section in found]
    assert "Chapter" in starts
    # Only the paragraph that is longer than a section is cut inside.
    assert [start for start in starts if start[-2:] not in ("0.", "er")] == []
    with pytest.raises(ConfigError, match="section_sentences"):
        PreparationSettings(section_sentences=-1)


def test_shards_hold_exactly_the_encoded_sentences(
    tmp_path: Path, corpus_file: Path, tiny_texts: list[str], tiny_vocabulary: Path
) -> None:
    report = prepare([corpus_file], tiny_vocabulary, tmp_path / "out", workers=1, unit_characters=20_000)
    shards = ShardSet(tmp_path / "out/train")
    encoder = UnigramModel(tiny_vocabulary, Normalization())
    expected = [
        [encoder.ids(sentence) for sentence in section]
        for text in tiny_texts
        for section in sections(text, PreparationSettings())
    ]
    assert len(shards) == len(expected) == report.train.documents
    assert len(shards.manifest.shards) > 3
    assert [[s.tolist() for s in shards.document(i)] for i in range(len(shards))] == expected
    assert shards.document(0)[0].dtype == np.uint16
    assert report.train.sentences == sum(len(document) for document in expected)
    assert report.train.tokens == sum(len(s) for document in expected for s in document)
    assert report.source_documents == len(tiny_texts)
    assert report.text_bytes == sum(len(text.encode()) for text in tiny_texts)
    assert report.validation is None
    assert not (tmp_path / "out/validation").exists()
    assert not (tmp_path / "out/.progress").exists()
    shards.check_files()
    with pytest.raises(IndexError):
        shards.document(len(shards))


def test_a_large_vocabulary_takes_wider_integers() -> None:
    builder = ShardBuilder(70_000)
    builder.add([[69_999, 1], [2]])
    batch = pa.ipc.open_file(builder.finish("a.arrow").content).get_batch(0)
    assert batch.to_pydict() == {"sentences": [[[69_999, 1], [2]]]}
    assert batch.schema.field("sentences").type == pa.list_(pa.list_(pa.uint32()))


def folder_bytes(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_ray_makes_the_same_shards(
    tmp_path: Path, corpus_file: Path, tiny_vocabulary: Path, two_cpu_ray: None
) -> None:
    def run(runner: str):
        return prepare(
            [corpus_file], tiny_vocabulary, tmp_path / runner,
            runner=runner, workers=1 + (runner == "ray"), unit_characters=20_000, holdout_every=10,
        )  # fmt: skip

    report = run("local")
    content = corpus_file.read_bytes()
    corpus_file.write_bytes(content + b"no JSON\n")
    with pytest.raises(DataError, match=r"corpus.jsonl, line 201: not JSON"):
        run("ray")
    corpus_file.write_bytes(content)
    again = run("ray")
    assert again.reused_shards >= 2
    assert (again.train, again.validation, again.text_bytes, again.source_documents) == (
        report.train, report.validation, report.text_bytes, report.source_documents
    )  # fmt: skip
    assert folder_bytes(tmp_path / "ray") == folder_bytes(tmp_path / "local")


def test_same_bytes_for_any_number_of_workers(
    tmp_path: Path, corpus_file: Path, tiny_vocabulary: Path
) -> None:
    for workers in (1, 2):
        prepare(
            [corpus_file], tiny_vocabulary, tmp_path / f"w{workers}",
            workers=workers, unit_characters=20_000, holdout_every=10,
        )  # fmt: skip
    one, two = folder_bytes(tmp_path / "w1"), folder_bytes(tmp_path / "w2")
    assert len(one) > 8
    assert one == two


def test_whole_source_documents_are_held_out(
    tmp_path: Path, corpus_file: Path, tiny_texts: list[str], tiny_vocabulary: Path
) -> None:
    prepare(
        [corpus_file], tiny_vocabulary, tmp_path / "out",
        workers=1, holdout_every=10, seed=13, section_sentences=4,
    )  # fmt: skip
    encoder = UnigramModel(tiny_vocabulary, Normalization())
    held_out = ShardSet(tmp_path / "out/validation")
    found = [s.tolist() for i in range(len(held_out)) for s in held_out.document(i)]
    expected = [
        encoder.ids(sentence)
        for text in tiny_texts[3::10]
        for section in sections(text, PreparationSettings())
        for sentence in section
    ]
    assert found == expected


def test_restart_keeps_finished_units(
    tmp_path: Path, corpus_file: Path, tiny_vocabulary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(output: Path):
        return prepare([corpus_file], tiny_vocabulary, output, workers=1, unit_characters=20_000)

    run(tmp_path / "whole")
    expected = folder_bytes(tmp_path / "whole")

    work, worked = Work.__call__, []

    def interrupted(self: Work, unit: Unit) -> Unit:
        if len(worked) == 3:
            raise KeyboardInterrupt
        worked.append(unit.number)
        return work(self, unit)

    monkeypatch.setattr(Work, "__call__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "cut")
    with pytest.raises(DataError, match=r"no manifest\.json, so this is not a finished shard folder"):
        ShardSet(tmp_path / "cut/train")
    # One of the finished shards is damaged meanwhile, and there is one of another corpus.
    damaged = tmp_path / "cut/train/shard-00001.arrow"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    shutil.copy(damaged, tmp_path / "cut/train/shard-09999.arrow")
    monkeypatch.setattr(Work, "__call__", work)
    assert run(tmp_path / "cut").reused_shards == 2
    assert folder_bytes(tmp_path / "cut") == expected
    with pytest.raises(DataError, match="has finished shards"):
        run(tmp_path / "cut")


class FailingEncoder(UnigramModel):
    """Cannot encode one of the texts."""

    def ids_batch(self, texts: list[str], num_threads: int | None = None) -> list[list[int]]:
        if any("poison" in text for text in texts):
            raise MemoryError("too much")
        return super().ids_batch(texts, num_threads)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_failing_worker_fails_the_job(
    tmp_path: Path,
    corpus_file: Path,
    tiny_vocabulary: Path,
    monkeypatch: pytest.MonkeyPatch,
    workers: int,
) -> None:
    with corpus_file.open("a", encoding="utf-8") as file:
        file.write('{"text": "This is poison. Beware."}\n')
    monkeypatch.setattr(prepare_module, "UnigramModel", FailingEncoder)
    with pytest.raises(DataError, match=r"corpus.jsonl, line 201: MemoryError: too much"):
        prepare([corpus_file], tiny_vocabulary, tmp_path / "out", workers=workers, unit_characters=20_000)
    assert not (tmp_path / "out/train/manifest.json").exists()


@pytest.mark.parametrize("full_at", ["shard-00002.arrow", "00002.json", "manifest.json"])
def test_a_full_disk_stops_the_work_and_keeps_what_is_done(
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


def test_only_own_files_are_removed(tmp_path: Path, corpus_file: Path, tiny_vocabulary: Path) -> None:
    for name in ("train/data.arrow", "validation/notes.txt", "train/.shard-00001.arrow.0a1b.tmp"):
        (tmp_path / "out" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "out" / name).write_text("mine")
    (tmp_path / "out/validation/manifest.json").write_text("of a run that was cut at the very end")
    (tmp_path / "out/.progress").mkdir()
    prepare([corpus_file], tiny_vocabulary, tmp_path / "out", workers=1)
    assert sorted(folder_bytes(tmp_path / "out")) == [
        "train/data.arrow", "train/manifest.json", "train/shard-00000.arrow", "validation/notes.txt"
    ]  # fmt: skip


def die(unit: object) -> None:
    os._exit(1)


def test_a_killed_worker_fails_the_job(
    tmp_path: Path, corpus_file: Path, tiny_vocabulary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "_work", die)
    with pytest.raises(DataError, match=r"a worker process was killed after .*corpus.jsonl, line 1,"):
        prepare([corpus_file], tiny_vocabulary, tmp_path / "out", workers=2, unit_characters=20_000)


def test_a_shard_without_its_note_does_not_block_the_next_call(
    tmp_path: Path, corpus_file: Path, tiny_vocabulary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(prepared_folder, "write_json", fail)
        with pytest.raises(DataError, match="cannot be written"):
            prepare([corpus_file], tiny_vocabulary, tmp_path / "out", workers=1)
    assert not (tmp_path / "out").exists()
    assert prepare([corpus_file], tiny_vocabulary, tmp_path / "out", workers=1).reused_shards == 0


def test_corpora_without_anything_to_learn(tmp_path: Path, tiny_vocabulary: Path) -> None:
    """They leave no folder: the next call may have other settings, or write something else there."""
    file = tmp_path / "corpus.txt"
    file.write_text("\ufeff\u200b\n", encoding="utf-8")  # of which normalization leaves nothing
    with pytest.raises(DataError, match="no text to train on"):
        prepare([file], tiny_vocabulary, tmp_path / "out", workers=1)
    file.write_text("One line\n\nAnother\n", encoding="utf-8")
    with pytest.raises(DataError, match="none of the 2 documents has two sentences"):
        prepare([file], tiny_vocabulary, tmp_path / "out", workers=1, sentence_per_line=True)
    file.write_text("One line. Another.", encoding="utf-8")
    with pytest.raises(DataError, match="no text is held out for validation"):
        prepare([file], tiny_vocabulary, tmp_path / "out", workers=1, holdout_every=5, seed=1)
    assert not (tmp_path / "out").exists()
    with pytest.raises(ConfigError, match="holdout_every must be 2 or more"):
        prepare([file], tiny_vocabulary, tmp_path / "out", workers=1, holdout_every=1)
    with pytest.raises(ConfigError, match=r"language must be an ISO 639 code .* not 'english'"):
        prepare([file], tiny_vocabulary, tmp_path / "out", language="english")
    with pytest.raises(ConfigError, match=r"no runner 'rya'\. Did you mean 'ray'"):
        prepare([file], tiny_vocabulary, tmp_path / "out", runner="rya")
    with pytest.raises(ModelNotFoundError, match=r"\*\.model"):
        prepare([file], tmp_path, tmp_path / "out")


def test_a_corpus_without_anything_to_learn_leaves_no_shards_of_an_interrupted_call(
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


def test_normalisation_comes_from_the_tokenizer_folder(tmp_path: Path, tiny_vocabulary: Path) -> None:
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    shutil.copy(tiny_vocabulary, folder / "spiece.model")
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false, "model_max_length": 512}')
    file = tmp_path / "corpus.txt"
    file.write_text("The Captain left. Queen Anne stayed.", encoding="utf-8")
    prepare([file], folder, tmp_path / "out", workers=1)
    shards = ShardSet(tmp_path / "out/train")
    cased = UnigramModel(tiny_vocabulary, Normalization(do_lower_case=False))
    expected = [cased.ids("The Captain left."), cased.ids("Queen Anne stayed.")]
    assert [sentence.tolist() for sentence in shards.document(0)] == expected
    assert shards.manifest.settings["normalization"]["do_lower_case"] is False
    shards.check_tokenizer(folder / "spiece.model")
    with pytest.raises(
        DataError, match=r"made with do_lower_case=False, but the tokenizer_config.json next to"
    ):
        shards.check_tokenizer(tiny_vocabulary)


def test_a_shard_set_checks_what_it_opens(tmp_path: Path, corpus_file: Path, tiny_vocabulary: Path) -> None:
    prepare([corpus_file], tiny_vocabulary, tmp_path / "out", workers=1)
    folder = tmp_path / "out/train"
    shards = ShardSet(folder)
    shards.check_tokenizer(tiny_vocabulary)
    with pytest.raises(DataError, match="made with another vocabulary"):
        shards.check_tokenizer(corpus_file)
    file = folder / "shard-00000.arrow"
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match="changed or damaged"):
        shards.check_files()
    with pytest.raises(DataError, match="not a readable Arrow file"):
        shards.document(0)
    file.unlink()
    with pytest.raises(DataError, match=r"listed in manifest\.json, but missing"):
        ShardSet(folder)
    (folder / "manifest.json").write_text('{"format": "something"}')
    with pytest.raises(DataError, match="expected format 'albertkit-shards' version 1"):
        ShardSet(folder)
    (folder / "manifest.json").write_text("{")
    with pytest.raises(DataError, match=r"manifest\.json is damaged"):
        ShardSet(folder)


def test_ids_beyond_the_vocabulary_are_an_error(
    tmp_path: Path, corpus_file: Path, tiny_vocabulary: Path
) -> None:
    """Other programs may write shards."""
    prepare([corpus_file], tiny_vocabulary, tmp_path / "out", workers=1)
    manifest = tmp_path / "out/train/manifest.json"
    values = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(values | {"vocabulary_size": 100}))
    shards = ShardSet(tmp_path / "out/train")
    message = r"shard-00000\.arrow: the largest token id is \d+, but the vocabulary has 100 pieces"
    for read in (shards.piece_frequencies, lambda: shards.tokens(0)):
        with pytest.raises(DataError, match=message):
            read()


def test_progress_counts_all_text(tmp_path: Path, corpus_file: Path, tiny_vocabulary: Path) -> None:
    seen = []
    report = prepare(
        [corpus_file],
        tiny_vocabulary,
        tmp_path / "out",
        workers=1,
        unit_characters=20_000,
        progress=seen.append,
    )
    assert [progress.units for progress in seen] == list(range(1, len(seen) + 1))
    fractions = [progress.fraction for progress in seen]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1
    assert seen[-1].text_bytes == report.text_bytes
