"""Tests of shell completion, through its protocol and in bash."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from albertkit.cli import main, parameters
from albertkit.engines.choosing import ENGINES
from albertkit.finetuning.suites import SUITES
from albertkit.options import OPTIONS
from albertkit.pipelines.tasks import DEFINITIONS
from albertkit.tasks.registry import TASKS

pytestmark = pytest.mark.light

PUBLISHED = [
    f"albert-{size}-{version}" for version in ("v1", "v2") for size in ("base", "large", "xlarge", "xxlarge")
]


def offers(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the values that the command offers to the shell at the end of a line."""
    monkeypatch.setattr(sys, "argv", ["albertkit", "__complete", *line.split(" ")[1:]])
    with pytest.raises(SystemExit) as exit_:
        main.run()
    assert exit_.value.code in (0, None)
    lines = capsys.readouterr().out.splitlines()
    return [one.partition("\t")[0] for one in lines if one and not one.startswith("\x1f")]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("albertkit fill-mask --model ", ["bundled", "bundled-sentences", *PUBLISHED]),
        ("albertkit embed --model albert-xx", ["albert-xxlarge-v1", "albert-xxlarge-v2"]),
        ("albertkit embed --model ru", ["runs-reviews"]),
        ("albertkit embed --model ./runs", ["./runs-reviews"]),
        ("albertkit embed --model nowhere/", []),
        ("albertkit convert b", ["bundled", "bundled-sentences"]),
        ("albertkit finetune tok", ["token-classification"]),
        ("albertkit evaluate --task to", ["token-classification"]),
        ("albertkit evaluate --suite ", list(parameters.SUITES)),
        ("albertkit tag --engine onnx", ["onnx", "onnx-int8"]),
        ("albertkit inspect model b", ["bundled", "bundled-sentences"]),
        ("albertkit serve --model mine=bun", ["mine=bundled", "mine=bundled-sentences"]),
        ("albertkit serve --task mine=fil", ["mine=fill-mask"]),
        ("albertkit classify --file re", []),  # then the shell offers files
        ("albertkit prepare ", []),
    ],
)
def test_offers(
    line: str,
    offered: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "runs-reviews").mkdir()
    (tmp_path / "runs-reviews" / "config.json").touch()
    (tmp_path / "runs-empty").mkdir()
    monkeypatch.chdir(tmp_path)
    found = offers(line, monkeypatch, capsys)
    if line.endswith("--model "):
        offered = [*offered, "runs-reviews"]
    assert sorted(found) == sorted(offered)


def test_names_are_those_of_the_modules() -> None:
    """They are written twice, since those import torch."""
    assert sorted(OPTIONS) == sorted(DEFINITIONS)
    assert list(parameters.FINETUNING_TASKS) == list(TASKS)
    assert sorted(parameters.ENGINES) == sorted(ENGINES)
    assert sorted(parameters.SUITES) == sorted(SUITES)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts(shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["albertkit", "--show-completion", shell])
    with pytest.raises(SystemExit):
        main.run()
    script = capsys.readouterr().out
    assert "finetune" in script
    assert "__complete" in script


def test_in_a_real_bash(tmp_path: Path) -> None:
    """The script that --show-completion prints, sourced; then a Tab, which must not import torch."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("needs bash")
    (tmp_path / "albertkit").write_text(
        f'#!/bin/sh\nexec {sys.executable} -X importtime -m albertkit "$@" 2>>{tmp_path}/imports\n'
    )
    (tmp_path / "albertkit").chmod(0o755)
    script = """
        eval "$(albertkit --show-completion bash)"
        COMP_WORDS=(albertkit fill-mask --model bundled-) COMP_CWORD=3
        _albertkit albertkit
        echo "${COMPREPLY[@]}"
    """
    environment = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run([bash, "--norc", "-c", script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["bundled-sentences"]
    imported = (tmp_path / "imports").read_text()
    assert "albertkit.cli.parameters" in imported
    assert "torch" not in imported
