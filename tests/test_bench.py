"""Tests of `albertkit bench`: counts of operations, equal scores of all engines, and the reports."""

import importlib.metadata
import itertools
import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import Run, assert_one_line_error
from modeling_twins import make
from torchless import run_without_torch

import albertkit
from albertkit import bench as bench_module
from albertkit import extras
from albertkit.bench import (
    BenchReport,
    Timing,
    _about,
    bench,
    in_turn,
    largest_product,
    random_rows,
)
from albertkit.checkpoints.arrays import to_arrays
from albertkit.engines.choosing import make_engine
from albertkit.engines.light_model import LightModel
from albertkit.errors import ConfigError
from albertkit.heads import HEADS

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def small_products(monkeypatch):
    """Use small matrix products: the real ones take a second."""
    monkeypatch.setattr(bench_module, "PRODUCTS", [(64, 64, 64), (256, 256, 256)])


class Clock:
    """A clock that advances by the given seconds at each reading. A measurement reads it twice."""

    def __init__(self, *seconds: float) -> None:
        self.seconds, self.now, self.reads = itertools.cycle(seconds), 0.0, 0

    def __call__(self) -> float:
        self.reads += 1
        self.now += next(self.seconds)
        return self.now


class TestTheCeiling:
    """The rate of the largest matrix product, which the bench compares engines with."""

    def test_operations_per_second(self):
        """Count the operations of a 3x4 by 4x5 product in 2 s: 60 multiplications and 60 additions."""
        rate = largest_product(CPU, products=[(3, 4, 5)], clock=Clock(2.0))
        assert rate == 2 * 3 * 4 * 5 / 2.0

    def test_the_fastest_product_counts(self):
        """Let each product take 1 s: the larger one has the higher rate."""
        rate = largest_product(CPU, products=[(3, 4, 5), (30, 40, 50)], clock=Clock(1.0))
        assert rate == 2 * 30 * 40 * 50

    def test_the_time_limit_stops_after_one_product(self):
        clock = Clock(1.0)
        assert largest_product(CPU, products=[(3, 4, 5)] * 100, seconds=0, clock=clock) == 120
        assert clock.reads < 10

    @pytest.mark.parametrize("library", ["torch", "numpy"])
    def test_the_rate_of_this_machine(self, library, monkeypatch):
        monkeypatch.setattr(bench_module, "find_spec", lambda _: library == "torch")
        assert 1e6 < largest_product(CPU) < 1e16


def test_functions_are_called_in_turn_and_the_median_counts():
    calls: list[str] = []
    times = {"one": iter([9.0, 1.0, 2.0, 30.0]), "other": iter([9.0, 5.0, 5.0, 4.0])}
    now = 0.0

    def work(name: str):
        def call() -> None:
            nonlocal now
            calls.append(name)
            now += next(times[name])

        return call

    medians = in_turn({name: work(name) for name in times}, rounds=3, clock=lambda: now)
    assert medians == {"one": 2.0, "other": 5.0}
    assert calls == ["one", "other"] * 4


@pytest.mark.parametrize("head", HEADS)
def test_engines_have_the_same_scores(head):
    """A light model stays light."""
    model = make(head, vocab_size=500)
    light = LightModel(head, model.config, to_arrays(model.state_dict()))
    engines, left_out = bench_module._engines(light)
    assert [*engines] == ["plain", "onnx", "onnx-int8", "torch"]
    assert not left_out
    expected = engines["plain"](random_rows(3, 9, 500))
    for name in ("onnx", "torch"):
        for scores, expected_scores in zip(engines[name](random_rows(3, 9, 500)), expected, strict=True):
            np.testing.assert_allclose(scores, expected_scores, atol=1e-4)
    assert light.module is None


def test_a_plot_of_texts_alone(tmp_path):
    pytest.importorskip("matplotlib")
    report = BenchReport("m", {}, timings=[Timing("torch", None, 10, 0.1, 1e9)])
    report.plot(tmp_path / "bench.png")
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture(scope="module")
def folder(tokenizer, tmp_path_factory):
    target = tmp_path_factory.mktemp("model")
    make("AlbertForSequenceClassification", vocab_size=500).save_pretrained(target)
    tokenizer.save_pretrained(str(target))
    return target


