"""BSON (bsonspec.org): documents of typed fields, with the nine types that Julia's BSON.jl uses.

Documents become dicts, arrays become lists, and binaries become memoryviews of the file, without a copy.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from albertkit.checkpoints.cursor import Cursor
from albertkit.errors import CheckpointError

_LONGEST_NAME = 1024
_INT32, _INT64 = range(-(1 << 31), 1 << 31), range(-(1 << 63), 1 << 63)


def decode(source: Cursor) -> dict[str, Any]:
    """Return the document that begins at the cursor.

    Raises:
        CheckpointError: The document is truncated, damaged, or has a type that BSON.jl does not write. The
            message gives the position.
        RecursionError: The document is nested too deeply.
    """
    fields: dict[str, Any] = {}
    for name, value in _fields(source):
        if name in fields:
            raise source.error(f"the field {name!r} occurs twice")
        fields[name] = value
    return fields


def _fields(source: Cursor) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of the document that begins at the cursor."""
    size = source.unsigned(4, "the length of a document")
    document = source.part(size - 4, "a document")
    while kind := document.unsigned(1, "the type of a field"):
        name = _name(document)
        if kind not in _READERS:
            raise document.error(f"the field {name!r} has the type {kind:#04x}, which BSON.jl does not write")
        yield name, _READERS[kind](document, name)
    if document.remaining:
        raise document.error(f"the document ends {document.remaining:,} bytes before its stated length")


def _name(source: Cursor) -> str:
    window = bytes(source.data[source.position : source.position + _LONGEST_NAME])
    length = window.find(0)
    if length < 0:
        raise source.error(f"the name of a field has no end within {_LONGEST_NAME:,} bytes")
    name = _text(source, length, "the name of a field")
    source.take(1, "the end of a name")
    return name


def _string(source: Cursor, name: str) -> str:
    length = source.unsigned(4, name)
    text = _text(source, length - 1, name)
    if source.unsigned(1, name):
        raise source.error(f"the text of {name!r} does not end at its stated length")
    return text


def _text(source: Cursor, length: int, what: str) -> str:
    try:
        return str(source.take(length, what), "utf-8")
    except UnicodeDecodeError:
        raise source.error(f"{what} is not UTF-8") from None


def _binary(source: Cursor, name: str) -> memoryview:
    length = source.unsigned(4, name)
    source.unsigned(1, "the kind of a binary")
    return source.take(length, name)


def _integer(source: Cursor, name: str, *, size: int) -> int:
    return int.from_bytes(source.take(size, name), "little", signed=True)


_READERS: dict[int, Callable[[Cursor, str], Any]] = {
    0x01: lambda source, name: struct.unpack("<d", source.take(8, name))[0],
    0x02: _string,
    0x03: lambda source, _: decode(source),
    0x04: lambda source, _: [item for _, item in _fields(source)],  # the names are the positions
    0x05: _binary,
    0x08: lambda source, name: source.unsigned(1, name) != 0,
    0x0A: lambda *_: None,
    0x10: partial(_integer, size=4),
    0x12: partial(_integer, size=8),
}
"""Type of a field -> function that reads its value, given the cursor and the name of the field."""


def encode(document: Mapping[str, Any]) -> list[bytes | memoryview]:
    """Return the parts of a document's bytes, to be written one after the other; binaries are not copied.

    Raises:
        CheckpointError: the document exceeds two gigabytes, the limit of the format.
    """
    pieces: list[bytes | memoryview] = []
    _encode_fields(document.items(), pieces)
    return pieces


def _encode_fields(fields: Iterable[tuple[str, Any]], pieces: list[bytes | memoryview]) -> int:
    """Add a document to the parts and return its length."""
    start = len(pieces)
    pieces.append(b"")  # the length, known when the fields are
    size = 5
    for name, value in fields:
        size += _encode_field(name, value, pieces)
    pieces.append(b"\0")
    if size not in _INT32:
        raise CheckpointError(
            f"The model needs {size:,} bytes in one BSON document, but the format's limit is {_INT32[-1]:,}. "
            "Choose a smaller data type, or another format."
        )
    pieces[start] = size.to_bytes(4, "little")
    return size


def _encode_field(name: str, value: Any, pieces: list[bytes | memoryview]) -> int:
    place = len(pieces)
    pieces.append(b"")  # the type and the name
    body: bytes | memoryview = b""
    size = 0
    if isinstance(value, bool):
        kind, body = 0x08, bytes([value])
    elif isinstance(value, int) and value in _INT64:
        kind, body = 0x12, value.to_bytes(8, "little", signed=True)
    elif isinstance(value, float):
        kind, body = 0x01, struct.pack("<d", value)
    elif isinstance(value, str):
        text = value.encode() + b"\0"
        kind, body = 0x02, len(text).to_bytes(4, "little") + text
    elif value is None:
        kind = 0x0A
    elif isinstance(value, memoryview):
        kind = 0x05
        # A binary at the limit makes its document too long, which raises the error.
        pieces.append(min(value.nbytes, _INT32[-1]).to_bytes(4, "little") + b"\0")
        pieces.append(value)
        size = 5 + value.nbytes
    elif isinstance(value, Mapping):
        kind, size = 0x03, _encode_fields(value.items(), pieces)
    elif isinstance(value, Sequence):
        kind, size = 0x04, _encode_fields(((str(at), item) for at, item in enumerate(value)), pieces)
    else:
        raise CheckpointError(f"{name} is {value!r}, which BSON has no type for.")
    head = bytes([kind]) + name.encode() + b"\0" + body
    pieces[place] = head
    return len(head) + size
