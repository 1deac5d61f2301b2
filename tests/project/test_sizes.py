"""Tests of `scripts/sizes.py`, without its measurements of memory."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from safetensors.numpy import load_file

from albertkit import AlbertModel


def test_files_of_a_shape(script: Callable[[str], ModuleType], tmp_path: Path) -> None:
    sizes = script("sizes")
    cells = sizes.write_models("bundled", tmp_path).strip("| ").split(" | ")
    stored = AlbertModel.from_pretrained("bundled").num_parameters()
    assert cells[:2] == ["bundled", f"{stored / 1e6:.1f} M"]
    for folder, name, size in (("fp32", "float32", 4), ("fp16", "float16", 2)):
        weights = load_file(tmp_path / folder / "model.safetensors").values()
        assert {str(array.dtype) for array in weights} == {name}
        assert sum(array.nbytes for array in weights) == size * stored
    exact, half, small = (float(cell.removesuffix(" MB")) for cell in cells[4:7])
    assert exact > 1.9 * half > 3 * small
    assert sizes.session_memory(tmp_path) >= 0
