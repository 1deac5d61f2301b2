"""Tests of the folder for transformers.js: its files and the errors. tests/compat/ opens it in Node."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Run
from hub_server import Hub
from modeling_twins import HEADS, make

import albertkit
from albertkit import reference
from albertkit.checkpoints import formats
from albertkit.checkpoints.sentence_modules import SentenceModules, attach
from albertkit.config import AlbertConfig
from albertkit.errors import CheckpointError, ConfigError, DataError, ModelNotFoundError
from albertkit.export.check import AccuracyDrop, open_session
from albertkit.files import file_sha256
from albertkit.tokenization.tokenizer import AlbertTokenizer
from albertkit.web.export import EXACT_FILE, INT8_FILE, export_web

FILES = ["config.json", EXACT_FILE, INT8_FILE, "special_tokens_map.json", "tokenizer.json"]
FILES.append("tokenizer_config.json")
SIZE: dict[str, Any] = {"vocab_size": 500, "max_position_embeddings": 64, "num_labels": 3}


@pytest.fixture
def save(tiny_vocabulary: Path, tmp_path: Path):
    """Return a function that writes a tiny model of a class with its tokenizer, and returns the folder."""

    def save_model(head: str, *, name: str = "model", **values: Any) -> Path:
        make(head, **(SIZE | values)).save_pretrained(tmp_path / name)
        AlbertTokenizer(tiny_vocabulary).save_pretrained(tmp_path / name)
        return tmp_path / name

    return save_model


@pytest.mark.parametrize("head", HEADS)
def test_every_head_is_exported_to_the_same_files(head: str, save, tmp_path: Path) -> None:
    report = export_web(save(head), tmp_path / "web", max_drop=100)
    assert list(report.files) == FILES
    for name, size in report.files.items():
        assert (tmp_path / "web" / name).stat().st_size == size
        assert file_sha256(tmp_path / "web" / name) == report.checksums[name]
        assert f"{size:,} bytes" in str(report)
    assert {path.name for path in (tmp_path / "web").iterdir()} == {name.split("/")[0] for name in FILES}
    expected = "AlbertForMaskedLM" if head == "AlbertForPreTraining" else head
    config = json.loads((tmp_path / "web" / "config.json").read_text())
    assert config["architectures"] == [report.architecture] == [expected]
    assert config["model_type"] == "albert"
    assert "transformers.js_config" not in config  # needed only if a file is missing
    theirs = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForQuestionAnswering")
    lacks = expected.removeprefix("Albert") not in theirs
    assert any("Open the folder with its AutoModel" in note for note in report.notes) == lacks


def test_the_graph_accepts_the_inputs_of_transformers_js(save, tmp_path: Path) -> None:
    """Check that the graph takes all three inputs, up to the maximum length of the tokenizer."""
    folder = save("AlbertForQuestionAnswering")
    export_web(folder, tmp_path / "web", int8=False)
    session = open_session(tmp_path / "web" / EXACT_FILE)
    inputs = session.get_inputs()
    assert [node.name for node in inputs] == ["input_ids", "attention_mask", "token_type_ids"]
    assert all(node.type == "tensor(int64)" for node in inputs)
    settings = json.loads((tmp_path / "web" / "tokenizer_config.json").read_text())
    assert settings["model_max_length"] == 64
    batch = {node.name: np.ones((2, settings["model_max_length"]), np.int64) for node in inputs}
    starts, ends = session.run(["start_logits", "end_logits"], batch)
    checkpoint = formats.read(folder)
    config = AlbertConfig.from_dict(checkpoint.config)
    expected = reference.forward("AlbertForQuestionAnswering", config, checkpoint.tensors, **batch)
    np.testing.assert_allclose(starts, expected["start_logits"], atol=1e-4)
    np.testing.assert_allclose(ends, expected["end_logits"], atol=1e-4)


def test_a_smaller_maximum_length_of_the_tokenizer_is_kept(
    tiny_vocabulary: Path, save, tmp_path: Path
) -> None:
    folder = save("AlbertModel")
    AlbertTokenizer(tiny_vocabulary, model_max_length=20).save_pretrained(folder)
    export_web(folder, tmp_path / "web", int8=False)
    assert json.loads((tmp_path / "web" / "tokenizer_config.json").read_text())["model_max_length"] == 20


def test_a_smaller_maximum_length_for_sentence_embedding_is_kept(save, tmp_path: Path) -> None:
    """Check the maximum length, so that vectors are computed from the same tokens as in Python."""
    folder = save("AlbertModel")
    config = AlbertConfig.from_pretrained(folder)
    attach(config, SentenceModules(max_length=16))
    config.save_pretrained(folder)
    export_web(folder, tmp_path / "web", int8=False)
    assert json.loads((tmp_path / "web" / "tokenizer_config.json").read_text())["model_max_length"] == 16


def test_the_notes_of_an_embedder_are_about_transformers_js(save, tmp_path: Path) -> None:
    folder = save("AlbertModel")
    config = AlbertConfig.from_pretrained(folder)
    attach(config, SentenceModules(normalize=True))
    config.save_pretrained(folder)
    report = export_web(folder, tmp_path / "web", max_drop=100)
    assert INT8_FILE in report.files
    (note,) = (note for note in report.notes if "pooling" in note)
    assert '{ pooling: "mean", normalize: true } to its feature-extraction pipeline' in note


def test_a_config_that_contradicts_the_published_model_is_noted(hub: Hub, save, tmp_path: Path) -> None:
    folder = save("AlbertModel")
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    hub.repositories["albert/albert-base-v2"] = {"main": files}
    report = export_web("albert/albert-base-v2", tmp_path / "web", max_drop=100)
    (note,) = (note for note in report.notes if "contradict" in note)
    assert note.startswith("the files of albert/albert-base-v2 contradict the published model: ")


def test_python_loads_the_exported_tokenizer(save, tmp_path: Path) -> None:
    folder = save("AlbertModel")
    export_web(folder, tmp_path / "web", int8=False)
    text = "The captain, in Zürich: “No one believed him.”"
    ids = [
        albertkit.AutoTokenizer.from_pretrained(path)(text)["input_ids"]
        for path in (folder, tmp_path / "web")
    ]
    assert ids[0] == ids[1]
    assert len(ids[0]) > 10


@pytest.mark.parametrize(
    ("rounded", "reason"),
    [
        (99.0, "In int8 the model loses 1.00 points of agreement (100.00 to 99.00, on 8 examples). Expected"),
        (float("nan"), "The accuracy drop of int8 cannot be computed: the agreement is 100.00 in float32"),
    ],
)
def test_int8_that_loses_too_much_is_omitted_and_the_config_chooses_float32(
    save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounded: float, reason: str
) -> None:
    folder = save("AlbertForTokenClassification")
    measured = AccuracyDrop("agreement", 100.0, rounded, 8)
    monkeypatch.setattr("albertkit.export.onnx.measure_agreement", lambda *_, **__: measured)
    report = export_web(folder, tmp_path / "web")
    assert INT8_FILE not in report.files
    assert not (tmp_path / "web" / INT8_FILE).exists()
    (note,) = (note for note in report.notes if INT8_FILE in note)
    assert f"{INT8_FILE} was not written. {reason}" in note
    config = json.loads((tmp_path / "web" / "config.json").read_text())
    assert config["transformers.js_config"] == {"dtype": "fp32"}


def test_settings_for_the_files_of_an_earlier_export_are_dropped(save, tmp_path: Path) -> None:
    folder = save("AlbertForTokenClassification")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"transformers.js_config": {"dtype": "fp32"}}))
    export_web(folder, tmp_path / "web", max_drop=100)
    assert "transformers.js_config" not in json.loads((tmp_path / "web" / "config.json").read_text())


def test_errors_are_raised_before_files_are_written(save, tmp_path: Path) -> None:
    folder = save("AlbertForSequenceClassification")
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "mine.txt").write_text("mine")
    with pytest.raises(DataError, match=r"taken holds mine.txt. Choose another folder"):
        export_web(folder, taken)
    for error, message, arguments in (
        (ConfigError, "^calibrate without effect", {"int8": False, "calibrate": tmp_path / "a.txt"}),
        (ConfigError, "^max_drop without effect", {"int8": False, "max_drop": 1.0}),
        (ConfigError, "^header, glue without effect", {"int8": False, "header": False, "glue": "sst2"}),
        (ConfigError, "^label_column without effect, because there is no file", {"label_column": "label"}),
        (ConfigError, "unknown setting 'label_colum'", {"int8": False, "label_colum": "label"}),
        (ConfigError, "max_drop is nan. Expected 0 to 100", {"max_drop": float("nan")}),
        (ConfigError, "max_drop is -1", {"max_drop": -1}),
        (ConfigError, "'AlbertForNothing' is not a model class", {"architecture": "AlbertForNothing"}),
        (ConfigError, "dtype is 'int4'", {"dtype": "int4"}),
        (CheckpointError, "lacks predictions.bias", {"architecture": "AlbertForMaskedLM"}),
        (DataError, "gone.tsv: no such file", {"calibrate": tmp_path / "gone.tsv"}),
    ):
        with pytest.raises(error, match=message):
            export_web(folder, tmp_path / "web", **arguments)
        assert not (tmp_path / "web").exists()
    make("AlbertModel").save_pretrained(tmp_path / "bare")
    with pytest.raises(ModelNotFoundError, match=r"has no vocabulary"):
        export_web(tmp_path / "bare", tmp_path / "web")
    assert [path.name for path in taken.iterdir()] == ["mine.txt"]


def test_a_failed_export_leaves_no_files(save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail after the graphs are written: they must not stay without the tokenizer."""

    def fail(*_: Any, **__: Any) -> None:
        raise OSError("no luck")

    monkeypatch.setattr("albertkit.web.export._write_tokenizer", fail)
    with pytest.raises(OSError, match="no luck"):
        export_web(save("AlbertModel"), tmp_path / "web")
    assert not (tmp_path / "web").exists()


def test_the_command_prints_sizes(save, run: Run, tmp_path: Path) -> None:
    folder = save("AlbertForMaskedLM")
    result = run("export", "web", folder, tmp_path / "web", "--max-drop", "100", "--json")
    report = json.loads(result.output)
    assert report["task"] == "fill-mask"
    assert report["files"][INT8_FILE] == (tmp_path / "web" / INT8_FILE).stat().st_size
    lines = run("export", "web", folder, tmp_path / "other", "--no-int8").output.splitlines()
    assert lines[1] == "AlbertForMaskedLM, for fill-mask"
    assert any(line.split()[0] == EXACT_FILE and line.endswith(" bytes") for line in lines)
    assert not any(INT8_FILE in line for line in lines)
