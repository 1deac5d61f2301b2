"""The verbs for labelled data: from files to a model, its report and predictions."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import Run, assert_one_line_error

from albertkit.config import AlbertConfig
from albertkit.metrics.classification import accuracy
from albertkit.modeling.model import AlbertModel
from albertkit.modeling.task_heads import AlbertForSequenceClassification
from albertkit.tokenization.tokenizer import AlbertTokenizer

ROWS = [("the river was painted", "new"), ("the house was lost", "old")]


@pytest.fixture(scope="module")
def folder(tiny_vocabulary: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random encoder in `model/`, and tables."""
    folder = tmp_path_factory.mktemp("labelled")
    tokenizer = AlbertTokenizer(tiny_vocabulary)
    shape: Any = {"embedding_size": 16, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
    torch.manual_seed(0)
    config = AlbertConfig(vocab_size=len(tokenizer), num_hidden_layers=2, initializer_range=0.2, **shape)
    AlbertModel(config).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    for name, repeats in (("train", 16), ("dev", 4)):
        lines = ["kind,sentence", *(f"{label},{text}" for text, label in ROWS * repeats)]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n,no label\n")
    return folder


def test_from_files_to_predictions(folder: Path, tmp_path: Path, run: Run) -> None:
    columns = ("--text-column", "sentence", "--label-column", "kind")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('epochs = 8\nprecision = "fp32"\n[task]\nmax_length = 24\n')
    result = run(
        "finetune", "text-classification", "--model", folder / "model", "--train", folder / "train.csv",
        "--validation", folder / "dev.csv", "--output", tmp_path / "run", "--recipe", recipe,
        "--batch-size", "8", "--learning-rate", "3e-3", "--evaluate-every", "16", "--device", "cpu", "--json",
        *columns,
    )  # fmt: skip
    assert result.status == 0, result.errors
    assert result.json[0]["accuracy"] == 1.0
    assert "train.csv: 32 examples, 1 left out" in result.errors
    assert "2 labels (single label classification): new 16, old 16" in result.errors

    report = tmp_path / "report"
    result = run(
        "evaluate", "text-classification", "--model", tmp_path / "run", "--data", folder / "dev.csv",
        "--output", report, "--device", "cpu", *columns,
    )  # fmt: skip
    assert result.status == 0, result.errors
    assert "accuracy  1.0000  (baseline 0.5000)" in result.output
    lines = [json.loads(line) for line in (report / "predictions.jsonl").read_text().splitlines()]
    said = [line["label"] for line in lines]
    assert [line["true"] for line in lines] == [label for _, label in ROWS * 4]
    metrics = json.loads((report / "report.json").read_text())["metrics"]
    assert metrics["accuracy"] == accuracy([label for _, label in ROWS * 4], said)

    result = run(
        "predict", "text-classification", "--model", tmp_path / "run", "--input", folder / "dev.csv",
        "--output", tmp_path / "answers.jsonl", "--text-column", "sentence", "--device", "cpu",
    )  # fmt: skip
    assert result.status == 0, result.errors
    answers = [json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]
    assert [answer["label"] for answer in answers[:8]] == said
    assert len(answers) == 9  # rows without label too


def test_a_missing_extra_is_said_before_any_work(
    folder: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    output = tmp_path / "run"
    result = run(
        "finetune", "text-classification", "--model", folder / "model", "--train", folder / "train.csv",
        "--validation", folder / "dev.csv", "--output", output, "--device", "cpu",
    )  # fmt: skip
    assert result.status == 1
    assert result.errors.splitlines() == [
        "error: matplotlib is not installed, and this needs it: pip install 'albertkit[train]'"
    ]
    assert not output.exists()


def test_errors_are_one_line(folder: Path, tmp_path: Path, run: Run) -> None:
    files = (
        "--train",
        folder / "train.csv",
        "--validation",
        folder / "dev.csv",
        "--output",
        tmp_path / "run",
    )
    model = ("--model", folder / "model", "--device", "cpu")
    result = run("finetune", "text-classification", *files, *model)
    assert_one_line_error(result, "no column 'text'", "kind, sentence")
    result = run("finetune", "text-clasification", *files, *model)
    assert_one_line_error(result, "did you mean 'text-classification'?")
    result = run("evaluate", "text-classification", "--data", folder / "dev.csv", *model)
    assert result.status == 1
    assert "it was not fine-tuned for text-classification" in result.errors
    # A regression has a head of the same names and sizes as multiple choice.
    config = AlbertConfig.from_pretrained(folder / "model").replace(num_labels=1, problem_type="regression")
    AlbertForSequenceClassification(config).save_pretrained(tmp_path / "numbers")
    AlbertTokenizer.from_pretrained(folder / "model").save_pretrained(tmp_path / "numbers")
    result = run("evaluate", "multiple-choice", "--data", tmp_path, "--model", tmp_path / "numbers")
    assert_one_line_error(result, "trained for text-classification", "not for multiple-choice")


def test_what_labels_look_like_is_said(folder: Path, tmp_path: Path, run: Run) -> None:
    """Several in a cell that nobody cuts; numbers; more than a line shows."""
    lines = {
        "marks": [("old;lost", "a"), ("new", "b")],
        "numbers": [("0.5", "a"), ("1.5", "b")],
        "many": [(f"kind{number:02d}", "a") for number in [0, *range(21)]],
    }
    said = {}
    for name, rows in lines.items():
        file = tmp_path / f"{name}.csv"
        file.write_text("\n".join(["label,text", *(f"{label},{text}" for label, text in rows)]) + "\n")
        said[name] = run(
            "finetune", "text-classification", "--train", file, "--validation", file, "--steps", "1",
            "--model", folder / "model", "--output", tmp_path / name, "--device", "cpu",
        ).errors  # fmt: skip
    assert "2 labels (single label classification): new 1, old;lost 1\n" in said["marks"]
    assert "some labels hold a ';': if it stands between several, --label-separator ';'" in said["marks"]
    assert "labels are numbers (regression): 0.5 to 1.5" in said["numbers"]
    assert "kind19 1, ...\n" in said["many"]
    assert "kind20" not in said["many"]


def test_help_says_what_holds_without_a_flag(run: Run) -> None:
    """A number of the settings for training; for a model that is there, that it is as it was trained."""
    verbs = ("finetune", "evaluate", "predict")
    flat = {verb: " ".join(run(verb, "--help").output.replace("│", " ").split()) for verb in verbs}
    assert "[default: (64)]" in flat["finetune"]
    for verb in ("evaluate", "predict"):
        assert "(64)" not in flat[verb]
        assert "[default: (as the model was fine-tuned)]" in flat[verb]
    assert not [verb for verb, shown in flat.items() if "(None)" in shown]
