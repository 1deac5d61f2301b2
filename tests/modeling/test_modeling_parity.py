"""Tests that random models have the values and gradients of `transformers`, for every head and option."""

import pytest
import torch
from modeling_twins import HEADS, batch, labels_for, largest_difference, make_twins

from albertkit.config import ACTIVATION_NAMES

TOLERANCE = 1e-5


def assert_equal_outputs(ours, theirs, inputs, **options):
    with torch.no_grad():
        mine, reference = ours(**inputs, **options), theirs(**inputs, **options)
    assert mine.keys() == list(reference.keys())
    for name, expected in reference.items():
        tensors = (
            zip(mine[name], expected, strict=True)
            if isinstance(expected, tuple)
            else [(mine[name], expected)]
        )
        for index, (tensor, reference_tensor) in enumerate(tensors):
            assert largest_difference(tensor, reference_tensor) <= TOLERANCE, f"{name}[{index}]"


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("head", HEADS)
def test_every_head_with_every_input(head, attention):
    ours, theirs = make_twins(head, attn_implementation=attention)
    for which in (
        {},
        {"mask": True},
        {"segments": True},
        {"positions": True},
        {"embeds": True},
        {"mask": True, "segments": True, "positions": True},
        {"mask": True, "segments": True, "positions": True, "embeds": True},
    ):
        assert_equal_outputs(ours, theirs, {**batch(head, **which), **labels_for(head)})


@pytest.mark.parametrize("head", HEADS)
def test_losses_and_gradients(head):
    ours, theirs = make_twins(head)
    inputs = {**batch(head, mask=True, segments=True), **labels_for(head)}
    losses = []
    for model in (ours, theirs):
        model.train()  # all dropout rates are 0 but the classifier's
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        output = model(**inputs)
        loss = output.last_hidden_state.square().mean() if head == "AlbertModel" else output.loss
        loss.backward()
        losses.append(loss)
    assert largest_difference(*losses) <= TOLERANCE
    expected = dict(theirs.named_parameters())
    compared = 0
    for name, parameter in ours.named_parameters():
        if expected[name].grad is None:  # the pooler, where the loss does not reach it
            assert parameter.grad is None
            continue
        assert largest_difference(parameter.grad, expected[name].grad) <= TOLERANCE, name
        compared += 1
    assert compared >= 22


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("embedding_size", [16, 32])
@pytest.mark.parametrize(
    ("layers", "groups", "inner"), [(3, 1, 1), (4, 2, 1), (3, 3, 1), (2, 1, 2), (4, 2, 2)]
)
def test_shapes(layers, groups, inner, embedding_size, attention):
    ours, theirs = make_twins(
        "AlbertForPreTraining",
        attn_implementation=attention,
        num_hidden_layers=layers,
        num_hidden_groups=groups,
        inner_group_num=inner,
        embedding_size=embedding_size,
    )
    inputs = {**batch(mask=True, segments=True), **labels_for("AlbertForPreTraining")}
    assert_equal_outputs(ours, theirs, inputs)
    assert_equal_outputs(ours, theirs, inputs, output_hidden_states=True)
    hidden_states = ours(**inputs, output_hidden_states=True).hidden_states
    # The mapped embeddings and one entry per executed layer, inner layers included: as transformers counts.
    assert len(hidden_states) == layers * inner + 1


@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
def test_activations(activation):
    ours, theirs = make_twins("AlbertForMaskedLM", hidden_act=activation)
    assert_equal_outputs(ours, theirs, batch(mask=True))


def test_attentions():
    # transformers returns attentions only from a model built with eager attention; ours switches by itself.
    _, theirs = make_twins("AlbertModel", attn_implementation="eager", inner_group_num=2)
    ours, _ = make_twins("AlbertModel", attn_implementation="sdpa", inner_group_num=2)
    inputs = batch(mask=True)
    assert_equal_outputs(ours, theirs, inputs, output_attentions=True, output_hidden_states=True)
    attentions = ours(**inputs, output_attentions=True).attentions
    assert len(attentions) == ours.config.depth == 6
    assert largest_difference(attentions[0].sum(-1), torch.ones(3, 4, 12)) <= TOLERANCE
    assert attentions[0][1, :, :, 7:].abs().max() == 0  # nothing looks at padding


@pytest.mark.parametrize(
    ("problem", "labels_count", "labels"),
    [
        (None, 1, torch.tensor([0.5, -1.0, 2.0])),
        ("regression", 3, torch.randn(3, 3)),
        (None, 3, torch.tensor([2, 0, 1])),
        ("single_label_classification", 3, torch.tensor([2, 0, 1])),
        (None, 3, torch.tensor([[1.0, 0, 1], [0, 0, 0], [1, 1, 0]])),
        ("multi_label_classification", 3, torch.tensor([[1.0, 0, 1], [0, 0, 0], [1, 1, 0]])),
    ],
)
def test_problem_types(problem, labels_count, labels):
    ours, theirs = make_twins(
        "AlbertForSequenceClassification", num_labels=labels_count, problem_type=problem
    )
    assert_equal_outputs(ours, theirs, {**batch(), "labels": labels})
    assert ours.config.problem_type == theirs.config.problem_type is not None
    assert ours.config.to_dict()["problem_type"] == theirs.config.problem_type
    with pytest.raises(ValueError, match="labels"):
        ours(**batch(), labels=labels[:2])


@pytest.mark.parametrize("head", HEADS)
def test_state_dict_is_that_of_transformers(head):
    ours, theirs = make_twins(head, num_hidden_layers=4, num_hidden_groups=2, inner_group_num=2)
    assert {name: tensor.shape for name, tensor in ours.state_dict().items()} == {
        name: tensor.shape for name, tensor in theirs.state_dict().items()
    }
