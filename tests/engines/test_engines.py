"""Tests that the PyTorch engine has the scores of the plain engine, also after changes of the model."""

import copy
import pickle
import warnings

import numpy as np
import pytest
import torch
from engine_rows import ANY_CALL, CLASSIFIER, OUTPUTS, assert_equal, assert_equal_call, rows_of, some_tokens
from hypothesis import given, settings
from modeling_twins import make
from torch import nn

from albertkit.engines import packed_layers
from albertkit.engines.choosing import make_engine
from albertkit.engines.engine import Row, every_token
from albertkit.engines.fitting import fits
from albertkit.engines.packed_layers import can_reorder
from albertkit.engines.plain import PlainEngine
from albertkit.engines.torch_engine import TorchEngine
from albertkit.errors import CheckpointError, DataError


def computed_by_weights(monkeypatch) -> None:
    """Let every call of a model fail, to show that the engine does not call it."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the plain model was called")

    monkeypatch.setattr(PlainEngine, "batches", refuse)


class TestScores:
    @settings(max_examples=25)
    @given(**ANY_CALL)
    def test_any_call(self, **call):
        assert fits(make(call["head"], **call["shape"]))
        assert_equal_call("torch", **call)

    def test_the_order_of_sentences(self):
        assert_equal(make("AlbertForPreTraining"), rows_of([9, 3, 9, 20]), output="order")

    def test_features_of_any_model(self):
        for head in OUTPUTS:
            assert_equal(make(head), rows_of([5, 24, 1]), output="hidden_states", read=some_tokens)

    def test_at_the_size_of_base(self):
        size = {
            "hidden_size": 768,
            "num_attention_heads": 12,
            "intermediate_size": 3072,
            "embedding_size": 128,
            "num_hidden_layers": 12,
            "initializer_range": 0.02,
        }
        assert_equal(make(CLASSIFIER, **size), rows_of([24, 24, 17, 5, 1]))

    def test_without_packed_matrices(self, monkeypatch):
        model = make("AlbertForMaskedLM")
        monkeypatch.setattr("albertkit.engines.torch_engine.can_reorder", lambda dtype: False)
        assert_equal(model, rows_of([5, 24, 5, 7]), read=some_tokens)

    def test_the_training_mode_is_kept(self):
        model = make(CLASSIFIER, hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.5).train()
        assert_equal(model, rows_of([5, 24, 5, 7]))
        assert model.training
        assert model.albert.encoder.training

    def test_in_bfloat16(self):
        model = make(CLASSIFIER).bfloat16()
        assert_equal(model, rows_of([5, 24, 5, 7]), atol=0.3)

    def test_with_and_without_autocast(self):
        """A run in bfloat16 evaluates under autocast, which oneDNN's own products ignore."""
        engine, rows = TorchEngine(make(CLASSIFIER)), rows_of([5, 24, 5, 7])
        before = engine.run(rows)
        can_reorder.cache_clear()  # as in the first evaluation of a process
        for _ in range(2):
            with torch.autocast("cpu", torch.bfloat16):
                np.testing.assert_allclose(engine.run(rows), before, atol=0.3)
        np.testing.assert_array_equal(engine.run(rows), before)
        found = can_reorder(torch.float32)
        can_reorder.cache_clear()
        assert can_reorder(torch.float32) == found

    def test_no_rows(self):
        assert TorchEngine(make(CLASSIFIER)).run([]) == []

    def test_without_calling_the_model(self, monkeypatch):
        model = make("AlbertForTokenClassification")
        expected = PlainEngine(model).run(rows_of([4, 9]), read=every_token)
        computed_by_weights(monkeypatch)
        found = TorchEngine(model).run(rows_of([4, 9]), read=every_token)
        assert [one.shape for one in found] == [one.shape for one in expected] == [(4, 2), (9, 2)]


