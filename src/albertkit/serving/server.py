"""Starting and ending: the socket, the signals, one process or several."""

import logging
import os
import signal
import socket
import threading
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, cast

from albertkit.errors import ConfigError, UnknownTokensWarning
from albertkit.serving.application import make_application
from albertkit.serving.connections import GuardedProtocol
from albertkit.serving.libraries import uvicorn
from albertkit.serving.memory import GarbageCollector
from albertkit.serving.service import Service
from albertkit.serving.settings import KEY_VARIABLE, ServingSettings

logger = logging.getLogger("albertkit.serving")

BACKLOG = 2048  # connections that wait to be accepted
_DRAIN_MARGIN = 5  # seconds after the last deadline


def listen(settings: ServingSettings) -> socket.socket:
    """Return a socket that listens where the settings say.

    Raises:
        OSError: the address is taken, or not one of this machine's.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
    except OSError as error:
        listening.close()
        raise OSError(
            error.errno, f"cannot listen on {settings.host}:{settings.port}: {error.strerror}"
        ) from error
    return listening


def read_key(settings: ServingSettings) -> str | None:
    """Return the key that requests must bring, None for none.

    Raises:
        ConfigError: the key is empty or more than one word, or its file cannot be read.
    """
    if settings.key_file is not None:
        source = settings.key_file
        try:
            key = Path(source).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the file of the key cannot be read: {error}") from error
    elif KEY_VARIABLE in os.environ:
        source = f"the environment variable {KEY_VARIABLE}"
        key = os.environ[KEY_VARIABLE].strip()
    else:
        return None
    if len(key.split()) != 1:
        raise ConfigError(
            f"{source} holds {len(key.split())} words; expected the key, one word. To serve without a key, "
            f"unset {KEY_VARIABLE} and give no --key-file"
        )
    return key


def make_server(
    service: Service, *, key: str | None = None, garbage: GarbageCollector | None = None
) -> uvicorn.Server:
    """Return a server for a service; `run(sockets=[...])` serves until `should_exit`."""
    application = make_application(service, key=key, garbage=garbage or GarbageCollector())
    return uvicorn.Server(uvicorn_config(application, service.settings))


def uvicorn_config(
    application: Callable[..., Any], settings: ServingSettings, **options: Any
) -> uvicorn.Config:
    """Return uvicorn's configuration for an application, or for a factory of it (`factory=True`)."""
    return uvicorn.Config(
        application,
        http=cast(Any, partial(GuardedProtocol, patience=settings.client_seconds)),
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_keep_alive=max(1, round(settings.client_seconds)),
        timeout_graceful_shutdown=round(settings.max_seconds + _DRAIN_MARGIN),
        **options,
    )


def load_service(settings: ServingSettings) -> tuple[Service, GarbageCollector]:
    """Load the models, and free the memory that loading took.

    Raises:
        AlbertKitError: A model cannot be loaded, or its scores are wrong.
    """
    # Clients send the texts. A hostile one could fill the log, and the memory: Python keeps each warning
    # that it has shown.
    warnings.simplefilter("ignore", UnknownTokensWarning)
    service, garbage = Service(settings), GarbageCollector()
    garbage.settle()
    return service, garbage


def serve(
    settings: ServingSettings, listening: socket.socket, ready: Callable[[list[str]], None] | None = None
) -> None:
    """Load the models and serve until SIGTERM or SIGINT; then answer what has come, and return.

    SIGHUP loads the models anew.

    Args:
        settings: of the server.
        listening: bound; closed at the end.
        ready: is told what is served, model by model, when requests are answered.

    Raises:
        AlbertKitError: a model that cannot be loaded, or gives wrong answers.
    """
    key = read_key(settings)
    service, garbage = load_service(settings)
    server = make_server(service, key=key, garbage=garbage)

    def end(number: int, frame: FrameType | None) -> None:  # until, and after, the server takes them itself
        del number, frame
        server.should_exit = True

    def reload() -> None:
        service.reload()
        garbage.settle()

    previous = {one: signal.signal(one, end) for one in (signal.SIGTERM, signal.SIGINT)}
    if hasattr(signal, "SIGHUP"):
        previous[signal.SIGHUP] = signal.signal(
            signal.SIGHUP, lambda *_: threading.Thread(target=reload, name="reload").start()
        )
    try:
        listening.listen(BACKLOG)
        if ready is not None:
            ready(service.describe())
        server.run(sockets=[listening])  # it takes the two signals while it runs
    finally:
        listening.close()
        service.close()
        garbage.release()
        for one, handler in previous.items():
            signal.signal(one, handler)


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address."""
    return host == "localhost" or host.startswith("127.") or host == "::1"
