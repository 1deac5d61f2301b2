"""Read text files, compressed or not: their format, their numbered lines, and their decompressed content.

Lines end with a line feed. They are UTF-8, or UTF-16 with a byte order mark, or in a given encoding. Reading
needs bounded memory. Errors name the file and the line.
"""

import codecs
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO

from albertkit.errors import DataError
from albertkit.extras import optional

pa = optional("pyarrow", extra="arrow")

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
LINE_BYTES = 128 << 20  # maximum length of a line, which must fit into memory

Lines = Iterator[tuple[int, str, float]]  # line number from 1, line, share of the file that is read


def file_format(path: Path) -> tuple[str, str | None]:
    """Return the ending that means the format (.jsonl for a.jsonl.gz), and the compression or None."""
    compression = COMPRESSIONS.get(path.suffix.lower())
    return (Path(path.stem).suffix if compression else path.suffix).lower(), compression


def read_text(path: Path) -> str:
    return "".join(line for _, line, _ in read_lines(path))


def read_lines(path: Path, encoding: str | None = None) -> Lines:
    compression = file_format(path)[1]
    size = max(1, path.stat().st_size)
    number = 0
    # Only compressed files need Arrow.
    failures = (UnicodeError, *((pa.ArrowException, OSError) if compression else (OSError,)))
    try:
        with (
            path.open("rb") as raw,
            pa.CompressedInputStream(raw, compression) if compression else nullcontext() as stream,
        ):
            # Arrow's own `read` leaks memory if the file is damaged.
            read = raw.read if stream is None else lambda size: stream.read_buffer(size).to_pybytes()
            for number, line in enumerate(_byte_lines(_as_utf8(read, encoding)), start=1):
                if len(line) > LINE_BYTES:
                    raise DataError(f"{path}, line {number}: over {LINE_BYTES >> 20} MB without a line end.")
                yield (
                    number,
                    decode_line(line, number, str(path)),
                    raw.tell() / size if raw.seekable() else 0.0,
                )
    except failures as error:
        is_encoding = encoding is not None and isinstance(error, UnicodeError)
        advice = f". Pass the encoding of this file instead of {encoding}." if is_encoding else ""
        raise DataError(f"{path}, after line {number}: cannot be read ({error}){advice}") from error


def is_utf8(path: Path) -> bool:
    """Return whether a file can be read without naming its encoding."""
    try:
        for _ in read_lines(path):
            pass
    except DataError:
        return False
    return True


def read_records(path: Path, encoding: str | None = None) -> Lines:
    """Yield the lines of a file of records, as `read_lines` does; raise DataError if they end in CR."""
    for number, line, share in read_lines(path, encoding):
        check_line_end(line, number, str(path))
        yield number, line, share


def check_line_end(line: str, number: int, name: str) -> None:
    """Raise DataError if the first line is a whole file whose lines end in CR."""
    if number == 1 and not line.endswith("\n") and "\r" in line.rstrip("\r"):
        raise cr_ends(name)


def cr_ends(name: str) -> DataError:
    return DataError(
        f"{name}: the lines end in CR (carriage return), as in files from old Mac programs. "
        r"Expected LF or CRLF. To convert a file: tr '\r' '\n' < OLD > NEW."
    )


def decode_line(line: bytes, number: int, name: str) -> str:
    """Return the text of a line, without a byte order mark; raise DataError if the line is not UTF-8."""
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        byte, column = error.object[error.start], error.start + 1
        raise DataError(
            f"{name}, line {number}: not UTF-8 (byte {byte:#04x} at column {column}). Convert the file to "
            "UTF-8. finetune, evaluate and predict read other encodings too: --encoding cp1252 for a CSV "
            'file of Excel (in Python encoding="cp1252").'
        ) from error


def _as_utf8(read: Callable[[int], bytes], encoding: str | None) -> Callable[[int], bytes]:
    """Return a function that reads the same text in UTF-8; a byte order mark overrides the encoding."""
    first: bytes | None = read(1 << 20)
    if first and first.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        encoding = "utf-32"
    elif first and first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    elif first and first.startswith(codecs.BOM_UTF8):
        encoding = None
    decoder = None if encoding is None else codecs.getincrementaldecoder(encoding)()

    def read_utf8(size: int) -> bytes:
        nonlocal first
        block, first = read(size) if first is None else first, None
        return block if decoder is None else decoder.decode(block, final=not block).encode()

    return read_utf8


def _byte_lines(read: Callable[[int], bytes]) -> Iterator[bytes]:
    """Yield lines with their line ends. Lines over LINE_BYTES are read only until that length is detected."""
    begun: list[bytes] = []
    length = 0
    while block := read(1 << 20):
        first, *others = block.split(b"\n")
        begun.append(first)
        length += len(first)
        if others:
            *complete, last = others
            yield b"".join(begun) + b"\n"
            yield from (line + b"\n" for line in complete)
            begun, length = [last], len(last)
        elif length > LINE_BYTES:
            break
    if rest := b"".join(begun):
        yield rest


def lone_surrogate(text: str) -> str | None:
    """Return the first lone surrogate in a text, or None. JSON can contain it, but UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"\\u{ord(text[error.start]):04x}"
    return None


@contextmanager
def decompressed(path: Path, compression: str) -> Iterator[IO[bytes]]:
    """Yield a decompressed copy of a file on the disk, for Parquet, which is read from the end."""
    with (
        tempfile.TemporaryFile() as copy,
        path.open("rb") as raw,
        pa.CompressedInputStream(raw, compression) as stream,
    ):
        shutil.copyfileobj(stream, copy, 1 << 20)
        copy.seek(0)
        yield copy
