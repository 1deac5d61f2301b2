"""Several worker processes on one socket, under uvicorn's supervisor."""

import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import wait
from typing import Any

from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from albertkit.cores import VARIABLE, usable_cores
from albertkit.errors import AlbertKitError, ConfigError
from albertkit.serving.application import make_application
from albertkit.serving.metrics import FOLDER_VARIABLE
from albertkit.serving.server import BACKLOG, load_service, read_key, uvicorn_config
from albertkit.serving.settings import ServingSettings

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
    os.environ.setdefault(VARIABLE, str(max(1, usable_cores() // settings.workers)))
    names = multiprocessing.get_context("spawn").SimpleQueue()
    config = uvicorn_config(
        partial(_load_application, settings, names), settings, factory=True, workers=settings.workers
    )
    config.timeout_worker_healthcheck = _LOADING_SECONDS

    def announce() -> None:
        served = names.get()
        listening.listen(BACKLOG)
        ready(served)

    threading.Thread(target=announce, daemon=True).start()
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    try:
        with tempfile.TemporaryDirectory(prefix="albertkit-metrics-") as folder:
            os.environ[FOLDER_VARIABLE] = folder
            supervisor = Multiprocess(config, [listening])
            supervisor.run()
    finally:
        del os.environ[FOLDER_VARIABLE]
        listening.close()
        for number, handler in handlers.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)
    if any(process.exitcode == STARTUP_FAILURE for process in supervisor.processes):
        raise ConfigError("a worker process failed to start; see its error above")


def _load_application(settings: ServingSettings, names: Any) -> Callable[..., Any]:
    """Load the models in a worker, and return the application."""
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    try:
        key = read_key(settings)
        service, garbage = load_service(settings)
    except (AlbertKitError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(STARTUP_FAILURE)
    names.put(service.describe())
    return make_application(service, key=key, garbage=garbage)


def _exit_with_parent() -> None:
    """Stop this worker when the supervisor is gone, even if it was killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
