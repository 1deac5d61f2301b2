"""Tests of the NumPy reference: it equals PyTorch, ONNX and the original implementation."""

import math

import numpy as np
import pytest
import torch
from modeling_twins import HEADS, batch, make

from albertkit import heads, reference
from albertkit.config import ACTIVATION_NAMES
from albertkit.errors import CheckpointError


def compare(model, inputs, *, attentions=True):
    """Compare every output, including padding, which both compute in the same way."""
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    arrays = {name: tensor.numpy() for name, tensor in inputs.items()}
    outputs = reference.forward(type(model).__name__, model.config, weights, **arrays)
    with torch.no_grad():
        expected = model(**inputs, output_hidden_states=True, output_attentions=True)
    for name, values in outputs.items():
        tensor = expected[name]
        tensor = torch.stack(tensor) if isinstance(tensor, tuple) else tensor
        np.testing.assert_allclose(values, tensor.numpy(), atol=2e-5, rtol=1e-4, err_msg=name)
    expected_names = {name for name, value in vars(expected).items() if value is not None}
    assert expected_names - set(outputs) == (set() if attentions else {"attentions"})


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("groups", [(1, 1), (3, 2)], ids=["shared", "groups"])
def test_equals_torch_for_every_head(head, groups):
    model = make(head, num_hidden_groups=groups[0], inner_group_num=groups[1])
    compare(model, batch(head, mask=True, segments=True))
    compare(model, batch(head))


@pytest.mark.parametrize("name", ACTIVATION_NAMES)
def test_equals_torch_for_every_activation(name):
    compare(make("AlbertForMaskedLM", hidden_act=name), batch())


def test_equals_torch_with_untied_words_and_empty_rows():
    model = make("AlbertForMaskedLM", num_hidden_groups=3, tie_word_embeddings=False)
    inputs = batch(mask=True)
    inputs["attention_mask"][0] = 0
    compare(model, inputs)


def test_the_error_function_equals_that_of_python():
    values = np.concatenate([np.linspace(-7, 7, 10_001), [0.0, 1e-300, np.inf, -np.inf]])
    expected = [math.erf(value) for value in values]
    np.testing.assert_allclose(reference.erf(values), expected, atol=1e-13, rtol=0)
    assert np.isnan(reference.erf(np.array([np.nan]))).all()


def test_all_layers_does_not_change_the_logits():
    model = make("AlbertForMaskedLM")
    inputs = {name: tensor.numpy() for name, tensor in batch(mask=True).items()}
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    arguments = ("AlbertForMaskedLM", model.config, weights, inputs["input_ids"], inputs["attention_mask"])
    outputs = reference.forward(*arguments)
    only_logits = reference.forward(*arguments, all_layers=False)
    assert list(only_logits) == ["logits"]
    np.testing.assert_array_equal(only_logits["logits"], outputs["logits"])


def test_equals_the_original_implementation(shared):
    from albertkit import AlbertForPreTraining

    folder = shared / "fixtures" / "google-tf1-small"
    golden = np.load(folder / "golden.npz")
    model = AlbertForPreTraining.from_pretrained(folder / "model.ckpt-best")
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    inputs = {name: golden[name] for name in ("input_ids", "attention_mask", "token_type_ids")}
    outputs = reference.forward("AlbertForPreTraining", model.config, weights, **inputs, dtype=np.float64)
    mask = golden["attention_mask"] != 0
    np.testing.assert_allclose(
        outputs["hidden_states"][-1][mask], golden["sequence_output"][mask], atol=1e-5, rtol=1e-5
    )
    np.testing.assert_allclose(outputs["sop_logits"], golden["sop_logits"], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("inputs", [{"input_ids": -1}, {"token_type_ids": -1}, {"input_ids": 10**6}])
def test_an_id_outside_its_table_is_an_error(inputs):
    model = make("AlbertModel")
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    ids = {"input_ids": 5} | inputs
    with pytest.raises(IndexError, match=r"embeddings\.weight has the rows 0 to"):
        reference.forward(
            "AlbertModel", model.config, weights, **{name: np.full((1, 3), id_) for name, id_ in ids.items()}
        )


def test_a_missing_tensor_is_an_error():
    model = make("AlbertModel")
    state = model.state_dict()
    weights = {name: tensor.numpy() for name, tensor in state.items() if "LayerNorm" not in name}
    with pytest.raises(CheckpointError, match=r"no tensor embeddings\.LayerNorm\.weight"):
        reference.forward("AlbertModel", model.config, weights, batch()["input_ids"].numpy())


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("groups", [(1, 1), (3, 2)], ids=["shared", "groups"])
def test_the_onnx_network_equals_the_reference(head, groups):
    pytest.importorskip("onnxruntime", reason="needs ONNX Runtime: pip install onnxruntime")
    from albertkit.engines.engine import Row, plan
    from albertkit.engines.light_model import LightModel
    from albertkit.engines.onnx import OnnxNetwork

    model = make(head, num_hidden_groups=groups[0], inner_group_num=groups[1])
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    network = OnnxNetwork(LightModel(head, model.config, weights), int8=False)
    rows = [
        Row(input_ids=list(range(5, 5 + size)), token_type_ids=[0, *[1] * (size - 1)], example=0)
        for size in (9, 3, 9, 1)
    ]
    (batch,) = plan(rows, lambda row: range(len(row.input_ids)), 1000, None)
    all_scores = network(batch, next(iter(heads.HEADS[head].scores)))
    for row, scores in zip(
        batch.rows, np.split(all_scores, np.cumsum([len(row.input_ids) for row in batch.rows])), strict=False
    ):
        ids, segments = np.array([row.input_ids]), np.array([row.token_type_ids])
        if heads.HEADS[head].has_choices:
            ids, segments = ids[None], segments[None]
        outputs = reference.forward(head, model.config, weights, ids, token_type_ids=segments)
        if head == "AlbertForQuestionAnswering":
            expected = np.stack([outputs["start_logits"], outputs["end_logits"]], axis=-1)[0]
        else:
            expected = next(iter(outputs.values()))[0]
        np.testing.assert_allclose(
            scores[0] if heads.HEADS[head].reads_first else scores, expected, atol=2e-5, rtol=1e-4
        )
