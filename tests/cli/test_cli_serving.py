"""Tests of the command serve in a separate process: signals, several processes and errors."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import assert_one_line_error

pytest.importorskip("fastapi", reason="needs the server's libraries: pip install 'albertkit[serve]'")

from serving_server import Running, save_random_models, wait_for
from torchless import WITHOUT_TORCH

from albertkit.modeling.heads import (
    AlbertForMultipleChoice,
    AlbertForPreTraining,
    AlbertForQuestionAnswering,
    AlbertForSequenceClassification,
    AlbertForTokenClassification,
)
from albertkit.pipelines import pipeline
from albertkit.serving.metrics import Metrics
from albertkit.serving.server import named_settings

ORDER = {"input": {"text": "He came in.", "text_pair": "He sat down."}}


@contextmanager
def started(
    *arguments: str, without_torch: bool = False, **environment: str
) -> Iterator[tuple[subprocess.Popen[str], Running]]:
    """Run the command until the end of the block; it must then end well within seconds of SIGTERM."""
    program = ["-m", "albertkit"]
    if without_torch:
        program = ["-c", WITHOUT_TORCH + "from albertkit.cli.main import run; run()"]
    process = subprocess.Popen(
        [sys.executable, *program, "serve", "--port", "0", "--device", "cpu", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"ALBERTKIT_THREADS": "1"} | environment,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.fullmatch(r"serving .+ \(.*\) on http://127.0.0.1:(\d+)\n", line)
        assert found, line + (process.stderr.read() if process.stderr and process.poll() is not None else "")
        yield process, Running(None, int(found[1]))  # type: ignore[arg-type]
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()


def test_signals_reload_and_drain_and_the_key_of_the_environment() -> None:
    options = ("--max-characters", "2000000")
    with (
        started(*options, ALBERTKIT_SERVE_KEY="secret") as (process, server),
        ThreadPoolExecutor(1) as pool,
    ):
        assert server.ask("/v1/order", ORDER).status == 401
        server.headers = {"Authorization": "Bearer secret"}
        before = server.ask("/v1/order", ORDER)
        assert before.status == 200
        process.send_signal(signal.SIGHUP)
        wait_for(lambda: server.figure('albertkit_reloads_total{model="bundled",outcome="done"}') == 1)
        assert server.ask("/v1/order", ORDER).json == before.json
        assert server.ask("/readyz").status == 200
        # What was taken before SIGTERM is answered.
        large = pool.submit(server.ask, "/v1/embeddings", {"input": ["She opened the door. " * 20] * 250})
        wait_for(lambda: server.figure("albertkit_requests_in_progress ") == 1)
        process.send_signal(signal.SIGTERM)
        reply = large.result()
        assert (reply.status, len(reply.json["data"])) == (200, 250)
        assert process.wait(30) == 0
        with pytest.raises(ConnectionRefusedError):
            server.ask("/healthz")


@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_settings_of_the_environment_and_a_second_port(workers: str) -> None:
    environment = {
        "KEY": "secret",
        "MODEL": "mine=bundled other=bundled",
        "TASK": "mine=fill-mask",
        "METRICS_PORT": "0",
        "MAX_ITEMS": "2",
        "CORS": "https://a.example https://b.example",
        "PLAYGROUND": "true",
        "WORKERS": workers,
        "PORT": "70000",  # the flag of `started` overrides it
        "MAX_ITEM": "3",
    }
    variables = {f"ALBERTKIT_SERVE_{name}": value for name, value in environment.items()}
    with started(**variables) as (process, server):
        assert process.stderr is not None
        assert process.stderr.readline().endswith(
            " warning: ALBERTKIT_SERVE_MAX_ITEM is not a setting of serve. "
            "Did you mean 'ALBERTKIT_SERVE_MAX_ITEMS'?\n"
        )
        line = process.stderr.readline()
        second = re.fullmatch(r"[\d-]+ [\d:]+ serving /metrics, /healthz and /readyz on port (\d+)\n", line)
        assert second, line
        operations = Running(None, int(second[1]))  # type: ignore[arg-type]
        for path in ("/healthz", "/readyz", "/metrics"):
            assert operations.ask(path).status == 200
        assert operations.figure('albertkit_requests_total{route="/metrics",status="200"}') == 1
        right = {"Authorization": "Bearer secret", "Origin": "https://b.example"}
        for path in ("/v1/models", "/openapi.json", "/docs", "/playground", "/v1/nothing"):
            refused = operations.ask(path, headers=right)
            assert (refused.status, refused.kind) == (404, "unknown_path")
        assert server.ask("/metrics").status == server.ask("/v1/models").status == 401
        assert server.ask("/playground").status == 200
        described = server.ask("/v1/models", headers=right)
        tasks = {model["id"]: model["tasks"] for model in described.json["data"]}
        assert tasks["mine"] == ["fill-mask", "feature-extraction"]
        assert tasks["other"] == ["sentence-order", "fill-mask", "feature-extraction"]
        assert described.headers["Access-Control-Allow-Origin"] == "https://b.example"
        headers = right | {"Content-Type": "application/json", "X-Request-ID": "order-17"}
        for model in ("mine", "other"):
            body = {"input": ["a"] * 3, "model": model}
            assert server.ask("/v1/tokenize", body, headers=headers).kind == "too_many_items"
        wait_for(lambda: operations.errors("too_many_items") == 2)


def test_a_log_in_json_has_only_json() -> None:
    command = [sys.executable, "-m", "albertkit", "serve", "--log-format", "json", "--port", "0"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes, env=os.environ | {"ALBERTKIT_SERVE_PRT": "1"}) as process:
        assert process.stderr is not None
        warning, first = (json.loads(process.stderr.readline()) for _ in range(2))
        assert (warning["level"], warning["message"][:19]) == ("warning", "ALBERTKIT_SERVE_PRT")
        found = re.fullmatch(r"serving bundled \(.*\) on http://127.0.0.1:(\d+)", first["message"])
        assert found, first
        server = Running(None, int(found[1]))  # type: ignore[arg-type]
        assert server.ask("/v1/order", ORDER, headers={"X-Request-ID": "order-17"}).status == 200
        process.send_signal(signal.SIGHUP)
        second, third = (json.loads(process.stderr.readline()) for _ in range(2))
        process.terminate()
        output, errors = process.communicate(timeout=60)
    assert (second["path"], second["status"], second["rows"]) == ("/v1/order", 200, 1)
    assert (second["model"], second["request_id"]) == ("bundled", "order-17")
    assert third["message"] == "reloaded bundled"
    assert (process.returncode, output, errors) == (0, "", "")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("PORT", "x", 'Invalid value for ALBERTKIT_SERVE_PORT from env: unable to convert "x" into int.'),
        ("PLAYGROUND", "maybe", 'unable to convert "maybe" into bool.'),
        ("LOG_FORMAT", "xml", 'Choose from: "text", "json".'),
    ],
)
def test_a_wrong_value_in_the_environment(
    run, name: str, value: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"ALBERTKIT_SERVE_{name}", value)
    result = run("serve", "--model", "none")
    assert result.status == 2
    assert expected in result.errors


def test_every_route_answers_where_torch_is_not_installed(tiny_vocabulary: Path, tmp_path: Path) -> None:
    heads: dict[str, Any] = {
        "pretrained": AlbertForPreTraining,
        "classifier": AlbertForSequenceClassification,
        "tagger": AlbertForTokenClassification,
        "reader": AlbertForQuestionAnswering,
        "chooser": AlbertForMultipleChoice,
    }
    folders = save_random_models(heads, tiny_vocabulary, tmp_path, seed=2)
    models = [f"--model={name}={folder}" for name, folder in folders.items()]
    question = {"question": "who?", "context": "my sister followed the river"}
    choices = {"context": "the child", "question": "a _ key", "choices": ["silver", "gold"]}
    asked: dict[str, Any] = {
        "fill-mask": "the captain opened [MASK]",
        "classify": "a fox",
        "tag": "my sister followed the river",
        "answer": question,
        "choose": choices,
        "order": {"text": "a fox", "text_pair": "sold"},
        "embeddings": "a fox",
        "tokenize": "a fox",
        "inspect": "a fox",
    }
    with started(*models, "--playground", without_torch=True) as (_, server):
        for route, given in asked.items():
            reply = server.ask(f"/v1/{route}", {"input": given})
            assert reply.status == 200, (route, reply.content)
        assert server.ask("/readyz").json["models"] == dict.fromkeys(heads, True)
        assert server.figure("albertkit_batch_rows_sum") >= len(asked) - 1
        found = server.ask("/v1/embeddings", {"input": asked["tag"], "model": "tagger"}).json["data"]
        expected = pipeline("feature-extraction", folders["tagger"], pooling="mean", engine="plain")(
            asked["tag"], normalize=True
        )
        np.testing.assert_allclose(found[0]["embedding"], expected, atol=1e-5)


@pytest.mark.slow
def test_several_processes_share_a_socket_and_are_replaced() -> None:
    with started("--workers", "2") as (process, server):
        wait_for(lambda: server.figure("albertkit_requests_total") > 0)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        if not children.is_file():
            pytest.skip("needs Linux")

        def serving() -> set[int]:
            found = set()
            for child in children.read_text().split():
                with suppress(FileNotFoundError):  # it has ended since
                    if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                        found.add(int(child))
            return found

        first = serving()
        assert len(first) == 2
        answers = {json.dumps(server.ask("/v1/order", ORDER).json) for _ in range(20)}
        assert len(answers) == 1
        # One figure of all processes, whichever is asked.
        name = 'albertkit_requests_total{route="/v1/order",status="200"}'
        wait_for(lambda: all(server.figure(name) == 20 for _ in range(5)))
        busy = server.connect()  # one of the two has a request in progress when it dies
        body = json.dumps({"input": ["She opened the door. " * 20] * 250}).encode()
        head = b"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        busy.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        wait_for(lambda: server.figure("albertkit_requests_in_progress") == 1)
        for one in first:
            os.kill(one, signal.SIGKILL)
        wait_for(lambda: len(serving()) == 2 and not serving() & first)
        assert process.stderr is not None
        logged = {f"Child process [{one}] died" for one in first}
        while logged:
            line = process.stderr.readline()
            logged = {one for one in logged if one not in line}
        wait_for(lambda: server.ask("/v1/order", ORDER).status == 200)
        wait_for(lambda: server.figure("albertkit_requests_in_progress") == 0, seconds=30)
        second = serving()
        process.send_signal(signal.SIGHUP)  # loads the models again, in new processes
        wait_for(lambda: len(serving()) == 2 and not serving() & second, seconds=60)
        assert server.ask("/v1/order", ORDER).status == 200


@pytest.mark.slow
def test_workers_end_when_their_supervisor_is_killed() -> None:
    with started("--workers", "2") as (process, _):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        if not children.is_file():
            pytest.skip("needs Linux")
        wait_for(lambda: len(children.read_text().split()) >= 2)  # the workers, after the address is printed
        workers = [int(child) for child in children.read_text().split()]
        process.kill()
        process.wait(60)
        wait_for(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers), seconds=60)


def test_workers_that_cannot_load_a_model_end_the_server(run, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "config.json").write_text("{")
    begin = time.monotonic()
    result = run("serve", "--workers", "2", "--port", "0", "--model", damaged)
    assert result.status == 1
    assert time.monotonic() - begin < 60  # the supervisor waits up to 120 seconds for a worker that is alive
    assert "config.json" in result.errors
    assert "error: a worker process failed to start. See its error above" in result.errors


@pytest.mark.parametrize(
    ("given", "models"),
    [
        (["runs/lr=0.001/best"], {"best": "runs/lr=0.001/best"}),
        (["mine=runs/lr=0.001/best"], {"mine": "runs/lr=0.001/best"}),
        (["lr=0.001"], {"lr=0.001": "lr=0.001"}),  # a folder that exists
        (["a=bundled", "b=org/model"], {"a": "bundled", "b": "org/model"}),
        (["."], {"here": "."}),
        (["runs/.."], {"here": "runs/.."}),
        (["latest"], {"latest": "latest"}),  # a link
        (["org/model"], {"model": "org/model"}),
        (["runs/mine/"], {"mine": "runs/mine/"}),
    ],
)
def test_names_of_models(
    given: list[str], models: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here" / "lr=0.001").mkdir(parents=True)
    (tmp_path / "here" / "runs").mkdir()
    (tmp_path / "here" / "latest").symlink_to("runs")
    monkeypatch.chdir(tmp_path / "here")
    settings = named_settings(given, [], {})
    assert settings.models == models


def test_tasks_of_models_with_an_equals_sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lr=0.001").mkdir()
    monkeypatch.chdir(tmp_path)
    for task in ("fill-mask", "lr=0.001=fill-mask"):
        assert named_settings(["lr=0.001"], [task], {}).tasks == {"lr=0.001": "fill-mask"}


@pytest.mark.parametrize("key", ["", "  ", "two words"])
def test_an_invalid_key_in_the_environment(run, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALBERTKIT_SERVE_KEY", key)
    result = run("serve", "--port", "0", "--model", "none")
    assert_one_line_error(result, f"ALBERTKIT_SERVE_KEY has {len(key.split())} words. Expected the key")
    assert_one_line_error(run("playground", "--model", "none", "--no-browser"), "ALBERTKIT_SERVE_KEY")


def test_gauges_of_a_dead_process_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    code = (
        "from albertkit.serving.metrics import Metrics; import os; metrics = Metrics()\n"
        "metrics.requests_in_progress.set(5); metrics.requests.labels('/v1/tag', '200').inc()\n"
        "print(metrics.text().decode())"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "albertkit_requests_in_progress 5.0" in ended.stdout
    text = Metrics().text().decode()
    assert "albertkit_requests_in_progress 5.0" not in text
    assert 'albertkit_requests_total{route="/v1/tag",status="200"} 1.0' in text


def test_errors_have_one_line(run, tmp_path: Path) -> None:
    assert_one_line_error(run("serve", "--model", "a=bundled", "--model", "a=bundled"), "the name 'a'")
    assert_one_line_error(run("serve", "--model", "=bundled"), "model is '=bundled'")
    assert_one_line_error(
        run("serve", "--model", "bundled", "--model", "b=bundled", "--task", "fill-mask"), "NAME=TASK"
    )
    assert_one_line_error(run("serve", "--key-file", tmp_path / "none"), "none: No such file")
    (tmp_path / "key").write_text("two words\n")
    assert_one_line_error(run("serve", "--key-file", tmp_path / "key"), "has 2 words")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert_one_line_error(
            run("serve", "--port", port),
            f"cannot listen on 127.0.0.1:{port}: ",
            "Choose another port",
        )
    assert_one_line_error(run("serve", "--port", "0", "--model", tmp_path / "none"), "none")


def test_a_wide_address_without_a_key_is_warned_of(run, tmp_path: Path) -> None:
    result = run("serve", "--host", "0.0.0.0", "--port", "0", "--model", tmp_path / "none")
    assert result.status == 1
    expected = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d warning: other machines can send requests without a key"
    assert re.search(expected, result.errors)
