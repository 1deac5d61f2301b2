"""Tests of the base install: what it contains, and that it works without PyTorch.

`make light` runs this file and all others with the mark `light` in an environment that has only the base
install.
`test_light_pipelines.py` and `test_light_verbs.py` test the pipelines and the verbs.
"""

import importlib.metadata
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from light_models import MASKED, PAIR
from packaging.version import Version
from requirements import required

from albertkit.tokenization.tokenizer import AlbertTokenizer

pytestmark = pytest.mark.light


def test_nothing_is_written_and_no_telemetry_is_sent(tmp_path: Path) -> None:
    """Without ORT_DISABLE_TELEMETRY, ONNX Runtime writes an identifier and events into the home folder."""
    home, temporary = tmp_path / "home", tmp_path / "temporary"
    home.mkdir()
    temporary.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ORT_", "XDG_"))}
    environment |= {"HOME": str(home), "TMPDIR": str(temporary), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "albertkit", "fill-mask", MASKED]
    subprocess.run(command, env=environment, capture_output=True, check=True)
    assert list(home.rglob("*")) == []
    assert list(temporary.rglob("*")) == []


def test_torch_is_not_importable_in_the_light_environment() -> None:
    if Path(sys.prefix).name != ".venv-light":
        pytest.skip("not in the environment of `make light`")
    installed = {
        distribution.metadata["Name"].casefold() for distribution in importlib.metadata.distributions()
    }
    extras = {"torch", "transformers", "pyarrow", "fastapi", "keras", "h5py", "scipy"}
    assert installed & extras == set()
    assert find_spec("torch") is None


def test_the_base_install_does_not_need_torch() -> None:
    needed = required()
    assert {"numpy", "onnxruntime", "sentencepiece", "pyyaml"} <= needed
    heavy = {"torch", "transformers", "scipy", "sympy"}
    if Version(importlib.metadata.version("onnxruntime")) < Version("1.25"):
        heavy.remove("sympy")  # ONNX Runtime needed it
    assert needed & heavy == set()


def test_a_tokenizer_json_alone_needs_no_rust_library(tiny_vocabulary: Path, tmp_path: Path) -> None:
    tokenizer = AlbertTokenizer(tiny_vocabulary)
    tokenizer.add_tokens(["kiwistan"])
    tokenizer.save_pretrained(tmp_path)
    for file in tmp_path.glob("*"):
        if file.name != "tokenizer.json":
            file.unlink()
    text = f"{PAIR} [MASK] kiwistan"
    code = f"""
import sys
sys.modules["tokenizers"] = None
from albertkit import AlbertTokenizer, AlbertTokenizerFast, AutoTokenizer
for cls in (AlbertTokenizer, AlbertTokenizerFast, AutoTokenizer):
    tokenizer = cls.from_pretrained({str(tmp_path)!r})
    print(dict(tokenizer({text!r}, return_offsets_mapping=True)))
"""
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert result.stdout.splitlines() == [str(dict(tokenizer(text, return_offsets_mapping=True)))] * 3
