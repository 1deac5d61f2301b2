"""Tests of the inputs of the network: padding, masks, packed rows and wrong inputs."""

import math

import pytest
import torch
from modeling_twins import TINY, batch, largest_difference, make

from albertkit.modeling.model import expand_attention_mask

TOLERANCE = 1e-5


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_padding_does_not_change_the_outputs_of_tokens(attention):
    model = make("AlbertModel", attn_implementation=attention)
    ids = batch()["input_ids"][:1, :5]
    padded = torch.cat([ids, torch.zeros(1, 9, dtype=torch.long)], dim=1)
    mask = (torch.arange(14) < 5).long()[None]
    with torch.no_grad():
        alone = model(ids)
        beside = model(padded.expand(4, -1), mask.expand(4, -1))
    for row in range(4):
        assert largest_difference(alone.last_hidden_state[0], beside.last_hidden_state[row, :5]) <= TOLERANCE
        assert largest_difference(alone.pooler_output[0], beside.pooler_output[row]) <= TOLERANCE


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_completely_masked_row_has_finite_outputs(attention, dtype):
    model = make("AlbertForPreTraining", attn_implementation=attention).to(dtype)
    ids = batch()["input_ids"]
    mask = torch.ones_like(ids)
    mask[1] = 0
    output = model(ids, mask, labels=torch.full_like(ids, -100))
    assert output.prediction_logits.isfinite().all()
    assert output.sop_logits.isfinite().all()
    assert output.loss == 0  # without labels, the loss is 0
    output.prediction_logits.float().square().mean().backward()
    assert all(
        parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.grad is not None
    )
    # As in the original code, a row that is masked completely attends like a row without a mask.
    with torch.no_grad():
        unmasked = model(ids[1:2]).sop_logits
    assert largest_difference(unmasked[0], output.sop_logits[1]) <= (
        TOLERANCE if dtype == torch.float32 else 0.05
    )


def test_the_mask_is_boolean_and_omitted_without_padding():
    assert expand_attention_mask(None) is None
    assert expand_attention_mask(torch.ones(2, 3)) is None
    mask = expand_attention_mask(torch.tensor([[1, 1, 0], [0, 0, 0]]))
    assert mask is not None
    assert mask.dtype == torch.bool
    assert mask[:, 0, 0].tolist() == [[True, True, False], [True, True, True]]


@pytest.mark.parametrize("lowest", [-10000.0, -math.inf, -10000])
def test_an_additive_mask_is_an_error(lowest):
    """Read as 0 and 1, such a mask would hide the text and show the padding."""
    added = torch.tensor([[0, 0, lowest]])
    with pytest.raises(ValueError, match="attention_mask == 0"):
        expand_attention_mask(added)


@pytest.mark.parametrize("strange", [0.5, 2.0, math.nan])
def test_a_mask_with_other_values_than_0_and_1_is_an_error(strange):
    mask = torch.tensor([[1.0, strange, 0]])
    with pytest.raises(ValueError, match=rf"attention_mask contains {strange}. Expected 1"):
        expand_attention_mask(mask)
    assert expand_attention_mask(mask.fill_(1)) is None


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_batch_without_rows(attention):
    model = make("AlbertForPreTraining", attn_implementation=attention)
    output = model(torch.empty(0, 5, dtype=torch.long), torch.empty(0, 5))
    assert output.prediction_logits.shape == (0, 5, TINY["vocab_size"])
    assert output.sop_logits.shape == (0, 2)


