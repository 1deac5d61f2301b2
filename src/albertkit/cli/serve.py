"""The verbs serve and playground: models over HTTP, for programs and for people."""

import threading
import webbrowser
from typing import Annotated, Any

import typer

from albertkit.cli.completing import PIPELINE_TASKS, models, named, one_of
from albertkit.cli.flags import settings_flags
from albertkit.cli.options import Device
from albertkit.hub import BUNDLED
from albertkit.serving.settings import ServingSettings

Models = Annotated[
    list[str],
    typer.Option(
        help="Model folder, Hugging Face Hub name, or 'bundled'. Requests refer to the model by NAME "
        "(default: the last part of MODEL). Can be repeated.",
        metavar="[NAME=]MODEL",
        autocompletion=named(models),
    ),
]
Tasks = Annotated[
    list[str],
    typer.Option(
        help="Pipeline task of a model, if its head does not determine the task. Can be repeated.",
        metavar="[NAME=]TASK",
        autocompletion=named(one_of(PIPELINE_TASKS)),
    ),
]


@settings_flags(ServingSettings, parameter="flags", panel="server")
def serve(
    model: Models = [BUNDLED],  # noqa: B006 - typer copies it
    task: Tasks = [],  # noqa: B006
    *,
    flags: dict[str, Any],
) -> None:
    """Serve models over HTTP with a JSON API, until SIGTERM or Ctrl-C.

    The server describes its API at /openapi.json.

    Example: albertkit serve --model bundled --model reviews=runs/reviews --port 8080
    """
    from albertkit.serving.start import serve

    def announce(address: str, names: list[str]) -> None:
        typer.echo(f"serving {', '.join(names)} on {address}")
        if flags.get("playground"):
            typer.echo(f"the playground is at {address}/playground")

    serve(model, task, ready=announce, **flags)


def playground(
    model: Models = [BUNDLED],  # noqa: B006
    task: Tasks = [],  # noqa: B006
    port: Annotated[int, typer.Option(help="Port to listen on; 0 for any free port.")] = 0,
    device: Device = None,
    browser: Annotated[bool, typer.Option(help="Open the page in your browser.")] = True,
) -> None:
    """Serve a page for trying models in your browser, to this machine only, until Ctrl-C.

    Example: albertkit playground --model bundled --model reviews=runs/reviews
    """
    from albertkit.serving.start import serve

    def announce(address: str, names: list[str]) -> None:
        page = f"{address}/playground"
        typer.echo(f"{', '.join(names)} in the playground at {page}")
        if browser:
            # In a thread: the call lasts as long as a browser of the terminal.
            threading.Thread(target=_open, args=(page,), daemon=True).start()

    serve(model, task, ready=announce, port=port, device=device, playground=True)


def _open(address: str) -> None:
    if not webbrowser.open(address):
        typer.echo("no browser could be opened. Copy the address into your browser.", err=True)
