"""Model folders: read, written, damaged and foreign, fitted to a model by name, shared with transformers."""

import json
import os
import pickle
import random
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch_files import match, read_folder, write_folder

import albertkit
from albertkit import heads
from albertkit.checkpoints.folder import locate
from albertkit.checkpoints.names import TABLE, TIED, canonical, in_model, spec_of
from albertkit.checkpoints.report import LoadReport
from albertkit.errors import CheckpointError, ModelNotFoundError
from albertkit.files import atomic_path

Tensors = dict[str, torch.Tensor]

EMBEDDINGS = "albert.embeddings.word_embeddings.weight"
DECODER = "predictions.decoder.weight"

TINY = {
    "vocab_size": 40,
    "embedding_size": 8,
    "hidden_size": 12,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "num_hidden_layers": 4,
    "num_hidden_groups": 2,
    "inner_group_num": 2,
    "max_position_embeddings": 16,
}

THEIRS = {name: head for name, head in heads.HEADS.items() if hasattr(transformers, name)}
HEADS: list[type] = [getattr(transformers, name) for name in THEIRS]
SEVERAL_LABELS = [getattr(transformers, name) for name, head in THEIRS.items() if not head.has_choices]
"""Without multiple choice: its classifier has one output by nature, and never the shape of another."""


def reference(head: type = transformers.AlbertForPreTraining, seed: int = 0) -> transformers.PreTrainedModel:
    """A tiny random model of transformers, with biases and norms that are not all alike."""
    torch.manual_seed(seed)
    model = head(transformers.AlbertConfig.from_dict(TINY)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    return model


def shapes(model: torch.nn.Module) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in model.state_dict().items()}


