"""Tests that commands without PyTorch have the answers of the same commands with the engine `torch`."""

import csv
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from answers import assert_close
from command_line import Run
from pyarrow import parquet
from torchless import run_without_torch

from albertkit.finetuning.predict import model_sha256
from albertkit.finetuning.trained import load_task
from albertkit.modeling import auto
from albertkit.tasks.settings import TaskSettings

HEADS = {
    "AlbertForPreTraining": {},
    "AlbertForSequenceClassification": {"id2label": {0: "bad", 1: "fair", 2: "good"}},
    "AlbertForTokenClassification": {"id2label": {0: "O", 1: "B-PER", 2: "I-PER"}},
    "AlbertForQuestionAnswering": {},
    "AlbertForMultipleChoice": {},
    "AlbertModel": {},
}
LABELED = {
    "text-classification": "AlbertForSequenceClassification",
    "token-classification": "AlbertForTokenClassification",
    "question-answering": "AlbertForQuestionAnswering",
    "multiple-choice": "AlbertForMultipleChoice",
    "sentence-embedding": "AlbertModel",
}
TEXT = "the captain opened the harbour"
LONG = " ".join([TEXT] * 20)

# Each command is a process's own in all but name: what it prints, or the status and the line of an error.
RUN_ALL = """
import contextlib, io, json
from albertkit.cli import main

results = []
for command in json.loads(sys.argv[1]):
    sys.argv = ["albertkit", *command]
    status, printed, errors = None, io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
        try:
            main.run()
        except SystemExit as exit_:
            status = exit_.code
    results.append([status, printed.getvalue(), errors.getvalue()])
assert "torch" not in sys.modules
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def models(save_model: Callable[..., Path]) -> dict[str, Path]:
    """Return the folder of a random model of each class."""
    folders = {}
    for number, (name, settings) in enumerate(HEADS.items()):
        sizes = {"num_hidden_layers": 4, "num_hidden_groups": 1 + number % 2}
        folders[name] = save_model(getattr(auto, name), seed=number, **sizes, **settings)
    return folders


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """Files to predict for, by the task: every format that each has."""
    folder = tmp_path_factory.mktemp("inputs")
    squad = {"id": "a", "question": "who opened it", "answers": []}
    article = {"title": "", "paragraphs": [{"context": LONG, "qas": [squad]}]}
    race = {"article": TEXT, "questions": ["who"], "options": [["the captain", "she", "he", "they"]]}
    choices = {"sent1": TEXT, "sent2": "she"} | {f"ending{number}": f"saw {number}" for number in range(4)}
    written = {
        "text-classification": {
            "texts.csv": f"text\n{TEXT}\n{LONG}\n",
            "texts.tsv": f"text\n{TEXT}\n",
            "texts.jsonl": f"{json.dumps({'text': TEXT, 'id': 'a'})}\n",
        },
        "token-classification": {
            "words.conll": "the\nharbour\n\nmy\nsister\n",
            "words.jsonl": json.dumps({"tokens": LONG.split()}) + "\n",
        },
        "question-answering": {
            "squad.json": json.dumps({"version": "v2.0", "data": [article]}),
            "questions.jsonl": json.dumps({"question": "who", "context": TEXT}) + "\n",
        },
        "multiple-choice": {
            "race/1.txt": json.dumps({"id": "1.txt", "answers": ["A"], **race}),
            "choices.jsonl": json.dumps(choices) + "\n",
        },
        "sentence-embedding": {
            "pairs.tsv": f"sentence1\tsentence2\n{TEXT}\tmy sister\n",
            "texts.jsonl": json.dumps({"text": LONG}) + "\n",
        },
    }
    for task, files in written.items():
        for name, text in files.items():
            (folder / task / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / task / name).write_text(text)
    return {task: sorted(path for path in (folder / task).iterdir()) for task in written}


def without_torch(commands: Iterable[Iterable[Any]]) -> list[tuple[int | None, str, str]]:
    """Return the status, the output and the errors of each command, all in one process."""
    given = [[*map(str, command)] for command in commands]
    return [tuple(one) for one in json.loads(run_without_torch(RUN_ALL, json.dumps(given)))]


def read(file: Path) -> list[dict[str, Any]]:
    if file.suffix == ".parquet":
        return parquet.read_table(file).to_pylist()
    text = file.read_text()
    if file.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    rows = csv.DictReader(text.splitlines(), delimiter="\t" if file.suffix == ".tsv" else ",")
    return [{name: _value(cell) for name, cell in row.items()} for row in rows]


def _value(cell: str) -> Any:
    try:
        return json.loads(cell)
    except json.JSONDecodeError:
        return cell


def test_predict(models: dict[str, Path], inputs: dict[str, list[Path]], tmp_path: Path, run: Run) -> None:
    commands, outputs = [], []
    for task, files in inputs.items():
        for number, file in enumerate(files):
            suffix = (".jsonl", ".csv", ".parquet" if task == "text-classification" else ".tsv")[number]
            command = ["predict", "--task", task, "--model", models[LABELED[task]], "--input", file]
            outputs.append((tmp_path / f"{task}{number}{suffix}", command))
            commands.append([*command, "--output", outputs[-1][0]])
    for status, _, errors in without_torch(commands):
        assert status == 0, errors
    for output, command in outputs:
        again = output.with_name(f"torch-{output.name}")
        result = run(*command, "--output", again, "--engine", "torch", "--device", "cpu")
        assert result.status == 0, result.errors
        assert_close(read(output), read(again))
        assert read(output)


def test_commands_that_need_torch_are_an_error(
    models: dict[str, Path], inputs: dict[str, list[Path]], tmp_path: Path
) -> None:
    model = models["AlbertForSequenceClassification"]
    predict = ["predict", "--task", "text-classification", "--model", model, "--input"]
    predict += [inputs["text-classification"][0], "--output", tmp_path / "out.jsonl"]
    for status, printed, errors in without_torch(
        [
            ["classify", TEXT, "--model", model, "--engine", "torch"],
            ["classify", TEXT, "--model", model, "--device", "cuda"],
            [*predict, "--engine", "plain"],
            [*predict, "--device", "cuda"],
        ]
    ):
        assert status == 1
        assert printed == ""
        assert errors == "error: torch is not installed. To install it: pip install 'albertkit[torch]'\n"
    assert list(tmp_path.iterdir()) == []


def test_other_errors_come_before_missing_libraries(models: dict[str, Path]) -> None:
    model = models["AlbertForSequenceClassification"]
    classify = ["classify", TEXT, "--model", model, "--device"]
    wrong, no_gpu = without_torch([[*classify, "gpu"], [*classify, "0"]])
    assert wrong[0] == 1
    assert "there is no device 'gpu'" in wrong[2]
    assert "pip install" not in wrong[2]
    assert no_gpu[0] == 0
    assert "this machine has no GPU: using the CPU" in no_gpu[2]


@pytest.mark.parametrize("task", LABELED)
def test_a_model_has_one_hash(task: str, models: dict[str, Path]) -> None:
    """A machine with PyTorch can resume the work of a machine without it."""
    _, light = load_task(task, models[LABELED[task]], TaskSettings())
    module = getattr(auto, LABELED[task]).from_pretrained(models[LABELED[task]])
    assert model_sha256(light, light.config) == model_sha256(module, module.config)
    with torch.no_grad():
        next(module.parameters())[0, 0] += 1
    assert model_sha256(light, light.config) != model_sha256(module, module.config)
