"""Tests of the checks and the errors of `export_onnx`, of the command, and of exports without PyTorch."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import assert_one_line_error
from modeling_twins import make
from torch_files import write_folder
from torchless import run_without_torch

from albertkit import reference
from albertkit.checkpoints.arrays import to_arrays
from albertkit.checkpoints.folder import WEIGHTS_FILE
from albertkit.engines.light_model import LightModel
from albertkit.errors import CheckpointError, ConfigError, DataError, TokenizerError
from albertkit.export import check
from albertkit.export.check import compare
from albertkit.export.onnx import export_onnx
from albertkit.files import file_sha256
from albertkit.modeling import auto
from albertkit.tokenization.tokenizer import AutoTokenizer

TOLERANCE = 1e-4
Save = Callable[..., Path]


def test_export_into_the_folder_of_the_model(save: Save) -> None:
    folder = save("AlbertModel")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    export_onnx(folder, folder)
    assert {path.name for path in folder.iterdir()} == {*before, "model.onnx"}
    assert all((folder / name).read_bytes() == content for name, content in before.items())


def test_a_wrong_graph_leaves_no_file(labeled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from albertkit.onnx import network

    monkeypatch.setattr(network, "UNSEEN", 0.0)  # tokens attend to the padding
    with pytest.raises(CheckpointError, match=r"output logits differs .* Nothing was written"):
        export_onnx(labeled, tmp_path / "out" / "model.onnx")
    assert not (tmp_path / "out").exists()


def test_a_model_that_exceeds_the_range_of_float16_needs_float32(labeled: Path, tmp_path: Path) -> None:
    model = auto.AlbertForSequenceClassification.from_pretrained(labeled)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(60)
    folder = shutil.copytree(labeled, tmp_path / "model")
    model.save_pretrained(folder)
    with pytest.raises(CheckpointError, match=r"by nan\. .* Choose the compute 'float32'\.$"):
        export_onnx(folder, tmp_path / "model.onnx", compute="float16")


def test_rounding_of_the_reference_is_no_difference(
    labeled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_onnx(labeled, tmp_path / "model.onnx")
    network = auto.AlbertForSequenceClassification.from_pretrained(labeled)
    weights = to_arrays(network.state_dict())
    model = LightModel("AlbertForSequenceClassification", network.config, weights)
    noise = {np.float32: 1e-3, np.float64: 0.0}
    forward = reference.forward

    def noisy(*inputs: Any, dtype: type, **options: Any) -> dict[str, Any]:
        return {name: one + noise[dtype] for name, one in forward(*inputs, dtype=dtype, **options).items()}

    monkeypatch.setattr(reference, "forward", noisy)
    options: dict[str, Any] = {"optional_inputs": True, "compute": "float32"}
    tokenizer = AutoTokenizer.from_pretrained(labeled)
    largest, _ = compare(tmp_path / "model.onnx", model, tokenizer, ["the river"], **options)
    assert 0 < largest <= TOLERANCE
    noise[np.float64] = 1e-3
    with pytest.raises(CheckpointError, match=r"by 1.0e-03"):
        compare(tmp_path / "model.onnx", model, tokenizer, ["the river"], **options)


@pytest.mark.parametrize(
    ("output", "place", "counts"),
    [
        ("prediction_logits", (0, 1, 3), True),
        ("prediction_logits", (0, 2, 3), False),  # padding
        ("sop_logits", (1, 0), True),
    ],
)
@pytest.mark.parametrize("error", [2e-4, np.nan])
def test_only_padding_may_differ(
    monkeypatch: pytest.MonkeyPatch, output: str, place: tuple[int, ...], counts: bool, error: float
) -> None:
    network = make("AlbertForPreTraining")
    model = LightModel("AlbertForPreTraining", network.config, {})
    batch = {
        "input_ids": np.array([[2, 3, 0], [2, 0, 0]]),
        "attention_mask": np.array([[1, 1, 0], [1, 0, 0]]),
    }
    exact = {"prediction_logits": np.full((2, 3, 5), 100.0), "sop_logits": np.full((2, 2), 100.0)}
    outputs = {name: values.copy() for name, values in exact.items()}
    outputs[output][place] += error
    monkeypatch.setattr(check, "run_batches", lambda *_, **__: [(batch, outputs)])
    monkeypatch.setattr(check, "expected_outputs", lambda *_: exact)
    options: dict[str, Any] = {"optional_inputs": False, "compute": "float32"}
    if counts:
        with pytest.raises(CheckpointError, match=rf"output {output} differs .* Expected at most 1e-04"):
            compare(Path("model.onnx"), model, None, [], **options)
    else:
        assert compare(Path("model.onnx"), model, None, [], **options) == (0, [(2, 3)])


@pytest.mark.parametrize("value", [torch.nan, -torch.inf])
def test_weights_that_are_not_finite_are_an_error(labeled: Path, tmp_path: Path, value: float) -> None:
    model = auto.AutoModelForSequenceClassification.from_pretrained(labeled)
    with torch.no_grad():
        model.albert.pooler.bias[0] = value
    folder = shutil.copytree(labeled, tmp_path / "model")
    model.save_pretrained(folder)
    data = tmp_path / "dev.tsv"
    data.write_text("text\tlabel\nthe river\tbad\n")
    int8 = {"int8": True, "max_drop": 100}
    for options in ({}, {"dtype": "bfloat16"}, int8, int8 | {"calibrate": data}):
        with pytest.raises(CheckpointError, match=r"model: albert\.pooler\.bias contains .* NaN or infinite"):
            export_onnx(folder, tmp_path / "model.onnx", **options)
    assert not (tmp_path / "model.onnx").exists()


def test_the_check_uses_batches_of_different_shapes(labeled: Path, tmp_path: Path) -> None:
    report = export_onnx(labeled, tmp_path / "model.onnx", texts=["a key", "the river", "an empty house"])
    assert [shape[0] for shape in report.batches] == [1, 3, 3, 1]
    assert len({shape[1] for shape in report.batches}) == 4
    assert report.batches[-1][1] == 24


def test_invalid_arguments_are_an_error(save: Save, tmp_path: Path) -> None:
    folder, target = save("AlbertModel"), tmp_path / "model.onnx"
    for wrong, message in (
        ({"opset": 16}, "opset is 16. Expected 17 to"),
        ({"architecture": "AlbertForMaskedML"}, "did you mean 'AlbertForMaskedLM'"),
        ({"dtype": "int8"}, "dtype is 'int8'"),
        ({"compute": "bfloat16"}, "compute is 'bfloat16'"),
    ):
        with pytest.raises(ConfigError, match=message):
            export_onnx(folder, target, **wrong)
    with pytest.raises(DataError, match="no texts"):
        export_onnx(folder, target, texts=[])


def test_existing_files_are_not_replaced(save: Save, tmp_path: Path) -> None:
    folder = save("AlbertModel")
    (tmp_path / "model.onnx").write_text("mine")
    with pytest.raises(DataError, match=r"model.onnx exists. Choose another name"):
        export_onnx(folder, tmp_path / "model.onnx")
    other = save("AlbertModel", "other")
    with pytest.raises(DataError, match=r"holds config.json, model.safetensors"):
        export_onnx(folder, other)
    assert (tmp_path / "model.onnx").read_text() == "mine"


def test_a_folder_may_have_a_dot_in_its_name(save: Save, tmp_path: Path) -> None:
    export_onnx(save("AlbertModel"), tmp_path / "albert-v2.1")
    assert (tmp_path / "albert-v2.1/model.onnx").is_file()


def test_a_damaged_source(save: Save, tmp_path: Path) -> None:
    folder = save("AlbertModel")
    weights = folder / WEIGHTS_FILE
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="damaged or incomplete"):
        export_onnx(folder, tmp_path / "model.onnx")


def test_unexpected_weights_are_noted_and_float64_is_an_error(tmp_path: Path) -> None:
    model = make("AlbertForMaskedLM")
    weights = {name: one for name, one in model.state_dict().items() if "decoder" not in name}
    foreign = {"albert.something": torch.ones(2), "predictions.decoder.bias": torch.ones(60)}
    write_folder(tmp_path / "1", model.config.to_dict(), weights | foreign)
    report = export_onnx(tmp_path / "1", tmp_path / "1.onnx")
    assert report.notes[:2] == [
        "unexpected, left out: albert.something",
        "left out: predictions.decoder.bias differs from predictions.bias",
    ]
    write_folder(
        tmp_path / "2", model.config.to_dict(), {name: one.double() for name, one in weights.items()}
    )
    with pytest.raises(CheckpointError, match=r"is in float64. Choose the dtype 'float32'"):
        export_onnx(tmp_path / "2", tmp_path / "2.onnx")
    assert export_onnx(tmp_path / "2", tmp_path / "2.onnx", dtype="float32").dtype == "float32"


def test_a_model_that_exceeds_a_file_is_an_error(
    save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("albertkit.export.onnx._MOST_BYTES", 1_000)
    with pytest.raises(CheckpointError, match="Choose the dtype 'float16'"):
        export_onnx(save("AlbertModel"), tmp_path / "model.onnx")


def test_a_tokenizer_of_another_model(labeled: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(labeled, tmp_path / "other")
    make("AlbertForSequenceClassification", vocab_size=60).save_pretrained(folder)
    with pytest.raises(TokenizerError, match=rf"^{folder}: its tokenizer has 500 pieces"):
        export_onnx(folder, tmp_path / "model.onnx")


def test_the_command(run, labeled: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("the river\nan empty house\n")
    result = run("export", "onnx", labeled, tmp_path / "a.onnx", "--texts", tmp_path / "texts.txt", "--json")
    assert result.status == 0, result.errors
    (report,) = result.json
    assert report["size_ratio"] == report["file_bytes"] / report["weight_bytes"]
    assert report["checksums"] == {str(tmp_path / "a.onnx"): file_sha256(tmp_path / "a.onnx")}
    result = run("export", "onnx", labeled, tmp_path / "b.onnx", "--all-inputs", "--opset", 17)
    assert result.status == 0, result.errors
    for part in (
        "opset 17",
        "in   token_type_ids  int64 (batch, sequence)\n",
        "differs from the reference by at most",
    ):
        assert part in result.output
    result = run("export", "onnx", labeled, tmp_path / "a.onnx")
    assert_one_line_error(result, "a.onnx exists. Choose another name")


EXPORTS: list[dict[str, Any]] = [
    {},
    {"dtype": "bfloat16", "all_inputs": True},
    {"compute": "float16", "architecture": "AlbertModel"},
    {"int8": True, "calibrate": "texts.txt", "max_drop": 100},
    {"int8": True, "calibrate": "labels.csv", "max_drop": 100},
]
EXPORT = """
import json
from albertkit.export.onnx import export_onnx