def assert_same(found: Tensors, expected: Tensors) -> None:
    assert set(found) == set(expected)
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype, name
        assert torch.equal(found[name], tensor), name


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def tensors() -> Tensors:
    generator = torch.Generator().manual_seed(0)
    return {
        "a.weight": torch.randn(5, 3, generator=generator),
        "a.bias": torch.randn(5, generator=generator),
        "half": torch.randn(4, generator=generator).half(),
        "brain": torch.randn(4, generator=generator).bfloat16(),
        "count": torch.tensor(7),
        "nothing": torch.empty(0, 3),
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a config and no weights."""
    (tmp_path / "config.json").write_text('{"model_type": "albert"}')
    return tmp_path


# --- atomic files -------------------------------------------------------------------------------


def test_atomic_path_replaces_the_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "file.bin"
    target.write_text("old")
    with atomic_path(target) as new:
        new.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert names_in(tmp_path) == ["file.bin"]


def test_atomic_path_keeps_the_old_file_on_an_error(tmp_path: Path) -> None:
    target = tmp_path / "file.bin"
    target.write_text("old")

    def fail() -> None:
        with atomic_path(target) as new:
            new.write_text("ne")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert target.read_text() == "old"
    assert names_in(tmp_path) == ["file.bin"]


def test_atomic_path_of_two_files_renames_neither_before_both_are_complete(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    with atomic_path(first) as new_first, atomic_path(second) as new_second:
        new_first.write_text("1")
        new_second.write_text("2")
        assert not first.exists()
        assert not second.exists()
    assert (first.read_text(), second.read_text()) == ("1", "2")


@pytest.mark.skipif(os.name != "posix", reason="permissions of this kind are POSIX's")
def test_permissions_are_those_of_any_new_file(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    write_folder(tmp_path, {}, {"x": torch.zeros(2)})
    for name in ("config.json", "model.safetensors"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_atomic_path_replaces_a_link_not_what_it_points_to(tmp_path: Path) -> None:
    """The hub's cache links snapshots to shared blobs: saving over a snapshot must not change the blob."""
    blob = tmp_path / "blob"
    blob.write_text("shared")
    link = tmp_path / "link"
    link.symlink_to(blob)
    with atomic_path(link) as new:
        new.write_text("mine")
    assert (blob.read_text(), link.read_text(), link.is_symlink()) == ("shared", "mine", False)


# --- writing and reading back -------------------------------------------------------------------


def test_round_trip_is_bitwise(tmp_path: Path, tensors: Tensors) -> None:
    config = {"hidden_size": 12, "id2label": {"0": "né", "1": "b"}, "unknown key": [1, None, 2.5]}
    write_folder(tmp_path / "deep" / "model", config, tensors)
    found_config, found = read_folder(tmp_path / "deep" / "model")
    assert found_config == config
    assert_same(found, tensors)
    assert names_in(tmp_path / "deep" / "model") == ["config.json", "model.safetensors"]


def test_same_tensors_give_the_same_bytes(tmp_path: Path, tensors: Tensors) -> None:
    write_folder(tmp_path / "a", {"x": 1, "y": 2}, tensors)
    write_folder(tmp_path / "b", {"y": 2, "x": 1}, dict(reversed(tensors.items())))
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_tied_tensors_are_stored_once_and_only_when_tied(tmp_path: Path) -> None:
    words, bias = torch.randn(6, 4), torch.randn(6)
    shared = {EMBEDDINGS: words, DECODER: words, "predictions.bias": bias, "predictions.decoder.bias": bias}
    write_folder(tmp_path / "tied", {}, shared)
    assert_same(read_folder(tmp_path / "tied")[1], {EMBEDDINGS: words, "predictions.bias": bias})

    untied = shared | {DECODER: words.clone(), "predictions.decoder.bias": bias.clone()}
    write_folder(tmp_path / "untied", {}, untied)
    assert_same(read_folder(tmp_path / "untied")[1], untied)

    # A model that does not tie has one bias all the same, and `transformers` wants it under both names.
    one_bias = untied | {"predictions.decoder.bias": bias}
    write_folder(tmp_path / "one bias", {"tie_word_embeddings": False}, one_bias)
    assert_same(read_folder(tmp_path / "one bias")[1], one_bias)


def test_views_and_other_shared_tensors_keep_their_values(tmp_path: Path) -> None:
    base = torch.randn(6, 4)
    views = {"all": base, "again": base, "turned": base.T, "part": base[1:3], "column": base[:, 1]}
    write_folder(tmp_path, {}, views)
    assert_same(read_folder(tmp_path)[1], views)


def test_changing_a_loaded_tensor_changes_no_file_and_saving_changes_no_loaded_tensor(tmp_path: Path) -> None:
    """Weights are mapped into memory: training in place and saving over the source must both be safe."""
    original = torch.randn(1_000)
    write_folder(tmp_path, {}, {"x": original})
    mapped, kept = read_folder(tmp_path)[1]["x"], read_folder(tmp_path)[1]["x"]
    mapped.zero_()
    assert torch.equal(read_folder(tmp_path)[1]["x"], original)
    write_folder(tmp_path, {}, {"x": mapped})
    assert torch.equal(kept, original)
    assert torch.equal(read_folder(tmp_path)[1]["x"], torch.zeros(1_000))


def test_a_write_that_fails_leaves_the_old_model(tmp_path: Path, tensors: Tensors) -> None:
    write_folder(tmp_path, {"version": 1}, tensors)
    # A limit on the size of files is the disk that fills up in the middle of the weights.
    code = f"""
import resource, numpy
from albertkit.checkpoints.folder import write_folder
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
write_folder({str(tmp_path)!r}, {{"version": 2}}, {{"x": numpy.zeros(100_000)}})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "DiskFullError: " in done.stderr
    config, found = read_folder(tmp_path)
    assert config == {"version": 1}
    assert_same(found, tensors)
    assert names_in(tmp_path) == ["config.json", "model.safetensors"]


def test_a_process_killed_while_writing_leaves_the_old_model(tmp_path: Path, tensors: Tensors) -> None:
    write_folder(tmp_path, {"version": 1}, tensors)
    code = f"""
import os
import albertkit.checkpoints.folder as folder, numpy
def killed(tensors, path, metadata):
    path.write_bytes(b"half of the weights")
    os._exit(9)
folder.save_file = killed
folder.write_folder({str(tmp_path)!r}, {{"version": 2}}, {{"x": numpy.zeros(10)}})
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    config, found = read_folder(tmp_path)
    assert config == {"version": 1}
    assert_same(found, tensors)
    write_folder(tmp_path, {"version": 3}, tensors)
    assert read_folder(tmp_path)[0] == {"version": 3}


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="Could not save the model in"):
        write_folder(tmp_path / "file" / "model", {}, {})


