"""Tests of the shards that `prepare` writes: their content, and their checks."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pretraining_rows import document
from pretraining_runs import folder_bytes

from albertkit.errors import DataError
from albertkit.files import file_sha256
from albertkit.pretraining.prepare import prepare, sections
from albertkit.pretraining.settings import PreparationSettings
from albertkit.pretraining.shards import ShardBuilder, ShardSet
from albertkit.tokenization.normalization import Normalization
from albertkit.tokenization.unigram import UnigramModel


def test_shards_contain_the_encoded_sentences(
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
    assert [document(shards, index) for index in range(len(shards))] == expected
    assert shards.tokens(0)[0].dtype == np.uint16
    assert report.train.sentences == sum(len(document) for document in expected)
    assert report.train.tokens == sum(len(s) for document in expected for s in document)
    assert report.source_documents == len(tiny_texts)
    assert report.text_bytes == sum(len(text.encode()) for text in tiny_texts)
    assert report.validation is None
    assert not (tmp_path / "out/validation").exists()
    assert not (tmp_path / "out/.progress").exists()
    for record in shards.manifest.shards:
        assert file_sha256(shards.folder / record.file) == record.sha256
    with pytest.raises(IndexError):
        shards.tokens(len(shards))


def test_a_large_vocabulary_needs_wider_integers() -> None:
    builder = ShardBuilder(70_000)
    builder.add([[69_999, 1], [2]])
    batch = pa.ipc.open_file(builder.finish("a.arrow")[1]).get_batch(0)
    assert batch.to_pydict() == {"sentences": [[[69_999, 1], [2]]]}
    assert batch.schema.field("sentences").type == pa.list_(pa.list_(pa.uint32()))


def test_any_number_of_workers_writes_the_same_shards(
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


def test_source_documents_are_held_out(
    tmp_path: Path, corpus_file: Path, tiny_texts: list[str], tiny_vocabulary: Path
) -> None:
    prepare(
        [corpus_file], tiny_vocabulary, tmp_path / "out",
        workers=1, holdout_every=10, seed=13, section_sentences=4,
    )  # fmt: skip
    encoder = UnigramModel(tiny_vocabulary, Normalization())
    held_out = ShardSet(tmp_path / "out/validation")
    found = [sentence for index in range(len(held_out)) for sentence in document(held_out, index)]
    expected = [
        encoder.ids(sentence)
        for text in tiny_texts[3::10]
        for section in sections(text, PreparationSettings())
        for sentence in section
    ]
    assert found == expected


def test_holding_out_far_more_than_expected_causes_a_warning(
    tmp_path: Path, tiny_vocabulary: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [{"text": f"The {name} is old. It is long."} for name in ("river", "road")]
    prepare(rows, tiny_vocabulary, tmp_path / "out", workers=1, holdout_every=10)
    (warning,) = caplog.records
    assert warning.levelname == "WARNING"
    assert "% of the tokens are held out for validation, instead of about 10%" in warning.getMessage()


def test_normalization_comes_from_the_tokenizer_folder(tmp_path: Path, tiny_vocabulary: Path) -> None:
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
    assert document(shards, 0) == expected
    assert shards.manifest.settings["normalization"]["do_lower_case"] is False
    shards.check_tokenizer(folder / "spiece.model")
    with pytest.raises(DataError, match=r"made with do_lower_case=False, unlike .*tokenizer_config.json"):
        shards.check_tokenizer(tiny_vocabulary)


def test_damaged_shards_are_an_error(tmp_path: Path, corpus_file: Path, tiny_vocabulary: Path) -> None:
    prepare([corpus_file], tiny_vocabulary, tmp_path / "out", workers=1)
    folder = tmp_path / "out/train"
    shards = ShardSet(folder)
    shards.check_tokenizer(tiny_vocabulary)
    with pytest.raises(DataError, match="made with another vocabulary"):
        shards.check_tokenizer(corpus_file)
    file = folder / "shard-00000.arrow"
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match="is damaged or incomplete"):
        shards.tokens(0)
    file.unlink()
    with pytest.raises(DataError, match="there is no file"):
        ShardSet(folder).check_files()
    (folder / "manifest.json").write_text('{"format": "something"}')
    with pytest.raises(DataError, match="expected format 'albertkit-shards' version 1"):
        ShardSet(folder)
    (folder / "manifest.json").write_text("{")
    with pytest.raises(DataError, match=r"manifest\.json is damaged"):
        ShardSet(folder)


def test_ids_beyond_the_vocabulary_are_an_error(
    tmp_path: Path, corpus_file: Path, tiny_vocabulary: Path
) -> None:
    """Shards may come from other programs."""
    prepare([corpus_file], tiny_vocabulary, tmp_path / "out", workers=1)
    manifest = tmp_path / "out/train/manifest.json"
    values = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(values | {"vocabulary_size": 100}))
    shards = ShardSet(tmp_path / "out/train")
    message = r"shard-00000\.arrow is damaged .*the largest id is \d+, but the vocabulary has 100 pieces"
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
