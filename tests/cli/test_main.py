"""Tests of the encoding of standard output and of the errors of the entry point."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import Run, assert_one_line_error

TEXT = "In a café, she paid 5 € at the [MASK]."
CALL = ("fill-mask", TEXT, "--targets", "door,purple", "--device", "cpu")


class Terminal(io.TextIOWrapper):
    """A terminal with the characters of Western Europe."""

    def __init__(self, errors: str = "strict") -> None:
        super().__init__(io.BytesIO(), encoding="cp1252", errors=errors, write_through=True)

    def isatty(self) -> bool:
        return True

    def shown(self) -> str:
        """Return what was written."""
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode("cp1252")


def test_files_and_pipes_are_utf8_in_any_locale(tmp_path: Path) -> None:
    """A command reads the output of another."""
    environment = os.environ | {"PYTHONIOENCODING": "cp1252"}

    def output(*arguments: str, given: bytes | None = None) -> bytes:
        program = [sys.executable, "-m", "albertkit", *arguments]
        return subprocess.run(program, input=given, capture_output=True, check=True, env=environment).stdout

    lines = output(*CALL).decode().splitlines()
    assert lines[0] == TEXT
    assert lines[1].split()[0] == "door"
    assert "█" in lines[1]
    answer = output(*CALL, "--json")
    assert json.loads(answer.decode())["text"] == TEXT
    again = output("fill-mask", "--format", "jsonl", *CALL[2:], "--json", given=answer)
    assert json.loads(again)["text"] == TEXT


def test_a_terminal_shows_other_characters_as_question_marks(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal, errors = Terminal(), Terminal("backslashreplace")
    monkeypatch.setenv("TERM", "dumb")  # without colors
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(sys, "stderr", errors)
    assert run(*CALL).status == 0
    lines = terminal.shown().splitlines()
    assert lines[0] == TEXT
    assert lines[1].split()[0] == "door"
    assert lines[1].count("?") == 30
    assert run("fill-mask", "no 船").status == 1
    assert run("fill-mask", "[MASK]", "--model", "船").status == 1
    assert r"\u8239" in errors.shown()


def test_streams_without_an_encoding(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams in memory have no method `reconfigure`, and a Python program without a console has none."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", None)
    assert run(*CALL).status == 0
    assert stream.getvalue().startswith(TEXT)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("embed", "--file", "-"),
            "--file is '-', but no file has this name. To read standard input",
        ),
        (("embed", "--file", "./-"), "omit --file"),
        (("order", "--format", "jsonl", "--file", "-"), "omit --file"),
        (
            ("finetune", "text-classification", "--train", "-", "--output", "run"),
            "-: no such file",
        ),
        (
            ("answer", "Who?", "--context-file", "-"),
            "-: No such file or directory. Pass the name of a file: '-' does not mean standard input here",
        ),
    ],
)
def test_a_hyphen_is_not_standard_input(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_one_line_error(run(*arguments, stdin=b"a text\n"), message)


def test_a_file_may_be_named_with_a_hyphen(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("-").write_text(TEXT, encoding="utf-8")
    (answer,) = run("fill-mask", "--file", "-", "--json", stdin=b"other").json
    assert answer["text"] == TEXT
