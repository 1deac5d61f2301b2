"""`compare` reads the metrics and settings of runs, and draws their curves into one picture."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from quick_runs import quick_runs  # noqa: F401  # a fixture

import albertkit
from albertkit.errors import ConfigError, DataError, TrainingError
from albertkit.training.progress import draw_curves

LETTERS = [
    {"text": f"{word} number {number}", "label": label}
    for number in range(20)
    for word, label in (("good", "yes"), ("bad", "no"))
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a finished run `a`, and a run `b` that stopped after its second step."""
    folder = tmp_path_factory.mktemp("runs")
    settings: dict[str, Any] = {"steps": 4, "evaluate_every": 1, "log_every": 1, "precision": "fp32"}
    settings |= {"train": LETTERS, "validation": LETTERS[:10], "device": "cpu", "batch_size": 4}
    albertkit.finetune("text-classification", output=folder / "a", **settings)

    class StopsAtStepTwo(albertkit.Callback):
        def on_checkpoint(self, run: albertkit.RunState, folder: Path) -> None:
            if run.step == 2:
                raise InterruptedError

    with pytest.raises(InterruptedError):
        albertkit.finetune(
            "text-classification",
            output=folder / "b",
            callbacks=[StopsAtStepTwo()],
            **settings | {"learning_rate": 1e-5},
        )
    return folder


def lines(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_no_run_is_an_error() -> None:
    with pytest.raises(TrainingError):
        albertkit.compare([])


def test_metrics_and_settings_of_runs(runs: Path) -> None:
    comparison = albertkit.compare([runs / "a", str(runs / "b")])
    report = json.loads((runs / "a" / "report.json").read_text())
    a, b = comparison.metrics.values()
    assert [*comparison.metrics] == ["a", "b"]
    assert (a["finished"], a["steps"], a["model_step"]) == (True, 4, report["step"])
    assert a["accuracy"] == report["metrics"]["accuracy"]
    assert a["train/loss"] == lines(runs / "a")[-2]["train/loss"]
    best = max(lines(runs / "b")[1:], key=lambda line: line.get("eval/accuracy", 0))
    assert (b["finished"], b["steps"]) == (False, 2)
    assert b["accuracy"] == pytest.approx(best["eval/accuracy"], abs=1e-6)
    assert comparison.settings == {"a": {"learning_rate": 4e-4}, "b": {"learning_rate": 1e-5}}
    assert comparison.rows()[1] == {"run": "b"} | b | {"learning_rate": 1e-5}


def test_merged_labels_are_a_setting(tmp_path: Path) -> None:
    rows = [
        row | {"label": row["label"].title() if number % 3 else row["label"]}
        for number, row in enumerate(LETTERS)
    ]
    settings: dict[str, Any] = {"steps": 1, "precision": "fp32", "device": "cpu", "batch_size": 4}
    settings |= {"train": rows, "validation": rows}
    for name, merge in (("as-typed", False), ("merged", True)):
        albertkit.finetune("text-classification", output=tmp_path / name, merge_labels=merge, **settings)
    comparison = albertkit.compare([tmp_path / "as-typed", tmp_path / "merged"])
    assert comparison.settings == {"as-typed": {"merge_labels": None}, "merged": {"merge_labels": True}}


def test_names_are_the_parts_of_paths_that_differ(runs: Path, tmp_path: Path) -> None:
    for name in ("x", "y"):
        shutil.copytree(runs / "a", tmp_path / name / "run")
    assert [*albertkit.compare([tmp_path / "x" / "run", tmp_path / "y" / "run"]).folders] == [
        "x/run",
        "y/run",
    ]
    assert [*albertkit.compare([runs / "a", runs / "a"]).folders] == ["a"]


def test_the_picture_has_the_curves_of_all_runs(runs: Path, tmp_path: Path) -> None:
    comparison = albertkit.compare([runs / "a", runs / "b"], output=tmp_path / "compare.svg")
    assert comparison.image == tmp_path / "compare.svg"
    text = (tmp_path / "compare.svg").read_text()
    assert all(f"<!-- {shown} -->" in text for shown in ("a", "b", "accuracy", "loss", "thousand tokens"))
    with pytest.raises(DataError, match=r"compare\.svg exists"):
        albertkit.compare([runs / "a"], output=tmp_path / "compare.svg")
    with pytest.raises(ConfigError, match=r"cannot draw .*compare\.gif"):
        comparison.plot(tmp_path / "compare.gif")


def test_a_folder_that_is_no_run(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"is not the folder of a run: it has no run\.json"):
        albertkit.compare([runs / "a", tmp_path])


def test_curves_fit_the_width_of_a_page(tmp_path: Path) -> None:
    from matplotlib.image import imread

    metrics = {f"eval/metric_{number}": 0.5 for number in range(5)}
    draw_curves({"": [metrics | {"tokens": tokens} for tokens in (0, 2_000_000)]}, tmp_path / "curves.png")
    pixels = imread(tmp_path / "curves.png")
    height, width, _ = pixels.shape
    assert width <= 960
    assert height == 3 * 352
    assert np.all(pixels[2 * height // 3 + 20 :, width // 2 + 20 :] == 1)  # no sixth panel
