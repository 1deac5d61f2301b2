"""Read binary files with a check of every length, and report each error with its position in the file."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

from albertkit import protobuf
from albertkit.errors import CheckpointError

_MOST_SIZES = 16
_LARGEST_PRODUCT = 1 << 48


@dataclass(slots=True)
class Cursor:
    """A position in a range of bytes of a file; reading advances it.

    Each length in a file is compared with the available bytes before memory is allocated, so a damaged file
    needs no more memory than its own size.
    """

    path: Path
    data: memoryview
    origin: int = 0
    """The position of `data` in the file."""
    position: int = 0
    """The next byte, relative to the beginning of `data`."""

    @property
    def remaining(self) -> int:
        """Number of bytes from the position to the end."""
        return len(self.data) - self.position

    def error(self, what: str) -> CheckpointError:
        """Return the error to raise for a fault at this position."""
        return damaged(self.path, self.origin + self.position, what)

    def take(self, size: int, what: str) -> memoryview:
        """Return the next `size` bytes without a copy; `what` names them in the error if they are missing."""
        if not 0 <= size <= self.remaining:
            raise self.error(f"{what} should have {size:,} bytes, but only {self.remaining:,} are left")
        self.position += size
        return self.data[self.position - size : self.position]

    def part(self, size: int, what: str) -> "Cursor":
        """Return the next `size` bytes as a cursor."""
        start = self.position
        return Cursor(self.path, self.take(size, what), self.origin + start)

    def unsigned(self, size: int, what: str) -> int:
        """Return the next `size` bytes as a little-endian number."""
        return int.from_bytes(self.take(size, what), "little")

    def varint(self, what: str) -> int:
        """Return the next number in the encoding of protocol buffers."""
        try:
            value, self.position = protobuf.read_varint(self.data, self.position)
        except protobuf.MalformedError as error:
            raise damaged(self.path, self.origin + error.place, f"{what} {error.fault}") from None
        return value

    def fields(self, what: str) -> Iterator[tuple[int, "int | Cursor"]]:
        """Yield the fields of a protocol buffer message: (number, an integer or a cursor over bytes)."""
        origin, data = self.origin + self.position, self.take(self.remaining, what)
        try:
            for number, value, end in protobuf.read_fields(data):
                is_number = isinstance(value, int)
                yield number, value if is_number else Cursor(self.path, value, origin + end - len(value))
        except protobuf.MalformedError as error:
            raise damaged(self.path, origin + error.place, f"{what} {error.fault}") from None

    def messages(self, number: int, what: str) -> "Iterator[Cursor]":
        """Yield the nested messages of a protocol buffer message that have this field number."""
        for field, value in self.fields(what):
            if field == number and isinstance(value, Cursor):
                yield value


def possible_sizes(sizes: Sequence[int]) -> bool:
    """Return whether an array can have these sizes: few, none negative, no overflow of their product.

    If a size is zero the array is empty, but libraries still multiply the others.
    """
    if len(sizes) > _MOST_SIZES or min(sizes, default=0) < 0:
        return False
    return prod(size or 1 for size in sizes) < _LARGEST_PRODUCT


def damaged(path: Path, offset: int, what: str) -> CheckpointError:
    """Return the error for a file that violates its format, with the position in bytes."""
    return CheckpointError(f"{path} is damaged or incomplete at byte {offset:,}: {what}. Copy it again.")
