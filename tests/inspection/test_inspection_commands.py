"""Tests of the commands `inspect attention`, `inspect bias` and `inspect model`."""

import json
import shutil

import numpy as np
import pytest
from command_line import assert_one_line_error
from conversion_models import random_model
from inspected_model import SECOND, TEMPLATE, TEXT, page_data
from torchless import run_without_torch

from albertkit.inspection.model import inspect_model
from albertkit.modeling.task_heads import AlbertForSequenceClassification


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
        assert_one_line_error(run(*call, "word " * 300), "302 tokens", "maximum is 64", "--truncate")
        assert_one_line_error(run(*call, ""), "at least one word")
        assert_one_line_error(run(*call, "a", "--html", tmp_path / "none" / "a.html"), "there is no folder")
        result = run(*call, "word " * 300, "--truncate")
        assert "truncated: the last 238 tokens" in result.output

    def test_bias(self, run, folder, tmp_path):
        call = ("inspect", "bias", "--template", "The [X] lost the [MASK].", "--groups", "fox, doctor")
        call = (*call, "--model", folder, "--top-k", 2, "--device", "cpu")
        (printed,) = run(*call, "--json").json
        assert printed["groups"] == ["fox", "doctor"]
        output = run(*call, "--plot", tmp_path / "a.png").output
        lines = output.splitlines()
        assert lines[0] == "The [X] lost the [MASK]."
        assert lines[1].split() == ["fox", "doctor"]
        for word in printed["words"]:
            (row,) = [line for line in lines if line.endswith(f"{word['log2_ratios']['doctor']:+.2f}")]
            assert row.split()[-3] == f"{100 * word['scores']['fox']:.3g}%"
        plot = (tmp_path / "a.png").read_bytes()
        assert plot.startswith(b"\x89PNG")
        assert len(plot) > 5_000

    def test_without_torch(self, folder, tmp_path, report):
        """Run `inspect attention` and `inspect bias` in a process that cannot import PyTorch."""
        attention = ("attention", TEXT, "--pair", SECOND, "--json", "--html", tmp_path / "a.html")
        bias = (
            "bias",
            "--template",
            TEMPLATE,
            "--groups",
            "doctor,queen",
            "--json",
            "--plot",
            tmp_path / "a.png",
        )
        calls = [["inspect", *map(str, call), "--model", str(folder)] for call in (attention, bias)]
        code = """
import json
from albertkit.cli.main import run

for call in json.loads(sys.argv[1]):
    sys.argv[1:] = call
    try:
        run()
    except SystemExit as end:
        assert not end.code
"""
        printed, compared = map(json.loads, run_without_torch(code, json.dumps(calls)).splitlines())
        for layer, expected in zip(printed["layers"], report.layers, strict=True):
            np.testing.assert_allclose(layer["attention"], expected.probabilities, atol=1.5e-5)
        assert page_data((tmp_path / "a.html").read_text(encoding="utf-8"))["tokens"] == report.tokens
        assert compared["groups"] == ["doctor", "queen"]
        assert (tmp_path / "a.png").stat().st_size > 5_000

    def test_bias_errors(self, run, folder, tmp_path):
        call = ("inspect", "bias", "--model", folder, "--template")
        assert_one_line_error(run(*call, "A [MASK].", "--groups", "man,woman"), "no [X]", "worked as a")
        assert_one_line_error(run(*call, "[X] [MASK]", "--groups", "man,"), "at least two")
        both = (*call, "[X] [MASK]", "--groups", "man,woman", "--plot")
        assert_one_line_error(run(*both, tmp_path / "a.xlsx"), "a.xlsx", ".png")
        assert_one_line_error(run(*both, tmp_path / "none" / "a.png"), "there is no folder")

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
        [((), "model attention bias"), (("attention",), "--html --pair"), (("bias",), "--template --plot")],
    )
    def test_help(self, run, verb, expected):
        output = run("inspect", *verb, "--help").output
        for part in expected.split():
            assert part in output
