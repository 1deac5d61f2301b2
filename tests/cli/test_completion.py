"""Tests of shell completion, through its protocol and in bash."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from albertkit.cli import completing, main
from albertkit.engines.choosing import ENGINES
from albertkit.finetuning.suites import SUITES
from albertkit.pipelines import _CLASSES
from albertkit.tasks.registry import TASKS

pytestmark = pytest.mark.light

PUBLISHED = [
    f"albert-{size}-{version}" for version in ("v1", "v2") for size in ("base", "large", "xlarge", "xxlarge")
]


def bash_offers(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the completions of a line with the cursor at its end."""
    monkeypatch.setenv("_ALBERTKIT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
    monkeypatch.setattr(sys, "argv", ["albertkit"])
    with pytest.raises(SystemExit) as exit_:
        main.run()
    assert exit_.value.code in (0, None)
    return capsys.readouterr().out.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("albertkit fi", ["fill-mask", "finetune"]),
        ("albertkit fill-mask --t", ["--top-k", "--targets"]),
        ("albertkit fill-mask --model ", ["bundled", "bundled-sentences", *PUBLISHED]),
        ("albertkit embed --model albert-xx", ["albert-xxlarge-v1", "albert-xxlarge-v2"]),
        ("albertkit embed --model ru", ["runs-reviews"]),
        ("albertkit embed --model ./runs", ["./runs-reviews"]),
        ("albertkit embed --model nowhere/", []),
        ("albertkit convert b", ["bundled", "bundled-sentences"]),
        ("albertkit convert bundled target --to ", ["hf", "tf1", "julia"]),
        ("albertkit finetune ", list(TASKS)),
        ("albertkit evaluate to", ["token-classification"]),
        ("albertkit evaluate --suite ", list(completing.SUITES)),
        ("albertkit tag --engine onnx", ["onnx", "onnx-int8"]),
        ("albertkit tag --aggregation f", ["first"]),
        ("albertkit inspect b", ["bundled", "bundled-sentences", "base-v1", "base-v2"]),
        ("albertkit inspect xl", ["xlarge-v1", "xlarge-v2"]),
        ("albertkit inspect bundled --j", ["--json"]),
        ("albertkit export ", ["onnx", "web"]),
        ("albertkit serve --model mine=bun", ["mine=bundled", "mine=bundled-sentences"]),
        ("albertkit serve --task mine=sen", ["mine=sentence-order"]),
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
    found = bash_offers(line, monkeypatch, capsys)
    if line.endswith("--model "):
        offered = [*offered, "runs-reviews"]
    assert sorted(found) == sorted(offered)


def test_names_are_those_of_the_modules() -> None:
    """They are written twice, since those import torch."""
    assert sorted(completing.PIPELINE_TASKS) == sorted(one.task for one in _CLASSES)
    assert list(completing.FINETUNING_TASKS) == list(TASKS)
    assert sorted(completing.ENGINES) == sorted(ENGINES)
    assert sorted(completing.SUITES) == sorted(SUITES)


@pytest.mark.parametrize(("shell", "offered"), [("zsh", '"finetune"'), ("fish", "finetune")])
def test_other_shells(
    shell: str, offered: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["albertkit"])
    monkeypatch.setenv("_ALBERTKIT_COMPLETE", f"complete_{shell}")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "albertkit finet")
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    with pytest.raises(SystemExit):
        main.run()
    assert offered in capsys.readouterr().out


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
        eval "$(_ALBERTKIT_COMPLETE=source_bash albertkit)"
        complete -p albertkit
        COMP_WORDS=(albertkit fill-mask --model bundled-) COMP_CWORD=3
        _albertkit_completion albertkit
        echo "${COMPREPLY[@]}"
    """
    environment = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run([bash, "--norc", "-euc", script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "complete -o default -F _albertkit_completion albertkit",
        "bundled-sentences",
    ]
    imported = (tmp_path / "imports").read_text()
    assert "albertkit.cli.completing" in imported
    assert "torch" not in imported
