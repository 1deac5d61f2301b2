"""Tests that two processes train like one process: the same examples, each once, and the same losses."""

import logging
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from places import SUPPORT
from pretraining_runs import RECIPE_SIZES, write_pretraining_data
from quick_runs import quick_runs  # noqa: F401  # a fixture
from safetensors.torch import load_file
from two_processes import in_two_processes

import albertkit
from albertkit.errors import ConfigError
from albertkit.training.checkpoints import checkpoints
from albertkit.training.distributed import World, join_world
from albertkit.training.progress import read_metrics

RECIPE = f"""
batch_tokens = 1024
evaluation_sequences = 16

{RECIPE_SIZES}
[examples]
max_seq_length = 64

[training]
steps = 20
warmup_steps = 2
learning_rate = 3e-3
optimizer = "adamw"
precision = "fp32"
accumulation = 2
log_every = 1
evaluate_every = 20
save_every = 10
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, tiny_texts: list[str], tiny_vocabulary: Path) -> Path:
    folder = tmp_path_factory.mktemp("distributed")
    write_pretraining_data(folder, tiny_texts, tiny_vocabulary, holdout_every=10)
    (folder / "recipe.toml").write_text(RECIPE)
    return folder


def pretrain(data: Path, output: Path, *options: object, shell: dict[str, str]) -> str:
    """Pretrain in two processes, and return their output."""
    command = [
        "albertkit", "pretrain", "--recipe", data / "recipe.toml", "--data", data / "shards",
        "--tokenizer", data / "tokenizer", "--output", output, "--device", "cpu", *options,
    ]  # fmt: skip
    return in_two_processes(command, shell)


def pretrain_alone(data: Path, output: Path, **settings: Any) -> None:
    places = {"data": data / "shards", "tokenizer": data / "tokenizer", "output": output}
    albertkit.pretrain(data / "recipe.toml", **places, device="cpu", **settings)


def figures(output: Path, name: str) -> list[float]:
    return [line[name] for line in read_metrics(output) if name in line]


def test_two_processes_have_the_losses_of_one(data: Path, tmp_path: Path, warm_shell: dict[str, str]) -> None:
    pretrain_alone(data, tmp_path / "one")
    said = pretrain(data, tmp_path / "two", "--max-minutes", "1e-9", shell=warm_shell)
    assert "2 processes" in said
    assert said.count("stopped at step 1 after") == 1  # one process speaks
    assert [folder.name for folder in checkpoints(tmp_path / "two")] == ["step-0000000", "step-0000001"]
    said = pretrain(data, tmp_path / "two", shell=warm_shell)
    assert "resuming from step-0000001" in said
    for name in ("train/masked_loss", "train/order_loss", "eval/masked_loss", "grad_norm"):
        one, two = figures(tmp_path / "one", name), figures(tmp_path / "two", name)
        assert len(one) >= 2
        assert two == pytest.approx(one, abs=1e-4), name
    # Every token once: both count those of all processes.
    assert figures(tmp_path / "two", "tokens") == figures(tmp_path / "one", "tokens")
    weights = [load_file(tmp_path / name / "model.safetensors") for name in ("one", "two")]
    assert all((weights[0][key] - weights[1][key]).abs().max() < 1e-4 for key in weights[0])


def test_processes_with_one_objective_and_muon(
    data: Path, tmp_path: Path, warm_shell: dict[str, str]
) -> None:
    """The head of the other objective gets no gradient in any process."""
    pretrain_alone(data, tmp_path / "one", sentence_order=False, optimizer="muon", steps=4)
    options = ("--no-sentence-order", "--optimizer", "muon", "--steps", 4)
    said = pretrain(data, tmp_path / "two", *options, shell=warm_shell)
    assert "finished at step 4" in said
    one, two = (figures(tmp_path / name, "train/masked_loss") for name in ("one", "two"))
    assert one[0] - one[-1] > 0.05
    assert two == pytest.approx(one, abs=5e-3)


def test_an_incomplete_environment_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(ConfigError, match="WORLD_SIZE=2, but not LOCAL_RANK, MASTER_ADDR, MASTER_PORT"):
        join_world("cpu").__enter__()


def test_processes_end_only_after_the_main_process(tmp_path: Path, warm_shell: dict[str, str]) -> None:
    """When one exits with an error, such as after SIGTERM, `torchrun` ends the others."""
    program, written = tmp_path / "program.py", tmp_path / "written"
    program.write_text(f"""
