"""A protocol that closes connections with slow clients or long request heads.

uvicorn itself waits without limit for the head of a request, and for a client to read a response.
"""

import asyncio
from typing import Any

from albertkit.serving.libraries import HttpToolsProtocol

_LONGEST_HEAD = 65_536  # bytes
_MOST_HEADERS = 200
_MOST_WAITING = 16  # maximum number of pipelined requests of a connection
_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class GuardedProtocol(HttpToolsProtocol):
    """HTTP/1.1 that closes a connection without progress.

    While a request is being answered, the connection stays open. The application limits the time for a body.

    Args:
        client_seconds: The setting of this name. A connection without progress is closed after this time in
            seconds, and at the latest after twice this time.
    """

    def __init__(self, *args: Any, client_seconds: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.client_seconds = client_seconds

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # type: ignore[override]
        """Start to watch the connection."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self._head_bytes = 0
        self._heads = 0
        self._in_body = False
        self._seen: Any = None
        self._watch = self.loop.call_later(self.client_seconds, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop watching the connection."""
        self._watch.cancel()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Start to count the bytes of a head.

        Raises:
            ValueError: too many pipelined requests. uvicorn responds with 400 and closes the connection.
        """
        if len(self.pipeline) >= _MOST_WAITING:
            raise ValueError(f"{_MOST_WAITING} requests of this connection are waiting")
        self._head_bytes = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header.

        Raises:
            ValueError: the head has too many headers; see `send_400_response`.
        """
        if len(self.headers) >= _MOST_HEADERS:
            self._head_bytes = _LONGEST_HEAD + 1
            raise ValueError(f"the request has more than {_MOST_HEADERS} headers")
        super().on_header(name, value)

    def send_400_response(self, msg: str) -> None:
        """Respond to an error in a head, and close the connection."""
        if self._head_bytes <= _LONGEST_HEAD:
            super().send_400_response(msg)
            return
        self.transport.write(_TOO_LONG)
        self.transport.close()

    def on_headers_complete(self) -> None:
        """Record that a head is complete."""
        self._heads += 1
        self._in_body = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Record the end of a body."""
        self._in_body = False
        super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        """Process bytes, and close a connection whose head is too long."""
        heads, in_body = self._heads, self._in_body
        super().data_received(data)
        if in_body or self._heads != heads:
            return  # a rejected body is read and dropped until the watch closes the connection
        self._head_bytes += len(data)
        if self._head_bytes > _LONGEST_HEAD and not self.transport.is_closing():
            self.transport.write(_TOO_LONG)
            self.transport.close()

    def _is_busy(self) -> bool:
        """Return whether a request is in progress, and not only waiting for the client to read."""
        return self.cycle is not None and not self.cycle.response_complete and not self.flow.write_paused

    def _look(self) -> None:
        """Abort the connection if there was no progress since the last call.

        Bytes of an incomplete head or of a rejected body are not progress.
        """
        now = (self._heads, self.transport.get_write_buffer_size())
        if not self._is_busy() and now == self._seen:
            self.transport.abort()
            return
        self._seen = None if self._is_busy() else now
        self._watch = self.loop.call_later(self.client_seconds, self._look)
