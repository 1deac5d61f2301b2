"""Tests of the parts of the PyTorch engine: packed matrices, attention, memory and threads."""

import random
from collections.abc import Callable

import pytest
import torch
from engine_rows import CLASSIFIER, assert_equal, rows_of
from modeling_twins import make
from torch import nn

from albertkit import cores
from albertkit.engines.choosing import make_engine
from albertkit.engines.engine import every_token
from albertkit.engines.torch import TorchEngine, rounded, settle_threads
from albertkit.errors import ConfigError
from albertkit.modeling.layers import PackedRows, _varlen_kernel


class TestParts:
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
        packed = PackedRows([5, 5, 3], [2, 2, 1])
        parts = torch.randn(5, 2, 4), torch.randn(13, 2, 4), torch.randn(13, 2, 4)
        expected = packed.attend(*parts, nn.functional.scaled_dot_product_attention, selected=True)
        ends = packed._ends_of(packed.num_queries, torch.device("cpu"))
        torch.testing.assert_close(kernel(*parts, *ends), expected)

    @pytest.mark.parametrize("head_size", [26, 264])
    def test_the_kernel_for_all_rows_takes_only_some_sizes_of_heads(self, head_size):
        """The head of voidful/albert_chinese_tiny has 26 dimensions (312 / 12)."""
        assert _varlen_kernel(torch.float16, head_size) is None

    def test_a_packed_call_equals_padded_calls(self):
        model = make("AlbertModel")
        ids = [torch.randint(5, 60, (1, length)) for length in (7, 7, 3)]
        with torch.no_grad():
            packed = model(torch.cat(ids, dim=1), packed=PackedRows([7, 7, 3])).last_hidden_state
            expected = torch.cat([model(one).last_hidden_state for one in ids], dim=1)
        torch.testing.assert_close(packed, expected, atol=1e-6, rtol=1e-5)

    @pytest.mark.parametrize("mask", [{"attention_mask": torch.ones(1, 4)}, {"head_mask": torch.ones(4)}])
    def test_a_packed_call_with_a_mask_is_an_error(self, mask):
        """Attention would ignore the mask."""
        with pytest.raises(ValueError, match="packed"):
            make("AlbertModel")(torch.tensor([[5, 6, 7, 8]]), packed=PackedRows([2, 2]), **mask)

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

        class Counted(nn.Linear):
            def forward(self, input):
                seen.append(len(input))
                return super().forward(input)

        model.qa_outputs = Counted(32, 2, dtype=torch.bfloat16)
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
        assert [make_engine(model, name).padded for name in ("auto", "torch", "plain")] == [
            False,
            False,
            True,
        ]
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
