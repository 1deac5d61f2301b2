"""Files of TensorFlow 2: those really written by its model garden and by transformers, and faults."""

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from foreign_files import graph_of, write_objects
from modeling_twins import largest_difference
from places import GOLDEN
from structural_fuzz import CASES
from torch_files import Bundle

from albertkit.checkpoints import formats
from albertkit.checkpoints.arrays import to_tensors
from albertkit.checkpoints.cursor import Cursor
from albertkit.checkpoints.names import canonical, why_no_weight
from albertkit.checkpoints.object_graph import GRAPH, _variables, merge_heads, variable_names
from albertkit.conversion import convert
from albertkit.errors import CheckpointError, ConfigError
from albertkit.modeling.model import AlbertModel
from albertkit.modeling.pretraining_heads import AlbertForMaskedLM, AlbertForPreTraining

GARDEN, TRANSFORMERS = GOLDEN / "model_garden", GOLDEN / "transformers_tf"
TOLERANCE = 1e-6
VALUE = ".ATTRIBUTES/VARIABLE_VALUE"


def recorded(folder: Path) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The batch that a model was given, and what it computed."""
    with np.load(folder / "outputs.npz") as file:
        arrays = {key: torch.from_numpy(file[key]) for key in file}
    names = ("input_ids", "attention_mask", "token_type_ids")
    return {name: arrays.pop(name).long() for name in names}, arrays


@pytest.fixture
def garden(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GARDEN, tmp_path / "garden"))


# --- what the writers computed ------------------------------------------------------------------


def test_an_encoder_of_the_model_garden_loads() -> None:
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


def test_its_masked_word_head_loads() -> None:
    batch, expected = recorded(GARDEN)
    with torch.no_grad():
        logits = AlbertForMaskedLM.from_pretrained(GARDEN)(**batch).logits
    masked = logits[torch.arange(2)[:, None], expected["masked_positions"].long()]
    assert largest_difference(masked, expected["logits"]) <= TOLERANCE


def test_it_becomes_every_other_format(tmp_path: Path) -> None:
    source = GARDEN
    for name in ("hf", "tf1", "model.tfbson", "hf again"):
        report = convert(source, tmp_path / name, to="tf1" if name == "tf1" else None, verify=True)
        assert report.largest_difference == 0
        assert report.architecture == "AlbertForPreTraining"
        source = tmp_path / name
    first, last = (tmp_path / name / "model.safetensors" for name in ("hf", "hf again"))
    assert first.read_bytes() == last.read_bytes()


@pytest.mark.filterwarnings("ignore:AlbertForPreTraining from")
def test_files_of_the_tensorflow_classes_of_transformers() -> None:
    """Both biases of the decoder are in the file, and differ; the classes read `decoder/bias` alone."""
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
def test_weights_saved_by_keras_have_the_names_of_its_h5_file(tmp_path: Path) -> None:
    """`model.save_weights("weights")` of the same classes: names in the graph, without the ending ":0"."""
    tensors = to_tensors(formats.read(TRANSFORMERS).tensors)
    keys = {f"variables/{at}/{VALUE}": name for at, name in enumerate(tensors)}
    stored = {
        key: tensors[name].T.contiguous() if name.endswith("kernel:0") else tensors[name]
        for key, name in keys.items()
    }
    write_objects(tmp_path / "weights", stored, graph_of({key: name[:-2] for key, name in keys.items()}))
    shutil.copy(TRANSFORMERS / "config.json", tmp_path)
    one, other = (AlbertForPreTraining.from_pretrained(path) for path in (TRANSFORMERS, tmp_path))
    for name, tensor in one.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor), name


# --- modules of the hub -------------------------------------------------------------------------


def test_a_module_of_the_hub(garden: Path, tmp_path: Path) -> None:
    (garden / "variables").mkdir()
    (garden / "assets").mkdir()
    for path in garden.glob("model.ckpt*"):
        path.rename(garden / "variables" / path.name.replace("model.ckpt", "variables"))
    (garden / "assets" / "30k-clean.model").write_bytes(b"vocabulary")
    checkpoint = formats.read(garden)
    assert checkpoint.vocabulary == {"spiece.model": b"vocabulary"}
    assert checkpoint.config["num_attention_heads"] == 2
    (garden / "albert_config.json").unlink()
    with pytest.raises(CheckpointError, match="not those of a published model"):
        formats.read(garden)


def test_heads_are_seen_in_the_tensors(garden: Path) -> None:
    path = garden / "albert_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"num_attention_heads": 4}))
    with pytest.raises(ConfigError, match=r"num_attention_heads 4, but its tensors have 2 heads. Correct"):
        formats.read(garden)
    query, key = (f"transformer/self_attention/{name}/kernel" for name in ("query", "key"))
    with pytest.raises(ConfigError, match=r"numbers of heads: 2 in .*query/kernel, 4 in .*key/kernel"):
        merge_heads({query: np.zeros((8, 2, 4)), key: np.zeros((8, 4, 2))})


def test_the_garden_of_2020_had_another_attention() -> None:
    """Its output stood beside it, and the heads had no dimension of their own."""
    name = "transformer/self_attention_output/kernel"
    assert canonical(name) == "albert.encoder.albert_layer_groups.0.albert_layers.0.attention.dense.weight"
    tensors = {name: np.arange(64.0).reshape(8, 8)}
    assert merge_heads(tensors) is None
    assert tensors[name].shape == (8, 8)


# --- what is no weight, and faults --------------------------------------------------------------


@pytest.mark.parametrize(
    "key",
    [
        f"optimizer/_variables/2/{VALUE}",
        f"save_counter/{VALUE}",
        f"keras_api/metrics/0/total/{VALUE}",
        f"model/layer_with_weights-0/embeddings/.OPTIMIZER_SLOT/optimizer/m/{VALUE}",
    ],
)
def test_keys_of_a_run_are_known(key: str, tmp_path: Path) -> None:
    """An optimizer's variable is called after the weight: only the key tells that it is none."""
    assert why_no_weight(key)
    name = "Adam/m/pooler_transform/bias"
    assert canonical(name) == "albert.pooler.bias"
    write_objects(tmp_path / "m", {key: torch.zeros(3)}, graph_of({key: name}))
    assert variable_names(Bundle(tmp_path / "m")) == {}


