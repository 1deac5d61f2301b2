"""The loop: exact resume, clean endings, refused resumes, nothing half-written."""

import json
import math
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from albertkit.config import AlbertConfig
from albertkit.errors import TrainingError
from albertkit.modeling.pretraining_heads import AlbertForMaskedLM
from albertkit.training.curves import read_metrics
from albertkit.training.loop import StepOutput, train
from albertkit.training.settings import TrainingSettings
from albertkit.training.state import checkpoint_folder, checkpoints


def tiny_model(dropout: float = 0.1) -> AlbertForMaskedLM:
    torch.manual_seed(1)
    config = AlbertConfig(
        vocab_size=40,
        embedding_size=8,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
        hidden_dropout_prob=dropout,
    )
    return AlbertForMaskedLM(config)


def objective(model: nn.Module, ids: torch.Tensor) -> StepOutput:
    loss = model(input_ids=ids, labels=ids).loss
    return StepOutput(loss=loss, sums={"loss": (loss * ids.numel(), ids.numel())}, tokens=ids.numel())


def batches(position: dict[str, int] | None) -> Iterator[tuple[torch.Tensor, dict[str, int]]]:
    step = position["step"] if position else 0
    while True:
        generator = torch.Generator().manual_seed(step)
        step += 1
        yield torch.randint(5, 40, (4, 8), generator=generator), {"step": step}


def settings(**changes: Any) -> TrainingSettings:
    defaults: dict[str, Any] = {
        "steps": 12,
        "learning_rate": 0.01,
        "warmup_steps": 3,
        "save_every": 4,
        "evaluate_every": 6,
        "log_every": 2,
    }
    return TrainingSettings(**defaults | changes)


def run(output: Path, changed: TrainingSettings, fingerprint: dict[str, Any] | None = None) -> Any:
    model = tiny_model()
    return train(
        model,
        objective,
        batches,
        changed,
        output,
        save_model=model.save_pretrained,
        evaluate=lambda: {"loss": float(objective(model, next(batches(None))[0]).loss)},
        fingerprint=fingerprint,
    )


@pytest.mark.parametrize("optimizer", ["lamb", "adamw", "adamw-corrected"])
def test_interrupted_run_is_bitwise_the_uninterrupted_one(tmp_path: Path, optimizer: str) -> None:
    run(tmp_path / "whole", settings(optimizer=optimizer))
    first = run(tmp_path / "pieces", settings(optimizer=optimizer, max_minutes=1e-9))
    assert (first.finished, first.state.step) == (False, 1)
    second = run(tmp_path / "pieces", settings(optimizer=optimizer))
    assert (second.finished, second.state.step, second.state.tokens) == (True, 12, 12 * 32)
    for name in ("model.safetensors", "training_state.safetensors"):
        whole = load_file(checkpoint_folder(tmp_path / "whole", 12) / name)
        pieces = load_file(checkpoint_folder(tmp_path / "pieces", 12) / name)
        assert whole.keys() == pieces.keys()
        assert all(torch.equal(whole[key], pieces[key]) for key in whole), name


SLOW_RUN = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
import test_training as t
original = t.objective
def slow(model, ids):
    time.sleep(0.05)
    return original(model, ids)
