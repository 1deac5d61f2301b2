"""Several worker processes on one socket, under uvicorn's supervisor."""

import atexit
import logging
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.queues import SimpleQueue
from typing import Any

from uvicorn.config import STARTUP_FAILURE, Config
from uvicorn.supervisors import Multiprocess

from albertkit.cores import VARIABLE, usable_cores
from albertkit.errors import AlbertKitError, ConfigError
from albertkit.logs import lines_shown
from albertkit.serving.application import make_application
from albertkit.serving.metrics import FOLDER_VARIABLE, Metrics
from albertkit.serving.server import BACKLOG, load_service, log_warnings, read_key, uvicorn_config
from albertkit.serving.settings import ServingSettings

logger = logging.getLogger("albertkit.serving")

_LOADING_SECONDS = 120  # maximum time until a new worker answers the supervisor


def serve_in_processes(
    settings: ServingSettings, listening: socket.socket, ready: Callable[[list[str]], None]
) -> None:
    """Serve with `settings.workers` processes until SIGTERM or SIGINT.

    A worker that dies is replaced. On SIGHUP, workers are replaced one after another, so that the models are
    loaded again; if a new worker fails to start, the old ones continue.

    Args:
        settings: Settings of the server.
        listening: Bound socket; closed at the end.
        ready: Called with the names of the models when the first worker accepts requests.

    Raises:
        ConfigError: A worker failed to start. It has printed the reason.
    """
    threads = max(1, usable_cores() // settings.workers)
    names = multiprocessing.get_context("spawn").SimpleQueue()
    config = uvicorn_config(
        partial(_load_application, settings, names, threads),
        settings,
        factory=True,
        workers=settings.workers,
        timeout_worker_healthcheck=_LOADING_SECONDS,
    )
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    try:
        with tempfile.TemporaryDirectory(prefix="albertkit-metrics-") as folder:
            os.environ[FOLDER_VARIABLE] = folder
            supervisor = _Supervisor(config, listening, names, ready)
            try:
                supervisor.run()
            except BaseException:  # of `ready`
                supervisor.terminate_all()
                supervisor.join_all()
                raise
    finally:
        os.environ.pop(FOLDER_VARIABLE, None)
        listening.close()
        for number, handler in handlers.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)
    if supervisor.failed:
        raise ConfigError("a worker process failed to start. See its error above.")


class _Supervisor(Multiprocess):
    """uvicorn's supervisor; it also stops if a worker dies before any worker has loaded the models.

    Each worker sends the names of its models to the queue `names`.
    """

    def __init__(
        self,
        config: Config,
        listening: socket.socket,
        names: "SimpleQueue[list[str]]",
        ready: Callable[[list[str]], None],
    ) -> None:
        super().__init__(config, [listening])
        self.listening = listening
        self.names = names
        self.ready = ready
        self._names: list[str] = []  # the models, once a worker has loaded them
        self._died_early = False

    @property
    def failed(self) -> bool:
        """Whether the supervisor stopped because a worker failed to start."""
        return self._died_early or any(process.exitcode == STARTUP_FAILURE for process in self.processes)

    def init_processes(self) -> None:
        """Start the workers."""
        super().init_processes()
        for process in self.processes:
            # The supervisor waits for a worker's answer until the last copy of this end is closed.
            process.child_conn.close()

    def keep_subprocess_alive(self) -> None:
        """Accept connections once a worker has loaded the models. From then on, replace workers that die."""
        while not self.names.empty():  # workers block if the queue is full
            names = self.names.get()
            if not self._names:
                self.listening.listen(BACKLOG)
                self.ready(names)
            elif names != self._names:
                logger.warning("the models have other tasks than before: %s", ", ".join(names))
            self._names = names
        if self._names:
            before = [(process, process.process.is_alive()) for process in self.processes]
            super().keep_subprocess_alive()
            for (old, was_alive), new in zip(before, self.processes, strict=True):
                if old is not new and not self.signal_queue:  # Ctrl-C also ends the workers
                    reason = _reason(old.exitcode, was_alive, self.config.timeout_worker_healthcheck)
                    logger.warning("worker process %s %s. Process %s replaces it.", old.pid, reason, new.pid)
        elif not all(process.process.is_alive() for process in self.processes):
            self._died_early = not (self.signal_queue or self.should_exit.is_set())
            self.should_exit.set()

    def handle_hup(self) -> None:
        """Replace the workers, and log whether all are replaced."""
        before = list(self.processes)
        load = self.config.app
        self.config.app = partial(load, is_reload=True)  # type: ignore[arg-type]
        super().handle_hup()
        self.config.app = load
        kept = sum(old is new for old, new in zip(before, self.processes, strict=True))
        if not kept:
            logger.info("reloaded the models in %d processes", len(before))
        elif not self.should_exit.is_set():
            logger.error("the reload failed: %d of %d processes keep the old models", kept, len(before))


def _reason(exitcode: int | None, was_alive: bool, seconds: float) -> str:
    """Return why a worker is replaced; `was_alive` when the supervisor asked it for an answer."""
    if exitcode is None or exitcode >= 0:
        return f"ended with exit status {exitcode}"
    if was_alive and -exitcode == getattr(signal, "SIGKILL", signal.SIGTERM):  # the supervisor killed it
        return f"did not answer for {seconds:g} seconds and was killed"
    try:
        return f"was terminated by {signal.Signals(-exitcode).name}"
    except ValueError:  # a signal without a name
        return f"was terminated by signal {-exitcode}"


def _load_application(
    settings: ServingSettings, names: "SimpleQueue[list[str]]", threads: int, *, is_reload: bool = False
) -> Callable[..., Any]:
    """Load the models in a worker, and return the application."""
    os.environ.setdefault(VARIABLE, str(threads))
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    lines = ExitStack()
    lines.enter_context(lines_shown(with_time=True))
    atexit.register(lines.close)
    log_warnings()
    outcome = "failed"
    try:
        key = read_key(settings)
        service = load_service(settings)
        outcome = "done"
    except Exception as error:  # with any other exit status the supervisor would start workers forever
        is_expected = isinstance(error, AlbertKitError | OSError)
        logger.error("%s", error, exc_info=not is_expected)
        sys.exit(STARTUP_FAILURE)
    finally:
        if is_reload:
            reloads = Metrics().reloads
            for name in settings.models:
                reloads.labels(name, outcome).inc()
    names.put(service.describe())
    return make_application(service, key=key)


def _exit_with_parent() -> None:
    """Stop this worker when the supervisor is gone, even if it was killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
