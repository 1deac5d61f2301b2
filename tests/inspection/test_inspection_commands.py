"""Tests of the commands `inspect attention` and `inspect model`."""

import json
import shutil

import numpy as np
import pytest
from command_line import assert_one_line_error
from conversion_models import random_model
from inspected_model import SECOND, TEXT, page_data
from torchless import run_without_torch

from albertkit.inspection.model import inspect_model
from albertkit.modeling.heads import AlbertForSequenceClassification


class TestCommands:
    def test_attention(self, run, folder, tmp_path, report):
        page = tmp_path / "a.html"
        call = ("inspect", "attention", TEXT, "--pair", SECOND, "--model", folder, "--device", "cpu")
        output = run(*call, "--html", page).output
        assert output.splitlines()[:2] == [TEXT, SECOND]
        assert f"{report.cosine_to_previous[1].mean():.3f}" in output
        assert f"{len(report.tokens)} tokens, written to {page}" in output
        assert page_data(page.read_text(encoding="utf-8"))["tokens"] == report.tokens
        (printed,) = run(*call, "--json").json
        assert printed["text_pair"] == SECOND
        for layer, expected in zip(printed["layers"], report.layers, strict=True):
            np.testing.assert_allclose(layer["attention"], expected.probabilities, atol=6e-6)
        np.testing.assert_allclose(printed["cosine_to_previous"], report.cosine_to_previous, atol=6e-6)

    def test_attention_errors(self, run, folder, tmp_path):
        call = ("inspect", "attention", "--model", folder)
        assert_one_line_error(run(*call, "word " * 300), "302 tokens", "maximum is 64", "--truncation")
        assert_one_line_error(run(*call, ""), "at least one word")
        assert_one_line_error(run(*call, "a", "--html", tmp_path / "none" / "a.html"), "there is no folder")
        result = run(*call, "word " * 300, "--truncation")
        assert "truncated: the last 238 tokens" in result.output

    def test_without_torch(self, folder, tmp_path, report):
        """Run `inspect attention` in a process that cannot import PyTorch."""
        call = ["inspect", "attention", TEXT, "--pair", SECOND, "--json", "--model", folder]
        code = """
from albertkit.cli.main import run

try:
    run()
except SystemExit as end:
    assert not end.code
"""
        printed = json.loads(run_without_torch(code, *map(str, [*call, "--html", tmp_path / "a.html"])))
        for layer, expected in zip(printed["layers"], report.layers, strict=True):
            np.testing.assert_allclose(layer["attention"], expected.probabilities, atol=1.5e-5)
        assert page_data((tmp_path / "a.html").read_text(encoding="utf-8"))["tokens"] == report.tokens

    def test_a_model_is_inspected_without_a_subcommand(self, run, folder, tmp_path, monkeypatch):
        (report,) = run("inspect", "model", folder, "--json").json
        assert run("inspect", folder, "--json").json == run("inspect", "--json", folder).json == [report]
        shutil.copytree(folder, tmp_path / "attention")
        monkeypatch.chdir(tmp_path)
        (from_folder,) = run("inspect", "./attention", "--json").json
        assert from_folder["parameters"] == report["parameters"]

    def test_the_tensors_give_the_class_if_the_config_does_not(self, run, tmp_path):
        random_model(AlbertForSequenceClassification).save_pretrained(tmp_path)
        config = json.loads((tmp_path / "config.json").read_text())
        del config["architectures"]
        (tmp_path / "config.json").write_text(json.dumps(config))
        (report,) = run("inspect", tmp_path, "--json").json
        assert report["class"] == "AlbertForSequenceClassification"
        assert report["parameters"]["total"]["distinct"] * 4 == report["weights"]["bytes"]

    def test_an_empty_folder_is_an_error(self, run, tmp_path):
        result = run("inspect", tmp_path)
        assert_one_line_error(result, "Expected config.json or model*.safetensors", "which is empty")
        assert "[0-9]" not in result.errors

    def test_a_path_is_inspected_like_its_name(self, folder):
        assert inspect_model(folder) == inspect_model(str(folder))

    @pytest.mark.parametrize(
        ("verb", "expected"),
        [((), "model attention"), (("attention",), "--html --pair")],
    )
    def test_help(self, run, verb, expected):
        output = run("inspect", *verb, "--help").output
        for part in expected.split():
            assert part in output