# --- the formats of weights ---------------------------------------------------------------------


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "before torch 1.6"])
def test_pytorch_bin(folder: Path, tensors: Tensors, zipped: bool) -> None:
    parameters = tensors | {"a.weight": torch.nn.Parameter(tensors["a.weight"])}
    torch.save(parameters, folder / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    config, found = read_folder(folder)
    assert config == {"model_type": "albert"}
    assert_same(found, tensors)
    assert not any(tensor.requires_grad for tensor in found.values())


@pytest.mark.parametrize("kind", ["safetensors", "bin"])
def test_shards(folder: Path, tensors: Tensors, kind: str) -> None:
    write_shards(folder, tensors, kind)
    assert_same(read_folder(folder)[1], tensors)


def write_shards(folder: Path, tensors: Tensors, kind: str = "safetensors") -> dict[str, str]:
    stem, save = ("model", save_file) if kind == "safetensors" else ("pytorch_model", torch.save)
    names = list(tensors)
    parts = {f"{stem}-1-of-2.{kind}": names[:2], f"{stem}-2-of-2.{kind}": names[2:]}
    for file, part in parts.items():
        save({name: tensors[name] for name in part}, folder / file)
    weight_map = {name: file for file, part in parts.items() for name in part}
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / f"{stem}.{kind}.index.json").write_text(json.dumps(index))
    return weight_map


def test_of_several_formats_safetensors_wins(folder: Path) -> None:
    torch.save({"x": torch.tensor([3.0])}, folder / "pytorch_model.bin")
    assert read_folder(folder)[1]["x"] == 3
    write_shards(folder, {"x": torch.tensor([2.0]), "y": torch.zeros(1), "z": torch.zeros(1)})
    assert read_folder(folder)[1]["x"] == 2
    save_file({"x": torch.tensor([1.0])}, folder / "model.safetensors")
    assert read_folder(folder)[1]["x"] == 1


def test_locate_prefers_safetensors_and_takes_bin(folder: Path) -> None:
    assert locate(folder) == folder
    (folder / "config.json").unlink()
    with pytest.raises(ModelNotFoundError, match=r"config.json or model\*.safetensors"):
        locate(folder)


# --- damaged and foreign ------------------------------------------------------------------------


def test_missing_pieces_are_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="There is no folder"):
        read_folder(tmp_path / "none")
    with pytest.raises(CheckpointError, match=r"no config.json: it is empty"):
        read_folder(tmp_path)
    for name in ("small", "large"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"models in sub-folders. Pass one of them: large, small"):
        read_folder(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(
        CheckpointError, match=r"no weights. Expected model.safetensors or .* holds config.json, large/"
    ):
        read_folder(tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b"null", b'"text"', b"\xff\xfe", b"[" * 100_000, b'{"a": ' * 100_000]
)
def test_damaged_config(tmp_path: Path, content: bytes) -> None:
    write_folder(tmp_path, {}, {"x": torch.zeros(1)})
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"config.json.*[Ee]xpected a JSON object"):
        read_folder(tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"short", b"\xff" * 8, b"\xff" * 100, b"<html>not found</html>", bytes(100)]
)
@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_damaged_weights(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"{name} \({len(content)} bytes\) is damaged.* Expected"):
        read_folder(folder)


