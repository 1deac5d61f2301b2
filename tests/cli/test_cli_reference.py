"""Tests of the help texts of all commands, their examples, and the reference page."""

import importlib.util
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from command_line import Run, assert_one_line_error
from places import ROOT

import albertkit
from albertkit.cli.main import make_app

PAGE = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
COMMAND = "python scripts/cli_reference.py"


def commands(command: Any, name: str = "albertkit") -> Iterator[tuple[str, Any]]:
    yield name, command
    for verb, below in getattr(command, "commands", {}).items():
        yield from commands(below, f"{name} {verb}")


COMMANDS = dict(commands(typer.main.get_command(make_app())))


def example_of(command: Any) -> str:
    (example,) = re.findall(r"^Example: (.+)$", command.help, flags=re.MULTILINE)
    return example


def parse(command: Any, arguments: list[str], name: str) -> Any:
    """Read arguments as the command line does and run nothing; return the context of the verb."""
    context = command.make_context(name, arguments)
    if not hasattr(command, "commands"):
        return context
    verb, below, rest = command.resolve_command(context, context._protected_args + context.args)
    return parse(below, rest, verb)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example_that_can_be_typed(name: str) -> None:
    example = example_of(COMMANDS[name])
    program, *arguments = shlex.split(example)
    assert program == "albertkit"
    context = parse(COMMANDS["albertkit"], arguments, program)
    if not hasattr(COMMANDS[name], "commands"):
        assert context.command is COMMANDS[name]
    assert not any(option.startswith("--") for option in context.args)
    assert all(one.help for one in COMMANDS[name].params), "an option without a word on it"


def test_an_example_with_a_wrong_option_is_noticed() -> None:
    with pytest.raises(Exception, match="No such option"):
        parse(COMMANDS["albertkit"], ["fill-mask", "text", "--top"], "albertkit")


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


def test_the_check_shows_the_difference(
    reference: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["cli_reference.py", "--check"])
    reference.main()
    other = tmp_path / "cli.md"
    other.write_text(
        PAGE.replace("* `--top-k <int>`: Number of answers to return.", "* `--best <int>`: Answers.")
    )
    monkeypatch.setattr(reference, "PAGE", other)
    with pytest.raises(SystemExit, match=f"Run {COMMAND}"):
        reference.main()
    assert "-* `--best <int>`: Answers." in capsys.readouterr().out


@pytest.mark.parametrize("name", COMMANDS)
def test_the_page_has_every_option(name: str) -> None:
    section = PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    for parameter in COMMANDS[name].params:
        for option in (*parameter.opts, *parameter.secondary_opts):
            wanted = (
                f"`{option}" if parameter.param_type_name == "option" else parameter.metavar or option.upper()
            )
            assert wanted in section or f"/ {option}" in section, option
    assert example_of(COMMANDS[name]) in section


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
    assert {"ALBERTKIT_THREADS", "ALBERTKIT_SERVING_KEY", "WORLD_SIZE", "OMP_NUM_THREADS"} <= found
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


def test_help_is_quick() -> None:
    """Without torch and NumPy, which take a second where all is well and many on a cold disk."""
    code = (
        "import sys; from typer.testing import CliRunner; from albertkit.cli.main import make_app\n"
        "app = make_app()\n"
        "for verb in ([], ['finetune'], ['serve']):\n"
        "    assert CliRunner().invoke(app, [*verb, '--help']).exit_code == 0\n"
        "sys.exit(', '.join({'torch', 'numpy', 'transformers'} & set(sys.modules)) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("tag --modle x hi", "No such option: --modle (did you mean --model?). See albertkit tag --help"),
        ("classify hi --bs 1", "No such option: --bs (did you mean --batch-size?). See albertkit classify"),
        ("finetune a --lr 1", "No such option: --lr (did you mean --learning-rate?). See albertkit finetune"),
        ("serve --lr 1", "No such option: --lr. See albertkit serve --help"),
        (
            "export onnx --model a --output b",
            "No such option: --model. Usage: albertkit export onnx SOURCE TARGET [OPTIONS]. See albertkit",
        ),
        (
            "inspect --model a",
            "--model. Usage: albertkit inspect model MODEL [OPTIONS]. See albertkit inspect",
        ),
        (
            "finetune a --num-train-epochs 1",
            "No such option: --num-train-epochs (did you mean --epochs?). See",
        ),
        ("tag -x hi", "No such option: -x. See albertkit tag --help"),
        ("--versio", "No such option: --versio (did you mean --version?). See albertkit --help"),
        ("inspect attention hi --htm x", "--htm (did you mean --html?). See albertkit inspect attention"),
        ("fill-maks hi", "No such command 'fill-maks'. Did you mean 'fill-mask'? See albertkit --help"),
        ("convert a b --to tf2", "Invalid value for '--to': 'tf2' is not one of 'hf', 'tf1', 'julia'. See"),
        (
            "convert a b --dtype float8",
            "'float8' is not one of 'float32', 'float16', 'bfloat16'. See albertkit convert --help",
        ),
        (
            "pretrain --data a --tokenizer b --output c --precision fp23",
            "'fp23' is not one of 'auto', 'fp32', 'bf16' (did you mean 'fp32'?). See albertkit pretrain",
        ),
        ("serve --port abc", "Invalid value for '--port': "),
        ("bench --rounds 0", "Invalid value for '--rounds': "),
        ("convert a", "Missing argument 'target'. See albertkit convert --help"),
        ("finetune text-classification", "Missing option '--train'. See albertkit finetune --help"),
        ("tag --file", "Option '--file' requires an argument. See albertkit"),
        ("convert a b c", "Got unexpected extra argument(s) (c). See albertkit convert --help"),
    ],
)
def test_usage_errors_have_one_line(run: Run, given: str, message: str) -> None:
    found = run(*given.split())
    assert (found.status, found.output) == (2, "")
    (line,) = found.errors.splitlines()
    assert line.startswith("error: ")
    assert message in line
    assert "Value error" not in line


@pytest.mark.parametrize("runner", ["ray", "local"])
def test_the_name_of_a_runner_is_not_an_engine(run: Run, runner: str) -> None:
    found = run("predict", "text-classification", "--input", "a", "--output", "b", "--engine", runner)
    assert_one_line_error(found, f"Use --runner {runner}")


def test_no_arguments_are_a_request_for_help(run: Run) -> None:
    found = run("export")
    assert found.status == 2
    assert "Usage: albertkit export" in found.output + found.errors
