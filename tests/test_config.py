"""Tests of AlbertConfig: defaults, presets, checks of values, labels, and attributes, copies, and JSON."""

import copy
import json
import math
import pickle
from pathlib import Path

import numpy as np
import pytest

from albertkit.config import AlbertConfig, AutoConfig
from albertkit.errors import ConfigError, ModelNotFoundError

pytestmark = pytest.mark.light

# The defaults in the documented signature of AlbertConfig.
DOCUMENTED = {
    "vocab_size": 30000,
    "embedding_size": 128,
    "hidden_size": 4096,
    "num_hidden_layers": 12,
    "num_hidden_groups": 1,
    "num_attention_heads": 64,
    "intermediate_size": 16384,
    "inner_group_num": 1,
    "hidden_act": "gelu_new",
    "hidden_dropout_prob": 0,
    "attention_probs_dropout_prob": 0,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
    "classifier_dropout_prob": 0.1,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
}


def test_defaults_equal_the_documentation():
    config = AlbertConfig()
    assert {name: getattr(config, name) for name in DOCUMENTED} == DOCUMENTED
    assert config.model_type == "albert"
    assert config.id2label == {0: "LABEL_0", 1: "LABEL_1"}


@pytest.mark.parametrize(
    ("size", "hidden", "heads", "layers", "intermediate"),
    [
        ("base", 768, 12, 12, 3072),
        ("large", 1024, 16, 24, 4096),
        ("xlarge", 2048, 16, 24, 8192),
        ("xxlarge", 4096, 64, 12, 16384),
    ],
)
@pytest.mark.parametrize("version", ["v1", "v2"])
def test_presets(size, hidden, heads, layers, intermediate, version):
    config = AlbertConfig.preset(size, version=version)
    shape = (
        config.hidden_size,
        config.num_attention_heads,
        config.num_hidden_layers,
        config.intermediate_size,
    )
    assert shape == (hidden, heads, layers, intermediate)
    dropout = 0.1 if version == "v1" and size != "xxlarge" else 0
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (dropout, dropout)
    assert (config.embedding_size, config.vocab_size, config.classifier_dropout_prob) == (128, 30000, 0.1)


def test_preset_overrides_and_unknown_presets():
    assert AlbertConfig.preset("base", vocab_size=8000, num_labels=3).num_labels == 3
    assert AlbertConfig.preset("base", hidden_size=48, hidden_dropout_prob=0.3).hidden_dropout_prob == 0.3
    with pytest.raises(ConfigError, match=r"'tiny'.*base, large, xlarge, xxlarge"):
        AlbertConfig.preset("tiny")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="'v3'"):
        AlbertConfig.preset("base", version="v3")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"hidden_size": 100, "num_attention_heads": 12}, r"hidden_size \(100\).*num_attention_heads \(12\)"),
        ({"num_hidden_layers": 12, "num_hidden_groups": 5}, r"num_hidden_layers \(12\).*groups \(5\)"),
        ({"hidden_dropout_prob": 1.0}, r"hidden_dropout_prob.*\[0, 1\).*1.0"),
        ({"classifier_dropout_prob": "0.1"}, "classifier_dropout_prob"),
        ({"max_position_embeddings": 0}, "max_position_embeddings.*0"),
        ({"vocab_size": 30000.0}, "vocab_size.*whole number.*30000.0"),
        ({"layer_norm_eps": 0}, "layer_norm_eps"),
        ({"pad_token_id": 30000}, r"pad_token_id .* below vocab_size \(30000\), got 30000"),
        ({"hidden_act": "gelu_tanh"}, "gelu_new.*got 'gelu_tanh'"),
        ({"attn_implementation": "flash"}, "one of sdpa, eager, got 'flash'"),
        ({"problem_type": "ranking"}, "one of regression, .*'ranking'"),
        ({"num_labels": 3, "id2label": {0: "no", 1: "yes"}}, "num_labels is 3.*2 labels"),
        ({"num_labels": 0}, "num_labels.*at least 1, got 0"),
        ({"id2label": {1: "no", 2: "yes"}}, r"ids \[1, 2\]. Expected 0, 1"),
        ({"label2id": {"no": 0, "yes": 0}}, "label2id .* several labels .* {'no': 0, 'yes': 0}"),
        ({"label2id": {"no": "first"}}, "label2id labels to whole numbers.*'first'"),
        ({"id2label": {0: ["no"]}}, r"id2label must map whole numbers to labels.*\['no'\]"),
        ({"dtype": "float32", "torch_dtype": "float16"}, "dtype and torch_dtype"),
        ({"num_hiden_layers": 6}, "'num_hiden_layers'.*'num_hidden_layers'"),
        ({"tie_word_embeddings": "false"}, "tie_word_embeddings must be True or False, got 'false'"),
        ({"architectures": "AlbertModel"}, "architectures must be a list of class names"),
    ],
)
def test_invalid_values_are_an_error(values, message):
    with pytest.raises(ConfigError, match=message) as caught:
        AlbertConfig(**values)
    assert isinstance(caught.value, ValueError)  # code for transformers catches it


