"""Tests of models and outputs in other tools: pytrees, export, tracing, nn.DataParallel and accelerate."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch
from accelerate.utils import recursively_apply
from accelerate.utils.operations import concatenate, convert_outputs_to_fp32
from modeling_twins import HEADS, batch, labels_for, largest_difference, make
from torch import nn
from torch.nn.parallel import scatter_gather
from torch.utils import _pytree as pytree

from albertkit.modeling.outputs import BaseModelOutputWithPooling, MaskedLMOutput

TOLERANCE = 1e-6


@pytest.mark.parametrize("head", HEADS)
def test_pytree(head: str) -> None:
    output = make(head)(**batch(head), **labels_for(head), output_hidden_states=True)
    doubled = pytree.tree_map(lambda tensor: 2 * tensor, output)
    assert type(doubled) is type(output)
    assert doubled.keys() == output.keys()
    assert torch.equal(doubled[0], 2 * output[0])
    assert torch.equal(doubled.hidden_states[1], 2 * output.hidden_states[1])
    paths = [pytree.keystr(path) for path, _ in pytree.tree_flatten_with_path(output)[0]]
    assert paths[0] == f"['{output.keys()[0]}']"


@pytest.mark.parametrize("strict", [True, False])
def test_export(strict: bool) -> None:
    model = make("AlbertForMaskedLM", num_hidden_layers=1)
    inputs = batch(mask=True)
    file = io.BytesIO()
    torch.export.save(torch.export.export(model, (), inputs, strict=strict), file)
    file.seek(0)
    output = torch.export.load(file).module()(**inputs)
    assert type(output) is MaskedLMOutput
    assert largest_difference(output.logits, model(**inputs).logits) <= TOLERANCE


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("head", HEADS)
def test_trace(head: str) -> None:
    model, ids = make(head, output_hidden_states=True), batch(head)["input_ids"]
    traced = torch.jit.trace(model, (ids,))
    others = torch.cat([ids, ids[:2]])[..., :9]  # 5 rows instead of 3, 9 tokens instead of 12
    for given in (ids, others):
        outputs, expected = traced(given), model(given)
        assert len(outputs) == len(expected)
        assert largest_difference(outputs[0], expected[0]) <= TOLERANCE
        assert largest_difference(outputs[-1][1], expected.hidden_states[1]) <= TOLERANCE


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.filterwarnings("ignore:Exporting aten.*index operator:UserWarning")
@pytest.mark.parametrize("head", HEADS)
def test_onnx_export_of_a_traced_model(head: str, tmp_path: Path) -> None:
    model, inputs = make(head), batch(head, mask=True)
    file = tmp_path / "model.onnx"
    dimensions = {0: "rows", inputs["input_ids"].dim() - 1: "tokens"}
    torch.onnx.export(
        model,
        tuple(inputs.values()),
        file,
        input_names=[*inputs],
        dynamic_axes=dict.fromkeys(inputs, dimensions),
        dynamo=False,
    )
    others = {name: torch.cat([tensor, tensor])[..., :9] for name, tensor in inputs.items()}
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    scores = session.run(None, {name: tensor.numpy() for name, tensor in others.items()})[0]
    assert largest_difference(torch.from_numpy(scores), model(**others)[0]) <= 1e-5


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_trace_of_a_model_that_contains_ours() -> None:
    class Scores(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = make("AlbertForMaskedLM")

        def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
            output = self.model(input_ids)
            assert output.hidden_states is None
            assert "loss" not in output
            return output.logits + output["logits"]

    ids = batch()["input_ids"]
    assert torch.equal(torch.jit.trace(Scores(), (ids,))(ids), Scores()(ids))


@pytest.mark.parametrize("head", HEADS)
def test_replicas_of_data_parallel(head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replicate the model like nn.DataParallel, which itself needs GPUs."""
    gather = lambda device, dim, *tensors: torch.cat([tensor.unsqueeze(0) for tensor in tensors])  # noqa: E731
    monkeypatch.setattr(scatter_gather.Gather, "apply", gather)
    model = make(head)
    inputs: dict[str, Any] = {**batch(head), **labels_for(head)}
    count = {"num_items_in_batch": torch.full((1, 1), 4.0)} if "labels" in inputs else {}
    replicas = [_replicate(model), _replicate(model)]
    outputs = [
        replica(**inputs, **count, output_hidden_states=True, return_dict=True) for replica in replicas
    ]
    gathered: Any = scatter_gather.gather(outputs, "cpu")
    expected = model(**inputs, **count, output_hidden_states=True)
    assert gathered.keys() == expected.keys()
    for name in expected.keys():  # noqa: SIM118 - iterating over outputs gives their values
        if name == "hidden_states":
            assert torch.equal(gathered.hidden_states[2][1], expected.hidden_states[2])
        else:
            assert torch.equal(gathered[name], torch.stack([expected[name]] * 2))
    assert gathered.attentions is gathered.get("attentions") is None


def _replicate(module: nn.Module) -> Any:
    replica = module._replicate_for_data_parallel()  # type: ignore[operator]
    for name, child in module._modules.items():
        replica._modules[name] = None if child is None else _replicate(child)
    for name, parameter in module._parameters.items():
        setattr(replica, name, parameter.clone() if parameter is not None else None)
    return replica


def test_accelerate_moves_and_pads() -> None:
    output = make("AlbertModel")(**batch(), output_hidden_states=True)
    assert isinstance(output, Mapping)
    half = recursively_apply(lambda tensor: tensor.half(), output)
    assert type(half) is BaseModelOutputWithPooling
    assert half.pooler_output.dtype == half.hidden_states[0].dtype == torch.float16
    assert convert_outputs_to_fp32(lambda: half)().hidden_states[0].dtype == torch.float32
    assert concatenate([output, output]).last_hidden_state.shape == (6, 12, 32)


def test_dict() -> None:
    model = make("AlbertForMaskedLM")
    output = model(**batch())
    assert isinstance(output, dict)
    assert dict(output) == {**output} == {"logits": output.logits}
    assert output != model(**batch())
    assert len({output, output}) == 1
    output["input_ids"] = batch()["input_ids"]  # as the pipelines of `transformers` do
    assert list(output.copy().items()) == [("logits", output[0]), ("input_ids", output[1])]
    with pytest.raises(TypeError, match="MaskedLMOutput does not have this method"):
        output.pop("logits")
