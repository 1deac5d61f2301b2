"""Serve models by name: `serve`, with its socket, key and signals, in one or several processes."""

import asyncio
import atexit
import errno
import gc
import logging
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from albertkit.allocator import return_memory
from albertkit.cores import VARIABLE, usable_cores
from albertkit.errors import AlbertKitError, ConfigError, UnknownTokensWarning
from albertkit.hub import BUNDLED
from albertkit.recipe import build, takes_settings
from albertkit.serving.app import Service, make_application
from albertkit.serving.libraries import uvicorn
from albertkit.serving.metrics import FOLDER_VARIABLE
from albertkit.serving.request_log import CURRENT, lines_logged
from albertkit.serving.settings import KEY_VARIABLE, ServingSettings
from albertkit.text_files import read_text

logger = logging.getLogger("albertkit.serving")

BACKLOG = 2048  # connections that wait to be accepted
_DRAIN_MARGIN = 5  # seconds after the last deadline
_LOADING_SECONDS = 120  # maximum time until a new worker answers the supervisor
_MAX_HEAD = 65_536  # bytes of the head of a request
_BINDING_HINTS = {
    errno.EADDRINUSE: "Choose another port, or 0 for any free port.",
    errno.EACCES: "Choose a port above 1023, or run as a user who may use this port.",
}


@takes_settings(ServingSettings)
def serve(
    model: str | Path | Sequence[str | Path] | Mapping[str, str | Path] = BUNDLED,
    task: str | Sequence[str] | Mapping[str, str] = (),
    *,
    ready: Callable[[str, list[str]], None] | None = None,
    **settings: Any,
) -> None:
    """Serve models over HTTP until SIGTERM or Ctrl-C, then finish the requests in progress and return.

    Args:
        model: model folder, Hugging Face Hub name, or 'bundled'. Requests refer to the model by NAME in
            NAME=MODEL (default: the last part of MODEL). Can be repeated. In Python also a list, or a dict
            from names to models.
        task: pipeline task of a model as NAME=TASK, if its head does not determine it. Can be repeated. In
            Python also a list, or a dict from names to tasks.
        ready: function that is called with the address and the names of the models when the server accepts
            requests; None logs them.
        **settings: fields of `ServingSettings`.

    Raises:
        MissingExtraError: the `serve` extra is not installed.
        ConfigError: a setting is unknown or out of range, two models have the same name, or the function is
            called in a notebook or in a thread other than the main thread.
        AlbertKitError: a model cannot be loaded, or its scores differ from the reference.
    """
    chosen = named_settings(model, task, settings)
    _check_thread()
    with lines_logged(chosen.log_format), ExitStack() as sockets:
        is_local = chosen.host in ("localhost", "::1") or chosen.host.startswith("127.")
        key = read_key(chosen)
        listening = [sockets.enter_context(listen(chosen))]
        if chosen.metrics_port is not None:
            other = replace(chosen, port=chosen.metrics_port, metrics_port=None)
            listening.append(sockets.enter_context(listen(other)))
            chosen = replace(chosen, metrics_port=listening[1].getsockname()[1])
        if key is None and not is_local:
            logger.warning(
                "other machines can send requests without a key. To require one, pass --key-file or set %s.",
                KEY_VARIABLE,
            )
        host, port = listening[0].getsockname()[:2]
        host = f"[{host}]" if ":" in host else host

        def announce(names: list[str]) -> None:
            if chosen.metrics_port is not None:
                logger.info("serving /metrics, /healthz and /readyz on port %d", chosen.metrics_port)
            if ready is None:
                logger.info("serving %s on http://%s:%d", ", ".join(names), host, port)
            else:
                ready(f"http://{host}:{port}", names)

        if chosen.workers == 1:
            serve_here(chosen, listening, ready=announce)
        else:
            _serve_in_processes(chosen, listening, ready=announce)


def named_settings(model: Any, task: Any, settings: Mapping[str, Any]) -> ServingSettings:
    """Return the settings of a server from the arguments of `serve`."""
    models = _named(model, "model")
    tasks = _named(task, "task", default=next(iter(models)) if len(models) == 1 else None)
    return build(ServingSettings, {"models": models, "tasks": tasks, **settings}, where="settings")


def _check_thread() -> None:
    """Raise ConfigError where signals cannot be handled."""
    where = None if threading.current_thread() is threading.main_thread() else "in a thread"
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        where = "while an event loop was running, as in a notebook"
    if where is not None:
        todo = "Run `albertkit serve` in a terminal."
        raise ConfigError(f"serve was called {where}. Expected the main thread. {todo}")


def _named(given: Any, kind: str, *, default: str | None = None) -> dict[str, str]:
    """Return models or tasks by name. The default name of a model is the name of its folder."""
    if isinstance(given, Mapping):
        return {name: str(value) for name, value in given.items()}
    named: dict[str, str] = {}
    for text in map(str, [given] if isinstance(given, str | Path) else given):
        if kind == "model":
            name, value = _split_model(text)
        else:  # no task contains "="
            name, _, value = text.rpartition("=")
            name = name or default or ""
        if not name or not value:
            raise ConfigError(f"{kind} is {text!r}. Expected NAME={kind.upper()}.")
        if name in named:
            raise ConfigError(f"two values of {kind} have the name {name!r}. Expected different names.")
        named[name] = value
    return named


def _split_model(given: str) -> tuple[str, str]:
    """Return the name and the model of `[NAME=]MODEL`."""
    name, equals, value = given.partition("=")
    path = Path(given)
    # A path can contain "=" too, as in runs/lr=0.001/best. An existing path is a path.
    if equals and Path(name).name == name and not path.exists():
        return name, value
    return (path.resolve() if path.name in ("", "..") else path).name, given


