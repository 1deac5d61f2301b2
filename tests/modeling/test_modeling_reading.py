"""Tests of the last layer for selected positions: the same scores, losses and gradients."""

import pytest
import torch
from modeling_twins import batch, labels_for, make
from torch.testing import assert_close

from albertkit.errors import DataError
from albertkit.modeling.heads import query_positions

READING = ["AlbertForPreTraining", "AlbertForMaskedLM"]


@pytest.mark.parametrize(
    ("rows", "length", "reads"), [(3, 10, 7), (1, 8, 0), (0, 8, 0), (4, 128, 80), (2, 8, 16)]
)
def test_positions_by_row_are_the_flat_ones(rows: int, length: int, reads: int) -> None:
    torch.manual_seed(reads)
    flat = torch.randperm(rows * length)[:reads]
    positions, index = query_positions(flat, batch=rows, length=length)
    assert positions.shape[0] == rows
    assert positions.shape[1] % 4 == 0
    assert (positions[:, 0] == 0).all()
    found = (torch.arange(rows)[:, None] * length + positions).flatten()[index]
    assert torch.equal(found, flat)


def test_repeated_first_tokens_take_no_place() -> None:
    positions, index = query_positions(torch.tensor([0] * 50 + [5, 12]), batch=2, length=8)
    assert positions.tolist() == [[0, 5, 0, 0], [0, 4, 0, 0]]
    assert index.tolist() == [0] * 50 + [1, 5]


def test_positions_may_have_32_bits() -> None:
    model, inputs, positions = make("AlbertForMaskedLM"), batch(), torch.tensor([3, 14, 30])
    read = model(**inputs, masked_positions=positions.int())
    assert torch.equal(read.logits, model(**inputs, masked_positions=positions).logits)


@pytest.mark.parametrize(
    ("positions", "message"),
    [
        ([4, 36], "from 4 to 36. Expected 0 to 35"),  # 36 would be [CLS] of a fourth row
        ([37], "from 37 to 37"),
        ([-12, 4], "from -12 to 4"),  # -12 would be [CLS] of the row before the first
        ([True, False], "whole numbers of shape"),  # a mask is no list of positions
        ([[4], [5]], "whole numbers of shape"),
    ],
)
def test_wrong_positions_are_an_error(positions: list, message: str) -> None:
    with pytest.raises(DataError, match=message):
        make("AlbertForMaskedLM")(**batch(), masked_positions=torch.tensor(positions))


def test_positions_without_inputs_are_an_error() -> None:
    with pytest.raises(ValueError, match="both or neither of input_ids and inputs_embeds"):
        make("AlbertForMaskedLM")(masked_positions=torch.tensor([0]))


@pytest.mark.parametrize("head", READING)
@pytest.mark.parametrize("masked", ["none", "padding", "square"])
@pytest.mark.parametrize(
    "shape", [{}, {"num_hidden_groups": 2, "num_hidden_layers": 4, "inner_group_num": 2}]
)
def test_masked_words_are_scored_as_with_the_whole_last_layer(head: str, masked: str, shape: dict) -> None:
    model = make(head, **shape).train()
    inputs = batch(mask=masked == "padding")
    rows, length = inputs["input_ids"].shape
    if masked == "square":
        torch.manual_seed(1)
        square = torch.rand(rows, length, length) < 0.7
        inputs["attention_mask"] = (square | torch.eye(length, dtype=torch.bool)).long()
    labels = labels_for(head)["labels"].flatten()
    positions = (labels != -100).nonzero().flatten()
    whole = model(**inputs, labels=labels.view(rows, length))
    whole.loss.backward()
    gradients = {
        name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None
    }
    model.zero_grad(set_to_none=True)
    read = model(**inputs, labels=labels[positions], masked_positions=positions)
    read.loss.backward()
    assert_close(read.loss, whole.loss, atol=1e-6, rtol=0)
    assert_close(read[1], whole[1].flatten(0, 1)[positions], atol=1e-5, rtol=0)
    for name, value in model.named_parameters():
        if name in gradients:
            assert_close(value.grad, gradients[name], atol=1e-5, rtol=0, msg=name)
    if head == "AlbertForPreTraining":
        assert_close(read.sop_logits, whole.sop_logits, atol=1e-6, rtol=0)


@pytest.mark.parametrize("head", ["AlbertForSequenceClassification", "AlbertForMultipleChoice"])
def test_classes_are_scored_as_with_the_whole_last_layer(head: str) -> None:
    model = make(head).eval()
    inputs = batch(head, mask=True)
    with torch.no_grad():
        read = model(**inputs).logits
        whole = model(**inputs, output_hidden_states=True)
    assert_close(read, whole.logits, atol=1e-6, rtol=0)
    assert whole.hidden_states[-1].shape[-2] == inputs["input_ids"].shape[-1]  # that of every token


def test_the_last_layer_is_not_computed_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make("AlbertForSequenceClassification").eval()
    seen: list[int] = []
    feed_forward = model.albert.encoder.albert_layer_groups[-1].albert_layers[-1].ffn
    forward = feed_forward.forward

    def watched(states: torch.Tensor) -> torch.Tensor:
        seen.append(states.shape[1])
        return forward(states)

    monkeypatch.setattr(feed_forward, "forward", watched)
    inputs = batch()
    with torch.no_grad():
        model(**inputs)
    assert seen == [inputs["input_ids"].shape[1]] * (model.config.num_hidden_layers - 1) + [1]


@pytest.mark.parametrize("head", ["AlbertForSequenceClassification", "AlbertForMultipleChoice"])
@pytest.mark.parametrize("watched", ["albert", "albert.encoder", "albert.encoder.albert_layer_groups.0"])
def test_hooks_see_all_tokens(head: str, watched: str) -> None:
    model, inputs = make(head).eval(), batch(head, mask=True)
    expected = model(**inputs).logits
    states: list[torch.Tensor] = []
    model.get_submodule(watched).register_forward_hook(
        lambda _module, _inputs, out: states.append(out if isinstance(out, torch.Tensor) else out[0])
    )
    assert_close(model(**inputs).logits, expected, atol=1e-6, rtol=0)
    assert states[-1].shape[:-1] == inputs["input_ids"].flatten(0, -2).shape


@pytest.mark.parametrize("head", ["AlbertForSequenceClassification", "AlbertForMultipleChoice"])
def test_backward_hooks_see_all_tokens(head: str) -> None:
    model, inputs = make(head).eval(), batch(head)
    gradients: list[torch.Tensor] = []
    last = model.albert.encoder.albert_layer_groups[-1].albert_layers[-1].ffn_output
    last.register_full_backward_hook(lambda _module, _inputs, outputs: gradients.append(outputs[0]))
    model(**inputs).logits.sum().backward()
    assert gradients[0].shape[:-1] == inputs["input_ids"].flatten(0, -2).shape
