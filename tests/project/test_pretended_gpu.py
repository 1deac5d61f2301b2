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
COVERED = "all_engines or (without_padding and MaskedLM) or (resume_exactly and muon)"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with the pretended GPU."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "dev" / "pretended_gpu")}
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def test_the_gpu_tests_pass() -> None:
    result = run("-m", "pytest", "tests/gpu", "-p", "no:xdist", "-p", "no:cacheprovider", "-k", COVERED)
    assert result.returncode == 0, result.stdout
    assert "5 passed" in result.stdout


def test_it_computes_and_refuses_what_a_gpu_refuses() -> None:
    code = """
import torch

def refused(operation, *arguments):
    try:
        operation(*arguments)
    except (RuntimeError, TypeError):
        return True

there = torch.arange(4.0, device="cuda", requires_grad=True)
here = torch.arange(4.0)
(there[[1, 3]] ** 2 + torch.tensor(1.0)).sum().backward()
print(there.grad.device, there.grad.tolist(), (there.cpu() + 1).tolist())
print(refused(torch.add, there, here), refused(here.add_, there.detach()), refused(there.detach().numpy))
print(refused(torch.nn.Linear(4, 2).to("cuda"), here), refused(lambda: here[there.detach().long()]))
"""
    assert run("-c", code).stdout.splitlines() == [
        "cuda:0 [0.0, 2.0, 0.0, 6.0] [1.0, 2.0, 3.0, 4.0]",
        "True True True",
        "True True",
    ]
