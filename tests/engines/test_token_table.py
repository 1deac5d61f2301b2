"""Tests of networks that mix no tokens: their hidden states are looked up, and equal those of the engines."""

from typing import Any

import numpy as np
import pytest
from engine_rows import rows_of

from albertkit.checkpoints.match import expected_shapes
from albertkit.config import AlbertConfig
from albertkit.engines.choosing import load_model, make_engine
from albertkit.engines.engine import BATCH_TOKENS, Row, every_token
from albertkit.engines.light_model import LightModel
from albertkit.engines.onnx import LightEngine
from albertkit.engines.token_table import mixes_no_tokens
from albertkit.errors import CheckpointError, DataError
from albertkit.hub import BUNDLED_SENTENCES
from albertkit.pipelines import pipeline
from albertkit.reference import forward

LAYER = "encoder.albert_layer_groups.0.albert_layers.0"
SHAPE: dict[str, Any] = {
    **{"vocab_size": 60, "embedding_size": 16, "hidden_size": 32, "num_attention_heads": 2},
    **{"intermediate_size": 64, "max_position_embeddings": 64, "num_hidden_layers": 3},
}
TEXTS = ["The captain opened the door.", "A quiet evening.", "It rained " * 40, "A quiet evening."]


def make(*, zero: tuple[str, ...] = ("attention.dense",), **shape: Any) -> LightModel:
    """Return a model with random weights, except that these parts of its layer are zero."""
    config = AlbertConfig(**SHAPE | shape)
    normal = np.random.default_rng(0).standard_normal
    shapes = expected_shapes("AlbertModel", config)
    weights = {name: normal(size).astype(np.float32) / 4 for name, size in shapes.items()}
    for table in ("position", "token_type"):
        weights[f"embeddings.{table}_embeddings.weight"][:] = 0.5
    for part in zero:
        weights[f"{LAYER}.{part}.weight"][:] = 0
    return LightModel("AlbertModel", config, weights)


def by_definition(model: LightModel, row: Row) -> np.ndarray:
    segments = np.array([row.token_type_ids])
    return forward(
        model.architecture, model.config, model.weights, np.array([row.input_ids]), token_type_ids=segments
    )["hidden_states"][-1][0]


