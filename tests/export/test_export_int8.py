"""Tests of ONNX files in int8: their scores, their size, the measured drop, errors, and reading them."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from command_line import assert_one_line_error
from engine_rows import CLASSIFIER, OUTPUTS, rows_of
from json_lines import write_json_lines
from modeling_twins import HEADS, make

from albertkit import pipeline
from albertkit.checkpoints.arrays import to_arrays
from albertkit.config import AlbertConfig
from albertkit.engines.choosing import load_complete_model, make_engine
from albertkit.engines.engine import Row, every_token
from albertkit.engines.light_model import LightModel
from albertkit.errors import CheckpointError, ConfigError, DataError
from albertkit.export.check import TEXTS, labeled_task, measure_agreement, open_session
from albertkit.export.onnx import export_onnx
from albertkit.modeling import auto
from albertkit.tokenization.tokenizer import AlbertTokenizer

SIZE: dict[str, Any] = {
    "vocab_size": 500,
    "embedding_size": 64,
    "hidden_size": 256,
    "intermediate_size": 1024,
    "initializer_range": 0.05,
    "max_position_embeddings": 256,
}


@pytest.fixture(scope="module")
def labeled(tiny_vocabulary: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a classifier with a tokenizer."""
    folder = tmp_path_factory.mktemp("labeled")
    make(CLASSIFIER, **SIZE).save_pretrained(folder)
    AlbertTokenizer(tiny_vocabulary, model_max_length=256).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def rounded(labeled: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in int8."""
    folder = tmp_path_factory.mktemp("rounded") / "model"
    export_onnx(labeled, folder, int8=True, max_drop=100)
    return folder


# --- what is computed ---------------------------------------------------------------------------


@pytest.mark.parametrize("head", HEADS)
def test_a_model_read_from_a_file_is_computed_in_int8(head: str, tmp_path: Path) -> None:
    make(head).save_pretrained(tmp_path / "model")
    report = export_onnx(tmp_path / "model", tmp_path / "out", int8=True, max_drop=100)
    assert report.architecture == head
    model = load_complete_model(tmp_path / "out", head)
    rows = rows_of([5, 9])
    options = {"output": OUTPUTS[head]}
    expected = make_engine(model, "onnx-int8").run(rows, **options)
    for name in ("auto", "onnx"):
        np.testing.assert_array_equal(make_engine(model, name).run(rows, **options), expected)


def test_a_file_has_the_scores_of_the_engine(rounded: Path, tmp_path: Path) -> None:
    """Compare the hidden states of a file of the encoder."""
    file = tmp_path / "encoder.onnx"
    export_onnx(rounded, file, architecture="AlbertModel", int8=True, max_drop=100)
    model = auto.model_class(CLASSIFIER).from_pretrained(rounded)
    ids = np.arange(14).reshape(1, 14)
    found = open_session(file).run(["last_hidden_state"], {"input_ids": ids})[0]
    exact = model.base_model(torch.from_numpy(ids)).last_hidden_state.detach().numpy()
    rows = [Row(input_ids=list(range(14)), token_type_ids=[0] * 14, example=0)]
    light = load_complete_model(rounded, CLASSIFIER)
    (expected,) = make_engine(light).run(rows, output="hidden_states", read=every_token)
    assert np.abs(found[0] - expected).mean() < 0.25 * np.abs(exact[0] - expected).mean()


def test_a_quarter_of_the_size_each_matrix_once(rounded: Path) -> None:
    file = onnx.load(rounded / "model.onnx")
    exact = sum(one.nelement() * 4 for one in make(CLASSIFIER, **SIZE).state_dict().values())
    assert (rounded / "model.onnx").stat().st_size < 0.35 * exact
    in_int8 = [one.name for one in file.graph.initializer if one.data_type == onnx.TensorProto.INT8]
    assert len(in_int8) == len(set(in_int8)) == 8  # six of the layer, the words, the pooler
    config = json.loads((rounded / "config.json").read_text())
    assert config["quantization"] == "int8"


def test_pipelines_and_verbs_run_a_folder_in_int8(rounded: Path, labeled: Path, run) -> None:
    def scores(model: Path, engine: str) -> list[float]:
        classify = pipeline("text-classification", model, engine=engine, device="cpu", top_k=None)
        return [{one["label"]: one["score"] for one in found}["LABEL_0"] for found in classify(list(TEXTS))]

    found = scores(rounded, "auto")
    assert found == scores(rounded, "onnx") == scores(rounded, "onnx-int8")
    for model in (rounded, labeled):  # both in float32
        difference = np.abs(np.subtract(found, scores(model, "torch"))).mean()
        assert 1e-5 < difference < 0.15
    result = run("classify", "--model", rounded, "--engine", "onnx", "--json", TEXTS[0])
    assert result.status == 0, result.errors


# --- what is measured ---------------------------------------------------------------------------


def test_a_metric_on_labeled_examples(labeled: Path, tmp_path: Path, run) -> None:
    classify = pipeline("text-classification", labeled, device="cpu")
    said = [one["label"] for one in classify(list(TEXTS))]
    lines = [{"sentence": text, "label": label} for text, label in zip(TEXTS, said, strict=True)]
    file = tmp_path / "dev.jsonl"
    write_json_lines(file, lines)
    arguments = ("--int8", "--calibrate", file, "--text-column", "sentence", "--max-drop", "50")
    result = run("export", "onnx", labeled, tmp_path / "a.onnx", *arguments, "--json")
    assert result.status == 0, result.errors
    report = json.loads(result.output)
    assert report["dtype"] == report["compute"] == "int8 and float32"
    drop = report["accuracy_drop"]
    assert drop["metric"] == "accuracy"
    assert drop["exact"] == 100
    assert drop["examples"] == len(TEXTS) == 8
    (note,) = [note for note in report["notes"] if "int8" in note]
    assert "8 predictions" in note
    assert "12.5 points" in note  # one of 8
    write_json_lines(file, lines * 25)
    result = run("export", "onnx", labeled, tmp_path / "b.onnx", *arguments, "--json")
    assert json.loads(result.output)["accuracy_drop"]["examples"] == 200
    assert not [note for note in json.loads(result.output)["notes"] if "int8" in note]


def test_too_large_a_loss_leaves_no_file(labeled: Path, tmp_path: Path, monkeypatch, run) -> None:
    from albertkit.onnx import graph, network

    monkeypatch.setattr(network, "COMPUTED_LARGEST", 1)  # nothing but -1, 0 and 1
    monkeypatch.setattr(graph, "STORED_LARGEST", 1)
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(TEXTS) + "\n")
    command = ("export", "onnx", labeled, tmp_path / "out/model.onnx", "--int8", "--calibrate", file)
    result = run(*command, "--max-drop", "0", "--architecture", "AlbertModel")
    assert_one_line_error(result, "In int8 the model loses", "points of agreement", "Nothing was written")
    assert not (tmp_path / "out").exists()


def test_agreement_of_every_head(tmp_path: Path) -> None:
    """All decisions of a file in float32; few where the model has another head."""
    for head in HEADS:
        model = make(head, max_position_embeddings=64)
        model.save_pretrained(tmp_path / head)
        export_onnx(tmp_path / head, tmp_path / f"{head}.onnx")
        twin = LightModel(head, model.config, to_arrays(model.state_dict()))
        drop = measure_agreement(tmp_path / f"{head}.onnx", twin, None, TEXTS, optional_inputs=True)
        assert drop.points == pytest.approx(0, abs=1e-3)
        assert drop.examples >= 6
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if not name.startswith("albert."):  # the head, or all of the encoder alone
                    parameter.neg_()
        twin = LightModel(head, model.config, to_arrays(model.state_dict()))
        drop = measure_agreement(tmp_path / f"{head}.onnx", twin, None, TEXTS, optional_inputs=True)
        assert drop.points > 5


@pytest.mark.parametrize("head", [*HEADS])
def test_the_problem_type_belongs_to_text_classification(tmp_path: Path, head: str) -> None:
    """A tagger that was fine-tuned from a multi-label classifier chooses one label for each token."""
    drops = []
    for problem_type in (None, "multi_label_classification"):
        model = make(head, max_position_embeddings=64, num_labels=3, problem_type=problem_type)
        folder = tmp_path / f"{problem_type}"
        model.save_pretrained(folder)
        drops.append(export_onnx(folder, folder / "model.onnx", int8=True, max_drop=100).accuracy_drop)
    alone, several = (drop.examples for drop in drops if drop is not None)
    assert several == (3 * alone if head == CLASSIFIER else alone)


def test_the_only_choice_is_a_decision_and_not_a_score(tmp_path: Path) -> None:
    """The first and the last batch have one choice, whose score int8 changes."""
    make("AlbertForMultipleChoice").save_pretrained(tmp_path / "model")
    report = export_onnx(tmp_path / "model", tmp_path / "model.onnx", int8=True, max_drop=100)
    drop = report.accuracy_drop
    assert drop is not None
    assert any(f"{drop.examples} predictions" in note for note in report.notes)
    assert drop.rounded * drop.examples == pytest.approx(100 * round(drop.rounded * drop.examples / 100))


def test_which_files_have_labels() -> None:
    config, embedder = AlbertConfig(), AlbertConfig()
    embedder.extra["sentence_pooling"] = "mean"
    assert labeled_task(Path("dev.tsv"), CLASSIFIER, config) == "text-classification"
    assert labeled_task(Path("dev.txt"), CLASSIFIER, config) is None
    assert labeled_task(Path("dev.txt"), "AlbertForTokenClassification", config) == "token-classification"
    assert labeled_task(Path("dev.tsv"), "AlbertModel", config) is None
    assert labeled_task(Path("pairs.csv"), "AlbertModel", embedder) == "sentence-embedding"
    assert labeled_task(Path("texts.txt"), "AlbertModel", embedder) is None


def test_the_columns_and_lengths_of_the_fine_tuning(labeled: Path, tmp_path: Path) -> None:
    """As in `evaluate`, unless the call names others."""
    folder = shutil.copytree(labeled, tmp_path / "run")
    classify = pipeline("text-classification", labeled, device="cpu")
    labels = [one["label"] for one in classify(list(TEXTS), truncation=True, max_length=16)]
    lines = [f"{text}\t{label}\tLABEL_9" for text, label in zip(TEXTS, labels, strict=True)]
    file = tmp_path / "dev.tsv"
    file.write_text("\n".join(["sentence\tkind\tother", *lines]) + "\n")
    settings = {"task": {"max_length": 16}}
    columns = {"text_column": "sentence", "label_column": "kind"}
    (folder / "report.json").write_text(json.dumps({"settings": settings, "columns": columns}))
    report = export_onnx(folder, tmp_path / "b.onnx", int8=True, calibrate=file, max_drop=100)
    assert report.accuracy_drop is not None
    assert (report.accuracy_drop.exact, report.accuracy_drop.examples) == (100, len(TEXTS))
    with pytest.raises(DataError, match="LABEL_9"):
        export_onnx(
            folder, tmp_path / "c.onnx", int8=True, calibrate=file, max_drop=100, label_column="other"
        )


def test_the_pairs_of_an_embedder(tiny_vocabulary: Path, tmp_path: Path, run) -> None:
    model = make("AlbertModel", **SIZE)
    model.config.extra |= {"sentence_pooling": "mean", "sentence_normalize": True}
    model.save_pretrained(tmp_path / "embedder")
    AlbertTokenizer(tiny_vocabulary).save_pretrained(tmp_path / "embedder")
    file = tmp_path / "pairs.csv"
    file.write_text("sentence1,sentence2\n" + "".join(f"{text},{text}\n" for text in ("the river", "a fox")))
    options = ("--int8", "--calibrate", file, "--max-drop", "100", "--json")
    result = run("export", "onnx", tmp_path / "embedder", tmp_path / "a.onnx", *options)
    assert result.status == 0, result.errors
    report = json.loads(result.output)
    (note,) = (one for one in report["notes"] if "last_hidden_state" in one)
    assert "It lacks the other steps to the vector of a text: the pooling mean, Normalize. The" in note
    drop = report["accuracy_drop"]
    assert (drop["metric"], drop["exact"], drop["examples"]) == ("mrr", 100, 2)


def test_conflicting_options_are_an_error(labeled: Path, tmp_path: Path) -> None:
    file, texts = tmp_path / "labels.csv", tmp_path / "texts.txt"
    file.write_text("text,label\nthe river,LABEL_0\n")
    texts.write_text("the river\n")
    for message, arguments in (
        ("^calibrate without effect.*int8 is off", {"calibrate": file}),
        ("^max_drop, header without effect.*int8 is off", {"max_drop": 1.0, "header": False}),
        (
            "^text_column without effect, because there is no file of labeled",
            {"int8": True, "text_column": "sentence"},
        ),
        (
            "texts.txt is read as texts, without the columns text_column",
            {"int8": True, "calibrate": texts, "text_column": "sentence"},
        ),
        ("^texts and calibrate", {"int8": True, "calibrate": file, "texts": ["the river"]}),
        ("max_drop is nan. Expected 0 to 100", {"int8": True, "max_drop": float("nan")}),
        ("max_drop is -1. Expected 0 to 100", {"int8": True, "max_drop": -1}),
        ("max_drop is 101. Expected 0 to 100", {"int8": True, "max_drop": 101}),
    ):
        with pytest.raises(ConfigError, match=message):
            export_onnx(labeled, tmp_path / "a.onnx", **arguments)
        assert not (tmp_path / "a.onnx").exists()
    with pytest.raises(ConfigError, match="for CPUs"):
        export_onnx(labeled, tmp_path / "a.onnx", int8=True, compute="float16")
    with pytest.raises(ConfigError, match="at least 18"):
        export_onnx(labeled, tmp_path / "a.onnx", int8=True, opset=17)
    with pytest.raises(DataError, match="no such file"):
        export_onnx(labeled, tmp_path / "a.onnx", int8=True, calibrate=str(tmp_path / "none"))


# --- models read from files ---------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("head", ["AlbertForPreTraining", CLASSIFIER])
def test_a_file_is_a_checkpoint(dtype: str, head: str, tmp_path: Path) -> None:
    make(head, tie_word_embeddings=head == CLASSIFIER).save_pretrained(tmp_path / "model")
    export_onnx(tmp_path / "model", tmp_path / "out", dtype=dtype)
    expected = (
        auto.model_class(head).from_pretrained(tmp_path / "model").to(getattr(torch, dtype)).state_dict()
    )
    found = auto.model_class(head).from_pretrained(tmp_path / "out", dtype="auto").state_dict()
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=0)


def test_foreign_and_damaged_files_are_an_error(rounded: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((rounded / "config.json").read_bytes())
    file = onnx.load(rounded / "model.onnx")
    file.producer_name = "pytorch"
    onnx.save(file, tmp_path / "model.onnx")
    with pytest.raises(CheckpointError, match="written by 'pytorch'"):
        auto.AlbertModel.from_pretrained(tmp_path)
    (tmp_path / "model.onnx").write_bytes((rounded / "model.onnx").read_bytes()[:5000])
    with pytest.raises(CheckpointError, match="damaged or incomplete"):
        auto.AlbertModel.from_pretrained(tmp_path)
