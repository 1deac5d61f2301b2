"""Each epoch has every example once, and split batches and two processes take the same steps."""

import itertools
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from finetuning_runs import FAST, tune, weights
from json_lines import read_json_lines, write_json_lines
from two_processes import in_two_processes

from albertkit.config import AlbertConfig
from albertkit.datasets.examples import ChoiceExample
from albertkit.engines.engine import Row
from albertkit.finetuning.batches import Epochs
from albertkit.finetuning.prepared import make_units
from albertkit.tasks.loading import CHUNK, RowCounts
from albertkit.tasks.multiple_choice import MultipleChoice
from albertkit.tokenization.tokenizer import AlbertTokenizer
from albertkit.training.progress import read_metrics

pytestmark = pytest.mark.usefixtures("blank_pictures")


def test_parts_of_a_batch_take_the_same_step(model: Path, data: Path, tmp_path: Path) -> None:
    settings = replace(FAST, steps=4, best_metric="f1_macro", log_every=1)
    tune("text-classification", settings, model, data, tmp_path / "whole")
    tune("text-classification", replace(settings, accumulation=3), model, data, tmp_path / "parts")
    one, two = (
        [line["train/loss"] for line in read_metrics(tmp_path / name) if "train/loss" in line]
        for name in ("whole", "parts")
    )
    assert one == pytest.approx(two, abs=1e-5)
    one, two = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    assert all(torch.allclose(one[name], two[name], atol=1e-5) for name in one)


def units(count: int, width: int = 1, seed: int = 0) -> list[list[Row]]:
    draw = random.Random(seed)
    return [
        [Row(input_ids=[1] * draw.randint(1, 40), token_type_ids=[], example=number) for _ in range(width)]
        for number in range(count)
    ]


def test_every_unit_once_an_epoch() -> None:
    mixed = [*units(75), *units(20, width=3)]
    epochs = Epochs(mixed, 8, seed=3)
    assert epochs.steps == 10 + 3
    taken = list(itertools.islice(epochs.stream(None), 2 * epochs.steps))
    orders = []
    for epoch in (0, 1):
        batches = [batch for batch, _ in taken[epoch * epochs.steps : (epoch + 1) * epochs.steps]]
        assert all(len({len(unit) for unit in batch.units}) == 1 for batch in batches)
        seen = [id(unit) for batch in batches for unit in batch.units]
        assert sorted(seen) == sorted(map(id, mixed))
        orders.append(seen)
    assert orders[0] != orders[1]
    assert taken[12][1] == {"epoch": 1, "batch": 0}


def test_the_stream_starts_anywhere() -> None:
    epochs = Epochs(units(50), 4, seed=1)
    taken = list(itertools.islice(epochs.stream(None), 30))
    for start in (0, 5, 12, 25):
        position = taken[start][1]
        again = list(itertools.islice(epochs.stream(position), 4))
        assert again == taken[start + 1 : start + 5]


def test_processes_share_each_batch() -> None:
    everything = units(50)
    alone = list(itertools.islice(Epochs(everything, 8, seed=0).stream(None), 12))
    shared = [
        list(itertools.islice(Epochs(everything, 8, seed=0, rank=rank, world_size=2).stream(None), 12))
        for rank in (0, 1)
    ]
    for (whole, _), (first, _), (second, _) in zip(alone, *shared, strict=True):
        assert sorted(map(id, whole.units)) == sorted(map(id, [*first.units, *second.units]))


def test_examples_of_several_chunks_stay_separate(model: Path) -> None:
    """The first examples of two chunks must not become a single example with four choices."""
    task = MultipleChoice().bind(AlbertTokenizer.from_pretrained(model), AlbertConfig.from_pretrained(model))
    examples = [ChoiceExample(str(n), "river", None, ("key", "house"), 0) for n in range(CHUNK + 1)]
    units = make_units(task, examples, RowCounts(task))
    assert len(task.units([*units[0], *units[CHUNK]])) == 2


def test_two_processes_have_the_losses_of_one(
    model: Path, data: Path, tmp_path: Path, warm_shell: dict[str, str]
) -> None:
    """The words of a batch are distributed unevenly over the processes."""
    for name in ("train", "validation"):
        rows = read_json_lines(data / f"{name}.jsonl")
        tags = {"painted": "B-GOOD", "lost": "B-BAD"}
        for row in rows:
            row["tokens"] = row["text"].split()
            row["ner_tags"] = [tags.get(word, "O") for word in row["tokens"]]
        write_json_lines(tmp_path / f"{name}.jsonl", rows)
    settings = replace(FAST, steps=12, log_every=1, accumulation=2, evaluate_every=None)
    tune("token-classification", settings, model, tmp_path, tmp_path / "run1")
    errors = in_two_processes(
        [
            "albertkit", "finetune", "token-classification", "--model", model, "--train",
            tmp_path / "train.jsonl", "--validation", tmp_path / "validation.jsonl", "--output",
            tmp_path / "run2", "--device", "cpu", "--precision", "fp32", "--steps", 12, "--batch-size", 8,
            "--log-every", 1, "--learning-rate", 3e-3, "--dropout", 0, "--attention-dropout", 0,
            "--classifier-dropout", 0, "--accumulation", 2,
        ],
        warm_shell,
    )  # fmt: skip
    assert errors.count("64 examples") == 1  # one process speaks
    one, two = (
        [line["train/loss"] for line in read_metrics(tmp_path / f"run{processes}") if "train/loss" in line]
        for processes in (1, 2)
    )
    assert len(one) == 12
    assert one == pytest.approx(two, abs=1e-4)
    one, two = (
        json.loads((tmp_path / f"run{processes}" / "report.json").read_text()) for processes in (1, 2)
    )
    assert one["metrics"] == pytest.approx(two["metrics"], abs=0.05)
