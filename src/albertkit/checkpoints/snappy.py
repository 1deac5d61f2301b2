"""Decompression of Snappy's raw format, which tables of TensorFlow may use for their blocks.

The format (github.com/google/snappy, format_description.txt): the length of the result as a varint, then
elements whose lowest two bits say what they are: bytes to copy over, or a stretch of what there already is.
Only the index of a checkpoint is ever compressed, some kilobytes, so plain Python is fast enough.
"""

from albertkit.checkpoints.cursor import Cursor

_LARGEST_GAIN = 64
"""The most bytes that one byte of input can stand for: a copy of 64 bytes takes at least two."""


def decompress(source: Cursor) -> bytes:
    """The bytes that a compressed stretch stands for.

    Raises:
        CheckpointError: the stretch is not valid, or its result is not of the length it states.
    """
    length = source.varint("the length of a compressed block")
    if length > _LARGEST_GAIN * source.remaining:
        raise source.error(f"a block of {source.remaining:,} bytes cannot hold {length:,}")
    result = bytearray()
    while source.remaining:
        tag = source.unsigned(1, "an element")
        kind, high = tag & 3, tag >> 2
        if kind == 0:
            # Up to 60 bytes state their number in the tag, more in the one to four bytes after it.
            size = high + 1 if high < 60 else source.unsigned(high - 59, "the length of a literal") + 1
            result += source.take(size, "a literal")
        else:
            if kind == 1:
                size, offset = (high & 7) + 4, (tag >> 5) << 8 | source.unsigned(1, "an offset")
            else:
                size, offset = high + 1, source.unsigned(2 if kind == 2 else 4, "an offset")
            if not 0 < offset <= len(result):
                raise source.error(f"a copy from {offset:,} bytes back, where there are {len(result):,}")
            start = len(result) - offset
            # A copy may run into its own result, which repeats a pattern.
            pattern = result[start : start + size]
            result += (pattern * -(-size // len(pattern)))[:size]
        if len(result) > length:
            break
    if len(result) != length:
        raise source.error(f"a block that should hold {length:,} bytes holds {len(result):,} or more")
    return bytes(result)
