"""Settings and key of a server, and the state of the process after the server has ended."""

import asyncio
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs the server's libraries: pip install 'albertkit[serve]'")

from serving_fixtures import folders_fixture  # noqa: F401
from serving_requests import settings_for
from serving_server import Running, running

from albertkit.errors import AlbertKitError, ConfigError, DataError
from albertkit.serving.server import listen, read_key, serve, serve_here
from albertkit.serving.settings import ServingSettings


def test_a_key(folders: Any) -> None:
    models = {"classifier": folders["classifier"]}
    with running(settings_for(models), key="secret") as server:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic secret"}):
            reply = server.ask("/v1/classify", {"input": "a"}, headers=headers)
            assert (reply.status, reply.kind) == (401, "unauthorized")
            assert reply.headers["WWW-Authenticate"] == "Bearer"
        assert server.ask("/metrics").status == 401
        assert server.ask("/healthz").status == server.ask("/readyz").status == 200
        right = {"Authorization": "Bearer secret"}
        assert server.ask("/v1/classify", {"input": "a"}, headers=right).status == 200
        assert server.ask("/openapi.json").status == server.ask("/docs").status == 401
        described = server.ask("/openapi.json", headers=right).json
        assert described["paths"]["/v1/classify"]["post"]["security"] == [{"HTTPBearer": []}]


def test_the_server_restores_the_process_at_its_end(
    folders: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Check the garbage collector and the handlers of signals and warnings."""
    shutil.copytree(folders["classifier"], tmp_path / "pairs")
    config = json.loads((tmp_path / "pairs" / "config.json").read_text())
    (tmp_path / "pairs" / "config.json").write_text(json.dumps(config | {"text_pairs": True}))
    signals = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.getsignal(one) for one in signals]
    models = {"encoder": folders["encoder"], "pairs": str(tmp_path / "pairs")}
    settings = settings_for(models, client_seconds=1.0)
    listening = listen(settings)
    server = Running(None, listening.getsockname()[1])  # type: ignore[arg-type]

    def end() -> None:
        assert server.ask("/healthz").status == 200
        assert gc.get_freeze_count() > 0
        for count in range(1, 4):  # of a script that the vocabulary does not cover
            assert server.ask("/v1/embeddings", {"input": ["😀😀"] * count}).status == 200
        assert server.ask("/v1/classify", {"input": "the captain"}).status == 200
        described = {one["id"]: one["text_pairs"] for one in server.ask("/v1/models").json["data"]}
        assert described == {"encoder": None, "pairs": True}
        os.kill(os.getpid(), signal.SIGTERM)

    with ThreadPoolExecutor(1) as pool, warnings.catch_warnings():
        warnings.simplefilter("always")
        shown, filters = warnings.showwarning, list(warnings.filters)
        ending: list[Any] = []
        serve_here(settings, [listening], ready=lambda names: ending.append(pool.submit(end)))
        ending[0].result()
        assert warnings.showwarning is shown
        assert warnings.filters == filters
    logged = [one.getMessage() for one in caplog.records]
    assert [one for one in logged if "the model was" in one] == [
        "pairs: the model was fine-tuned on pairs, but this is a single text"
    ]
    assert not [one for one in logged if "unknown tokens" in one]
    assert gc.get_freeze_count() == 0
    assert [signal.getsignal(one) for one in signals] == before


@pytest.mark.parametrize("host", ["localhost:80", "192.0.2.1"])
def test_a_host_that_is_not_this_machine(host: str) -> None:
    with pytest.raises(OSError, match=r"cannot listen on .*Set host to a name or an address of this machine"):
        listen(settings_for({"bundled": "bundled"}, host=host))


def test_where_a_server_cannot_run() -> None:
    """Check that the error comes before anything is loaded."""

    async def start_in_a_loop() -> None:
        serve("none", port=0)

    with pytest.raises(ConfigError, match=r"loop was running, as in a notebook\. Expected the main"):
        asyncio.run(start_in_a_loop())
    with ThreadPoolExecutor(1) as pool, pytest.raises(ConfigError, match=r"serve was called in a thread\."):
        pool.submit(serve, "none", port=0).result()


def test_a_model_that_cannot_be_loaded_leaves_nothing_behind(tmp_path: Path) -> None:
    filters = list(warnings.filters)
    with listen(settings_for({"bundled": "bundled"})) as free:
        port = free.getsockname()[1]
    with pytest.raises(AlbertKitError):
        serve(tmp_path, port=port)
    assert warnings.filters == filters
    listen(settings_for({"bundled": "bundled"}, port=port)).close()


FAILING_THREAD = """
import sys, threading
start = threading.Thread.start
def start_or_fail(thread):
    if thread.name == sys.argv[1]:
        raise RuntimeError("can't start new thread")
    start(thread)
threading.Thread.start = start_or_fail
import albertkit
albertkit.serve("bundled", port=0, max_requests=5)
"""


@pytest.mark.parametrize("name", ["request_3", "compute"])
def test_the_process_ends_if_a_thread_cannot_start(name: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FAILING_THREAD, name], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 1
    assert "ConfigError: the server could not start its 6 threads: can't start new thread" in ended.stderr


def test_a_key_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "key"
    settings = settings_for({"bundled": "bundled"}, key_file=str(file))
    for encoding in ("utf-8-sig", "utf-16"):
        file.write_text("secret\n", encoding=encoding)
        assert read_key(settings) == "secret"
    file.write_text("sécret\n", encoding="latin-1")
    with pytest.raises(DataError, match="key, line 1: not UTF-8"):
        read_key(settings)


def test_settings_that_make_no_sense() -> None:
    for changes, message in [
        ({"models": {}}, "no model"),
        ({"tasks": {"b": "fill-mask"}}, "a task is set for b"),
        ({"port": 70_000}, "port is 70000"),
        ({"max_requests": 0}, "max_requests must be 1 or more, not 0"),
        ({"max_seconds": float("nan")}, "max_seconds must be more than 0, not nan"),
        ({"batch_wait": -1.0}, "batch_wait must be 0 or more"),
        ({"batch_wait": 1.0}, "batch_wait is 1.0. Expected less"),
        ({"metrics_port": -1}, "metrics_port is -1"),
        ({"port": 9000, "metrics_port": 9000}, "port and metrics_port are both 9000"),
        ({"cors": ["https://a.example/"]}, "cors is 'https://a.example/'. Expected an origin in lowercase"),
        ({"cors": ["https://*", "a.example"]}, "cors is 'a.example'"),
        ({"batch_tokens": 0}, "batch_tokens must be 1 or more"),
        ({"client_seconds": float("inf")}, "client_seconds must be finite"),
    ]:
        with pytest.raises(ConfigError, match=message):
            ServingSettings(**({"models": {"a": "bundled"}} | changes))
