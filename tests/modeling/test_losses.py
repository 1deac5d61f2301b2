"""Tests that the fast losses of the heads equal their simple twins."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from albertkit.modeling import losses
from albertkit.modeling.losses import classification_loss, loss_of_step, vocabulary_loss

IGNORED = -100


def plain(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the values of `vocabulary_loss`, computed with PyTorch's functions."""
    total = F.cross_entropy(logits.float(), labels, ignore_index=IGNORED, reduction="sum")
    return total, (logits.argmax(-1) == labels).sum()


def scores(dtype: torch.dtype, rows: int = 37, columns: int = 50) -> tuple[Tensor, Tensor]:
    """Return random scores and labels: of 37 rows 12 have the largest score, and 5 are padding."""
    generator = torch.Generator().manual_seed(0)
    logits = (4 * torch.randn(rows, columns, generator=generator)).to(dtype)
    labels = torch.randint(columns, (rows,), generator=generator)
    labels[:12] = logits[:12].argmax(-1)
    labels[-5:] = IGNORED
    return logits, labels


class TestVocabularyLoss:
    @pytest.mark.parametrize("chunk", [1, 150, 1 << 18])  # one row, three rows, all rows
    @pytest.mark.parametrize(
        ("dtype", "rtol"), [(torch.float32, 1e-5), (torch.bfloat16, 2**-7), (torch.float16, 2**-10)]
    )
    def test_equals_the_plain_loss(
        self, dtype: torch.dtype, rtol: float, chunk: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(losses, "_CHUNK_SCORES", chunk)
        logits, labels = scores(dtype)
        results = []
        for function in (vocabulary_loss, plain):
            leaf = logits.clone().requires_grad_()
            total, num_correct = function(leaf, labels)
            (total / 7).backward()
            results.append((total.detach(), num_correct, leaf.grad))
        (total, num_correct, gradient), (expected, expected_correct, expected_gradient) = results
        assert total == pytest.approx(float(expected), rel=1e-6)
        assert int(num_correct) == int(expected_correct) >= 12
        assert gradient.dtype == dtype
        torch.testing.assert_close(gradient, expected_gradient, rtol=rtol, atol=1e-7)

    def test_the_first_of_equal_scores_is_the_prediction(self) -> None:
        logits = torch.zeros(3, 4)
        assert int(vocabulary_loss(logits, torch.tensor([0, 1, IGNORED]))[1]) == 1

    @pytest.mark.parametrize("rows", [0, 3])
    def test_no_labels_have_no_loss(self, rows: int) -> None:
        logits = torch.randn(rows, 4, requires_grad=True)
        total, num_correct = vocabulary_loss(logits, torch.full((rows,), IGNORED))
        total.backward()
        assert (total.item(), num_correct.item()) == (0, 0)
        assert not logits.grad.any()

    def test_scores_that_are_not_finite_give_no_finite_loss(self) -> None:
        logits = torch.zeros(2, 4)
        logits[0, 1] = torch.nan
        assert torch.isnan(vocabulary_loss(logits, torch.tensor([0, 1]))[0])


def test_labels_of_eight_bits_equal_those_of_64() -> None:
    labels = torch.tensor([156, 3, 7])  # in eight bits, 156 has the bits of -100
    logits = scores(torch.float32, rows=3, columns=200)[0]
    loss, short = classification_loss(logits, labels), labels.to(torch.uint8)
    assert torch.equal(classification_loss(logits, short), loss)
    assert torch.equal(loss_of_step(loss, short, 4), loss_of_step(loss, labels, 4))
