"""Tests of the labels and the losses of the network."""

import pytest
import torch
from modeling_twins import HEADS, TINY, batch, labels_for, largest_difference, make, make_twins
from torch import nn

from albertkit.errors import DataError

TOLERANCE = 1e-5


def test_a_step_without_labels_has_the_loss_0():
    """`transformers.Trainer` passes the number of labels of a step. The loss must not divide by 0."""
    ids = batch()["input_ids"]
    output = make("AlbertForTokenClassification")(
        ids, labels=torch.full_like(ids, -100), num_items_in_batch=torch.tensor(0)
    )
    assert output.loss == 0


@pytest.mark.parametrize("head", [head for head in HEADS if head != "AlbertModel"])
def test_losses_are_computed_in_fp32(head):
    loss = make(head).to(torch.bfloat16)(**batch(head), **labels_for(head)).loss
    assert loss.dtype == torch.float32


def test_labels_with_fractions_are_an_error():
    ids = batch()["input_ids"]
    with pytest.raises(DataError, match="labels must be whole numbers"):
        make("AlbertForTokenClassification")(ids, labels=ids.float())


def test_each_objective_alone():
    model = make("AlbertForPreTraining")
    inputs, labels = batch(), labels_for("AlbertForPreTraining")
    both = model(**inputs, **labels).loss
    words = model(**inputs, labels=labels["labels"]).loss
    order = model(**inputs, sentence_order_label=labels["sentence_order_label"]).loss
    assert model(**inputs).loss is None
    assert largest_difference(both, words + order) <= 1e-6


@pytest.mark.parametrize("head", ["AlbertForPreTraining", "AlbertForMaskedLM"])
def test_the_older_name_of_labels(head):
    model = make(head)
    inputs = batch()
    with pytest.warns(FutureWarning, match="labels") as caught:
        outputs = model(**inputs, masked_lm_labels=inputs["input_ids"])
    assert caught[0].filename == __file__
    loss, scores = outputs[:2]
    assert loss == model(**inputs, labels=inputs["input_ids"]).loss
    assert scores.shape == (3, 12, TINY["vocab_size"])


def test_spans_need_both_ends():
    with pytest.raises(ValueError, match="needed together"):
        make("AlbertForQuestionAnswering")(**batch(), start_positions=torch.tensor([1, 2, 3]))


def test_spans_may_have_eight_bits():
    model = make("AlbertForQuestionAnswering", max_position_embeddings=300)
    inputs, begin = batch(length=300), torch.tensor([1, 2, 255])
    expected = model(**inputs, start_positions=begin, end_positions=begin).loss
    begin = begin.to(torch.uint8)
    assert model(**inputs, start_positions=begin, end_positions=begin).loss == expected


def test_multiple_choice_needs_choices():
    with pytest.raises(ValueError, match=r"\(B, C, T\).*\(3, 12\)"):
        make("AlbertForMultipleChoice")(**batch())


@pytest.mark.parametrize(
    ("label", "head"), [(99, "AlbertForSequenceClassification"), (-1, "AlbertForMaskedLM")]
)
def test_labels_out_of_range_are_an_error(label, head):
    inputs, labels = batch(head), labels_for(head)
    labels["labels"].view(-1)[0] = label
    wrong = {**labels, "labels": labels["labels"][1:]}
    with pytest.raises(ValueError, match=r"batch_size|needs"):
        make(head)(**inputs, **wrong)
    with pytest.raises(DataError, match=r"labels contain (99|-1), but there are \d+ classes. Expected 0 to"):
        make(head)(**inputs, **labels)


def test_a_replaced_classifier_with_one_output_is_a_regression():
    """The loss follows `model.num_labels`, which such code sets; the config still has two labels."""
    losses = []
    for model in make_twins("AlbertForSequenceClassification"):
        torch.manual_seed(5)
        model.num_labels, model.classifier = 1, nn.Linear(TINY["hidden_size"], 1)
        losses.append(model(**batch(), labels=torch.tensor([0.5, 1.0, 2.0])).loss)
        assert model.config.problem_type == "regression"
    assert largest_difference(*losses) <= TOLERANCE