def test_a_variable_that_is_there_twice(tmp_path: Path) -> None:
    keys = {f"{model}/{VALUE}": "pooler_transform/bias" for model in ("a", "b")}
    write_objects(tmp_path / "m", dict.fromkeys(keys, torch.zeros(3)), graph_of(keys))
    with pytest.raises(
        CheckpointError, match=r"pooler_transform/bias twice, as a/.* and as b/.*\. Expected one"
    ):
        variable_names(Bundle(tmp_path / "m"))


def test_every_truncation_and_flipped_bit_of_the_graph_is_an_error(garden: Path) -> None:
    path = garden / "model.ckpt.data-00000-of-00001"
    content = path.read_bytes()
    entry = Bundle(garden / "model.ckpt").entries[GRAPH]
    places = range(entry.offset, entry.offset + entry.size)
    for at in (*places[:12], *places[12:-1:23], places[-1]):
        for changed in (content[:at], content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :]):
            path.unlink()
            path.write_bytes(changed)
            with pytest.raises(
                CheckpointError, match=r"data-00000-of-00001 is damaged or incomplete at byte"
            ):
                variable_names(Bundle(garden / "model.ckpt"))


def test_damaged_graphs() -> None:
    """A checksum hides the inside of the graph from random damage, so here there is none."""
    rng = random.Random(0)
    whole = graph_of({f"variables/{at}/{VALUE}": "pooler_transform/bias" for at in range(4)})
    refused = 0
    for _ in range(CASES):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(data))
            data[at : at + rng.randint(0, 8)] = rng.randbytes(rng.randint(0, 8))
        try:
            list(_variables(Cursor(Path("graph"), memoryview(data))))
        except CheckpointError:
            refused += 1
    assert refused > CASES * 0.3
