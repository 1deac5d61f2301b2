"""Tests that a new head needs only its entry in `heads.py` and its classes.

tests/engines/test_onnx_engine.py tests the new head with the engines.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from command_line import Run, assert_one_line_error
from engine_rows import rows_of
from modeling_twins import tiny
from new_head import NEW_HEAD, PART, add_new_head, new_model
from safetensors.torch import load_file
from small_task import FAST, ROWS, Small, tiny_model

from albertkit import bench
from albertkit.conversion import convert
from albertkit.engines.choosing import load_complete_model, make_engine
from albertkit.engines.engine import Row, every_token
from albertkit.engines.light_model import LightModel
from albertkit.errors import ConfigError
from albertkit.export.onnx import export_onnx
from albertkit.finetuning.finetune import finetune
from albertkit.finetuning.predict import predict
from albertkit.footprint import measure
from albertkit.pipelines import pipeline
from albertkit.serving.models import load_model
from albertkit.serving.settings import ServingSettings
from albertkit.tokenization.tokenizer import AlbertTokenizer
from albertkit.web.export import export_web


@pytest.fixture(autouse=True)
def _head(monkeypatch: pytest.MonkeyPatch) -> None:
    add_new_head(monkeypatch)


@pytest.fixture
def folder(tiny_vocabulary: Path, tmp_path: Path) -> Path:
    """Return the folder of a random model with the new head."""
    new_model(tiny(vocab_size=500, max_position_embeddings=64)).save_pretrained(tmp_path / "model")
    AlbertTokenizer(tiny_vocabulary).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_scores_without_torch_equal_scores_with_it(folder: Path) -> None:
    model = load_complete_model(folder, NEW_HEAD)
    assert isinstance(model, LightModel)
    rows = rows_of([9, 4])
    scores = make_engine(model, "onnx").run(rows, read=every_token)
    assert model.module is None
    expected = make_engine(model.to_module(), "plain").run(rows, read=every_token)
    for row_scores, expected_scores in zip(scores, expected, strict=True):
        assert row_scores.shape == expected_scores.shape == (len(row_scores), 1)
        np.testing.assert_allclose(row_scores, expected_scores, atol=1e-5)


def test_exports_and_conversion(folder: Path, tmp_path: Path) -> None:
    assert export_onnx(folder, tmp_path / "model.onnx").architecture == NEW_HEAD
    report = export_web(folder, tmp_path / "web", max_drop=100)
    assert [note for note in report.notes if f"transformers.js has no {NEW_HEAD}" in note]
    assert len(report.files) == 6
    convert(folder, tmp_path / "converted")
    before, after = (load_file(path / "model.safetensors") for path in (folder, tmp_path / "converted"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_parameters_are_counted_by_part() -> None:
    assert measure(NEW_HEAD, tiny()).parameters[PART].distinct == 32 * 32 + 32 + 2 * 32 + 32 + 1


def test_a_bench_needs_no_pipeline(folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "PRODUCTS", [(64, 64, 64)])
    sizes = ["--lengths", "8", "--batches", "1", "--minutes", "9", "--rounds", "1", "--device", "cpu"]
    result = run("bench", "--model", folder, *sizes, "--json")
    assert result.status == 0, result.errors
    machine, *lines = result.json
    assert machine["class"] == NEW_HEAD
    assert machine["differences"]["onnx"] < 1e-4
    assert {line["engine"] for line in lines} == {"plain", "torch", "onnx", "onnx-int8"}
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["AlbertForReplaced"]}))
    assert_one_line_error(run("bench", "--model", folder), "'AlbertForReplaced' is not a model class")


def test_a_missing_pipeline_is_an_error_of_pipelines_and_servers(folder: Path) -> None:
    message = f"the task is None, and there is no pipeline for {NEW_HEAD}"
    settings = ServingSettings(models={"new": str(folder)}, device="cpu")
    for load in (lambda: pipeline(None, folder), lambda: load_model("new", settings)):
        with pytest.raises(ConfigError, match=message):
            load()
    served = load_model("new", replace(settings, tasks={"new": "feature-extraction"}))
    assert [*served.expected] == ["hidden_states"]


class MeanScore(Small):
    """A task that classifies a text by the mean score of its tokens."""

    architecture = NEW_HEAD
    training_multiple = 1
    objective = staticmethod(
        lambda logits, labels: F.binary_cross_entropy_with_logits(logits[..., 0].mean(1), labels.float())
    )

    def read(self, row: Row) -> Sequence[int]:
        return every_token(row)

    def keep(self, scores: np.ndarray) -> np.ndarray:
        return scores.mean(0)  # (T, 1) -> (1,)

    def predictions(self, examples: Any, rows: Any, outputs: Sequence[np.ndarray]) -> list[str]:
        return [self.labels.names[int(mean[0] > 0)] for mean in outputs]


def test_fine_tuning_with_a_task_of_your_own(tiny_vocabulary: Path, tmp_path: Path) -> None:
    start = tiny_model(tiny_vocabulary, tmp_path / "start")
    settings = {"train": ROWS, "validation": ROWS, "epochs": 40, **FAST}
    run = finetune(MeanScore(), model=start, output=tmp_path / "run", **settings)
    assert "detector.scores.weight" in load_file(run.folder / "model.safetensors")
    records = predict(run.folder, input=ROWS, task=MeanScore(), device="cpu")
    assert [record["label"] for record in records] == [row["label"] for row in ROWS]
