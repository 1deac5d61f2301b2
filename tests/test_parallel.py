"""Tests of the ordered parallel map: equal results in order, few items in memory, and workers that die."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import Run, assert_one_line_error
from json_lines import write_json_lines
from random_models import TWO_LAYERS, random_model

from albertkit.datasets.examples import TextExample
from albertkit.datasets.options import DataOptions
from albertkit.errors import ConfigError, DataError
from albertkit.finetuning.predict import predict_file
from albertkit.finetuning.predictor import Asked, Predictor
from albertkit.modeling.task_heads import AlbertForSequenceClassification
from albertkit.parallel import ordered_map
from albertkit.tasks.settings import TaskSettings
from albertkit.tasks.text_classification import TextClassification
from albertkit.tokenization.tokenizer import AlbertTokenizer

COUNT, PART = 50, 8


@pytest.fixture(scope="module")
def predictor(tokenizer: AlbertTokenizer) -> Predictor:
    sizes = TWO_LAYERS | {"max_position_embeddings": 512}
    model = random_model(AlbertForSequenceClassification, tokenizer, **sizes).eval()
    return Predictor(TextClassification().bind(tokenizer, model.config), model)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory, tiny_texts: list[str]) -> Path:
    file = tmp_path_factory.mktemp("data") / "input.jsonl"
    rows = [{"text": text[: 30 + 5 * number]} for number, text in enumerate(tiny_texts[:COUNT])]
    write_json_lines(file, rows)
    return file


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Use one thread, as a worker of Ray does, because another number may change the last bits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def predict(
    predictor: Predictor, source: Path, output: Path, runner: dict[str, Any], stop_after: int | None = None
) -> list[int]:
    """Write the predictions, and return the number of finished examples after each part."""
    done: list[int] = []

    def progress(count: int, total: int) -> None:
        assert total == COUNT
        done.append(count)
        if count == stop_after:
            raise KeyboardInterrupt

    reader = predictor.task.reader(str(source), DataOptions(), labeled=False)
    predict_file(predictor, reader, output, about={}, part_size=PART, progress=progress, **runner)
    return done


def parts(count: int, examples: int = 3) -> Iterator[list[Asked]]:
    for number in range(count):
        yield [Asked(TextExample(f"part {number}"), line) for line in range(1, examples + 1)]


def test_the_runners_write_the_same_file(
    predictor: Predictor, source: Path, tmp_path: Path, one_thread: None, two_cpu_ray: None
) -> None:
    local, ray = {"runner": "local"}, {"runner": "ray", "workers": 2}
    done = predict(predictor, source, tmp_path / "complete.jsonl", local)
    assert done == [8, 16, 24, 32, 40, 48, 50]
    complete = (tmp_path / "complete.jsonl").read_bytes()
    assert len(complete.splitlines()) == COUNT
    # Each runner resumes the predictions of the other.
    for first, second in ((ray, local), (local, ray)):
        with pytest.raises(KeyboardInterrupt):
            predict(predictor, source, tmp_path / "parts.jsonl", first, stop_after=24)
        assert not (tmp_path / "parts.jsonl").exists()
        assert predict(predictor, source, tmp_path / "parts.jsonl", second) == done[3:]
        assert (tmp_path / "parts.jsonl").read_bytes() == complete
        (tmp_path / "parts.jsonl").unlink()


def test_few_parts_are_in_memory(predictor: Predictor, two_cpu_ray: None) -> None:
    for runner, workers, maximum in (("local", 1, 1), ("ray", 2, 4)):
        taken: list[int] = []

        def counted(taken: list[int] = taken) -> Iterator[list[Asked]]:
            for number, examples in enumerate(parts(20)):
                taken.append(number)
                yield examples

        results = ordered_map(
            predictor, counted(), runner=runner, workers=workers, device="auto", hint="as before"
        )
        for finished, lines in enumerate(results):
            assert len(lines.splitlines()) == 3
            assert len(taken) - finished <= maximum


@dataclass
class Dying(Predictor):
    """A predictor that ends its process at a text, at most `most` times."""

    deaths: Path = Path()
    most: int = 1

    def __call__(self, asked: Sequence[Asked]) -> str:
        died = len(list(self.deaths.iterdir()))
        if asked[0].example.text == "part 2" and died < self.most:
            (self.deaths / str(died)).touch()
            os._exit(1)
        return super().__call__(asked)


def test_a_dead_worker_is_restarted(
    predictor: Predictor, tmp_path: Path, one_thread: None, two_cpu_ray: None
) -> None:
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # a worker cannot import this file
    expected = [predictor(examples) for examples in parts(5)]
    for deaths, most in (("once", 1), ("always", 99)):
        (tmp_path / deaths).mkdir()
        dying = Dying(**predictor.__getstate__(), deaths=tmp_path / deaths, most=most)
        lines = []
        results = ordered_map(
            dying, parts(5), runner="ray", workers=1, device="cpu",
            name=lambda part: part[0].example.text, hint="the others are kept",
        )  # fmt: skip
        if most == 1:
            lines += results
            assert lines == expected
        else:
            with pytest.raises(DataError, match=r"Ray gave up at part 2 \(the others are kept\): "):
                lines.extend(results)
            assert lines == expected[:2]
        assert len(list((tmp_path / deaths).iterdir())) == min(most, 3)


def test_errors_in_a_worker_are_the_same_as_in_this_process(predictor: Predictor, two_cpu_ray: None) -> None:
    settings = TaskSettings(max_length=8, truncation=False)
    task = predictor.task.bind(predictor.task.tokenizer, predictor.task.config, settings)
    strict = replace(predictor, task=task)
    messages = []
    for runner in ("local", "ray"):
        with pytest.raises(DataError) as raised:
            list(
                ordered_map(
                    strict, [[Asked(TextExample("river " * 20), 1)]], runner=runner, workers=1, hint=""
                )
            )
        messages.append(str(raised.value))
    assert messages[0] == messages[1]
    assert "8" in messages[0]


def test_unknown_runners_and_missing_resources_are_errors(
    predictor: Predictor, source: Path, tmp_path: Path, two_cpu_ray: None
) -> None:
    for changes, message in (
        ({"runner": "rya"}, r"no runner 'rya'\. Did you mean 'ray'"),
        ({"workers": 2}, "workers is 2, but the local runner"),
        ({"runner": "ray", "workers": 3}, "2 CPUs and 0 GPUs, too few for 3 workers on cpu"),
        ({"runner": "ray", "device": "cuda"}, "too few for a worker on cuda"),
        ({"runner": "ray", "device": "cuda:1"}, "Use auto, cpu or cuda"),
    ):
        with pytest.raises(ConfigError, match=message):
            predict(predictor, source, tmp_path / "out.jsonl", changes)
    assert [*tmp_path.iterdir()] == []


def test_predict_has_an_option_for_the_runner(
    predictor: Predictor, source: Path, tmp_path: Path, run: Run, one_thread: None, two_cpu_ray: None
) -> None:
    predictor.model.save_pretrained(tmp_path / "model")
    predictor.task.tokenizer.save_pretrained(tmp_path / "model")
    verb = ("predict", "text-classification", "--model", tmp_path / "model", "--input", source, "--output")
    for runner in (("local", "--device", "cpu"), ("ray", "--workers", "1")):
        result = run(*verb, tmp_path / f"{runner[0]}.csv", "--runner", *runner)
        assert result.status == 0, result.errors
        assert f"{COUNT} predictions in" in result.errors
    assert (tmp_path / "ray.csv").read_bytes() == (tmp_path / "local.csv").read_bytes()
    assert_one_line_error(run(*verb, tmp_path / "x.csv", "--workers", "2"), "choose ray")


def test_one_item_needs_no_other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    # Workers import the script of the caller again, which takes longer than one item.
    monkeypatch.setattr("albertkit.parallel._process_map", lambda _, items, *__: ["by processes", *items])
    assert list(ordered_map(abs, iter([-7]), workers=2, hint="")) == [7]
    assert list(ordered_map(abs, iter([]), workers=2, hint="")) == []
    assert list(ordered_map(abs, iter([-7, -8]), workers=2, hint="")) == ["by processes", -7, -8]


def test_a_script_without_a_guard_gets_an_error_that_explains_it(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from functools import partial\n"
        "from albertkit.parallel import ordered_map\n"
        "work = partial(max, 'a' * 200_000)  # larger than a pipe holds, as a vocabulary is\n"
        "print(list(ordered_map(work, iter('bc'), workers=2, hint='kept')))\n"
    )
    result = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 1
    # After the traceback, Python may print a warning about semaphores of dead workers.
    [error] = [line for line in result.stderr.splitlines() if line.startswith("albertkit.errors.DataError: ")]
    assert error.endswith('call it under `if __name__ == "__main__":`')
