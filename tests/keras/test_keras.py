"""Tests of the Keras classes, in a process for each backend, because Keras chooses it at import."""

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

CHECKS = {"tensorflow": 43, "jax": 14}
"""Backend -> the number of its checks."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[subprocess.Popen, Path]]]:
    """Both at once, each with its report."""
    saved, pickled = tmp_path_factory.mktemp("saved"), tmp_path_factory.mktemp("pickled")
    model = make("AlbertForSequenceClassification", num_hidden_layers=1, classifier_dropout_prob=0)
    model.save_pretrained(saved)
    model.config.save_pretrained(pickled)
    torch.save(model.state_dict(), pickled / "pytorch_model.bin")
    started = {}
    for backend in CHECKS:
        if all(importlib.util.find_spec(library) for library in ("keras", backend)):
            folder = tmp_path_factory.mktemp(backend)
            started[backend] = start(backend, folder, saved, pickled), folder / "report.xml"
    yield started
    for process, _ in started.values():
        process.kill()


def start(backend: str, folder: Path, saved: Path, pickled: Path) -> subprocess.Popen:
    command = [sys.executable, str(SUPPORT / "keras_process.py"), str(saved), str(pickled), f"{folder}/out"]
    environment = os.environ | {
        "KERAS_BACKEND": backend,
        "KERAS_HOME": str(folder),  # no settings of whoever runs this
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "",
        "JAX_PLATFORMS": "cpu",
        "OMP_NUM_THREADS": "1",
        # The models are tiny; what takes time is compiling them well.
        "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
        "--xla_cpu_use_fusion_emitters=false",
    }
    options = ["--noconftest", "-p", "no:cacheprovider", "--tb=short"]
    return subprocess.Popen(
        [*command, *options, f"--junitxml={folder}/report.xml", f"--basetemp={folder}/files"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize("backend", CHECKS)
def test_the_checks_hold(backend: str, runs: dict[str, tuple[subprocess.Popen, Path]]) -> None:
    if backend not in runs:
        pytest.skip(f"keras or {backend} is not installed: pip install 'albertkit[test]'")
    process, report = runs[backend]
    output, _ = process.communicate(timeout=1500)
    assert process.returncode == 0, output[-20_000:]
    (suite,) = ElementTree.parse(report).getroot()
    assert int(suite.attrib["tests"]) >= CHECKS[backend]
    assert [suite.attrib[name] for name in ("errors", "failures", "skipped")] == ["0", "0", "0"]
