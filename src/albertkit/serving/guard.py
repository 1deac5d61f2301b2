"""The checks of every request before the application: the key, and the size and the time of the body."""

import asyncio
import hmac
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from albertkit.serving.api_errors import CLIENT_GONE, ApiError, too_much
from albertkit.serving.libraries import Route, fastapi
from albertkit.serving.service import Service

_BODIES_AT_ONCE = 8  # maximum number of incomplete bodies of maximum size in memory
_SMALL = 16_384  # bytes of a body that are always received, even if large bodies fill that memory
_OPEN = frozenset({"/healthz", "/readyz", "/openapi.json"})  # paths that need no key


@dataclass(eq=False, kw_only=True)
class Guard:
    """An ASGI wrapper around the application."""

    application: fastapi.FastAPI
    service: Service
    key: str | None
    """Key that requests must send; None if they need no key."""
    pages: Collection[str]
    """Further paths that need no key."""
    incomplete: int = 0
    """Number of bytes of all bodies that are still being received."""

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Pass a request with its complete body to the application, or return an error response."""
        status = CLIENT_GONE

        async def counted(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            headers = dict(scope["headers"])
            self._check_key(scope, headers)
            if scope["method"] == "POST":
                self.service.queue.check()  # before the body is read
            body = [await self._read(headers, receive)]
            if scope["method"] == "HEAD":  # uvicorn omits the body of the response to GET
                scope = {**scope, "method": "GET"}
            await self.application(scope, _replay(body, receive), counted)
        except ApiError as error:
            self.service.metrics.errors.labels(error.kind).inc()
            await error.response(scope["path"])(scope, receive, counted)
        finally:
            self.service.metrics.requests.labels(self._label(scope["path"]), str(status)).inc()

    def _label(self, path: str) -> str:
        """Return the route of a path, such as "/models/{model}", or "other" if there is none."""
        routes = (route for route in self.application.routes if isinstance(route, Route))
        return next((route.path_format for route in routes if route.path_regex.match(path)), "other")

    def _check_key(self, scope: dict[str, Any], headers: dict[bytes, bytes]) -> None:
        is_page = scope["path"] in _OPEN or scope["path"] in self.pages
        if self.key is None or (is_page and scope["method"] != "POST"):  # POST / calls a model
            return
        kind, _, given = headers.get(b"authorization", b"").partition(b" ")
        right = hmac.compare_digest(given.strip(), self.key.encode())
        if kind.lower() != b"bearer" or not right:
            raise ApiError(
                401, "unauthorized", "the key is missing or wrong. Send the header Authorization: Bearer KEY."
            )

    async def _read(self, headers: dict[bytes, bytes], receive: Any) -> bytes:
        limit, seconds = self.service.settings.max_body_bytes, self.service.settings.client_seconds
        declared = headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > limit:
            raise _too_long(int(declared), limit)
        body = bytearray()
        try:
            async with asyncio.timeout(seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ApiError(CLIENT_GONE, "client_gone", "the client closed the connection")
                    part = message.get("body", b"")
                    self.incomplete += len(part)
                    body += part
                    if len(body) > limit:
                        raise _too_long(len(body), limit)
                    if len(body) > _SMALL and self.incomplete > _BODIES_AT_ONCE * limit:
                        raise ApiError(
                            429,
                            "overloaded",
                            f"the server is receiving {self.incomplete:,} bytes of bodies. Try again later.",
                            retry_after=math.ceil(seconds),
                        )
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            raise ApiError(
                408,
                "slow_client",
                f"the body is incomplete after {seconds:g} seconds ({len(body):,} bytes). Send it faster.",
            ) from None
        finally:
            self.incomplete -= len(body)


def _too_long(received: int, limit: int) -> ApiError:
    return too_much("too_many_bytes", "bytes or more in its body", received, limit, "Send several requests")


def _replay(body: list[bytes], receive: Any) -> Callable[[], Any]:
    """Return a `receive` that removes the body from the list and returns it, then the messages after it."""

    async def again() -> dict[str, Any]:
        if body:  # removed, so that its memory is free while the request is computed
            return {"type": "http.request", "body": body.pop(), "more_body": False}
        return await receive()

    return again
