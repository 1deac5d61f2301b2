"""Tests that the engines `onnx` and `onnx-int8` have the scores of the plain engine, in any batch."""

import copy
import itertools
import pickle
import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from engine_rows import (
    ANY_CALL,
    CLASSIFIER,
    OUTPUTS,
    SHAPES,
    WHOLE_TEXT,
    assert_equal,
    assert_equal_call,
    light,
    rows_of,
    some_tokens,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from modeling_twins import HEADS, make, tiny
from new_head import add_new_head, new_model
from torch import nn

from albertkit.checkpoints.arrays import to_arrays, to_numpy
from albertkit.config import ACTIVATION_NAMES
from albertkit.engines.choosing import make_engine
from albertkit.engines.engine import every_token, first_token
from albertkit.engines.onnx import OnnxNetwork, similar_rows
from albertkit.engines.torch import TorchEngine
from albertkit.errors import ConfigError
from albertkit.onnx.graph import COMPUTED_LARGEST, quantize
from albertkit.onnx.network import build_rows


class Rounding(nn.Module):
    """A linear map in int8, computed by its definition."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        numbers, scales = quantize(to_numpy(linear.weight), largest=COMPUTED_LARGEST)
        self.weight, self.bias = torch.from_numpy(numbers * scales), linear.bias

    def forward(self, states):
        scales = states.abs().amax(dim=-1, keepdim=True) / 127
        return nn.functional.linear((states / scales).round() * scales, self.weight, self.bias)


@settings(max_examples=15)
@given(**ANY_CALL)
def test_any_call_equals_the_plain_engine(**call):
    assert_equal_call("onnx", **call)


def test_other_outputs_and_types():
    model = make("AlbertForPreTraining")
    rows = rows_of([9, 3, 9, 20])
    assert_equal(model, rows, engine=make_engine(light(model), "onnx"), output="order")
    assert_equal(
        model, rows, engine=make_engine(light(model), "onnx"), output="hidden_states", read=some_tokens
    )
    assert make_engine(light(model), "onnx").run([]) == []
    half = make(CLASSIFIER).bfloat16()
    assert_equal(half, rows, engine=make_engine(light(half), "onnx"), atol=0.3)


@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
def test_every_activation(activation):
    model = make("AlbertForMaskedLM", hidden_act=activation)
    rows = rows_of([4, 9])
    assert_equal(model, rows, engine=make_engine(light(model), "onnx"), read=every_token)


@pytest.mark.parametrize("values", SHAPES)
def test_a_new_head_needs_only_its_definition_and_its_class(values, monkeypatch):
    add_new_head(monkeypatch)
    model = new_model(tiny(**values))
    rows = rows_of([9, 3, 20])
    for name, atol in (("onnx", 1e-4), ("torch", 1e-4), ("onnx-int8", 0.15)):
        computed = model if name == "torch" else light(model)
        assert_equal(model, rows, engine=make_engine(computed, name), atol=atol, read=every_token)
    exact, rounded = (
        np.concatenate(make_engine(light(model), name).run(rows, read=every_token))
        for name in ("onnx", "onnx-int8")
    )
    assert np.abs(rounded - exact).max() > 0.01  # the layers are computed in int8


def test_all_outputs_share_one_graph(monkeypatch):
    made = []
    original = OnnxNetwork.__init__

    def count(self, *given, **options):
        made.append(options["int8"])
        original(self, *given, **options)

    monkeypatch.setattr(OnnxNetwork, "__init__", count)
    engine = make_engine(light(make(CLASSIFIER)), "onnx")
    for length in (5, 6):
        engine.run(rows_of([length]))
        engine.run(rows_of([length]), output="hidden_states")
    assert made == [False]


def test_copies_and_pickles():
    engine = make_engine(light(make(CLASSIFIER)), "onnx-int8")
    rows = rows_of([5, 9])
    expected = engine.run(rows)
    for other in (copy.deepcopy(engine), pickle.loads(pickle.dumps(engine))):
        np.testing.assert_array_equal(other.run(rows), expected)
        assert other.model is not engine.model


def test_another_depth():
    model, rows = make(CLASSIFIER, num_hidden_layers=3), rows_of([5, 9])
    engine = make_engine(light(model), "onnx")
    for layers in (3, 1):
        model.config.num_hidden_layers = layers
        assert_equal(model, rows, engine=engine)


class TestInt8:
    @pytest.mark.parametrize("head", HEADS)
    def test_the_same_as_a_model_whose_matrices_round(self, head):
        model = make(head)
        rows = rows_of([24, 5, 1, 13])
        options = {"output": OUTPUTS[head], "read": first_token if head in WHOLE_TEXT else every_token}
        exact = np.concatenate(TorchEngine(model, padded=True).run(rows, **options))
        found = np.concatenate(make_engine(light(model), "onnx-int8").run(rows, **options))
        groups = model.base_model.encoder.albert_layer_groups
        for name, part in list(groups.named_modules()):
            if isinstance(part, nn.Linear):
                groups.set_submodule(name, Rounding(part))
        expected = np.concatenate(TorchEngine(model, padded=True).run(rows, **options))
        # Two ways of adding may fall on two sides of a half, here and there.
        assert np.abs(found - expected).mean() < 0.25 * np.abs(exact - expected).mean()

    def test_answers_do_not_depend_on_the_batch(self):
        model = make(CLASSIFIER)
        with torch.no_grad():  # some words have values far above all others'
            model.albert.embeddings.word_embeddings.weight[30:].mul_(50)
        rows = rows_of([24, 5, 1, 13])
        engine = make_engine(light(model), "onnx-int8")
        np.testing.assert_allclose(engine.run(rows), engine.run(rows, batch_size=1), atol=1e-4, rtol=1e-4)

    def test_matrices_are_stored_once_and_no_sum_of_two_products_overflows(self):
        encoder = make("AlbertModel")
        weights = to_arrays(encoder.state_dict())
        graph, _ = build_rows("AlbertModel", encoder.config, weights, int8=True)
        matrices = {
            one.name: one
            for one in graph.graph.initializer
            if len(one.dims) == 2 and ".albert_layers." in one.name
        }
        assert len(matrices) == 6
        for name, one in matrices.items():
            numbers = np.frombuffer(one.raw_data, np.int8).reshape(one.dims)
            assert np.abs(numbers.astype(int)).max() == COMPUTED_LARGEST
            shape = encoder.state_dict()[name].shape
            assert numbers.shape == (shape[1], shape[0])
        assert 2 * 255 * COMPUTED_LARGEST < 2**15

    def test_rows_of_zeros(self):
        model = make(CLASSIFIER)
        with torch.no_grad():
            for parameter in model.albert.encoder.parameters():
                parameter.zero_()
        assert_equal(model, rows_of([3]), engine=make_engine(light(model), "onnx-int8"))


class TestRowsOfDifferentLengths:
    """Attention pads rows, so the rows of a call must have similar lengths."""

    @given(lengths=st.lists(st.integers(1, 512), min_size=1, max_size=60))
    def test_padding_is_bounded_and_nothing_is_lost(self, lengths):
        lengths.sort(reverse=True)
        cuts = similar_rows(lengths)
        assert cuts[0] == 0
        assert cuts[-1] == len(lengths)
        for start, stop in itertools.pairwise(cuts):
            assert (stop - start) * lengths[start] <= 2 * sum(lengths[start:stop])

    def test_rows_of_similar_length_share_a_call(self):
        assert similar_rows(range(40, 19, -1)) == [0, 21]

    @pytest.mark.parametrize("read", [first_token, every_token, some_tokens])
    def test_the_same_as_the_plain_model(self, read):
        model = make(CLASSIFIER)
        rows = rows_of([24, 1, 1, 2, 20, 3] + [2] * 40)
        assert_equal(model, rows, engine=make_engine(light(model), "onnx"), output="hidden_states", read=read)


@pytest.mark.parametrize("kind", ["onnx", "onnx-int8"])
def test_memory_is_flat(kind, resident: Callable[[], int]):
    """Any shapes, again and again, take no more memory."""
    rng = random.Random(0)
    engine = make_engine(light(make(CLASSIFIER)), kind)

    def work(count: int) -> None:
        for _ in range(count):
            rows = rows_of([rng.randint(1, 24) for _ in range(rng.randint(1, 60))])
            engine.run(rows, read=some_tokens, output="hidden_states")

    work(100)
    before = resident()
    work(150)
    assert resident() - before < 4 * 2**20


def test_a_pytorch_model_is_not_computed():
    for name in ("onnx", "onnx-int8"):
        with pytest.raises(ConfigError, match=f"the engine '{name}' computes models that are loaded by name"):
            make_engine(make(CLASSIFIER), name)
