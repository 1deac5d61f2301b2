"""Several processes that serve one socket; the one that was started looks after them."""

import logging
import multiprocessing
import multiprocessing.context
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from types import FrameType
from typing import Any

from albertkit.cores import VARIABLE, usable_cores
from albertkit.errors import AlbertKitError, ConfigError
from albertkit.serving.metrics import FOLDER_VARIABLE, forget_process
from albertkit.serving.settings import ServingSettings

logger = logging.getLogger("albertkit.serving")

_RELOAD: int = getattr(signal, "SIGHUP", 0)  # Windows has none
_PAUSE = 0.2  # seconds between looks
_CONTEXT = multiprocessing.get_context("spawn")  # threads do not survive a fork
_Process = tuple[multiprocessing.context.SpawnProcess, float]
_SHORTEST_LIFE = 5.0  # seconds; a process that ends sooner ended at its start


def serve_in_processes(
    settings: ServingSettings, listening: socket.socket, ready: Callable[[list[str]], None]
) -> None:
    """Serve with `settings.workers` processes until SIGTERM or SIGINT; SIGHUP goes to all.

    A process that dies is replaced; one that cannot start ends all.

    Args:
        settings: of the server.
        listening: bound; closed at the end.
        ready: is told what is served when the first process answers.

    Raises:
        ConfigError: a process ended at its start; it has said why.
    """
    os.environ.setdefault(VARIABLE, str(max(1, usable_cores() // settings.workers)))
    ending = announced = False

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal ending
        del number, frame
        ending = True

    previous: dict[int, Any] = {one: signal.signal(one, end) for one in (signal.SIGTERM, signal.SIGINT)}
    with tempfile.TemporaryDirectory(prefix="albertkit-metrics-") as folder:
        os.environ[FOLDER_VARIABLE] = folder
        names = _CONTEXT.SimpleQueue()
        processes = [_start(settings, listening, names) for _ in range(settings.workers)]
        if _RELOAD:
            previous[_RELOAD] = signal.signal(_RELOAD, lambda *_: _tell(processes, _RELOAD))
        try:
            while not ending:
                time.sleep(_PAUSE)
                while not names.empty():
                    served = names.get()
                    if not announced:
                        ready(served)
                    announced = True
                for number, (process, begin) in enumerate(processes):
                    if process.is_alive() or ending:
                        continue
                    if process.pid is not None:
                        forget_process(process.pid)
                    early = time.monotonic() - begin < _SHORTEST_LIFE or process.exitcode == 1
                    if early and process.exitcode != -_RELOAD:  # which came before it was listened to
                        raise ConfigError("a process of the server ended at its start; see its error above")
                    logger.error("a process ended with status %s; another takes its place", process.exitcode)
                    processes[number] = _start(settings, listening, names)
        finally:
            _tell(processes, signal.SIGTERM)
            listening.close()
            for process, _ in processes:
                process.join()
            del os.environ[FOLDER_VARIABLE]
            for one, handler in previous.items():
                signal.signal(one, handler)


def _start(settings: ServingSettings, listening: socket.socket, names: Any) -> _Process:
    process = _CONTEXT.Process(target=_serve, args=(settings, listening, names))
    process.start()
    return process, time.monotonic()


def _serve(settings: ServingSettings, listening: socket.socket, names: Any) -> None:
    from albertkit.serving.server import serve

    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        wait([parent.sentinel])  # also where it was killed
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=follow, daemon=True).start()
    try:
        serve(settings, listening, ready=names.put)
    except (AlbertKitError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)


def _tell(processes: list[_Process], number: int) -> None:
    for process, _ in processes:
        if process.is_alive() and process.pid is not None:
            os.kill(process.pid, number)
