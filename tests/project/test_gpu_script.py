"""Tests of `scripts/gpu.py` on the CPU: its stages, their time limits, and its report."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT


def test_a_stage_records_its_output_and_its_figures(script, tmp_path: Path) -> None:
    gpu = script("gpu")
    figure = {"name": "speed", "value": 3.0, "against": 2.0, "ratio": 1.5, "target": ">= 1x", "met": True}
    stage = gpu.run_stage(
        "speed", ["-c", f"print('begins'); print('''{json.dumps(figure)}''')"], tmp_path, seconds=60
    )
    assert (stage.succeeded, stage.summary, stage.figures) == (True, "1 figures", [figure])
    assert (tmp_path / "speed.log").read_text().startswith("begins")
    failed = gpu.run_stage("broken", ["-c", "raise SystemExit('no such kernel')"], tmp_path, seconds=60)
    assert (failed.succeeded, failed.summary) == (False, "no such kernel")
    late = gpu.run_stage("late", ["-c", "import time; time.sleep(60)"], tmp_path, seconds=0.5)
    assert (late.succeeded, late.summary) == (False, "stopped at the limit of 0 s")
    page = gpu.as_page([stage, failed])
    assert "| speed | 3 | 2 | 1.50 | >= 1x, met |" in page
    assert "| broken | 0 | **failed**: no such kernel |" in page


def test_the_training_run_continues_from_its_first_stage(script, tmp_path: Path) -> None:
    gpu = script("gpu")
    stage = gpu.train(None, "bundled", tmp_path, seconds=120, dry_run=True)
    assert stage.succeeded
    assert stage.summary.startswith("run finished, step 3")
    assert (tmp_path / "small-1gpu" / "model.safetensors").is_file()


@pytest.mark.slow
def test_everything_on_the_cpu(tmp_path: Path) -> None:
    command = [
        sys.executable,
        ROOT / "scripts" / "gpu.py",
        "--dry-run",
        "--output",
        tmp_path,
        "--page",
        tmp_path / "page.md",
    ]
    subprocess.run(command, check=True, timeout=900)
    stages = json.loads((tmp_path / "report.json").read_text())["stages"]
    assert [(stage["name"], stage["succeeded"]) for stage in stages] == [
        (name, True) for name in ("tests", "inference", "pretraining", "training")
    ]
    assert "base, bf16: model FLOPs utilization" in (tmp_path / "page.md").read_text()
