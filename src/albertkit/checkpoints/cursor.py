"""Reading binary files with every length checked and every fault named by its place in the file."""

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
    """A place in a stretch of bytes of a file; reading moves it on.

    A length that a file claims is compared with what is there before anything is allocated, so a damaged file
    costs no more memory than its own size.
    """

    path: Path
    data: memoryview
    origin: int = 0
    """Where in the file `data` begins."""
    position: int = 0
    """The next byte, counted from the beginning of `data`."""

    @property
    def remaining(self) -> int:
        """Bytes between here and the end."""
        return len(self.data) - self.position

    def error(self, what: str) -> CheckpointError:
        """Return the error to raise for a fault at this place."""
        return damaged(self.path, self.origin + self.position, what)

    def take(self, size: int, what: str) -> memoryview:
        """Return the next `size` bytes, without a copy; `what` is named where they are missing."""
        if not 0 <= size <= self.remaining:
            raise self.error(f"{what} should have {size:,} bytes, and {self.remaining:,} are left")
        self.position += size
        return self.data[self.position - size : self.position]

    def part(self, size: int, what: str) -> "Cursor":
        """Return the next `size` bytes as a stretch of their own."""
        start = self.position
        return Cursor(self.path, self.take(size, what), self.origin + start)

    def unsigned(self, size: int, what: str) -> int:
        """Return the next `size` bytes as a little-endian number."""
        return int.from_bytes(self.take(size, what), "little")

    def varint(self, what: str) -> int:
        """Return the next number, as protocol buffers write it."""
        try:
            value, self.position = protobuf.read_varint(self.data, self.position)
        except protobuf.MalformedError as error:
            raise damaged(self.path, self.origin + error.place, f"{what} {error.fault}") from None
        return value

    def fields(self, what: str) -> Iterator[tuple[int, "int | Cursor"]]:
        """Yield the fields of a protocol buffer message: (number, a number or a stretch of bytes)."""
        origin, data = self.origin + self.position, self.take(self.remaining, what)
        try:
            for number, value, end in protobuf.read_fields(data):
                is_number = isinstance(value, int)
                yield number, value if is_number else Cursor(self.path, value, origin + end - len(value))
        except protobuf.MalformedError as error:
            raise damaged(self.path, origin + error.place, f"{what} {error.fault}") from None


def possible_sizes(sizes: Sequence[int]) -> bool:
    """Tell whether an array can have these sizes: not many, none negative, and their product no overflow.

    Where one of them is zero the array is empty, but libraries still multiply the others.
    """
    if len(sizes) > _MOST_SIZES or min(sizes, default=0) < 0:
        return False
    return prod(size or 1 for size in sizes) < _LARGEST_PRODUCT


def damaged(path: Path, offset: int, what: str) -> CheckpointError:
    """Return the error for a file that is not what its format says, with the place in bytes."""
    return CheckpointError(f"{path} is damaged or incomplete at byte {offset:,}: {what}. Copy it again.")