def test_every_truncation_of_safetensors_is_an_error(tmp_path: Path, tensors: Tensors) -> None:
    write_folder(tmp_path, {}, tensors)
    path = tmp_path / "model.safetensors"
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(CheckpointError, match=rf"model.safetensors \({length:,} bytes\)"):
            read_folder(tmp_path)


def test_flipped_bits_never_escape_our_errors(tmp_path: Path, tensors: Tensors) -> None:
    """A flip can go unnoticed (in a value, in a name); what is noticed is a CheckpointError."""
    write_folder(tmp_path, {"sizes": [1, 2, 3], "name": "x"}, tensors)
    rng = random.Random(0)
    raised = 0
    for name, share in (("model.safetensors", 600), ("config.json", 300)):
        path = tmp_path / name
        content = path.read_bytes()
        header = 8 + int.from_bytes(content[:8], "little") if name == "model.safetensors" else len(content)
        for _ in range(share):
            damaged = bytearray(content)
            for _ in range(rng.randint(1, 3)):
                damaged[rng.randrange(header)] ^= 1 << rng.randrange(8)
            path.write_bytes(damaged)
            try:
                read_folder(tmp_path)
            except CheckpointError:
                raised += 1
        path.write_bytes(content)
    assert raised > 500


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "before torch 1.6"])
def test_damaged_bin_never_escapes_our_errors(folder: Path, zipped: bool) -> None:
    path = folder / "pytorch_model.bin"
    torch.save({"x": torch.arange(6.0), "y": torch.ones(2, 2)}, path, _use_new_zipfile_serialization=zipped)
    content = path.read_bytes()
    rng = random.Random(0)
    raised = 0
    for case in range(300):
        damaged = bytearray(content[: rng.randrange(len(content))] if case % 2 else content)
        for _ in range(rng.randint(1, 3)):
            if damaged:
                damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            read_folder(folder)
        except CheckpointError:
            raised += 1
    assert raised > 150


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
def test_no_code_in_a_file_is_run(folder: Path, tmp_path: Path) -> None:
    mark = tmp_path / "code was run"

    class Attack:
        def __reduce__(self) -> tuple:
            return (os.mkdir, (str(mark),))

    for write in (torch.save, lambda value, path: path.write_bytes(pickle.dumps(value))):
        write({"x": Attack()}, folder / "pytorch_model.bin")
        with pytest.raises(CheckpointError, match="contains other objects than tensors"):
            read_folder(folder)
    assert not mark.exists()


@pytest.mark.parametrize("value", [[torch.zeros(1)], {"model": {"x": torch.zeros(1)}}, {1: torch.zeros(1)}])
def test_bin_that_is_no_state_dict(folder: Path, value: object) -> None:
    torch.save(value, folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"not a state dict. Expected a dictionary of tensors by name"):
        read_folder(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.bool, torch.float8_e4m3fn, torch.complex64])
def test_weights_that_are_no_floats(tmp_path: Path, name: str, dtype: torch.dtype) -> None:
    """Without their scales, which other programs store beside them, whole numbers are no weights."""
    model = albertkit.AlbertModel(albertkit.AlbertConfig(**TINY))
    model.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    lost = "encoder.embedding_hidden_mapping_in.weight"
    tensors[lost] = tensors[lost].to(dtype)
    (tmp_path / "model.safetensors").unlink()
    (save_file if name.endswith("safetensors") else torch.save)(tensors, tmp_path / name)
    with pytest.raises(CheckpointError, match=f"{lost}.*Expected one of float32"):
        albertkit.AlbertModel.from_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=f"{lost}.*Expected one of float32"):
        albertkit.AlbertModel.from_pretrained(None, config=model.config, state_dict=tensors)


