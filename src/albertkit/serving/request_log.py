"""The log of a server: one line for each request, as text or JSON, with an id that the response repeats."""

import json
import logging
import re
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from albertkit.logs import LineHandler
from albertkit.serving.libraries import Route
from albertkit.serving.metrics import Metrics

logger = logging.getLogger("albertkit.serving")

CLIENT_GONE = 499  # for metrics, as in nginx: no client reads this response
ID_HEADER = "X-Request-ID"
OPERATIONS = ("/healthz", "/readyz", "/metrics")
"""Paths for monitoring. Their requests have a line only if they fail."""

_ID = re.compile(rb"[\w.:/+=@-]{1,128}")  # anything else could forge lines of the log
_encode = json.JSONEncoder(ensure_ascii=False).encode
_MAX_PATH = 200  # characters of a path in the log


@dataclass(eq=False)
class CurrentRequest:
    """What the log reports about a request, as far as it is known."""

    id: str
    model: str | None = None
    rows: int | None = None
    """Number of rows that the model computed: texts, windows of long texts, choices."""
    error: str | None = None
    """Type of the error in the response."""


CURRENT: ContextVar[CurrentRequest] = ContextVar("request")
"""The request that a task or thread works for."""


@dataclass(eq=False, kw_only=True)
class RequestLog:
    """An ASGI wrapper that gives each request an id, counts it, and logs one line about it."""

    application: Any
    routes: Iterable[Any]
    metrics: Metrics

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        begin, status = time.perf_counter(), CLIENT_GONE
        given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
        current = CurrentRequest(given.decode() if _ID.fullmatch(given) else uuid.uuid4().hex)
        CURRENT.set(current)

        async def send_with_id(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message["headers"], (ID_HEADER.lower().encode(), current.id.encode())]
                message = {**message, "headers": headers}
            await send(message)

        try:
            await self.application(scope, receive, send_with_id)
        finally:
            # A browser asks for permission before the request of a page from another origin.
            is_question = scope["method"] == "OPTIONS" and any(
                name == b"access-control-request-method" for name, _ in scope["headers"]
            )
            routes = (route for route in self.routes if isinstance(route, Route))
            matching = (route.path_format for route in routes if route.path_regex.match(scope["path"]))
            if not is_question:
                self.metrics.requests.labels(next(matching, "other"), str(status)).inc()
            if current.error is not None:
                self.metrics.errors.labels(current.error, str(status), current.model or "").inc()
            if status >= 400 or scope["path"] not in OPERATIONS:
                _log(scope, status, 1000 * (time.perf_counter() - begin), current)


def _log(scope: dict[str, Any], status: int, milliseconds: float, current: CurrentRequest) -> None:
    if not logger.isEnabledFor(logging.INFO):
        return
    # The raw path is ASCII without spaces and without the query.
    method, path = scope["method"][:20], scope["raw_path"][:_MAX_PATH].decode("ascii", "replace")
    known = {"rows": current.rows, "model": current.model, "error": current.error, "request_id": current.id}
    details = {name: value for name, value in known.items() if value is not None}
    line = f"{method} {path} {status} {milliseconds:.1f} ms"
    line += "".join(f" {name}={value}" for name, value in details.items())
    # `logger.info` would look for the calling line, which takes as long as the rest.
    record = logging.LogRecord(logger.name, logging.INFO, __file__, 0, line, None, None)
    fields = {"method": method, "path": path, "status": status, "milliseconds": round(milliseconds, 1)}
    record.fields = {"message": f"{method} {path} {status}"} | fields | details
    logger.handle(record)


class TextFormatter(logging.Formatter):
    """Formats a record as a line with the time, for warnings with the level, and with the request's id."""

    default_time_format = "%Y-%m-%d %H:%M:%S"
    default_msec_format = None  # type: ignore[assignment]

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        level = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        current = None if hasattr(record, "fields") else CURRENT.get(None)
        request_id = f" request_id={current.id}" if current else ""
        return f"{self.formatTime(record)} {level}{record.message}{request_id}"


class JsonFormatter(logging.Formatter):
    """Formats a record as one JSON object; that of a request has its values as fields."""

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        values = {"time": when, "level": record.levelname.lower(), "message": record.getMessage()}
        if current := CURRENT.get(None):
            values["request_id"] = current.id
        if record.exc_info:
            values["traceback"] = self.formatException(record.exc_info)
        return _encode(values | getattr(record, "fields", {}))


FORMATTERS = {"text": TextFormatter, "json": JsonFormatter}


@contextmanager
def lines_logged(log_format: str) -> Iterator[None]:
    """Print the log lines of albertkit and uvicorn on stderr, unless the program has configured logging."""
    package, uvicorn = logging.getLogger("albertkit"), logging.getLogger("uvicorn")
    replaced = [handler for handler in package.handlers if isinstance(handler, LineHandler)]
    if package.hasHandlers() and not replaced:
        yield
        return
    handler, level = logging.StreamHandler(), package.level  # a line of Rich takes ten times as long
    handler.setFormatter(FORMATTERS[log_format]())
    for line_handler in replaced:
        package.removeHandler(line_handler)
    package.addHandler(handler)
    package.setLevel(logging.INFO)
    uvicorn.addHandler(handler)
    try:
        yield
    finally:
        uvicorn.removeHandler(handler)
        package.removeHandler(handler)
        package.setLevel(level)
        for line_handler in replaced:
            package.addHandler(line_handler)
