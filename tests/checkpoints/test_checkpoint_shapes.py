"""Tests of the tensor shapes that follow from a config: they equal those of the PyTorch classes."""

from typing import Any, Literal

import numpy as np
import pytest
import torch

import albertkit
from albertkit.checkpoints.match import architecture_of, expected_shapes, fit
from albertkit.config import AlbertConfig
from albertkit.errors import ConfigError
from albertkit.heads import HEADS

SIZES: dict[str, Any] = {
    "vocab_size": 11,
    "embedding_size": 6,
    "hidden_size": 8,
    "num_attention_heads": 4,
    "intermediate_size": 10,
    "num_hidden_layers": 4,
    "max_position_embeddings": 7,
    "type_vocab_size": 3,
}
GROUPS: dict[str, Any] = {"num_hidden_groups": 2, "inner_group_num": 3}
CONFIGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "groups and inner layers": GROUPS,
    "untied": {"tie_word_embeddings": False},
    "five labels": {"num_labels": 5},
    "one label": {"num_labels": 1},
    "embeddings as wide as the layers": {"embedding_size": 8},
    "one segment": {"type_vocab_size": 1},
}


def shapes_of_class(architecture: str, config: AlbertConfig) -> list[tuple[str, tuple[int, ...]]]:
    """Return the names and shapes of the tensors of a PyTorch class."""
    with torch.device("meta"):
        model = getattr(albertkit, architecture)(config)
    return [(name, tuple(tensor.shape)) for name, tensor in model.state_dict().items()]


@pytest.mark.parametrize("architecture", HEADS)
@pytest.mark.parametrize("values", CONFIGS.values(), ids=CONFIGS)
def test_shapes_equal_those_of_the_class(architecture: str, values: dict) -> None:
    config = AlbertConfig(**SIZES | values)
    assert list(expected_shapes(architecture, config).items()) == shapes_of_class(architecture, config)


@pytest.mark.parametrize("size", ["base", "large", "xlarge", "xxlarge"])
def test_shapes_of_the_published_models(size: Literal["base", "large", "xlarge", "xxlarge"]) -> None:
    config = AlbertConfig.preset(size)
    shapes = list(expected_shapes("AlbertForPreTraining", config).items())
    assert shapes == shapes_of_class("AlbertForPreTraining", config)


@pytest.mark.parametrize("architecture", HEADS)
def test_architecture_of_the_tensors_of_each_class(architecture: str) -> None:
    config = AlbertConfig(**SIZES, architectures=[architecture])
    names = expected_shapes(architecture, config)
    assert architecture_of(config, names) == architecture


@pytest.mark.parametrize(
    "architectures", [None, [], ["BertForSequenceClassification"], ["AlbertPreTrainedModel"]]
)
def test_a_classifier_of_an_unknown_class_classifies_sequences(architectures: list[str] | None) -> None:
    config = AlbertConfig(**SIZES, architectures=architectures)
    names = expected_shapes("AlbertForTokenClassification", config)
    assert architecture_of(config, names) == "AlbertForSequenceClassification"


def test_an_unknown_class() -> None:
    with pytest.raises(ConfigError, match=r"'AlbertForMaskedLm' is not .*did you mean 'AlbertForMaskedLM'"):
        expected_shapes("AlbertForMaskedLm", AlbertConfig(**SIZES))


def test_fitted_tensors_are_in_the_order_of_the_model() -> None:
    config = AlbertConfig(**SIZES)
    shapes = expected_shapes("AlbertForMaskedLM", config)
    tensors = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    fitted, report = fit("AlbertForMaskedLM", config, dict(reversed(tensors.items())))
    assert list(fitted) == list(tensors)
    assert report.ok
