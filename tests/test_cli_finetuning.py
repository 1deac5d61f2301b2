"""The verbs for labelled data: from files to a model, its report and predictions."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import Run, assert_one_line_error

from albertkit.config import AlbertConfig
from albertkit.finetuning.data_options import DataOptions
from albertkit.finetuning.finetune import finetune
from albertkit.finetuning.labelled_texts import LabelledTexts
from albertkit.finetuning.settings import FinetuningSettings
from albertkit.metrics.classification import accuracy
from albertkit.modeling.model import AlbertModel
from albertkit.modeling.task_heads import AlbertForSequenceClassification
from albertkit.pipelines import pipeline
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


@pytest.fixture(scope="module")
def classifier(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one step on single texts."""
    output = tmp_path_factory.mktemp("classifier")
    finetune(
        "text-classification",
        FinetuningSettings(steps=1, precision="fp32"),
        model=folder / "model",
        train_data=folder / "train.csv",
        validation_data=folder / "dev.csv",
        output=output,
        options=DataOptions(text_column="sentence", label_column="kind"),
    )
    return output


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


def test_what_is_read_is_not_overwritten(classifier: Path, tmp_path: Path, run: Run) -> None:
    """The input of a prediction, and the report by which a model is read."""
    rows = tmp_path / "rows.csv"
    rows.write_text("kind,sentence\nold,the house\n")
    before = (rows.read_bytes(), (classifier / "report.json").read_bytes())
    about = ("--text-column", "sentence", "--device", "cpu", "--model", classifier)
    result = run("predict", "text-classification", "--input", rows, "--output", rows, *about)
    assert_one_line_error(result, "rows.csv is the input")
    result = run(
        "evaluate", "text-classification", "--data", rows, "--output", classifier, "--label-column", "kind",
        *about,
    )  # fmt: skip
    assert_one_line_error(result, "holds the report of a fine-tuning run", str(classifier / "test"))
    assert (rows.read_bytes(), (classifier / "report.json").read_bytes()) == before


def test_a_model_of_single_texts_is_not_measured_on_pairs(classifier: Path, tmp_path: Path, run: Run) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("text,more,label\nthe house,was lost,old\n")
    about = ("--pair-column", "more", "--device", "cpu", "--model", classifier)
    said = "fine-tuned on single texts, and these are pairs"
    result = run("evaluate", "text-classification", "--data", rows, *about)
    assert (result.status, result.output) == (1, "")
    assert said in result.errors
    answers = tmp_path / "answers.jsonl"
    result = run("predict", "text-classification", "--input", rows, "--output", answers, *about)
    assert_one_line_error(result, said)
    classify = pipeline("text-classification", str(classifier))
    with pytest.warns(UserWarning, match="fine-tuned on single texts, and this is a pair"):
        classify({"text": "the house", "text_pair": "was lost"})


def test_rows_shorter_than_asked_for_are_announced(
    folder: Path, classifier: Path, tmp_path: Path, run: Run
) -> None:
    about = ("--text-column", "sentence", "--device", "cpu", "--model", classifier)
    data = ("--data", folder / "dev.csv", "--label-column", "kind")
    files = ("--input", folder / "dev.csv", "--output", tmp_path / "answers.jsonl")
    said = "max_length is 513, and the model reads at most 512 tokens: 512 it is\n"
    for verb, places in (("evaluate", data), ("predict", files)):
        for length, announced in ((513, True), (512, False)):
            result = run(verb, "text-classification", *places, *about, "--max-length", str(length))
            assert result.status == 0, result.errors
            assert (said in result.errors) is announced
            (tmp_path / "answers.jsonl").unlink(missing_ok=True)


def test_empty_texts_are_predicted_and_named(classifier: Path, tmp_path: Path, run: Run) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "the house"}\n{"text": ""}\n')
    result = run(
        "predict", "text-classification", "--model", classifier, "--input", rows, "--device", "cpu",
        "--output", tmp_path / "answers.jsonl",
    )  # fmt: skip
    assert len((tmp_path / "answers.jsonl").read_text().splitlines()) == 2
    assert "  empty: 1\n" in result.errors
    assert "rows.jsonl, line 2: no text in 'text', and predicted all the same" in result.errors


def test_a_label_seen_once_is_named(folder: Path, tmp_path: Path, run: Run) -> None:
    file = tmp_path / "train.csv"
    rows = [*ROWS * 8, ("the river", "nwe")]
    file.write_text("label,text\n" + "".join(f"{label},{text}\n" for text, label in rows))
    result = run(
        "finetune", "text-classification", "--model", folder / "model", "--train", file, "--validation", file,
        "--output", tmp_path / "run", "--steps", "1", "--device", "cpu",
    )  # fmt: skip
    assert "'nwe': seen once in training; is that a slip?" in result.errors


def test_a_model_that_is_kept_from_before_training_is_named(
    folder: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = iter([0.9, 0.5, 0.5])
    monkeypatch.setattr(LabelledTexts, "scores", lambda *_: {"accuracy": next(scores, 0.9)})
    result = run(
        "finetune", "text-classification", "--model", folder / "model", "--train", folder / "train.csv",
        "--validation", folder / "dev.csv", "--output", tmp_path / "run", "--steps", "2", "--evaluate-every",
        "1", "--text-column", "sentence", "--label-column", "kind", "--device", "cpu",
    )  # fmt: skip
    assert "warning: no evaluation was better than that before training" in result.errors
    report = (tmp_path / "run" / "report.json").read_text()
    assert "Infinity" not in report
    assert json.loads(report)["step"] == 0


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
    assert_one_line_error(result, "expected one of text-classification, token-classification")
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
        "ratings": [(str(number), "a") for number in [*range(11), 3]],
        "stars": [(str(number), "a") for number in [*range(10), 3]],
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
    assert "the labels are 11 whole numbers, read as classes; if they are amounts" in said["ratings"]
    assert "--problem-type" not in said["stars"]
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
