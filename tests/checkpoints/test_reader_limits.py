"""Tests of checkpoint readers with wrong sizes and deep nesting in files: errors, with little memory."""

import gzip
import struct
import tarfile
import tracemalloc
from pathlib import Path

import pytest
from structural_fuzz import LARGEST_GROWTH, MEGABYTE, bounded_process, little_memory

from albertkit.checkpoints import formats, julia
from albertkit.checkpoints.folder import read_folder
from albertkit.checkpoints.tensor_bundle import Bundle, varint, write_table
from albertkit.config import AlbertConfig
from albertkit.errors import AlbertKitError, CheckpointError

# --- archives -----------------------------------------------------------------------------------


def test_a_sparse_archive(tmp_path: Path) -> None:
    header = tarfile.TarInfo("m.index")
    header.size = 1 << 40
    (tmp_path / "x.tar").write_bytes(header.tobuf() + bytes(2048))
    with little_memory(), pytest.raises(CheckpointError, match="too many for the archive"):
        formats.read(tmp_path / "x.tar")


def test_an_archive_with_a_long_index(tmp_path: Path) -> None:
    header = tarfile.TarInfo("m.index")
    header.size = 65 * MEGABYTE
    (tmp_path / "x.tar.gz").write_bytes(gzip.compress(header.tobuf() + bytes(header.size), 1))
    with little_memory(), pytest.raises(CheckpointError, match="too many for the archive"):
        formats.read(tmp_path / "x.tar.gz")


# --- TensorFlow ---------------------------------------------------------------------------------


def message(field: int, content: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(content)) + content


def write_index(path: Path, entry: bytes) -> None:
    write_table(path, {b"": b"\x08\x01", b"output_bias": entry})


def shape(*sizes: int) -> bytes:
    """Encode the shape of an entry."""
    return message(2, b"".join(message(2, b"\x08" + varint(size)) for size in sizes))


@pytest.mark.parametrize(
    "entry",
    [
        b"\x08\x01" + shape(1 << 40) + b"\x28" + varint(1 << 42),
        b"\x08\x01" + shape(1 << 62, 1 << 62),
        b"\x08\x01" + shape(0, 1 << 62, 1 << 62),
        b"\x08\x01" + shape(*[1] * 1000) + b"\x28\x04",
        b"\x08\x01" + shape((1 << 64) - 1),
        b"\x08\x01" + shape(1) + b"\x20" + varint(1 << 63) + b"\x28\x04",
        b"\x08\x01" + shape(1) + b"\x18\x07\x28\x04",
        b"\x08\x01" + shape(1) + b"\x28\x04" + message(7, b""),
        b"\x08\x01\x12" + varint(1 << 60),
    ],
)
def test_wrong_entries_of_an_index(bundle: Path, entry: bytes) -> None:
    write_index(bundle / "model.ckpt.index", entry)
    with little_memory(), pytest.raises(CheckpointError, match=r"model\.ckpt.* is damaged"):
        formats.read(bundle)


def test_a_header_with_too_many_shards(tmp_path: Path) -> None:
    path = tmp_path / "x.index"
    write_table(path, {b"": b"\x08" + varint(1 << 40)})
    with little_memory(), pytest.raises(CheckpointError, match="shards"):
        Bundle(tmp_path / "x")