@pytest.mark.parametrize("make", [torch.Tensor.to_sparse, lambda tensor: tensor.to("meta")])
def test_bin_of_tensors_that_are_no_plain_numbers(
    folder: Path, make: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    torch.save({"x": make(torch.eye(2))}, folder / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin: x .*Expected"):
        read_folder(folder)


def test_index_that_lies(folder: Path, tensors: Tensors) -> None:
    weight_map = write_shards(folder, tensors)
    index = folder / "model.safetensors.index.json"

    def told(changed: object) -> str:
        index.write_text(json.dumps({"weight_map": changed}))
        with pytest.raises(CheckpointError) as error:
            read_folder(folder)
        return str(error.value)

    assert "names the shard 'model-9.safetensors', which is not in" in told({"x": "model-9.safetensors"})
    assert "names the shard '../config.json'" in told({"x": "../config.json"})
    assert "names the shard '/etc/passwd'" in told({"x": "/etc/passwd"})
    assert "lists absent in the shard model-1-of-2" in told(
        weight_map | {"absent": "model-1-of-2.safetensors"}
    )
    assert "Expected a 'weight_map'" in told(None)
    assert "Expected a 'weight_map'" in told({"x": 1})


# --- the table of names -------------------------------------------------------------------------


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.__name__)
def test_table_covers_every_tensor_of_transformers(head: type) -> None:
    assert {name for name in shapes(reference(head)) if spec_of(name) is None} == set()


def test_table_has_no_row_that_no_model_uses() -> None:
    used = {spec_of(name) for head in HEADS for name in shapes(reference(head))}
    # Early exit is albertkit's own, and so may be whole heads.
    own = {row for name, head in heads.HEADS.items() if name not in THEIRS for row in head.tensors}
    assert used == {row for row in TABLE if row.part != "exit classifiers" and row not in own - used}


@pytest.mark.parametrize(
    ("found", "ours"),
    [
        ("albert.embeddings.LayerNorm.gamma", "albert.embeddings.LayerNorm.weight"),
        ("predictions.LayerNorm.beta", "predictions.LayerNorm.bias"),
        ("module.classifier.weight", "classifier.weight"),
        ("_orig_mod.module.albert.pooler.bias", "albert.pooler.bias"),
        ("predictions.bias", "predictions.bias"),
        ("gamma", "gamma"),
    ],
)
def test_canonical(found: str, ours: str) -> None:
    assert canonical(found) == ours


def test_in_model_adds_and_removes_the_prefix() -> None:
    assert in_model("pooler.weight", {"albert.pooler.weight"}) == "albert.pooler.weight"
    assert in_model("albert.pooler.weight", {"pooler.weight"}) == "pooler.weight"
    assert in_model("albert.pooler.weight", {"albert.pooler.weight"}) == "albert.pooler.weight"
    assert in_model("bert.pooler.weight", {"albert.pooler.weight"}) is None
    assert spec_of("bert.embeddings.word_embeddings.weight") is None
    assert spec_of("encoder.albert_layer_groups.0.albert_layers.x.ffn.weight") is None


# --- fitting a file to a model ------------------------------------------------------------------


@pytest.mark.parametrize("of_model", SEVERAL_LABELS, ids=lambda head: head.__name__)
@pytest.mark.parametrize("of_file", SEVERAL_LABELS, ids=lambda head: head.__name__)
def test_any_head_loads_from_any_head(of_file: type, of_model: type, tmp_path: Path) -> None:
    """What both have is equal afterwards, what only the model has is missing, the rest is explained."""
    source, target = reference(of_file, seed=1), reference(of_model, seed=2)
    write_folder(tmp_path, {}, source.state_dict())
    matched, report = match(read_folder(tmp_path)[1], shapes(target))

    ours, theirs = target.state_dict(), source.state_dict()
    bare = {name.removeprefix("albert."): tensor for name, tensor in theirs.items()}
    common = {name for name in ours if name.removeprefix("albert.") in bare}
    common |= {DECODER} & set(ours)  # shared with the embeddings, which every file has
    assert set(matched) == set(report.loaded) == common
    assert set(report.missing) == set(ours) - common
    assert report.unexpected == []
    target.load_state_dict(matched, strict=False)
    for name, tensor in target.state_dict().items():
        if name in common:
            expected = bare.get(name.removeprefix("albert."), bare["embeddings.word_embeddings.weight"])
            assert torch.equal(tensor, expected), name
        else:
            assert torch.equal(tensor, ours[name]), name
    assert report.ok == (common == set(ours))


def test_old_names_load_and_constants_are_left_out() -> None:
    model = reference(transformers.AlbertForMaskedLM)
    expected = model.state_dict()
    old = {
        "module."
        + name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): t
        for name, t in expected.items()
    }
    old["module.albert.embeddings.position_ids"] = torch.arange(16)[None]
    matched, report = match(old, shapes(model))
    assert_same(matched, dict(expected))
    assert report.ok
    assert report.loaded["albert.embeddings.LayerNorm.weight"] == "module.albert.embeddings.LayerNorm.gamma"
    assert "a constant that older versions stored" in report.ignored["module.albert.embeddings.position_ids"]


