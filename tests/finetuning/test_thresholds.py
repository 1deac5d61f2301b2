"""Thresholds of a fine-tuned model: tuned or passed, saved, and used by default."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from command_line import Run, assert_one_line_error
from finetuning_runs import FAST, tune
from json_lines import read_json_lines, write_json_lines

import albertkit
from albertkit.config import AlbertConfig
from albertkit.errors import ConfigError
from albertkit.pipelines import pipeline

pytestmark = pytest.mark.usefixtures("blank_pictures")
WORDS = ["river", "house", "letters", "harbour", "dinner", "morning"]


def rare_labels(count: int, seed: int) -> list[dict[str, Any]]:
    """Return texts with two rare labels, each for a word."""
    draw, rows = random.Random(seed), []
    for _ in range(count):
        labels = [label for label in ("key", "secret") if draw.random() < 0.2]
        words = [*labels, *draw.choices(WORDS, k=3)]
        draw.shuffle(words)
        rows.append({"text": " ".join(words), "label": labels})
    return rows


@pytest.fixture(scope="module")
def rare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rare")
    write_json_lines(folder / "train.jsonl", rare_labels(64, 0))
    write_json_lines(folder / "validation.jsonl", rare_labels(40, 1))
    return folder


@pytest.fixture(scope="module")
def tuned(model: Path, rare: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a short run with tuned thresholds for several labels."""
    output = tmp_path_factory.mktemp("tuned") / "run"
    tune("text-classification", FAST, model, rare, output, threshold="auto", epochs=3.0)
    return output


def test_tuned_thresholds_beat_one_half_and_are_the_default(tuned: Path, rare: Path, tmp_path: Path) -> None:
    thresholds = AlbertConfig.from_pretrained(tuned).thresholds
    assert thresholds.keys() == {"key", "secret"}
    report = json.loads((tuned / "report.json").read_text())
    data = rare / "validation.jsonl"
    now = albertkit.evaluate(tuned, data=data, device="cpu")
    half = albertkit.evaluate(tuned, data=data, device="cpu", threshold=0.5)
    assert now.metrics == pytest.approx(report["metrics"])
    assert now.metrics["f1_macro"] > half.metrics["f1_macro"]
    assert now.metrics["cross_entropy"] == half.metrics["cross_entropy"]

    texts = [row["text"] for row in read_json_lines(data)]
    classify = pipeline("text-classification", tuned, device="cpu")
    every = classify(texts, top_k=None)
    expected = [[one["label"] for one in row if one["score"] > thresholds[one["label"]]] for row in every]
    assert [[one["label"] for one in row] for row in classify(texts)] == expected
    assert [[one["label"] for one in row if one["predicted"]] for row in every] == expected
    records = albertkit.predict(tuned, input=data, output=tmp_path / "out.jsonl", device="cpu")
    assert [sorted(record["label"]) for record in records] == [sorted(names) for names in expected]
    passed = albertkit.predict(tuned, input=data, threshold={"key": 0.99, "secret": 0.0}, device="cpu")
    assert {tuple(record["label"]) for record in passed} == {("secret",)}


def test_thresholds_stay_in_other_formats(tuned: Path, tmp_path: Path) -> None:
    thresholds = AlbertConfig.from_pretrained(tuned).thresholds
    albertkit.convert(tuned, tmp_path / "copy")
    albertkit.export_onnx(tuned, tmp_path / "onnx")
    pipeline("text-classification", tuned, device="cpu").save_pretrained(tmp_path / "saved")
    expected = pipeline("text-classification", tuned, device="cpu")(["the key of the house", "river"])
    for name in ("copy", "onnx", "saved"):
        assert AlbertConfig.from_pretrained(tmp_path / name).thresholds == thresholds
        again = pipeline("text-classification", tmp_path / name, device="cpu")
        answers = again(["the key of the house", "river"])
        assert [[one["label"] for one in row] for row in answers] == [
            [one["label"] for one in row] for row in expected
        ]
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoConfig.from_pretrained(tuned)
    theirs.save_pretrained(tmp_path / "theirs")
    assert AlbertConfig.from_pretrained(tmp_path / "theirs").thresholds == thresholds


