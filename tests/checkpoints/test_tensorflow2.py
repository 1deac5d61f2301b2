"""Tests of files of TensorFlow 2, written by the Model Garden and by `transformers`, and of damage."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from foreign_files import graph_of, write_objects
from modeling_twins import largest_difference
from places import GOLDEN
from torch_files import Bundle

from albertkit.checkpoints import formats
from albertkit.checkpoints.arrays import to_tensors
from albertkit.checkpoints.names import canonical, why_no_weight
from albertkit.checkpoints.tensorflow import GRAPH, merge_heads, variable_names
from albertkit.conversion import convert
from albertkit.errors import CheckpointError, ConfigError
from albertkit.modeling.heads import AlbertForMaskedLM, AlbertForPreTraining
from albertkit.modeling.model import AlbertModel

GARDEN, TRANSFORMERS = GOLDEN / "model_garden", GOLDEN / "transformers_tf"
TOLERANCE = 1e-6
VALUE = ".ATTRIBUTES/VARIABLE_VALUE"


def recorded(folder: Path) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Return a batch and the outputs that the original model computed for it."""
    with np.load(folder / "outputs.npz") as file:
        arrays = {key: torch.from_numpy(file[key]) for key in file}
    names = ("input_ids", "attention_mask", "token_type_ids")
    return {name: arrays.pop(name).long() for name in names}, arrays


@pytest.fixture
def garden(tmp_path: Path) -> Path:
    """Return a copy of the checkpoint of the Model Garden."""
    return Path(shutil.copytree(GARDEN, tmp_path / "garden"))


# --- outputs of the original programs -----------------------------------------------------------


def test_encoder_of_the_model_garden() -> None:
    batch, expected = recorded(GARDEN)
    model, info = AlbertModel.from_pretrained(GARDEN, output_loading_info=True)
    real = batch["attention_mask"].bool()
    with torch.no_grad():
        output = model(**batch)
    assert largest_difference(output.last_hidden_state[real], expected["sequence_output"][real]) <= TOLERANCE
    assert largest_difference(output.pooler_output, expected["pooled_output"]) <= TOLERANCE
    assert info["report"].ok
    assert info["report"].loaded["pooler.weight"] == "pooler_transform/kernel"
    assert sum(why.startswith("state of an optimizer") for why in info["report"].ignored.values()) == 4


def test_masked_language_modeling_head_of_the_model_garden() -> None:
    batch, expected = recorded(GARDEN)
    with torch.no_grad():
        logits = AlbertForMaskedLM.from_pretrained(GARDEN)(**batch).logits
    masked = logits[torch.arange(2)[:, None], expected["masked_positions"].long()]
    assert largest_difference(masked, expected["logits"]) <= TOLERANCE


def test_conversion_of_the_model_garden_to_every_format(tmp_path: Path) -> None:
    source = GARDEN
    for name in ("hf", "tf1", "model.tfbson", "last"):
        report = convert(source, tmp_path / name, to="tf1" if name == "tf1" else None, verify=True)
        assert report.largest_difference == 0
        assert report.architecture == "AlbertForPreTraining"
        source = tmp_path / name
    first, last = (tmp_path / name / "model.safetensors" for name in ("hf", "last"))
    assert first.read_bytes() == last.read_bytes()


@pytest.mark.filterwarnings("ignore:AlbertForPreTraining from")
def test_files_of_the_tensorflow_classes_of_transformers() -> None:
    """The file contains two different biases of the decoder. The classes read only `decoder/bias`."""
    batch, expected = recorded(TRANSFORMERS)
    model, info = AlbertForPreTraining.from_pretrained(TRANSFORMERS, output_loading_info=True)
    with torch.no_grad():
        output = model(**batch)
    assert largest_difference(output.prediction_logits, expected["prediction_logits"]) <= TOLERANCE
    assert largest_difference(output.sop_logits, expected["sop_logits"]) <= TOLERANCE
    report = info["report"]
    assert (report.missing, report.unexpected, report.reshaped) == ([], [], {})
    assert report.conflicting == {"tf_albert_for_pre_training/predictions/bias:0": "predictions.decoder.bias"}


