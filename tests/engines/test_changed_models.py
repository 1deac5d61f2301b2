"""Tests that engines follow changes of a model other than changes of its weights."""

import copy
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from engine_rows import CLASSIFIER, assert_equal, rows_of
from modeling_twins import make
from torch import nn

from albertkit.checkpoints.arrays import to_arrays
from albertkit.engines.choosing import make_engine
from albertkit.engines.fitting import MadeFromWeights
from albertkit.engines.light_model import LightModel
from albertkit.engines.plain import evaluating


@pytest.mark.parametrize("name", ["torch", "onnx"])
def test_another_depth(name):
    model, rows = make(CLASSIFIER, num_hidden_layers=3), rows_of([5, 9])
    engine = make_engine(model, name)
    assert_equal(model, rows, engine=engine)
    for layers in (1, 3):
        model.config.num_hidden_layers = layers
        assert_equal(model, rows, engine=engine)


def test_another_depth_of_a_light_model():
    model, rows = make(CLASSIFIER, num_hidden_layers=3), rows_of([5, 9])
    engine = make_engine(LightModel(CLASSIFIER, model.config, to_arrays(model.state_dict())), "onnx")
    for layers in (3, 1):
        model.config.num_hidden_layers = layers
        assert_equal(model, rows, engine=engine)


@pytest.mark.parametrize("name", ["torch", "onnx"])
@pytest.mark.parametrize("edit", ["row", "element", "swapped rows", "swapped columns", "negated row"])
@pytest.mark.parametrize("where", ["ffn", "attention.value", "attention.dense"])
def test_edits_of_the_data_of_a_weight(name, edit, where):
    """PyTorch counts no new version when `.data` is edited."""
    model, rows = make(CLASSIFIER), rows_of([5, 9])
    engine = make_engine(model, name)
    assert_equal(model, rows, engine=engine)
    weight = model.albert.encoder.executed_layers()[0].get_submodule(where).weight
    version = weight._version
    if edit == "row":
        weight.data[7] = 3.0
    elif edit == "element":
        weight.data[3, 5] += 2.0
    elif edit == "swapped rows":
        weight.data[[1, 2]] = weight.data[[2, 1]]
    elif edit == "swapped columns":
        weight.data[:, [1, 2]] = weight.data[:, [2, 1]]
    else:
        weight.data[4] *= -1
    assert weight._version == version
    assert_equal(model, rows, engine=engine)


@pytest.mark.parametrize("name", ["torch", "onnx"])
def test_another_activation(name):
    model, rows = make(CLASSIFIER, hidden_act="gelu_new"), rows_of([5, 9])
    engine = make_engine(model, name)
    assert_equal(model, rows, engine=engine)
    model.albert.encoder.executed_layers()[0].activation = nn.ReLU()
    model.config.hidden_act = "relu"
    assert_equal(model, rows, engine=engine)


@pytest.mark.parametrize("name", ["torch", "onnx"])
def test_another_epsilon(name):
    """The new normalization has the parameters of the old one."""
    model, rows = make(CLASSIFIER), rows_of([5, 9])
    engine = make_engine(model, name)
    assert_equal(model, rows, engine=engine)
    layer = model.albert.encoder.executed_layers()[0]
    norm = nn.LayerNorm(model.config.hidden_size)
    norm.weight, norm.bias = layer.full_layer_layer_norm.weight, layer.full_layer_layer_norm.bias
    layer.full_layer_layer_norm = norm
    for part in model.modules():
        if isinstance(part, nn.LayerNorm):
            part.eps = 0.5
    model.config.layer_norm_eps = 0.5
    assert_equal(model, rows, engine=engine)


@pytest.mark.parametrize("name", ["torch", "onnx", "plain"])
def test_the_mode_of_each_part_is_kept(name):
    """The encoder of a model in training is frozen, or only the encoder is in training."""
    model, rows = make(CLASSIFIER, hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.5), rows_of([5])
    for outer, inner in ((True, False), (False, True)):
        model.train(outer)
        model.albert.train(inner)
        before = [part.training for part in model.modules()]
        assert_equal(model, rows, engine=make_engine(model, name), calls_model=name == "plain")
        assert [part.training for part in model.modules()] == before


def test_the_mode_is_kept_after_an_error():
    model = make(CLASSIFIER).train()
    model.albert.eval()
    with pytest.raises(ValueError, match="exactly one"), evaluating(model):
        model()
    assert model.training
    assert not model.albert.training


@pytest.mark.parametrize("name", ["torch", "onnx"])
def test_another_layer_with_the_same_parameters(name):
    model, rows = make(CLASSIFIER, num_hidden_layers=2), rows_of([5, 9])
    engine = make_engine(model, name)
    assert_equal(model, rows, engine=engine)
    group = model.albert.encoder.albert_layer_groups[0]
    group.albert_layers[0] = copy.copy(group.albert_layers[0])
    assert_equal(model, rows, engine=engine)


def test_threads_replace_outdated_results_at_the_same_time() -> None:
    cache, model, both = MadeFromWeights[int](), nn.Linear(2, 2), Barrier(2)
    cache.get(model, [model], lambda: 0)

    def is_current(_: int) -> bool:
        both.wait(timeout=10)
        return False

    def make() -> int:
        time.sleep(0.05)
        return 1

    with ThreadPoolExecutor(2) as threads:
        made = [threads.submit(cache.get, model, [model], make, is_current=is_current) for _ in range(2)]
        assert [one.result() for one in made] == [1, 1]
