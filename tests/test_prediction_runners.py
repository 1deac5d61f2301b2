"""The runners of `predict`: the same parts in the same order, few of them at once; a worker that dies."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from command_line import Run, assert_one_line_error

from albertkit.config import AlbertConfig
from albertkit.errors import ConfigError, DataError
from albertkit.finetuning.data_options import DataOptions
from albertkit.finetuning.labelled_texts import LabelledTexts
from albertkit.finetuning.prediction import predict_file
from albertkit.finetuning.prediction_runners import Runner, run_local, runner_of
from albertkit.finetuning.predictor import Asked, Predictor
from albertkit.finetuning.settings import TaskSettings
from albertkit.modeling.task_heads import AlbertForSequenceClassification
from albertkit.tasks.examples import TextExample
from albertkit.tokenization.tokenizer import AlbertTokenizer

COUNT, PART = 50, 8


@pytest.fixture(scope="module")
def predictor(tiny_vocabulary: Path) -> Predictor:
    tokenizer = AlbertTokenizer(tiny_vocabulary)
    shape = {"embedding_size": 16, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
    config = AlbertConfig(vocab_size=len(tokenizer), num_hidden_layers=2, initializer_range=0.2, **shape)
    torch.manual_seed(0)
    labelled = LabelledTexts()
    model = AlbertForSequenceClassification(config).eval()
    return Predictor(labelled, labelled.task(tokenizer, config, TaskSettings()), model, config)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory, tiny_texts: list[str]) -> Path:
    file = tmp_path_factory.mktemp("data") / "input.jsonl"
    rows = [{"text": text[: 30 + 5 * number]} for number, text in enumerate(tiny_texts[:COUNT])]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture
def one_thread() -> Iterator[None]:
    """As many threads as a worker of Ray has: another number may change the last bits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def predict(
    predictor: Predictor, source: Path, output: Path, runner: Runner, *, stop_after: int | None = None
) -> list[int]:
    """Predict; return how many were done after each part."""
    done: list[int] = []

    def progress(count: int, total: int) -> None:
        assert total == COUNT
        done.append(count)
        if count == stop_after:
            raise KeyboardInterrupt

    reader = predictor.labelled.reader(str(source), DataOptions(), labelled=False)
    predict_file(
        *(predictor.labelled, predictor.task, predictor.model, predictor.config, reader, output),
        about={}, part_size=PART, runner=runner, progress=progress,
    )  # fmt: skip
    return done


def parts(count: int, examples: int = 3) -> Iterator[tuple[int, list[Asked]]]:
    for number in range(count):
        yield number, [Asked(TextExample(f"part {number}"), one) for one in range(1, examples + 1)]


def test_the_runners_make_the_same_file(
    predictor: Predictor, source: Path, tmp_path: Path, one_thread: None, two_cpu_ray: None
) -> None:
    local, ray = runner_of("local"), runner_of("ray", workers=2)
    done = predict(predictor, source, tmp_path / "whole.jsonl", local)
    assert done == [8, 16, 24, 32, 40, 48, 50]
    whole = (tmp_path / "whole.jsonl").read_bytes()
    assert len(whole.splitlines()) == COUNT
    # What one runner left, the other finishes.
    for first, second in ((ray, local), (local, ray)):
        with pytest.raises(KeyboardInterrupt):
            predict(predictor, source, tmp_path / "parts.jsonl", first, stop_after=24)
        assert not (tmp_path / "parts.jsonl").exists()
        assert predict(predictor, source, tmp_path / "parts.jsonl", second) == done[3:]
        assert (tmp_path / "parts.jsonl").read_bytes() == whole
        (tmp_path / "parts.jsonl").unlink()


def test_few_parts_are_in_memory(predictor: Predictor, two_cpu_ray: None) -> None:
    for runner, most in ((run_local, 1), (runner_of("ray", workers=2), 4)):
        taken: list[int] = []

        def counted(taken: list[int] = taken) -> Iterator[tuple[int, list[Asked]]]:
            for number, examples in parts(20):
                taken.append(number)
                yield number, examples

        for place, (number, lines) in enumerate(runner(counted(), predictor)):
            assert number == place
            assert len(lines.splitlines()) == 3
            assert len(taken) - place <= most


@dataclass(frozen=True)
class Dying(Predictor):
    """Ends its process at a text, as often as it is told."""

    deaths: Path = Path()
    most: int = 1

    def __call__(self, asked: Sequence[Asked]) -> str:
        died = len(list(self.deaths.iterdir()))
        if asked[0].example.text == "part 2" and died < self.most:
            (self.deaths / str(died)).touch()
            os._exit(1)
        return super().__call__(asked)


def test_a_worker_that_dies_is_started_again(
    predictor: Predictor, tmp_path: Path, one_thread: None, two_cpu_ray: None
) -> None:
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # a worker cannot import this file
    wanted = list(run_local(parts(5), predictor))
    ray = runner_of("ray", workers=1)
    for deaths, most in (("once", 1), ("always", 99)):
        (tmp_path / deaths).mkdir()
        dying = Dying(**predictor.__getstate__(), deaths=tmp_path / deaths, most=most)
        found = []
        if most == 1:
            found += ray(parts(5), dying)
            assert found == wanted
        else:
            with pytest.raises(DataError, match=r"Ray gave up part 2 \(those before are kept"):
                found.extend(ray(parts(5), dying))
            assert found == wanted[:2]
        assert len(list((tmp_path / deaths).iterdir())) == min(most, 3)


def test_errors_in_a_worker_are_those_of_this_process(predictor: Predictor, two_cpu_ray: None) -> None:
    task = predictor.labelled.task(
        predictor.task.tokenizer, predictor.config, TaskSettings(max_length=8, truncation=False)
    )
    strict = replace(predictor, task=task)
    messages = []
    for runner in (run_local, runner_of("ray", workers=1)):
        with pytest.raises(DataError) as raised:
            list(runner(iter([(0, [Asked(TextExample("river " * 20), 1)])]), strict))
        messages.append(str(raised.value))
    assert messages[0] == messages[1]
    assert "8" in messages[0]


def test_what_there_is_not(predictor: Predictor, two_cpu_ray: None) -> None:
    with pytest.raises(ConfigError, match="no runner 'rya'; did you mean 'ray'"):
        runner_of("rya")
    with pytest.raises(ConfigError, match="workers is 2, but the runner is local"):
        runner_of("local", workers=2)
    with pytest.raises(ConfigError, match="2 CPUs and 0 GPUs, too little for 3 workers on cpu"):
        list(runner_of("ray", workers=3)(parts(1), predictor))
    with pytest.raises(ConfigError, match="too little for a worker on cuda"):
        list(runner_of("ray", device="cuda")(parts(1), predictor))
    with pytest.raises(ConfigError, match="say auto, cpu or cuda"):
        list(runner_of("ray", device="cuda:1")(parts(1), predictor))


def test_the_verb_takes_a_runner(
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
