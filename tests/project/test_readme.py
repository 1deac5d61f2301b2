"""Tests of the README, and of pages that list verbs, pipelines and extras."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from places import ROOT

README = (ROOT / "README.md").read_text()
PUBLISHED = "albert/albert-base-v2"
BLOCKS = re.findall(r"^```(bash|python|text)\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)


@pytest.fixture
def environment() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"PATH": path, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "2"}


def run(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.light
def test_first_examples_with_the_base_install(tmp_path: Path, environment: dict[str, str]) -> None:
    """Run the first blocks of the README. `test_docs.py` runs the later ones, with PyTorch."""
    demo, words, test, install, example = (code for _, code in BLOCKS[:5])
    assert demo == "git clone URL albertkit\ncd albertkit\nmake demo\n"
    assert (test, install) == ("make test\n", "pip install .\n")
    # The environment of this test has the libraries that `make demo` would install.
    make = ["make", "--silent", "--assume-old=.venv/installed-base", "demo"]
    assert lines(run([*make, f"BIN={Path(sys.executable).parent}"], ROOT, environment)) == lines(words)
    # The published model needs a network.
    assert PUBLISHED in example
    printed = run([sys.executable, "-c", example.replace(PUBLISHED, "bundled")], tmp_path, environment)
    assert printed == "0.782 door\n0.075 room\n0.019 window\n"


def test_the_benchmark_finds_its_table() -> None:
    _, begin, rest = README.partition("<!-- table: benchmarks/side_by_side.py -->\n")
    table, end, _ = rest.partition("<!-- end of table -->")
    assert begin
    assert end
    rows = [row.split("|") for row in table.splitlines() if row.startswith("| ")]
    assert len(rows) == 6
    assert {len(row) for row in rows} == {8}


def lines(printed: str) -> list[str]:
    return [line.rstrip() for line in printed.splitlines() if line]


@pytest.mark.light
def test_an_extra_is_added_to_an_albertkit_that_no_index_has(environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "pip", "install", "--no-index", "--dry-run", "albertkit[arrow]"]
    printed = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert "Requirement already satisfied: albertkit[arrow]" in printed.stdout


def run_warm(block: str, folder: Path, warm_shell: dict[str, str]) -> list[str]:
    """Run Python code in a process that has imported PyTorch, and return the lines that it prints."""
    (folder / "block.py").write_text(block, encoding="utf-8")
    return run(["bash", "-euc", "python block.py"], folder, warm_shell).splitlines()


@pytest.mark.light
def test_every_extra_has_a_row() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    page = (ROOT / "docs" / "how-to" / "install.md").read_text()
    named = re.findall(r"^\| `(\w+)` \|", page, flags=re.MULTILINE)
    assert sorted([*named, "docs", "test"]) == sorted(project["optional-dependencies"])


def test_the_python_code_of_the_page_on_using_a_model(tmp_path: Path, warm_shell: dict[str, str]) -> None:
    page = (ROOT / "docs" / "how-to" / "use-a-model.md").read_text()
    (block,) = re.findall(r"^```python\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE)
    label, same, count = run_warm(block, tmp_path, warm_shell)
    assert label in ("in order", "swapped")
    assert (same, count) == ("True", "2")


def test_every_verb_and_pipeline_has_a_row() -> None:
    from albertkit.options import OPTIONS

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
    assert sorted(task for _, task in rows) == sorted(OPTIONS)


@pytest.mark.parametrize(
    "document",
    sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("dev/*.md")]),
    ids=lambda path: path.name,
)
def test_link_targets_exist(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document.read_text()):
        if "://" not in target:
            assert (document.parent / target).exists(), f"{document.name}: {target}"


def test_the_changelog_has_the_version() -> None:
    from albertkit import __version__

    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text()
    assert f'version = "{__version__}"' in (ROOT / "pyproject.toml").read_text()
