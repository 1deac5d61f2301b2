"""The classes of Keras, on each backend: it is chosen at import, so each has a process of its own."""

import importlib.util
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from modeling_twins import make
from places import SUPPORT
from torchless import run_without_torch

CHECKS = SUPPORT / "keras_checks.py"
BACKENDS = ("tensorflow", "jax")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[subprocess.Popen, Path]]]:
    """Both at once, each with its report."""
    started = {}
    for backend in BACKENDS:
        if all(importlib.util.find_spec(library) for library in ("keras", backend)):
            folder = tmp_path_factory.mktemp(backend)
            started[backend] = start(backend, folder), folder / "report.xml"
    yield started
    for process, _ in started.values():
        process.kill()


def environment_of(backend: str, folder: Path) -> dict[str, str]:
    return os.environ | {
        "KERAS_BACKEND": backend,
        "KERAS_HOME": str(folder),  # no settings of whoever runs this
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "",
        "JAX_PLATFORMS": "cpu",
        "OMP_NUM_THREADS": "1",
        # The models are tiny; what takes time is compiling them well.
        "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
        "--xla_cpu_use_fusion_emitters=false",
    }


def start(backend: str, folder: Path) -> subprocess.Popen:
    command = [sys.executable, "-m", "pytest", str(CHECKS), "-p", "no:cacheprovider", "--tb=short"]
    return subprocess.Popen(
        [*command, f"--junitxml={folder}/report.xml", f"--basetemp={folder}/files"],
        env=environment_of(backend, folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_checks_hold(backend: str, runs: dict[str, tuple[subprocess.Popen, Path]]) -> None:
    if backend not in runs:
        pytest.skip(f"keras or {backend} is not installed: pip install 'albertkit[test]'")
    process, report = runs[backend]
    output, _ = process.communicate(timeout=1500)
    assert process.returncode == 0, output[-20_000:]
    (suite,) = ElementTree.parse(report).getroot()
    assert int(suite.attrib["tests"]) >= 35
    assert [suite.attrib[name] for name in ("errors", "failures", "skipped")] == ["0", "0", "0"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_torch(backend: str, tmp_path: Path) -> None:
    """Load, compute, train, save and load again; PyTorch's own files name the extra."""
    for library in ("keras", backend):
        pytest.importorskip(library, reason="needs Keras and its backends: pip install 'albertkit[test]'")
    model = make("AlbertForSequenceClassification", num_hidden_layers=1, hidden_act="gelu")
    model.save_pretrained(tmp_path / "saved")
    model.config.save_pretrained(tmp_path / "pickled")
    torch.save(model.state_dict(), tmp_path / "pickled" / "pytorch_model.bin")
    folders = (tmp_path / "saved", tmp_path / "pickled", tmp_path / "out")
    code = CHECKS.with_name("keras_without_torch.py").read_text()
    output = run_without_torch(code, *folders, environment=environment_of(backend, tmp_path))
    assert output.startswith(f"{backend} and ")
    assert "pip install 'albertkit[torch]'" in output
