"""Tests that the PyTorch engine has the scores of the plain engine, also after changes of the model."""

import numpy as np
import pytest
import torch
from engine_rows import (
    ANY_CALL,
    CLASSIFIER,
    OUTPUTS,
    assert_equal,
    assert_equal_call,
    engine_of,
    rows_of,
    some_tokens,
)
from hypothesis import given, settings
from modeling_twins import make
from torch import nn

from albertkit.engines.choosing import make_engine
from albertkit.engines.engine import Row, every_token
from albertkit.engines.torch import TorchEngine, evaluating
from albertkit.errors import CheckpointError, DataError


class TestScores:
    @settings(max_examples=25)
    @given(**ANY_CALL)
    def test_any_call(self, **call):
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

    def test_in_bfloat16(self):
        model = make(CLASSIFIER).bfloat16()
        assert_equal(model, rows_of([5, 24, 5, 7]), atol=0.3)

    def test_with_and_without_autocast(self):
        """A run in bfloat16 evaluates under autocast."""
        engine, rows = TorchEngine(make(CLASSIFIER)), rows_of([5, 24, 5, 7])
        before = engine.run(rows)
        with torch.autocast("cpu", torch.bfloat16):
            np.testing.assert_allclose(engine.run(rows), before, atol=0.3)
        np.testing.assert_array_equal(engine.run(rows), before)


class TestChangedModels:
    """Hooks, other modules and edited weights have their effect, because the engine calls the model."""

    def test_hooks_are_called_with_padded_rows(self):
        model, seen = make(CLASSIFIER), []
        engine = TorchEngine(model)
        layer = model.albert.encoder.albert_layer_groups[0].albert_layers[0]
        hook = layer.ffn.register_forward_hook(lambda _, __, output: seen.append(output.shape[:2]))
        assert_equal(model, rows_of([3, 7]), is_padded=True)
        seen.clear()
        engine.run(rows_of([3, 7]))
        assert set(seen) == {(2, 7)}
        hook.remove()
        assert_equal(model, rows_of([3, 7]))

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
        rows = rows_of([3, 7])
        before = TorchEngine(model).run(rows)
        model.albert.encoder.albert_layer_groups[0].albert_layers[0].ffn = Doubled(32, 48)
        assert_equal(model, rows, is_padded=True)
        assert not np.allclose(TorchEngine(model).run(rows)[0], before[0])

    @pytest.mark.parametrize("change", ["activation", "norm", "decoder", "eps", "depth"])
    def test_other_parts_of_torch(self, change):
        model = make("AlbertForMaskedLM", hidden_act="gelu_new")
        rows = rows_of([5, 9])
        before = TorchEngine(model).run(rows)
        if change == "activation":
            model.predictions.activation = nn.Tanh()
        elif change == "norm":
            model.albert.encoder.albert_layer_groups[0].albert_layers[0].full_layer_layer_norm = nn.LayerNorm(
                32
            )
        elif change == "decoder":
            model.predictions.decoder.weight = nn.Parameter(-model.predictions.decoder.weight.detach())
        elif change == "eps":
            model.predictions.LayerNorm.eps = 0.5
        else:
            model.config.num_hidden_layers = 1
        assert_equal(model, rows, read=every_token)
        assert not np.allclose(TorchEngine(model).run(rows)[0], before[0])

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
        np.testing.assert_allclose(found, -TorchEngine(model).run(rows_of([5]))[0], rtol=1e-5)

    def test_a_replaced_forward(self):
        model = make(CLASSIFIER)
        model.classifier.forward = lambda states: states[:, :2] * 0 + 7
        assert TorchEngine(model).run(rows_of([5]))[0].tolist() == [[7, 7]]

    def test_compiled_layers_get_padded_rows(self):
        model = make(CLASSIFIER)
        model.albert.encoder.albert_layer_groups[0].albert_layers[0].compile(backend="eager")
        assert_equal(model, rows_of([5, 9]), is_padded=True)

    def test_eager_attention(self):
        assert_equal(make(CLASSIFIER, attn_implementation="eager"), rows_of([5, 9, 9]))

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

    def test_inference_tensors(self):
        with torch.inference_mode():
            model = make(CLASSIFIER)
        assert_equal(model, rows_of([5, 9]))

    def test_wrong_ids_and_long_rows_are_an_error(self):
        engine = TorchEngine(make(CLASSIFIER))
        with pytest.raises(DataError, match=r"row 0 has 60 among its input_ids\. Expected 0 to 59"):
            engine.run([Row(input_ids=[60], token_type_ids=[0], example=0)])
        with pytest.raises(DataError, match=r"row 0 has 25 tokens\. Expected at most 24"):
            engine.run(rows_of([25]))


class TestModes:
    @pytest.mark.parametrize("name", ["torch", "plain"])
    def test_the_mode_of_each_part_is_kept(self, name):
        """The encoder of a model in training is frozen, or only the encoder is in training."""
        model = make(CLASSIFIER, hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.5)
        for outer, inner in ((True, False), (False, True)):
            model.train(outer)
            model.albert.train(inner)
            before = [part.training for part in model.modules()]
            assert_equal(model, rows_of([5]), engine=make_engine(model, name))
            assert [part.training for part in model.modules()] == before

    def test_the_mode_is_kept_after_an_error(self):
        model = make(CLASSIFIER).train()
        model.albert.eval()
        with pytest.raises(ValueError, match="exactly one"), evaluating(model):
            model()
        assert model.training
        assert not model.albert.training


@pytest.mark.parametrize("engine", ["onnx", "onnx-int8", "torch", "plain"])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_scores_that_are_not_finite_are_an_error(engine: str, bad: float) -> None:
    model = make(CLASSIFIER)
    with torch.no_grad():
        model.classifier.bias[0] = bad
    with pytest.raises(CheckpointError, match=r"scores are NaN or infinite.* --verify"):
        engine_of(model, engine).run(rows_of([5, 3]))
