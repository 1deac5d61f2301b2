"""Tests of TensorFlow's checkpoint files: the same bytes as from TensorFlow, damage, and names of tensors."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from places import GOLDEN
from torch_files import Bundle, write_bundle

from albertkit.checkpoints.names import (
    OLDER_FACTOR,
    TABLE,
    canonical,
    from_google,
    spec_of,
    to_google,
    why_no_weight,
)
from albertkit.checkpoints.tensor_bundle import append_block, prefixes, read_table, write_table
from albertkit.errors import CheckpointError

RECORDED = GOLDEN / "google_tf1_small"
INDEX, DATA = "m.index", "m.data-00000-of-00001"
GLOBAL_STEP = 125_000

TENSORS = {
    "float32": torch.randn(5, 7, generator=torch.Generator().manual_seed(0)),
    "float16": torch.arange(3).half(),
    "bfloat16": torch.arange(6).bfloat16().reshape(2, 3),
    "float64": torch.tensor([[1.5]], dtype=torch.float64),
    "int32": torch.arange(4, dtype=torch.int32),
    "int64": torch.tensor(1 << 40),
    "nothing": torch.empty(0, 3),
}


def golden_tensors() -> dict[str, torch.Tensor]:
    """Return the tensors of the checkpoint that TensorFlow wrote."""
    with np.load(RECORDED / "arrays.npz") as file:
        tensors = {
            key.removeprefix("weight:"): torch.from_numpy(file[key])
            for key in file
            if key.startswith("weight:")
        }
    return tensors | {"global_step": torch.tensor(GLOBAL_STEP)}


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """Return the prefix of a small checkpoint with tensors of every type."""
    write_bundle(tmp_path / "m", TENSORS)
    return tmp_path / "m"


def read_all(prefix: Path) -> None:
    bundle = Bundle(prefix)
    for name in bundle.entries:
        bundle.read(name)


def assert_same(bundle: Bundle, expected: dict[str, torch.Tensor]) -> None:
    assert set(bundle.entries) == set(expected)
    for name, tensor in expected.items():
        actual = bundle.read(name)
        assert actual.dtype == tensor.dtype, name
        assert actual.shape == tensor.shape, name
        assert torch.equal(actual, tensor), name


# --- the format ---------------------------------------------------------------------------------


def test_the_entries_equal_those_of_tensorflow(tmp_path: Path) -> None:
    index, _ = write_bundle(tmp_path / "model.ckpt-best", golden_tensors())
    # The index contains the offset and the checksum of every tensor. If it is equal, so are the data.
    recorded = (RECORDED / index.name).read_bytes()
    assert list(read_table(index.read_bytes())) == list(read_table(recorded))
    assert_same(Bundle(tmp_path / "model.ckpt-best"), golden_tensors())


def test_reading_a_file_of_tensorflow(shared: Path) -> None:
    assert_same(Bundle(shared / "fixtures" / "google-tf1-small" / "model.ckpt-best"), golden_tensors())


def test_round_trip_of_every_type(prefix: Path) -> None:
    assert_same(Bundle(prefix), TENSORS)


def test_several_blocks(prefix: Path) -> None:
    entries = list(read_table((prefix.parent / INDEX).read_bytes()))
    table, handles = bytearray(), []
    for start in range(0, len(entries), 3):
        block = entries[start : start + 3]
        handles.append((block[-1][0], append_block(table, block)))
    footer = append_block(table, []) + append_block(table, handles)
    table += footer.ljust(40, b"\0") + (0xDB4775248B80FB57).to_bytes(8, "little")
    (prefix.parent / INDEX).write_bytes(table)
    assert len(handles) > 2
    assert_same(Bundle(prefix), TENSORS)


def test_changing_a_tensor_changes_no_file(prefix: Path) -> None:
    before = (prefix.parent / DATA).read_bytes()
    Bundle(prefix).read("float32").zero_()
    assert (prefix.parent / DATA).read_bytes() == before
    assert torch.equal(Bundle(prefix).read("float32"), TENSORS["float32"])


def change_entries(index: Path, changes: dict[str, bytes], header: bytes) -> None:
    """Write an index again with further fields in some entries. They override earlier fields."""
    entries = dict(read_table(index.read_bytes())) | {b"": header}
    for name, fields in changes.items():
        entries[name.encode()] += fields
    index.unlink()
    write_table(index, entries)


def test_several_shards(prefix: Path) -> None:
    data = (prefix.parent / DATA).read_bytes()
    entry = Bundle(prefix).entries["int32"]
    moved = data[entry.offset : entry.offset + entry.size]
    (prefix.parent / DATA).rename(prefix.parent / "m.data-00000-of-00002")
    (prefix.parent / "m.data-00001-of-00002").write_bytes(b"?" + moved)
    # Shard 1, offset 1: an int32 at this offset is not aligned.
    change_entries(prefix.parent / INDEX, {"int32": b"\x18\x01\x20\x01"}, b"\x08\x02\x1a\x02\x08\x01")
    assert_same(Bundle(prefix), TENSORS)
    (prefix.parent / "m.data-00001-of-00002").unlink()
    with pytest.raises(CheckpointError, match=r"there is no file .*m\.data-00001-of-00002"):
        Bundle(prefix).read("int32")


def test_prefixes_of_a_folder(prefix: Path) -> None:
    write_bundle(prefix.parent / "model.ckpt-7", {"x": torch.ones(1)})
    (prefix.parent / "other.index").touch()
    assert prefixes(prefix.parent) == [prefix, prefix.parent / "model.ckpt-7"]


@pytest.mark.slow
def test_tensorflow_reads_the_files(prefix: Path) -> None:
    tensorflow = pytest.importorskip("tensorflow")
    reader = tensorflow.train.load_checkpoint(str(prefix))
    for name, tensor in TENSORS.items():
        actual = np.asarray(reader.get_tensor(name), dtype=np.float64)
        assert np.array_equal(actual, tensor.double().numpy()), name


# --- damage -------------------------------------------------------------------------------------


def test_every_truncation_is_an_error(prefix: Path) -> None:
    for path in (prefix.parent / INDEX, prefix.parent / DATA):
        content = path.read_bytes()
        for length in range(len(content)):
            path.unlink()
            path.write_bytes(content[:length])
            with pytest.raises(CheckpointError, match=rf"{re.escape(str(path))} is damaged"):
                read_all(prefix)
        path.write_bytes(content)


def test_every_flipped_bit_of_data_is_an_error(prefix: Path) -> None:
    path = prefix.parent / DATA
    content = path.read_bytes()
    for at in range(0, len(content)):
        path.unlink()
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(CheckpointError, match="the checksum of '"):
            read_all(prefix)


def test_files_of_other_kinds(prefix: Path, tmp_path: Path) -> None:
    change_entries(prefix.parent / INDEX, {}, b"\x08\x01\x10\x01")
    with pytest.raises(CheckpointError, match="big-endian"):
        Bundle(prefix)
    with pytest.raises(CheckpointError, match=r"there is no file .*nothing.index"):
        Bundle(tmp_path / "nothing")
    write_table(tmp_path / "x.index", {b"key": b"value"})
    with pytest.raises(CheckpointError, match="has 0 shards"):
        Bundle(tmp_path / "x")
    (tmp_path / "y.index").write_bytes(b"<html>" * 20)
    with pytest.raises(CheckpointError, match="last eight bytes"):
        Bundle(tmp_path / "y")
    with pytest.raises(CheckpointError, match="x is complex64"):
        write_bundle(tmp_path / "z", {"x": torch.zeros(1, dtype=torch.complex64)})


# --- names --------------------------------------------------------------------------------------


def test_every_name_of_the_released_checkpoints_maps(shared: Path) -> None:
    folder = shared / "fixtures" / "released-index"
    for path, older in (
        (folder / "albert_base_zh.model.ckpt-best.index", False),
        (folder / "albert_tiny_zh.albert_model.ckpt.index", True),
    ):
        bundle = Bundle(path.with_suffix(""))
        entries = bundle.entries
        assert len(bundle.shards) == 1
        mapped = {canonical(name): entry for name, entry in entries.items() if why_no_weight(name) is None}
        left_out = {name for name in entries if why_no_weight(name)}
        assert left_out == ({OLDER_FACTOR} if older else {"global_step"})
        for name, entry in mapped.items():
            spec = spec_of(name)
            assert spec is not None, name
            assert spec.is_vector == (len(entry.shape.dim) == 1), name
        # All tensors of a pretraining model, except the mapping that the older layout lacks.
        expected = {row.ours.format(group=0, layer=0) for row in TABLE if row.google}
        expected -= {row.ours for row in TABLE if row.part in ("classifier", "answer span head")}
        if older:
            expected -= {f"encoder.embedding_hidden_mapping_in.{end}" for end in ("weight", "bias")}
        assert {name.removeprefix("albert.") for name in mapped} == expected


def test_names_of_google_and_back() -> None:
    for row in TABLE:
        ours = row.ours.format(group=2, layer=1, exit=0)
        if row.google is None:
            with pytest.raises(CheckpointError, match="The original code has no tensor like"):
                to_google(ours)
            continue
        back = from_google(to_google(ours))
        assert back is not None
        assert back[0].removeprefix("albert.") == ours
        assert back[1] is row


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("module/bert/pooler/dense/kernel", "albert.pooler.weight"),
        ("a/b/embeddings/LayerNorm/beta", "albert.embeddings.LayerNorm.bias"),
        ("encoder/transformer/group_1/inner_group_2/ffn_1/intermediate/output/dense/bias",
         "albert.encoder.albert_layer_groups.1.albert_layers.2.ffn_output.bias"),
        ("cls/seq_relationship/output_weights", "sop_classifier.classifier.weight"),
        ("output_weights", "classifier.weight"),
        ("cls/squad/output_bias", "qa_outputs.bias"),
        ("tf_albert_for_pre_training/albert/encoder/albert_layer_groups_._0/albert_layers_._1/attention/query/kernel:0",
         "albert.encoder.albert_layer_groups.0.albert_layers.1.attention.query.weight"),
        ("tf_albert_model/albert/embeddings/position_embeddings/embeddings:0",
         "albert.embeddings.position_embeddings.weight"),
    ],
)  # fmt: skip
def test_names_of_other_programs(name: str, expected: str) -> None:
    assert canonical(name) == expected
    assert spec_of(name) is not None


@pytest.mark.parametrize(
    "name",
    [
        "global_step",
        "beta1_power",
        "bert/embeddings/word_embeddings/adam_m",
        "bert/embeddings/word_embeddings/adam_v",
        "bert/pooler/dense/kernel/lamb_m",
        "bert/pooler/dense/kernel/Adam_1",
        "bert/pooler/dense/kernel/ExponentialMovingAverage",
    ],
)
def test_names_of_the_training_state(name: str) -> None:
    assert why_no_weight(name)
    assert spec_of(name) is None


@pytest.mark.parametrize(
    "name", ["bert/pooler/dense/kernels", "x/output_weights", "bert/pooler/dense", "pooler/kernel"]
)
def test_foreign_names_are_unknown(name: str) -> None:
    assert spec_of(name) is None
    assert why_no_weight(name) is None
