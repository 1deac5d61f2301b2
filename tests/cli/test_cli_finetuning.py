"""Tests of `finetune` and `evaluate`: from files to a model, its report and predictions."""

import json
import sys
from pathlib import Path

import pytest
from command_line import LABELED_ROWS, TEXT, Run, assert_one_line_error, run_predict
from json_lines import read_json_lines

from albertkit.config import AlbertConfig
from albertkit.datasets.options import DataOptions
from albertkit.finetuning.predict import Predictor
from albertkit.finetuning.prepared import prepare
from albertkit.finetuning.settings import FinetuningSettings
from albertkit.modeling.heads import AlbertForSequenceClassification
from albertkit.pipelines import pipeline
from albertkit.tasks import loading as features
from albertkit.tasks.text_classification import TextClassification
from albertkit.tokenization.tokenizer import AlbertTokenizer

pytestmark = pytest.mark.usefixtures("blank_pictures")


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
    assert "train.csv: 32 examples, 1 skipped" in result.errors
    assert "2 labels (single-label classification): new 16, old 16" in result.errors

    report = tmp_path / "report"
    result = run(
        "evaluate", "--model", tmp_path / "run", "--data", folder / "dev.csv",
        "--output", report, "--device", "cpu", *columns,
    )  # fmt: skip
    assert result.status == 0, result.errors
    assert "accuracy  1.0000  (baseline 0.5000)" in result.output
    lines = read_json_lines(report / "predictions.jsonl")
    said = [line["label"] for line in lines]
    assert [line["true"] for line in lines] == [label for _, label in LABELED_ROWS * 4]
    metrics = json.loads((report / "report.json").read_text())["metrics"]
    right = [label == name for (_, label), name in zip(LABELED_ROWS * 4, said, strict=True)]
    assert metrics["accuracy"] == sum(right) / len(right)

    result = run(
        "predict", "--model", tmp_path / "run", "--input", folder / "dev.csv",
        "--output", tmp_path / "answers.jsonl", "--text-column", "sentence", "--device", "cpu",
    )  # fmt: skip
    assert result.status == 0, result.errors
    answers = read_json_lines(tmp_path / "answers.jsonl")
    assert [answer["label"] for answer in answers[:8]] == said
    assert len(answers) == 9  # including the row without a label


def test_inputs_are_not_overwritten(classifier: Path, tmp_path: Path, run: Run) -> None:
    """Check the input of `predict`, and the report of a fine-tuning run."""
    rows = tmp_path / "rows.csv"
    rows.write_text("kind,sentence\nold,the house\n")
    before = (rows.read_bytes(), (classifier / "report.json").read_bytes())
    about = ("--text-column", "sentence", "--device", "cpu", "--model", classifier)
    result = run("predict", "--input", rows, "--output", rows, *about)
    assert_one_line_error(result, "rows.csv exists. Choose another name")
    result = run(
        "evaluate", "--data", rows, "--output", classifier, "--label-column", "kind",
        *about,
    )  # fmt: skip
    assert_one_line_error(result, "has the report of a fine-tuning run")
    assert (rows.read_bytes(), (classifier / "report.json").read_bytes()) == before


def test_pairs_for_a_model_of_single_texts_are_an_error(classifier: Path, tmp_path: Path, run: Run) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("text,more,label\nthe house,was lost,old\n")
    about = (*TEXT, "--pair-column", "more", "--device", "cpu", "--model", classifier)
    said = "fine-tuned on single texts, but this is a pair"
    result = run("evaluate", "--data", rows, *about)
    assert (result.status, result.output) == (1, "")
    assert said in result.errors
    answers = tmp_path / "answers.jsonl"
    result = run("predict", "--input", rows, "--output", answers, *about)
    assert_one_line_error(result, said)
    classify = pipeline("text-classification", str(classifier))
    with pytest.warns(UserWarning, match="fine-tuned on single texts, but this is a pair"):
        classify({"text": "the house", "text_pair": "was lost"})


