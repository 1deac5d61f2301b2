"""Options that save memory or time do not change the result, and metrics and speed are logged."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from places import SUPPORT
from quick_runs import quick_runs  # noqa: F401  # a fixture
from safetensors.torch import load_file
from training_runs import batches, objective, run, settings, tiny_model

from albertkit.errors import ConfigError
from albertkit.training import loop, throughput
from albertkit.training.loop import Training
from albertkit.training.progress import read_metrics


def test_any_seed_will_do(tmp_path: Path) -> None:
    assert run(tmp_path, settings(steps=3, warmup_steps=1, seed=2**63)).finished


@pytest.mark.parametrize(
    ("changes", "optimizer", "tolerance"),
    [
        ({"accumulation": 3}, "lamb", 1e-6),
        ({"gradient_checkpointing": True}, "lamb", 1e-6),
        ({"accumulation": 3}, "muon", 1e-5),
    ],
)
def test_less_memory_is_the_same_run(
    tmp_path: Path, changes: dict[str, Any], optimizer: str, tolerance: float
) -> None:
    run(tmp_path / "plain", settings(optimizer=optimizer), dropout=0.0)
    run(tmp_path / "less", settings(optimizer=optimizer, **changes), dropout=0.0)
    plain, less = (load_file(tmp_path / name / "model.safetensors") for name in ("plain", "less"))
    assert all(torch.allclose(plain[key], less[key], atol=tolerance) for key in plain)
    losses = [
        [line.get("train/loss") for line in read_metrics(tmp_path / name)] for name in ("plain", "less")
    ]
    assert losses[0] == pytest.approx(losses[1], abs=10 * tolerance, nan_ok=True)


def test_runs_counted_in_tokens_and_in_steps_are_equal(tmp_path: Path) -> None:
    run(tmp_path / "steps", settings())
    in_tokens = {"steps": None, "warmup_steps": 0, "tokens": 12 * 32, "warmup_tokens": 3 * 32}
    result = run(tmp_path / "tokens", settings(**in_tokens))
    assert (result.finished, result.step, result.tokens) == (True, 12, 12 * 32)
    steps, tokens = (load_file(tmp_path / name / "model.safetensors") for name in ("steps", "tokens"))
    assert all(torch.equal(steps[key], tokens[key]) for key in steps)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": 5}, "steps is 12 and tokens is 5. Set exactly one of them"),
        ({"steps": None}, "steps is None and tokens is None"),
        ({"warmup_tokens": 5}, "warmup_tokens is set, but the length of the run is in steps"),
        (
            {"warmup_steps": 13},
            r"warmup_steps \(13\) and decay_steps \(\d+\) together are longer than the run",
        ),
        ({"accumulation": 0}, "accumulation must be 1 or more, not 0"),
        ({"spike": 0.0}, "spike must be more than 0"),
        ({"decay_steps": 2}, "decay_steps is for the schedule 'trapezoid'"),
    ],
)
def test_invalid_settings_are_an_error(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings(**changes)


def test_tensorboard_has_the_figures(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run(tmp_path, settings())
    board = EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    shown = {event.step: event.value for event in board.Scalars("train/loss")}
    lines = {line["step"]: line["train/loss"] for line in read_metrics(tmp_path) if "train/loss" in line}
    assert shown == pytest.approx(lines, abs=1e-5)
    assert {"tokens_per_second", "memory_gb", "minutes_left", "learning_rate"} <= set(board.Tags()["scalars"])


def test_a_run_imports_neither_tensorflow_nor_the_compiler(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    for name in ("tensorflow", "sympy"):  # the second is of the compiler
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name} was imported')")
    program.write_text(
        f"import sys; sys.path.append({str(SUPPORT)!r})\n"
        "from pathlib import Path\n"
        "import training_runs as t\n"
        f"t.run(Path({str(tmp_path / 'run')!r}), t.settings(steps=1, warmup_steps=0, optimizer='adamw'))"
    )
    done = subprocess.run([sys.executable, program], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.slow
def test_a_compiled_run_has_the_losses_of_a_plain_run(tmp_path: Path) -> None:
    run(tmp_path / "plain", settings(), dropout=0.0)
    run(tmp_path / "compiled", settings(compile=True), dropout=0.0)
    plain, compiled = (load_file(tmp_path / name / "model.safetensors") for name in ("plain", "compiled"))
    assert all(torch.allclose(plain[key], compiled[key], atol=1e-5) for key in plain)


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
    assert rates[:2] == pytest.approx([0.0, 0.01 / 3])


@pytest.mark.parametrize(
    ("has_instructions", "bf16", "expected"), [(True, 2e11, True), (True, 8e10, False), (False, 2e11, False)]
)
def test_bf16_is_chosen_if_it_is_faster(
    has_instructions: bool, bf16: float, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some CPUs have instructions for bf16, but multiply faster in fp32."""
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: has_instructions)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    measured = {torch.bfloat16: bf16, torch.float32: 1.5e11}
    monkeypatch.setattr(throughput, "measured_flops", lambda device, dtype, sizes: measured[dtype])
    assert throughput.computes_in_bf16.__wrapped__(torch.device("cpu")) is expected


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_evaluation_computes_in_the_precision_of_the_run(tmp_path: Path, precision: str) -> None:
    model, seen = tiny_model(), set()

    def evaluate() -> dict[str, float]:
        seen.add(model(input_ids=next(batches(None))[0].ids).logits.dtype)
        return {}

    Training(
        model, objective, batches, settings(precision=precision), tmp_path,
        save_model=model.save_pretrained, evaluate=evaluate,
    ).run()  # fmt: skip
    assert seen == {{"fp32": torch.float32, "bf16": torch.bfloat16}[precision]}


@pytest.mark.parametrize(
    ("name", "stated"),
    [
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA L4", 121e12),
        ("NVIDIA L40", None),
        ("NVIDIA H100 PCIe", None),
    ],
)
def test_the_peak_of_a_gpu_is_stated_or_measured(
    monkeypatch: pytest.MonkeyPatch, name: str, stated: float | None
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: name)
    monkeypatch.setattr(throughput, "measured_flops", lambda *_: 7.0)
    assert throughput.peak_flops(torch.device("cuda"), torch.bfloat16) == (stated or 7.0)


def test_minutes_left_follow_the_speed_of_this_process(tmp_path: Path) -> None:
    """The time before a resume must not count, because it may come from another machine."""
    run(tmp_path, settings(steps=4, schedule="trapezoid"))
    file = tmp_path / "checkpoints" / "step-0000004" / "training_state.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"seconds": 60_000.0}))
    run(tmp_path, settings(steps=8, schedule="trapezoid", log_every=1))
    line = next(line for line in read_metrics(tmp_path) if line["step"] == 5 and "minutes_left" in line)
    assert line["seconds"] >= 60_000
    assert 0 < line["minutes_left"] < 10


def test_a_run_keeps_freed_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, steps are a fifth slower: dev/lab-notes.md, 2026-11-24."""
    called: list[None] = []
    monkeypatch.setattr(loop, "keep_freed_memory", lambda: called.append(None))
    run(tmp_path / "run", settings())
    assert len(called) == 1
