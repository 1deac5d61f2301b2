"""Tests that code written for transformers can pass its objects and options, with equal results."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from modeling_twins import HEADS, TINY, batch, largest_difference, make

import albertkit
from albertkit.errors import ConfigError

VALUES: dict[str, Any] = {
    "hidden_act": "relu",
    "hidden_dropout_prob": 0.1,
    "num_hidden_groups": 3,
    "name_of_a_project": "inn",
}


@pytest.mark.parametrize("head", HEADS)
def test_a_model_of_a_config_of_transformers(head: str) -> None:
    config: Any = transformers.AutoConfig.for_model("albert", **TINY, **VALUES)
    model = HEADS[head](config)
    assert isinstance(model.config, albertkit.AlbertConfig)
    expected = getattr(transformers, head)(config)
    assert {name: tensor.shape for name, tensor in model.state_dict().items()} == {
        name: tensor.shape for name, tensor in expected.state_dict().items()
    }
    model.load_state_dict(expected.state_dict())
    ours, theirs = model.eval()(**batch(head)), expected.eval()(**batch(head))
    assert largest_difference(ours.to_tuple()[0], theirs.to_tuple()[0]) < 1e-5


def test_values_of_a_config_of_transformers() -> None:
    theirs = transformers.AlbertConfig(
        **TINY, **VALUES, num_labels=3, attn_implementation="eager", problem_type="regression", tie_word_embeddings=False
    )
    config = albertkit.AutoModelForMaskedLM.from_config(theirs).config
    for name in (*TINY, *VALUES, "problem_type", "tie_word_embeddings", "id2label", "label2id"):
        assert getattr(config, name) == getattr(theirs, name), name
    assert config.attn_implementation == "eager"
    assert "_name_or_path" not in config.to_dict()
    assert config.to_dict()["name_of_a_project"] == "inn"


def test_weights_with_a_config_of_transformers(tmp_path: Path) -> None:
    model = make("AlbertForMaskedLM")
    model.save_pretrained(tmp_path)
    theirs: Any = transformers.AutoConfig.from_pretrained(tmp_path)
    theirs.output_hidden_states = True
    loaded = albertkit.AlbertForMaskedLM.from_pretrained(tmp_path, config=theirs, num_hidden_layers=2)
    assert len(loaded(**batch()).hidden_states) == 3


def test_a_pipeline_with_a_config_of_transformers(tmp_path: Path) -> None:
    albertkit.AutoConfig.from_pretrained("bundled").save_pretrained(tmp_path)
    theirs: Any = transformers.AutoConfig.from_pretrained(tmp_path, num_hidden_layers=2)
    text = "She opened the [MASK]."
    answers = albertkit.pipeline("fill-mask", "bundled", config=theirs)(text)
    model = albertkit.AlbertForMaskedLM.from_pretrained("bundled", num_hidden_layers=2)
    expected = albertkit.pipeline("fill-mask", model, tokenizer="bundled")(text)
    assert [answer["token"] for answer in answers] == [answer["token"] for answer in expected]


@pytest.mark.parametrize("config", [{}, None, 3, transformers.BertConfig(), transformers.T5Config()])
def test_other_configs_are_an_error(config: Any) -> None:
    with pytest.raises(ConfigError, match="config"):
        albertkit.AlbertModel(config)
