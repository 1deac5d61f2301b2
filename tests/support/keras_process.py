"""All that is checked on one backend of Keras, in one process: importing TensorFlow takes seconds.

First come the checks without torch, which cannot be imported until they end, then `keras_checks.py`.

Arguments: those of `keras_without_torch.py`, then those of pytest.
"""

import os
import runpy
import sys
from pathlib import Path

import pytest
from torchless import WITHOUT_TORCH

SUPPORT = Path(__file__).parent

if __name__ == "__main__":
    sys.modules["sklearn"] = None  # type: ignore[assignment]  # Keras imports it, for wrappers
    if os.environ["KERAS_BACKEND"] != "tensorflow":
        sys.modules["tensorflow"] = None  # type: ignore[assignment]  # the other backends do without
    finders = list(sys.meta_path)
    exec(WITHOUT_TORCH)
    arguments, sys.argv = sys.argv, sys.argv[:4]
    runpy.run_path(str(SUPPORT / "keras_without_torch.py"))
    assert "torch" not in sys.modules
    sys.meta_path[:] = finders
    sys.exit(pytest.main([str(SUPPORT / "keras_checks.py"), *arguments[4:]]))