def test_labels():
    config = AlbertConfig(id2label={"0": "no", "1": "yes", "2": "maybe"})
    assert config.num_labels == 3
    assert config.label2id == {"no": 0, "yes": 1, "maybe": 2}
    config.num_labels = 3
    assert config.id2label[2] == "maybe"  # the same number of labels keeps their names
    config.num_labels = 4
    assert config.id2label[3] == "LABEL_3"
    assert AlbertConfig(num_labels=np.int64(3)) == AlbertConfig(num_labels=3)  # such as labels.max() + 1
    for label2id in ({"no": 0, "yes": 1}, {"no": "0", "yes": "1"}):
        config = AlbertConfig(label2id=label2id)
        assert (config.id2label, config.label2id) == ({0: "no", 1: "yes"}, {"no": 0, "yes": 1})


def test_labels_that_contradict_each_other():
    values = {"id2label": {0: "no", 1: "yes"}, "label2id": {"no": 1, "yes": 0}}
    with pytest.warns(UserWarning, match="id2label gives 'no' the id 0, but label2id gives it the id 1"):
        config = AlbertConfig(**values)
    assert config.label2id == {"no": 0, "yes": 1}
    with pytest.warns(UserWarning, match="albertkit uses id2label"):
        assert AlbertConfig.from_dict(values).label2id == {"no": 0, "yes": 1}
    synonyms = {"no": 0, "yes": 1, "y": 1}
    assert AlbertConfig(id2label={0: "no", 1: "yes"}, label2id=synonyms).label2id == synonyms
    config.id2label = {0: "yes", 1: "no"}
    assert config.label2id == {"yes": 0, "no": 1}


def test_json_round_trip(tmp_path: Path):
    config = AlbertConfig.preset(
        "base",
        num_labels=3,
        id2label={0: "a", 1: "b", 2: "é"},
        problem_type="single_label_classification",
        dtype="float16",
        architectures=["AlbertForMaskedLM"],
        output_attentions=True,
        return_dict=False,
        tie_word_embeddings=False,
    )
    config.save_pretrained(tmp_path / "new")
    assert AlbertConfig.from_pretrained(tmp_path / "new") == config
    assert AlbertConfig.from_pretrained(tmp_path / "new" / "config.json") == config
    stored = json.loads((tmp_path / "new" / "config.json").read_text(encoding="utf-8"))
    assert stored["id2label"] == {"0": "a", "1": "b", "2": "é"}
    assert stored["dtype"] == config.torch_dtype == "float16"
    assert stored["model_type"] == "albert"
    assert pickle.loads(pickle.dumps(config)) == copy.deepcopy(config) == config
    assert config != AlbertConfig.preset("base")


@pytest.mark.parametrize(
    ("key", "value", "only"),
    [
        ("pruned_heads", {"0": [1]}, {}),
        ("is_encoder_decoder", True, False),
        ("position_embedding_type", "relative_key", "absolute"),
    ],
)
def test_keys_with_one_value(key, value, only):
    with pytest.raises(ConfigError, match=f"{key} is .*albertkit supports only"):
        AlbertConfig.from_dict({"model_type": "albert", key: value})
    assert AlbertConfig.from_dict({"model_type": "albert", key: only}).hidden_size == 4096


