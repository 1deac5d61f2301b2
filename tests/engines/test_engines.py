"""Engines say what the plain model says, for any rows; and never what a model said before."""

import copy
import math
import pickle
import random
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from engine_rows import CLASSIFIER, OUTPUTS, SHAPES, WHOLE_TEXT, assert_equal, rows_of, some_tokens
from hypothesis import given, settings
from hypothesis import strategies as st
from modeling_twins import make
from torch import nn

from albertkit import cores
from albertkit.engines import packed_layers
from albertkit.engines.batches import Group
from albertkit.engines.choosing import make_engine
from albertkit.engines.engine import Row, every_token, first_token
from albertkit.engines.fitting import fits
from albertkit.engines.packed_layers import ReorderedLinear, RowAttention, attend_by_products, can_reorder
from albertkit.engines.plain import PlainEngine, settle_threads
from albertkit.engines.torch_engine import TorchEngine, rounded
from albertkit.errors import ConfigError


def computed_by_weights(monkeypatch) -> None:
    """Make every call of a model fail, so that it is seen whether one was needed."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the plain model was called")

    monkeypatch.setattr(PlainEngine, "batches", refuse)


class TestTheSameAsThePlainModel:
    @settings(max_examples=25)
    @given(
        head=st.sampled_from(list(OUTPUTS)),
        lengths=st.lists(st.integers(1, 24), min_size=1, max_size=12),
        batch_tokens=st.sampled_from([None, 1, 30, 100]),
        batch_size=st.sampled_from([None, 1, 3]),
        shape=st.sampled_from(SHAPES),
        read=st.sampled_from([first_token, every_token, some_tokens]),
    )
    def test_for_any_rows_and_shapes(self, head, lengths, batch_tokens, batch_size, shape, read):
        model = make(head, **shape)
        assert fits(model)
        assert_equal(
            model,
            rows_of(lengths),
            output=OUTPUTS[head],
            read=first_token if head in WHOLE_TEXT else read,
            batch_tokens=batch_tokens,
            batch_size=batch_size,
        )

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

    def test_in_training_mode_which_is_kept(self):
        model = make(CLASSIFIER, hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.5).train()
        assert_equal(model, rows_of([5, 24, 5, 7]))
        assert model.training
        assert model.albert.encoder.training

    def test_in_bfloat16(self):
        model = make(CLASSIFIER).bfloat16()
        assert_equal(model, rows_of([5, 24, 5, 7]), atol=0.3)

    def test_under_autocast_and_without_it_again(self):
        """As a run in bfloat16 evaluates: oneDNN's own products know nothing of autocast."""
        engine, rows = TorchEngine(make(CLASSIFIER)), rows_of([5, 24, 5, 7])
        before = engine.run(rows)
        can_reorder.cache_clear()  # as the first evaluation of a process finds it
        for _ in range(2):
            with torch.autocast("cpu", torch.bfloat16):
                np.testing.assert_allclose(engine.run(rows), before, atol=0.3)
        np.testing.assert_array_equal(engine.run(rows), before)
        found = can_reorder(torch.float32)
        can_reorder.cache_clear()
        assert can_reorder(torch.float32) == found

    def test_nothing_is_computed_of_no_rows(self):
        assert TorchEngine(make(CLASSIFIER)).run([]) == []

    def test_without_calling_the_model(self, monkeypatch):
        model = make("AlbertForTokenClassification")
        expected = PlainEngine(model).run(rows_of([4, 9]), read=every_token)
        computed_by_weights(monkeypatch)
        found = TorchEngine(model).run(rows_of([4, 9]), read=every_token)
        assert [one.shape for one in found] == [one.shape for one in expected] == [(4, 2), (9, 2)]


class TestWhatWeightsDoNotTell:
    """Such models are called as they are."""

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

    def test_a_class_of_its_own(self):
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

    def test_an_engine_that_was_chosen_by_name_warns(self):
        model = make(CLASSIFIER)
        rows = rows_of([5])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            make_engine(model, "torch").run(rows)
            hook = model.albert.pooler.register_forward_hook(lambda *_: None)
            make_engine(model).run(rows)  # `auto` promises no engine
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

    def test_wrong_ids_and_long_rows_say_what_is_wrong(self):
        engine = TorchEngine(make(CLASSIFIER))
        with pytest.raises(IndexError, match="input_ids has values from 60 to 60, but vocab_size is 60"):
            engine.run([Row(input_ids=[60], token_type_ids=[0], example=0)])
        with pytest.raises(ValueError, match="25 tokens, more than max_position_embeddings"):
            engine.run(rows_of([25]))