@pytest.mark.parametrize(("second", "first"), TIED.items())
def test_either_name_of_a_shared_tensor_is_enough(second: str, first: str) -> None:
    model = reference()
    tensors = dict(model.state_dict())
    for absent in (second, first):
        matched, report = match({k: v for k, v in tensors.items() if k != absent}, shapes(model))
        assert_same(matched, tensors)
        assert report.ok
        assert matched[first] is matched[second]


def test_a_file_that_does_not_share_what_the_model_shares_is_reported() -> None:
    model = reference()
    tensors = dict(model.state_dict())
    tensors[DECODER] = tensors[DECODER] + 1
    matched, report = match(tensors, shapes(model))
    assert torch.equal(matched[DECODER], tensors[EMBEDDINGS])
    assert report.conflicting == {DECODER: EMBEDDINGS}
    assert not report.ok
    assert f"not used: {DECODER} differs from {EMBEDDINGS}" in str(report)

    matched, report = match(tensors, shapes(model), tied={})
    assert torch.equal(matched[DECODER], tensors[DECODER])
    assert report.ok


def test_a_lost_tensor_of_the_encoder_is_an_error_and_a_lost_pooler_is_not() -> None:
    model = reference()
    tensors = dict(model.state_dict())
    for name in tensors:
        rest = {key: value for key, value in tensors.items() if key != name}
        if name.startswith(("albert.embeddings.LayerNorm", "albert.embeddings.pos", "albert.encoder")):
            with pytest.raises(CheckpointError, match=f"lacks {name}, which every model needs"):
                match(rest, shapes(model))
        elif name.startswith("albert.pooler"):
            assert match(rest, shapes(model))[1].missing == [name]


def test_a_foreign_file_is_an_error_that_shows_what_it_holds() -> None:
    foreign = {"bert.encoder.layer.0.output.dense.weight": torch.zeros(2, 2)}
    with pytest.raises(
        CheckpointError, match=r"lacks embeddings.word_embeddings.weight, .* and \d+ more, .* bert.enc"
    ):
        match(foreign, shapes(reference(transformers.AlbertModel)))
    with pytest.raises(CheckpointError, match="It has no tensors"):
        match({}, shapes(reference()))


def test_a_surplus_layer_is_unexpected() -> None:
    model = reference()
    surplus = "albert.encoder.albert_layer_groups.7.albert_layers.0.ffn.bias"
    report = match(dict(model.state_dict()) | {surplus: torch.zeros(20)}, shapes(model))[1]
    assert report.unexpected == [surplus]
    assert not report.ok


def test_two_tensors_for_one_name() -> None:
    tensors = dict(reference().state_dict())
    tensors["embeddings.LayerNorm.gamma"] = tensors["albert.embeddings.LayerNorm.weight"]
    with pytest.raises(
        CheckpointError, match=r"twice, as 'albert.embeddings.LayerNorm.weight' and as 'embeddings"
    ):
        match(tensors, shapes(reference()))


