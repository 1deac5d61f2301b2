"""Tests of the report, the command and the errors of conversions, and of conversion without PyTorch."""

import json
import runpy
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from command_line import Run
from conversion_models import TOLERANCE, WORDS, random_model
from modeling_twins import make
from original_checkpoint import Tensors, arrays_fixture, original_fixture, tf1_fixture  # noqa: F401
from places import ROOT
from safetensors.torch import load_file
from torch_files import write_bundle
from torchless import run_without_torch

from albertkit.checkpoints import folder as folder_file
from albertkit.checkpoints import julia
from albertkit.conversion import convert
from albertkit.errors import CheckpointError, ConfigError, DataError, ModelNotFoundError
from albertkit.modeling.model import AlbertModel

# --- the report and the verb --------------------------------------------------------------------


def test_the_report_accounts_for_everything(tf1: Path, original: Tensors) -> None:
    write_bundle(tf1 / "model.ckpt-best", original | {"bert/something": torch.ones(2)})
    report = convert(tf1, tf1.parent / "hf", verify=True)
    assert (report.source_format, report.target_format) == ("tf1", "hf")
    assert report.architecture == "AlbertForPreTraining"
    moves = {move.source: move for move in report.tensors}
    assert set(moves) == {name for name in original if "adam" not in name and name != "global_step"}
    kernel = moves["cls/predictions/transform/dense/kernel"]
    assert (kernel.target, kernel.shape, kernel.dtype) == ("predictions.dense.weight", (16, 48), "float32")
    assert report.unexpected == ["bert/something"]
    assert set(report.unused) == {"global_step", f"{WORDS}/adam_m", f"{WORDS}/adam_v"}
    assert report.missing == []
    assert report.largest_difference == 0
    assert {Path(path).name for path in report.checksums} == {
        *("model.ckpt-best.index", "model.ckpt-best.data-00000-of-00001"),
        *("config.json", "model.safetensors"),
    }
    short, long = str(report), report.text(verbose=True)
    for part in ("unexpected, left out: bert/something", "differ by at most 0.0e+00"):
        assert part in short
    for part in ("16x48 float32", "sha256 "):
        assert part in long
        assert part not in short
    values = sum(tensor.numel() for name, tensor in original.items() if name in moves)
    assert f"{len(moves)} tensors, {values:,} values of float32" in short
    assert json.loads(json.dumps(report.to_json()))["tensors"][0]["source"] == WORDS


def test_the_report_lists_missing_tensors(tf1: Path, original: Tensors) -> None:
    write_bundle(
        tf1 / "model.ckpt-best",
        {key: tensor for key, tensor in original.items() if "seq_relationship" not in key},
    )
    report = convert(tf1, tf1.parent / "hf", verify=True)
    assert report.largest_difference == 0
    assert report.missing == ["sop_classifier.classifier.weight", "sop_classifier.classifier.bias"]
    assert "sop_classifier.classifier.weight" not in load_file(tf1.parent / "hf" / "model.safetensors")


def test_a_checkpoint_is_never_replaced(tf1: Path) -> None:
    with pytest.raises(DataError, match=r"holds .*model.ckpt-best.index. Choose another folder"):
        convert(tf1, tf1, to="tf1")
    convert(tf1, tf1.parent / "hf")
    with pytest.raises(DataError, match=r"holds .*model.safetensors. Choose another folder"):
        convert(tf1, tf1.parent / "hf")
    (tf1.parent / "file").touch()
    with pytest.raises(DataError, match=r"file is a file. Expected a folder to write to"):
        convert(tf1, tf1.parent / "file" / "out", to="tf1")


def test_invalid_arguments(tf1: Path) -> None:
    with pytest.raises(ConfigError, match="does not match the format 'julia'"):
        convert(tf1, tf1.parent / "out", to="julia")
    with pytest.raises(ConfigError, match=r"format 'onnx' is unknown. Expected one of hf, tf1, julia"):
        convert(tf1, tf1.parent / "out", to="onnx")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="dtype is 'int8'"):
        convert(tf1, tf1.parent / "out", dtype="int8")
    with pytest.raises(ModelNotFoundError):
        convert(tf1.parent / "nothing", tf1.parent / "out")


def test_the_verb(tf1: Path, run: Run) -> None:
    done = run("convert", tf1, tf1.parent / "hf", "--verify", "--json")
    assert done.status == 0, done.errors
    (report,) = done.json
    assert report["largest_difference"] == 0
    assert len(report["tensors"]) == 32
    target = tf1.parent / "model.tfbson"
    done = run("convert", tf1.parent / "hf", target, "--dtype", "float16")
    assert done.status == 0, done.errors
    assert "(hf) -> " in done.output
    assert julia.load(target)["weights"][WORDS].dtype == np.float16


