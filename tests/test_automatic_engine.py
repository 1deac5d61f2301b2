"""The engine `auto`: what was measured decides, under its own circumstances only, and no answer changes."""

import dataclasses
import json
import logging

import pytest
import torch
from command_line import Run, assert_one_line_error
from modeling_twins import make

from albertkit.engines import automatic, measurement
from albertkit.engines.automatic import AutomaticEngine
from albertkit.engines.choosing import make_engine
from albertkit.engines.measurement import Measurement, cache_folder, remembered
from albertkit.engines.onnx_layers import OnnxLayers
from albertkit.engines.padding_free import PaddingFreeEngine
from albertkit.tasks.engine import PlainEngine
from albertkit.tasks.rows import Row

pytest.importorskip("onnxruntime", reason="needs the extra onnx")

CLASSIFIER = "AlbertForSequenceClassification"
ROWS = [
    Row(input_ids=list(range(5, 5 + length)), token_type_ids=[0] * length, example=0) for length in (3, 9, 9)
]


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """A cache folder, and a process, in which nothing was measured."""
    monkeypatch.setenv("ALBERTKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(measurement, "_MEASURED", {})
    monkeypatch.setattr(measurement, "_ROUNDS", (1, 2))
    return tmp_path / "cache"


def found(model, *, torch_seconds: float, onnx_seconds: float, difference: float = 0.0) -> Measurement:
    return Measurement(
        measurement._circumstances(model),
        measured="2026-11-22T00:00:00+00:00",
        rows=1,
        tokens=8,
        seconds={"torch": torch_seconds, "onnx": onnx_seconds},
        difference=difference,
    )


def as_new_process(monkeypatch) -> None:
    monkeypatch.setattr(measurement, "_MEASURED", {})


class TestWhatDecides:
    def test_nothing_measured_is_torch(self):
        engine = make_engine(make(CLASSIFIER))
        assert isinstance(engine, AutomaticEngine)
        assert engine.suitable_kind() == "torch"
        assert engine.describe() == "torch, not measured"

    @pytest.mark.parametrize(
        ("torch_seconds", "onnx_seconds", "difference", "expected"),
        [
            (1.0, 0.5, 0.0, "onnx"),
            (0.5, 1.0, 0.0, "torch"),
            (1.0, 0.99, 0.0, "torch"),  # noise
            (1.0, 0.5, 0.1, "torch"),  # fast and wrong
            (1.0, 0.5, float("nan"), "torch"),
        ],
    )
    def test_the_clearly_faster_one_that_says_the_same(
        self, torch_seconds, onnx_seconds, difference, expected, monkeypatch
    ):
        model = make(CLASSIFIER)
        one = found(model, torch_seconds=torch_seconds, onnx_seconds=onnx_seconds, difference=difference)
        assert one.engine == expected
        measurement._keep(one)
        as_new_process(monkeypatch)
        assert AutomaticEngine(model).suitable_kind() == expected

    def test_the_chosen_one_computes(self, monkeypatch):
        model = make(CLASSIFIER)
        measurement._keep(found(model, torch_seconds=1.0, onnx_seconds=0.5))
        calls = []
        original = OnnxLayers.__call__
        monkeypatch.setattr(OnnxLayers, "__call__", lambda *given: calls.append(1) or original(*given))
        answers = make_engine(model).run(ROWS)
        assert calls
        for one, other in zip(answers, PlainEngine(model).run(ROWS), strict=True):
            torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)

    def test_what_onnx_does_not_compute_is_torch(self):
        model = make(CLASSIFIER)
        measurement._keep(found(model, torch_seconds=1.0, onnx_seconds=0.5))
        engine = AutomaticEngine(model)
        assert engine.suitable_kind() == "onnx"
        model.albert.encoder.executed_layers()[0].activation = torch.nn.SiLU()  # not what the config says
        assert engine.suitable_kind() == "torch"
        assert AutomaticEngine(make(CLASSIFIER).bfloat16()).suitable_kind() == "torch"
        hooked = make(CLASSIFIER)
        hooked.register_forward_hook(lambda *_: None)
        assert AutomaticEngine(hooked).suitable_kind() is None
        assert AutomaticEngine(hooked).settle() is None

    def test_other_circumstances_have_measurements_of_their_own(self, monkeypatch):
        model = make(CLASSIFIER)
        one = found(model, torch_seconds=1.0, onnx_seconds=0.5)
        measurement._keep(one)
        assert remembered(make(CLASSIFIER, seed=1)) == one  # other weights take the same time
        assert remembered(make(CLASSIFIER, num_hidden_layers=5)) is None
        monkeypatch.setattr(torch, "get_num_threads", lambda: 64)
        assert remembered(model) is None

    def test_training_evaluates_with_the_same_bits_in_every_run(self):
        model = make(CLASSIFIER)
        measurement._keep(found(model, torch_seconds=1.0, onnx_seconds=0.5))
        engine = make_engine(model, measured=False)
        assert type(engine) is PaddingFreeEngine
        assert engine.kind == "torch"


