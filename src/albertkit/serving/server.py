"""Start and stop a server in this process: the socket, the key, the signals."""

import copy
import errno
import gc
import logging
import os
import signal
import socket
import threading
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

from albertkit.allocator import return_memory
from albertkit.errors import ConfigError, DataError, UnknownTokensWarning
from albertkit.logs import TIME_FORMAT
from albertkit.serving.application import make_application
from albertkit.serving.connections import GuardedProtocol
from albertkit.serving.libraries import uvicorn
from albertkit.serving.service import MODEL, Service
from albertkit.serving.settings import KEY_VARIABLE, ServingSettings
from albertkit.text_files import read_text

logger = logging.getLogger("albertkit.serving")

BACKLOG = 2048  # connections that wait to be accepted
_DRAIN_MARGIN = 5  # seconds after the last deadline
_BINDING_HINTS = {
    errno.EADDRINUSE: "Choose another port with --port, or 0 for any.",
    errno.EACCES: "Choose a port above 1023 with --port, or run as a user who may use this port.",
}


_LOGGING = copy.deepcopy(uvicorn.config.LOGGING_CONFIG)  # with the time
_LOGGING["formatters"]["default"] |= {
    "fmt": "%(asctime)s %(levelprefix)s %(message)s",
    "datefmt": TIME_FORMAT,
}


def listen(settings: ServingSettings) -> socket.socket:
    """Return a socket that is bound to the host and port of the settings.

    Raises:
        OSError: the address is in use, or is not an address of this machine.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
    except OSError as error:
        listening.close()
        hint = _BINDING_HINTS.get(error.errno or 0, "Set --host to a name or an address of this machine.")
        message = f"cannot listen on {settings.host}:{settings.port}: {error.strerror}. {hint}"
        raise OSError(error.errno, message) from error
    return listening


def read_key(settings: ServingSettings) -> str | None:
    """Return the key that requests must send, or None if they need no key.

    Raises:
        ConfigError: the key is empty or has more than one word, or its file cannot be read.
    """
    if settings.key_file is not None:
        source = settings.key_file
        try:
            key = read_text(Path(source)).strip()
        except (OSError, DataError) as error:
            raise ConfigError(f"the key file cannot be read: {error}") from error
    elif KEY_VARIABLE in os.environ:
        source = f"the environment variable {KEY_VARIABLE}"
        key = os.environ[KEY_VARIABLE].strip()
    else:
        return None
    if len(key.split()) != 1:
        raise ConfigError(
            f"{source} has {len(key.split())} words. Expected the key, which is one word. To serve without a "
            f"key, unset {KEY_VARIABLE} and omit --key-file."
        )
    return key


def make_server(service: Service, *, key: str | None = None) -> uvicorn.Server:
    """Return a server for a service. Its `run(sockets=[...])` serves until `should_exit` is true."""
    return uvicorn.Server(uvicorn_config(make_application(service, key=key), service.settings))


def uvicorn_config(
    application: Callable[..., Any], settings: ServingSettings, **options: Any
) -> uvicorn.Config:
    """Return uvicorn's configuration for an application, or with `factory=True` for its factory."""
    return uvicorn.Config(
        application,
        http=cast(Any, partial(GuardedProtocol, client_seconds=settings.client_seconds)),
        ws="none",
        lifespan="off",
        log_config=_LOGGING,
        log_level="error",  # clients cause uvicorn's warnings, about malformed requests and upgrades
        access_log=False,
        server_header=False,
        timeout_keep_alive=max(1, round(settings.client_seconds)),
        timeout_graceful_shutdown=round(settings.max_seconds + _DRAIN_MARGIN),
        **options,
    )


def load_service(settings: ServingSettings) -> Service:
    """Load the models, and free the memory that loading took.

    Raises:
        AlbertKitError: A model cannot be loaded, or its scores are wrong.
    """
    # Clients send the texts. A hostile client could fill the log, and the memory: Python keeps every warning
    # that it has printed.
    warnings.simplefilter("ignore", UnknownTokensWarning)
    service = Service(settings)
    free_memory()
    return service


def free_memory() -> None:
    """Return the memory that loading took, and exclude the loaded objects from garbage collections."""
    gc.unfreeze()
    gc.collect()
    return_memory()
    gc.freeze()


def log_warnings() -> None:
    """Log each warning as one line: the model, and no line of code, which is always a line of the server."""

    def log(message: Warning | str, *_: object) -> None:
        model = MODEL.get(None)
        logger.warning("%s", message if model is None else f"{model}: {message}")

    warnings.showwarning = log


def serve(
    settings: ServingSettings, listening: socket.socket, ready: Callable[[list[str]], None] | None = None
) -> None:
    """Load the models and serve until SIGTERM or SIGINT. Then finish the requests in progress, and return.

    SIGHUP reloads the models.

    Args:
        settings: settings of the server.
        listening: bound socket; closed at the end.
        ready: called with a line for each model when the server accepts requests.

    Raises:
        AlbertKitError: a model cannot be loaded, or its scores are wrong.
    """
    with listening, warnings.catch_warnings():  # the server changes the filters and `showwarning`
        key = read_key(settings)
        service = load_service(settings)
        server = make_server(service, key=key)

        def end(*_: object) -> None:  # before and after the server handles the signals itself
            server.should_exit = True

        def reload() -> None:
            service.reload()
            free_memory()

        previous = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
        if hasattr(signal, "SIGHUP"):
            previous[signal.SIGHUP] = signal.signal(
                signal.SIGHUP, lambda *_: threading.Thread(target=reload, name="reload").start()
            )
        try:
            log_warnings()
            listening.listen(BACKLOG)
            if ready is not None:
                ready(service.describe())
            server.run(sockets=[listening])  # it handles SIGTERM and SIGINT while it runs
        finally:
            listening.close()
            service.close()
            gc.unfreeze()
            for number, handler in previous.items():
                signal.signal(number, handler)
