"""A fixture that runs commands in the process of the test."""

import io
import json
import sys
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from albertkit.cli import main


class Result(NamedTuple):
    """The exit status of a command, and its output."""

    status: int
    output: str
    errors: str

    @property
    def json(self) -> list[dict]:
        return [json.loads(line) for line in self.output.splitlines()]


Run = Callable[..., Result]
LABELED_ROWS = [("the river was painted", "new"), ("the house was lost", "old")]
"""Texts and labels of the tables in the fixture `folder` of the tests of commands."""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command in this process. `stdin` replaces the terminal by bytes."""

    def call(*arguments: str | Path, stdin: bytes | None = None) -> Result:
        monkeypatch.setattr(sys, "argv", ["albertkit", *map(str, arguments)])
        pipe = types.SimpleNamespace(buffer=io.BytesIO(stdin or b""), isatty=lambda: stdin is None)
        monkeypatch.setattr(sys, "stdin", pipe)
        monkeypatch.setenv("COLUMNS", "200")
        status = 0
        try:
            with warnings.catch_warnings():  # shows warnings that an earlier run has shown
                main.run()
        except SystemExit as exit_:
            status = int(exit_.code or 0)
        return Result(status, *capfd.readouterr())

    return call


TEXT = ("--text-column", "text")
"""Flags for a file with the column `text`, where the model was trained on another column."""


def run_predict(run: Run, model: Path, source: Path, output: Path, *flags: str) -> Result:
    """Run `predict` for text classification on the CPU."""
    places = ("--model", model, "--input", source, "--output", output)
    return run("predict", *places, "--device", "cpu", *flags)


def assert_one_line_error(result: Result, *expected: str) -> None:
    assert result.status == 1
    assert result.output == ""
    assert result.errors.startswith("error: ")
    assert len(result.errors.splitlines()) == 1
    for part in expected:
        assert part in result.errors
