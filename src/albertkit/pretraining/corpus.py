"""Read raw text files as a stream of source documents, in a fixed order and bounded memory.

| file | a source document is |
|---|---|
| `.txt`, one sentence per line | a block between blank lines (the layout of the original's data builder) |
| `.txt`, running text | the whole file, split at blank lines so that no file is too large |
| `.jsonl` | a line: a JSON object with the text in one of its fields |
| `.parquet` | a row, with the text in one of its columns |

Each may be compressed (`.gz`, `.zst`, `.bz2`). Inputs are files, folders (searched to any depth) and glob
patterns. Every error names the file and the line or row. A file without any text is an error, because it is
more often a failed download than intended.
"""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from albertkit.datasets.rows import Rows, as_source, object_rows
from albertkit.errors import DataError, reading, short
from albertkit.extras import optional
from albertkit.text_files import (
    Lines,
    decompressed,
    file_format,
    lone_surrogate,
    read_lines,
    read_records,
)

parquet = optional("pyarrow.parquet", extra="train")

FORMATS = (".txt", ".jsonl", ".parquet")

# Long texts are yielded in parts of about this many characters, so that a file can be larger than memory.
PART_CHARACTERS = 4_000_000
ROWS_BYTES = 16 << 20  # decompressed bytes of a Parquet file that are read at once


@dataclass(frozen=True)
class SourceDocument:
    """One text of the corpus, or a later part of a long text."""

    text: str
    origin: str  # "file, line 12", for error messages
    continues: bool = False  # whether this is a further part of the document before it
    consumed: float = 0.0  # share of the corpus's bytes read so far, for progress


class Corpus:
    """The documents of files (paths, folders, glob patterns) in reading order, or of rows in memory."""

    def __init__(
        self,
        inputs: str | Path | Sequence[str | Path] | Any,
        *,
        text_column: str = "text",
        sentence_per_line: bool = False,
    ) -> None:
        self.text_column, self.sentence_per_line = text_column, sentence_per_line
        self.files: list[Path] = []
        self.table: Rows | None = None  # in place of files
        head: list[Any] = []  # the first row, if the rows can be read only once
        if isinstance(inputs, Iterator):  # of paths, such as Path("books").glob("*.txt"), or of rows
            head = list(islice(inputs, 1))
            items = chain(head, inputs)
            inputs = list(items) if all(isinstance(one, str | Path) for one in head) else _Stream(items)
        paths = inputs if isinstance(inputs, list | tuple) else [inputs]
        # Rows without a length, such as a `datasets.IterableDataset`, are read as they are needed.
        self.streamed = isinstance(inputs, Iterable) and not (
            isinstance(inputs, str) or hasattr(inputs, "__len__")
        )
        if self.streamed:
            known = object_rows(head, "the given rows").columns if head else None
            self.table = object_rows(inputs, "the given rows", columns=known)
        elif not paths:
            raise DataError("there is no input. Expected files, folders, glob patterns or rows.")
        elif not all(isinstance(path, str | Path) for path in paths):
            table = as_source(inputs, name="the given rows")
            if not isinstance(table, Rows):
                raise DataError(f"{short(inputs)}: expected paths, or rows that are dicts")
            self.table = table
        else:
            files = [file.resolve() for path in paths for file in _files_of(str(path))]
            self.files = list(dict.fromkeys(files))
        if self.table is not None:
            self.table.check_columns(text_column=text_column)

    def __iter__(self) -> Iterator[SourceDocument]:
        """Yield the documents of all files in order."""
        if self.table is not None:
            total = math.inf if self.streamed else sum(1 for _ in self.table)
            for number, row in enumerate(self.table, start=1):
                yield from _cut(self._document(row.values.get(self.text_column), row.origin, number / total))
            return
        sizes = [path.stat().st_size for path in self.files]
        total = max(1, sum(sizes))
        before = 0
        for path, size in zip(self.files, sizes, strict=True):
            has_text = False
            for document in self._read(path):
                has_text = has_text or bool(document.text.strip())
                yield from _cut(replace(document, consumed=(before + document.consumed * size) / total))
            if not has_text:
                problem = f"there is no text in its {size:,} bytes" if size else "the file is empty"
                raise DataError(f"{path}: {problem}. Omit the file, or add text to it.")
            before += size

    @property
    def name(self) -> str:
        """The name of the corpus in error messages."""
        if self.table is not None:
            return self.table.name
        return ", ".join(str(path) for path in self.files[:3]) + (" ..." if len(self.files) > 3 else "")

    def _document(self, text: Any, origin: str, consumed: float) -> SourceDocument:
        if not isinstance(text, str):
            raise DataError(f"{origin}: expected text in {self.text_column!r}, found {short(text)}")
        if lone := lone_surrogate(text):
            raise DataError(f"{origin}: {lone} is a lone surrogate, which no text can contain")
        return SourceDocument(text=text, origin=origin, consumed=consumed)

    def _read(self, path: Path) -> Iterator[SourceDocument]:
        """Yield the documents of one file. Their `consumed` is the share of this file."""
        kind, compression = file_format(path)
        if kind == ".parquet":
            yield from self._read_parquet(path, compression)
        elif kind == ".txt":
            yield from _read_text(path, read_lines(path), blocks=self.sentence_per_line)
        else:
            for number, line, share in read_records(path):
                if line.strip():
                    origin = f"{path}, line {number}"
                    with reading(origin, DataError):
                        text = json.loads(line).get(self.text_column)
                    yield self._document(text, origin, share)

    def _read_parquet(self, path: Path, compression: str | None) -> Iterator[SourceDocument]:
        row = 0
        with reading(path, DataError), ExitStack() as stack:
            source = stack.enter_context(decompressed(path, compression)) if compression else path
            file = stack.enter_context(parquet.ParquetFile(source))
            names = file.schema_arrow.names
            if self.text_column not in names:
                raise DataError(f"{path}: no column {self.text_column!r}. Columns: {', '.join(names)}.")
            rows = max(1, file.metadata.num_rows)
            groups = [file.metadata.row_group(index) for index in range(file.num_row_groups)]
            row_bytes = max((group.total_byte_size / max(1, group.num_rows) for group in groups), default=0)
            size = min(1024, max(1, int(ROWS_BYTES / max(1, row_bytes))))
            for batch in file.iter_batches(batch_size=size, columns=[self.text_column]):
                for text in batch.column(0).to_pylist():
                    row += 1
                    yield self._document(text, f"{path}, row {row}", row / rows)


