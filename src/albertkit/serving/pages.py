"""The playground: the files of `html/`, with headers that restrict the page to them."""

import hashlib
from collections.abc import Callable
from importlib.resources import files
from typing import Any

from albertkit.inspection.page import SHARED
from albertkit.serving.libraries import fastapi

PLAYGROUND = "/playground"
"""Path of the page. Its files are below this path."""

_PAGE = "playground.html"
_KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # browsers check the ETag each time
}


def add_pages(application: fastapi.FastAPI) -> list[str]:
    """Add the page and its files to an application, and redirect `/` to it. Return all paths."""
    html = files("albertkit.serving") / "html"
    shared = files("albertkit.inspection") / "html"
    paths = ["/"]
    for file in (*html.iterdir(), *(shared / name for name in SHARED)):
        path = PLAYGROUND if file.name == _PAGE else f"{PLAYGROUND}/{file.name}"
        kind = _KINDS[file.name.rpartition(".")[2]]
        application.add_route(path, _endpoint(file.read_bytes(), kind), include_in_schema=False)
        paths.append(path)

    async def to_the_page(request: fastapi.Request) -> fastapi.Response:
        del request
        return fastapi.responses.RedirectResponse(PLAYGROUND[1:])  # relative: a proxy may add to the path

    application.add_route("/", to_the_page, include_in_schema=False)
    return paths


def _endpoint(content: bytes, kind: str) -> Callable[..., Any]:
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = _HEADERS | {"ETag": tag}

    async def endpoint(request: fastapi.Request) -> fastapi.Response:
        if tag in request.headers.get("if-none-match", ""):
            return fastapi.Response(status_code=304, headers=headers)
        return fastapi.Response(content, headers=headers, media_type=f"{kind}; charset=utf-8")

    return endpoint
