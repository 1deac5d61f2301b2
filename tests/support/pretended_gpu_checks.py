"""Checks of the pretended GPU, which `tests/project/test_pretended_gpu.py` runs in a process that has it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch


def test_it_computes() -> None:
    there = torch.arange(4.0, device="cuda", requires_grad=True)
    (there[[1, 3]] ** 2 + torch.tensor(1.0)).sum().backward()
    assert str(there.grad.device) == "cuda:0"
    assert there.grad.tolist() == [0, 2, 0, 6]
    assert (there.cpu() + 1).tolist() == [1, 2, 3, 4]


def test_it_refuses_what_a_gpu_refuses() -> None:
    here, there = torch.arange(4.0), torch.arange(4.0, device="cuda")
    refused: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
        (torch.add, (there, here)),
        (here.add_, (there,)),
        (there.numpy, ()),
        (torch.nn.Linear(4, 2).to("cuda"), (here,)),
        (here.__getitem__, (there.long(),)),
    ]
    for operation, arguments in refused:
        with pytest.raises((RuntimeError, TypeError)):
            operation(*arguments)
