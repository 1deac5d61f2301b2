"""Damaged files: every reader raises our own errors, needs no more memory than the file, and ends.

Each reader sees random damage of files that were whole, and files made to lie about sizes and nesting. Every
case is bounded: in Python's memory, in the address space of the process (only there is seen what libraries
take), and in CPU time.
"""

import gzip
import json
import random
import struct
import sys
import tarfile
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import structural_fuzz
import torch
from safetensors.torch import save
from structural_fuzz import (
    CASES,
    LARGEST_GROWTH,
    LARGEST_SPACE,
    MEGABYTE,
    WRONG,
    TooSlowError,
    bounded_process,
    count_refused,
    damaged,
    damaged_json_files,
)
from torch_files import write_bundle

from albertkit.checkpoints import formats, julia
from albertkit.checkpoints.cursor import Cursor
from albertkit.checkpoints.folder import read_folder
from albertkit.checkpoints.sstable import decompress, read_table, write_table
from albertkit.checkpoints.tensor_bundle import read_index
from albertkit.config import AlbertConfig
from albertkit.errors import AlbertKitError, CheckpointError
from albertkit.protobuf import message, varint

CONFIG = {
    "vocab_size": 40,
    "embedding_size": 8,
    "hidden_size": 12,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "max_position_embeddings": 16,
    "hidden_act": "gelu",
    "id2label": {"0": "no", "1": "yes"},
    "label2id": {"no": 0, "yes": 1},
    "architectures": ["AlbertForMaskedLM"],
    "pruned_heads": {"0": [1]},
    "dtype": "float32",
    "classifier_dropout_prob": 0.1,
}
TENSORS = {
    "bert/embeddings/word_embeddings": torch.arange(320.0).reshape(40, 8),
    "bert/embeddings/word_embeddings/adam_m": torch.ones(40, 8),
    "bert/encoder/embedding_hidden_mapping_in/kernel": torch.ones(8, 12).half(),
    "bert/encoder/embedding_hidden_mapping_in/bias": torch.ones(12).bfloat16(),
    "bert/pooler/dense/bias": torch.empty(0),
    "output_bias": torch.zeros(3),
    "global_step": torch.tensor(7),
}


@contextmanager
def little_memory(limit: int = 2 * MEGABYTE) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


def spin() -> None:
    while True:
        pass


@pytest.mark.parametrize(
    ("read", "error"),
    [
        (lambda: bytearray(LARGEST_GROWTH), AssertionError),
        pytest.param(
            lambda: torch.empty(2 * LARGEST_SPACE, dtype=torch.uint8),
            RuntimeError,
            marks=pytest.mark.skipif(sys.platform != "linux", reason="the space is limited on Linux only"),
        ),
        (spin, TooSlowError),
    ],
    ids=["memory", "space", "time"],
)
def test_the_bounds_are_kept(read: Callable, error: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structural_fuzz, "LONGEST", 0.05)
    with pytest.raises(error):
        count_refused(read, iter([None]))


# --- random damage ------------------------------------------------------------------------------


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    write_bundle(tmp_path / "model.ckpt", TENSORS)
    (tmp_path / "albert_config.json").write_text(json.dumps(CONFIG))
    return tmp_path


def test_tensorflow_files(bundle: Path) -> None:
    rng = random.Random(0)
    paths = [path for path in bundle.iterdir() if path.name.startswith("model.ckpt")]
    whole = {path: path.read_bytes() for path in paths}

    def cases() -> Iterator[None]:
        for _ in range(CASES):
            path = rng.choice(paths)
            path.write_bytes(damaged(whole[path], rng))
            yield
            path.write_bytes(whole[path])

    # Data that only an optimizer had is not read, so some damage goes unseen.
    assert count_refused(lambda: formats.read(bundle), cases()) > CASES * 0.8


def test_archives(bundle: Path) -> None:
    rng = random.Random(5)
    path = bundle.parent / f"{bundle.name}.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.add(bundle, "model")
    whole = path.read_bytes()
    plain = gzip.decompress(whole)

    def cases() -> Iterator[None]:
        for _ in range(CASES):
            # Half of the damage is inside, where gzip's checksum would hide it.
            inside = rng.random() < 0.5
            path.write_bytes(gzip.compress(damaged(plain, rng), 1) if inside else damaged(whole, rng))
            yield

    assert count_refused(lambda: formats.read(path), cases()) > CASES * 0.4


