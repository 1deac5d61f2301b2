"""Sorted string tables: the (key, value) file that is the `.index` of a TensorFlow checkpoint.

The layout is that of LevelDB (github.com/google/leveldb, doc/table_format.md):

    data blocks     entries, sorted; each key gives the length of its common prefix with the key before it
    metaindex block empty here
    index block     for each data block: a key that is not below its last key, and the block's position
    footer          positions of the metaindex and index blocks, padding, a magic number; 48 bytes

A block ends with the positions of complete keys ("restarts") and their number. After each block come one byte
for its compression and a checksum: CRC-32C, "masked" because a checksum of checksums is weak. Since version
1.2, TensorFlow does not compress the blocks of a checkpoint.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from albertkit.checkpoints.cursor import Cursor
from albertkit.extras import optional
from albertkit.protobuf import varint

_crc32c = optional("crc32c", extra="convert")

_FOOTER_SIZE = 48
_MAGIC = 0xDB4775248B80FB57
_NO_COMPRESSION = 0
_KEYS_PER_RESTART = 16
_LONGEST_KEY = 1_000
"""In bytes. Common prefixes take no space, so without a limit a small file could have gigabytes of keys."""


def masked_checksum(data: bytes | memoryview, *more: bytes | memoryview) -> int:
    """Return the CRC-32C of the bytes, rotated and shifted as LevelDB and TensorFlow store it."""
    checksum = _crc32c.crc32c(data)
    for part in more:
        checksum = _crc32c.crc32c(part, checksum)
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


# --- reading ------------------------------------------------------------------------------------


def read_table(path: Path) -> Iterator[tuple[bytes, Cursor]]:
    """Yield the keys and values of a table in their order.

    Raises:
        CheckpointError: the file is not a table, is truncated, or a checksum differs. The message gives the
            position.
    """
    data = memoryview(path.read_bytes())
    file = Cursor(path, data, 0, max(len(data) - _FOOTER_SIZE, 0))
    footer = file.part(_FOOTER_SIZE, "the footer of the table")
    handles = footer.part(_FOOTER_SIZE - 8, "the footer of the table")
    if footer.unsigned(8, "the magic number") != _MAGIC:
        raise file.error("the last eight bytes are not those of a table (the index of a checkpoint)")
    _handle(handles)
    previous: bytes | None = None
    for _, value in _entries(_block(path, data, *_handle(handles))):
        for key, entry in _entries(_block(path, data, *_handle(value))):
            if previous is not None and key <= previous:
                raise entry.error(f"the keys {previous!r} and {key!r} are not in order")
            previous = key
            yield key, entry


def _handle(source: Cursor) -> tuple[int, int]:
    return source.varint("the place of a block"), source.varint("the size of a block")


def _block(path: Path, data: memoryview, offset: int, size: int) -> Cursor:
    """Return a block by its position, after comparing its checksum."""
    file = Cursor(path, data, 0, min(offset, len(data)))
    content = file.part(size, "a block")
    trailer = file.part(5, "the checksum of a block")
    compression = trailer.unsigned(1, "the compression of a block")
    stored = trailer.unsigned(4, "the checksum of a block")
    if masked_checksum(content.data, bytes([compression])) != stored:
        raise content.error(f"the checksum of the block of {size:,} bytes differs from the stored one")
    if compression != _NO_COMPRESSION:
        raise content.error(f"the block has the compression {compression}. Expected none (0)")
    return content


def _entries(block: Cursor) -> Iterator[tuple[bytes, Cursor]]:
    """Yield the keys and values of a block."""
    tail = Cursor(block.path, block.data, block.origin, max(len(block.data) - 4, 0))
    restarts = tail.unsigned(4, "the number of restarts")
    entries = block.part(len(block.data) - 4 - 4 * restarts, "a block without its restarts")
    key = b""
    while entries.remaining:
        shared = entries.varint("the shared length of a key")
        rest = entries.varint("the length of the rest of a key")
        size = entries.varint("the length of a value")
        if shared > len(key) or shared + rest > _LONGEST_KEY:
            raise entries.error(
                f"a key has {rest:,} bytes and {shared:,} of the key before it, which has {len(key):,}. "
                f"Expected at most {_LONGEST_KEY:,}"
            )
        key = key[:shared] + bytes(entries.take(rest, "a key"))
        yield key, entries.part(size, "a value")


# --- writing ------------------------------------------------------------------------------------


def write_table(path: Path, entries: Mapping[bytes, bytes]) -> None:
    """Write a table with a single data block.

    The bytes are those of TensorFlow, which begins another block after 256 kB. Readers accept blocks of any
    size.
    """
    table = bytearray()
    items = sorted(entries.items())
    handle = _append(table, _encode_block(items, _KEYS_PER_RESTART))
    metaindex = _append(table, _encode_block([], _KEYS_PER_RESTART))
    index = _encode_block([(_short_successor(items[-1][0]), handle)], 1)
    footer = metaindex + _append(table, index)
    table += footer.ljust(_FOOTER_SIZE - 8, b"\0") + _MAGIC.to_bytes(8, "little")
    path.write_bytes(table)


def _encode_block(entries: list[tuple[bytes, bytes]], keys_per_restart: int) -> bytes:
    block = bytearray()
    restarts = [0]
    previous = b""
    for number, (key, value) in enumerate(entries):
        shared = 0
        if number and number % keys_per_restart == 0:
            restarts.append(len(block))
        elif number:
            shorter = min(len(key), len(previous))
            shared = next((at for at in range(shorter) if key[at] != previous[at]), shorter)
        block += varint(shared) + varint(len(key) - shared) + varint(len(value))
        block += key[shared:] + value
        previous = key
    return bytes(block) + b"".join(number.to_bytes(4, "little") for number in (*restarts, len(restarts)))


def _append(table: bytearray, block: bytes) -> bytes:
    """Add a block with its trailer and return the handle with its position."""
    handle = varint(len(table)) + varint(len(block))
    compression = bytes([_NO_COMPRESSION])
    table += block + compression + masked_checksum(block, compression).to_bytes(4, "little")
    return handle


def _short_successor(key: bytes) -> bytes:
    """Return the shortest key above this one, which LevelDB uses at the end of its index."""
    for place, byte in enumerate(key):
        if byte != 0xFF:
            return key[:place] + bytes([byte + 1])
    return key