def test_sequences_packed_into_one_row():
    """A block-diagonal (B, T, T) mask and restarting positions keep packed sequences apart."""
    model = make("AlbertModel")
    ids = batch()["input_ids"]
    block = torch.block_diag(torch.ones(12, 12), torch.ones(8, 8))[None]
    packed = torch.cat([ids[0], ids[1, :8]])[None]
    positions = torch.cat([torch.arange(12), torch.arange(8)])[None]
    with torch.no_grad():
        output = model(packed, block, position_ids=positions).last_hidden_state[0]
        again = model(packed, block[:, None], position_ids=positions).last_hidden_state[0]
        assert largest_difference(output[:12], model(ids[:1]).last_hidden_state[0]) <= TOLERANCE
        assert largest_difference(output[12:], model(ids[1:2, :8]).last_hidden_state[0]) <= TOLERANCE
    assert torch.equal(output, again)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "exactly one"),
        ({"input_ids": torch.ones(1, 2).long(), "inputs_embeds": torch.ones(1, 2, 16)}, "exactly one"),
        ({"input_ids": torch.ones(2).long()}, r"\(B, T\), got \(2,\)"),
        ({"inputs_embeds": torch.ones(1, 2, 32)}, r"\(B, T, 16\), got \(1, 2, 32\)"),
        ({"input_ids": torch.ones(1, 25).long()}, r"25 tokens.*max_position_embeddings \(24\)"),
        ({"input_ids": torch.ones(1, 0).long()}, r"at least one token .*, got \(1, 0\)"),
        (
            {"input_ids": torch.ones(2, 3).long(), "position_ids": torch.zeros(2, 1).long()},
            r"position_ids .*\(2, 3\) or \(1, 3\) or \(3,\), got \(2, 1\)",
        ),
        (
            {"input_ids": torch.ones(2, 3).long(), "token_type_ids": torch.zeros(2, 2).long()},
            r"token_type_ids .*\(2, 3\) or \(1, 3\) or \(3,\), got \(2, 2\)",
        ),
        (
            {"input_ids": torch.ones(2, 3).long(), "attention_mask": torch.ones(2, 4)},
            r"attention_mask .*\(2, 3\) or \(2, 3, 3\) or \(2, 1, 3, 3\) or \(1, 3\), got \(2, 4\)",
        ),
    ],
)
def test_inputs_of_a_wrong_shape_are_an_error(inputs, message):
    with pytest.raises(ValueError, match=message):
        make("AlbertModel")(**inputs)


def test_inputs_of_choices():
    """Masks with a row for each query, and segments and positions for all rows, also work for choices."""
    model = make("AlbertForMultipleChoice")
    ids = batch("AlbertForMultipleChoice")["input_ids"]  # (B, C, T)
    length, mask = ids.shape[-1], torch.ones_like(ids)
    mask[..., -2:] = 0
    expected = model(ids, mask).logits
    for_queries = mask[..., None, :].expand(*ids.shape, length)  # (B, C, T, T)
    zeros, positions = torch.zeros(length).long(), torch.arange(length)
    for inputs in (
        {"attention_mask": for_queries},
        {"attention_mask": for_queries[..., None, :, :]},
        {"attention_mask": mask, "token_type_ids": zeros, "position_ids": positions},
        {"attention_mask": mask, "token_type_ids": zeros[None], "position_ids": positions[None]},
        {"attention_mask": mask, "position_ids": positions[None, None]},
    ):
        assert largest_difference(model(ids, **inputs).logits, expected) <= TOLERANCE
    with pytest.raises(ValueError, match=r"attention_mask must have shape \(\d, \d, \d+\) or"):
        model(ids, mask[0])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"input_ids": torch.tensor([[5, 60]])}, "input_ids has values from 5 to 60, but vocab_size is 60"),
        (
            {"input_ids": torch.tensor([[5, 6]]), "token_type_ids": torch.tensor([[0, 2]])},
            "token_type_ids has values from 0 to 2, but type_vocab_size is 2. Expected 0 to 1",
        ),
        (
            {"input_ids": torch.tensor([[5, 6]]), "position_ids": torch.tensor([[23, 24]])},
            "position_ids has values from 23 to 24, but max_position_embeddings is 24",
        ),
    ],
)
def test_ids_out_of_range_are_an_error(inputs, message):
    with pytest.raises(IndexError, match=message):
        make("AlbertModel")(**inputs)
