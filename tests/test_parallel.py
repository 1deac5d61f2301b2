"""Tests of the ordered parallel map: equal results in order, few items in memory, and workers that die."""

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from command_line import Run
from json_lines import write_json_lines
from one_thread import one_thread  # noqa: F401  # a fixture
from pretraining_runs import folder_bytes, write_corpus
from random_models import TWO_LAYERS, random_model

from albertkit.errors import ConfigError, DataError
from albertkit.finetuning.predict import predict
from albertkit.modeling.heads import AlbertForSequenceClassification
from albertkit.parallel import ordered_map
from albertkit.pretraining.prepare import PrepareReport, prepare
from albertkit.tokenization.tokenizer import AlbertTokenizer

COUNT, PART = 50, 8


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("albertkit.finetuning.predict.CHUNK", PART)


@pytest.fixture(scope="module")
def model(tokenizer: AlbertTokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    sizes = TWO_LAYERS | {"max_position_embeddings": 512}
    random_model(AlbertForSequenceClassification, tokenizer, **sizes).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def two_cpu_ray() -> Iterator[None]:
    """Start Ray with two CPUs on this machine."""
    import ray

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))  # otherwise Ray writes one to the home folder
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_worker_niceness", "0")  # otherwise other work on the machine slows the workers down
        start = partial(
            ray.init,
            address="local",
            num_cpus=2,
            object_store_memory=100 << 20,
            include_dashboard=False,
            log_to_driver=False,
        )
        try:
            start()
        except Exception:  # Ray waits 30 s, but its first start compiles its modules
            ray.shutdown()
            start()
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import this file
        yield
        ray.shutdown()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory, tiny_texts: list[str]) -> Path:
    file = tmp_path_factory.mktemp("data") / "input.jsonl"
    rows = [{"text": text[: 30 + 5 * number]} for number, text in enumerate(tiny_texts[:COUNT])]
    write_json_lines(file, rows)
    return file


def predict_parts(
    model: Path, source: Path, output: Path, runner: dict[str, Any], stop_after: int | None = None
) -> list[int]:
    """Write the predictions, and return the number of finished examples after each part."""
    done: list[int] = []

    def progress(count: int, total: int) -> None:
        assert total == COUNT
        done.append(count)
        if count == stop_after:
            raise KeyboardInterrupt

    task = "text-classification"
    predict(model, task=task, input=source, output=output, device="cpu", progress=progress, **runner)
    return done


def assert_same_records(first: bytes, second: bytes) -> None:
    """Compare predictions. Ray's processes may use another number of threads, which changes the last bits."""
    for lines in zip(first.splitlines(), second.splitlines(), strict=True):
        record, expected = map(json.loads, lines)
        assert record.pop("scores") == pytest.approx(expected.pop("scores"), abs=1e-6)
        assert record.pop("score") == pytest.approx(expected.pop("score"), abs=1e-6)
        assert record == expected


@pytest.mark.usefixtures("one_thread")
def test_the_runners_write_the_same_file(
    model: Path, source: Path, tmp_path: Path, two_cpu_ray: None
) -> None:
    local, ray = {"runner": "local"}, {"runner": "ray", "workers": 1}
    done = predict_parts(model, source, tmp_path / "complete.jsonl", local)
    assert done == [8, 16, 24, 32, 40, 48, 50]
    complete = (tmp_path / "complete.jsonl").read_bytes()
    assert len(complete.splitlines()) == COUNT
    # Each runner resumes the predictions of the other.
    for first, second in ((ray, local), (local, ray)):
        with pytest.raises(KeyboardInterrupt):
            predict_parts(model, source, tmp_path / "parts.jsonl", first, stop_after=24)
        assert not (tmp_path / "parts.jsonl").exists()
        assert predict_parts(model, source, tmp_path / "parts.jsonl", second) == done[3:]
        assert_same_records((tmp_path / "parts.jsonl").read_bytes(), complete)
        (tmp_path / "parts.jsonl").unlink()


def test_few_items_are_in_memory(two_cpu_ray: None) -> None:
    for runner, workers, maximum in (("local", 1, 1), ("ray", 2, 4)):
        taken: list[int] = []

        def counted(taken: list[int] = taken) -> Iterator[int]:
            for number in range(20):
                taken.append(number)
                yield number

        results = ordered_map(abs, counted(), runner=runner, workers=workers, hint="as before")
        for finished, result in enumerate(results):
            assert result == finished
            assert len(taken) - finished <= maximum


@dataclass(frozen=True)
class Dying:
    """Work that ends its process at item 2, at most `most` times."""

    deaths: Path
    most: int

    def __call__(self, item: int) -> int:
        died = len(list(self.deaths.iterdir()))
        if item == 2 and died < self.most:
            (self.deaths / str(died)).touch()
            os._exit(1)
        return -item


