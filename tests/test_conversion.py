"""Checkpoints of every format: what the original computed, each to each and back, the report, the verb."""

import json
import runpy
import shutil
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
import transformers
from foreign_files import SOURCES, write_h5
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from modeling_twins import largest_difference
from places import ROOT
from safetensors.torch import load_file
from torch_files import Bundle, read_folder, write_bundle
from torchless import run_without_torch
from typer.testing import CliRunner

from albertkit.checkpoints import folder as folder_file
from albertkit.checkpoints import formats, google, julia
from albertkit.checkpoints.arrays import to_arrays, to_tensors
from albertkit.checkpoints.names import OLDER_FACTOR
from albertkit.cli.main import make_app
from albertkit.config import AlbertConfig
from albertkit.conversion import convert
from albertkit.errors import (
    AlbertKitError,
    CheckpointError,
    ConfigError,
    DataError,
    MissingExtraError,
    ModelNotFoundError,
    TokenizerError,
)
from albertkit.heads import HEADS
from albertkit.modeling import auto
from albertkit.modeling.model import AlbertModel
from albertkit.modeling.pretraining_heads import AlbertForPreTraining
from albertkit.modeling.task_heads import AlbertForSequenceClassification
from albertkit.tokenization.auto import AutoTokenizer
from albertkit.tokenization.model_file import model_from_lines, vocab_lines

GOLDEN = ROOT / "tests" / "golden" / "google_tf1_small"
TOLERANCE = 1e-5
WORDS = "bert/embeddings/word_embeddings"
CLASSES = [
    auto.model_class(name) for name, head in HEADS.items() if any(spec.google for spec in head.tensors)
]
"""Classes that the original code has too."""

Tensors = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def arrays() -> Tensors:
    with np.load(GOLDEN / "arrays.npz") as file:
        return {key: torch.from_numpy(file[key]) for key in file}


@pytest.fixture(scope="module")
def original(arrays: Tensors) -> Tensors:
    """The tensors of a checkpoint that the original code wrote, and some state of its optimizer."""
    tensors = {
        key.removeprefix("weight:"): value for key, value in arrays.items() if key.startswith("weight:")
    }
    state = {f"{WORDS}/{slot}": torch.zeros(512, 16) for slot in ("adam_m", "adam_v")}
    return tensors | state | {"global_step": torch.tensor(125_000)}


@pytest.fixture
def tf1(tmp_path: Path, original: Tensors) -> Path:
    folder = tmp_path / "tf1"
    folder.mkdir()
    write_bundle(folder / "model.ckpt-best", original)
    shutil.copy(GOLDEN / "albert_config.json", folder)
    return folder


def assert_original(model: AlbertForPreTraining, arrays: Tensors) -> None:
    """The model computes what the original code did."""
    golden = {
        key.removeprefix("golden:"): value for key, value in arrays.items() if key.startswith("golden:")
    }
    inputs = (golden["input_ids"], golden["attention_mask"], golden["token_type_ids"])
    with torch.no_grad():
        output = model(*inputs)
        encoded = model.albert(*inputs)
    real = golden["attention_mask"].bool()
    masked = output.prediction_logits.gather(
        1, golden["masked_lm_positions"].long()[..., None].expand(-1, -1, output.prediction_logits.shape[-1])
    )
    assert largest_difference(encoded.last_hidden_state[real], golden["sequence_output"][real]) <= TOLERANCE
    assert largest_difference(encoded.pooler_output, golden["pooled_output"]) <= TOLERANCE
    assert largest_difference(masked, golden["mlm_logits"]) <= TOLERANCE
    assert largest_difference(output.sop_logits, golden["sop_logits"]) <= TOLERANCE


