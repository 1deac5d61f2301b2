"""Tests of the parts of the PyTorch engine: packed matrices, attention, memory and threads."""

import math
import random
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from engine_rows import CLASSIFIER, assert_equal, rows_of
from modeling_twins import make
from torch import nn

from albertkit import cores
from albertkit.engines import packed_layers
from albertkit.engines.batches import Group
from albertkit.engines.choosing import make_engine
from albertkit.engines.engine import every_token
from albertkit.engines.packed_layers import ReorderedLinear, RowAttention, attend_by_products, can_reorder
from albertkit.engines.plain import PlainEngine, settle_threads
from albertkit.engines.torch_engine import TorchEngine, rounded
from albertkit.errors import ConfigError


class TestParts:
    @pytest.mark.parametrize(
        "activation", [None, nn.GELU(), nn.GELU(approximate="tanh"), nn.ReLU(), nn.SiLU()]
    )
    @pytest.mark.parametrize("tokens", [1, 4, 37])
    @pytest.mark.parametrize("avx512", [True, False])
    def test_a_packed_matrix(self, monkeypatch, activation, tokens, avx512):
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

    def test_attention_with_a_kernel_for_all_rows(self):
        """The kernel needs a GPU. Here, the definition of attention replaces it."""

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

    @pytest.mark.parametrize(("head_size", "suits"), [(32, True), (256, True), (26, False), (264, False)])
    def test_the_kernel_for_all_rows_takes_only_some_sizes_of_heads(self, head_size, suits):
        """The head of voidful/albert_chinese_tiny has 26 dimensions (312 / 12)."""
        query = SimpleNamespace(is_cuda=True, dtype=torch.float16)
        assert packed_layers._suits_kernel(query, head_size) == suits

    @pytest.mark.parametrize(("asking", "length"), [(5, 5), (32, 33), (300, 300), (1, 250)])
    def test_attention_by_products(self, asking, length):
        if not can_reorder(torch.float32):
            pytest.skip("torch offers no such products here")
        torch.manual_seed(0)
        query, key, value = (torch.randn(2, 3, size, 8) * 2 for size in (asking, length, length))
        with torch.inference_mode():
            found = attend_by_products(query, key, value)
        expected = nn.functional.scaled_dot_product_attention(query, key, value)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)

    def test_rows_of_different_lengths(self):
        model = make("AlbertForQuestionAnswering", max_position_embeddings=512)
        assert_equal(model, rows_of([330, 512, 20, 330, 320, 40]), read=every_token)

    def test_numbers_of_tokens_are_rounded(self):
        numbers = [rounded(tokens) for tokens in range(1, 1025)]
        assert all(tokens <= one <= tokens + max(3, tokens // 16) for tokens, one in enumerate(numbers, 1))
        assert len(set(numbers)) < 90

    def test_heads_in_half_precision_get_rounded_numbers_of_tokens(self):
        """Torch keeps half a megabyte for each number of tokens in half precision."""
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

    def test_memory_does_not_grow(self, resident: Callable[[], int]):
        """After calls with all numbers of tokens, other rows need no more memory."""
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

    def test_usable_cores(self, monkeypatch, tmp_path):
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

    def test_torch_uses_that_number_of_threads(self, monkeypatch):
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
