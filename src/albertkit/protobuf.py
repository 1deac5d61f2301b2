"""Read and write the fields of protocol buffers as bytes (protobuf.dev/programming-guides/encoding).

Unlike the protobuf library, these functions check every length and report the position of an error.
"""

from collections.abc import Iterator
from typing import Any

_MOST_BYTES = 10
_FIXED_SIZES = {1: 8, 5: 4}
_SMALL = [bytes([value]) for value in range(0x80)]


class MalformedError(ValueError):
    """Bytes that are not a protocol buffer, with the position of the error and its description."""

    def __init__(self, place: int, fault: str) -> None:
        super().__init__(f"it {fault}, at byte {place:,}")
        self.place, self.fault = place, fault


def read_varint(data: bytes | memoryview, place: int) -> tuple[int, int]:
    """Return the number at a position, and the position after it.

    A number is stored in groups of seven bits, with the lowest group first.
    """
    if place < len(data) and data[place] < 0x80:  # most numbers fit into one byte
        return data[place], place + 1
    value = shift = 0
    for byte in data[place : place + _MOST_BYTES]:
        place += 1
        if byte < 0x80:
            return value | byte << shift, place
        value |= (byte & 0x7F) << shift
        shift += 7
    if place == len(data):
        raise MalformedError(place, "ends within a number")
    raise MalformedError(place, f"should be a number of at most {_MOST_BYTES} bytes")


def read_fields(data: bytes | memoryview) -> Iterator[tuple[int, Any, int]]:
    """Yield (field number, value, position after the field) for each field of a message.

    A value is a number, or the bytes of a text or nested message, as a slice of `data`.

    Raises:
        MalformedError: A length exceeds the message, or the type of a field is unknown.
    """
    place, end = 0, len(data)
    while place < end:
        key, start = read_varint(data, place)
        wire_type = key & 7
        if wire_type == 0:
            value, place = read_varint(data, start)
        else:
            if wire_type == 2:
                size, start = read_varint(data, start)
            elif wire_type in _FIXED_SIZES:
                size = _FIXED_SIZES[wire_type]
            else:
                raise MalformedError(start, f"has a field of the unknown wire type {wire_type}")
            place = start + size
            if place > end:
                raise MalformedError(start, f"should have {size:,} bytes, and {end - start:,} are left")
            value = data[start:place]
            if wire_type != 2:
                value = int.from_bytes(value, "little")
        yield key >> 3, value, place


def varint(value: int) -> bytes:
    """Return the bytes of a number, as `read_varint` reads them."""
    if value < 0x80:  # most numbers fit into one byte
        return _SMALL[value]
    groups = bytearray()
    while value >= 0x80:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])


def number(field: int, value: int) -> bytes:
    """Return a field that contains a number."""
    return varint(field << 3) + varint(value)


def fixed32(field: int, content: bytes) -> bytes:
    """Return a field that contains four bytes."""
    return varint(field << 3 | 5) + content


def message(field: int, content: bytes) -> bytes:
    """Return a field that contains a text or a message."""
    return varint(field << 3 | 2) + varint(len(content)) + content
