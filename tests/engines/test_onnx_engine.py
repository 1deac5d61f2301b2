"""Tests that the engines `onnx` and `onnx-int8` have the scores of the plain engine, in any batch."""

import copy
import pickle
import random
import warnings
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
from albertkit.engines import onnx_module
from albertkit.engines.batches import Group
from albertkit.engines.choosing import make_engine
from albertkit.engines.engine import every_token, first_token
from albertkit.engines.onnx_engine import OnnxNetwork, _alike
from albertkit.engines.onnx_module import OnnxModuleEngine
from albertkit.engines.plain import PlainEngine
from albertkit.errors import ConfigError, DataError
from albertkit.modeling.layers import FunctionActivation
from albertkit.onnx.int8 import COMPUTED_LARGEST, quantize
from albertkit.onnx.packed import build_rows


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
    assert_equal(model, rows, engine=make_engine(model, "onnx"), output="order")
    assert_equal(model, rows, engine=make_engine(model, "onnx"), output="hidden_states", read=some_tokens)
    assert make_engine(model, "onnx").run([]) == []
    half = make(CLASSIFIER).bfloat16()
    assert_equal(half, rows, engine=make_engine(half, "onnx"), atol=0.3)


def test_the_model_is_not_called(monkeypatch):
    model = make("AlbertForTokenClassification")
    expected = PlainEngine(model).run(rows_of([4, 9]), read=every_token)
    monkeypatch.setattr(PlainEngine, "batches", None)
    for kind in ("onnx", "onnx-int8"):
        found = make_engine(model, kind).run(rows_of([4, 9]), read=every_token)
        assert [one.shape for one in found] == [one.shape for one in expected]


@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
def test_every_activation(activation):
    model = make("AlbertForMaskedLM", hidden_act=activation)
    rows = rows_of([4, 9])
    assert_equal(model, rows, engine=make_engine(model, "onnx"), read=every_token)
    model.albert.encoder.executed_layers()[0].activation = nn.Sigmoid()
    with pytest.warns(UserWarning, match="cannot compute this model"):
        assert_equal(model, rows, engine=make_engine(model, "onnx"), read=every_token, calls_model=True)


class TestChangedModels:
    """The engine warns and calls a model that differs from its config."""

    @pytest.mark.parametrize("change", ["activation", "approximation", "eps", "eps of embeddings", "hook"])
    def test_other_activations_and_norms(self, change):
        model = make(CLASSIFIER, hidden_act="gelu_new")
        (layer,) = dict.fromkeys(model.albert.encoder.executed_layers())
        if change == "activation":
            layer.activation = nn.Tanh()
        elif change == "approximation":
            layer.activation = nn.GELU()
        elif change == "eps":
            layer.attention.LayerNorm.eps = 0.5
        elif change == "eps of embeddings":
            model.albert.embeddings.LayerNorm.eps = 0.5
        else:
            layer.activation.register_forward_hook(lambda *values: -values[-1])
        assert_called(model)

    @pytest.mark.parametrize(
        "change", ["hook", "module", "activation", "approximation", "function", "eps", "untied"]
    )
    def test_other_heads(self, change):
        model = make("AlbertForMaskedLM", hidden_act="gelu_new")
        head = model.predictions
        if change == "untied":
            head.decoder.weight = nn.Parameter(-head.decoder.weight.detach())
        else:
            change_head(head, change, last="decoder")
        assert_called(model, read=every_token)
        assert_equal(model, rows_of([3]), engine=make_engine(model, "onnx"), output="hidden_states")

    @pytest.mark.parametrize("change", ["hook", "module", "activation", "approximation", "function", "eps"])
    def test_the_same_changes_in_a_new_head(self, change, monkeypatch):
        add_new_head(monkeypatch)
        model = new_model(tiny(hidden_act="gelu_new"))
        change_head(model.detector, change, last="scores")
        assert_called(model, read=every_token)

    def test_functions_as_activation(self):
        assert_called(make(CLASSIFIER, hidden_act=torch.tanh))

    def test_wrong_rows_are_an_error_without_a_warning(self):
        engine = make_engine(make(CLASSIFIER), "onnx")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(DataError, match=r"row 0 has 25 tokens\. Expected at most 24"):
                engine.run(rows_of([25]))


