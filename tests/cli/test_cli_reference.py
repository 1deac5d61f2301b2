"""Tests of the help texts of all commands, their examples, and the reference page."""

import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from command_line import Run
from places import ROOT

import albertkit
from albertkit.cli.main import make_app
from albertkit.cli.verbs import COMMANDS as ALL_COMMANDS

PAGE = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
COMMAND = "python scripts/cli_reference.py"


COMMANDS = {name: command for name, command in ALL_COMMANDS.items() if command.function}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example_that_can_be_typed(name: str) -> None:
    _, bound, _ = make_app([name]).parse_args(
        shlex.split(COMMANDS[name].example), exit_on_error=False, print_error=False
    )
    assert bound.args or bound.kwargs
    assert all(flag.help for flag in COMMANDS[name].flags()), "an option without a help text"


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cli_reference", ROOT / "scripts" / "cli_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_equals_the_help_texts(reference: ModuleType) -> None:
    assert reference.page() == PAGE, f"docs/reference/cli.md is of another command line; run {COMMAND}"


def test_the_page_has_every_variable() -> None:
    """What the package reads of the environment, by the name or by a constant that holds it."""
    found = set()
    for path in Path(albertkit.__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for quoted, constant in re.findall(r"environ(?:\.\w+\(|\[|)\s*(?:\"(\w+)\"|([A-Z_]+))", text):
            if quoted:
                found.add(quoted)
                continue
            name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
            found.add(getattr(importlib.import_module(name), constant))
    assert {"ALBERTKIT_THREADS", "ALBERTKIT_SERVE_KEY", "WORLD_SIZE", "OMP_NUM_THREADS"} <= found
    listed = set(re.findall(r"`(\w+)`", PAGE.partition("## Environment")[2]))
    assert found <= listed


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["inspect", "base-v2"], 0),
        (["fill-mask", "x", "--model", "./nowhere"], 1),
        (["fill-mask", "--wrong"], 2),
    ],
)
def test_statuses(arguments: list[str], status: int, run: Any) -> None:
    assert run(*arguments).status == status
    assert f"| {status} | " in PAGE


@pytest.mark.parametrize("verb", ["", "finetune", "serve", "classify", "predict"])
def test_help_is_quick(verb: str) -> None:
    """Without torch and NumPy, which take a second where all is well and many on a cold disk."""
    code = (
        "import sys; from albertkit.cli.main import run\n"
        f"sys.argv = ['albertkit', *{[verb] if verb else []}, '--help']\n"
        "try: run()\n"
        "except SystemExit as end: assert not end.code\n"
        "slow = {'torch', 'numpy', 'transformers', 'huggingface_hub'}\n"
        "sys.exit(', '.join(slow & set(sys.modules)) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("tag --modle x hi", "Unknown option: --modle. Did you mean --model? See albertkit tag --help"),
        ("finetune a --train b --output c --lr 1", "Unknown option: --lr. Did you mean --learning-rate?"),
        ("finetune a --train b --output c --num-train-epochs 1", "Did you mean --epochs?"),
        ("serve --lr 1", "Unknown option: --lr. See albertkit serve --help"),
        ("--versio", "--versio"),
        ("fill-maks hi", "fill-mask"),
        ("convert a b --to tf2", "hf"),
        ("serve --port abc", "abc"),
        ("convert a", "TARGET is missing"),
        ("finetune text-classification", "--train is missing"),
        ("tag --file", "--file requires an argument"),
        ("convert a b c", "['c']"),
    ],
)
def test_usage_errors_have_one_line(run: Run, given: str, message: str) -> None:
    found = run(*given.split())
    assert (found.status, found.output) == (2, "")
    (line,) = found.errors.splitlines()
    assert line.startswith("error: ")
    assert message in line
    assert line.endswith("--help")


def test_no_arguments_are_a_request_for_help(run: Run) -> None:
    found = run("export")
    assert found.status == 2
    assert "Usage: albertkit export" in found.output + found.errors
