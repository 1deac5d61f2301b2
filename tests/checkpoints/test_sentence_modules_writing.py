"""Tests of saving, converting and exporting models with modules of sentence-transformers."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from command_line import Run
from sentence_folders import (
    CONFIG,
    HIDDEN,
    TEXTS,
    Encoder,
    WriteModel,
    add_dense,
    pooling_of,
    same,
    vectors,
    write_json,
)

from albertkit import pipeline
from albertkit.checkpoints.folder import write_folder
from albertkit.checkpoints.sentence_modules import sentence_modules
from albertkit.conversion import convert
from albertkit.engines.light_model import LightModel
from albertkit.errors import ConfigError
from albertkit.export.onnx import export_onnx
from albertkit.web.export import export_web

pytestmark = pytest.mark.light


def test_saved_and_converted_modules_equal_those_read(
    write_model: WriteModel, run: Run, tmp_path: Path
) -> None:
    folder = write_model("Pooling", "Normalize", "Dense", "Normalize", pooling={"pooling_mode": "max"})
    add_dense(folder / "3_Dense", size=7, use_residual=True)
    prompts = {"prompts": {"query": "search: "}, "default_prompt_name": "query", "similarity_fn_name": "dot"}
    write_json(folder / "config_sentence_transformers.json", prompts)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 40, "do_lower_case": True})
    whole = vectors(folder)
    assert whole.shape == (3, 7)
    write_json(folder / "config_sentence_transformers.json", prompts | {"truncate_dim": 5})
    expected = vectors(folder)
    np.testing.assert_array_equal(expected, whole[:, :5])  # not scaled again, as in sentence-transformers
    pipeline("feature-extraction", folder).save_pretrained(tmp_path / "saved")
    assert run("convert", folder, tmp_path / "converted").status == 0
    for name in ("saved", "converted"):
        np.testing.assert_array_equal(vectors(tmp_path / name), expected)
        modules = sentence_modules(LightModel.from_pretrained(tmp_path / name, "AlbertModel").config)
        assert modules is not None
        assert (modules.max_length, modules.lower_case, modules.similarity) == (40, True, "dot")
        assert modules.size(HIDDEN) == 5
        assert dict(modules.prompts) == {"query": "search: "}
        entries = json.loads((tmp_path / name / "modules.json").read_text())
        assert [entry["path"] for entry in entries] == [
            "",
            "1_Pooling",
            "2_Normalize",
            "3_Dense",
            "4_Normalize",
        ]


def test_modules_from_the_config(encoder: Encoder, tmp_path: Path) -> None:
    """Folders that earlier versions of fine-tuning wrote have no modules.json."""
    folder = tmp_path / "model"
    encoder.write(folder)
    entries = {"sentence_pooling": "max", "sentence_normalize": True, "task_settings": {"max_length": 9}}
    write_folder(folder, CONFIG.to_dict() | entries, encoder.weights)
    expected = vectors(folder, truncation=True)
    pipeline("feature-extraction", folder).save_pretrained(folder)
    pooling = json.loads((folder / "1_Pooling" / "config.json").read_text())
    assert pooling["pooling_mode_max_tokens"]
    assert not pooling["pooling_mode_mean_tokens"]
    write_folder(tmp_path / "plain", CONFIG.to_dict(), encoder.weights)
    for name in ("modules.json", "sentence_bert_config.json", "1_Pooling", "2_Normalize"):
        (folder / name).rename(tmp_path / "plain" / name)
    encoder.tokenizer.save_pretrained(tmp_path / "plain")
    np.testing.assert_array_equal(vectors(tmp_path / "plain", truncation=True), expected)


def test_saving_another_model_removes_the_modules(write_model: WriteModel, encoder: Encoder) -> None:
    folder = write_model("Pooling")
    write_folder(folder, CONFIG.to_dict(), encoder.weights)
    assert not (folder / "modules.json").exists()
    same(pipeline("feature-extraction", folder)(TEXTS[0]), encoder.states(TEXTS[0])[None])


def test_exports_keep_the_modules(write_model: WriteModel, tmp_path: Path) -> None:
    folder = write_model("Pooling", "Dense", pooling=pooling_of("max_tokens"))
    add_dense(folder / "2_Dense")
    export_onnx(folder, tmp_path / "exported")
    same(vectors(tmp_path / "exported"), vectors(folder))


def test_the_report_mentions_lost_modules(write_model: WriteModel, tmp_path: Path) -> None:
    pytest.importorskip("crc32c", reason="needs crc32c: pip install 'albertkit[convert]'")
    report = convert(write_model("Pooling"), tmp_path / "google", to="tf1")
    assert any("modules of sentence-transformers were left out" in note for note in report.notes)


# --- the browser ----------------------------------------------------------------------------------


def test_the_page_rejects_unsupported_modules(
    write_model: WriteModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("albertkit.web.export.check_npm", lambda: None)
    folder = write_model("Pooling", "Normalize", pooling=pooling_of("max_tokens"))
    with pytest.raises(ConfigError, match="with pooling by max"):
        export_web(folder, tmp_path / "web", page=True)
    prompts = {"prompts": {"query": "search: "}, "default_prompt_name": "query"}
    write_json(folder / "config_sentence_transformers.json", prompts)
    with pytest.raises(ConfigError, match="with pooling by max, the default prompt 'query'"):
        export_web(folder, tmp_path / "web", page=True)


def test_the_browser_export_explains_how_to_compute_vectors(write_model: WriteModel, tmp_path: Path) -> None:
    def note(folder: Path) -> str:
        shutil.rmtree(tmp_path / "web", ignore_errors=True)
        report = export_web(folder, tmp_path / "web", int8=False)
        (note,) = [note for note in report.notes if "vectors" in note]
        return note

    folder = write_model("Pooling", pooling=pooling_of("cls_token"))
    assert note(folder).endswith('{ pooling: "cls", normalize: false } to its feature-extraction pipeline')
    prompts = {"prompts": {"query": "search: "}, "default_prompt_name": "query"}
    write_json(folder / "config_sentence_transformers.json", prompts)
    assert note(folder).endswith("pipeline, and prepend 'search: ' to each text")
    shutil.rmtree(folder)
    folder = write_model("Pooling", "Dense", pooling=pooling_of("max_tokens"))
    add_dense(folder / "2_Dense")
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 20, "do_lower_case": True})
    assert "need pooling by max, Dense after the pooling, texts in lower case, which" in note(folder)