def test_foreign_keys_are_kept(tmp_path: Path):
    foreign = {
        "model_type": "albert",
        "hidden_size": 768,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "down_scale_factor": 1,
        "task_specific_params": {"fill-mask": {"top_k": 3}},
        "transformers_version": "4.2.0",
        "torch_dtype": "float32",
        "classifier_dropout_prob": None,
    }
    config = AlbertConfig.from_dict(foreign, num_labels=5)
    assert config.down_scale_factor == 1
    assert config.classifier_dropout_prob == 0.1
    assert config.num_labels == 5
    config.save_pretrained(tmp_path)
    stored = json.loads((tmp_path / "config.json").read_text())
    for key in ("down_scale_factor", "task_specific_params", "transformers_version"):
        assert stored[key] == foreign[key]
    config.down_scale_factor = 2  # the file gets the value of the attribute
    config.use_cache = False
    assert config.to_dict()["down_scale_factor"] == 2
    assert AlbertConfig.from_dict(config.to_dict()).use_cache is False
    with pytest.raises(AttributeError, match="nonsense"):
        config.nonsense  # noqa: B018
    with pytest.raises(ConfigError, match="'down_scale'"):
        AlbertConfig.from_dict(foreign, down_scale=1)


def test_dictionary_as_arguments():
    config = AlbertConfig.preset(
        "base",
        id2label={0: "no", 1: "yes", 2: "maybe"},
        dtype="float16",
        problem_type="regression",
    )
    config.use_cache = False
    config.task_specific_params = {"fill-mask": {"top_k": 3}}
    config.transformers_version = "5.23.0"
    assert AlbertConfig(**config.to_dict()) == config
    assert AlbertConfig(model_type="albert", transformers_version="5.23.0").hidden_size == 4096
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AlbertConfig(hidden_size=48, num_attention_heads=4, num_labels=3).to_dict()
    assert AlbertConfig(**theirs).to_dict()["hidden_size"] == 48
    assert AlbertConfig(**theirs).id2label == {index: f"LABEL_{index}" for index in range(3)}
    with pytest.raises(ConfigError, match="'bert'"):
        AlbertConfig(model_type="bert")
    for values in ({}, config.to_dict()):
        with pytest.raises(ConfigError, match=r"'num_hiden_layers'.*'num_hidden_layers'"):
            AlbertConfig(**values, num_hiden_layers=3)


def test_overrides_win():
    values = {
        **AlbertConfig.preset("base", id2label={0: "no", 1: "yes"}, dtype="float16").to_dict(),
        "num_labels": 2,
    }
    assert AlbertConfig.from_dict(values, num_labels=2).id2label == {0: "no", 1: "yes"}
    assert AlbertConfig.from_dict(values, num_labels=3).id2label[2] == "LABEL_2"
    assert AlbertConfig.from_dict(values, id2label={0: "a", 1: "b", 2: "c"}).label2id == {
        "a": 0,
        "b": 1,
        "c": 2,
    }
    assert AlbertConfig.from_dict(values, torch_dtype="bfloat16").dtype == "bfloat16"
    assert AlbertConfig.from_dict(values, hidden_dropout_prob=0.3).hidden_dropout_prob == 0.3
    with pytest.raises(ConfigError, match="hidden_size"):
        AlbertConfig.from_dict(values, hidden_size=770)


def test_foreign_models_are_an_error(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"'bert'.*albert"):
        AlbertConfig.from_dict({"model_type": "bert"})
    (tmp_path / "config.json").write_text("[1, 2]")
    with pytest.raises(ConfigError, match="list"):
        AlbertConfig.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"hidden')
    with pytest.raises(ConfigError, match="is damaged"):
        AlbertConfig.from_pretrained(tmp_path)
    with pytest.raises(ModelNotFoundError, match="nothing"):
        AlbertConfig.from_json_file(tmp_path / "nothing.json")


def test_gelu_in_a_google_config_is_the_tanh_approximation(tmp_path: Path):
    values = {"hidden_act": "gelu", "hidden_size": 48, "num_attention_heads": 4, "net_structure_type": 0}
    assert AlbertConfig.from_google_dict(values).hidden_act == "gelu_new"
    assert AlbertConfig.from_dict(values).hidden_act == "gelu"
    assert AlbertConfig.from_google_dict({**values, "hidden_act": "relu"}).hidden_act == "relu"
    (tmp_path / "albert_config.json").write_text(json.dumps(values))
    config = AlbertConfig.from_pretrained(tmp_path)
    assert (config.hidden_act, config.net_structure_type) == ("gelu_new", 0)