class TestWeightsThatChange:
    """Packed matrices are copies: answers must be those of the weights as they are."""

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
        linear.weight.data.mul_(0.5)  # changes no version
        assert_equal(model, rows, engine=engine)
        linear.bias.data = linear.bias.data + 0.3
        assert_equal(model, rows, engine=engine)
        linear.weight = nn.Parameter(torch.randn_like(linear.weight))
        assert_equal(model, rows, engine=engine)

    def test_training_goes_on(self):
        model = make(CLASSIFIER)
        engine, rows = TorchEngine(model), rows_of([5, 9])
        before = engine.run(rows)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        ids = torch.tensor([rows[1].input_ids])
        model(ids, labels=torch.tensor([1])).loss.backward()
        optimizer.step()
        assert_equal(model, rows, engine=engine)
        assert not np.allclose(before[0], engine.run(rows)[0])

    def test_pruning_and_loading(self):
        model = make(CLASSIFIER)
        engine, rows = TorchEngine(model), rows_of([5, 9])
        engine.run(rows)
        model.prune_heads({0: [0, 3]})
        assert_equal(model, rows, engine=engine)
        other = make(CLASSIFIER, seed=1)
        other.prune_heads({0: [0, 3]})
        model.load_state_dict(other.state_dict())
        assert_equal(model, rows, engine=engine)

    def test_packed_once_while_nothing_changes(self, monkeypatch):
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
        assert len(packed) == 5  # query, key and value, dense, and the two of the feed-forward network

    def test_weights_that_do_not_say_that_they_change_are_not_packed(self):
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