def test_a_maximum_length_above_the_model_is_logged(
    folder: Path, classifier: Path, tmp_path: Path, run: Run
) -> None:
    about = ("--text-column", "sentence", "--device", "cpu", "--model", classifier)
    data = ("--data", folder / "dev.csv", "--label-column", "kind")
    files = ("--input", folder / "dev.csv", "--output", tmp_path / "answers.jsonl")
    said = "max_length is 513, but the model's maximum is 512 tokens: using 512\n"
    for verb, places in (("evaluate", data), ("predict", files)):
        for length, announced in ((513, True), (512, False)):
            result = run(verb, *places, *about, "--max-length", str(length))
            assert result.status == 0, result.errors
            assert (said in result.errors) is announced
            (tmp_path / "answers.jsonl").unlink(missing_ok=True)


def test_texts_of_unknown_tokens_cause_a_warning(
    folder: Path, classifier: Path, tmp_path: Path, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    arabic = "\u0645\u0631\u062d\u0628\u0627"
    table = tmp_path / "texts.csv"
    lines = [f"{label},{text}" for label in ("old", "new") for text in (arabic, f"{arabic} \U0001f600", "a")]
    table.write_text("\n".join(["kind,sentence", *lines]) + "\n", encoding="utf-8")
    note = "4 of 6 texts consist mostly of unknown tokens (100% of their tokens)"
    caplog.set_level("INFO")
    prepare(
        TextClassification(),
        FinetuningSettings(steps=1),
        model=folder / "model",
        train=table,
        validation=table,
        options=DataOptions(text_column="sentence", label_column="kind"),
    )
    assert [line.partition(": ")[0] for line in caplog.messages if note in line] == ["training", "validation"]
    model, columns = ("--model", classifier), ("--text-column", "sentence")
    result = run("evaluate", *model, "--data", table, *columns, "--label-column", "kind")
    assert note in result.errors
    for name in ("a.jsonl", "b.jsonl"):
        output = tmp_path / name
        result = run("predict", *model, "--input", table, "--output", output, *columns)
        assert result.errors.count(f"warning: {note}") == 1
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join([arabic] * 3 + ["a word"]), encoding="utf-8")
    result = run("classify", "--file", texts, *model)
    assert result.errors.count("warning: 3 of 4 texts consist mostly of unknown tokens") == 1
    assert result.status == 0


def test_a_label_with_a_single_example_causes_a_warning(folder: Path, tmp_path: Path, run: Run) -> None:
    file = tmp_path / "train.csv"
    rows = [*LABELED_ROWS * 8, ("the river", "nwe")]
    file.write_text("label,text\n" + "".join(f"{label},{text}\n" for text, label in rows))
    result = run(
        "finetune", "text-classification", "--model", folder / "model", "--train", file, "--validation", file,
        "--output", tmp_path / "run", "--steps", "1", "--device", "cpu",
    )  # fmt: skip
    assert "labels with a single training example, perhaps by mistake: 'nwe'" in result.errors


