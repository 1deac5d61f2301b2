"""The verbs serve and playground: models over HTTP, for programs and for people."""

import socket
import threading
import webbrowser
from pathlib import Path
from typing import Annotated, Any

import typer

from albertkit.cli.completing import PIPELINE_TASKS, models, named, one_of
from albertkit.cli.flags import settings_flags
from albertkit.cli.options import Device
from albertkit.errors import ConfigError
from albertkit.hub import BUNDLED
from albertkit.serving.settings import KEY_VARIABLE, ServingSettings

Models = Annotated[
    list[str],
    typer.Option(
        help="A folder, a name on the Hugging Face hub, or 'bundled', and what requests call it; may be "
        "given several times.",
        metavar="[NAME=]MODEL",
        autocompletion=named(models),
    ),
]
Tasks = Annotated[
    list[str],
    typer.Option(
        help="The task of a pipeline, where a model's head does not say it.",
        metavar="[NAME=]TASK",
        autocompletion=named(one_of(PIPELINE_TASKS)),
    ),
]


@settings_flags(ServingSettings, parameter="flags")
def serve(
    model: Models = [BUNDLED],  # noqa: B006 - typer copies it
    task: Tasks = [],  # noqa: B006
    *,
    flags: dict[str, Any],
) -> None:
    """Serve models over HTTP: JSON in and out, described at /openapi.json, until SIGTERM.

    Example: albertkit serve --model bundled --model reviews=runs/reviews --port 8080
    """
    settings = _settings(model, task, **flags)
    from albertkit.serving.server import is_loopback, listen, read_key, serve

    if read_key(settings) is None and not is_loopback(settings.host):
        typer.echo(
            f"warning: {settings.host} can be reached from other machines, and no key is asked for; give "
            f"--key-file, or set {KEY_VARIABLE}",
            err=True,
        )
    listening = listen(settings)
    address = _address(listening)

    def announce(names: list[str]) -> None:
        typer.echo(f"serving {', '.join(names)} on {address}")
        if settings.playground:
            typer.echo(f"the playground is at {address}/playground")

    if settings.workers == 1:
        serve(settings, listening, ready=announce)
        return
    from albertkit.serving.workers import serve_in_processes

    serve_in_processes(settings, listening, ready=announce)


def playground(
    model: Models = [BUNDLED],  # noqa: B006
    task: Tasks = [],  # noqa: B006
    port: Annotated[int, typer.Option(help="Port to listen on; 0 for any that is free.")] = 0,
    device: Device = None,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
) -> None:
    """Try models in the browser: a page on this machine alone, until Ctrl-C.

    Example: albertkit playground --model bundled --model reviews=runs/reviews
    """
    settings = _settings(model, task, port=port, device=device, playground=True)
    from albertkit.serving.server import listen, serve

    listening = listen(settings)
    address = f"{_address(listening)}/playground"

    def announce(names: list[str]) -> None:
        typer.echo(f"{', '.join(names)} in the playground at {address}")
        if browser:
            # In a thread: the call lasts as long as a browser of the terminal.
            threading.Thread(target=_open, args=(address,), daemon=True).start()

    serve(settings, listening, ready=announce)


def _open(address: str) -> None:
    if not webbrowser.open(address):
        typer.echo("there is no browser to open it with; copy the address into one", err=True)


def _settings(model: list[str], task: list[str], **others: Any) -> ServingSettings:
    models = _named(model, "model")
    tasks = _named(task, "task", default=next(iter(models)) if len(models) == 1 else None)
    return ServingSettings(models=models, tasks=tasks, **others)


def _address(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _named(given: list[str], what: str, *, default: str | None = None) -> dict[str, str]:
    """Return what is given by name; without names, a model is called as its folder is."""
    found: dict[str, str] = {}
    for one in given:
        name, value = _split_model(one) if what == "model" else _split_task(one, default)
        if not name or not value:
            raise ConfigError(f"--{what} is {one!r}; expected NAME={what.upper()}: requests need a name")
        if name in found:
            raise ConfigError(f"two of --{what} are for the name {name!r}; give NAME={what.upper()}")
        found[name] = value
    return found


def _split_model(given: str) -> tuple[str, str]:
    """Return the name and the model of `[NAME=]MODEL`."""
    name, equals, value = given.partition("=")
    path = Path(given)
    # A path may hold the character too, runs/lr=0.001/best; a folder that exists is one.
    if equals and Path(name).name == name and not path.exists():
        return name, value
    return (path.resolve() if path.name in ("", "..") else path).name, given


def _split_task(given: str, default: str | None) -> tuple[str, str]:
    """Return the name and the task of `[NAME=]TASK`; no task holds the character."""
    name, equals, task = given.rpartition("=")
    return name if equals else default or "", task
