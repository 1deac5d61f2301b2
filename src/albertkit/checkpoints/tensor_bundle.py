"""TensorFlow's checkpoint files ("tensor bundle", version 2), read and written without TensorFlow.

    PREFIX.index                    a sorted table: "" -> header, tensor name -> entry
    PREFIX.data-00000-of-00001      the values, one tensor after the other; the header gives the shard count

Header and entries are the protocol buffers of tensorflow/core/protobuf/tensor_bundle.proto. Values are little
endian and row-major. Each tensor has a CRC-32C of its bytes, "masked" because a checksum of checksums is
weak.

The table has the layout of LevelDB (github.com/google/leveldb, doc/table_format.md):

    data blocks     entries, sorted; each key gives the length of its common prefix with the key before it
    metaindex block empty here
    index block     for each data block: a key that is not below its last key, and the block's position
    footer          positions of the metaindex and index blocks, padding, a magic number; 48 bytes

A block ends with the positions of complete keys ("restarts") and their number. After each block come one byte
for its compression and a checksum. `write_table` writes a single data block of complete keys.
"""

import re
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from albertkit.checkpoints.arrays import BFLOAT16, map_file
from albertkit.errors import CheckpointError, reading
from albertkit.extras import optional
from albertkit.files import by_number
from albertkit.protobuf import message_class

_crc32c = optional("crc32c", extra="convert")

DTYPES = {
    1: np.dtype(np.float32),
    2: np.dtype(np.float64),
    3: np.dtype(np.int32),
    9: np.dtype(np.int64),
    14: BFLOAT16,
    19: np.dtype(np.float16),
}
"""The types that weights can have, by their numbers in tensorflow/core/framework/types.proto."""
_NUMBERS = {dtype: number for number, dtype in DTYPES.items()}
_STRING = 7
_MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")
_FOOTER_SIZE = 48
_LONGEST_KEY = 1_000  # bytes; common prefixes take no space, so a small table could have gigabytes of keys

Data = bytes | bytearray | memoryview


def masked_checksum(*parts: Data) -> int:
    """Return the CRC-32C of the bytes, rotated and shifted as LevelDB and TensorFlow store it."""
    checksum = 0
    for part in parts:
        checksum = _crc32c.crc32c(part, checksum)
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


# --- reading ------------------------------------------------------------------------------------


class Bundle:
    """The tensors of a checkpoint; each shard is mapped into memory when it is first used.

    `prefix` is the part of the file names before ".index". `entries` are the messages of the index by tensor
    name, in their order.
    """

    def __init__(self, prefix: Path) -> None:
        self.prefix = prefix
        self.index = prefix.with_name(f"{prefix.name}.index")
        with reading(self.index, CheckpointError):
            table = dict(read_table(self.index.read_bytes()))
            header = message_class("BundleHeader").FromString(table.pop(b"", b""))
            count = header.num_shards
            if header.endianness or not 1 <= count <= 100_000:  # five digits in the names of the shards
                raise ValueError(f"it is big-endian, or has {count} shards")
            self.entries = {key.decode(): _entry(key.decode(), table[key], count) for key in table}
        self.shards = [prefix.with_name(f"{prefix.name}.data-{i:05}-of-{count:05}") for i in range(count)]
        self._mapped: dict[int, np.ndarray] = {}

    def read(self, name: str, *, check: bool = True) -> np.ndarray:
        """Return a tensor, mapped copy-on-write. `check` compares its checksum, which reads all of it."""
        entry = self.entries[name]
        dtype = DTYPES[entry.dtype]
        with reading(self.shards[entry.shard_id], CheckpointError):
            values = self._values(name)
            if check and masked_checksum(values.data) != entry.crc32c:
                raise ValueError(f"the checksum of {name!r} at byte {entry.offset:,} differs")
            if entry.offset % dtype.itemsize:
                values = values.copy()
            return values.view(dtype).reshape([dim.size for dim in entry.shape.dim])

    def read_string(self, name: str) -> bytes:
        """Return a single string. It is stored as its length, a checksum of that, and the bytes."""
        entry = self.entries[name]
        with reading(self.shards[entry.shard_id], CheckpointError):
            values = self._values(name).data
            (size,), start = _numbers(values, 0, 1)
            content = bytes(values[start + 4 :])
            # The checksum covers the length as a number of four or eight bytes, its checksum, and the bytes.
            length = size.to_bytes(4 if size < 1 << 32 else 8, "little")
            checksum = masked_checksum(length, bytes(values[start : start + 4]), content)
            if entry.dtype != _STRING or len(content) != size or checksum != entry.crc32c:
                raise ValueError(f"{name!r} is not a single string, or its checksum differs")
            return content

    def _values(self, name: str) -> np.ndarray:
        entry = self.entries[name]
        if entry.shard_id not in self._mapped:
            self._mapped[entry.shard_id] = map_file(self.shards[entry.shard_id])
        shard, end = self._mapped[entry.shard_id], entry.offset + entry.size
        if not 0 <= entry.offset <= end <= len(shard):
            raise ValueError(f"it ends before {name!r}, which should be at byte {entry.offset:,} to {end:,}")
        return shard[entry.offset : end]