import time
from pathlib import Path
from albertkit.training.distributed import join_world

written = Path({str(written)!r})
with join_world("cpu") as world:
    if world.is_main:
        time.sleep(0.5)
        written.touch()
assert written.exists()
""")
    in_two_processes(["python", program], warm_shell)


def test_a_sum_returns_when_nobody_else_holds_its_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread of gloo that lets go of a tensor only when the interpreter ends takes the process with it."""
    released = []

    def all_reduce(values: torch.Tensor) -> None:
        holder = [torch.ones(4, requires_grad=True) * values]  # its graph keeps `values`

        def release() -> None:
            released.append(values.tolist())
            holder.clear()

        threading.Timer(0.2, release).start()

    monkeypatch.setattr("albertkit.training.distributed.dist.all_reduce", all_reduce)
    found = World(torch.device("cpu"), rank=0, size=2).sum(torch.full((4,), 2.0))
    assert released == [[2.0] * 4]
    assert found.tolist() == [2.0] * 4


SLOW_EVALUATION = """
import sys, time
from datetime import timedelta
from pathlib import Path
import torch.distributed.distributed_c10d as c10d
c10d.default_pg_timeout = timedelta(seconds=1)  # of gloo; its own is 30 minutes, and that of NCCL 10
sys.path.insert(0, {support!r})
import training_runs as t
from albertkit.training.distributed import join_world
from albertkit.training.loop import Training
with join_world("cpu") as world:
    model = t.tiny_model()
    Training(
        model, t.objective, t.batches, t.settings(steps=2, warmup_steps=0), Path({output!r}),
        save_model=model.save_pretrained, evaluate=lambda: time.sleep(2) or {{}}, world=world,
    ).run()
"""


def test_the_others_wait_for_an_evaluation_however_long_it_takes(
    tmp_path: Path, warm_shell: dict[str, str]
) -> None:
    program = tmp_path / "program.py"
    program.write_text(SLOW_EVALUATION.format(support=str(SUPPORT), output=str(tmp_path / "run")))
    in_two_processes(["python", program], warm_shell)
    assert [folder.name for folder in checkpoints(tmp_path / "run")] == ["step-0000000", "step-0000002"]


EARLY_STOPPING = """
import sys
from pathlib import Path
sys.path.insert(0, {support!r})
import training_runs as t
from albertkit.training.distributed import join_world
from albertkit.training.loop import Training
values = iter([0.1, 0.5, 0.4, 0.3])
with join_world("cpu") as world:
    model = t.tiny_model()
    result = Training(
        model, t.objective, t.batches, t.settings(evaluate_every=2, early_stopping=2), Path({output!r}),
        save_model=model.save_pretrained, evaluate=lambda: {{"accuracy": next(values)}},
        best_metric="accuracy", world=world,
    ).run()
    Path({output!r}, f"ended-{{world.rank}}.txt").write_text(f"{{result.finished}} at {{result.step}}")
"""


def test_early_stopping_finishes_the_run_in_all_processes(tmp_path: Path, warm_shell: dict[str, str]) -> None:
    """Otherwise the main process of `finetune` would wait for the others, which have returned."""
    program = tmp_path / "program.py"
    program.write_text(EARLY_STOPPING.format(support=str(SUPPORT), output=str(tmp_path / "run")))
    in_two_processes(["python", program], warm_shell)
    assert [(tmp_path / "run" / f"ended-{rank}.txt").read_text() for rank in (0, 1)] == ["True at 6"] * 2


@pytest.mark.parametrize(("rank", "said"), [(0, ["a warning", "an error"]), (1, ["an error"])])
def test_only_the_main_process_logs_warnings(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, rank: int, said: list[str]
) -> None:
    environment = {"WORLD_SIZE": "2", "RANK": str(rank), "LOCAL_RANK": str(rank)}
    for name, value in (environment | {"MASTER_ADDR": "localhost", "MASTER_PORT": "1"}).items():
        monkeypatch.setenv(name, value)
    for name in ("init_process_group", "barrier", "destroy_process_group"):
        monkeypatch.setattr(torch.distributed, name, lambda *_, **__: None)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: rank)
    logger = logging.getLogger("albertkit.training")
    with join_world("cpu"):
        logger.warning("a warning")
        logger.error("an error")
    assert caplog.messages == said