def test_function_as_activation_cannot_be_saved(tmp_path: Path):
    config = AlbertConfig.preset("base", hidden_act=math.tanh)
    with pytest.raises(ConfigError, match=r"function tanh.*JSON"):
        config.save_pretrained(tmp_path)
    assert not (tmp_path / "config.json").exists()


def test_files_are_exchanged_with_transformers(tmp_path: Path):
    transformers = pytest.importorskip("transformers")
    ours = AlbertConfig.preset("large", version="v1", num_labels=3, num_hidden_groups=2, dtype="float16")
    ours.save_pretrained(tmp_path / "ours")
    theirs = transformers.AlbertConfig.from_pretrained(tmp_path / "ours")
    for name in (*DOCUMENTED, "num_labels", "id2label", "label2id"):
        assert getattr(theirs, name) == getattr(ours, name), name
    theirs.save_pretrained(tmp_path / "theirs")
    back = AlbertConfig.from_pretrained(tmp_path / "theirs")
    back.extra = {}
    assert back == ours


def test_files_and_dictionaries_of_a_config(tmp_path: Path):
    config = AlbertConfig(hidden_size=48, num_attention_heads=4, num_labels=3)
    config.to_json_file(tmp_path / "mine.json")
    assert AlbertConfig.from_json_file(tmp_path / "mine.json") == config
    config.save_pretrained(tmp_path / "model")
    loaded = AlbertConfig.from_pretrained(tmp_path / "model")
    assert (config.name_or_path, loaded.name_or_path) == ("", str(tmp_path / "model"))
    assert loaded._name_or_path == loaded.name_or_path
    assert loaded == config
    assert "name_or_path" not in loaded.to_dict()
    assert loaded.get_text_config(decoder=True) is loaded
    with pytest.raises(ConfigError, match=r"push_to_hub=True is not supported.*hf upload"):
        config.save_pretrained(tmp_path, push_to_hub=True)


# --- attributes and arguments ------------------------------------------------------------------


def test_types_of_attributes():
    torch = pytest.importorskip("torch")
    config = AlbertConfig(hidden_size=48, num_attention_heads=4)
    config.torch_dtype = torch.float16
    assert config.dtype == config.torch_dtype == "float16"
    config.dtype = torch.bfloat16
    assert json.loads(config.to_json_string())["dtype"] == "bfloat16"
    config.id2label = {"0": "no", "1": "yes", "2": "maybe"}
    assert (config.num_labels, config.id2label[2]) == (3, "maybe")
    config._attn_implementation = "eager"
    assert config.attn_implementation == "eager"
    assert "_attn_implementation" not in config.to_dict()


def test_unknown_arguments_warn(recwarn: pytest.WarningsRecorder):
    config = AlbertConfig(hidden_size=48, num_attention_heads=4, use_cache=False)
    assert config.use_cache is False
    assert not recwarn.list
    values = {"hidden_size": 48, "num_attention_heads": 4, "dropout": 0.1}  # as in PL-BERT's settings
    with pytest.warns(UserWarning, match="no argument") as found:
        config = AlbertConfig(**values, num_layers=2)
    assert [str(one.message).partition(".")[0] for one in found] == [
        "AlbertConfig has no argument 'dropout'",
        "AlbertConfig has no argument 'num_layers' (did you mean 'num_hidden_layers'?)",
    ]
    assert found[0].filename == __file__
    assert config.to_dict()["dropout"] == 0.1
    assert config.hidden_dropout_prob == 0.0


def test_update_in_place():
    config = AlbertConfig(hidden_size=48, num_attention_heads=4)
    config.update({"hidden_size": 96, "num_labels": 3, "torch_dtype": "float16", "use_cache": True})
    assert (config.hidden_size, config.num_labels, config.dtype, config.use_cache) == (96, 3, "float16", True)
    before = copy.deepcopy(config)
    with pytest.raises(ConfigError, match="hidden_size"):
        config.update({"num_labels": 5, "hidden_size": 97})
    assert config == before
    with pytest.raises(ConfigError, match="model_type 'bert'"):
        config.update({"model_type": "bert", "num_labels": 5})
    assert config == before
    config.update(config.to_dict())
    assert config == before


