"""Tests of the attributes of AlbertConfig: types, checks at assignment, updates and copies."""

import copy
import json
from pathlib import Path

import pytest

from albertkit.checkpoints.sentence_modules import NORMALIZE_KEY, POOLING_KEY
from albertkit.config import SETTINGS_KEY, AlbertConfig, AutoConfig
from albertkit.errors import ConfigError
from albertkit.tasks.question_answering import THRESHOLD_KEY
from albertkit.tasks.text_classification import PAIRS_KEY

pytestmark = pytest.mark.light


def test_types_of_attributes():
    torch = pytest.importorskip("torch")
    config = AlbertConfig(hidden_size=48, num_attention_heads=4)
    config.torch_dtype = torch.float16
    assert config.dtype == config.torch_dtype == "float16"
    config.dtype = torch.bfloat16
    assert json.loads(config.to_json_string())["dtype"] == "bfloat16"
    config.id2label = {"0": "no", "1": "yes", "2": "maybe"}
    assert (config.num_labels, config.id2label[2]) == (3, "maybe")
    for wrong in ([3], "AlbertModel", 3):
        with pytest.raises(ConfigError, match="architectures must be a list of class names"):
            AlbertConfig(architectures=wrong)
        with pytest.raises(ConfigError, match="architectures"):
            config.replace(architectures=wrong)
    config._attn_implementation = "eager"
    assert config.attn_implementation == "eager"
    assert "_attn_implementation" not in config.to_dict()


def test_unknown_attributes_warn(recwarn: pytest.WarningsRecorder):
    config = AlbertConfig(hidden_size=48, num_attention_heads=4)
    with pytest.raises(ConfigError, match=r"'hiden_size' .did you mean 'hidden_size'"):
        config.hiden_size = 96
    config.use_cache = False  # code for transformers sets it on every config
    for key in (SETTINGS_KEY, PAIRS_KEY, POOLING_KEY, NORMALIZE_KEY, THRESHOLD_KEY):
        setattr(config, key, None)  # the tasks read it
    config._of_another_library = 1
    assert not recwarn.list
    with pytest.warns(UserWarning, match="no argument 'dropout_rate'.*does not change"):
        config.dropout_rate = 0.1
    config.dropout_rate = 0.2  # warns only once
    assert len(recwarn.list) == 0
    assert config.to_dict()["dropout_rate"] == 0.2


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


def test_an_encoder_alone():
    config = AlbertConfig(is_encoder_decoder=False)
    assert config.is_encoder_decoder is False
    config.is_encoder_decoder = False
    with pytest.raises(ConfigError, match="only an encoder"):
        config.is_encoder_decoder = True
    with pytest.raises(ConfigError, match="only an encoder"):
        AlbertConfig.from_dict({"is_encoder_decoder": True})


def test_a_copy_is_made_by_the_constructor():
    class Counted(AlbertConfig):
        made = 0

        def validate(self) -> None:
            type(self).made += 1
            super().validate()

    config = Counted(hidden_size=48, num_attention_heads=4)
    config.use_cache = False
    config._of_another_library = 1
    made = Counted.made
    copied = config.replace(dtype="float16")
    assert Counted.made == made + 1
    assert isinstance(copied, Counted)
    assert (copied.use_cache, copied._of_another_library, copied.torch_dtype) == (False, 1, "float16")
    assert copied != config
    with pytest.raises(ConfigError, match="dtype and torch_dtype are one setting"):
        config.replace(dtype="float16", torch_dtype="float32")
    with pytest.raises(ConfigError, match=r"'dtyp'.*'dtype'"):
        config.replace(dtyp="float16")


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


def test_assigning_values_of_other_architectures_is_an_error():
    config = AlbertConfig(hidden_size=48, num_attention_heads=4)
    with pytest.raises(ConfigError, match="relative_key"):
        config.position_embedding_type = "relative_key"
    with pytest.raises(ConfigError, match="model_type 'bert'"):
        config.model_type = "bert"
    config.model_type = "albert"
    assert config.to_dict()["model_type"] == "albert"


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