def random_model(model_class: type, seed: int = 0, **changes: object) -> torch.nn.Module:
    sizes = {
        "vocab_size": 40,
        "embedding_size": 8,
        "hidden_size": 12,
        "num_attention_heads": 3,
        "intermediate_size": 20,
        "num_hidden_layers": 2,
        "max_position_embeddings": 16,
    }
    torch.manual_seed(seed)
    model = model_class(AlbertConfig(**{**sizes, **changes})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    return model


# --- what the original computed -----------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["", "model.ckpt-best", "model.ckpt-best.index", "model.ckpt-best.data-00000-of-00001"]
)
def test_a_tensorflow_checkpoint_loads(tf1: Path, arrays: Tensors, path: str) -> None:
    model, info = AlbertForPreTraining.from_pretrained(tf1 / path, output_loading_info=True)
    assert_original(model, arrays)
    report = info["report"]
    assert report.ok
    assert report.loaded["albert.pooler.weight"] == "bert/pooler/dense/kernel"
    assert set(report.ignored) == {"global_step", f"{WORDS}/adam_m", f"{WORDS}/adam_v"}


def test_the_documented_way_to_load_one(tf1: Path, arrays: Tensors) -> None:
    config = AlbertConfig.from_json_file(tf1 / "albert_config.json")
    model = AlbertForPreTraining.load_tf_weights(config, tf1 / "model.ckpt-best")
    assert model.config.hidden_size == 48
    assert_original(model, arrays)


@pytest.mark.parametrize("ending", [".tar.gz", ".tgz", ".tar"])
def test_an_archive_loads(tf1: Path, arrays: Tensors, ending: str) -> None:
    archive = tf1.parent / f"albert_small{ending}"
    (tf1 / "events.out").write_text("not unpacked")
    with tarfile.open(archive, "w" if ending == ".tar" else "w:gz") as tar:
        tar.add(tf1, "albert_small")
    shutil.rmtree(tf1)
    assert_original(AlbertForPreTraining.from_pretrained(archive), arrays)


