"""Tests of `scripts/how_albert_works.py`: the numbers by depth equal those of a deeper model."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from albertkit import AlbertForMaskedLM, AutoTokenizer


@pytest.fixture
def how_albert_works(script: Callable[[str], ModuleType]) -> ModuleType:
    return script("how_albert_works")


@pytest.mark.filterwarnings("ignore:AlbertForMaskedLM from bundled")  # the second group is left out
def test_further_layers_repeat_the_last_set_of_weights(how_albert_works: ModuleType) -> None:
    tokenizer = AutoTokenizer.from_pretrained("bundled")
    questions = how_albert_works.read_questions()[:20]
    model = AlbertForMaskedLM.from_pretrained("bundled", num_hidden_groups=1).eval()
    deeper = AlbertForMaskedLM.from_pretrained("bundled", num_hidden_groups=1, num_hidden_layers=6).eval()
    rows = how_albert_works.by_depth(model, tokenizer, questions, 6)
    expected = how_albert_works.by_depth(deeper, tokenizer, questions, 6)
    assert [row[0] for row in rows] == pytest.approx([row[0] for row in expected], abs=1e-6)
    assert [row[2] for row in rows] == [row[2] for row in expected]
    assert [len(rows), rows[3][1]] == [6, pytest.approx(1)]


def test_pictures_and_table(
    how_albert_works: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "how-albert-works.md").write_text(f"{how_albert_works.BEGIN}\n<!-- end of table -->\n")
    monkeypatch.setattr(how_albert_works, "DOCS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["how_albert_works.py", "--deepest", "5"])
    how_albert_works.main()
    table = (tmp_path / "how-albert-works.md").read_text().splitlines()
    assert [line.split(" | ")[0] for line in table[3:-1]] == [
        "| 1",
        "| 2",
        "| 3",
        "| **4**, the trained depth",
        "| 5",
    ]
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in tmp_path.glob("*.png"))
    assert len([*tmp_path.glob("*.png")]) == 2