def change_head(head: nn.Module, change: str, *, last: str) -> None:
    """Change something that the names and weights of a head's tensors do not tell."""
    if change == "hook":
        head.dense.register_forward_hook(lambda *values: -values[-1])
    elif change == "module":
        linear = getattr(head, last)
        setattr(head, last, Doubled(linear.in_features, linear.out_features))
        getattr(head, last).load_state_dict(linear.state_dict())
    elif change == "eps":
        head.LayerNorm.eps = 0.5
    else:
        activations = {"activation": nn.Tanh(), "approximation": nn.GELU()}
        head.activation = activations.get(change) or FunctionActivation(torch.tanh)


class Doubled(nn.Linear):
    def forward(self, input):
        return 2 * super().forward(input)


def assert_called(model, **options) -> None:
    for name in ("onnx", "onnx-int8"):
        with pytest.warns(UserWarning, match=f"the engine '{name}' cannot compute this model"):
            assert_equal(model, rows_of([3, 7]), engine=make_engine(model, name), calls_model=True, **options)


@pytest.mark.parametrize("values", SHAPES)
def test_a_new_head_needs_only_its_definition_and_its_class(values, monkeypatch):
    add_new_head(monkeypatch)
    model = new_model(tiny(**values))
    rows = rows_of([9, 3, 20])
    for name, atol in (("onnx", 1e-4), ("torch", 1e-4), ("onnx-int8", 0.15)):
        assert_equal(model, rows, engine=make_engine(model, name), atol=atol, read=every_token)
    exact, rounded = (
        np.concatenate(make_engine(model, name).run(rows, read=every_token)) for name in ("onnx", "onnx-int8")
    )
    assert np.abs(rounded - exact).max() > 0.01  # the layers are computed in int8


class TestWeightsThatChange:
    @pytest.mark.parametrize("where", ["ffn", "attention.query", "attention.LayerNorm"])
    def test_answers_are_those_of_the_weights_as_they_are(self, where):
        model = make(CLASSIFIER)
        engine, rows = make_engine(model, "onnx"), rows_of([5, 9])
        engine.run(rows)
        part = model.albert.encoder.executed_layers()[0].get_submodule(where)
        with torch.no_grad():
            part.weight.mul_(0.5)
        assert_equal(model, rows, engine=engine)
        part.bias.data.add_(0.3)  # changes no version
        assert_equal(model, rows, engine=engine)

    def test_made_once_for_each_model(self, monkeypatch):
        made = []
        original = OnnxNetwork.__init__

        def count(self, *given, **options):
            made.append(options["int8"])
            original(self, *given, **options)

        monkeypatch.setattr(OnnxNetwork, "__init__", count)
        model = make(CLASSIFIER)
        for length in (5, 6):
            for kind in ("onnx", "onnx-int8"):
                make_engine(model, kind).run(rows_of([length]))
            make_engine(model, "onnx").run(rows_of([length]), output="hidden_states")
        assert made == [False, True]  # all outputs share one
        known = len(onnx_module._ENGINES._made)
        del model
        assert len(onnx_module._ENGINES._made) == known - 1

    def test_copies_and_pickles(self):
        engine = make_engine(make(CLASSIFIER), "onnx-int8")
        rows = rows_of([5, 9])
        expected = engine.run(rows)
        for other in (copy.deepcopy(engine), pickle.loads(pickle.dumps(engine))):
            np.testing.assert_array_equal(other.run(rows), expected)
            assert other.model is not engine.model