def test_an_archive_loads_where_extract_has_no_filter(
    tf1: Path, arrays: Tensors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Python 3.11.0 to 3.11.3."""
    with tarfile.open(tf1.parent / "small.tar", "w") as tar:
        tar.add(tf1, "albert_small")
    monkeypatch.delattr(tarfile.TarFile, "extract")
    assert_original(AlbertForPreTraining.from_pretrained(tf1.parent / "small.tar"), arrays)


@pytest.mark.parametrize("name", ["../out.index", "a/../../out.index", "/tmp/albertkit-test/out.index"])
def test_an_archive_writes_nothing_outside(tmp_path: Path, name: str) -> None:
    with tarfile.open(tmp_path / "small.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo(name))
    with pytest.raises(CheckpointError, match="leads out of the archive"):
        formats.read(tmp_path / "small.tar")


def test_a_hub_module_loads(tmp_path: Path, original: Tensors, arrays: Tensors) -> None:
    for folder in ("variables", "assets"):
        (tmp_path / folder).mkdir()
    write_bundle(
        tmp_path / "variables" / "variables", {f"module/{name}": one for name, one in original.items()}
    )
    shutil.copy(GOLDEN / "albert_config.json", tmp_path / "assets")
    (tmp_path / "assets" / "30k-clean.model").write_bytes(b"vocabulary")
    (tmp_path / "saved_model.pb").touch()
    assert_original(AlbertForPreTraining.from_pretrained(tmp_path), arrays)
    assert formats.read(tmp_path).vocabulary == {"spiece.model": b"vocabulary"}


def test_names_without_their_first_part_load(tmp_path: Path, original: Tensors, arrays: Tensors) -> None:
    write_bundle(tmp_path / "m", {name.removeprefix("bert/"): tensor for name, tensor in original.items()})
    shutil.copy(GOLDEN / "albert_config.json", tmp_path)
    assert_original(AlbertForPreTraining.from_pretrained(tmp_path), arrays)


def test_a_julia_file_loads(tf1: Path, arrays: Tensors) -> None:
    convert(tf1, tf1.parent / "model.tfbson")
    assert_original(AlbertForPreTraining.from_pretrained(tf1.parent / "model.tfbson"), arrays)


@pytest.mark.parametrize("path", ["", "model.ckpt-best", "albert_small.tfbson"])
def test_fixtures(shared: Path, arrays: Tensors, path: str) -> None:
    model = AlbertForPreTraining.from_pretrained(shared / "fixtures" / "google-tf1-small" / path)
    assert_original(model, arrays)


def test_a_head_of_fine_tuning_loads_with_its_labels(tf1: Path, original: Tensors) -> None:
    head = {"output_weights": torch.randn(3, 48), "output_bias": torch.randn(3)}
    write_bundle(tf1 / "model.ckpt-best", original | head)
    model, info = AlbertForSequenceClassification.from_pretrained(tf1, output_loading_info=True)
    assert info["missing_keys"] == set()
    assert model.config.num_labels == 3
    assert torch.equal(model.classifier.weight, head["output_weights"])


def test_of_several_checkpoints_one_must_be_meant(tf1: Path, original: Tensors) -> None:
    (tf1 / "model.ckpt-best.index").rename(tf1 / "model.ckpt-9.index")
    (tf1 / "model.ckpt-best.data-00000-of-00001").rename(tf1 / "model.ckpt-9.data-00000-of-00001")
    other = {**original, WORDS: torch.ones(512, 16)}
    write_bundle(tf1 / "model.ckpt-5", other)
    with pytest.raises(CheckpointError, match=r"has 2 checkpoints. Pass the path of one: .*ckpt-5, .*ckpt-9"):
        AlbertModel.from_pretrained(tf1)
    (tf1 / "checkpoint").write_text('model_checkpoint_path: "/elsewhere/model.ckpt-5"\n')
    assert AlbertModel.from_pretrained(tf1).embeddings.word_embeddings.weight.eq(1).all()
    assert not AlbertModel.from_pretrained(tf1 / "model.ckpt-9").embeddings.word_embeddings.weight.eq(1).all()


def test_a_missing_tensor_of_the_encoder_is_an_error(tf1: Path, original: Tensors) -> None:
    name = "bert/encoder/transformer/group_0/inner_group_0/attention_1/self/key/kernel"
    write_bundle(tf1 / "model.ckpt-best", {key: one for key, one in original.items() if key != name})
    for call in (AlbertModel.from_pretrained, lambda path: convert(path, path.parent / "out")):
        with pytest.raises(CheckpointError, match=r"not a complete ALBERT: it lacks .*attention.key.weight"):
            call(tf1)
    assert not (tf1.parent / "out").exists()


# --- configs ------------------------------------------------------------------------------------


def test_configs_of_the_original_and_of_ours(tf1: Path) -> None:
    assert formats.read(tf1).config["hidden_act"] == "gelu_new"
    (tf1 / "albert_config.json").rename(tf1 / "albert_config_small.json")
    (tf1 / "tokenizer_config.json").write_text("{}")
    assert formats.read(tf1).config["hidden_act"] == "gelu_new"
    (tf1 / "albert_config_small.json").rename(tf1 / "config.json")
    assert formats.read(tf1).config["hidden_act"] == "gelu"
    (tf1 / "config.json").rename(tf1 / "a_config.json")
    shutil.copy(tf1 / "a_config.json", tf1 / "b_config.json")
    with pytest.raises(CheckpointError, match="several configs"):
        formats.read(tf1)


def test_without_a_config_only_published_shapes_are_known(tf1: Path, original: Tensors) -> None:
    (tf1 / "albert_config.json").unlink()
    with pytest.raises(CheckpointError, match=r"not those of a published model. Add the file"):
        formats.read(tf1)
    kernel = "bert/encoder/embedding_hidden_mapping_in/kernel"
    write_bundle(tf1 / "model.ckpt-best", {WORDS: torch.zeros(30000, 128), kernel: torch.zeros(128, 768)})
    checkpoint = formats.read(tf1)
    assert AlbertConfig.from_dict(checkpoint.config) == AlbertConfig.preset("base")
    assert "ALBERT base" in checkpoint.notes[0]


def test_configs_that_the_original_code_cannot_express(tmp_path: Path) -> None:
    random_model(AlbertModel, hidden_act="gelu").save_pretrained(tmp_path / "erf")
    with pytest.raises(ConfigError, match=r"hidden_act is 'gelu', .* \(its 'gelu' is our 'gelu_new'\)"):
        convert(tmp_path / "erf", tmp_path / "out", to="tf1")
    random_model(AlbertModel, layer_norm_eps=1e-5).save_pretrained(tmp_path / "epsilon")
    with pytest.raises(
        ConfigError, match="layer_norm_eps is 1e-05, but in the original code it is always 1e-12"
    ):
        convert(tmp_path / "epsilon", tmp_path / "out", to="tf1")
    random_model(AlbertForPreTraining, tie_word_embeddings=False).save_pretrained(tmp_path / "untied")
    with pytest.raises(AlbertKitError, match=r"no tensor like predictions\.decoder\.weight"):
        convert(tmp_path / "untied", tmp_path / "out", to="tf1")
    assert not (tmp_path / "out").exists()
    convert(tmp_path / "untied", tmp_path / "hf", verify=True)


def test_the_older_layout_computes_the_same(tmp_path: Path) -> None:
    """Words times a second factor, then positions, segments and LayerNorm of the hidden width; no mapping."""
    model = random_model(AlbertForPreTraining, embedding_size=12, num_hidden_layers=3)
    with torch.no_grad():
        model.albert.encoder.embedding_hidden_mapping_in.weight.copy_(torch.eye(12))
        model.albert.encoder.embedding_hidden_mapping_in.bias.zero_()
    words, factor = torch.randn(40, 8), torch.randn(8, 12)
    named = to_tensors(
        google.google_tensors(
            to_arrays({name: one for name, one in model.state_dict().items() if "decoder" not in name})
        )
    )
    layer = "bert/encoder/transformer/group_0/inner_group_0/"
    older = {
        "attention_1/": "attention/",
        "LayerNorm/": "attention/output/LayerNorm/",
        "LayerNorm_1/": "output/LayerNorm/",
        "ffn_1/intermediate/output/": "output/",
        "ffn_1/intermediate/": "intermediate/",
    }
    tensors = {}
    for name, tensor in named.items():
        rest = name.removeprefix(layer)
        if rest != name:
            start = next(start for start in older if rest.startswith(start))
            name = "bert/encoder/layer_shared/" + older[start] + rest.removeprefix(start)
        if "embedding_hidden_mapping_in" not in name:
            tensors[name] = tensor
    write_bundle(tmp_path / "m", {**tensors, WORDS: words, OLDER_FACTOR: factor})
    config = google.google_config(model.config.to_dict()) | {"embedding_size": 8, "ln_type": "postln"}
    (tmp_path / "albert_config.json").write_text(json.dumps(config))

    found, info = AlbertForPreTraining.from_pretrained(tmp_path, output_loading_info=True)
    assert info["report"].ok
    assert info["report"].ignored == {OLDER_FACTOR: "multiplied into the word embeddings"}
    input_ids = torch.randint(40, (2, 9))
    with torch.no_grad():
        expected = model.albert(inputs_embeds=words[input_ids] @ factor)
        output = found(input_ids)
        assert largest_difference(found.albert(input_ids)[0], expected[0]) <= TOLERANCE
        head = model.predictions
        hidden = head.LayerNorm(torch.nn.functional.gelu(head.dense(expected[0]), approximate="tanh"))
        logits = hidden @ factor.T @ words.T + head.bias
    assert largest_difference(output.prediction_logits, logits) <= 1e-4 * float(logits.abs().max())

    report = convert(tmp_path, tmp_path / "hf", verify=True)
    assert any("older layout" in note for note in report.notes)
    (tmp_path / "albert_config.json").write_text(json.dumps(config | {"ln_type": "preln"}))
    with pytest.raises(ConfigError, match="ln_type is 'preln'"):
        AlbertModel.from_pretrained(tmp_path)


# --- Keras --------------------------------------------------------------------------------------


def test_keras_files_load(tmp_path: Path) -> None:
    model = random_model(AlbertForPreTraining, num_hidden_groups=2, inner_group_num=2)
    write_h5(tmp_path / "tf_model.h5", model)
    model.config.save_pretrained(tmp_path)
    found, info = AlbertForPreTraining.from_pretrained(tmp_path, output_loading_info=True)
    assert info["report"].ok
    for name, tensor in model.state_dict().items():
        assert torch.equal(found.state_dict()[name], tensor), name
    report = convert(tmp_path, tmp_path / "hf", verify=True)
    assert report.largest_difference == 0


@pytest.mark.parametrize("content", [b"", b"short", b"\x89HDF\r\n\x1a\n" + bytes(100)])
def test_damaged_keras_files(tmp_path: Path, content: bytes) -> None:
    AlbertConfig().save_pretrained(tmp_path)
    (tmp_path / "tf_model.h5").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"tf_model\.h5 .*damaged, or is not a file of Keras weights"):
        read_folder(tmp_path)


# --- round trips --------------------------------------------------------------------------------


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
def test_every_format_and_back_is_bitwise(
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
    one, other = (Bundle(folder / name / google.PREFIX) for name in ("1", "5"))
    assert one.entries == other.entries


@pytest.mark.parametrize(
    "examples", [4, pytest.param(200, marks=pytest.mark.slow)], ids=["quick", "thorough"]
)
@pytest.mark.parametrize("made_by", SOURCES)
def test_every_format_read_becomes_every_format_written(
    tmp_path_factory, made_by: str, examples: int
) -> None:
    """What a model's weights were written as does not show in what is written of them."""

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
        there = folder / ("there.tfbson" if to == "julia" else "there")
        report = convert(source, there, to=to)
        assert (report.missing, report.unexpected, report.unused) == ([], [], {})
        convert(there, folder / "back")
        for file in ("config.json", "model.safetensors"):
            assert (folder / "back" / file).read_bytes() == (folder / "model" / file).read_bytes()

    round_trip()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_other_types(tmp_path: Path, dtype: str) -> None:
    random_model(AlbertForPreTraining).save_pretrained(tmp_path / "0")
    convert(tmp_path / "0", tmp_path / "1", dtype=dtype)
    assert {str(one.dtype) for one in load_file(tmp_path / "1" / "model.safetensors").values()} == {
        f"torch.{dtype}"
    }
    convert(tmp_path / "1", tmp_path / "2", to="tf1")
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


def test_weights_beyond_a_type_are_refused(tmp_path: Path) -> None:
    """They would become infinite, and the model's outputs NaN."""
    model = random_model(AlbertForPreTraining)
    with torch.no_grad():
        model.sop_classifier.classifier.bias[0] = -1e6
    model.save_pretrained(tmp_path / "0")
    with pytest.raises(CheckpointError, match=r"sop_classifier\.classifier\.bias contains 1e\+06, which is"):
        convert(tmp_path / "0", tmp_path / "1", dtype="float16")
    assert not (tmp_path / "1").exists()


def test_shards_become_one_file(tmp_path: Path) -> None:
    model = random_model(AlbertForPreTraining)
    state = {name: one for name, one in model.state_dict().items() if "decoder" not in name}
    names = list(state)
    model.config.save_pretrained(tmp_path / "in")
    shards = {f"pytorch_model-0000{at + 1}-of-00002.bin": names[at::2] for at in range(2)}
    for file, part in shards.items():
        torch.save({name: state[name] for name in part}, tmp_path / "in" / file)
    index = {"weight_map": {name: file for file, part in shards.items() for name in part}}
    (tmp_path / "in" / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    report = convert(tmp_path / "in", tmp_path / "out", verify=True)
    assert report.largest_difference == 0
    assert {Path(path).name for path in report.checksums} >= {*shards, "pytorch_model.bin.index.json"}


# --- vocabulary ---------------------------------------------------------------------------------


def test_the_vocabulary_goes_along(tmp_path: Path, tiny_vocabulary: Path) -> None:
    text = "The captain opened 12,000 letters."
    random_model(AlbertForPreTraining, vocab_size=500).save_pretrained(tmp_path / "0")
    convert(tmp_path / "0", tmp_path / "1", to="tf1")
    shutil.copy(tiny_vocabulary, tmp_path / "1" / "30k-clean.model")
    report = convert(tmp_path / "1", tmp_path / "2")
    assert report.notes == []
    ids = AutoTokenizer.from_pretrained(tiny_vocabulary)(text)["input_ids"]
    assert AutoTokenizer.from_pretrained(tmp_path / "2")(text)["input_ids"] == ids
    assert {"tokenizer.json", "tokenizer_config.json", "spiece.model"} <= {
        Path(path).name for path in report.checksums
    }
    convert(tmp_path / "2", tmp_path / "3", to="tf1")
    assert (tmp_path / "3" / "30k-clean.model").read_bytes() == tiny_vocabulary.read_bytes()
    convert(tmp_path / "2", tmp_path / "4.tfbson")
    lines = julia.load(tmp_path / "4.tfbson")["vocab"]
    assert len(lines) == 500
    assert lines[0] == "<pad>\t0"
    report = convert(tmp_path / "4.tfbson", tmp_path / "from julia")
    assert report.notes == ["spiece.model was made from the listed pieces; their scores have six digits"]
    assert AutoTokenizer.from_pretrained(tmp_path / "from julia")(text)["input_ids"] == ids
    convert(tmp_path / "2", tmp_path / "5", dtype="float16")
    for path in (tmp_path / "2").glob("*token*"):
        assert (tmp_path / "5" / path.name).read_bytes() == path.read_bytes()


def test_a_converted_folder_gives_the_segments_to_transformers(tiny_vocabulary: Path, tmp_path: Path) -> None:
    """`transformers` saves its settings without the names of the inputs, which it then needs for them."""
    random_model(AlbertModel, vocab_size=500).save_pretrained(tmp_path / "0")
    AutoTokenizer.from_pretrained(tiny_vocabulary).save_pretrained(tmp_path / "0")
    file = tmp_path / "0" / "tokenizer_config.json"
    settings = json.loads(file.read_text())
    assert settings.pop("model_input_names") == ["input_ids", "token_type_ids", "attention_mask"]
    file.write_text(json.dumps(settings))
    convert(tmp_path / "0", tmp_path / "1")
    found = transformers.AutoTokenizer.from_pretrained(tmp_path / "1")("a captain", "the sea")
    assert (
        found["token_type_ids"]
        == AutoTokenizer.from_pretrained(tiny_vocabulary)("a captain", "the sea")["token_type_ids"]
    )
    changed = json.loads((tmp_path / "1" / "tokenizer_config.json").read_text())
    assert {name: changed[name] for name in settings} == settings


def test_published_vocabulary_has_the_lines_that_julia_shows(shared: Path, tmp_path: Path) -> None:
    random_model(AlbertModel, vocab_size=30000).save_pretrained(tmp_path / "0")
    shutil.copy(shared / "data" / "spiece.model", tmp_path / "0")
    convert(tmp_path / "0", tmp_path / "1.tfbson")
    lines = julia.load(tmp_path / "1.tfbson")["vocab"]
    assert len(lines) == 30000
    assert lines[12:14] == ["€\t0", "▁\t-2.18897"]
    assert lines[:3] == ["<pad>\t0", "<unk>\t0", "[CLS]\t0"]
    assert [line.split("\t")[1] for line in lines[-10:]][:3] == ["-13.5298", "-13.5298", "-13.5298"]


def test_a_tokenizer_made_of_lines_is_the_published_one(shared: Path, tmp_path: Path) -> None:
    published = shared / "data" / "spiece.model"
    again = tmp_path / "spiece.model"
    again.write_bytes(model_from_lines(vocab_lines(published.read_bytes())))
    one, other = (AutoTokenizer.from_pretrained(path, model_max_length=10_000) for path in (published, again))
    cases = [json.loads(line) for line in (shared / "fixtures" / "tokenizer.jsonl").read_text().splitlines()]
    differing = [
        case["kind"] for case in cases if one(case["text"])["input_ids"] != other(case["text"])["input_ids"]
    ]
    # SentencePiece's normaliser has grown: a few characters that are in no real text are treated otherwise.
    assert set(differing) <= {"fuzz"}
    assert len(differing) < 10


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["<unk>\t0", "a"], "'a' is not a line of a vocabulary"),
        (["<unk>\t0", "a\tnan"], "Expected a piece, a tab and its score"),
        (["a\t-1", "b\t-2"], "not a valid SentencePiece model"),
        (["<unk>\t0", "a\t-1", "a\t-2"], "not a valid SentencePiece model"),
    ],
)
def test_lines_that_make_no_tokenizer(lines: list[str], message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        model_from_lines(lines)


def test_a_vocabulary_that_is_none_is_left_out(tmp_path: Path) -> None:
    random_model(AlbertModel).save_pretrained(tmp_path / "0")
    convert(tmp_path / "0", tmp_path / "1.tfbson")
    julia.save(
        tmp_path / "2.tfbson", {**julia.load(tmp_path / "1.tfbson"), "vocab": ["piece0\t0", "piece1\t-1"]}
    )
    report = convert(tmp_path / "2.tfbson", tmp_path / "3")
    assert "the vocabulary was left out" in report.notes[0]
    assert not (tmp_path / "3" / "spiece.model").exists()


def test_a_vocabulary_of_another_model_is_refused(tmp_path: Path, tiny_vocabulary: Path) -> None:
    random_model(AlbertModel).save_pretrained(tmp_path / "0")
    shutil.copy(tiny_vocabulary, tmp_path / "0")
    with pytest.raises(CheckpointError, match="vocabulary has 500 pieces, but the model has 40 embeddings"):
        convert(tmp_path / "0", tmp_path / "1")


# --- the report and the verb --------------------------------------------------------------------


def test_the_report_accounts_for_everything(tf1: Path, original: Tensors) -> None:
    write_bundle(tf1 / "model.ckpt-best", original | {"bert/something": torch.ones(2)})
    report = convert(tf1, tf1.parent / "hf", verify=True)
    assert (report.source_format, report.target_format) == ("tf1", "hf")
    assert report.architecture == "AlbertForPreTraining"
    moves = {move.source: move for move in report.tensors}
    assert set(moves) == {name for name in original if "adam" not in name and name != "global_step"}
    kernel = moves["cls/predictions/transform/dense/kernel"]
    assert (kernel.target, kernel.shape, kernel.dtype) == ("predictions.dense.weight", (16, 48), "float32")
    assert report.unexpected == ["bert/something"]
    assert set(report.unused) == {"global_step", f"{WORDS}/adam_m", f"{WORDS}/adam_v"}
    assert report.missing == []
    assert report.largest_difference == 0
    assert {Path(path).name for path in report.checksums} == {
        *("model.ckpt-best.index", "model.ckpt-best.data-00000-of-00001"),
        *("config.json", "model.safetensors"),
    }
    text = str(report)
    for part in (
        "unexpected, left out: bert/something",
        "16x48 float32",
        "sha256 ",
        "differ by at most 0.0e+00",
    ):
        assert part in text
    assert json.loads(json.dumps(report.to_json()))["tensors"][0]["source"] == WORDS


def test_what_the_source_lacks_is_missing(tf1: Path, original: Tensors) -> None:
    write_bundle(
        tf1 / "model.ckpt-best", {key: one for key, one in original.items() if "seq_relationship" not in key}
    )
    report = convert(tf1, tf1.parent / "hf", verify=True)
    assert report.largest_difference == 0
    assert report.missing == ["sop_classifier.classifier.weight", "sop_classifier.classifier.bias"]
    assert "sop_classifier.classifier.weight" not in load_file(tf1.parent / "hf" / "model.safetensors")


def test_a_checkpoint_is_never_replaced(tf1: Path) -> None:
    with pytest.raises(DataError, match=r"holds .*model.ckpt-best.index. Choose another folder"):
        convert(tf1, tf1, to="tf1")
    convert(tf1, tf1.parent / "hf")
    with pytest.raises(DataError, match=r"holds .*model.safetensors. Choose another folder"):
        convert(tf1, tf1.parent / "hf")
    (tf1.parent / "file").touch()
    with pytest.raises(DataError, match=r"file is a file. Expected a folder to write to"):
        convert(tf1, tf1.parent / "file" / "out", to="tf1")


def test_arguments_that_do_not_go_together(tf1: Path) -> None:
    with pytest.raises(ConfigError, match="does not match the format 'julia'"):
        convert(tf1, tf1.parent / "out", to="julia")
    with pytest.raises(ConfigError, match=r"format 'onnx' is unknown. Expected one of hf, tf1, julia"):
        convert(tf1, tf1.parent / "out", to="onnx")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="dtype is 'int8'"):
        convert(tf1, tf1.parent / "out", dtype="int8")
    with pytest.raises(ModelNotFoundError):
        convert(tf1.parent / "nothing", tf1.parent / "out")