t.objective = slow
t.run(Path({output!r}), t.settings(steps=40))
"""


def test_killed_run_goes_on_from_its_checkpoint_bitwise(tmp_path: Path) -> None:
    run(tmp_path / "whole", settings(steps=40))
    command = [
        sys.executable,
        "-c",
        SLOW_RUN.format(tests=str(Path(__file__).parent), output=str(tmp_path / "killed")),
    ]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    metrics = tmp_path / "killed" / "metrics.jsonl"
    deadline = time.monotonic() + 60
    while not (metrics.exists() and '"step": 10,' in metrics.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()  # SIGKILL, somewhere after step 10
    process.wait()
    saved = [int(folder.name.split("-")[1]) for folder in checkpoints(tmp_path / "killed")]
    assert saved
    assert saved[-1] < 40
    run(tmp_path / "killed", settings(steps=40))
    whole = load_file(tmp_path / "whole" / "model.safetensors")
    killed = load_file(tmp_path / "killed" / "model.safetensors")
    assert all(torch.equal(whole[key], killed[key]) for key in whole)
    losses = [
        {line["step"]: line["train/loss"] for line in read_metrics(tmp_path / name) if "train/loss" in line}
        for name in ("whole", "killed")
    ]
    assert losses[0] == losses[1]


def test_sigterm_writes_a_checkpoint_and_ends(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-c",
        SLOW_RUN.format(tests=str(Path(__file__).parent), output=str(tmp_path)),
    ]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    metrics = tmp_path / "metrics.jsonl"
    deadline = time.monotonic() + 60
    while not (metrics.exists() and '"step": 2,' in metrics.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 0
    last = read_metrics(tmp_path)[-1]["step"]
    assert last < 40
    assert checkpoints(tmp_path)[-1] == checkpoint_folder(tmp_path, int(last))


def test_every_checkpoint_is_a_model_folder_and_the_last_ones_are_kept(tmp_path: Path) -> None:
    run(tmp_path, settings(steps=12, save_every=2, keep_checkpoints=2))
    assert [folder.name for folder in checkpoints(tmp_path)] == ["step-0000010", "step-0000012"]
    for folder in checkpoints(tmp_path):
        assert AlbertForMaskedLM.from_pretrained(folder).config.hidden_size == 16
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("changes", "fingerprint", "named"),
    [
        ({"seed": 5}, {}, "seed: saved 0, now 5"),
        ({"learning_rate": 0.02}, {}, "learning_rate: saved 0.01, now 0.02"),
        ({"steps": 20}, {}, "steps: saved 12, now 20"),
        ({}, {"data": "other"}, "data: saved 'books', now 'other'"),
    ],
)
def test_resume_with_other_settings_is_refused(
    tmp_path: Path, changes: dict[str, Any], fingerprint: dict[str, Any], named: str
) -> None:
    run(tmp_path, settings(max_minutes=1e-9), {"data": "books"})
    with pytest.raises(TrainingError, match=named):
        run(tmp_path, settings(**changes), {"data": "books"} | fingerprint)


def test_trapezoid_takes_more_steps_until_its_decay_begins(tmp_path: Path) -> None:
    trapezoid = {
        "schedule": "trapezoid",
        "warmup_steps": 2,
        "decay_steps": 4,
        "save_every": 1,
        "keep_checkpoints": 99,
    }
    run(tmp_path / "long", settings(**trapezoid, steps=16))
    run(tmp_path / "grown", settings(**trapezoid, steps=12, max_minutes=1e-9))
    run(tmp_path / "grown", settings(**trapezoid, steps=16))
    long, grown = (load_file(tmp_path / name / "model.safetensors") for name in ("long", "grown"))
    assert all(torch.equal(long[key], grown[key]) for key in long)
    with pytest.raises(TrainingError, match="the decay had begun"):
        run(tmp_path / "long", settings(**trapezoid, steps=18))


def test_a_loss_that_is_no_number_stops_the_run(tmp_path: Path) -> None:
    model = tiny_model()

    def broken(model: nn.Module, ids: torch.Tensor) -> StepOutput:
        result = objective(model, ids)
        return StepOutput(loss=result.loss * math.nan, sums=result.sums, tokens=result.tokens)

    with pytest.raises(TrainingError, match="step 1 are not finite"):
        train(model, broken, batches, settings(), tmp_path, save_model=model.save_pretrained)
    assert not checkpoints(tmp_path)


def test_metrics_are_averages_over_the_steps_between(tmp_path: Path) -> None:
    run(tmp_path, settings(log_every=1))
    each = [line["train/loss"] for line in read_metrics(tmp_path) if "train/loss" in line]
    run(tmp_path / "pairs", settings(log_every=2))
    pairs = [line["train/loss"] for line in read_metrics(tmp_path / "pairs") if "train/loss" in line]
    assert len(each) == 12
    assert pairs == pytest.approx([(a + b) / 2 for a, b in zip(each[::2], each[1::2], strict=True)], abs=1e-5)
    rates = [
        json.loads(line)["learning_rate"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()
    ]
    assert rates[0] == pytest.approx(0.01 / 3)


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    run(tmp_path, settings())
    state = checkpoint_folder(tmp_path, 12) / "training_state.safetensors"
    state.write_bytes(state.read_bytes()[:100])
    with pytest.raises(TrainingError, match=r"step-0000012 is damaged .* Delete it"):
        run(tmp_path, settings())


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_text("precious")
    with pytest.raises(TrainingError, match=r"holds model\.safetensors, and no checkpoint of a run"):
        run(tmp_path, settings())
    assert (tmp_path / "model.safetensors").read_text() == "precious"
