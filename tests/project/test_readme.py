"""What the README tells a newcomer to type, typed."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from places import ROOT

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(bash|python)\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)

# The README's sizes are for real books; the test's corpus is 200 small texts.
SMALLER = {
    "--vocab-size 8192": "--vocab-size 500",
    "--holdout-every 40": "--holdout-every 5 --workers 1",
    "--recipe recipes/bundled.toml": (
        f"--recipe {ROOT}/recipes/bundled.toml --steps 1 --warmup-steps 0 --decay-steps 0 --precision fp32"
        " --batch-tokens 512 --evaluation-sequences 16"
    ),
}


def commands() -> list[str]:
    return [block for language, block in BLOCKS if language == "bash" and "make demo" not in block]


@pytest.fixture
def environment() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"PATH": path, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "2"}


def run(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_blocks_are_found() -> None:
    assert [language for language, _ in BLOCKS] == ["bash", "bash", "python", "python", "bash"]


@pytest.mark.light
def test_using_the_bundled_model(tmp_path: Path, environment: dict[str, str]) -> None:
    printed = run(["bash", "-euc", commands()[0]], tmp_path, environment)
    assert "opened the" in printed
    assert printed.count('"token_str"') == 3
    assert printed.count('"embedding"') == 2


@pytest.mark.light
def test_python_of_the_base_install(tmp_path: Path, environment: dict[str, str]) -> None:
    block, _ = [block for language, block in BLOCKS if language == "python"]
    lines = run([sys.executable, "-c", block], tmp_path, environment).splitlines()
    assert len([line for line in lines if re.fullmatch(r"0\.\d{3} \S+", line)]) == len(lines) == 3


def run_warm(block: str, folder: Path, warm_shell: dict[str, str]) -> list[str]:
    """Run Python where torch is imported already; return the lines that it prints."""
    (folder / "block.py").write_text(block, encoding="utf-8")
    return run(["bash", "-euc", "python block.py"], folder, warm_shell).splitlines()


def test_python_of_the_extra_torch(tmp_path: Path, warm_shell: dict[str, str]) -> None:
    _, block = [block for language, block in BLOCKS if language == "python"]
    segments, shape = run_warm(block, tmp_path, warm_shell)
    assert segments.startswith("tensor([[0, 0,")
    assert segments.endswith("1, 1]])")
    assert shape.startswith("torch.Size([1, ")


@pytest.mark.light
def test_every_extra_has_a_row() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    rows = re.findall(r"^\| (`'\.\[.*?) \|", README, flags=re.MULTILINE)
    named = re.findall(r"\.\[(\w+)\]", " ".join(rows))
    assert sorted([*named, "docs", "test"]) == sorted(project["optional-dependencies"])


def test_from_raw_text_to_a_model(tmp_path: Path, warm_shell: dict[str, str], tiny_texts: list[str]) -> None:
    books = tmp_path / "books"
    books.mkdir()
    for index in range(0, 200, 10):
        (books / f"{index:03d}.txt").write_text("\n\n".join(tiny_texts[index : index + 10]))
    block = commands()[1]
    for large, small in SMALLER.items():
        assert large in block
        block = block.replace(large, small)
    printed = run(["bash", "-euc", block], tmp_path, warm_shell | {"BLANK_PICTURES": "1"})
    assert "pieces per word" in printed
    assert "The captain of the" in printed


def test_python_of_using_a_model(tmp_path: Path, warm_shell: dict[str, str]) -> None:
    page = (ROOT / "docs" / "how-to" / "use-a-model.md").read_text()
    (block,) = re.findall(r"^```python\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE)
    label, same, count = run_warm(block, tmp_path, warm_shell)
    assert label in ("in order", "swapped")
    assert (same, count) == ("True", "2")


def test_every_verb_and_pipeline_has_a_row() -> None:
    from albertkit.pipelines import _CLASSES

    page = (ROOT / "docs" / "how-to" / "use-a-model.md").read_text()
    rows = re.findall(r"^\|[^|]+\| `([a-z-]+) [^|]+\| `([a-z-]+)` \|$", page, flags=re.MULTILINE)
    assert {verb for verb, _ in rows} == {
        "fill-mask",
        "embed",
        "order",
        "classify",
        "tag",
        "answer",
        "choose",
    }
    assert sorted(task for _, task in rows) == sorted(one.task for one in _CLASSES)


def test_the_demo_is_three_masks() -> None:
    (recipe,) = re.findall(r"^demo:.*?\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert recipe.count("[MASK]") == 3


@pytest.mark.parametrize(
    "document",
    sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("dev/*.md")]),
    ids=lambda path: path.name,
)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document.read_text()):
        if "://" not in target:
            assert (document.parent / target).exists(), f"{document.name}: {target}"


def test_the_map_of_rooms_is_true() -> None:
    for place in re.findall(r"^\| `([^`]+/)`", README, flags=re.MULTILINE):
        assert (ROOT / place).is_dir(), place


def test_changelog_knows_the_version() -> None:
    from albertkit import __version__

    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text()
    assert f'version = "{__version__}"' in (ROOT / "pyproject.toml").read_text()