def test_the_verb(tf1: Path) -> None:
    runner = CliRunner()
    done = runner.invoke(make_app(), ["convert", str(tf1), str(tf1.parent / "hf"), "--verify", "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["largest_difference"] == 0
    assert len(report["tensors"]) == 32
    target = tf1.parent / "model.tfbson"
    done = runner.invoke(make_app(), ["convert", str(tf1.parent / "hf"), str(target), "--dtype", "float16"])
    assert done.exit_code == 0, done.output
    assert "(hf) -> " in done.stdout
    assert julia.load(target)["weights"][WORDS].dtype == np.float16


def test_without_the_extra_the_error_says_what_to_install(tf1: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "crc32c", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'albertkit\[convert\]'"):
        AlbertModel.from_pretrained(tf1)


@pytest.mark.filterwarnings("ignore:AlbertForPreTraining from")
def test_the_table_of_the_documentation(
    tmp_path: Path, arrays: Tensors, script: Callable[[str], ModuleType]
) -> None:
    """The row of Keras is measured in keras_checks.py, where Keras is loaded anyway."""
    table = script("checkpoint_table")
    page = table.PAGE.read_text()
    for row in table.FORMATS:
        if row.measure is not table.keras:
            assert row.measure(tmp_path, arrays) <= TOLERANCE, row.name
        assert row.line(0).rpartition("| 0")[0] in page, row.name


def test_the_walk_through_julia(
    tf1: Path, tiny_vocabulary: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, example = tf1.parent / "model.tfbson", ROOT / "examples" / "julia_walkthrough.py"
    convert(tf1, model)
    monkeypatch.setattr(sys, "argv", [example.name, str(model), str(tiny_vocabulary)])
    runpy.run_path(str(example), run_name="__main__")
    printed = capsys.readouterr().out
    for stage in ("embedding            16x", "transformer          48x", "pooler               48x3"):
        assert stage in printed
    assert "masked-word head     512x" in printed
    assert "sentence-order head  2x3 (features first)" in printed


def test_a_difference_is_found(tf1: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(folder: Path, config: dict, tensors: Tensors, **options: object) -> None:
        folder_file.write_folder(
            folder, config, {**tensors, "predictions.bias": tensors["predictions.bias"] + 1e-3}
        )

    monkeypatch.setattr("albertkit.conversion.write_folder", wrong)
    with pytest.raises(CheckpointError, match=r"its outputs differ from those of .* by up to 1.0e-03"):
        convert(tf1, tf1.parent / "hf", verify=True)


# --- without torch ------------------------------------------------------------------------------

STEPS = [
    ("source", "hf", "hf", None),
    ("hf", "tf1", "tf1", None),
    ("tf1", "model.tfbson", "julia", "float16"),
    ("model.tfbson", "again", "hf", None),
]
CONVERT = """
import json
from albertkit.conversion import convert

for source, target, to, dtype in json.loads(sys.argv[1]):
    print(json.dumps(convert(source, target, to=to, dtype=dtype, verify=True).to_json()))
"""


def test_without_torch_reports_and_files_are_the_same(
    tf1: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    light, full = tmp_path / "light", tmp_path / "full"
    for folder in (light, full):
        shutil.copytree(tf1, folder / "source")
    output = run_without_torch(CONVERT, json.dumps(STEPS), cwd=light)
    monkeypatch.chdir(full)
    for (source, target, to, dtype), line in zip(STEPS, output.splitlines(), strict=True):
        report = convert(source, target, to=to, dtype=dtype, verify=True)  # type: ignore[arg-type]
        assert json.loads(line) == json.loads(json.dumps(report.to_json()))
    written = sorted(path.relative_to(full) for path in full.rglob("*") if path.is_file())
    assert written == sorted(path.relative_to(light) for path in light.rglob("*") if path.is_file())
    for path in written:
        assert (light / path).read_bytes() == (full / path).read_bytes()


def test_without_torch_its_own_files_name_the_extra(tmp_path: Path) -> None:
    model = random_model(AlbertModel)
    model.config.save_pretrained(tmp_path)  # type: ignore[operator, union-attr]
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    code = """
from albertkit.conversion import convert
from albertkit.errors import MissingExtraError

try:
    convert(sys.argv[1], sys.argv[2])
except MissingExtraError as error:
    print(error)
"""
    output = run_without_torch(code, tmp_path, tmp_path / "out")
    assert "pip install 'albertkit[torch]'" in output
    assert not (tmp_path / "out").exists()
