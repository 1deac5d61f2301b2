"""Tests of `albertkit bench`: counts of operations, equal scores of all engines, and the reports."""

import importlib.metadata
import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from command_line import Run, assert_one_line_error
from modeling_twins import make
from torchless import run_without_torch

import albertkit
from albertkit import extras
from albertkit.bench import sides as sides_module
from albertkit.bench import summary, timing
from albertkit.bench.measuring import Report, Timing, _random_rows, about
from albertkit.bench.measuring import run as measure
from albertkit.bench.sides import load, other_sides, own_sides
from albertkit.bench.summary import figures
from albertkit.bench.timing import in_turn, largest_product
from albertkit.checkpoints.arrays import to_arrays
from albertkit.engines.choosing import make_engine
from albertkit.engines.engine import every_token
from albertkit.engines.light_model import LightModel
from albertkit.errors import ConfigError, MissingExtraError
from albertkit.heads import HEADS

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def small_products(monkeypatch):
    """Use small matrix products: the real ones take a second."""
    monkeypatch.setattr(timing, "PRODUCTS", [(64, 64, 64), (256, 256, 256)])


@pytest.mark.parametrize("classes", [None, []])
def test_a_model_without_a_class_is_an_error(tmp_path: Path, classes: list[str] | None) -> None:
    make("AlbertForMaskedLM").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": classes}))
    with pytest.raises(ConfigError, match=r"the config does not name a model class.*AlbertForMaskedLM"):
        load(str(tmp_path), device="cpu")


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
        monkeypatch.setattr(timing, "library", lambda: library)
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


class TestSides:
    """The engines of albertkit and other libraries, which the bench compares."""

    @pytest.mark.parametrize("head", [name for name in HEADS if hasattr(transformers, name)])
    def test_transformers_and_the_engines_have_the_same_scores(self, head, tokenizer, tmp_path):
        model = make(head, vocab_size=500)
        own, _ = own_sides(model, tokenizer)
        (theirs,) = other_sides(["transformers"], model, tokenizer, tmp_path)
        assert own[0].name == "plain"
        assert {"torch"} <= {side.name for side in own}
        rows = [_random_rows(1, length, 500)[0] for length in (4, 9, 16)]
        expected = own[0].first_scores(rows)
        assert expected.shape[0] == 3
        for side in (*own[1:], theirs):
            if side.name.endswith("int8"):
                continue  # its scores differ more
            np.testing.assert_allclose(side.first_scores(rows), expected, atol=1e-4, rtol=1e-4)

    def test_a_light_model_stays_light(self, tokenizer):
        model = make("AlbertForQuestionAnswering", vocab_size=500)
        light = LightModel("AlbertForQuestionAnswering", model.config, to_arrays(model.state_dict()))
        own, left_out = own_sides(light, tokenizer)
        assert [side.name for side in own] == ["plain", "onnx", "onnx-int8", "torch"]
        assert not left_out
        rows = _random_rows(3, 9, 500)
        expected = make_engine(model, "plain").run(rows, read=every_token)
        for side in own:
            atol = 0.5 if side.name == "onnx-int8" else 1e-4
            for scores, expected_scores in zip(side.compute_rows(rows), expected, strict=True):
                np.testing.assert_allclose(scores, expected_scores, atol=atol)
        assert light.module is None

    def test_the_traced_graph_takes_any_batch(self, tokenizer, tmp_path):
        pytest.importorskip("onnxruntime")
        model = make("AlbertForSequenceClassification", vocab_size=500)
        own, _ = own_sides(model, tokenizer)
        (graph,) = other_sides(["onnxruntime"], model, tokenizer, tmp_path)
        rows = [_random_rows(1, length, 500)[0] for length in (5, 11, 20)]
        np.testing.assert_allclose(graph.first_scores(rows), own[0].first_scores(rows), atol=1e-4, rtol=1e-4)
        assert len(graph.compute_texts(["The captain.", "An old fox opened the river."])) == 1

    def test_a_missing_library_is_an_error(self, tokenizer, tmp_path, monkeypatch):
        model = make("AlbertForSequenceClassification", vocab_size=500)
        absent = sides_module.optional("no_such_library", extra="test")
        monkeypatch.setattr(sides_module, "transformers", absent)
        with pytest.raises(MissingExtraError, match=r"no_such_library is not installed.*albertkit\[test\]"):
            other_sides(["transformers"], model, tokenizer, tmp_path)
        with pytest.raises(ConfigError, match="Did you mean 'transformers'"):
            other_sides(["transformer"], model, tokenizer, tmp_path)


