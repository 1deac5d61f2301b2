"""How many threads torch computes with."""

import os

import torch

from albertkit.cores import VARIABLE, usable_cores


def settle_threads() -> None:
    """Give torch as many threads as there are cores for this process, unless it has fewer, or was told.

    It sees the affinity of a process, and not the limit of a container: two cores of 64 then have 64 threads.
    """
    cores = usable_cores()
    told = os.environ.get("OMP_NUM_THREADS") or os.environ.get("MKL_NUM_THREADS")
    if os.environ.get(VARIABLE) or (cores < torch.get_num_threads() and not told):
        torch.set_num_threads(cores)
