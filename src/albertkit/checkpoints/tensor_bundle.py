"""TensorFlow's checkpoint format ("tensor bundle", version 2): named tensors in an index and data shards.

    PREFIX.index                    a table (sstable.py): "" -> header, tensor name -> entry
    PREFIX.data-00000-of-00001      the values, one tensor after the other; the header gives the shard count

Header and entries are the protocol buffers of tensorflow/core/protobuf/tensor_bundle.proto. Values are little
endian and row-major; each tensor has a masked CRC-32C of its bytes.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from albertkit.checkpoints.arrays import BFLOAT16, map_file
from albertkit.checkpoints.cursor import Cursor, damaged, possible_sizes
from albertkit.checkpoints.sstable import masked_checksum, read_table, write_table
from albertkit.errors import CheckpointError, short
from albertkit.files import by_number
from albertkit.protobuf import fixed32, message, number

# Numbers of tensorflow/core/framework/types.proto.
_DTYPES = {
    1: np.dtype(np.float32),
    2: np.dtype(np.float64),
    3: np.dtype(np.int32),
    9: np.dtype(np.int64),
    14: BFLOAT16,
    19: np.dtype(np.float16),
}
_NUMBERS = {dtype: number for number, dtype in _DTYPES.items()}
_STRING = "string"
_NAMES = {4: "uint8", 5: "int16", 6: "int8", 7: _STRING, 8: "complex64", 10: "bool", 21: "variant"}


@dataclass(frozen=True, slots=True)
class Entry:
    """The entry of a tensor in the index."""

    dtype: np.dtype | None
    """None for types that weights cannot have (strings)."""
    type_name: str
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int


def read_index(path: Path) -> tuple[dict[str, Entry], int]:
    """Return the entries of a `.index` file by tensor name, in their order, and the number of shards.

    Raises:
        CheckpointError: the file is damaged, or has a feature that ALBERT checkpoints do not use (big-endian,
            tensors in slices). The message gives the position.
    """
    entries: dict[str, Entry] = {}
    shards = None
    for key, value in read_table(path):
        if shards is None:
            if key != b"":
                raise value.error(
                    "the first key does not belong to the header: the file is a table of other data"
                )
            shards = _read_header(value)
            continue
        try:
            name = key.decode()
        except UnicodeDecodeError:
            raise value.error(f"the name {key!r} is not UTF-8") from None
        entries[name] = _read_entry(value, name, shards)
    if shards is None:
        raise CheckpointError(f"{path} is not the index of a checkpoint: it has no entries and no header.")
    return entries, shards


def _read_header(source: Cursor) -> int:
    """Return the number of shards."""
    values = dict(source.fields("the header"))
    shards = values.get(1, 1)
    if values.get(2, 0) != 0:
        raise source.error("the checkpoint is big-endian. Expected little-endian")
    if not isinstance(shards, int) or not 1 <= shards <= 100_000:  # five digits in the names of the shards
        raise source.error(f"the header states {short(shards)} shards")
    return shards


def _read_entry(source: Cursor, name: str, shards: int) -> Entry:
    values = dict(source.fields(f"the entry of {name!r}"))
    if 7 in values:
        raise source.error(f"{name!r} is stored in slices (a partitioned variable), which is not supported")
    kind, shard, offset, size, checksum = (_number_in(values, field) for field in (1, 3, 4, 5, 6))
    shape = _read_shape(values[2], name) if isinstance(values.get(2), Cursor) else ()
    dtype = _DTYPES.get(kind)
    if shard >= shards:
        raise source.error(f"{name!r} is in shard {shard:,}, but there are only {shards:,}")
    if dtype is not None and prod(shape) * dtype.itemsize != size:
        raise source.error(f"{name!r} has the shape {shape} of {dtype}, but {size:,} bytes")
    type_name = str(dtype) if dtype else _NAMES.get(kind, f"type {kind}")
    return Entry(dtype, type_name, shape, shard, offset, size, checksum)


def _read_shape(source: Any, name: str) -> tuple[int, ...]:
    what = f"the shape of {name!r}"
    sizes: list[int] = []
    for field, value in source.fields(what):
        if field == 2 and isinstance(value, Cursor):
            sizes.append(_number_in(dict(value.fields(what)), 1))
        elif field == 3 and value:
            raise source.error(f"{what} is unknown")
    if not possible_sizes(sizes):
        raise source.error(f"{what} is {sizes[:8]}, in all {len(sizes)} numbers")
    return tuple(sizes)


def _number_in(values: Mapping[int, Any], field: int) -> int:
    return value if isinstance(value := values.get(field), int) else 0


class Bundle:
    """The tensors of a checkpoint; each shard is mapped into memory when it is first used."""

    def __init__(self, prefix: Path) -> None:
        """Read the index of the checkpoint `prefix`, the part of its file names before ".index".

        Raises:
            CheckpointError: see `read_index`; or the file does not exist.
        """
        self.prefix = prefix
        self.index = prefix.with_name(prefix.name + ".index")
        if not self.index.is_file():
            raise CheckpointError(f"There is no {self.index}. Expected the index of a TensorFlow checkpoint.")
        self.entries, count = read_index(self.index)
        self.shards = [prefix.with_name(f"{prefix.name}.data-{i:05}-of-{count:05}") for i in range(count)]
        self._mapped: dict[int, np.ndarray] = {}

    def read(self, name: str, *, check: bool = True) -> np.ndarray:
        """Return a tensor by its name, mapped copy-on-write.

        Args:
            name: a name in `entries`, with a data type that weights can have.
            check: whether to compare the checksum, which reads the whole tensor.

        Raises:
            CheckpointError: the shard is missing or too short, or the checksum differs. The message gives the
                position.
        """
        entry = self.entries[name]
        assert entry.dtype is not None
        values = self._values(name)
        if check and masked_checksum(values.data) != entry.checksum:
            raise self._wrong_checksum(name)
        if entry.size == 0:
            return np.empty(entry.shape, dtype=entry.dtype)
        if entry.offset % entry.dtype.itemsize:
            values = values.copy()
        return values.view(entry.dtype).reshape(entry.shape)

    def read_string(self, name: str) -> Cursor:
        """Return a single string by its name. It is stored as its length, a checksum of that, and the bytes.

        Raises:
            CheckpointError: see `read`; or the entry is not a single string.
        """
        entry = self.entries[name]
        source = Cursor(self.shards[entry.shard], self._values(name).data, entry.offset)
        if entry.type_name != _STRING or entry.shape:
            raise source.error(f"{name!r} is {entry.type_name} of the shape {entry.shape}, not one string")
        size = source.varint(f"the length of {name!r}")
        stored = source.take(4, f"the checksum of the length of {name!r}")
        content = source.part(size, name)
        # The checksum covers the length as a number of four or eight bytes, its checksum, and the bytes.
        length = size.to_bytes(4 if size < 1 << 32 else 8, "little")
        if source.remaining or masked_checksum(length, bytes(stored), content.data) != entry.checksum:
            raise self._wrong_checksum(name)
        return content

    def _values(self, name: str) -> np.ndarray:
        """Return the bytes of a tensor without copying them."""
        entry = self.entries[name]
        file, end = self.shards[entry.shard], entry.offset + entry.size
        if entry.shard not in self._mapped:
            if not file.is_file():
                raise CheckpointError(
                    f"There is no {file}: the index of the checkpoint lists {len(self.shards)} such files."
                )
            # An empty file cannot be mapped.
            self._mapped[entry.shard] = map_file(file) if file.stat().st_size else np.empty(0, np.uint8)
        shard = self._mapped[entry.shard]
        if end > len(shard):
            place = f"at bytes {entry.offset:,} to {end:,}"
            raise damaged(file, len(shard), f"the file ends before {name!r}, which should be {place}")
        return shard[entry.offset : end]

    def _wrong_checksum(self, name: str) -> CheckpointError:
        entry = self.entries[name]
        problem = f"the checksum of {name!r}, {entry.size:,} bytes from here, differs from that in the index"
        return damaged(self.shards[entry.shard], entry.offset, problem)


def write_bundle(prefix: Path, tensors: Mapping[str, np.ndarray]) -> list[Path]:
    """Write the index and one data shard as new files; return their paths.

    Raises:
        CheckpointError: the format does not support a data type.
        OSError: the files cannot be written.
    """
    index, data = (prefix.with_name(prefix.name + end) for end in (".index", ".data-00000-of-00001"))
    # num_shards = 1, version.producer = 1
    entries = {b"": number(1, 1) + message(3, number(1, 1))}
    with data.open("wb") as file:
        for name, tensor in sorted(tensors.items()):
            if tensor.dtype not in _NUMBERS:
                raise CheckpointError(
                    f"{name} is {tensor.dtype}. Expected one of {', '.join(map(str, _NUMBERS))}."
                )
            values = np.ascontiguousarray(tensor).reshape(-1).view(np.uint8)
            shape = b"".join(message(2, _number(1, size)) for size in tensor.shape)
            entries[name.encode()] = (
                number(1, _NUMBERS[tensor.dtype])
                + message(2, shape)
                + _number(4, file.tell())
                + _number(5, len(values))
                + fixed32(6, masked_checksum(values.data).to_bytes(4, "little"))
            )
            file.write(values.data)
    write_table(index, entries)
    return [index, data]


def prefixes(folder: Path) -> list[Path]:
    """Return the checkpoints in a folder, as prefixes: names of index files that have a data shard."""
    shard = re.compile(r"(.+)\.data-\d{5}-of-\d{5}")
    names = {found[1] for child in folder.iterdir() if (found := shard.fullmatch(child.name))}
    found = (folder / name for name in names if (folder / f"{name}.index").is_file())
    return sorted(found, key=by_number)


def _number(field: int, value: int) -> bytes:
    """Return a field of a protocol buffer; zero, the default, is omitted."""
    return number(field, value) if value else b""
