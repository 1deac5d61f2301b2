"""The command line in the process of a test, shared by the tests of its verbs."""

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
    """What a command printed and how it ended."""

    status: int
    output: str
    errors: str

    @property
    def json(self) -> list[dict]:
        return [json.loads(line) for line in self.output.splitlines()]


Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run the command in this process, with a terminal or bytes as its standard input."""

    def call(*arguments: str | Path, stdin: bytes | None = None) -> Result:
        monkeypatch.setattr(sys, "argv", ["albertkit", *map(str, arguments)])
        pipe = types.SimpleNamespace(buffer=io.BytesIO(stdin or b""), isatty=lambda: stdin is None)
        monkeypatch.setattr(sys, "stdin", pipe)
        monkeypatch.setenv("COLUMNS", "200")
        status = 0
        try:
            with warnings.catch_warnings():  # a warning of another run is shown again
                main.run()
        except SystemExit as exit_:
            status = int(exit_.code or 0)
        return Result(status, *capfd.readouterr())

    return call


def assert_one_line_error(result: Result, *expected: str) -> None:
    assert result.status == 1
    assert result.output == ""
    assert result.errors.startswith("error: ")
    assert len(result.errors.splitlines()) == 1
    for part in expected:
        assert part in result.errors
