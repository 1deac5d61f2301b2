"""Serve models by name: `serve`."""

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from albertkit.errors import ConfigError
from albertkit.hub import BUNDLED
from albertkit.logs import lines_shown
from albertkit.recipe import build, takes_settings
from albertkit.serving.settings import KEY_VARIABLE, ServingSettings

logger = logging.getLogger(__name__)


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
        model: folders, hub names or "bundled". Requests name a model by its key in a dict, by NAME in
            "NAME=MODEL", or otherwise by the name of its folder.
        task: tasks of the pipelines, if the heads of the models do not determine them: "TASK" for a single
            model, "NAME=TASK", or a dict from names to tasks.
        ready: function that is called with the address and the names of the models when the server accepts
            requests; None logs them.
        **settings: fields of `ServingSettings`.

    Raises:
        MissingExtraError: the extra `serve` is not installed.
        ConfigError: a setting is unknown or out of range, two models have the same name, or the function is
            called in a notebook or in a thread other than the main thread.
        AlbertKitError: a model cannot be loaded, or its scores differ from the reference.
    """
    chosen = named_settings(model, task, settings)
    _check_thread()
    from albertkit.serving import server

    with lines_shown(with_time=True):
        is_local = chosen.host in ("localhost", "::1") or chosen.host.startswith("127.")
        key = server.read_key(chosen)
        listening = server.listen(chosen)
        if key is None and not is_local:
            logger.warning(
                "other machines can reach %s, and requests need no key. To require a key, pass --key-file "
                "or set %s.",
                chosen.host,
                KEY_VARIABLE,
            )
        announce = partial(ready or _log, _address(listening))
        if chosen.workers == 1:
            server.serve(chosen, listening, ready=announce)
        else:
            from albertkit.serving.workers import serve_in_processes

            serve_in_processes(chosen, listening, ready=announce)


def _log(address: str, names: list[str]) -> None:
    logger.info("serving %s on %s", ", ".join(names), address)


def named_settings(model: Any, task: Any, settings: Mapping[str, Any]) -> ServingSettings:
    """Return the settings of a server from the arguments of `serve`."""
    models = _named(model, "model")
    tasks = _named(task, "task", default=next(iter(models)) if len(models) == 1 else None)
    return build(ServingSettings, {"models": models, "tasks": tasks, **settings}, where="settings")


def _check_thread() -> None:
    is_main, has_loop = threading.current_thread() is threading.main_thread(), False
    with suppress(RuntimeError):
        has_loop = bool(asyncio.get_running_loop())
    if has_loop or not is_main:
        where = "while an event loop runs, as in a notebook" if has_loop else "in a thread"
        raise ConfigError(
            f"serve was called {where}. Expected the main thread, without an event loop. Run `albertkit "
            "serve` in a terminal."
        )


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _named(given: Any, kind: str, *, default: str | None = None) -> dict[str, str]:
    """Return models or tasks by name. The default name of a model is the name of its folder."""
    if isinstance(given, Mapping):
        return {name: str(value) for name, value in given.items()}
    named: dict[str, str] = {}
    for text in [given] if isinstance(given, str | Path) else given:
        name, value = _split_model(str(text)) if kind == "model" else _split_task(str(text), default)
        if not name or not value:
            raise ConfigError(
                f"--{kind} is {str(text)!r}. Expected NAME={kind.upper()}, because requests need a name."
            )
        if name in named:
            raise ConfigError(f"two --{kind} have the name {name!r}. Choose another: NAME={kind.upper()}.")
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


def _split_task(given: str, default: str | None) -> tuple[str, str]:
    """Return the name and the task of `[NAME=]TASK`. No task contains "="."""
    name, equals, task = given.rpartition("=")
    return name if equals else default or "", task
