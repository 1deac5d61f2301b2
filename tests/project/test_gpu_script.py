"""A rehearsal of `scripts/gpu.py` on the CPU, without the libraries that a GPU machine lacks."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pages_of_books import write_books
from places import ROOT
from safetensors.torch import load_file

from albertkit.training.checkpoints import checkpoints

# What a machine with a GPU and no network lacks. Processes of workers read this file too.
ABSENT = """
import importlib.metadata
import socket
import sys

sys.modules["sentencex"] = None
distribution, connect = importlib.metadata.distribution, socket.socket.connect

def present(name):
    if name == "albertkit":
        raise importlib.metadata.PackageNotFoundError(name)
    return distribution(name)

def local(self, address):
    if isinstance(address, tuple) and address[0] not in ("127.0.0.1", "::1", "localhost"):
        raise OSError("no network")
    return connect(self, address)

importlib.metadata.distribution, socket.socket.connect = present, local
"""

# Two calls in one process, because importing PyTorch takes seconds. The second is on a fresh machine, which
# has only the state before the decay, and trains alone.
CALLS = """
import shutil, sys, tarfile
from pathlib import Path
import gpu

folder = Path(sys.argv.pop())

def call(output):
    sys.argv[1:] = ["--tiny", "--minutes", "0.1", "--shards", str(folder / "carried"),
                    "--work", str(folder / "work"), "--output", str(folder / output)]
    try:
        gpu.main()
    except SystemExit as end:
        assert not end.code, end.code

call("first")
shutil.rmtree(folder / "work")
with tarfile.open(folder / "first" / "state.0") as state:
    state.extractall(folder / "unpacked", filter="data")
shutil.copytree(folder / "unpacked", folder / "work" / "before-decay")
gpu.correctness = gpu.speed = lambda call: {}
call("second")
"""


@pytest.fixture(scope="module")
def carried(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with packed shards of a few small books."""
    folder = tmp_path_factory.mktemp("carried")
    write_books(folder)
    command = [sys.executable, ROOT / "scripts" / "carry.py", folder, "--tokens", "60000"]
    subprocess.run([*command, "--output", folder / "carried"], check=True, cwd=ROOT)
    return folder / "carried"


def test_the_call_checks_measures_trains_and_returns_its_files(carried: Path, tmp_path: Path) -> None:
    (tmp_path / "absent").mkdir()
    (tmp_path / "absent" / "sitecustomize.py").write_text(ABSENT)
    (tmp_path / "carried").symlink_to(carried)
    path = os.pathsep.join(map(str, (tmp_path / "absent", ROOT / "src", ROOT / "scripts")))
    done = subprocess.run(
        [sys.executable, "-c", CALLS, tmp_path],
        env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    report, again = (
        json.loads((tmp_path / name / "report.json").read_text()) for name in ("first", "second")
    )
    assert [*report] == ["call", "machine", "correctness", "speed", "training", "files"]
    assert report["call"]["resumed"] is False
    assert not report["correctness"]["failed"]
    assert "passed" in report["correctness"]["tests"].values()
    for name, figures in report["speed"].items():
        if name.startswith("training"):
            assert figures["tokens_per_second"] > 0
    (mixed, difference, *_) = report["speed"]["inference, against eager"]
    assert mixed["ratio"] > 0
    assert difference["value"] < 0.1
    files = {file.name for file in (tmp_path / "first").iterdir()}
    assert files == {"report.json", "log.txt", "metrics.jsonl", "model.safetensors", "state.0"}
    weights = load_file(tmp_path / "first" / "model.safetensors")
    assert weights["albert.embeddings.word_embeddings.weight"].shape == (10240, 16)

    (checkpoint,) = checkpoints(tmp_path / "unpacked")
    step = int(checkpoint.name.removeprefix("step-"))
    assert 0 < step <= report["training"]["steps"]
    assert again["call"]["resumed"] is True
    assert again["training"]["steps"] > step
    lines = [json.loads(line) for line in (tmp_path / "second" / "metrics.jsonl").read_text().splitlines()]
    steps = [line["step"] for line in lines if "tokens_per_second" in line]
    assert steps == list(range(1, len(steps) + 1))