class TestInt8:
    @pytest.mark.parametrize("head", HEADS)
    def test_the_same_as_a_model_whose_matrices_round(self, head):
        model = make(head)
        rows = rows_of([24, 5, 1, 13])
        options = {"output": OUTPUTS[head], "read": first_token if head in WHOLE_TEXT else every_token}
        exact = np.concatenate(PlainEngine(model).run(rows, **options))
        found = np.concatenate(make_engine(model, "onnx-int8").run(rows, **options))
        for layer in dict.fromkeys(model.base_model.encoder.executed_layers()):
            for name, part in list(layer.named_modules()):
                if isinstance(part, nn.Linear):
                    layer.set_submodule(name, Rounding(part))
        expected = np.concatenate(PlainEngine(model).run(rows, **options))
        # Two ways of adding may fall on two sides of a half, here and there.
        assert np.abs(found - expected).mean() < 0.25 * np.abs(exact - expected).mean()

    def test_answers_do_not_depend_on_the_batch(self):
        model = make(CLASSIFIER)
        with torch.no_grad():  # some words have values far above all others'
            model.albert.embeddings.word_embeddings.weight[30:].mul_(50)
        rows = rows_of([24, 5, 1, 13])
        engine = make_engine(model, "onnx-int8")
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

    def test_rounding(self):
        matrix = np.array([[0.5, -1.0, 0.26], [0.0, 0.0, 0.0]], np.float32)
        numbers, scales = quantize(matrix, largest=4)
        assert numbers.tolist() == [[2, -4, 1], [0, 0, 0]]
        assert scales.tolist() == [[0.25], [1.0]]
        again, _ = quantize(numbers * scales, largest=4)
        assert (again == numbers).all()

    def test_rows_of_zeros(self):
        model = make(CLASSIFIER)
        with torch.no_grad():
            for parameter in model.albert.encoder.parameters():
                parameter.zero_()
        assert_equal(model, rows_of([3]), engine=make_engine(model, "onnx-int8"))


class TestRowsOfDifferentLengths:
    """Attention pads rows, so the rows of a call must have similar lengths."""

    @given(lengths=st.lists(st.integers(1, 512), min_size=1, max_size=60))
    def test_padding_is_bounded_and_nothing_is_lost(self, lengths):
        groups = [Group(1, length, 1) for length in sorted(lengths, reverse=True)]
        runs = list(_alike(groups))
        assert [group for run in runs for group in run] == groups
        for run in runs:
            assert len(run) * run[0].length <= 2 * sum(group.length for group in run)

    def test_rows_of_similar_length_share_a_call(self):
        assert len(list(_alike([Group(1, length, 1) for length in range(40, 19, -1)]))) == 1

    @pytest.mark.parametrize("read", [first_token, every_token, some_tokens])
    def test_the_same_as_the_plain_model(self, read):
        model = make(CLASSIFIER)
        rows = rows_of([24, 1, 1, 2, 20, 3] + [2] * 40)
        assert_equal(model, rows, engine=OnnxModuleEngine(model), output="hidden_states", read=read)


@pytest.mark.parametrize("kind", ["onnx", "onnx-int8"])
def test_memory_is_flat(kind, resident: Callable[[], int]):
    """Any shapes, again and again, take no more memory."""
    rng = random.Random(0)
    engine = make_engine(make(CLASSIFIER), kind)

    def work(count: int) -> None:
        for _ in range(count):
            rows = rows_of([rng.randint(1, 24) for _ in range(rng.randint(1, 60))])
            engine.run(rows, read=some_tokens, output="hidden_states")

    work(100)
    before = resident()
    work(150)
    assert resident() - before < 4 * 2**20


class TestChoosing:
    def test_names(self):
        model = make(CLASSIFIER)
        for name in ("onnx", "onnx-int8"):
            engine = make_engine(model, name)
            assert isinstance(engine, OnnxModuleEngine)
            assert engine.int8 == (name == "onnx-int8")

    def test_other_devices(self):
        with pytest.raises(ConfigError, match=r"on meta, but the engine 'onnx' computes on the CPU"):
            make_engine(make(CLASSIFIER).to("meta"), "onnx")