class OwnConfig(AlbertConfig):
    """A config in the style of the documentation of `transformers`."""

    model_type = "own-albert"

    def __init__(self, pooling="cls", scale=None, **kwargs):
        self.pooling = pooling
        super().__init__(**kwargs)
        self.scale = scale


def test_a_subclass_with_arguments_of_its_own(tmp_path: Path, recwarn: pytest.WarningsRecorder):
    config = OwnConfig(pooling="max", hidden_size=48, num_attention_heads=4)
    config.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "own-albert"
    for same in (config, config.replace(), copy.deepcopy(config), OwnConfig.from_pretrained(tmp_path)):
        assert isinstance(same, OwnConfig)
        assert (same.pooling, same.scale, same.hidden_size) == ("max", None, 48)
    changed = OwnConfig.from_pretrained(tmp_path, pooling="mean", scale=2, hidden_size=96)
    assert (changed.pooling, changed.scale, changed.hidden_size) == ("mean", 2, 96)
    assert changed.to_dict()["pooling"] == "mean"
    assert not recwarn.list
    with pytest.raises(ConfigError, match=r"'poling' .did you mean 'pooling'"):
        OwnConfig.from_pretrained(tmp_path, poling="mean")
    with pytest.raises(ConfigError, match="model_type 'own-albert'"):
        AlbertConfig.from_pretrained(tmp_path)


def test_copies_with_changes():
    config = AlbertConfig(hidden_size=48, num_attention_heads=4)
    config.use_cache = False
    config._of_another_library = 1
    copied = config.replace(dtype="float16")
    assert (copied.use_cache, copied._of_another_library, copied.torch_dtype) == (False, 1, "float16")
    assert copied != config
    with pytest.raises(ConfigError, match="dtype and torch_dtype are one setting"):
        config.replace(dtype="float16", torch_dtype="float32")
    with pytest.raises(ConfigError, match=r"'dtyp'.*'dtype'"):
        config.replace(dtyp="float16")


def test_config_for_the_name_of_an_architecture():
    assert AutoConfig.for_model("albert", num_labels=3) == AlbertConfig(num_labels=3)
    with pytest.raises(ConfigError, match=r"model_type 'bert'\. albertkit supports ALBERT only"):
        AutoConfig.for_model("bert")
    with pytest.raises(ConfigError, match=r"'num_label' \(did you mean 'num_labels'\?\)"):
        AutoConfig.for_model("albert", num_label=3)


def test_arguments_that_scripts_for_transformers_pass(tmp_path):
    """`run_glue.py` and similar scripts pass `finetuning_task`. Others pass None as the attention."""
    AlbertConfig(finetuning_task="cola").save_pretrained(tmp_path)
    options = {"finetuning_task": "mrpc", "num_labels": 3, "attn_implementation": None}
    config = AutoConfig.from_pretrained(tmp_path, **options)
    assert (config.finetuning_task, config.num_labels, config.attn_implementation) == ("mrpc", 3, "sdpa")
    assert config.replace(num_labels=2).finetuning_task == "mrpc"


def test_dictionaries_and_json_as_in_transformers(tmp_path: Path) -> None:
    config = AlbertConfig(hidden_size=128, num_attention_heads=4)
    assert config.to_diff_dict() == {"model_type": "albert", "hidden_size": 128, "num_attention_heads": 4}
    assert json.loads(config.to_json_string(use_diff=True)) == config.to_diff_dict()
    config.save_pretrained(tmp_path)
    values, unused = AlbertConfig.get_config_dict(tmp_path, revision="main", other=1)
    assert values == config.to_dict()
    assert unused == {"other": 1}


@pytest.mark.parametrize("name", ["model_type", "pruned_heads", "update", "depth", "is_decoder"])
def test_replace_takes_only_arguments(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        AlbertConfig().replace(**{name: 1})


def test_labels_are_a_dict() -> None:
    with pytest.raises(ConfigError, match="id2label"):
        AlbertConfig().id2label = ["a"]  # type: ignore[assignment]
