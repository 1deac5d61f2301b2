"""Raw text files -> a stream of source documents, in a fixed order and bounded memory.

| file | a source document is |
|---|---|
| `.txt`, one sentence per line | a block between blank lines (the layout of the original's data builder) |
| `.txt`, running text | the whole file, in parts cut at blank lines so that no file is too large |
| `.jsonl` | a line: a JSON object with the text in one of its fields |
| `.parquet` | a row, with the text in one of its columns |

`.txt` and `.jsonl` may be compressed (`.gz`, `.zst`, `.bz2`). Inputs are files, folders (searched to any
depth) and glob patterns. Every error names the file and the line or row.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from albertkit.errors import DataError
from albertkit.extras import optional

pa = optional("pyarrow", extra="train")
parquet = optional("pyarrow.parquet", extra="train")

FORMATS = (".txt", ".jsonl", ".parquet")
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}

# A text file is handed on in parts of this many characters, so that one file can be larger than memory.
PART_CHARACTERS = 4_000_000


@dataclass(frozen=True, kw_only=True)
class SourceDocument:
    """One text of the corpus, or a later part of a text that is too long for one piece."""

    text: str
    origin: str  # "file, line 12": what an error message names
    continues: bool = False  # this is a further part of the document before it
    consumed: float = 0.0  # share of the corpus's bytes read so far, for progress


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """The input files in reading order."""

    files: tuple[Path, ...]
    text_column: str = "text"
    sentence_per_line: bool = False

    @classmethod
    def find(
        cls, inputs: Sequence[str | Path], *, text_column: str = "text", sentence_per_line: bool = False
    ) -> "Corpus":
        """Collect the files that `inputs` (files, folders, glob patterns) lead to.

        Raises:
            DataError: an input leads to no readable file.
        """
        files: list[Path] = []
        for name in inputs:
            files.extend(_files_of(str(name)))
        unique = dict.fromkeys(path.resolve() for path in files)
        if not unique:
            raise DataError("no input given: expected files, folders or glob patterns")
        return cls(files=tuple(unique), text_column=text_column, sentence_per_line=sentence_per_line)

    def __iter__(self) -> Iterator[SourceDocument]:
        """Yield the documents of all files in order."""
        sizes = [path.stat().st_size for path in self.files]
        total = max(1, sum(sizes))
        before = 0
        for path, size in zip(self.files, sizes, strict=True):
            for document, share in self._read(path):
                yield replace(document, consumed=(before + share * size) / total)
            before += size

    def _read(self, path: Path) -> Iterator[tuple[SourceDocument, float]]:
        """Yield the documents of one file, each with the share of the file read so far."""
        kind = _format(path)
        if kind == ".parquet":
            return self._read_parquet(path)
        lines = _lines(path)
        if kind == ".jsonl":
            return self._read_jsonl(path, lines)
        return _read_text(path, lines, blocks=self.sentence_per_line)

    def _read_parquet(self, path: Path) -> Iterator[tuple[SourceDocument, float]]:
        try:
            with parquet.ParquetFile(path) as file:
                names = file.schema_arrow.names
                if self.text_column not in names:
                    raise DataError(f"{path}: no column {self.text_column!r}; it has {', '.join(names)}")
                rows = max(1, file.metadata.num_rows)
                row = 0
                for batch in file.iter_batches(batch_size=16, columns=[self.text_column]):
                    for text in batch.column(0).to_pylist():
                        row += 1
                        if not isinstance(text, str):
                            raise DataError(f"{path}, row {row}: expected text, found {text!r}")
                        yield SourceDocument(text=text, origin=f"{path}, row {row}"), row / rows
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{path}: not a readable Parquet file ({error})") from error

    def _read_jsonl(self, path: Path, lines: "_Lines") -> Iterator[tuple[SourceDocument, float]]:
        for number, line, share in lines:
            if not line.strip():
                continue
            origin = f"{path}, line {number}"
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                raise DataError(f"{origin}: not JSON ({error})") from error
            text = record.get(self.text_column) if isinstance(record, dict) else None
            if not isinstance(text, str):
                found = f"the fields {', '.join(record)}" if isinstance(record, dict) else line[:40]
                raise DataError(
                    f"{origin}: expected an object with text in {self.text_column!r}, found {found}"
                )
            yield SourceDocument(text=text, origin=origin), share


_Lines = Iterator[tuple[int, str, float]]  # line number from 1, the line, share of the file read


def _read_text(path: Path, lines: _Lines, *, blocks: bool) -> Iterator[tuple[SourceDocument, float]]:
    """Yield a file as one document, or (`blocks`) one per block of lines; in parts where too long."""
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
        # A part ends at a blank line; text without any is cut at a line's end once it is twice as long.
        if document_ends or characters >= PART_CHARACTERS * (1 if blank else 2):
            yield _part(path, part, first, continues), share
            part, characters, continues = [], 0, not document_ends
    if part:
        yield _part(path, part, first, continues), share


def _part(path: Path, lines: list[str], first: int, continues: bool) -> SourceDocument:
    return SourceDocument(text="".join(lines), origin=f"{path}, line {first}", continues=continues)


def _lines(path: Path) -> _Lines:
    """Yield the lines of a possibly compressed UTF-8 file."""
    size = max(1, path.stat().st_size)
    number = 0
    try:
        with path.open("rb") as raw:
            compression = COMPRESSIONS.get(path.suffix)
            stream = pa.CompressedInputStream(raw, compression) if compression else raw
            for number, line in enumerate(_byte_lines(stream), start=1):
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8"), raw.tell() / size
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}, line {number}: not UTF-8 (byte {error.object[error.start]:#04x} at column "
            f"{error.start + 1}); convert the file first, for instance with iconv"
        ) from error
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}, after line {number}: cannot be read ({error})") from error


def _byte_lines(stream) -> Iterator[bytes]:
    rest = b""
    while block := stream.read(1 << 20):
        lines = (rest + block).split(b"\n")
        rest = lines.pop()
        for line in lines:
            yield line + b"\n"
    if rest:
        yield rest


def _files_of(name: str) -> list[Path]:
    path = Path(name)
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file() and _format(file) in FORMATS)
        if not files:
            raise DataError(f"{path}: no {', '.join(FORMATS)} file in this folder")
        return files
    if path.is_file():
        files = [path]
    else:
        folder = path.anchor or "."
        files = sorted(file for file in Path(folder).glob(str(path.relative_to(folder))) if file.is_file())
        if not files:
            raise DataError(f"{name}: no such file or folder, and nothing matches it as a pattern")
    for file in files:
        if _format(file) not in FORMATS:
            raise DataError(
                f"{file}: unknown kind of file; expected {', '.join(FORMATS)}, "
                f"the first two also with {', '.join(COMPRESSIONS)}"
            )
    return files


def _format(path: Path) -> str:
    """Return `.txt`, `.jsonl` or `.parquet`, or another suffix that no reader knows."""
    if path.suffix not in COMPRESSIONS:
        return path.suffix
    inner = Path(path.stem).suffix
    return inner if inner != ".parquet" else ".parquet" + path.suffix
