"""Tests of `compute_attention`: it returns the attention and the cosines of the model."""

import re
from dataclasses import replace

import numpy as np
import pytest
from engine_rows import SHAPES, rows_of
from inspected_model import SECOND, TEXT, outputs
from modeling_twins import make

from albertkit.checkpoints.arrays import to_arrays
from albertkit.engines.light_model import LightModel
from albertkit.errors import DataError
from albertkit.inspection import attention as attention_module
from albertkit.inspection.attention import InsideEngine, compute_attention
from albertkit.modeling.heads import AlbertForPreTraining


class TestAttention:
    def test_attention_and_cosines_are_those_of_the_model(self, model, tokenizer, report):
        output = outputs(model, tokenizer, TEXT, SECOND)
        assert len(report.layers) == 4
        for layer, expected in zip(report.layers, output.attentions, strict=True):
            np.testing.assert_array_equal(layer.probabilities, expected[0].numpy())
        # (L + 1, T, H)
        hidden = np.stack([states[0].numpy() for states in output.hidden_states]).astype(np.float64)
        unit = hidden / np.linalg.norm(hidden, axis=-1, keepdims=True)
        np.testing.assert_allclose(report.cosine_to_previous, (unit[1:] * unit[:-1]).sum(-1), atol=1e-6)
        np.testing.assert_allclose(report.cosine_to_last, (unit * unit[-1]).sum(-1), atol=1e-6)

    def test_tokens_segments_and_layers_are_listed(self, tokenizer, report):
        encoded = tokenizer(TEXT, SECOND)
        assert report.tokens == tokenizer.convert_ids_to_tokens(encoded["input_ids"])
        assert report.segments == encoded["token_type_ids"]
        assert [position for position, special in enumerate(report.special) if special] == [
            position for position, token in enumerate(report.tokens) if token in ("[CLS]", "[SEP]")
        ]
        assert [layer.stored for layer in report.layers] == [1, 1, 2, 2]

    @pytest.mark.parametrize("shape", SHAPES)
    @pytest.mark.parametrize("head", ["AlbertModel", "AlbertForSequenceClassification"])
    def test_a_light_model_equals_the_pytorch_module(self, head, shape):
        module = make(head, **shape)
        light = LightModel(head, module.config, to_arrays(module.state_dict()))
        rows = rows_of([1, 7, 24])
        for inside, expected in zip(
            InsideEngine(light).run(rows), InsideEngine(module).run(rows), strict=True
        ):
            np.testing.assert_allclose(inside, expected, atol=1e-5)
        assert light.module is None
        wrong = replace(rows[0], input_ids=[60])
        with pytest.raises(DataError, match="Expected 0 to 59"):
            InsideEngine(light).run([wrong])

    def test_a_light_model_converted_to_a_module_uses_the_module(self):
        module = make("AlbertModel")
        light = LightModel("AlbertModel", module.config, to_arrays(module.state_dict()))
        engine, rows = InsideEngine(light), rows_of([9])
        (before,) = engine.run(rows)
        light.to_module().embeddings.word_embeddings.register_forward_hook(lambda *values: -values[-1])
        (after,) = engine.run(rows)
        assert np.abs(after - before).max() > 0.1

    def test_a_model_with_a_head_in_training_mode_uses_its_encoder(self, folder, tokenizer, model):
        with_head = AlbertForPreTraining.from_pretrained(folder).train()
        report, expected = (compute_attention(each, tokenizer, TEXT) for each in (with_head, model))
        np.testing.assert_array_equal(report.layers[-1].probabilities, expected.layers[-1].probabilities)
        assert with_head.training

    def test_limits(self, model, tokenizer, monkeypatch):
        with pytest.raises(DataError, match=r"302 tokens.* maximum is 64"):
            compute_attention(model, tokenizer, "word " * 300)
        assert len(compute_attention(model, tokenizer, "word " * 300, truncation=True).tokens) == 64
        monkeypatch.setattr(attention_module, "MOST_PROBABILITIES", 4 * 4 * 20 * 20 + 1)
        with pytest.raises(DataError, match=r"32 tokens.*at most 20 can be shown"):
            compute_attention(model, tokenizer, "word " * 30)
        report = compute_attention(model, tokenizer, "word " * 30, truncation=True)
        assert (len(report.tokens), report.cut) == (20, 12)

    @pytest.mark.parametrize("texts", [(" ",), ("a", ""), (None,), (["a", "b"],), ("a", 3)])
    def test_what_is_not_a_text_is_an_error(self, model, tokenizer, texts):
        with pytest.raises(DataError, match=f"the text is {re.escape(repr(texts[-1]))}. Expected a string"):
            compute_attention(model, tokenizer, *texts)
