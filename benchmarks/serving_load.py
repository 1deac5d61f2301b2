"""Send load to a server: from a number of clients (closed loop), or at random times (open loop).

In an open loop, requests also arrive if the server does not keep up. The generator is a single event loop
with plain HTTP/1.1, so that it takes little processor time from the server.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass
class Load:
    """The results of one measurement."""

    seconds: float = 0.0
    answered: list[float] = field(default_factory=list)
    """Latencies of the requests with a result: seconds from the planned start to the end of the response."""
    refused: list[float] = field(default_factory=list)
    """Latencies of the requests that the server rejected with status 429."""
    failed: Counter[str] = field(default_factory=Counter)
    """Number of requests for each other status, and of broken connections."""
    wrong: int = 0
    """Number of results that differ from the expected ones."""

    @property
    def rate(self) -> float:
        """Results per second."""
        return len(self.answered) / self.seconds

    def quantile(self, share: float) -> float:
        """Return a quantile of the latencies of results."""
        ranked = sorted(self.answered)
        return ranked[min(len(ranked) - 1, int(share * len(ranked)))]


class Generator:
    """Sends requests to one route of a server on this machine.

    Args:
        port: Port of the server.
        path: Path of the route.
        bodies: Bodies of the requests, which are sent in turn.
        is_right: Function that checks a result, given the number of the body and the content of the response.
        headers: Additional headers of each request.
    """

    def __init__(
        self,
        port: int,
        path: str,
        bodies: Sequence[bytes],
        is_right: Callable[[int, bytes], bool],
        headers: str = "",
    ) -> None:
        self._port = port
        self._requests = [
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{headers}"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
            for body in bodies
        ]
        self._is_right = is_right
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    def closed(self, clients: int, seconds: float) -> Load:
        """Measure with clients that send a new request as soon as they get a response."""

        async def run() -> Load:
            load = Load()
            begin = time.monotonic()

            async def client(first: int) -> None:
                number = first
                while time.monotonic() < begin + seconds:
                    await self._ask(number % len(self._requests), time.monotonic(), load)
                    number += clients

            await asyncio.gather(*map(client, range(clients)))
            load.seconds = time.monotonic() - begin
            return load

        return asyncio.run(self._closing(run()))

    def open(self, rate: float, seconds: float, watch: Callable[[float], None] | None = None) -> Load:
        """Measure with requests at random times.

        Args:
            rate: Mean number of requests per second. The intervals are exponentially distributed.
            seconds: Duration of the measurement.
            watch: Function that is called every second with the seconds since the start.
        """

        async def run() -> Load:
            rng = random.Random(0)
            load, tasks = Load(), set()
            begin = planned = time.monotonic()
            number, watched = 0, 0.0
            while planned < begin + seconds:
                await asyncio.sleep(max(0.0, planned - time.monotonic()))
                task = asyncio.create_task(self._ask(number % len(self._requests), planned, load))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                number += 1
                planned += rng.expovariate(rate)
                if watch and time.monotonic() - begin > watched + 1:
                    watched = time.monotonic() - begin
                    watch(watched)
            if tasks:
                await asyncio.wait(tasks)
            load.seconds = max(seconds, time.monotonic() - begin)
            return load

        return asyncio.run(self._closing(run()))

    async def _closing(self, work) -> Load:
        try:
            return await work
        finally:
            for _, writer in self._idle:
                writer.close()
            self._idle.clear()

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return an idle connection that the server has not closed, or open a new connection."""
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof():
                return reader, writer
            writer.close()
        return await asyncio.open_connection("127.0.0.1", self._port)

    async def _ask(self, number: int, planned: float, load: Load) -> None:
        try:
            reader, writer = await self._connection()
            writer.write(self._requests[number])
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            content = await reader.readexactly(length)
        except (OSError, asyncio.IncompleteReadError):
            load.failed["connection"] += 1
            return
        seconds = time.monotonic() - planned
        self._idle.append((reader, writer))
        status = int(head[9:12])
        if status == 200:
            load.answered.append(seconds)
            load.wrong += not self._is_right(number, content)
        elif status == 429:
            load.refused.append(seconds)
        else:
            load.failed[str(status)] += 1