def test_an_archive_of_holes(tmp_path: Path) -> None:
    header = tarfile.TarInfo("m.index")
    header.size = 1 << 40
    (tmp_path / "x.tar").write_bytes(header.tobuf() + bytes(2048))
    with little_memory(), pytest.raises(CheckpointError, match="its files are too large for its size"):
        formats.read(tmp_path / "x.tar")


def test_an_archive_of_a_long_index(tmp_path: Path) -> None:
    header = tarfile.TarInfo("m.index")
    header.size = 65 * MEGABYTE
    (tmp_path / "x.tar.gz").write_bytes(gzip.compress(header.tobuf() + bytes(header.size), 1))
    with little_memory(), pytest.raises(CheckpointError, match="its files are too large for its size"):
        formats.read(tmp_path / "x.tar.gz")


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME], ids=["pax", "long name"])
@pytest.mark.parametrize("size", [1 << 62, 1 << 70, 64 * MEGABYTE])
def test_an_archive_of_long_headers(tmp_path: Path, kind: bytes, size: int) -> None:
    """Zeros compress a thousandfold, and tarfile takes a header into memory whatever its size."""
    header = tarfile.TarInfo("x")
    header.type, header.size = kind, size
    content = header.tobuf(tarfile.GNU_FORMAT) + bytes(min(size, 64 * MEGABYTE))
    (tmp_path / "x.tar.gz").write_bytes(gzip.compress(content, 1))
    del content
    with (
        little_memory(),
        pytest.raises(CheckpointError, match=r"it has a header of|damaged or not an archive"),
    ):
        formats.read(tmp_path / "x.tar.gz")


def test_tensorflow_index_with_right_checksums(bundle: Path) -> None:
    """Checksums hide the inside of the index from random damage, so here they are made to fit it."""
    rng = random.Random(1)
    path = bundle / "model.ckpt.index"
    whole = {key: bytes(value.data) for key, value in read_table(path)}

    def cases() -> Iterator[None]:
        for _ in range(CASES):
            entries = dict(whole)
            key = rng.choice(list(entries))
            if rng.random() < 0.2:
                entries[damaged(key, rng)] = entries.pop(key)
            else:
                entries[key] = damaged(entries[key], rng)
            write_table(path, entries)
            yield

    assert count_refused(lambda: formats.read(bundle), cases()) > CASES * 0.5


def test_julia_files(tmp_path: Path) -> None:
    rng = random.Random(2)
    path = tmp_path / "model.tfbson"
    numbers = {name: tensor for name, tensor in TENSORS.items() if tensor.dtype != torch.bfloat16}
    julia.save(
        path,
        {
            "config": CONFIG,
            "weights": {name: julia.array_of(tensor.numpy()) for name, tensor in numbers.items()},
            "vocab": [f"piece{number}\t0" for number in range(8)],
        },
    )
    whole = path.read_bytes()

    def cases() -> Iterator[None]:
        for _ in range(CASES):
            path.unlink()  # the arrays of an earlier case may still be mapped
            path.write_bytes(damaged(whole, rng))
            yield

    assert count_refused(lambda: formats.read(path), cases()) > CASES * 0.5


def test_safetensors_headers(tmp_path: Path) -> None:
    rng = random.Random(3)
    path = tmp_path / "model.safetensors"
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "model_type": "albert"}))
    whole = save({name: tensor for name, tensor in TENSORS.items() if tensor.numel()}, {"format": "pt"})
    length = 8 + int.from_bytes(whole[:8], "little")

    def cases() -> Iterator[None]:
        for _ in range(CASES):
            header = damaged(whole[8:length], rng)
            if rng.random() < 0.3:
                values = json.loads(whole[8:length])
                one = values[rng.choice([name for name in values if name != "__metadata__"])]
                one[rng.choice(list(one))] = rng.choice(
                    [*WRONG, [1 << 62, 4], [0, 1 << 40], [1 << 63, 0], "BOOL"]
                )
                header = json.dumps(values).encode()
            size = struct.pack("<Q", len(header)) if rng.random() < 0.7 else damaged(whole[:8], rng)
            path.unlink(missing_ok=True)
            path.write_bytes(size + header + whole[length:])
            yield

    assert count_refused(lambda: read_folder(tmp_path), cases()) > CASES * 0.5