def listen(settings: ServingSettings) -> socket.socket:
    """Return a socket that is bound to the host and port of the settings."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
    except OSError as error:
        listening.close()
        hint = _BINDING_HINTS.get(error.errno or 0, "Set host to a name or an address of this machine.")
        message = f"cannot listen on {settings.host}:{settings.port}: {error.strerror}. {hint}"
        raise OSError(error.errno, message) from error
    return listening


def read_key(settings: ServingSettings) -> str | None:
    """Return the key that requests must send, or None if they need no key."""
    source, key = f"the environment variable {KEY_VARIABLE}", os.environ.get(KEY_VARIABLE)
    if settings.key_file is not None:
        source, key = settings.key_file, read_text(Path(settings.key_file))
    if key is None:
        return None
    if len(key.split()) != 1:
        todo = f"To serve without a key, unset {KEY_VARIABLE} and key_file."
        raise ConfigError(
            f"{source} has {len(key.split())} words. Expected the key, which is one word. {todo}"
        )
    return key.strip()


def make_server(service: Service, *, key: str | None = None) -> uvicorn.Server:
    """Return a server for a service. Its `run(sockets=[...])` serves until `should_exit` is true."""
    return uvicorn.Server(uvicorn_config(make_application(service, key=key), service.settings))


def uvicorn_config(
    application: Callable[..., Any], settings: ServingSettings, **options: Any
) -> uvicorn.Config:
    """Return uvicorn's configuration for an application, or with `factory=True` for its factory."""
    return uvicorn.Config(
        application,
        http="h11",  # limits the size of a head
        h11_max_incomplete_event_size=_MAX_HEAD,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",  # clients cause uvicorn's warnings, about malformed requests and upgrades
        access_log=False,
        server_header=False,
        timeout_keep_alive=max(1, round(settings.client_seconds)),
        timeout_graceful_shutdown=round(settings.max_seconds + _DRAIN_MARGIN),
        **options,
    )


def load_service(settings: ServingSettings) -> Service:
    """Load the models, and free the memory that loading took."""
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


def log_warning(message: Warning | str, *_: object) -> None:
    """Log a warning as one line: the model, and no line of code, which is always a line of the server."""
    current = CURRENT.get(None)
    logger.warning("%s", f"{current.model}: {message}" if current and current.model else message)


def serve_here(
    settings: ServingSettings,
    listening: Sequence[socket.socket],
    ready: Callable[[list[str]], None] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then finish the requests in progress. SIGHUP reloads the models."""
    with warnings.catch_warnings():  # the server changes the filters and `showwarning`
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
            warnings.showwarning = log_warning
            for each in listening:
                each.listen(BACKLOG)
            if ready is not None:
                ready([f"{name} ({', '.join(each.pipelines)})" for name, each in service.models.items()])
            server.run(sockets=[*listening])  # it handles SIGTERM and SIGINT while it runs
        finally:
            for each in listening:
                each.close()
            service.close()
            gc.unfreeze()
            for number, handler in previous.items():
                signal.signal(number, handler)


def _serve_in_processes(
    settings: ServingSettings, listening: Sequence[socket.socket], ready: Callable[[list[str]], None]
) -> None:
    """Serve with `settings.workers` processes until SIGTERM or SIGINT.

    uvicorn's supervisor replaces workers that die, and all workers on SIGHUP, so that the models are loaded
    again. If a worker cannot load a model, it ends all.
    """
    from uvicorn.config import STARTUP_FAILURE
    from uvicorn.supervisors import Multiprocess

    class Supervisor(Multiprocess):
        def keep_subprocess_alive(self) -> None:
            for process in self.processes:
                process.child_conn.close()  # otherwise the wait for an answer goes on after a worker's end
            super().keep_subprocess_alive()

    threads = max(1, usable_cores() // settings.workers)
    load = partial(_load_application, settings, threads)
    options = {"workers": settings.workers, "timeout_worker_healthcheck": _LOADING_SECONDS}
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    try:
        with tempfile.TemporaryDirectory(prefix="albertkit-metrics-") as folder:
            os.environ[FOLDER_VARIABLE] = folder
            for each in listening:
                each.listen(BACKLOG)  # connections wait until a worker has loaded the models
            ready([f"{', '.join(settings.models)} (starting {settings.workers} processes)"])
            supervisor = Supervisor(uvicorn_config(load, settings, factory=True, **options), [*listening])
            logging.getLogger("uvicorn.error").setLevel(logging.INFO)  # it logs the workers that died
            supervisor.run()
    finally:
        os.environ.pop(FOLDER_VARIABLE, None)
        for number, handler in handlers.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)
    if any(process.exitcode == STARTUP_FAILURE for process in supervisor.processes):
        raise ConfigError("a worker process failed to start. See its error above.")


def _load_application(settings: ServingSettings, threads: int) -> Callable[..., Any]:
    """Load the models in a worker, and return the application."""
    from uvicorn.config import STARTUP_FAILURE

    os.environ.setdefault(VARIABLE, str(threads))
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    lines = ExitStack()
    lines.enter_context(lines_logged(settings.log_format))
    atexit.register(lines.close)
    warnings.showwarning = log_warning
    try:
        key = read_key(settings)
        service = load_service(settings)
    except Exception as error:  # with any other exit status the supervisor would start workers forever
        is_expected = isinstance(error, AlbertKitError | OSError)
        logger.error("%s", error, exc_info=not is_expected)
        lines.close()
        os._exit(STARTUP_FAILURE)
    return make_application(service, key=key)


def _exit_with_parent() -> None:
    """Stop this worker when the supervisor is gone, even if it was killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