def test_another_shape_is_an_error_unless_asked_for() -> None:
    model = reference(transformers.AlbertForSequenceClassification)
    tensors = dict(model.state_dict()) | {
        "classifier.weight": torch.zeros(5, 12),
        "classifier.bias": torch.zeros(5),
    }
    with pytest.raises(CheckpointError, match=r"classifier.weight is 5x12 in the file and 2x12 in the model"):
        match(tensors, shapes(model))
    matched, report = match(tensors, shapes(model), ignore_mismatched_sizes=True)
    assert report.reshaped == {"classifier.weight": ((5, 12), (2, 12)), "classifier.bias": ((5,), (2,))}
    assert set(matched) == set(tensors) - set(report.reshaped)
    assert report.missing == []
    assert not report.ok


def test_report_in_words_and_as_json() -> None:
    assert LoadReport().ok
    report = match(
        dict(reference(transformers.AlbertForMaskedLM).state_dict()) | {"stray": torch.zeros(1)},
        shapes(reference(transformers.AlbertForQuestionAnswering)),
    )[1]
    assert str(report).splitlines() == [
        f"{len(report.loaded)} tensors loaded",
        "  newly initialized, not in the file: qa_outputs.weight, qa_outputs.bias (train before use)",
        "  in the file, but not in this model: stray",
        "  left out (the masked-word head, which this model does not have): predictions.bias, "
        "predictions.LayerNorm.weight, predictions.LayerNorm.bias, predictions.dense.weight, "
        "predictions.dense.bias, predictions.decoder.weight, predictions.decoder.bias",
    ]
    plain = json.loads(json.dumps(report.to_json()))
    assert plain["ok"] is False
    assert plain["missing"] == ["qa_outputs.weight", "qa_outputs.bias"]
    assert plain["loaded"]["albert.encoder.embedding_hidden_mapping_in.bias"] == (
        "albert.encoder.embedding_hidden_mapping_in.bias"
    )


# --- transformers, both directions --------------------------------------------------------------


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.__name__)
@pytest.mark.parametrize("shard_size", ["5GB", "4KB"], ids=["whole", "shards"])
def test_their_folder_is_read(head: type, shard_size: str, tmp_path: Path) -> None:
    theirs = reference(head)
    theirs.save_pretrained(tmp_path, max_shard_size=shard_size)
    assert (tmp_path / "model.safetensors.index.json").exists() == (shard_size == "4KB")
    config, tensors = read_folder(tmp_path)
    assert {key: config[key] for key in TINY} == TINY
    matched, report = match(tensors, shapes(theirs))
    assert_same(matched, dict(theirs.state_dict()))
    assert report.ok


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.__name__)
def test_our_folder_is_read_by_them(head: type, tmp_path: Path) -> None:
    theirs = reference(head)
    write_folder(tmp_path, theirs.config.to_dict(), theirs.state_dict())
    again, info = head.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    assert_same(dict(again.state_dict()), dict(theirs.state_dict()))
    if hasattr(again, "predictions"):
        assert again.predictions.decoder.weight is again.albert.embeddings.word_embeddings.weight
    ids = (
        torch.tensor([[2, 9, 8, 3]])
        if not heads.HEADS[head.__name__].has_choices
        else torch.ones(1, 2, 4).long()
    )
    with torch.no_grad():
        assert torch.equal(again.eval()(input_ids=ids)[0], theirs(input_ids=ids)[0])


def test_our_file_is_named_and_stored_as_theirs(tmp_path: Path) -> None:
    theirs = reference()
    theirs.save_pretrained(tmp_path / "theirs")
    write_folder(tmp_path / "ours", theirs.config.to_dict(), theirs.state_dict())
    assert_same(read_folder(tmp_path / "ours")[1], read_folder(tmp_path / "theirs")[1])
    sizes = [(tmp_path / who / "model.safetensors").stat().st_size for who in ("ours", "theirs")]
    assert sizes[0] <= sizes[1] + 64