class TestParts:
    @pytest.mark.parametrize(
        "activation", [None, nn.GELU(), nn.GELU(approximate="tanh"), nn.ReLU(), nn.SiLU()]
    )
    @pytest.mark.parametrize("tokens", [1, 4, 37])
    @pytest.mark.parametrize("avx512", [True, False])
    def test_a_packed_matrix_computes_the_same(self, monkeypatch, activation, tokens, avx512):
        monkeypatch.setattr(packed_layers, "has_avx512", lambda: avx512)
        monkeypatch.setattr(packed_layers, "_MAX_REORDERED", 4)
        if not can_reorder(torch.float32):
            pytest.skip("torch offers no packed matrices here")
        torch.manual_seed(0)
        weight, bias, states = torch.randn(48, 32), torch.randn(48), torch.randn(tokens, 32)
        with torch.inference_mode():
            one, other = (ReorderedLinear(weight, bias, reorder=reorder) for reorder in (True, False))
            packed, plain = one(states, activation), other(states, activation)
        assert (one.max_reordered, one.fuses) == ((math.inf, True) if avx512 else (4, False))
        torch.testing.assert_close(packed, plain, atol=2e-5, rtol=1e-5)

    def test_attention_with_one_kernel_for_all_rows_is_that_of_each_row(self):
        """The kernel is a GPU's; here it is played by the definition."""

        def kernel(query, key, value, asking, looked_at, most_asking, longest):
            assert most_asking == int(asking.diff().max())
            assert longest == int(looked_at.diff().max())
            found = [
                nn.functional.scaled_dot_product_attention(
                    *(one[None].transpose(1, 2) for one in (query[a:b], key[c:d], value[c:d]))
                )[0].transpose(0, 1)
                for a, b, c, d in zip(asking, asking[1:], looked_at, looked_at[1:], strict=False)
            ]
            return torch.cat(found)

        torch.manual_seed(0)
        attention = RowAttention([Group(2, 5, 2), Group(1, 3, 1)])
        query, key_value = torch.randn(5, 8), torch.randn(13, 16)
        expected = attention(query, key_value, 4)
        key, value = key_value.unflatten(1, (4, 4)).split(2, dim=1)
        found = attention._attend_at_once(kernel, query.unflatten(1, (2, 4)), key, value)
        torch.testing.assert_close(found.flatten(1), expected)

    @pytest.mark.parametrize(("asking", "length"), [(5, 5), (32, 33), (300, 300), (1, 250)])
    def test_attention_head_by_head_is_attention(self, asking, length):
        if not can_reorder(torch.float32):
            pytest.skip("torch offers no such products here")
        torch.manual_seed(0)
        query, key, value = (torch.randn(2, 3, size, 8) * 2 for size in (asking, length, length))
        with torch.inference_mode():
            found = attend_by_products(query, key, value)
        expected = nn.functional.scaled_dot_product_attention(query, key, value)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)

    def test_long_rows_among_short_ones(self):
        model = make("AlbertForQuestionAnswering", max_position_embeddings=512)
        assert_equal(model, rows_of([330, 512, 20, 330, 320, 40]), read=every_token)

    def test_few_different_numbers_of_tokens(self):
        numbers = [rounded(tokens) for tokens in range(1, 1025)]
        assert all(tokens <= one <= tokens + max(3, tokens // 16) for tokens, one in enumerate(numbers, 1))
        assert len(set(numbers)) < 90

    def test_heads_in_half_precision_see_few_numbers_of_tokens(self):
        """Torch keeps half a MB for each one it has multiplied."""
        model = make("AlbertForQuestionAnswering").bfloat16()
        seen = []
        model.qa_outputs.register_forward_hook(lambda _, inputs, __: seen.append(len(inputs[0])))
        engine = TorchEngine(model)
        for count in range(1, 40):
            found = engine.run(rows_of([24] * (count // 24) + [count % 24 or 24]), read=every_token)
            assert [len(one) for one in found] == [24] * (count // 24) + [count % 24 or 24]
        assert len(seen) == 39
        assert set(seen) == {rounded(tokens) for tokens in seen}
        assert len(set(seen)) < 20

    def test_memory_is_flat(self, resident: Callable[[], int]):
        """After all numbers of tokens have been seen, any rows take no more memory."""
        rng = random.Random(0)
        engine = TorchEngine(make(CLASSIFIER))
        for tokens in sorted({rounded(tokens) for tokens in range(1, 257)}):
            rows = rows_of([4] * (tokens // 4))
            engine.run(rows)
            engine.run(rows, output="hidden_states", read=every_token)
        before = resident()
        for _ in range(100):
            rows = rows_of([rng.randint(1, 24) for _ in range(rng.randint(1, 30))])
            engine.run(rows, batch_tokens=256)
        assert resident() - before < 8 * 2**20


class TestChoosing:
    def test_names(self):
        model = make(CLASSIFIER)
        assert type(make_engine(model, "torch")) is TorchEngine
        assert isinstance(make_engine(model), TorchEngine)
        assert type(make_engine(model, "plain")) is PlainEngine
        with pytest.raises(ConfigError, match=r"no engine 'tourch'\. Did you mean 'torch'"):
            make_engine(model, "tourch")

    def test_threads_are_those_that_may_be_used(self, monkeypatch, tmp_path):
        monkeypatch.delenv(cores.VARIABLE, raising=False)
        monkeypatch.setattr(cores, "_CGROUPS", tmp_path)
        there = cores.usable_cores()
        assert there >= 1
        (tmp_path / "cpu.max").write_text("max 100000\n")
        assert cores.usable_cores() == there
        (tmp_path / "cpu.max").write_text("100000 100000\n")
        assert cores.usable_cores() == 1
        (tmp_path / "cpu.max").unlink()
        (tmp_path / "cpu").mkdir()
        (tmp_path / "cpu/cpu.cfs_quota_us").write_text("150000\n")
        (tmp_path / "cpu/cpu.cfs_period_us").write_text("100000\n")
        assert cores.usable_cores() == 1
        (tmp_path / "cpu/cpu.cfs_quota_us").write_text("-1\n")
        assert cores.usable_cores() == there
        monkeypatch.setenv(cores.VARIABLE, "3")
        assert cores.usable_cores() == 3
        monkeypatch.setenv(cores.VARIABLE, "none")
        with pytest.raises(ConfigError, match="ALBERTKIT_THREADS is 'none'"):
            cores.usable_cores()

    def test_torch_gets_as_many(self, monkeypatch):
        before = torch.get_num_threads()
        try:
            monkeypatch.setenv(cores.VARIABLE, "1")
            settle_threads()
            assert torch.get_num_threads() == 1
            monkeypatch.delenv(cores.VARIABLE)
            monkeypatch.setenv("OMP_NUM_THREADS", "2")
            torch.set_num_threads(2)
            settle_threads()
            assert torch.get_num_threads() == 2
        finally:
            torch.set_num_threads(before)