def _entry(name: str, content: bytes, shards: int) -> Any:
    """Return the message of a tensor after checks of its sizes."""
    entry = message_class("BundleEntry").FromString(content)
    dtype, shape = DTYPES.get(entry.dtype), [dim.size for dim in entry.shape.dim]
    if entry.slices:
        raise ValueError(f"{name!r} is stored in slices (a partitioned variable), which is not supported")
    if not 0 <= entry.shard_id < shards:
        raise ValueError(f"{name!r} is in shard {entry.shard_id}, but there are only {shards}")
    is_possible = not entry.shape.unknown_rank and min(shape, default=0) >= 0 and len(shape) <= 16
    if not is_possible or (dtype is not None and prod(shape) * dtype.itemsize != entry.size):
        raise ValueError(f"{name!r} has the shape {shape[:16]} of {dtype}, but {entry.size:,} bytes")
    return entry


def read_table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a sorted table in their order."""
    if data[-8:] != _MAGIC or len(data) < _FOOTER_SIZE:
        raise ValueError("the last eight bytes are not those of a table (the index of a checkpoint)")
    (_, _, *index), _ = _numbers(data, len(data) - _FOOTER_SIZE, 4)
    for _, handle in _entries(_block(data, *index)):
        yield from _entries(_block(data, *_numbers(handle, 0, 2)[0]))


def _block(data: bytes, offset: int, size: int) -> bytes:
    content, trailer = data[offset : offset + size], data[offset + size : offset + size + 5]
    if len(trailer) < 5 or masked_checksum(content, trailer[:1]) != int.from_bytes(trailer[1:], "little"):
        raise ValueError(f"the checksum of the block of {size:,} bytes at byte {offset:,} differs")
    if trailer[0]:
        raise ValueError(f"the block at byte {offset:,} has the compression {trailer[0]}. Expected none")
    return content


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    end = len(block) - 4 - 4 * int.from_bytes(block[-4:], "little")
    key, position = b"", 0
    while position < end:
        (shared, rest, size), position = _numbers(block, position, 3)
        stop = position + rest + size
        if shared > len(key) or shared + rest > _LONGEST_KEY or stop > end:
            raise ValueError(f"the entry at byte {position:,} of a block does not fit")
        key = key[:shared] + block[position : position + rest]
        yield key, block[position + rest : stop]
        position = stop


def _numbers(data: Data, position: int, count: int) -> tuple[list[int], int]:
    """Return the numbers at a position, stored in groups of seven bits, and the position after them."""
    numbers = []
    for _ in range(count):
        value = 0
        for shift in range(0, 70, 7):
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            raise ValueError("a number has more than ten bytes")
        numbers.append(value)
    return numbers, position


def prefixes(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder, as prefixes: names of index files that have a data shard."""
    shard = re.compile(r"(.+)\.data-\d{5}-of-\d{5}")
    names = {match[1] for child in folder.iterdir() if (match := shard.fullmatch(child.name))}
    return sorted((folder / name for name in names if (folder / f"{name}.index").is_file()), key=by_number)


# --- writing ------------------------------------------------------------------------------------


def write_bundle(prefix: Path, tensors: Mapping[str, np.ndarray]) -> list[Path]:
    """Write the index and one data shard as new files; return their paths."""
    index, data = (prefix.with_name(prefix.name + end) for end in (".index", ".data-00000-of-00001"))
    header = message_class("BundleHeader")(num_shards=1)
    header.version.producer = 1
    entries = {b"": header.SerializeToString()}
    with data.open("wb") as file:
        for name, tensor in sorted(tensors.items()):
            if tensor.dtype not in _NUMBERS:
                raise CheckpointError(f"{name} is {tensor.dtype}. Choose float32.")
            values = np.ascontiguousarray(tensor).reshape(-1).view(np.uint8)
            entry = message_class("BundleEntry")(
                dtype=_NUMBERS[tensor.dtype],
                offset=file.tell(),
                size=len(values),
                crc32c=masked_checksum(values.data),
            )
            entry.shape.SetInParent()  # also for a scalar, as TensorFlow does
            for size in tensor.shape:
                entry.shape.dim.add(size=size)
            entries[name.encode()] = entry.SerializeToString()
            file.write(values.data)
    write_table(index, entries)
    return [index, data]


def write_table(path: Path, entries: Mapping[bytes, bytes]) -> None:
    table, items = bytearray(), sorted(entries.items())
    handle = append_block(table, items)
    footer = append_block(table, []) + append_block(table, [(items[-1][0], handle)])
    path.write_bytes(table + footer.ljust(_FOOTER_SIZE - 8, b"\0") + _MAGIC)


def append_block(table: bytearray, entries: list[tuple[bytes, bytes]]) -> bytes:
    """Add a block of entries to a table, and return its handle (position and size)."""
    block, restarts = bytearray(), []
    for key, value in entries:
        restarts.append(len(block))
        block += varint(0) + varint(len(key)) + varint(len(value)) + key + value
    restarts = restarts or [0]
    block += b"".join(number.to_bytes(4, "little") for number in (*restarts, len(restarts)))
    handle = varint(len(table)) + varint(len(block))
    table += block + b"\0" + masked_checksum(block, b"\0").to_bytes(4, "little")  # not compressed
    return handle


def varint(value: int) -> bytes:
    """Return the bytes of a number, as `_numbers` reads them."""
    groups = bytearray()
    while value >= 0x80:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])