class TestMeasuring:
    def test_both_engines_are_measured_and_the_file_says_so(self, cache, monkeypatch, caplog):
        model = make(CLASSIFIER)
        with caplog.at_level(logging.INFO):
            one = AutomaticEngine(model).settle()
        assert one is not None
        assert one.seconds.keys() == {"torch", "onnx"}
        assert all(seconds > 0 for seconds in one.seconds.values())
        assert one.difference < 1e-5
        (file,) = (cache / "engines").iterdir()
        assert file == one.file
        assert str(file) in caplog.text
        written = json.loads(file.read_text())
        assert written["seconds"] == one.seconds
        assert written["circumstances"]["hidden_size"] == model.config.hidden_size
        as_new_process(monkeypatch)
        assert remembered(model) == one
        file.unlink()
        assert remembered(model) is None

    @pytest.mark.parametrize("damage", ["", "{", "[]", '{"circumstances": {}}', "null"])
    def test_a_damaged_file_is_as_none(self, damage, monkeypatch):
        model = make(CLASSIFIER)
        one = found(model, torch_seconds=1.0, onnx_seconds=0.5)
        measurement._keep(one)
        as_new_process(monkeypatch)
        one.file.write_text(damage)
        assert remembered(model) is None
        assert AutomaticEngine(model).settle() is not None
        as_new_process(monkeypatch)
        assert remembered(model) is not None

    def test_of_other_circumstances_in_the_same_place_it_is_as_none(self, monkeypatch):
        model = make(CLASSIFIER)
        one = found(model, torch_seconds=1.0, onnx_seconds=0.5)
        measurement._keep(one)
        as_new_process(monkeypatch)
        content = json.loads(one.file.read_text())
        content["circumstances"]["threads"] += 1
        one.file.write_text(json.dumps(content))
        assert remembered(model) is None

    def test_a_folder_that_cannot_be_written_measures_once_in_a_process(self, monkeypatch, tmp_path):
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("ALBERTKIT_CACHE", str(tmp_path / "file"))
        model = make(CLASSIFIER)
        one = AutomaticEngine(model).settle()
        monkeypatch.setattr(automatic, "measure", lambda model: pytest.fail("measured again"))
        assert AutomaticEngine(model).settle() == one

    def test_an_engine_that_fails_is_not_chosen_and_not_remembered(self, cache, monkeypatch, caplog):
        def fail(*_: object) -> None:
            raise RuntimeError("no such instruction")

        monkeypatch.setattr(OnnxLayers, "__call__", fail)
        engine = AutomaticEngine(make(CLASSIFIER))
        one = engine.settle()
        assert one is not None
        assert one.engine == engine.suitable_kind() == "torch"
        assert "cannot compute this model here: no such instruction" in caplog.text
        assert not cache.exists()

    def test_large_models_are_not_held_twice(self, monkeypatch):
        monkeypatch.setattr(measurement, "_MOST_WEIGHTS", 10)
        engine = AutomaticEngine(make(CLASSIFIER))
        assert engine.settle() is None
        assert engine.suitable_kind() == "torch"

    def test_only_after_so_much_work(self, monkeypatch):
        model = make(CLASSIFIER)
        faster = found(model, torch_seconds=1.0, onnx_seconds=0.5)
        monkeypatch.setattr(automatic, "measure", lambda model: faster)
        engine = AutomaticEngine(model)
        expected = engine.run(ROWS)
        assert engine.measurement is None
        assert 0 < automatic._SPENT[model] < 10
        automatic._SPENT[model] = 31.0
        again = AutomaticEngine(model)  # another engine of the same model goes on counting
        for one, other in zip(again.run(ROWS), expected, strict=True):
            torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
        assert again.suitable_kind() == "onnx"

    def test_the_loser_is_forgotten(self):
        from albertkit.engines.padding_free import _MADE

        model = make(CLASSIFIER)
        one = AutomaticEngine(model).settle()
        assert one is not None
        assert list(_MADE[model]) == [one.engine]


def test_a_patience_is_for_torch():
    model = make(CLASSIFIER)
    measurement._keep(found(model, torch_seconds=1.0, onnx_seconds=0.5))
    engine = AutomaticEngine(model)
    model.patience = 1
    assert engine.suitable_kind() == "torch"
    assert engine.settle() is None


def test_where_the_cache_is(monkeypatch, tmp_path):
    monkeypatch.delenv("ALBERTKIT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "albertkit"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "albertkit"


def test_without_onnx_runtime_there_is_nothing_to_choose(monkeypatch):
    monkeypatch.setattr(automatic, "_has_onnx", lambda: False)
    engine = make_engine(make(CLASSIFIER))
    assert isinstance(engine, AutomaticEngine)
    assert engine.suitable_kind() == "torch"
    assert engine.settle() is None


class TestTheVerb:
    def test_choose(self, run: Run, cache):
        result = run("bench", "--choose", "--json")
        (line,) = map(json.loads, result.output.splitlines())
        assert line["engine"] in ("torch", "onnx")
        assert line["seconds"].keys() == {"torch", "onnx"}
        (file,) = (cache / "engines").iterdir()
        assert line["file"] == str(file)
        shown = run("bench", "--minutes", "9", "--lengths", "8", "--batches", "1", "--rounds", "1")
        assert f"auto: {line['engine']}; measured for" in shown.output

    def test_measures_anew(self, run: Run, cache):
        run("bench", "--choose")
        (file,) = (cache / "engines").iterdir()
        content = json.loads(file.read_text())
        file.write_text(json.dumps(content | {"seconds": {"torch": 1e9, "onnx": 1e9}}))
        measurement._MEASURED.clear()
        assert "auto: " in run("bench", "--choose").output
        assert json.loads(file.read_text())["seconds"]["torch"] < 1e9

    def test_where_there_is_no_choice(self, run: Run, monkeypatch):
        monkeypatch.setattr(automatic, "_has_onnx", lambda: False)
        assert_one_line_error(run("bench", "--choose"), "there is nothing to choose")


def test_measurements_are_plain_values():
    one = found(make(CLASSIFIER), torch_seconds=1.0, onnx_seconds=0.5)
    assert json.loads(json.dumps(dataclasses.asdict(one))) == dataclasses.asdict(one)
