"""Tests that hostile clients cannot exhaust the memory or the time of a server process."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from places import SUPPORT

pytest.importorskip("fastapi", reason="needs the server's libraries: pip install 'albertkit[serve]'")

from serving_server import Running, save_random_models

from albertkit.modeling.heads import AlbertForPreTraining

MOST_MEGABYTES = 50
MOST_MEGABYTES_OF_TEXT = 150  # of one text with as many characters as a request may have
MOST_SECONDS = 0.5  # of CPU time; a usual processor needs up to 0.1 s, and a blocked loop several seconds
SIZE = 1_990_000  # bytes; the server takes 2,000,000

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="peak memory is read from /proc (Linux)"
)


class Watched:
    """A server in a separate process, which reports its memory and the time its event loop was blocked."""

    def __init__(self, folder: str, **settings: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(SUPPORT / "watched_server.py"), folder, json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"ALBERTKIT_THREADS": "1"},
        )
        self.server = Running(None, int(self._read()))  # type: ignore[arg-type]
        self.ask = self.server.ask
        for _ in range(3):
            assert self.ask("/v1/embeddings", {"input": ["a silver key"] * 100}).status == 200
        self._report()
        self._idle = self._report()["megabytes"]

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def _report(self) -> dict[str, float]:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return json.loads(self._read())

    def report(self) -> tuple[float, float]:
        """Return the peak memory over the idle server in MB, and the longest block in seconds."""
        found = self._report()
        return found["megabytes"] - self._idle, found["blocked"]

    def check(self, megabytes_allowed: int = MOST_MEGABYTES) -> None:
        """Check memory and blocked time since the last check, and that the server still answers."""
        megabytes, blocked = self.report()
        print(f"{megabytes:.1f} MB over idle, blocked {blocked:.3f} s")
        assert self.ask("/v1/tokenize", {"input": "a key"}).status == 200
        assert megabytes <= megabytes_allowed
        assert blocked <= MOST_SECONDS

    def close(self) -> None:
        self._process.communicate(timeout=60)


def head(length: int) -> bytes:
    return (
        b"POST /v1/classify HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n" % length
    )


def repeat(before: bytes, each: bytes, after: bytes, *, size: int = SIZE) -> bytes:
    """Return a body of about `size` bytes: values without end in a list or an object."""
    count = (size - len(before) - len(after)) // (len(each) + 1)
    return before + b",".join([each] * count) + after


BODIES: dict[str, Callable[[], bytes]] = {
    "numbers": lambda: repeat(b'{"input": [', b"1", b"]}"),
    "lists": lambda: repeat(b'{"input": [', b"[[]]", b"]}"),
    "objects": lambda: repeat(b'{"input": [', b'{"":1}', b"]}"),
    "texts": lambda: repeat(b'{"input": [', b'""', b"]}"),
    "pairs": lambda: repeat(b'{"input": [', b'{"text":1,"x":2}', b"]}"),
    "targets": lambda: repeat(b'{"input": "[MASK]", "targets": [', b"1", b"]}"),
    "few-wrong": lambda: repeat(b'{"input": [', b"1", b"]}", size=500),
    "keys": lambda: b'{"input": "a"' + b"".join(b',"%x":1' % one for one in range(190_000)) + b"}",
    "few-keys": lambda: b'{"input": "a"' + b"".join(b',"%x":1' % one for one in range(12_000)) + b"}",
    "keys-twice": lambda: b"{" + b"".join(b'"%x":1,' % one for one in range(12_000)) + b'"1":1,"input":1}',
    "nesting": lambda: b'{"input": ' + b"[" * SIZE,
    "objects-nesting": lambda: b'{"input": ' + b'{"":' * (SIZE // 4 - 10),
    "digits": lambda: b'{"input": ' + b"9" * SIZE + b"}",
    "fraction": lambda: b'{"input": 1.' + b"9" * SIZE + b"}",
    "exponent": lambda: b'{"input": ' + b"9" * SIZE + b"e-1}",
    "escapes": lambda: b'{"input": ["' + b"\\u00e9" * (SIZE // 6 - 10) + b'"]}',
    "quotes": lambda: b'{"input": "' + b'\\"' * (SIZE // 2 - 10),
    "wide": lambda: json.dumps({"input": "a" * (SIZE - 100) + "😀"}, ensure_ascii=False).encode(),
    "utf-16": lambda: repeat(b'{"input": [', b'{"":1}', b"]}", size=SIZE // 2 - 10).decode().encode("utf-16"),
    "spaces": lambda: b'{"input": "a"' + b" " * (SIZE - 20) + b"}",
    "backslashes": lambda: b'{"input": "' + b"\\" * (SIZE - 20),
}


@pytest.fixture(scope="module")
def folder(tiny_vocabulary: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("served")
    return save_random_models({"model": AlbertForPreTraining}, tiny_vocabulary, root, seed=0)["model"]


@pytest.fixture(scope="module")
def watched(folder: str) -> Iterator[Watched]:
    started = Watched(folder, client_seconds=3.0, max_seconds=20.0)
    yield started
    started.close()


@pytest.mark.parametrize("name", BODIES)
def test_a_large_body(watched: Watched, name: str) -> None:
    body = BODIES[name]()
    for path in ("/v1/classify", "/v1/fill-mask"):
        reply = watched.ask(path, body)
        print(reply.status, reply.content[:300])
        assert 200 <= reply.status < 500
    watched.check()


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n" * 100_000,
        b"POST /v1/classify HTTP/1.1\r\nContent-Length: 0\r\n\r\n" * 50_000,
        b"GET /healthz HTTP/1.1\r\n" + b"a:\r\n" * 500_000 + b"\r\n",
        b"GET /" + b"a" * 2_000_000 + b" HTTP/1.1\r\n\r\n",
        b"POST /v1/classify HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        + b"1\r\n \r\n" * 50_000,
        b"POST /v1/classify HTTP/1.1\r\nContent-Length: " + b"9" * 5_000 + b"\r\n\r\n",
    ],
    ids=["requests", "posts", "headers", "path", "chunks", "length"],
)
def test_heads_without_end(watched: Watched, sent: bytes) -> None:
    """On 20 connections that read nothing."""
    connections = [watched.server.connect() for _ in range(20)]
    for connection in connections:
        connection.settimeout(0.5)
        with contextlib.suppress(OSError):
            connection.sendall(sent)
        assert watched.ask("/v1/tokenize", {"input": "a key"}).status == 200
    for connection in connections:
        connection.close()
    watched.check()


@pytest.mark.parametrize("count", [40, pytest.param(500, marks=pytest.mark.slow)])
def test_large_bodies_that_never_end(watched: Watched, count: int) -> None:
    """Megabytes are sent, of which the server keeps few; small requests are answered meanwhile."""
    part = b" " * 1_000_000
    connections = [watched.server.connect() for _ in range(count)]
    refused = 0
    for connection in connections:
        connection.sendall(head(len(part) + 1))
        connection.sendall(part)
        assert watched.ask("/v1/tokenize", {"input": "a key"}).status == 200
    for connection in connections:
        refused += connection.recv(1000).startswith(b"HTTP/1.1 429")  # of the others, 408
        connection.close()
    assert refused >= count / 2
    watched.check()


def test_large_texts_that_fail_again_and_again(watched: Watched) -> None:
    """The errors leave reference cycles with tokens, which the server must free."""
    for _ in range(40):
        assert watched.ask("/v1/embeddings", {"input": "a key " * 15_000}).status == 422
    watched.check()


# The last, since the memory that such texts take is used again rather than given back.
TEXTS: dict[str, str] = {
    "marks": "a" + "\u0301" * 100_000 + "\u0323" * 99_000,
    "marks-that-decompose": "\u0f73" * 199_000,
    "expanding": "\ufdfa" * 199_000,
    "squared-words": "\u321d" * 199_000,
    "one-word": "a" * 199_000,
    "spaces": " " * 199_000,
    "words": "a key " * 33_000,
    "masks": "[MASK]" * 33_000,
    "special-tokens": "[SEP][CLS]<pad>" * 13_000,
    "emoji": "😀" * 199_000,
    "all-characters": "".join(map(chr, (*range(32, 0xD800), *range(0xE000, 0x25000)))),
    "quotes": "``''" * 49_000,
    "digits": "1,2" * 66_000,
    "halves": "\ud800" * 199_000,
}


SLOW_TEXTS = ("marks", "marks-that-decompose", "all-characters", "squared-words")


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[pytest.mark.slow] * (one in SLOW_TEXTS)) for one in TEXTS]
)
def test_a_large_text(watched: Watched, name: str) -> None:
    text = TEXTS[name]
    for path in ("/v1/tokenize", "/v1/embeddings", "/v1/fill-mask"):
        reply = watched.ask(path, {"input": text})
        print(path, reply.status, reply.content[:200])
        assert 200 <= reply.status < 500
    watched.check(MOST_MEGABYTES_OF_TEXT)
