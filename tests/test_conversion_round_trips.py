"""Tests of conversions that return to the same bytes, to other data types, and of shards."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from conversion_models import WORDS, random_model
from foreign_files import SOURCES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch_files import Bundle

from albertkit.checkpoints import julia, tensorflow
from albertkit.conversion import convert
from albertkit.errors import CheckpointError
from albertkit.heads import HEADS
from albertkit.modeling import auto
from albertkit.modeling.heads import AlbertForPreTraining

CLASSES = [
    auto.model_class(name) for name, head in HEADS.items() if any(spec.google for spec in head.tensors)
]
"""Classes whose tensors have names in the original code."""


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    model_class=st.sampled_from(CLASSES),
    groups=st.integers(1, 3),
    inner=st.integers(1, 2),
    repeats=st.integers(1, 2),
    heads=st.integers(1, 4),
    head_size=st.integers(1, 5),
    embedding_size=st.integers(1, 9),
    labels=st.integers(1, 4),
    seed=st.integers(0, 1000),
)
def test_a_round_trip_through_every_format_keeps_all_bits(
    tmp_path_factory, model_class, groups, inner, repeats, heads, head_size, embedding_size, labels, seed
) -> None:
    folder = tmp_path_factory.mktemp("round")
    model = random_model(
        model_class,
        seed,
        num_hidden_groups=groups,
        num_hidden_layers=groups * repeats,
        inner_group_num=inner,
        num_attention_heads=heads,
        hidden_size=heads * head_size,
        embedding_size=embedding_size,
        num_labels=labels,
    )
    model.save_pretrained(folder / "0")
    ways = [("1", "tf1"), ("2.tfbson", "julia"), ("3", "hf"), ("4.bson", "julia"), ("5", "tf1"), ("6", "hf")]
    source = folder / "0"
    for name, to in ways:
        report = convert(source, folder / name, to=to)
        assert (report.missing, report.unexpected, report.unused) == ([], [], {})
        assert report.architecture == model_class.__name__
        source = folder / name
    assert (folder / "6" / "config.json").read_bytes() == (folder / "0" / "config.json").read_bytes()
    assert (folder / "6" / "model.safetensors").read_bytes() == (
        folder / "0" / "model.safetensors"
    ).read_bytes()
    first, last = (Bundle(folder / name / tensorflow.PREFIX) for name in ("1", "5"))
    assert first.entries == last.entries


@pytest.mark.parametrize(
    "examples", [4, pytest.param(200, marks=pytest.mark.slow)], ids=["quick", "thorough"]
)
@pytest.mark.parametrize("made_by", SOURCES)
def test_every_source_format_is_converted_to_every_target_format(
    tmp_path_factory, made_by: str, examples: int
) -> None:
    """Check that the written files do not depend on the format of the source."""

    @settings(max_examples=examples)
    @given(
        model_class=st.sampled_from(CLASSES),
        groups=st.integers(1, 3),
        inner=st.integers(1, 2),
        heads=st.integers(1, 4),
        head_size=st.integers(1, 5),
        embedding_size=st.integers(1, 9),
        seed=st.integers(0, 1000),
        to=st.sampled_from(["hf", "tf1", "julia"]),
    )
    def round_trip(model_class, groups, inner, heads, head_size, embedding_size, seed, to) -> None:
        folder = tmp_path_factory.mktemp("from")
        model = random_model(
            model_class,
            seed,
            num_hidden_groups=groups,
            num_hidden_layers=groups,
            inner_group_num=inner,
            num_attention_heads=heads,
            hidden_size=heads * head_size,
            embedding_size=embedding_size,
        )
        model.save_pretrained(folder / "model")
        (folder / "source").mkdir()
        source = SOURCES[made_by](folder / "source", model)
        target = folder / ("target.tfbson" if to == "julia" else "target")
        report = convert(source, target, to=to)
        assert (report.missing, report.unexpected, report.unused) == ([], [], {})
        convert(target, folder / "back")
        for file in ("config.json", "model.safetensors"):
            assert (folder / "back" / file).read_bytes() == (folder / "model" / file).read_bytes()

    round_trip()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_other_data_types(tmp_path: Path, dtype: str) -> None:
    random_model(AlbertForPreTraining).save_pretrained(tmp_path / "0")
    convert(tmp_path / "0", tmp_path / "1", dtype=dtype)
    assert {str(tensor.dtype) for tensor in load_file(tmp_path / "1" / "model.safetensors").values()} == {
        f"torch.{dtype}"
    }
    convert(tmp_path / "1", tmp_path / "2", to="tf1", dtype=dtype)
    convert(tmp_path / "2", tmp_path / "3")
    assert (tmp_path / "1" / "model.safetensors").read_bytes() == (
        tmp_path / "3" / "model.safetensors"
    ).read_bytes()
    if dtype == "bfloat16":
        with pytest.raises(CheckpointError, match="not support bfloat16"):
            convert(tmp_path / "1", tmp_path / "4.tfbson")
    else:
        convert(tmp_path / "1", tmp_path / "4.tfbson")
        assert julia.load(tmp_path / "4.tfbson")["weights"][WORDS].dtype == np.float16


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_original_code_gets_float32(tmp_path: Path, dtype: str) -> None:
    random_model(AlbertForPreTraining).save_pretrained(tmp_path / "0")
    convert(tmp_path / "0", tmp_path / "1", dtype=dtype)
    report = convert(tmp_path / "1", tmp_path / "2", to="tf1", verify=True)
    assert report.notes[0].startswith(
        f"the weights were cast from {dtype} to float32, the only type that the"
    )
    entries = Bundle(tmp_path / "2" / tensorflow.PREFIX).entries.values()
    assert {entry.dtype for entry in entries} == {1}  # float32
    assert (report.largest_difference, report.cast_difference) == (0, 0)
    convert(tmp_path / "2", tmp_path / "3", dtype=dtype)
    for file in ("config.json", "model.safetensors"):
        assert (tmp_path / "3" / file).read_bytes() == (tmp_path / "1" / file).read_bytes()
    assert not any("float32" in note for note in convert(tmp_path / "0", tmp_path / "4", to="tf1").notes)


def test_rounding_is_not_a_difference(tmp_path: Path) -> None:
    model = random_model(AlbertForPreTraining)
    with torch.no_grad():
        model.predictions.LayerNorm.weight.mul_(1e3)  # type: ignore[union-attr, operator]
    model.save_pretrained(tmp_path / "0")
    report = convert(tmp_path / "0", tmp_path / "1", dtype="bfloat16", verify=True)
    assert report.largest_difference == 0
    assert report.cast_difference is not None
    assert report.cast_difference > 1
    assert f"the cast to bfloat16 changes outputs by at most {report.cast_difference:.1e}" in str(report)
    assert convert(tmp_path / "1", tmp_path / "2", verify=True).cast_difference is None


def test_weights_beyond_the_range_of_a_data_type_are_an_error(tmp_path: Path) -> None:
    """Check the error: the weights would become infinite, and the outputs NaN."""
    model = random_model(AlbertForPreTraining)
    with torch.no_grad():
        model.sop_classifier.classifier.bias[0] = -1e6
    model.save_pretrained(tmp_path / "0")
    with pytest.raises(CheckpointError, match=r"sop_classifier\.classifier\.bias contains 1e\+06"):
        convert(tmp_path / "0", tmp_path / "1", dtype="float16")
    assert not (tmp_path / "1").exists()
    convert(tmp_path / "0", tmp_path / "2", dtype="bfloat16")
    with pytest.raises(CheckpointError, match=r"contains 9\.994e\+05"):
        convert(tmp_path / "2", tmp_path / "3", dtype="float16")
    with torch.no_grad():
        model.sop_classifier.classifier.bias[0] = torch.finfo(torch.float32).max
    model.save_pretrained(tmp_path / "4")
    with pytest.raises(CheckpointError, match=r"contains 3\.403e\+38.* for bfloat16"):
        convert(tmp_path / "4", tmp_path / "5", dtype="bfloat16")


def test_shards_become_one_file(tmp_path: Path) -> None:
    model = random_model(AlbertForPreTraining)
    state = {name: tensor for name, tensor in model.state_dict().items() if "decoder" not in name}
    names = list(state)
    model.config.save_pretrained(tmp_path / "in")
    shards = {f"pytorch_model-0000{number + 1}-of-00002.bin": names[number::2] for number in range(2)}
    for file, part in shards.items():
        torch.save({name: state[name] for name in part}, tmp_path / "in" / file)
    index = {"weight_map": {name: file for file, part in shards.items() for name in part}}
    (tmp_path / "in" / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    report = convert(tmp_path / "in", tmp_path / "out", verify=True)
    assert report.largest_difference == 0
    assert {Path(path).name for path in report.checksums} >= {*shards, "pytorch_model.bin.index.json"}
