"""BSON (bsonspec.org): documents of typed fields, with the nine types that Julia's BSON.jl uses.

Documents become dicts, arrays become lists, and binaries become memoryviews of the file, without a copy.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
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
    size = source.unsigned(4, "the length of a document")
    document = source.part(size - 4, "a document")
    fields: dict[str, Any] = {}
    while kind := document.unsigned(1, "the type of a field"):
        name = _name(document)
        if kind not in _READERS:
            raise document.error(f"the field {name!r} has the type {kind:#04x}, which BSON.jl does not write")
        if name in fields:
            raise document.error(f"the field {name!r} occurs twice")
        fields[name] = _READERS[kind](document, name)
    if document.remaining:
        raise document.error(f"the document ends {document.remaining:,} bytes before its stated length")
    return fields


def _name(source: Cursor) -> str:
    length = bytes(source.data[source.position : source.position + _LONGEST_NAME]).find(0)
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
    0x04: lambda source, _: list(decode(source).values()),  # the names are the positions
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
    parts: list[bytes | memoryview] = []
    for name, value in document.items():
        kind, content = _encode_value(name, value)
        parts += [bytes([kind]) + name.encode() + b"\0", *content]
    size = 5 + sum(map(len, parts))
    if size not in _INT32:
        raise CheckpointError(
            f"The model needs {size:,} bytes in one BSON document, but the format's limit is {_INT32[-1]:,}. "
            "Choose a smaller data type, or another format."
        )
    return [size.to_bytes(4, "little"), *parts, b"\0"]


def _encode_value(name: str, value: Any) -> tuple[int, list[bytes | memoryview]]:
    """Return the type of a field, and the parts of its value."""
    if isinstance(value, bool):
        return 0x08, [bytes([value])]
    if isinstance(value, int) and value in _INT64:
        return 0x12, [value.to_bytes(8, "little", signed=True)]
    if isinstance(value, float):
        return 0x01, [struct.pack("<d", value)]
    if isinstance(value, str):
        text = value.encode() + b"\0"
        return 0x02, [len(text).to_bytes(4, "little"), text]
    if value is None:
        return 0x0A, []
    if isinstance(value, memoryview):
        # A binary at the limit makes its document too long, which raises the error.
        return 0x05, [min(len(value), _INT32[-1]).to_bytes(4, "little") + b"\0", value]
    if isinstance(value, Mapping):
        return 0x03, encode(value)
    if isinstance(value, Sequence):
        return 0x04, encode({str(place): item for place, item in enumerate(value)})
    raise CheckpointError(f"{name} is {value!r}, which BSON has no type for.")