for number, options in enumerate(json.loads(sys.argv[1])):
    print(json.dumps(export_onnx("source", str(number), **options).to_json()))
"""


def test_reports_and_files_without_torch(
    labeled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    light, full = tmp_path / "light", tmp_path / "full"
    for folder in (light, full):
        shutil.copytree(labeled, folder / "source")
        (folder / "texts.txt").write_text("the river\nan empty house\n")
        (folder / "labels.csv").write_text("text,label\nthe river,bad\nan empty house,so-so\n")
    output = run_without_torch(EXPORT, json.dumps(EXPORTS), cwd=light)
    monkeypatch.chdir(full)
    for number, (options, line) in enumerate(zip(EXPORTS, output.splitlines(), strict=True)):
        report = export_onnx("source", str(number), **options)
        assert json.loads(line) == json.loads(json.dumps(report.to_json()))
        assert (light / f"{number}/model.onnx").read_bytes() == (full / f"{number}/model.onnx").read_bytes()
    assert report.accuracy_drop is not None
    assert (report.accuracy_drop.metric, report.accuracy_drop.examples) == (
        "accuracy",
        2,
    )  # of the last export


def test_the_limit_is_for_the_size_in_the_file(
    save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save("AlbertModel", hidden_size=64, intermediate_size=256)
    monkeypatch.setattr("albertkit.export.onnx._MOST_BYTES", 120_000)
    with pytest.raises(CheckpointError, match="Choose the dtype 'float16'"):
        export_onnx(folder, tmp_path / "exact.onnx")
    report = export_onnx(folder, tmp_path / "int8.onnx", int8=True, max_drop=100)
    assert report.file_bytes < 120_000 < report.weight_bytes
