"""Tests of loading checkpoints in other formats and layouts: outputs equal those of the original code."""

import json
import shutil
import tarfile
from pathlib import Path

import pytest
import torch
from conversion_models import TOLERANCE, WORDS, random_model
from foreign_files import write_h5
from modeling_twins import largest_difference
from original_checkpoint import GOLDEN, Tensors, arrays_fixture, original_fixture, tf1_fixture  # noqa: F401
from torch_files import read_folder, write_bundle

from albertkit.checkpoints import formats, tensorflow
from albertkit.checkpoints.arrays import to_arrays, to_tensors
from albertkit.checkpoints.names import OLDER_FACTOR
from albertkit.config import AlbertConfig
from albertkit.conversion import convert
from albertkit.errors import AlbertKitError, CheckpointError, ConfigError
from albertkit.modeling.heads import AlbertForPreTraining, AlbertForSequenceClassification
from albertkit.modeling.model import AlbertModel


def assert_original(model: AlbertForPreTraining, arrays: Tensors) -> None:
    """Assert that the outputs of a model equal the recorded outputs of the original code."""
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


# --- outputs of the original code ---------------------------------------------------------------


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


def test_load_tf_weights_loads_a_checkpoint(tf1: Path, arrays: Tensors) -> None:
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


def test_errors_about_an_archive_do_not_name_the_temporary_folder(tf1: Path) -> None:
    archive = tf1.parent / "small.tar"
    (tf1 / "albert_config.json").write_text("{")
    with tarfile.open(archive, "w") as tar:
        tar.add(tf1, "albert_small")
    with pytest.raises((CheckpointError, ConfigError)) as caught:
        formats.read(archive)
    assert str(caught.value).startswith(f"{archive}, unpacked: albert_config.json")


@pytest.mark.parametrize("name", ["../out.index", "a/../../out.index", "/tmp/albertkit-test/out.index"])
def test_an_archive_writes_nothing_outside(tmp_path: Path, name: str) -> None:
    with tarfile.open(tmp_path / "small.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo(name))
    with pytest.raises(CheckpointError, match=r"small\.tar"):
        formats.read(tmp_path / "small.tar")


def test_a_hub_module_loads(tmp_path: Path, original: Tensors, arrays: Tensors) -> None:
    for folder in ("variables", "assets"):
        (tmp_path / folder).mkdir()
    write_bundle(
        tmp_path / "variables" / "variables", {f"module/{name}": tensor for name, tensor in original.items()}
    )
    shutil.copy(GOLDEN / "albert_config.json", tmp_path / "assets")
    (tmp_path / "assets" / "30k-clean.model").write_bytes(b"vocabulary")
    (tmp_path / "saved_model.pb").touch()
    assert_original(AlbertForPreTraining.from_pretrained(tmp_path), arrays)
    assert formats.read(tmp_path).vocabulary == {"spiece.model": b"vocabulary"}


def test_tensor_names_without_their_prefix_load(tmp_path: Path, original: Tensors, arrays: Tensors) -> None:
    write_bundle(tmp_path / "m", {name.removeprefix("bert/"): tensor for name, tensor in original.items()})
    shutil.copy(GOLDEN / "albert_config.json", tmp_path)
    assert_original(AlbertForPreTraining.from_pretrained(tmp_path), arrays)


def test_a_julia_file_loads(tf1: Path, arrays: Tensors) -> None:
    convert(tf1, tf1.parent / "model.tfbson")
    assert_original(AlbertForPreTraining.from_pretrained(tf1.parent / "model.tfbson"), arrays)


@pytest.mark.parametrize("path", ["", "model.ckpt-best", "albert_small.tfbson"])
def test_shared_checkpoints_load(shared: Path, arrays: Tensors, path: str) -> None:
    model = AlbertForPreTraining.from_pretrained(shared / "fixtures" / "google-tf1-small" / path)
    assert_original(model, arrays)


def test_a_fine_tuned_head_loads_with_its_labels(tf1: Path, original: Tensors) -> None:
    head = {"output_weights": torch.randn(3, 48), "output_bias": torch.randn(3)}
    write_bundle(tf1 / "model.ckpt-best", original | head)
    model, info = AlbertForSequenceClassification.from_pretrained(tf1, output_loading_info=True)
    assert info["missing_keys"] == set()
    assert model.config.num_labels == 3
    assert torch.equal(model.classifier.weight, head["output_weights"])


def test_a_folder_with_several_checkpoints_needs_a_choice(tf1: Path, original: Tensors) -> None:
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
    write_bundle(tf1 / "model.ckpt-best", {key: tensor for key, tensor in original.items() if key != name})
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
    with pytest.raises(CheckpointError, match="no published model has its shapes"):
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
    """Compare outputs of the older layout.

    In this layout, the word embeddings are multiplied by a second matrix. The positions, the segments and the
    LayerNorm of the embeddings have the hidden size, so the encoder has no projection of the embeddings.
    """
    model = random_model(AlbertForPreTraining, embedding_size=12, num_hidden_layers=3)
    with torch.no_grad():
        model.albert.encoder.embedding_hidden_mapping_in.weight.copy_(torch.eye(12))
        model.albert.encoder.embedding_hidden_mapping_in.bias.zero_()
    words, factor = torch.randn(40, 8), torch.randn(8, 12)
    named = to_tensors(
        tensorflow.google_tensors(
            to_arrays({name: tensor for name, tensor in model.state_dict().items() if "decoder" not in name})
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
    config = tensorflow.google_config(model.config.to_dict()) | {"embedding_size": 8, "ln_type": "postln"}
    (tmp_path / "albert_config.json").write_text(json.dumps(config))

    loaded, info = AlbertForPreTraining.from_pretrained(tmp_path, output_loading_info=True)
    assert info["report"].ok
    assert info["report"].ignored == {OLDER_FACTOR: "multiplied into the word embeddings"}
    input_ids = torch.randint(40, (2, 9))
    with torch.no_grad():
        expected = model.albert(inputs_embeds=words[input_ids] @ factor)
        output = loaded(input_ids)
        assert largest_difference(loaded.albert(input_ids)[0], expected[0]) <= TOLERANCE
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
    loaded, info = AlbertForPreTraining.from_pretrained(tmp_path, output_loading_info=True)
    assert info["report"].ok
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name
    report = convert(tmp_path, tmp_path / "hf", verify=True)
    assert report.largest_difference == 0


@pytest.mark.parametrize("content", [b"", b"short", b"\x89HDF\r\n\x1a\n" + bytes(100)])
def test_damaged_keras_files(tmp_path: Path, content: bytes) -> None:
    AlbertConfig().save_pretrained(tmp_path)
    (tmp_path / "tf_model.h5").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"tf_model\.h5 is damaged"):
        read_folder(tmp_path)