class TestAReport:
    def test_a_report_of_a_model(self, tokenizer, tiny_texts):
        model = make("AlbertForSequenceClassification", vocab_size=500)
        own, _ = own_sides(model, tokenizer)
        texts = [text.partition(".")[0] for text in tiny_texts[:40]]
        report = measure(
            model,
            tokenizer,
            own,
            name="tiny",
            texts=texts,
            minutes=9,
            rounds=2,
            lengths=(4, 16, 600),
            batches=(1, 3),
        )
        assert {(cell.side, cell.length, cell.batch) for cell in report.grid} == {
            (side.name, length, batch) for side in own for length in (4, 16) for batch in (1, 3)
        }
        assert report.left_out == {"600 tokens": "exceed the model's maximum, 24"}
        assert report.differences.keys() == {side.name for side in own[1:]}
        assert all(value < (1 if "int8" in name else 1e-4) for name, value in report.differences.items())
        # A 16 x 32 projection; 3 layers with four 32 x 32 and two 32 x 48 matrices; attention of size 32.
        for cell in report.grid:
            per_token = 2 * (16 * 32 + 3 * (4 * 32**2 + 2 * 32 * 48)) + 3 * 4 * 32 * cell.length
            assert cell.flops == cell.batch * cell.length * per_token
            assert cell.texts_per_second == cell.batch / cell.seconds > 0
            assert 0 < report.share(cell) < 10
        assert {timing.side for timing in report.texts} == {side.name for side in own}
        assert 1 <= report.texts[0].batch <= 40
        assert 4 <= report.tokens_per_text <= 24

    def test_cells_that_exceed_the_time_limit_are_skipped(self, tokenizer):
        model = make("AlbertForSequenceClassification", vocab_size=500)
        own, _ = own_sides(model, tokenizer)
        report = measure(model, tokenizer, own, name="tiny", minutes=0.01, lengths=(16,), batches=(10**6,))
        assert re.fullmatch(
            r"would take \d+\.\d s of the 0\.\d s that are left", report.left_out["1000000 x 16 tokens"]
        )
        assert not report.grid

    def test_only_figures_of_the_base_size_have_targets(self):
        def report(hidden_size: int) -> Report:
            about = {"hidden_size": hidden_size, "depth": 12, "dtype": "float32", "device": "cpu"}
            grid = [
                Timing(side, length, batch, seconds, 8e9)
                for length, batch in ((16, 1), (512, 8))
                for side, seconds in (("plain", 0.5), ("torch", 0.1), ("transformers", 0.4))
            ]
            texts = [Timing("torch", 0, 100, 10, 1e9), Timing("transformers", 0, 100, 30, 1e9)]
            return Report("m", about, ceiling=1e11, grid=grid, texts=texts)

        by_name = {figure.name: figure for figure in figures(report(768), ["transformers"])}
        speed = by_name["torch, 100 texts: texts per second, against transformers"]
        assert (speed.value, speed.ratio, speed.target, speed.met) == (10, 3, ">= 2.6x", True)
        short = by_name["torch, 1 x 16 tokens: seconds, against transformers"]
        assert (short.value, short.against, short.ratio) == (0.1, 0.4, 0.25)
        assert (short.target, short.met) == ("<= 0.385x", True)
        share = by_name["torch, 8 x 512 tokens: GFLOP/s, against the largest product"]
        assert (share.value, share.against, share.ratio, share.met) == (80, 100, 0.8, False)
        assert by_name["plain, 8 x 512 tokens: GFLOP/s, against the largest product"].target == "none"
        for figure in figures(report(256), ["transformers"]):
            assert figure.target == "none"
            assert figure.met is None


