"""Tests of reading a corpus: formats, long documents, errors, sentences and sections."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from albertkit import text_files
from albertkit.errors import ConfigError, DataError
from albertkit.pretraining import corpus as corpus_module
from albertkit.pretraining.corpus import Corpus
from albertkit.pretraining.prepare import sections
from albertkit.pretraining.settings import PreparationSettings


def read(*inputs: Path, **settings) -> list[str]:
    return [document.text for document in Corpus(inputs, **settings)]


def test_every_format_gives_the_same_documents(tmp_path: Path) -> None:
    texts = ["One. Two.", "Drei. Vier.\nFünf."]
    table = pa.table({"body": texts, "year": [1, 2]})
    parquet.write_table(table, tmp_path / "a.parquet")
    lines = "".join(json.dumps({"body": text, "year": 1}) + "\n" for text in texts)
    (tmp_path / "b.jsonl").write_text(lines, encoding="utf-8")
    for name, plain in (("a.parquet", "c"), ("b.jsonl", "d")):
        content = (tmp_path / name).read_bytes()
        half = len(content) // 2  # some tools write several compressed streams into a file
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


def test_blank_lines_separate_documents_of_sentence_per_line(tmp_path: Path) -> None:
    file = tmp_path / "original.txt"
    file.write_bytes(b"\xef\xbb\xbf\n\nOne.\nTwo.\n\n \nThree.\r\n\r\nFour.")
    documents = list(Corpus([file], sentence_per_line=True))
    assert [document.text.split() for document in documents] == [["One.", "Two."], ["Three."], ["Four."]]
    assert [document.origin.rpartition(" ")[2] for document in documents] == ["3", "7", "9"]
    assert not any(document.continues for document in documents)
    assert len(read(file)) == 1


@pytest.mark.parametrize("sentence_per_line", [False, True])
def test_long_text_files_are_read_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sentence_per_line: bool
) -> None:
    monkeypatch.setattr(corpus_module, "PART_CHARACTERS", 40)
    file = tmp_path / "long.txt"
    text = "".join(f"Sentence number {i}.\n" for i in range(20)) + "\nThe next block.\n"
    file.write_text(text, encoding="utf-8")
    documents = list(Corpus([file], sentence_per_line=sentence_per_line))
    assert "".join(document.text for document in documents) == text
    assert all(len(document.text) <= 110 for document in documents)
    assert len(documents) > 3
    assert documents[1].continues
    assert documents[-1].continues != sentence_per_line
    shares = [document.consumed for document in documents]
    assert shares == sorted(shares)
    assert shares[-1] == 1


def test_long_records_are_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_module, "PART_CHARACTERS", 40)
    text = "word " * 30 + "\n\n" + "line\n" * 30 + "x" * 200
    parquet.write_table(pa.table({"text": [text, "short"]}), tmp_path / "long.parquet")
    *parts, last = Corpus([tmp_path])
    assert "".join(part.text for part in parts) == text
    assert [part.continues for part in parts] == [False] + [True] * (len(parts) - 1)
    assert max(len(part.text) for part in parts) <= 80
    assert all(part.text.endswith((" ", "\n", "x")) for part in parts)
    assert (last.text, last.continues) == ("short", False)


def test_a_line_of_several_megabytes_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        ("bad.jsonl", b'{"text": "a"}\n{"text": \n', "bad.jsonl, line 2 is damaged"),
        ("bad.jsonl", b'{"text": 3}\n', "bad.jsonl, line 1: expected text in 'text', found 3"),
        (
            "bad.jsonl",
            b'{"text": "a"}\n{"text": "\\ud800"}\n',
            r"bad.jsonl, line 2: \\ud800 is a lone surrogate",
        ),
        ("cut.txt.gz", gzip.compress(b"text\n" * 1000, mtime=0)[:-9], "cut.txt.gz, after line .*Truncated"),
        ("empty.txt", b"", "empty.txt: the file is empty"),
        ("blank.txt", b" \n\n", "blank.txt: there is no text in its 3 bytes"),
        ("blank.jsonl", b'{"text": " "}\n', "blank.jsonl: there is no text"),
        ("empty.txt.gz", gzip.compress(b"", mtime=0), "empty.txt.gz: there is no text"),
        ("empty.parquet", b"", "empty.parquet is damaged"),
        ("bad.txt.gz", b"no gzip", "bad.txt.gz, after line 0: cannot be read"),
        ("bad.parquet", b"no parquet", "bad.parquet is damaged"),
        ("bad.doc", b"", "bad.doc: unknown kind of file"),
    ],
)
def test_reading_errors_name_the_file_and_the_line(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read(file)


def test_paths_may_be_text_and_any_iterable(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(f"Text of {name}.")
    expected = ["Text of a.txt.", "Text of b.txt."]
    for paths in (str(tmp_path), [str(tmp_path)], (tmp_path,), iter(sorted(tmp_path.glob("*.txt")))):
        assert [document.text.strip() for document in Corpus(paths)] == expected


def test_unusable_inputs_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no input"):
        read()
    for name in ("", tmp_path / "nothing*.txt", "a**b", tmp_path):  # a**b is no pattern before Python 3.13
        with pytest.raises(DataError, match=r"no \.txt, \.jsonl or \.parquet file was found"):
            Corpus([name])
    parquet.write_table(pa.table({"a": ["x"], "b": ["y"]}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"no column 'text'. Columns: a, b"):
        read(tmp_path)
    parquet.write_table(pa.table({"text": ["x", None]}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"t.parquet, row 2: expected text in 'text', found None"):
        read(tmp_path)
    latin = pa.Array.from_buffers(pa.string(), 1, pa.array([b"f\xfcr"]).buffers())
    parquet.write_table(pa.table({"text": latin}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"t.parquet is damaged .*UnicodeDecodeError"):
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
    # Only a paragraph that is longer than a section is split.
    assert [start for start in starts if start[-2:] not in ("0.", "er")] == []
    with pytest.raises(ConfigError, match="section_sentences"):
        PreparationSettings(section_sentences=-1)
