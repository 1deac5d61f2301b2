"""Tests on the pretended GPU of `dev/pretended_gpu`: no operation of the library mixes devices."""

import os
import shutil
import subprocess
import sys

import pytest
import torch
from places import ROOT

pytestmark = [
    pytest.mark.skipif(torch.version.cuda is not None, reason="needs PyTorch's build for the CPU"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++"),
]
COVERED = "pretended or all_engines or (without_padding and MaskedLM) or (resume_exactly and muon)"


def test_the_gpu_tests_and_the_checks_of_the_device_pass() -> None:
    command = [sys.executable, "-m", "pytest", "tests/gpu", "tests/support/pretended_gpu_checks.py"]
    command += ["-p", "no:xdist", "-p", "no:cacheprovider", "-k", COVERED]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "dev" / "pretended_gpu")}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
    assert "7 passed" in result.stdout