def test_a_dead_worker_is_restarted(tmp_path: Path, two_cpu_ray: None) -> None:
    for deaths, most in (("once", 1), ("always", 99)):
        (tmp_path / deaths).mkdir()
        results = ordered_map(
            Dying(tmp_path / deaths, most), range(5), runner="ray", workers=1,
            name=lambda item: f"item {item}", hint="the others are kept",
        )  # fmt: skip
        if most == 1:
            assert list(results) == [0, -1, -2, -3, -4]
        else:
            assert [next(results), next(results)] == [0, -1]
            with pytest.raises(DataError, match=r"Ray gave up at item 2 \(the others are kept\): "):
                next(results)
        assert len(list((tmp_path / deaths).iterdir())) == min(most, 3)


def refuse(item: str) -> str:
    raise DataError(f"{item} has too many tokens")


def test_errors_in_a_worker_are_the_same_as_in_this_process(two_cpu_ray: None) -> None:
    for runner in ("local", "ray"):
        with pytest.raises(DataError, match=r"^row 8 has too many tokens$"):
            list(ordered_map(refuse, ["row 8"], runner=runner, workers=1, hint=""))


def test_unknown_runners_and_missing_resources_are_errors(
    model: Path, source: Path, tmp_path: Path, two_cpu_ray: None
) -> None:
    for changes, message in (
        ({"runner": "rya"}, r"no runner 'rya'\. Did you mean 'ray'"),
        ({"runner": "ray", "workers": 3}, "2 CPUs and 0 GPUs, too few for 3 workers on cpu"),
        ({"runner": "ray", "device": "cuda"}, "too few for a worker on cuda"),
        ({"runner": "ray", "device": "cuda:1"}, "Use auto, cpu or cuda"),
    ):
        with pytest.raises(ConfigError, match=message):
            predict(model, input=source, output=tmp_path / "out.jsonl", task="text-classification", **changes)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("length", [10, 600, -3])
def test_a_run_that_was_killed_within_its_first_part_starts_again(
    model: Path, source: Path, tmp_path: Path, length: int
) -> None:
    local = {"runner": "local"}
    predict_parts(model, source, tmp_path / "complete.jsonl", local)
    output, partial = tmp_path / "parts.jsonl", tmp_path / "parts.jsonl.partial"
    with pytest.raises(KeyboardInterrupt):
        predict_parts(model, source, output, local, stop_after=8)
    partial.write_bytes(partial.read_bytes()[:length])
    predict_parts(model, source, output, local)
    assert output.read_bytes() == (tmp_path / "complete.jsonl").read_bytes()


def test_a_file_of_something_else_is_left_alone(model: Path, source: Path, tmp_path: Path) -> None:
    other = tmp_path / "parts.jsonl.partial"
    other.write_text("precious")
    with pytest.raises(DataError, match=r"parts\.jsonl\.partial"):
        predict_parts(model, source, tmp_path / "parts.jsonl", {"runner": "local"})
    assert other.read_text() == "precious"


@pytest.mark.usefixtures("one_thread")
def test_predict_has_an_option_for_the_runner(
    model: Path, source: Path, tmp_path: Path, run: Run, two_cpu_ray: None
) -> None:
    verb = ("predict", "--model", model, "--input", source, "--output")
    for runner in (("local", "--device", "cpu"), ("ray", "--workers", "1")):
        result = run(*verb, tmp_path / f"{runner[0]}.csv", "--runner", *runner)
        assert result.status == 0, result.errors
        assert f"{COUNT} predictions in" in result.errors
    assert (tmp_path / "ray.csv").read_bytes() == (tmp_path / "local.csv").read_bytes()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["local.csv", "ray.csv"]


def test_ray_writes_the_same_shards(
    tmp_path: Path, tiny_texts: list[str], tiny_vocabulary: Path, two_cpu_ray: None
) -> None:
    corpus = write_corpus(tmp_path, tiny_texts)

    def prepare_with(runner: str) -> PrepareReport:
        return prepare(
            [corpus], tiny_vocabulary, tmp_path / runner,
            runner=runner, workers=1 + (runner == "ray"), unit_characters=20_000, holdout_every=10,
        )  # fmt: skip

    report = prepare_with("local")
    content = corpus.read_bytes()
    corpus.write_bytes(content + b"no JSON\n")
    with pytest.raises(DataError, match=r"corpus.jsonl, line 201 is damaged"):
        prepare_with("ray")
    corpus.write_bytes(content)
    again = prepare_with("ray")
    assert again.reused_shards >= 2
    assert (again.train, again.validation, again.text_bytes, again.source_documents) == (
        report.train, report.validation, report.text_bytes, report.source_documents
    )  # fmt: skip
    assert folder_bytes(tmp_path / "ray") == folder_bytes(tmp_path / "local")


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