# --- safetensors and configs --------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 8,
        struct.pack("<Q", 1 << 62) + b"{}",
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 400_000) + b'{"a":' * 80_000,
        struct.pack("<Q", 200_000) + b"[" * 200_000,
        *(
            struct.pack("<Q", len(header)) + header
            for header in (
                b'{"a":{"dtype":"F32","shape":[%d],"data_offsets":[0,4]}}' % (1 << 40),
                b'{"a":{"dtype":"F32","shape":[%d,%d],"data_offsets":[0,4]}}' % (1 << 62, 1 << 62),
                b'{"a":{"dtype":"F32","shape":[0,%d],"data_offsets":[0,0]}}' % (1 << 63),
                b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[%d,%d]}}' % (1 << 60, (1 << 60) + 4),
                b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}',
                b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
                b'"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
            )
        ),
    ],
)
def test_wrong_safetensors_headers(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(content + b"\0" * 4)
    with bounded_process():
        before = tracemalloc.get_traced_memory()[0]
        with pytest.raises(CheckpointError, match=r"model\.safetensors is damaged"):
            read_folder(tmp_path)
        assert tracemalloc.get_traced_memory()[1] - before < LARGEST_GROWTH


@pytest.mark.parametrize(
    "content",
    [b"[" * 200_000, b'{"a":' * 200_000, b"1" * 10_000, b'{"vocab_size": 1e999}'],
)
def test_configs_with_deep_nesting_and_large_numbers(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with little_memory(8 * MEGABYTE), pytest.raises(AlbertKitError):
        AlbertConfig.from_json_file(path)


# --- BSON ---------------------------------------------------------------------------------------


def document(*fields: bytes) -> bytes:
    """Encode a BSON document."""
    body = b"".join(fields) + b"\0"
    return struct.pack("<i", len(body) + 4) + body


def nested(depth: int, kind: bytes) -> bytes:
    """Encode nested documents or lists."""
    content = document()
    for _ in range(depth):
        content = document(kind + b"0\0" + content)
    return content


def tag(name: str, *fields: bytes) -> bytes:
    """Encode a document with a tag of BSON.jl."""
    return document(b"\x02tag\0" + struct.pack("<i", len(name) + 1) + name.encode() + b"\0", *fields)


FLOAT32 = tag(
    "datatype", b"\x04params\0" + document(), b"\x04name\0" + document(b"\x020\0\x08\0\0\0Float32\0")
)


def array_of_sizes(*sizes: int) -> bytes:
    """Encode an array that has these sizes and no data."""
    listed = document(*(b"\x12%d\0" % at + struct.pack("<q", size) for at, size in enumerate(sizes)))
    return tag("array", b"\x03type\0" + FLOAT32, b"\x04size\0" + listed, b"\x05data\0\0\0\0\0\0")


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xff\xff\x7f",
        b"\0\0\0\x80\0",
        nested(50_000, b"\x03"),
        nested(50_000, b"\x04"),
        document(b"\x02a\0\xff\xff\xff\x7fx\0"),
        document(b"\x05a\0\xff\xff\xff\xff\0"),
        document(b"\x03a\0" + array_of_sizes(1 << 40)),
        document(b"\x03a\0" + array_of_sizes(1 << 62, 1 << 62)),
        document(b"\x03a\0" + array_of_sizes(0, 1 << 62)),
        document(b"\x03a\0" + array_of_sizes(-1)),
        document(b"\x03a\0" + array_of_sizes(*[0] * 1000)),
        document(b"\x03a\0" + tag("backref", b"\x12ref\0" + struct.pack("<q", 1))),
        document(b"\x13a\0"),
        document() + b"more",
    ],
)
def test_wrong_bson(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.bson"
    path.write_bytes(content)
    with little_memory(4 * MEGABYTE), pytest.raises(CheckpointError):
        julia.load(path)


def test_bson_that_refers_to_itself(tmp_path: Path) -> None:
    path = tmp_path / "x.bson"
    loop = tag("backref", b"\x12ref\0" + struct.pack("<q", 1))
    path.write_bytes(document(b"\x03a\0" + loop, b"\x04_backrefs\0" + document(b"\x030\0" + loop)))
    with pytest.raises(CheckpointError, match="back reference 1"):
        julia.load(path)


def test_an_empty_array(tmp_path: Path) -> None:
    path = tmp_path / "x.bson"
    path.write_bytes(document(b"\x03a\0" + array_of_sizes(0, 3)))
    assert julia.load(path)["a"].shape == (0, 3)