def test_versions_of_libraries_whose_distribution_has_another_name(monkeypatch):
    """Check onnxruntime without a distribution, as with onnxruntime-gpu, and albertkit on PYTHONPATH."""
    onnxruntime = pytest.importorskip("onnxruntime")
    known = importlib.metadata.version

    def version(name: str) -> str:
        if name in ("albertkit", "onnxruntime"):
            raise importlib.metadata.PackageNotFoundError(name)
        return known(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    versions = _about(make("AlbertForSequenceClassification"), {})["versions"]
    assert versions["onnxruntime"] == onnxruntime.__version__
    assert versions["albertkit"] == albertkit.__version__
    assert extras.version_of("no_library_has_this_name") is None
    assert make_engine(make("AlbertForSequenceClassification"))
    # Only extras.py reads the metadata of distributions.
    sources = Path(albertkit.__file__).parent.rglob("*.py")
    pattern = re.compile(r"importlib\.metadata|from importlib import metadata")
    assert [file.name for file in sources if pattern.search(file.read_text(encoding="utf-8"))] == [
        "extras.py"
    ]


class TestABench:
    def test_a_report(self, folder, tmp_path, tiny_texts):
        (tmp_path / "texts.txt").write_text("\n".join(text.partition(".")[0] for text in tiny_texts[:40]))
        sizes = {"minutes": 9, "rounds": 2, "lengths": (4, 16, 600), "batches": (1, 3)}
        report = bench(folder, texts=tmp_path / "texts.txt", device="cpu", plot=tmp_path / "a.svg", **sizes)
        engines = ["plain", "onnx", "onnx-int8", "torch"]
        grid = [one for one in report.timings if one.length is not None]
        assert {(one.engine, one.length, one.batch) for one in grid} == {
            (engine, length, batch) for engine in engines for length in (4, 16) for batch in (1, 3)
        }
        assert report.left_out == {"600 tokens": "exceed the model's maximum, 24"}
        assert [*report.differences] == engines[1:]
        assert all(value < (1 if "int8" in name else 1e-4) for name, value in report.differences.items())
        # A 16 x 32 projection; 3 layers with four 32 x 32 and two 32 x 48 matrices; attention of size 32.
        for one in grid:
            per_token = 2 * (16 * 32 + 3 * (4 * 32**2 + 2 * 32 * 48)) + 3 * 4 * 32 * one.length
            assert one.flops == one.batch * one.length * per_token
            assert one.texts_per_second == one.batch / one.seconds > 0
            assert one.share == pytest.approx(one.flops / one.seconds / report.product)
        texts = [one for one in report.timings if one.length is None]
        assert [one.engine for one in texts] == engines
        assert texts[0].batch >= 1
        assert 4 <= report.tokens_per_text <= 24
        assert (tmp_path / "a.svg").stat().st_size > 5_000

    def test_measurements_that_exceed_the_time_limit_are_skipped(self, folder):
        with pytest.raises(ConfigError, match=r"nothing could be measured in 0.01 minutes .*would take"):
            bench(folder, minutes=0.01, lengths=(16,), batches=(10**6,), device="cpu")
        for wrong in ({"minutes": math.nan}, {"minutes": math.inf}, {"rounds": 0}, {"lengths": [0]}):
            with pytest.raises(ConfigError, match="finite numbers above 0"):
                bench(folder, **wrong)

    @pytest.mark.parametrize("classes", [None, []])
    def test_a_model_without_a_class_is_an_error(self, folder, tmp_path, classes):
        shutil.copytree(folder, tmp_path / "m")
        config = json.loads((folder / "config.json").read_text())
        (tmp_path / "m" / "config.json").write_text(json.dumps(config | {"architectures": classes}))
        with pytest.raises(ConfigError, match="does not name a model class"):
            bench(tmp_path / "m", device="cpu")

    def test_the_verb(self, run: Run, folder, tmp_path):
        (tmp_path / "texts.tsv").write_text("The captain.\t1\nAn old fox.\t0\n")
        sizes = ["--lengths", "8", "--batches", "1,2", "--minutes", "9", "--rounds", "1", "--device", "cpu"]
        call = ["bench", "--model", folder, *sizes, "--texts", tmp_path / "texts.tsv", "--dtype", "bfloat16"]
        machine, *timings = run(*call, "--json").json
        assert machine["class"] == "AlbertForSequenceClassification"
        assert machine["versions"]["torch"] == torch.__version__
        assert machine["computed_in"] == {
            "plain": "bfloat16", "onnx": "float32", "onnx-int8": "float32", "torch": "bfloat16"
        }  # fmt: skip
        assert [(one["length"], one["batch"]) for one in timings if one["engine"] == "onnx"] == [
            (None, 2), (8, 1), (8, 2)
        ]  # fmt: skip
        shown = run(*call, "--processor-time").output
        (head,) = [line for line in shown.splitlines() if line.startswith("batch")]
        assert "onnx (float32)" in head
        assert "torch (" not in head

    def test_without_torch(self, folder):
        verb = "from albertkit.cli.main import run; run()"
        sizes = ("--lengths", "8", "--batches", "2", "--minutes", "0.05", "--rounds", "2")
        printed = run_without_torch(verb, "bench", "--model", folder, *sizes, "--json")
        machine, *timings = map(json.loads, printed.splitlines())
        assert (machine["device"], machine["dtype"], machine["product_library"]) == (
            "cpu",
            "float32",
            "numpy",
        )
        for engine in ("torch", "plain"):
            assert "pip install 'albertkit[torch]'" in machine["left_out"][engine]
        assert [one["engine"] for one in timings] == ["onnx", "onnx-int8"]

    def test_errors(self, run: Run, tmp_path):
        assert_one_line_error(run("bench", "--lengths", "8,no"), "--lengths is '8,no'", "whole numbers")
        assert_one_line_error(run("bench", "--plot", tmp_path / "a.txt"), "expected a name that ends in .png")
        (tmp_path / "empty.txt").write_text("\n")
        assert_one_line_error(run("bench", "--texts", tmp_path / "empty.txt"), "has no text")
