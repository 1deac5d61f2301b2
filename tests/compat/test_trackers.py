"""Tests of the callbacks in examples/ with Weights & Biases and MLflow, offline.

    pip install wandb mlflow
    pytest tests/compat/test_trackers.py

pytest skips the tests if the libraries are not installed. The suite does not install them, because they pin
versions of many other libraries.
"""

import json
import runpy
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from places import ROOT

from albertkit import finetune

ROWS = [{"text": text, "label": label} for text, label in [("A fine day.", "yes"), ("Rain.", "no")] * 4]


def logged_run(script: str, output: Path) -> list[dict[str, float]]:
    """Fine-tune with the callback of a script, and return the history of the run."""
    module = runpy.run_path(str(ROOT / "examples" / f"{script}_callback.py"))
    run = finetune(
        "text-classification", train=ROWS, validation=ROWS, output=output, steps=3, batch_size=4,
        log_every=2, precision="fp32", device="cpu", callbacks=[module[f"{script.capitalize()}Callback"]()],
    )  # fmt: skip
    return run.history


def test_mlflow(tmp_path: Path) -> None:
    mlflow = pytest.importorskip(
        "mlflow", reason="needs MLflow: pip install mlflow-skinny sqlalchemy alembic"
    )
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path / 'mlflow.db'}")
    lines = logged_run("mlflow", tmp_path / "run")
    (run,) = mlflow.search_runs(output_format="list")
    assert (run.info.status, run.info.run_name) == ("FINISHED", "run")
    assert (run.data.params["task"], run.data.params["batch_size"]) == ("text-classification", "4")
    client = mlflow.MlflowClient()
    for name in ("eval/accuracy", "train/loss", "learning_rate"):
        expected = [(line["step"], line[name]) for line in lines if name in line]
        history = client.get_metric_history(run.info.run_id, name)
        assert [(point.step, round(point.value, 6)) for point in history] == [
            (step, pytest.approx(value, abs=1e-6)) for step, value in expected
        ]


def test_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="needs Weights & Biases: pip install wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    lines = logged_run("wandb", tmp_path / "run")
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    steps, config = read_offline(file)
    assert json.loads(config["batch_size"]) == 4
    for name in ("eval/accuracy", "train/loss", "learning_rate"):
        # W&B keeps one record per step. The record of the last step includes the evaluation after it.
        expected = {line["step"]: line[name] for line in lines if name in line}
        logged = {step: round(values[name], 6) for step, values in steps.items() if name in values}
        assert logged == pytest.approx(expected, abs=1e-6)


def read_offline(file: Path) -> tuple[dict[int, dict[str, float]], dict[str, str]]:
    """Return the values of each step and the settings, as JSON, of an offline run."""
    wandb_internal_pb2 = import_module("wandb.proto.wandb_internal_pb2")

    steps: dict[int, dict[str, float]] = {}
    config: dict[str, str] = {}
    for data in records(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.HasField("history"):
            values = {"".join(item.nested_key) or item.key: item.value_json for item in record.history.item}
            step = int(values.pop("_step", record.history.step.num))
            steps.setdefault(step, {}).update({name: json.loads(value) for name, value in values.items()})
        for item in [*record.run.config.update, *record.config.update]:
            config["".join(item.nested_key) or item.key] = item.value_json
    return steps, config


def records(data: bytes) -> Iterator[bytes]:
    """Yield the records of a file of Weights & Biases: a log of LevelDB after a header of 7 bytes."""
    position, parts, block = 7, [], 32_768
    while position + 7 <= len(data):
        if block - position % block < 7:  # too small for a header: skip the end of the block
            position += block - position % block
            continue
        length, kind = int.from_bytes(data[position + 4 : position + 6], "little"), data[position + 6]
        parts.append(data[position + 7 : position + 7 + length])
        position += 7 + length
        if kind in (1, 4):  # a complete record, or its last part
            yield b"".join(parts)
            parts = []