class CountedRows:
    """Counts the tokens that the engine `onnx` computes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tokens = 0
        compute = LightEngine.batches

        def batches(engine: LightEngine, rows: Any, job: Any) -> Any:
            self.tokens += sum(len(row.input_ids) for row in rows)
            return compute(engine, rows, job)

        monkeypatch.setattr(LightEngine, "batches", batches)


class TestHiddenStates:
    @pytest.mark.parametrize("zero", ["attention.dense", "attention.value"])
    @pytest.mark.parametrize("engine", ["onnx", "onnx-int8"])
    def test_equal_those_of_the_reference(self, zero, engine):
        model, rows = make(zero=(zero,)), rows_of([24, 5, 1, 13, 5])
        states = make_engine(model, engine).run(rows, output="hidden_states", read=every_token)
        for row, of_row in zip(rows, states, strict=True):
            assert of_row.shape == (len(row.input_ids), 32)
            tolerance = 1e-5 if engine == "onnx" else 0.3
            np.testing.assert_allclose(of_row, by_definition(model, row), rtol=0, atol=tolerance)

    def test_are_computed_once_for_each_id(self, monkeypatch):
        counted, engine, rows = CountedRows(monkeypatch), make_engine(make(), "onnx"), rows_of([24, 30, 13])
        engine.run(rows, output="hidden_states", read=every_token)
        distinct = {one for row in rows for one in row.input_ids}
        assert counted.tokens == len(distinct)
        engine.run(rows, output="hidden_states", read=every_token)
        assert counted.tokens == len(distinct)

    def test_of_some_tokens_in_any_order_and_of_none(self):
        model, rows = make(), rows_of([9, 4, 7])
        reads = [(3, 0, 3), (), (6,)]
        states = make_engine(model).run(rows, output="hidden_states", read=lambda row: reads[row.example])
        for row, read, of_row in zip(rows, reads, states, strict=True):
            assert of_row.shape == (len(read), 32)
            np.testing.assert_allclose(of_row, by_definition(model, row)[list(read)], atol=1e-5)

    def test_stacks_reduce_rows_of_equal_length_together(self):
        engine, rows = make_engine(make()), rows_of([7, 3, 7, 7, BATCH_TOKENS // 20] * 9)
        options = {"output": "hidden_states", "read": every_token}
        shapes = []

        def mean(states: np.ndarray) -> np.ndarray:
            shapes.append(states.shape)
            return states.mean(axis=-2)

        stacked = engine.run(rows, then=mean, stacks=True, **options)
        assert {len(shape) for shape in shapes} == {3}
        assert len(shapes) < len(rows)
        for left, right in zip(stacked, engine.run(rows, then=mean, **options), strict=True):
            np.testing.assert_array_equal(left, right)

    def test_follow_a_changed_depth(self):
        model, (row,) = make(), rows_of([6])
        engine = make_engine(model)
        engine.run([row], output="hidden_states", read=every_token)
        model.config.num_hidden_layers = 1
        (states,) = engine.run([row], output="hidden_states", read=every_token)
        np.testing.assert_allclose(states, by_definition(model, row), atol=1e-5)

    def test_wrong_rows_are_errors(self):
        engine = make_engine(make())
        for ids, segments, match in (
            ([60], [0], "60 among its input_ids"),
            ([1, 2], [0], "2 input_ids and 1"),
        ):
            with pytest.raises(DataError, match=match):
                engine.run([Row(input_ids=ids, token_type_ids=segments, example=0)], output="hidden_states")
        with pytest.raises(DataError, match="positions"):
            engine.run(rows_of([3]), output="hidden_states", read=lambda row: (5,))

    def test_nan_is_an_error(self):
        model = make()
        model.weights["embeddings.word_embeddings.weight"][7] = np.nan
        engine = make_engine(model)
        row = Row(input_ids=[3], token_type_ids=[0], example=0)
        engine.run([row], output="hidden_states")
        with pytest.raises(CheckpointError, match="NaN"):
            engine.run(
                [Row(input_ids=[3, 7], token_type_ids=[0, 0], example=0)],
                output="hidden_states",
                read=every_token,
            )


class TestRecognition:
    def test_of_the_bundled_models(self):
        for name, expected in ((BUNDLED_SENTENCES, True), ("bundled", False)):
            model, _ = load_model(name, "AlbertModel")
            assert mixes_no_tokens(model.config, model.weights, "") is expected

    @pytest.mark.parametrize(
        "name",
        [
            f"{LAYER}.attention.dense.weight",
            "embeddings.position_embeddings.weight",
            "embeddings.token_type_embeddings.weight",
        ],
    )
    def test_one_other_number_suffices_to_compute_the_network(self, name):
        model, (row,) = make(), rows_of([12])
        assert mixes_no_tokens(model.config, model.weights, "")
        model.weights[name][1, 3] += 0.25
        assert not mixes_no_tokens(model.config, model.weights, "")
        (states,) = make_engine(model).run([row], output="hidden_states", read=every_token)
        np.testing.assert_allclose(states, by_definition(model, row), atol=1e-5)

    def test_every_layer_counts(self):
        model = make(num_hidden_groups=3)
        assert not mixes_no_tokens(model.config, model.weights, "")


class TestVectors:
    # Not "cls": the vector of [CLS] is so short that scaling it magnifies rounding.
    @pytest.mark.parametrize("pooling", ["mean", "max"])
    def test_equal_those_of_the_network_in_every_engine(self, pooling):
        plain = pipeline("feature-extraction", BUNDLED_SENTENCES, engine="plain", pooling=pooling)
        expected = np.array(plain(TEXTS))
        for engine in ("auto", "torch"):
            embed = pipeline("feature-extraction", BUNDLED_SENTENCES, engine=engine, pooling=pooling)
            np.testing.assert_allclose(np.array(embed(TEXTS)), expected, rtol=0, atol=1e-6)

    def test_equal_those_without_the_table(self):
        embed = pipeline("feature-extraction", BUNDLED_SENTENCES)
        without_table = make_engine(embed.model, "onnx")
        without_table.token_table = lambda: None
        network = pipeline("feature-extraction", embed.model, embed.tokenizer, engine=without_table)
        np.testing.assert_allclose(np.array(embed(TEXTS)), np.array(network(TEXTS)), rtol=0, atol=1e-6)

    def test_follow_edited_weights(self):
        embed = pipeline("feature-extraction", BUNDLED_SENTENCES, engine="torch")
        before = np.array(embed("A quiet evening."))
        weights = embed.model.base_model.embeddings.word_embeddings.weight
        weights.data[:, 0] += 5
        after = np.array(embed("A quiet evening."))
        assert abs(after - before).max() > 0.01
        plain = pipeline("feature-extraction", embed.model, embed.tokenizer, engine="plain")
        np.testing.assert_allclose(after, np.array(plain("A quiet evening.")), rtol=0, atol=1e-6)

    def test_follow_hooks(self):
        embed = pipeline("feature-extraction", BUNDLED_SENTENCES, engine="torch")
        layer = embed.model.encoder.albert_layer_groups[0].albert_layers[0]
        layer.register_forward_hook(lambda module, inputs, outputs: (outputs[0] * 0 + 1.0, *outputs[1:]))
        np.testing.assert_allclose(np.array(embed("A door.")), 384**-0.5, atol=1e-6)
