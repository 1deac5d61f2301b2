"""The supervisor of several worker processes, with processes that only look like workers."""

import logging
import queue
import signal
import socket
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs the server's libraries: pip install 'albertkit[serve]'")

from uvicorn.config import STARTUP_FAILURE, Config
from uvicorn.supervisors import multiprocess

from albertkit.serving.workers import _Supervisor


class Worker:
    """A worker as the supervisor sees it."""

    pids = iter(range(1000, 2000))

    def __init__(self, *_: Any) -> None:
        self.pid = next(self.pids)
        self.exitcode: int | None = None
        self.answers = True
        self.process = SimpleNamespace(is_alive=lambda: self.exitcode is None)
        self.child_conn = SimpleNamespace(close=lambda: None)

    def start(self) -> None:
        pass

    def is_alive(self, timeout: float) -> bool:
        return self.exitcode is None and self.answers

    def wait_until_ready(self, timeout: float, should_exit: object) -> bool:
        return True

    def kill(self) -> None:
        self.exitcode = -signal.SIGKILL if self.exitcode is None else self.exitcode

    def terminate(self) -> None:
        self.exitcode = 0

    def join(self) -> None:
        pass


@pytest.fixture
def supervisor(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Supervisor]:
    """Yield a supervisor of two workers that have loaded their models."""
    monkeypatch.setattr(multiprocess, "Process", Worker)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    names = queue.SimpleQueue()
    with socket.socket() as listening:
        config = Config(print, workers=2, timeout_worker_healthcheck=120)
        supervisor = _Supervisor(config, listening, names, lambda names: None)  # type: ignore[arg-type]
        supervisor.init_processes()
        supervisor._names = ["mine (fill-mask)"]
        yield supervisor


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    ("exitcode", "reason"),
    [
        (-signal.SIGKILL, "was terminated by SIGKILL"),
        (-signal.SIGSEGV, "was terminated by SIGSEGV"),
        (-99, "was terminated by signal 99"),
        (1, "ended with exit status 1"),
        (0, "ended with exit status 0"),
        (None, "did not answer for 120 seconds and was killed"),
    ],
)
def test_a_worker_that_dies_is_replaced_with_a_warning(
    supervisor: _Supervisor, caplog: pytest.LogCaptureFixture, exitcode: int | None, reason: str
) -> None:
    first, second = supervisor.processes
    second.exitcode, second.answers = exitcode, False  # type: ignore[attr-defined, misc]
    supervisor.keep_subprocess_alive()
    supervisor.keep_subprocess_alive()
    assert supervisor.processes[0] is first
    new = supervisor.processes[1]
    assert new is not second
    assert warned(caplog) == [f"worker process {second.pid} {reason}. Process {new.pid} replaces it."]


def stop(supervisor: _Supervisor) -> None:
    """Let the workers end before the supervisor handles the signal, as after Ctrl-C."""
    for one in supervisor.processes:
        one.terminate()
    supervisor.signal_queue.append(signal.SIGINT)
    supervisor.keep_subprocess_alive()


@pytest.mark.parametrize("change", [_Supervisor.handle_hup, stop])
def test_a_reload_and_the_end_of_the_server_are_not_warned_of(
    supervisor: _Supervisor, caplog: pytest.LogCaptureFixture, change: Callable[[_Supervisor], None]
) -> None:
    before = list(supervisor.processes)
    change(supervisor)
    assert [one.exitcode for one in before] == [0, 0]
    supervisor.signal_queue.clear()
    supervisor.should_exit.set()
    supervisor.keep_subprocess_alive()
    assert warned(caplog) == []


def test_a_new_worker_that_cannot_start_ends_the_server(
    supervisor: _Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor.processes[0].exitcode = STARTUP_FAILURE  # type: ignore[misc]
    supervisor.keep_subprocess_alive()
    assert supervisor.failed
    assert not [one for one in warned(caplog) if "replaces" in one]


def test_a_reload_that_changes_the_tasks_of_a_model_is_warned_of(
    supervisor: _Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    for tasks in ("fill-mask", "text-classification", "text-classification"):
        supervisor.names.put([f"mine ({tasks})"])
    supervisor.keep_subprocess_alive()
    assert warned(caplog) == ["the models have other tasks than before: mine (text-classification)"]


def test_a_failed_reload_is_an_error_in_the_log(
    supervisor: _Supervisor, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Worker, "wait_until_ready", lambda *_: False)
    before = list(supervisor.processes)
    supervisor.handle_hup()
    assert supervisor.processes == before
    assert warned(caplog)[-1] == "the reload failed: 2 of 2 processes keep the old models"