@pytest.mark.filterwarnings("ignore:AlbertForPreTraining from")
def test_weights_of_keras_have_the_names_of_its_h5_file(tmp_path: Path) -> None:
    """`model.save_weights` of these classes stores the names in a graph, without the ending ":0"."""
    tensors = to_tensors(formats.read(TRANSFORMERS).tensors)
    keys = {f"variables/{at}/{VALUE}": name for at, name in enumerate(tensors)}
    stored = {
        key: tensors[name].T.contiguous() if name.endswith("kernel:0") else tensors[name]
        for key, name in keys.items()
    }
    write_objects(tmp_path / "weights", stored, graph_of({key: name[:-2] for key, name in keys.items()}))
    shutil.copy(TRANSFORMERS / "config.json", tmp_path)
    expected, actual = (AlbertForPreTraining.from_pretrained(path) for path in (TRANSFORMERS, tmp_path))
    for name, tensor in expected.state_dict().items():
        assert torch.equal(actual.state_dict()[name], tensor), name


# --- modules of TensorFlow Hub ------------------------------------------------------------------


def test_a_module_of_tensorflow_hub(garden: Path, tmp_path: Path) -> None:
    (garden / "variables").mkdir()
    (garden / "assets").mkdir()
    for path in garden.glob("model.ckpt*"):
        path.rename(garden / "variables" / path.name.replace("model.ckpt", "variables"))
    (garden / "assets" / "30k-clean.model").write_bytes(b"vocabulary")
    checkpoint = formats.read(garden)
    assert checkpoint.vocabulary == {"spiece.model": b"vocabulary"}
    assert checkpoint.config["num_attention_heads"] == 2
    (garden / "albert_config.json").unlink()
    with pytest.raises(CheckpointError, match="no published model has its shapes"):
        formats.read(garden)


def test_the_number_of_heads_must_match_the_tensors(garden: Path) -> None:
    path = garden / "albert_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"num_attention_heads": 4}))
    with pytest.raises(ConfigError, match="has 2 attention heads"):
        formats.read(garden)
    query, key = (f"transformer/self_attention/{name}/kernel" for name in ("query", "key"))
    with pytest.raises(ConfigError, match="different numbers of heads"):
        merge_heads({query: np.zeros((8, 2, 4)), key: np.zeros((8, 4, 2))})


def test_attention_of_the_model_garden_in_2020() -> None:
    """The output was not part of the attention, and the heads had no separate dimension."""
    name = "transformer/self_attention_output/kernel"
    assert canonical(name) == "albert.encoder.albert_layer_groups.0.albert_layers.0.attention.dense.weight"
    tensors = {name: np.arange(64.0).reshape(8, 8)}
    assert merge_heads(tensors) is None
    assert tensors[name].shape == (8, 8)


# --- state of the training, and damage ----------------------------------------------------------


@pytest.mark.parametrize(
    "key",
    [
        f"optimizer/_variables/2/{VALUE}",
        f"save_counter/{VALUE}",
        f"keras_api/metrics/0/total/{VALUE}",
        f"model/layer_with_weights-0/embeddings/.OPTIMIZER_SLOT/optimizer/m/{VALUE}",
    ],
)
def test_keys_of_the_training_state(key: str, tmp_path: Path) -> None:
    """A variable of an optimizer has the name of its weight. Only the key distinguishes the two."""
    assert why_no_weight(key)
    name = "Adam/m/pooler_transform/bias"
    assert canonical(name) == "albert.pooler.bias"
    write_objects(tmp_path / "m", {key: torch.zeros(3)}, graph_of({key: name}))
    assert variable_names(Bundle(tmp_path / "m")) == {}


def test_two_variables_with_the_same_name(tmp_path: Path) -> None:
    keys = {f"{model}/{VALUE}": "pooler_transform/bias" for model in ("a", "b")}
    write_objects(tmp_path / "m", dict.fromkeys(keys, torch.zeros(3)), graph_of(keys))
    with pytest.raises(CheckpointError, match="pooler_transform/bias twice"):
        variable_names(Bundle(tmp_path / "m"))


def test_every_truncation_and_flipped_bit_of_the_graph_is_an_error(garden: Path) -> None:
    path = garden / "model.ckpt.data-00000-of-00001"
    content = path.read_bytes()
    entry = Bundle(garden / "model.ckpt").entries[GRAPH]
    positions = range(entry.offset, entry.offset + entry.size)
    for at in (*positions[:12], *positions[12:-1:23], positions[-1]):
        for changed in (content[:at], content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :]):
            path.unlink()
            path.write_bytes(changed)
            with pytest.raises(CheckpointError, match="data-00000-of-00001 is damaged"):
                variable_names(Bundle(garden / "model.ckpt"))
