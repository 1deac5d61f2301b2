"""What every request passes before the application sees it: its key, the size of its body, its time."""

import asyncio
import hmac
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

from albertkit.serving.api_errors import CLIENT_GONE, ApiError, too_much
from albertkit.serving.libraries import Route
from albertkit.serving.memory import GarbageCollector
from albertkit.serving.metrics import Metrics

_BODIES_AT_ONCE = 8  # of the longest, in memory before they are complete
_SMALL = 16_384  # bytes of a body that are taken even where large ones have filled that memory
_OPEN = frozenset({"/healthz", "/readyz", "/openapi.json"})  # paths that need no key


class Guard:
    """ASGI around the application.

    Args:
        application: what answers.
        metrics: counts answers.
        key: that requests must bring; None for none.
        routes: all that there are.
        pages: those among them that need no key, beside the usual ones.
        max_body_bytes: longest body.
        client_seconds: longest time for a body to come.
        check_room: raises ApiError where no request can be taken, before its body is read.
        garbage: is told of every request.
    """

    def __init__(
        self,
        application: Callable[..., Any],
        *,
        metrics: Metrics,
        key: str | None,
        routes: Sequence[Route],
        pages: Collection[str],
        max_body_bytes: int,
        client_seconds: float,
        check_room: Callable[[], None],
        garbage: GarbageCollector,
    ) -> None:
        self._application = application
        self._metrics = metrics
        self._key = None if key is None else key.encode()
        self._routes = routes
        self._open = _OPEN.union(pages)
        self._max_body_bytes = max_body_bytes
        self._client_seconds = client_seconds
        self._check_room = check_room
        self._garbage = garbage
        self._incomplete = 0  # bytes of all bodies that are still being received

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer one request, or pass it on with its whole body."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        status, size = CLIENT_GONE, 0

        async def counted(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            headers = dict(scope["headers"])
            self._check_key(scope, headers)
            if scope["method"] == "POST":
                self._check_room()
            body = [await self._read(headers, receive)]
            size = len(body[0])
            if scope["method"] == "HEAD":  # the answer to GET, whose body the server of HTTP leaves out
                scope = {**scope, "method": "GET"}
            await self._application(scope, _replay(body, receive), counted)
        except ApiError as error:
            self._metrics.error(error.kind)
            await error.response(scope["path"])(scope, receive, counted)
        finally:
            self._metrics.request(self._label(scope["path"]), status)
            self._garbage.note(size, failed=status >= 400)

    def _label(self, path: str) -> str:
        """Return the route of a path, such as "/models/{model}"; "other" where there is none."""
        return next((one.path_format for one in self._routes if one.path_regex.match(path)), "other")

    def _check_key(self, scope: dict[str, Any], headers: dict[bytes, bytes]) -> None:
        is_open = scope["path"] in self._open and scope["method"] != "POST"  # POST / asks a model
        if self._key is None or is_open:
            return
        kind, _, given = headers.get(b"authorization", b"").partition(b" ")
        right = hmac.compare_digest(given.strip(), self._key)
        if kind.lower() != b"bearer" or not right:
            raise ApiError(
                401, "unauthorized", "the key is missing or wrong; send the header Authorization: Bearer KEY"
            )

    async def _read(self, headers: dict[bytes, bytes], receive: Any) -> bytes:
        most = self._max_body_bytes
        declared = headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > most:
            raise _too_long(int(declared), most)
        body = bytearray()
        try:
            async with asyncio.timeout(self._client_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ApiError(CLIENT_GONE, "client_gone", "the client closed the connection")
                    part = message.get("body", b"")
                    self._incomplete += len(part)
                    body += part
                    if len(body) > most:
                        raise _too_long(len(body), most)
                    if len(body) > _SMALL and self._incomplete > _BODIES_AT_ONCE * most:
                        raise ApiError(
                            429,
                            "overloaded",
                            f"the server is receiving {self._incomplete:,} bytes of bodies. Try again later",
                            retry_after=math.ceil(self._client_seconds),
                        )
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            raise ApiError(
                408,
                "slow_client",
                f"the body did not come within {self._client_seconds:g} seconds; {len(body):,} bytes did",
            ) from None
        finally:
            self._incomplete -= len(body)


def _too_long(received: int, most: int) -> ApiError:
    return too_much("too_many_bytes", "bytes or more in its body", received, most, "Send several requests")


def _replay(body: list[bytes], receive: Any) -> Callable[[], Any]:
    """Return a `receive` that takes the body out of a list, then gives what comes after it."""

    async def again() -> dict[str, Any]:
        if body:  # which nothing holds while the request is worked on
            return {"type": "http.request", "body": body.pop(), "more_body": False}
        return await receive()

    return again
