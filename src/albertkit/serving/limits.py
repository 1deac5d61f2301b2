"""Errors of the server, and the checks of every request before the application: key, size and time."""

import asyncio
import hmac
import json
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from albertkit.serving.libraries import fastapi
from albertkit.serving.request_log import CLIENT_GONE, CURRENT, OPERATIONS

DEADLINE_HEADER = "X-Request-Timeout"
_BODIES_AT_ONCE = 8  # maximum number of incomplete bodies of maximum size in memory
_SMALL = 16_384  # bytes of a body that are always received, even if large bodies fill that memory
_VALUES = 10_000  # maximum number of values in a body, in addition to those of its inputs
_VALUES_PER_INPUT = 64
_HEALTH = ("/healthz", "/readyz")


class ApiError(Exception):
    """An error response to a request."""

    def __init__(
        self,
        status: int,
        kind: str,
        message: str,
        *,
        param: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.kind, self.param, self.retry_after = status, kind, param, retry_after

    def response(self, path: str) -> fastapi.Response:
        """Return the response in OpenAI's error format, or in that of `InferenceClient` on its paths."""
        current = CURRENT.get()
        current.error = self.kind
        details = {"param": self.param, "request_id": current.id}
        content: dict[str, Any] = {"error": {"message": str(self), "type": self.kind, **details}}
        if path.startswith(("/models/", "/pipeline/")):
            content = {"error": str(self), "error_type": self.kind, **details}
        headers = {} if self.retry_after is None else {"Retry-After": str(math.ceil(self.retry_after))}
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        # ASCII, because the message may quote lone surrogates, which UTF-8 does not allow.
        return fastapi.Response(
            json.dumps(content).encode("ascii"), self.status, headers, media_type="application/json"
        )


def too_much(kind: str, what: str, received: int, limit: int, todo: str) -> ApiError:
    """Return the error for a request that is too large."""
    return ApiError(413, kind, f"the request has {received:,} {what}. Expected at most {limit:,}. {todo}.")


def client_gone() -> ApiError:
    return ApiError(CLIENT_GONE, "client_gone", "the client closed the connection")


def overloaded(message: str, retry_after: float, param: str | None = None) -> ApiError:
    return ApiError(429, "overloaded", message, param=param, retry_after=max(1.0, retry_after))


@dataclass(eq=False, kw_only=True)
class Guard:
    """An ASGI wrapper around the application that checks the key, the size and the time of requests."""

    application: Any
    service: Any
    key: str | None
    """Key that requests must send; None if they need no key."""
    pages: Collection[str]
    """Further paths that need no key."""
    incomplete: int = 0
    """Number of bytes of all bodies that are still being received."""

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Pass a request with its complete body to the application, or return an error response."""
        try:
            headers = dict(scope["headers"])
            self._check_key(scope, headers)
            if scope["method"] == "POST":
                self.service.queue.check()  # before the body is read
            body = [await self._read(headers, receive)]
            if scope["method"] == "HEAD":  # uvicorn omits the body of the response to GET
                scope = {**scope, "method": "GET"}
            await self.application(scope, _replay(body, receive), send)
        except ApiError as error:
            await error.response(scope["path"])(scope, receive, send)

    def _check_key(self, scope: dict[str, Any], headers: dict[bytes, bytes]) -> None:
        path, port = scope["path"], scope["server"][1]
        if port == self.service.settings.metrics_port:
            if path not in OPERATIONS:
                message = f"port {port} serves only {', '.join(OPERATIONS)}. Use the server's other port."
                raise ApiError(404, "unknown_path", message)
            return
        if self.key is None or path in _HEALTH or path in self.pages:
            return
        kind, _, given = headers.get(b"authorization", b"").partition(b" ")
        if not hmac.compare_digest(given.strip(), self.key.encode()) or kind.lower() != b"bearer":
            message = "the key is missing or wrong. Send the header Authorization: Bearer KEY."
            raise ApiError(401, "unauthorized", message)

    async def _read(self, headers: dict[bytes, bytes], receive: Any) -> bytes:
        settings = self.service.settings
        declared = headers.get(b"content-length", b"0")
        self._check_size(int(declared) if declared.isdigit() else 0)
        body = bytearray()
        try:
            async with asyncio.timeout(settings.client_seconds):
                is_complete = False
                while not is_complete:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise client_gone()
                    part = message.get("body", b"")
                    self.incomplete += len(part)
                    body += part
                    self._check_size(len(body))
                    if len(body) > _SMALL and self.incomplete > _BODIES_AT_ONCE * settings.max_body_bytes:
                        busy = f"the server is receiving {self.incomplete:,} bytes of request bodies."
                        raise overloaded(f"{busy} Try again later.", settings.client_seconds)
                    is_complete = not message.get("more_body", False)
        except TimeoutError:
            late = f"the body is incomplete after {settings.client_seconds:g} seconds ({len(body):,} bytes)"
            raise ApiError(408, "slow_client", f"{late}. Send it faster.") from None
        finally:
            self.incomplete -= len(body)
        most = _VALUES + _VALUES_PER_INPUT * settings.max_items
        if not has_at_most(most, bytes(body)):
            expected = f"Expected at most {settings.max_items:,} inputs. Send several requests."
            raise ApiError(413, "too_many_items", f"the body has more than {most:,} values. {expected}")
        return bytes(body)

    def _check_size(self, size: int) -> None:
        limit = self.service.settings.max_body_bytes
        if size > limit:
            raise too_much("too_many_bytes", "bytes in its body", size, limit, "Send several requests")


def has_at_most(limit: int, content: bytes) -> bool:
    """Return whether JSON has at most `limit` values and keys, without parsing it.

    `json.loads` can create objects with a hundred times the size of the body, and keeps Python's lock
    meanwhile.
    """
    # Outside of strings, each value except the first follows one of these characters.
    if sum(map(content.count, (b",", b"[", b"{", b":"))) < limit:
        return True
    # Without escaped characters, the remaining quotes begin and end strings.
    content = content.replace(b"\\\\", b"").replace(b'\\"', b"")
    if content.count(b'"') > 2 * limit:
        return False
    outside = b"".join(content.split(b'"')[::2])
    return sum(map(outside.count, (b",", b"[", b"{", b":"))) < limit


def _replay(body: list[bytes], receive: Any) -> Callable[[], Any]:
    """Return a `receive` that removes the body from the list and returns it, then the messages after it."""

    async def again() -> dict[str, Any]:
        if body:  # removed, so that its memory is free while the request is computed
            return {"type": "http.request", "body": body.pop(), "more_body": False}
        return await receive()

    return again