def test_a_run_that_does_not_beat_the_untrained_model_causes_a_warning(
    folder: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = iter([0.9, 0.5, 0.5])
    monkeypatch.setattr(TextClassification, "scores", lambda *_: {"accuracy": next(scores, 0.9)})
    result = run(
        "finetune", "text-classification", "--model", folder / "model", "--train", folder / "train.csv",
        "--validation", folder / "dev.csv", "--output", tmp_path / "run", "--steps", "2", "--evaluate-every",
        "1", "--text-column", "sentence", "--label-column", "kind", "--device", "cpu",
    )  # fmt: skip
    assert "warning: no checkpoint beats the untrained model" in result.errors
    report = (tmp_path / "run" / "report.json").read_text()
    assert "Infinity" not in report
    assert json.loads(report)["step"] > 0


def test_a_missing_extra_is_an_error_before_any_work(
    folder: Path, classifier: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    output = tmp_path / "run"
    result = run(
        "finetune", "text-classification", "--model", folder / "model", "--train", folder / "train.csv",
        "--validation", folder / "dev.csv", "--output", output, "--device", "cpu",
    )  # fmt: skip
    assert result.status == 1
    assert result.errors.splitlines() == [
        "error: matplotlib is not installed. To install it: pip install 'albertkit[train]'"
    ]
    assert not output.exists()
    (tmp_path / "rows.csv").write_text("text\na\n")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setattr(Predictor, "__call__", lambda *_: pytest.fail("computed"))
    result = run_predict(run, classifier, tmp_path / "rows.csv", tmp_path / "answers.parquet", *TEXT)
    assert_one_line_error(result, "pyarrow is not installed. To install it: pip install 'albertkit[arrow]'")


def test_errors_have_one_line(folder: Path, tmp_path: Path, run: Run) -> None:
    files = (
        "--train",
        folder / "train.csv",
        "--validation",
        folder / "dev.csv",
        "--output",
        tmp_path / "run",
    )
    model = ("--model", folder / "model", "--device", "cpu")
    result = run(
        "finetune", "text-classification", *files, *model, "--text-column", "body", "--label-column", "kind"
    )
    assert_one_line_error(result, "no column 'body'", "kind, sentence")
    result = run("finetune", "text-clasification", *files, *model)
    assert_one_line_error(result, "(did you mean 'text-classification'?). Expected one of", "token-")
    result = run("evaluate", "--task", "text-classification", "--data", folder / "dev.csv", *model)
    assert result.status == 1
    assert "it was not fine-tuned for text-classification" in result.errors
    # The head of a regression has the same names and sizes as the head of multiple choice.
    config = AlbertConfig.from_pretrained(folder / "model").replace(num_labels=1, problem_type="regression")
    AlbertForSequenceClassification(config).save_pretrained(tmp_path / "numbers")
    AlbertTokenizer.from_pretrained(folder / "model").save_pretrained(tmp_path / "numbers")
    result = run("evaluate", "--task", "multiple-choice", "--data", tmp_path, "--model", tmp_path / "numbers")
    assert_one_line_error(result, "trained for text-classification", "not for multiple-choice")


def test_help_shows_defaults(run: Run) -> None:
    """`finetune` shows numbers. `evaluate` and `predict` use the settings of the fine-tuning."""
    verbs = ("finetune", "evaluate", "predict")
    flat = {verb: " ".join(run(verb, "--help-all").output.replace("│", " ").split()) for verb in verbs}
    assert "[default: 64]" in flat["finetune"]
    for verb in ("evaluate", "predict"):
        assert "[default: 64]" not in flat[verb]
        assert "Default: as the model was fine-tuned." in flat[verb]


def test_the_help_of_finetune_fits_on_two_screens(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rare options are shown by --help-all."""
    short = run("finetune", "--help").output
    assert len(short.splitlines()) <= 2 * 40
    assert "--dropout" not in short
    assert "--dropout" in run("finetune", "--help-all").output


def test_all_long_texts_are_counted_first(
    folder: Path, classifier: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check training data, evaluation data and the input of `predict`, in several chunks."""
    monkeypatch.setattr(features.chunks, "__defaults__", (2,))
    monkeypatch.setattr(Predictor, "__call__", lambda *_: pytest.fail("computed"))
    rows = tmp_path / "rows.csv"
    words = " river" * 20
    rows.write_text(f"kind,sentence\nold,a\nold,{words}\nold,b\nnew,c\nnew,{words}\nnew,{words}\n")
    about = ("--device", "cpu", "--max-length", "16", "--no-truncation")
    columns = ("--text-column", "sentence", "--label-column", "kind")
    said = (
        f"3 of 6 examples cannot be used ({rows}, line 3, {rows}, line 6, {rows}, line 7). The first: the "
        "text 'river river"
    )
    files = ("--train", rows, "--validation", folder / "dev.csv", "--output", tmp_path / "run")
    model = ("--model", folder / "model")
    for result in (
        run("finetune", "text-classification", *files, *model, *about, *columns),
        run("evaluate", "--data", rows, "--model", classifier, *about, *columns),
        run_predict(run, classifier, rows, tmp_path / "answers.csv", *about[2:]),
    ):
        assert result.status == 1
        assert said in result.errors.splitlines()[-1]
        assert "tokens with [CLS] and [SEP], but the maximum is 16" in result.errors
        assert "truncation" in result.errors
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


def test_evaluate_does_not_replace_its_data(classifier: Path, tmp_path: Path, run: Run) -> None:
    data = tmp_path / "predictions.jsonl"
    data.write_text('{"text": "the house", "label": "old"}\n')
    about = ("evaluate", "--model", classifier, "--data", data, "--device", "cpu")
    result = run(*about, "--output", tmp_path)
    assert_one_line_error(result, f"would replace {data}, which is the input")
    assert_one_line_error(run(*about, "--output", data), "is a file. Expected a folder")
    assert [path.name for path in tmp_path.iterdir()] == ["predictions.jsonl"]
