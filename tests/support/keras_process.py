"""Run all checks of Keras on one backend, in one process, because importing TensorFlow takes seconds.

The script runs `keras_without_torch.py` first, with PyTorch blocked. Then it runs `keras_checks_*.py`.

Arguments: the arguments of `keras_without_torch.py`, followed by the arguments of pytest.
"""

import gc
import os
import runpy
import sys
from pathlib import Path

import pytest
from torchless import WITHOUT_TORCH

SUPPORT = Path(__file__).parent

if __name__ == "__main__":
    gc.disable()  # it would look at all of TensorFlow again and again
    sys.modules["sklearn"] = None  # type: ignore[assignment]  # Keras imports it for its wrappers
    if os.environ["KERAS_BACKEND"] != "tensorflow":
        sys.modules["tensorflow"] = None  # type: ignore[assignment]  # the other backends do not need it
    finders = list(sys.meta_path)
    exec(WITHOUT_TORCH)
    arguments, sys.argv = sys.argv, sys.argv[:4]
    runpy.run_path(str(SUPPORT / "keras_without_torch.py"))
    assert "torch" not in sys.modules
    sys.meta_path[:] = finders
    sys.exit(pytest.main([*map(str, sorted(SUPPORT.glob("keras_checks_*.py"))), *arguments[4:]]))