class TestChangedModels:
    """The engine calls a model that differs from its weights and config."""

    def test_hooks_are_called(self):
        model, seen = make(CLASSIFIER), []
        engine = TorchEngine(model)
        engine.run(rows_of([3]))
        layer = model.albert.encoder.executed_layers()[0]
        hook = layer.ffn.register_forward_hook(lambda *_: seen.append(1))
        assert_equal(model, rows_of([3, 7]), engine=engine, calls_model=True)
        assert seen
        hook.remove()
        seen.clear()
        assert_equal(model, rows_of([3, 7]), engine=engine)
        assert not seen

    def test_hooks_for_all_modules(self):
        seen = []
        hook = nn.modules.module.register_module_forward_hook(lambda *_: seen.append(1))
        try:
            TorchEngine(make(CLASSIFIER)).run(rows_of([3]))
        finally:
            hook.remove()
        assert seen

    def test_other_modules(self):
        class Doubled(nn.Linear):
            def forward(self, input):
                return 2 * super().forward(input)

        model = make(CLASSIFIER)
        model.albert.encoder.executed_layers()[0].ffn = Doubled(32, 48)
        assert not fits(model)
        assert_equal(model, rows_of([3, 7]), calls_model=True)

    def test_a_derived_class(self):
        class Negated(type(make(CLASSIFIER))):
            def forward(self, *inputs, **options):
                output = super().forward(*inputs, **options)
                output.logits = -output.logits
                return output

        model = make(CLASSIFIER)
        own = Negated(model.config).eval()
        own.load_state_dict(model.state_dict())
        (found,) = TorchEngine(own).run(rows_of([5]))
        np.testing.assert_allclose(found, -PlainEngine(model).run(rows_of([5]))[0], rtol=1e-6)

    def test_an_engine_chosen_by_name_warns(self):
        model = make(CLASSIFIER)
        rows = rows_of([5])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            make_engine(model, "torch").run(rows)
            hook = model.albert.pooler.register_forward_hook(lambda *_: None)
            make_engine(model).run(rows)  # `auto` may choose any engine
        with pytest.warns(UserWarning, match=r"the engine 'torch' cannot compute this model") as caught:
            make_engine(model, "torch").run(rows)
        assert [one.filename for one in caught] == [__file__]
        hook.remove()

    def test_a_replaced_forward(self):
        model = make(CLASSIFIER)
        model.classifier.forward = lambda states: states[:, :2] * 0 + 7
        assert TorchEngine(model).run(rows_of([5]))[0].tolist() == [[7, 7]]

    def test_eager_attention(self):
        assert not fits(make(CLASSIFIER, attn_implementation="eager"))

    def test_wrong_ids_and_long_rows_are_an_error(self):
        engine = TorchEngine(make(CLASSIFIER))
        with pytest.raises(DataError, match=r"row 0 has 60 among its input_ids\. Expected 0 to 59"):
            engine.run([Row(input_ids=[60], token_type_ids=[0], example=0)])
        with pytest.raises(DataError, match=r"row 0 has 25 tokens\. Expected at most 24"):
            engine.run(rows_of([25]))


class TestChangedWeights:
    """Packed matrices are copies, so they must follow each change of the weights."""

    @pytest.mark.parametrize("where", ["ffn", "ffn_output", "attention.key", "attention.dense"])
    def test_every_way_to_change_a_matrix(self, where):
        model = make(CLASSIFIER)
        engine = TorchEngine(model)
        rows = rows_of([5, 9])
        engine.run(rows)
        linear = model.albert.encoder.executed_layers()[0].get_submodule(where)
        with torch.no_grad():
            linear.weight.mul_(0.5)
        assert_equal(model, rows, engine=engine)
        linear.weight.data.mul_(0.5)  # does not change the version
        assert_equal(model, rows, engine=engine)
        linear.bias.data = linear.bias.data + 0.3
        assert_equal(model, rows, engine=engine)
        linear.weight = nn.Parameter(torch.randn_like(linear.weight))
        assert_equal(model, rows, engine=engine)

    def test_training_continues(self):
        model = make(CLASSIFIER)
        engine, rows = TorchEngine(model), rows_of([5, 9])
        before = engine.run(rows)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        ids = torch.tensor([rows[1].input_ids])
        model(ids, labels=torch.tensor([1])).loss.backward()
        optimizer.step()
        assert_equal(model, rows, engine=engine)
        assert not np.allclose(before[0], engine.run(rows)[0])

    def test_loading(self):
        model = make(CLASSIFIER)
        engine, rows = TorchEngine(model), rows_of([5, 9])
        engine.run(rows)
        assert_equal(model, rows, engine=engine)
        other = make(CLASSIFIER, seed=1)
        model.load_state_dict(other.state_dict())
        assert_equal(model, rows, engine=engine)

    def test_matrices_are_packed_once(self, monkeypatch):
        packed = []
        original = packed_layers.ReorderedLinear.__init__

        def count(self, *inputs, **options):
            packed.append(1)
            original(self, *inputs, **options)

        monkeypatch.setattr(packed_layers.ReorderedLinear, "__init__", count)
        engine = TorchEngine(make(CLASSIFIER))
        can_reorder(torch.float32)
        packed.clear()
        for length in (5, 6, 7):
            engine.run(rows_of([length]))
        assert len(packed) == 5  # query, key, value, dense and the two matrices of the feed-forward network

    def test_inference_tensors_are_not_packed(self):
        with torch.inference_mode():
            model = make(CLASSIFIER)
        assert not fits(model)
        assert_equal(model, rows_of([5, 9]), calls_model=True)

    def test_copies_and_pickles(self):
        engine = TorchEngine(make(CLASSIFIER))
        rows = rows_of([5, 9])
        expected = engine.run(rows)
        for other in (copy.deepcopy(engine), pickle.loads(pickle.dumps(engine))):
            np.testing.assert_array_equal(other.run(rows), expected)
            assert other.model is not engine.model


@pytest.mark.parametrize("engine", ["onnx", "onnx-int8", "torch", "plain"])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_scores_that_are_not_finite_are_an_error(engine: str, bad: float) -> None:
    model = make(CLASSIFIER)
    with torch.no_grad():
        model.classifier.bias[0] = bad
    with pytest.raises(CheckpointError, match=r"scores are NaN or infinite.* --verify"):
        make_engine(model, engine).run(rows_of([5, 3]))