def test_a_plot_has_every_length(monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    drawn = []
    monkeypatch.setattr(summary, "write_picture", lambda figure, *_, **__: drawn.append(figure))
    lengths = range(1, 11)  # more than there are markers
    grid = [Timing("torch", length, 1, 0.1, length * 1e9) for length in lengths]
    about = {"dtype": "float32", "processor": "p", "threads": 1}
    summary.draw(Report("m", about, ceiling=1e11, grid=grid), tmp_path / "bench.png")
    ((roofline, _),) = [figure.axes for figure in drawn]
    points = [line.get_xdata() for line in roofline.lines if line.get_marker() in "osD^vP*X"]
    assert [list(one) for one in points] == [[length] for length in lengths]


def test_a_plot_of_texts_alone(tmp_path):
    pytest.importorskip("matplotlib")
    about = {"dtype": "float32", "processor": "p", "threads": 1}
    report = Report("m", about, ceiling=1e11, texts=[Timing("torch", 0, 10, 0.1, 1e9)])
    summary.draw(report, tmp_path / "bench.png")
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
    versions = about(make("AlbertForSequenceClassification"))["versions"]
    assert versions["onnxruntime"] == onnxruntime.__version__
    assert versions["albertkit"] == albertkit.__version__
    assert extras.version_of("no_library_has_this_name") is None
    for engine in ("auto", "onnx"):
        assert make_engine(make("AlbertForSequenceClassification"), engine)
    # Only extras.py reads the metadata of distributions.
    sources = Path(albertkit.__file__).parent.rglob("*.py")
    pattern = re.compile(r"importlib\.metadata|from importlib import metadata")
    assert [file.name for file in sources if pattern.search(file.read_text(encoding="utf-8"))] == [
        "extras.py"
    ]


class TestTheVerb:
    @pytest.fixture(autouse=True)
    def _small_products(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(timing, "PRODUCTS", timing.PRODUCTS[:1])

    def test_json_has_a_line_for_each_figure(self, run: Run, folder, tmp_path):
        (tmp_path / "texts.tsv").write_text("The captain.\t1\nAn old fox.\t0\n")
        sizes = ["--lengths", "8", "--batches", "1,2", "--minutes", "9", "--rounds", "2", "--device", "cpu"]
        options = ["--texts", tmp_path / "texts.tsv", "--against", "transformers", "--json"]
        result = run("bench", "--model", folder, *sizes, *options)
        assert result.status == 0, result.errors
        machine, ceiling, *lines = result.json
        assert machine["class"] == "AlbertForSequenceClassification"
        assert machine["threads"] == torch.get_num_threads()
        assert machine["versions"]["torch"] == torch.__version__
        assert ceiling["name"] == "largest matrix product (GFLOP/s)"
        assert ceiling["value"] > 0
        fields = {"name", "value", "against", "ratio", "target", "met"}
        assert all(set(line) == fields for line in (ceiling, *lines))
        names = {line["name"] for line in lines}
        for engine in ("plain", "torch"):
            for size in ("2 texts", "1 x 8 tokens", "2 x 8 tokens"):
                assert f"{engine}, {size}: texts per second, against transformers" in names
                assert f"{engine}, {size}: GFLOP/s, against the largest product" in names
        for line in lines:
            assert line["ratio"] == pytest.approx(line["value"] / line["against"], rel=0.01, abs=6e-4)

    def test_a_table_and_a_picture(self, run: Run, folder, tmp_path):
        pytest.importorskip("matplotlib")
        picture = tmp_path / "bench.png"
        sizes = [
            "--lengths",
            "8,20",
            "--batches",
            "1,4",
            "--minutes",
            "9",
            "--rounds",
            "2",
            "--device",
            "cpu",
        ]
        result = run("bench", "--model", folder, *sizes, "--processor-time", "--plot", picture)
        assert result.status == 0, result.errors
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert "largest matrix product: " in result.output
        rows = [line.split()[:2] for line in result.output.splitlines()]
        for cell in (["1", "8"], ["4", "8"], ["1", "20"], ["4", "20"]):
            assert rows.count(cell) == 2  # in the table of speeds and in the table of shares

    def test_engines_show_their_data_type_if_it_is_not_that_of_the_weights(self, run: Run, folder):
        options = ["--model", folder, "--dtype", "bfloat16", "--device", "cpu", "--minutes", "9"]
        options += ["--lengths", "8", "--batches", "1", "--rounds", "1"]
        result = run("bench", *options)
        assert result.status == 0, result.errors
        heads = [line for line in result.output.splitlines() if line.startswith("batch")]
        assert len(heads) == 2
        for head in heads:
            assert "onnx (float32)" in head
            assert "onnx-int8 (float32)" in head
            assert "plain (" not in head
            assert "torch (" not in head
        computed_in = run("bench", *options, "--json").json[0]["computed_in"]
        assert computed_in["onnx"] == computed_in["onnx-int8"] == "float32"
        assert computed_in["plain"] == computed_in["torch"] == "bfloat16"

    def test_without_torch(self, folder, tmp_path):
        verb = "from albertkit.cli.main import run; run()"
        sizes = ("--lengths", "8", "--batches", "2", "--minutes", "0.05", "--rounds", "2")
        (tmp_path / "texts.txt").write_text("The captain.\nAn old fox.\n")
        options = ("--texts", tmp_path / "texts.txt", "--json")
        printed = run_without_torch(verb, "bench", "--model", folder, *sizes, *options)
        machine, *lines = map(json.loads, printed.splitlines())
        assert (machine["device"], machine["dtype"], machine["ceiling_library"]) == (
            "cpu",
            "float32",
            "numpy",
        )
        assert "torch" not in machine["versions"]
        for engine in ("torch", "plain"):
            assert "pip install 'albertkit[torch]'" in machine["left_out"][engine]
        assert [line["name"].partition(":")[0] for line in lines if "per second" in line["name"]] == [
            f"{engine}, {size}" for size in ("2 texts", "2 x 8 tokens") for engine in ("onnx", "onnx-int8")
        ]
        code = """
from albertkit.bench.sides import other_sides
from albertkit.errors import MissingExtraError
try:
    other_sides(["transformers"], None, None, None)
except MissingExtraError as error:
    print(error)
"""
        assert "pip install 'albertkit[test]'" in run_without_torch(code)

    def test_errors(self, run: Run, folder, tmp_path):
        assert_one_line_error(run("bench", "--lengths", "8,no"), "lengths is '8,no'", "whole numbers")
        assert_one_line_error(run("bench", "--plot", tmp_path / "a.txt"), "expected a name that ends in .png")
        (tmp_path / "empty.txt").write_text("\n")
        assert_one_line_error(run("bench", "--texts", tmp_path / "empty.txt"), "has no text")
        assert_one_line_error(
            run("bench", "--model", folder, "--device", "cpu", "--against", "keras"), "nothing named 'keras'"
        )
        assert_one_line_error(
            run("bench", "--model", folder, "--device", "cpu", "--minutes", "0.001", "--batches", "1000000"),
            "nothing could be measured in 0.001 minutes (64 tokens exceed the model's maximum, 24; ",
            "1000000 x 16 tokens would take",
            "Increase --minutes",
        )
        assert_one_line_error(
            run("bench", "--model", folder, "--dtype", "float16", "--against", "onnxruntime"),
            "compared in float32 on the CPU, but the model is in float16",
        )
        assert_one_line_error(
            run("bench", "--model", folder, "--device", "cpu", "--minutes", "0.001", "--lengths", "600"),
            "(600 tokens exceed the model's maximum, 24)",
            "choose other --lengths",
        )
        for minutes in ("nan", "inf"):
            found = run("bench", "--model", folder, "--device", "cpu", "--minutes", minutes)
            assert_one_line_error(found, f"minutes is {minutes}. Expected a number of minutes.")


def test_figures_have_the_json_of_the_benchmark_scripts(capsys):
    """Check the fields: the same programs read the output of `bench` and of the scripts in benchmarks/."""
    from dataclasses import asdict

    from albertkit.bench.summary import compare

    line = json.dumps(asdict(compare("speed", 3.0, 2.0, at_least=1.4)))
    assert json.loads(line) == {
        "name": "speed", "value": 3.0, "against": 2.0, "ratio": 1.5, "target": ">= 1.4x", "met": True
    }  # fmt: skip
