"""Tests of `scripts/bundle_model.py`: it replaces only a bundled model, and only if the new model passes."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from pretraining_runs import short_recipe, write_pretraining_data

from albertkit.pretraining.run import run_pretraining
from albertkit.pretraining.settings import PretrainingSettings
from albertkit.recipe import build, read_recipe


@pytest.fixture
def bundle_model(script: Callable[[str], ModuleType]) -> ModuleType:
    return script("bundle_model")


@pytest.fixture
def run(tmp_path: Path, tiny_texts: list[str], tiny_vocabulary: Path) -> Path:
    """Return the folder of a finished run, next to its recipe, tokenizer and shards."""
    write_pretraining_data(tmp_path, tiny_texts, tiny_vocabulary, holdout_every=10)
    for name in ("books", "modern"):
        shutil.copytree(tmp_path / "shards" / "validation", tmp_path / "shards" / name)
    (tmp_path / "recipe.toml").write_text(short_recipe(steps=2))
    settings = build(PretrainingSettings, read_recipe(tmp_path / "recipe.toml"), where="recipe")
    run_pretraining(settings, tmp_path / "shards", tmp_path / "tokenizer", tmp_path / "run")
    return tmp_path / "run"


def files(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_only_a_bundled_model_is_replaced(bundle_model, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = run.parent

    def call(output: Path) -> None:
        words = ["bundle_model.py", run, folder / "shards", "--recipe", folder / "recipe.toml"]
        monkeypatch.setattr(sys, "argv", [*map(str, words), "--output", str(output)])
        bundle_model.main()

    for precious in (run, folder / "tokenizer", folder / "recipe.toml"):
        before = files(precious) if precious.is_dir() else precious.read_bytes()
        with pytest.raises(SystemExit, match=r"(holds .*|is a file), and is not a bundled model"):
            call(precious)
        assert (files(precious) if precious.is_dir() else precious.read_bytes()) == before
    call(folder / "bundled")
    first = files(folder / "bundled")
    assert first["README.md"].decode().splitlines()[7] == "# The bundled ALBERT"
    call(folder / "bundled")
    assert files(folder / "bundled") == first
    # If the new model does not pass, the old model stays, and no other files remain.
    monkeypatch.setattr(bundle_model, "MAX_BYTES", 1000)
    with pytest.raises(SystemExit, match="over the limit of 1,000"):
        call(folder / "bundled")
    assert files(folder / "bundled") == first
    assert {file.name for file in folder.iterdir()} == {
        "bundled", "corpus.jsonl", "recipe.toml", "run", "shards", "tokenizer"
    }  # fmt: skip