def test_a_finished_run_is_tuned_again_without_training(
    tuned: Path, model: Path, rare: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def again(**options: Any) -> dict[str, float] | None:
        result = tune("text-classification", FAST, model, rare, tuned, epochs=3.0, **options)
        assert result.step == 24
        return AlbertConfig.from_pretrained(tuned).extra.get("thresholds")

    before = AlbertConfig.from_pretrained(tuned).thresholds
    assert again() is None
    assert again(threshold={"key": 0.3}) == {"key": 0.3}
    with caplog.at_level("INFO", logger="albertkit"):
        assert again(threshold="auto") == before
    assert "thresholds tuned on the validation data: key " in caplog.text


def test_the_thresholds_of_the_initial_model_are_dropped(tuned: Path, data: Path, tmp_path: Path) -> None:
    tune("text-classification", FAST, tuned, data, tmp_path / "run", steps=1)
    assert "thresholds" not in AlbertConfig.from_pretrained(tmp_path / "run").extra


def test_coverage_of_a_classifier(classifier: Path, data: Path, tmp_path: Path, run: Run) -> None:
    every = albertkit.predict(classifier, input=data / "validation.jsonl", device="cpu")
    threshold = sorted(record["score"] for record in every)[9]  # 10 of 20 exceed it
    result = run(
        "evaluate", "--model", classifier, "--data", data / "validation.jsonl", "--device", "cpu",
        "--threshold", str(threshold), "--output", tmp_path / "report",
    )  # fmt: skip
    assert "coverage           0.5000\naccuracy_answered  1.0000" in result.output
    lines = read_json_lines(tmp_path / "report" / "predictions.jsonl")
    assert [line["label"] is None for line in lines] == [record["score"] <= threshold for record in every]
    assert [line["score"] for line in lines] == pytest.approx([record["score"] for record in every])

    label = every[0]["label"]
    output = tmp_path / "answers.csv"
    run(
        "predict", "--model", classifier, "--input", data / "validation.jsonl", "--device", "cpu",
        "--output", output, "--threshold", f"{label}=1",
    )  # fmt: skip
    cells = [row.split(",")[1] for row in output.read_text().splitlines()[1:]]
    assert cells == ["" if record["label"] == label else record["label"] for record in every]


def test_flags(classifier: Path, data: Path, run: Run) -> None:
    text = ["the painted house", "--model", classifier, "--device", "cpu"]
    (line,) = run("classify", *text, "--json").json
    assert all("predicted" not in label for label in line["predictions"])
    (line,) = run("classify", *text, "--json", "--threshold", "good=0", "--threshold", "bad=0.9").json
    assert {one["label"]: one["predicted"] for one in line["predictions"]} == {"good": True, "bad": False}
    assert "predicted: good\n" in run("classify", *text, "--threshold", "0.5").output
    shown = run("classify", *text, "--threshold", "1").output
    assert "predicted: none (no label exceeds its threshold)\n" in shown
    for flags, message in {
        ("good=x",): "--threshold is good=x. Expected NAME=NUMBER for each label, or only a number.",
        (
            "0.5",
            "good=0.1",
        ): "--threshold is 0.5, good=0.1. Expected NAME=NUMBER for each label, or only a number.",
        ("god=0.1",): "threshold has the label 'god', which the model does not have (did you mean 'good'?)",
        ("high",): "threshold is 'high'",
    }.items():
        options = [part for flag in flags for part in ("--threshold", flag)]
        assert_one_line_error(run("classify", *text, *options), message)
    auto = ["--model", classifier, "--data", data / "validation.jsonl", "--threshold", "auto"]
    assert_one_line_error(run("evaluate", *auto), "threshold is 'auto', which only finetune accepts")
    assert_one_line_error(
        run("classify", "a", "--candidate-labels", "a,b", "--threshold", "0.5"),
        "--threshold is for fine-tuned classifiers",
    )


def test_a_threshold_for_another_task_is_an_error(model: Path, tmp_path: Path) -> None:
    rows = [{"tokens": ["the", "fox"], "tags": ["O", "B-A"]}, {"tokens": ["a"], "tags": ["O"]}]
    with pytest.raises(ConfigError, match="threshold is for text-classification"):
        albertkit.finetune(
            "token-classification", train=rows, validation=rows, model=model, output=tmp_path / "run",
            words_column="tokens", label_column="tags", threshold=0.5,
        )  # fmt: skip
