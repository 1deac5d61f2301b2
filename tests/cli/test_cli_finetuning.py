"""The verbs for labeled data: from files to a model, its report and predictions."""

import csv
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from command_line import Result, Run, assert_one_line_error
from pyarrow import parquet

from albertkit.config import AlbertConfig
from albertkit.datasets.options import DataOptions
from albertkit.finetuning.predictor import Asked, Predictor
from albertkit.finetuning.prepared import prepare
from albertkit.finetuning.settings import FinetuningSettings
from albertkit.finetuning.train import finetune
from albertkit.logs import ProgressBar
from albertkit.metrics.classification import accuracy
from albertkit.modeling.model import AlbertModel
from albertkit.modeling.task_heads import AlbertForSequenceClassification
from albertkit.pipelines import pipeline
from albertkit.tasks import loading as features
from albertkit.tasks.loading import CHUNK
from albertkit.tasks.text_classification import TextClassification
from albertkit.tokenization.tokenizer import AlbertTokenizer

pytestmark = pytest.mark.usefixtures("blank_pictures")

ROWS = [("the river was painted", "new"), ("the house was lost", "old")]


@pytest.fixture(scope="module")
def folder(tiny_vocabulary: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random encoder in `model/`, and tables."""
    folder = tmp_path_factory.mktemp("labeled")
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
        model=folder / "model",
        train=folder / "train.csv",
        validation=folder / "dev.csv",
        output=str(output),
        device="cpu",
        steps=1,
        precision="fp32",
        text_column="sentence",
        label_column="kind",
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
    assert "train.csv: 32 examples, 1 skipped" in result.errors
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
    assert_one_line_error(result, "has the report of a fine-tuning run", str(classifier / "test"))
    assert (rows.read_bytes(), (classifier / "report.json").read_bytes()) == before


def test_a_model_of_single_texts_is_not_measured_on_pairs(classifier: Path, tmp_path: Path, run: Run) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("text,more,label\nthe house,was lost,old\n")
    about = ("--pair-column", "more", "--device", "cpu", "--model", classifier)
    said = "fine-tuned on single texts, but these are pairs"
    result = run("evaluate", "text-classification", "--data", rows, *about)
    assert (result.status, result.output) == (1, "")
    assert said in result.errors
    answers = tmp_path / "answers.jsonl"
    result = run("predict", "text-classification", "--input", rows, "--output", answers, *about)
    assert_one_line_error(result, said)
    classify = pipeline("text-classification", str(classifier))
    with pytest.warns(UserWarning, match="fine-tuned on single texts, but this is a pair"):
        classify({"text": "the house", "text_pair": "was lost"})


def test_rows_shorter_than_asked_for_are_announced(
    folder: Path, classifier: Path, tmp_path: Path, run: Run
) -> None:
    about = ("--text-column", "sentence", "--device", "cpu", "--model", classifier)
    data = ("--data", folder / "dev.csv", "--label-column", "kind")
    files = ("--input", folder / "dev.csv", "--output", tmp_path / "answers.jsonl")
    said = "max_length is 513, but the model's maximum is 512 tokens: using 512\n"
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
    assert "rows.jsonl, line 2: no text in 'text', and predicted nevertheless" in result.errors


def test_text_of_unknown_tokens_is_announced(
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
    result = run(
        "evaluate", "text-classification", *model, "--data", table, *columns, "--label-column", "kind"
    )
    assert note in result.errors
    for name in ("a.jsonl", "b.jsonl"):
        output = tmp_path / name
        result = run("predict", "text-classification", *model, "--input", table, "--output", output, *columns)
        assert result.errors.count(f"warning: {note}") == 1
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join([arabic] * 3 + ["a word"]), encoding="utf-8")
    result = run("classify", "--file", texts, *model)
    assert result.errors.count("warning: 3 of 4 texts consist mostly of unknown tokens") == 1
    assert result.status == 0


def test_a_label_seen_once_is_named(folder: Path, tmp_path: Path, run: Run) -> None:
    file = tmp_path / "train.csv"
    rows = [*ROWS * 8, ("the river", "nwe")]
    file.write_text("label,text\n" + "".join(f"{label},{text}\n" for text, label in rows))
    result = run(
        "finetune", "text-classification", "--model", folder / "model", "--train", file, "--validation", file,
        "--output", tmp_path / "run", "--steps", "1", "--device", "cpu",
    )  # fmt: skip
    assert "labels with a single training example, perhaps by mistake: 'nwe'" in result.errors


def test_a_model_that_is_kept_from_before_training_is_named(
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
    assert json.loads(report)["step"] == 0


def test_a_missing_extra_is_said_before_any_work(
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
    result = predicted(run, classifier, tmp_path / "rows.csv", tmp_path / "answers.parquet")
    assert_one_line_error(result, "pyarrow is not installed. To install it: pip install 'albertkit[arrow]'")


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
    assert_one_line_error(result, "(did you mean 'text-classification'?). Expected one of", "token-")
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
    assert (
        "some labels contain ';'. If it separates several labels, use --label-separator ';'." in said["marks"]
    )
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


# --- predict -------------------------------------------------------------------------------------


def predicted(run: Run, model: Path, source: Path, output: Path, *more: str) -> Result:
    return run(
        "predict", "text-classification", "--model", model, "--input", source, "--output", output,
        "--device", "cpu", *more,
    )  # fmt: skip


def test_predict_uses_the_columns_of_the_training(classifier: Path, tmp_path: Path, run: Run) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("sentence,kind\nthe house,old\nthe river,new\n")
    output = tmp_path / "answers.csv"
    result = predicted(run, classifier, rows, output)
    assert result.status == 0, result.errors
    assert "options of the fine-tuning: --text-column sentence\n" in result.errors
    result = run("evaluate", "text-classification", "--model", classifier, "--data", rows, "--device", "cpu")
    assert result.status == 0, result.errors
    assert "options of the fine-tuning: --text-column sentence --label-column kind\n" in result.errors
    # A flag overrides them, and a file without these columns is read as without training.
    output.unlink()
    result = predicted(run, classifier, rows, output, "--text-column", "kind")
    assert (result.status, "options of the fine-tuning" in result.errors) == (0, False)
    other = tmp_path / "other.jsonl"
    other.write_text('{"text": "the house"}\n')
    output.unlink()
    result = predicted(run, classifier, other, output)
    assert (result.status, "options of the fine-tuning" in result.errors) == (0, False)
    result = predicted(run, classifier, other, output, "--text-column", "sentence")
    assert_one_line_error(result, "no column 'sentence'. The columns are text", "--text-column")


def test_tables_have_a_column_for_each_score(classifier: Path, tmp_path: Path, run: Run) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text('name,sentence,score,more\nn1,the house,3,"a\tb"\nn2,the river,4,\n')
    records = {}
    for kind in ("jsonl", "csv", "tsv", "parquet"):
        output = tmp_path / f"answers.{kind}"
        result = predicted(run, classifier, rows, output, "--keep-columns", "--id-column", "name")
        assert result.status == 0, result.errors
        if kind == "jsonl":
            records[kind] = [json.loads(line) for line in output.read_text().splitlines()]
        elif kind == "parquet":
            records[kind] = parquet.read_table(output).to_pylist()
        else:
            with output.open(newline="") as stream:
                records[kind] = [*csv.DictReader(stream, delimiter="\t" if kind == "tsv" else ",")]
    first = records["jsonl"][0]
    names = ["row", "id", "sentence", "input_score", "more", "label", "score", "scores", "cut"]
    assert list(first) == names
    assert (first["row"], first["id"], first["input_score"], first["more"]) == (1, "n1", "3", "a\tb")
    assert list(first["scores"]) == ["new", "old"]
    assert first["score"] == max(first["scores"].values())
    flat = [{name: one[name] for name in names if name != "scores"} for one in records["jsonl"]]
    for one, record in zip(flat, records["jsonl"], strict=True):
        one |= {f"score_{name}": score for name, score in record["scores"].items()}
    assert records["parquet"] == flat
    for kind in ("csv", "tsv"):
        assert records[kind] == [{name: str(value) for name, value in one.items()} for one in flat]


def test_columns_are_kept_of_tables_only(classifier: Path, tmp_path: Path, run: Run) -> None:
    file = tmp_path / "pairs.xml"
    file.write_text('<x><pair id="8" entailment="NO"><t>the house</t><h>was lost</h></pair></x>')
    result = predicted(run, classifier, file, tmp_path / "answers.csv", "--keep-columns")
    assert_one_line_error(result, "keep_columns is for tables", "pairs.xml has no columns")


def test_rows_that_cannot_be_read_are_all_counted_first(classifier: Path, tmp_path: Path, run: Run) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("text\na\nb,c\nd\n" + "e,f\n" * 6)
    result = predicted(run, classifier, rows, tmp_path / "answers.csv")
    assert_one_line_error(result, "7 of 9 rows cannot be read", "line 3: 2 cells, expected 1; ")
    assert "line 8: 2 cells, expected 1; ..." in result.errors
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


def test_an_interrupted_prediction_continues(
    classifier: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C says what is kept; the input may be touched, but not changed, before the command runs again."""
    rows, output = tmp_path / "rows.jsonl", tmp_path / "answers.jsonl"
    rows.write_text("".join(f'{{"text": "the house {number}"}}\n' for number in range(CHUNK + 3)))
    computed: list[int] = []
    whole = Predictor.__call__

    def stopped(self: Predictor, asked: list[Asked]) -> str:
        if len(asked) < CHUNK:
            raise KeyboardInterrupt
        return whole(self, asked)

    def counted(self: Predictor, asked: list[Asked]) -> str:
        computed.append(len(asked))
        return whole(self, asked)

    monkeypatch.setattr(ProgressBar, "SECONDS", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(Predictor, "__call__", stopped)
        result = predicted(run, classifier, rows, output)
    assert result.status == 130
    parts = tmp_path / ".answers.jsonl.parts"
    assert result.errors.splitlines() == [
        "1,024 of 1,027 examples",
        f"interrupted: 1,024 of 1,027 predictions are kept in {parts}; the same command resumes the work",
    ]
    content = rows.read_text()
    rows.write_text(content + "{}\n")
    result = predicted(run, classifier, rows, output)
    assert_one_line_error(result, "run with different content of the input", "or delete the folder")
    result = predicted(run, classifier, rows, output, "--max-length", "8", "--keep-columns")
    assert "different max_length, keep_columns, content of the input." in result.errors.replace("  ", " ")
    rows.write_text(content)
    os.utime(rows, (0, 0))
    output.write_text("older")
    monkeypatch.setattr(Predictor, "__call__", counted)
    result = predicted(run, classifier, rows, output)
    assert_one_line_error(result, f"{output} exists. Choose another name")
    assert output.read_text() == "older"
    output.unlink()
    result = predicted(run, classifier, rows, output)
    assert result.status == 0, result.errors
    assert computed == [3]
    assert result.errors.splitlines() == [
        f"resuming after 1,024 of 1,027 predictions, which an interrupted run kept in {parts}",
        f"1,027 predictions in {output}",
    ]
    assert len(output.read_text().splitlines()) == CHUNK + 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["answers.jsonl", "rows.jsonl"]


def test_predictions_do_not_go_into_their_input(classifier: Path, tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "split"
    folder.mkdir()
    table = pa.Table.from_pylist([{"text": "the house"}])
    with pa.OSFile(str(folder / "data.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    (folder / "state.json").write_text('{"_data_files": [{"filename": "data.arrow"}]}')
    for output in (folder / "answers.jsonl", tmp_path / "more" / ".." / "split" / "more" / "answers.jsonl"):
        result = predicted(run, classifier, folder, output)
        assert_one_line_error(result, "is inside the input")
    result = predicted(run, classifier, folder, tmp_path / "answers.jsonl")
    assert result.status == 0, result.errors
    (tmp_path / "folder.csv").mkdir()
    result = predicted(run, classifier, folder, tmp_path / "folder.csv")
    assert_one_line_error(result, "folder.csv is a folder. Pass the name of a file")


def test_damaged_parts_are_named(classifier: Path, tmp_path: Path, run: Run) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "the house"}\n')
    about = tmp_path / ".answers.jsonl.parts" / "about.json"
    about.parent.mkdir()
    (about.parent / "00000000.jsonl").write_text("")
    wrong = {
        "{": "is damaged. Expected a JSON object",
        "[1]": "expected a JSON object, found a list",
        "null": "expected a JSON object, found a NoneType",
    }
    for content, what in wrong.items():
        about.write_text(content)
        result = predicted(run, classifier, rows, tmp_path / "answers.jsonl")
        assert_one_line_error(result, str(about), what, "Delete the folder")


def test_texts_that_are_too_long_are_all_counted_first(
    folder: Path, classifier: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In training data, in data to measure on, in the input of predictions; over several chunks."""
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
        run("evaluate", "text-classification", "--data", rows, "--model", classifier, *about, *columns),
        predicted(run, classifier, rows, tmp_path / "answers.csv", *about),
    ):
        assert result.status == 1
        assert said in result.errors.splitlines()[-1]
        assert "tokens with [CLS] and [SEP], but the model's maximum is 16" in result.errors
        assert "--truncation of finetune, evaluate and predict" in result.errors
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]


def test_damaged_columns_of_a_report_are_named(classifier: Path, tmp_path: Path, run: Run) -> None:
    copy = tmp_path / "model"
    shutil.copytree(classifier, copy)
    rows = tmp_path / "rows.csv"
    rows.write_text("text\na\n")
    report = json.loads((copy / "report.json").read_text())
    for damaged in ([], "text", {"text_column": 3}, {"texts": "a"}):
        (copy / "report.json").write_text(json.dumps(report | {"columns": damaged}))
        result = predicted(run, copy, rows, tmp_path / "answers.csv")
        assert_one_line_error(result, f"{copy / 'report.json'}: ", "columns")


def test_nothing_is_left_of_a_prediction_that_did_not_begin(
    classifier: Path, tmp_path: Path, run: Run
) -> None:
    """No folder of parts stays, so another command is not refused because of it; suffixes in capitals."""
    rows = tmp_path / "rows.CSV"
    rows.write_text("text\na\n")
    output = tmp_path / "answers.CSV"
    assert_one_line_error(predicted(run, classifier, rows, output, "--engine", "onxx"), "no engine 'onxx'")
    assert [path.name for path in tmp_path.iterdir()] == ["rows.CSV"]
    (tmp_path / ".answers.CSV.parts").mkdir()  # of a process that was killed at its beginning
    (tmp_path / ".answers.CSV.parts" / "about.json").write_text("{}")
    result = predicted(run, classifier, rows, output, "--max-length", "8")
    assert result.status == 0, result.errors
    assert output.read_text().startswith("row,label,score,score_new,score_old,cut\n1,")
    result = predicted(run, classifier, rows, rows / "answers.csv")
    assert_one_line_error(result, "rows.CSV is a file. Choose a folder")


def test_a_prediction_that_fails_says_what_is_kept(
    classifier: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"text": "the house"}\n' * (CHUNK + 1))
    whole = Predictor.__call__

    def failing(self: Predictor, asked: list[Asked]) -> str:
        if len(asked) < CHUNK:
            raise OSError(28, "No space left on device", "disk")
        return whole(self, asked)

    monkeypatch.setattr(Predictor, "__call__", failing)
    result = predicted(run, classifier, rows, tmp_path / "answers.csv")
    assert result.status == 1
    assert "stopped: 1,024 of 1,025 predictions are kept in" in result.errors
    assert "the same command resumes the work" in result.errors


def test_an_evaluation_does_not_replace_its_data(classifier: Path, tmp_path: Path, run: Run) -> None:
    data = tmp_path / "predictions.jsonl"
    data.write_text('{"text": "the house", "label": "old"}\n')
    about = ("evaluate", "text-classification", "--model", classifier, "--data", data, "--device", "cpu")
    result = run(*about, "--output", tmp_path)
    assert_one_line_error(result, f"would replace {data}, which is the input")
    assert_one_line_error(run(*about, "--output", data), "is a file. Expected a folder for the report")
    assert [path.name for path in tmp_path.iterdir()] == ["predictions.jsonl"]


def test_kept_columns_of_several_types_are_text_in_parquet(
    classifier: Path, tmp_path: Path, run: Run
) -> None:
    rows = tmp_path / "rows.jsonl"
    values = [1, "one", {"x": [2]}, None, 2.5]
    lines = [{"text": "a", "mixed": value, "number": number} for number, value in enumerate(values)]
    rows.write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = predicted(run, classifier, rows, tmp_path / "answers.parquet", "--keep-columns")
    assert result.status == 0, result.errors
    found = parquet.read_table(tmp_path / "answers.parquet").to_pydict()
    assert found["mixed"] == ["1", "one", '{"x": [2]}', None, "2.5"]
    assert found["number"] == [0, 1, 2, 3, 4]