def _read_text(path: Path, lines: Lines, *, blocks: bool) -> Iterator[SourceDocument]:
    """Yield a file as one document, or (`blocks`) one per block of lines; long documents in parts."""
    part: list[str] = []
    characters, first, share, continues = 0, 1, 1.0, False
    for number, line, share in lines:
        blank = not line.strip()
        if not part:
            first = number
            if blank:
                continues = continues and not blocks
                continue
        part.append(line)
        characters += len(line)
        document_ends = blank and blocks
        # A part ends at a blank line; text without blank lines is split at a line end once it is twice as
        # long.
        if document_ends or characters >= PART_CHARACTERS * (1 if blank else 2):
            yield SourceDocument("".join(part), f"{path}, line {first}", continues, share)
            part, characters, continues = [], 0, not document_ends
    if part:
        yield SourceDocument("".join(part), f"{path}, line {first}", continues, share)


def _cut(document: SourceDocument) -> Iterator[SourceDocument]:
    """Yield a document, split if it is too long: at a blank line, a line end or a space."""
    text, start = document.text, 0
    while len(text) - start > 2 * PART_CHARACTERS:
        first, last = start + PART_CHARACTERS, start + 2 * PART_CHARACTERS
        ends = (text.find(mark, first, last) + len(mark) for mark in ("\n\n", "\n", " "))
        end = next((end for end in ends if end > first), last)
        yield replace(document, text=text[start:end], continues=document.continues or start > 0)
        start = end
    yield replace(document, text=text[start:], continues=document.continues or start > 0)


@dataclass(frozen=True)
class _Stream:
    """The rows of an iterator, which can be read once."""

    rows: Iterator[Any]

    def __iter__(self) -> Iterator[Any]:
        return self.rows


def _files_of(name: str) -> list[Path]:
    path, files = Path(name), []
    if name and path.is_dir():  # as a path, an empty name would be the current folder
        files = sorted(file for file in path.rglob("*") if file.is_file() and file_format(file)[0] in FORMATS)
    elif path.is_file():
        files = [path]
    elif name:
        folder = path.anchor or "."
        with suppress(ValueError):  # the name is not a pattern
            files = sorted(filter(Path.is_file, Path(folder).glob(str(path.relative_to(folder)))))
    if not files:
        raise DataError(f"{name!r}: no {', '.join(FORMATS[:-1])} or {FORMATS[-1]} file was found")
    for file in files:
        if file_format(file)[0] not in FORMATS:
            raise DataError(
                f"{file}: unknown kind of file. Expected {', '.join(FORMATS)}, or a compressed file."
            )
    return files