@pytest.mark.filterwarnings("ignore:AlbertForPreTraining from")
def test_the_table_of_the_documentation(
    tmp_path: Path, arrays: Tensors, script: Callable[[str], ModuleType]
) -> None:
    """Check the rows of the table. keras_checks_docs.py checks the row of Keras, because it loads Keras."""
    table = script("checkpoint_table")
    page = table.PAGE.read_text()
    for row in table.FORMATS:
        if row.measure is not table.keras:
            assert row.measure(tmp_path, arrays) <= TOLERANCE, row.name
        assert row.line(0).rpartition("| 0")[0] in page, row.name


def test_the_julia_example_prints_the_shapes(
    tf1: Path, tiny_vocabulary: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, example = tf1.parent / "model.tfbson", ROOT / "examples" / "julia_walkthrough.py"
    convert(tf1, model)
    monkeypatch.setattr(sys, "argv", [example.name, str(model), str(tiny_vocabulary)])
    runpy.run_path(str(example), run_name="__main__")
    printed = capsys.readouterr().out
    for stage in ("embedding            16x", "transformer          48x", "pooler               48x3"):
        assert stage in printed
    assert "masked-word head     512x" in printed
    assert "sentence-order head  2x3 (features first)" in printed


@pytest.mark.parametrize("dtype", [None, "float32", "float16", "bfloat16"])
def test_verify_finds_a_difference(tf1: Path, monkeypatch: pytest.MonkeyPatch, dtype: str | None) -> None:
    def wrong(folder: Path, config: dict, tensors: Tensors, **options: object) -> None:
        folder_file.write_folder(
            folder, config, {**tensors, "predictions.bias": tensors["predictions.bias"] + change}
        )

    change = 1e-3 if dtype in (None, "float32") else 0.06  # is not lost in rounding

    monkeypatch.setattr("albertkit.conversion.write_folder", wrong)
    with pytest.raises(CheckpointError, match=r"its outputs differ from those of .* by up to \d"):
        convert(tf1, tf1.parent / "hf", dtype=dtype, verify=True)


def test_verify_finds_weights_that_are_not_finite(tmp_path: Path) -> None:
    model = make("AlbertModel")
    with torch.no_grad():
        model.pooler.bias[0] = torch.nan
    model.save_pretrained(tmp_path / "in")
    with pytest.raises(CheckpointError, match=r"in: pooler\.bias contains values that are NaN or infinite"):
        convert(tmp_path / "in", tmp_path / "out", verify=True)


# --- without torch ------------------------------------------------------------------------------

STEPS = [
    ("source", "hf", "hf", None),
    ("hf", "tf1", "tf1", None),
    ("tf1", "model.tfbson", "julia", "float16"),
    ("model.tfbson", "again", "hf", None),
]
CONVERT = """
import json
from albertkit.conversion import convert

for source, target, to, dtype in json.loads(sys.argv[1]):
    print(json.dumps(convert(source, target, to=to, dtype=dtype, verify=True).to_json()))
"""


def test_without_torch_reports_and_files_are_the_same(
    tf1: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    light, full = tmp_path / "light", tmp_path / "full"
    for folder in (light, full):
        shutil.copytree(tf1, folder / "source")
    output = run_without_torch(CONVERT, json.dumps(STEPS), cwd=light)
    monkeypatch.chdir(full)
    for (source, target, to, dtype), line in zip(STEPS, output.splitlines(), strict=True):
        report = convert(source, target, to=to, dtype=dtype, verify=True)  # type: ignore[arg-type]
        assert json.loads(line) == json.loads(json.dumps(report.to_json()))
    written = sorted(path.relative_to(full) for path in full.rglob("*") if path.is_file())
    assert written == sorted(path.relative_to(light) for path in light.rglob("*") if path.is_file())
    for path in written:
        assert (light / path).read_bytes() == (full / path).read_bytes()


def test_without_torch_a_pytorch_file_is_an_error_that_names_the_extra(tmp_path: Path) -> None:
    model = random_model(AlbertModel)
    model.config.save_pretrained(tmp_path)  # type: ignore[operator, union-attr]
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    code = """
from albertkit.conversion import convert
from albertkit.errors import MissingExtraError

try:
    convert(sys.argv[1], sys.argv[2])
except MissingExtraError as error:
    print(error)
"""
    output = run_without_torch(code, tmp_path, tmp_path / "out")
    assert "pip install 'albertkit[torch]'" in output
    assert not (tmp_path / "out").exists()