@pytest.mark.parametrize("name", ["config.json", "albert_config.json"])
def test_configs(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    settings = {"problem_type": "regression", "torch_dtype": "float16", "return_dict": True}
    path.write_text(json.dumps({**AlbertConfig().to_dict(), **CONFIG, **settings, "use_cache": False}))

    def read() -> None:
        config = AlbertConfig.from_pretrained(path)
        AlbertConfig.from_dict(json.loads(config.to_json_string()))

    assert count_refused(read, damaged_json_files(path, seed=4)) > CASES * 0.4


# --- files that lie -----------------------------------------------------------------------------


def index_with(path: Path, entry: bytes) -> Path:
    write_table(path, {b"": b"\x08\x01", b"output_bias": entry})
    return path


def shape(*sizes: int) -> bytes:
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
    ids=[
        "large",
        "overflow",
        "empty overflow",
        "dimensions",
        "negative",
        "offset",
        "shard",
        "slices",
        "length",
    ],
)
def test_absurd_entries_of_an_index(bundle: Path, entry: bytes) -> None:
    index_with(bundle / "model.ckpt.index", entry)
    with little_memory(), pytest.raises(CheckpointError, match="at byte"):
        formats.read(bundle)


def test_a_header_of_many_shards(tmp_path: Path) -> None:
    path = tmp_path / "x.index"
    write_table(path, {b"": b"\x08" + varint(1 << 40)})
    with little_memory(), pytest.raises(CheckpointError, match="shards"):
        read_index(path)


@pytest.mark.parametrize(
    "content",
    [
        varint(1 << 50) + b"\x00a",
        b"\xff" * 20,
        b"\x05\x00a\x01\x09",
        b"\x03\xf0",
        b"\x02\x04ab" * 2,
        b"\x05\xfc\xff\xff\xff\xff",
    ],
    ids=["bomb", "endless number", "copy from before the start", "cut", "too long", "long literal"],
)
def test_absurd_snappy_blocks(content: bytes) -> None:
    with little_memory(), pytest.raises(CheckpointError):
        decompress(Cursor(Path("block"), memoryview(content)))


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
    ids=[
        *("empty", "length", "long", "list", "objects", "lists", "large", "overflow", "empty overflow"),
        *("offset", "backwards", "shared"),
    ],
)
def test_absurd_safetensors(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(content + b"\0" * 4)
    with bounded_process():
        before = tracemalloc.get_traced_memory()[0]
        with pytest.raises(CheckpointError, match=r"model\.safetensors .*damaged"):
            read_folder(tmp_path)
        assert tracemalloc.get_traced_memory()[1] - before < LARGEST_GROWTH


def document(*fields: bytes) -> bytes:
    body = b"".join(fields) + b"\0"
    return struct.pack("<i", len(body) + 4) + body


def nested(depth: int, kind: bytes) -> bytes:
    content = document()
    for _ in range(depth):
        content = document(kind + b"0\0" + content)
    return content


def tag(name: str, *fields: bytes) -> bytes:
    return document(b"\x02tag\0" + struct.pack("<i", len(name) + 1) + name.encode() + b"\0", *fields)


FLOAT32 = tag(
    "datatype", b"\x04params\0" + document(), b"\x04name\0" + document(b"\x020\0\x08\0\0\0Float32\0")
)


def array_of_sizes(*sizes: int) -> bytes:
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
        document(b"\x03a\0" + tag("struct", b"\x0atype\0")),
        document(b"\x13a\0"),
        document() + b"more",
    ],
    ids=[
        *("length", "negative length", "documents", "lists", "text", "binary", "large", "overflow"),
        *("empty overflow", "negative", "dimensions", "no such reference", "no type", "foreign type", "more"),
    ],
)
def test_absurd_bson(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.bson"
    path.write_bytes(content)
    with little_memory(4 * MEGABYTE), pytest.raises(CheckpointError):
        julia.load(path)


def test_bson_that_refers_to_itself(tmp_path: Path) -> None:
    path = tmp_path / "x.bson"
    loop = tag("backref", b"\x12ref\0" + struct.pack("<q", 1))
    path.write_bytes(document(b"\x03a\0" + loop, b"\x04_backrefs\0" + document(b"\x030\0" + loop)))
    with pytest.raises(CheckpointError, match="refers to itself"):
        julia.load(path)


def test_an_empty_array(tmp_path: Path) -> None:
    path = tmp_path / "x.bson"
    path.write_bytes(document(b"\x03a\0" + array_of_sizes(0, 3)))
    assert julia.load(path)["a"].shape == (0, 3)


@pytest.mark.parametrize(
    "content",
    [b"[" * 200_000, b'{"a":' * 200_000, b"1" * 10_000, b'{"vocab_size": 1e999}'],
    ids=["lists", "objects", "number", "infinity"],
)
def test_absurd_configs(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with little_memory(8 * MEGABYTE), pytest.raises(AlbertKitError):
        AlbertConfig.from_json_file(path)
