"""Tests of the log of requests, their ids, the errors in the metrics, CORS, the docs and the second port."""

import json
import logging
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs the server's libraries: pip install 'albertkit[serve]'")

from serving_fixtures import folders_fixture  # noqa: F401
from serving_requests import CHOICES, CONTEXT, settings_for
from serving_server import Running, running, wait_for

from albertkit.serving.request_log import lines_logged

PAGE = "https://app.example"


@contextmanager
def logged(log_format: str) -> Iterator[None]:
    """Log as the command line does, although pytest has configured logging."""
    root = logging.getLogger()
    handlers, root.handlers = root.handlers, []
    try:
        with lines_logged(log_format):
            yield
    finally:
        root.handlers = handlers


@pytest.fixture(name="server", scope="module")
def server_fixture(folders: Any) -> Iterator[Running]:
    settings = settings_for({"encoder": folders["encoder"]}, cors=[PAGE, "http://localhost:3000"])
    with running(settings, key="secret") as started:
        yield started


class TestLog:
    def test_a_line_of_json_for_each_request(self, folders: Any, capsys: pytest.CaptureFixture[str]) -> None:
        models = {name: folders[name] for name in ("classifier", "chooser", "nli")}
        ids = []
        with logged("json"), running(settings_for(models)) as server:
            for path, body in [
                ("/v1/classify", {"input": ["a fox", "a key"]}),
                ("/v1/choose", {"input": CHOICES[0]}),
                ("/v1/classify", {"input": CONTEXT, "model": "nli"}),
                ("/v1/classify?secret=1", {"input": 7}),
                ("/v1/a%0Ab", {}),
                ("/healthz", None),
                ("/readyz", None),
                ("/metrics", None),
            ]:
                ids.append(server.ask(path, body).headers["X-Request-ID"])
            wait_for(lambda: server.figure("albertkit_requests_total") >= len(ids))
        lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
        assert [line["request_id"] for line in lines] == ids[:5]
        assert len(set(ids)) == len(ids)
        names = ("method", "path", "status", "rows", "model", "error")
        assert [tuple(line.get(name) for name in names) for line in lines] == [
            ("POST", "/v1/classify", 200, 2, "classifier", None),
            ("POST", "/v1/choose", 200, 3, "chooser", None),
            ("POST", "/v1/classify", 422, 0, "nli", "invalid"),
            ("POST", "/v1/classify", 422, None, "classifier", "invalid"),
            ("POST", "/v1/a%0Ab", 404, None, None, "unknown_path"),
        ]
        for line in lines:
            assert line["level"] == "info"
            assert 0 < line["milliseconds"] < 60_000
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", line["time"])
            assert line["message"] == f"{line['method']} {line['path']} {line['status']}"

    def test_a_line_of_text_for_each_request_and_the_id_in_other_lines(
        self, folders: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with logged("text"), running(settings_for({"encoder": folders["encoder"]})) as server:
            headers = {"X-Request-ID": "order-17", "Content-Type": "application/json"}
            assert server.ask("/v1/embeddings", {"input": ["a fox"] * 3}, headers=headers).status == 200
            pipeline = server.service.models["encoder"].any_pipeline
            monkeypatch.setattr(type(pipeline), "__call__", lambda *_, **__: 1 / 0)
            failed = server.ask("/v1/embeddings", {"input": "a fox"}, headers=headers)
            assert (failed.status, failed.json["error"]["request_id"]) == (500, "order-17")
            assert server.errors("internal") == 1
        first, second, *traceback, last = capsys.readouterr().err.splitlines()
        time = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
        end = "model=encoder request_id=order-17"
        assert re.fullmatch(rf"{time} POST /v1/embeddings 200 \d+\.\d ms rows=3 {end}", first)
        failure = "error: encoder: a request for feature-extraction failed request_id=order-17"
        assert re.fullmatch(f"{time} {failure}", second)
        assert traceback[-1] == "ZeroDivisionError: division by zero"
        end = "model=encoder error=internal request_id=order-17"
        assert re.fullmatch(rf"{time} POST /v1/embeddings 500 \d+\.\d ms rows=0 {end}", last)

    def test_the_lines_go_to_the_handlers_of_the_program(
        self, folders: Any, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
    ) -> None:
        caplog.set_level("INFO", logger="albertkit")
        with lines_logged("json"), running(settings_for({"encoder": folders["encoder"]})) as server:
            server.ask("/v1/models")
        (record,) = caplog.records
        assert record.getMessage().startswith("GET /v1/models 200 ")
        assert record.fields["status"] == 200  # type: ignore[attr-defined]
        assert capsys.readouterr().err == ""


class TestIds:
    @pytest.mark.parametrize("given", ["order-17", "a" * 128, "4bf92f35/00f067aa=1:b@c.d_e+"])
    def test_an_id_is_taken(self, server: Running, given: str) -> None:
        for path, status in (("/healthz", 200), ("/v1/models", 401)):
            reply = server.ask(path, headers={"X-Request-ID": given})
            assert (reply.status, reply.headers["X-Request-ID"]) == (status, given)
        assert reply.json["error"]["request_id"] == given

    @pytest.mark.parametrize("given", ["", "a" * 129, "two words", "a\tb", 'a"b', "a,b", "\xe9", "<a>"])
    def test_an_id_that_is_too_long_or_has_other_characters_is_replaced(
        self, server: Running, given: str
    ) -> None:
        reply = server.ask("/v1/models", headers={"X-Request-ID": given})
        made = reply.headers["X-Request-ID"]
        assert re.fullmatch("[0-9a-f]{32}", made)
        assert reply.json["error"]["request_id"] == made

    def test_errors_for_the_inference_client_have_the_id_too(self, server: Running) -> None:
        headers = {"X-Request-ID": "order-17", "Authorization": "Bearer secret"}
        reply = server.ask("/pipeline/nothing", {"inputs": "a"}, headers=headers)
        assert (reply.status, reply.json["request_id"]) == (404, "order-17")

    def test_the_ids_of_requests_at_the_same_time_are_not_confused(self, server: Running) -> None:
        def ask(number: int) -> str:
            headers = {"X-Request-ID": f"n{number}", "Authorization": "Bearer secret"}
            return server.ask("/v1/embeddings", {"input": []}, headers=headers).json["error"]["request_id"]

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(ask, range(100))) == [f"n{number}" for number in range(100)]


def test_client_errors_are_counted_by_model_and_status(folders: Any) -> None:
    models = {name: folders[name] for name in ("classifier", "nli", "reader")}
    with running(settings_for(models)) as server:
        for path, body in [
            ("/v1/classify", {"input": CONTEXT, "model": "nli"}),  # too long
            ("/v1/classify", {"input": 7, "model": "nli"}),
            ("/v1/classify", {"input": 7}),
            ("/v1/classify", {"input": "a", "model": "reader"}),  # a wrong task
            ("/v1/classify", {"input": "a", "model": "x" * 500}),
            ("/v1/classify", {"input": ["a"] * 257, "model": "reader"}),
            ("/v1/classify", {"input": ["a"] * 257, "model": "classifier"}),
            ("/v1/classify", b'{"input": '),
        ]:
            assert 400 <= server.ask(path, body).status < 500
        text = server.ask("/metrics").content.decode()
    counts = re.findall(r'^albertkit_errors_total{model="(.*)",status="(.*)",type="(.*)"} (.*)$', text, re.M)
    assert sorted(counts) == [
        ("", "404", "unknown_model", "1.0"),
        ("", "404", "wrong_task", "2.0"),
        ("classifier", "400", "malformed", "1.0"),
        ("classifier", "413", "too_many_items", "1.0"),
        ("classifier", "422", "invalid", "1.0"),
        ("nli", "422", "invalid", "2.0"),
    ]


class TestCors:
    def test_a_browser_asks_before_and_reads_the_answer(self, server: Running) -> None:
        headers = {
            "Origin": PAGE,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os",
        }
        asked = server.ask("/v1/embeddings", method="OPTIONS", headers=headers)
        assert asked.status == 200
        assert asked.headers["Access-Control-Allow-Origin"] == PAGE
        assert "POST" in asked.headers["Access-Control-Allow-Methods"]
        assert "authorization" in asked.headers["Access-Control-Allow-Headers"]
        assert asked.headers["X-Request-ID"]
        counts = server.ask("/metrics", headers={"Authorization": "Bearer secret"}).content.decode()
        assert 'route="/v1/embeddings",status="200"' not in counts  # the question of a browser is no request
        sent = {"Origin": PAGE, "Content-Type": "application/json", "Authorization": "Bearer secret"}
        for headers, status in ((sent, 200), (sent | {"Authorization": "Bearer wrong"}, 401)):
            reply = server.ask("/v1/embeddings", {"input": "a"}, headers=headers)
            assert (reply.status, reply.headers["Access-Control-Allow-Origin"]) == (status, PAGE)
            assert "X-Request-ID" in reply.headers["Access-Control-Expose-Headers"]
            assert "Access-Control-Allow-Credentials" not in reply.headers

    def test_other_origins_are_not_allowed(self, server: Running) -> None:
        headers = {"Origin": "https://other.example", "Access-Control-Request-Method": "POST"}
        asked = server.ask("/v1/embeddings", method="OPTIONS", headers=headers)
        assert (asked.status, asked.headers["Access-Control-Allow-Origin"]) == (400, None)
        reply = server.ask("/healthz", headers={"Origin": "https://other.example"})
        assert (reply.status, reply.headers["Access-Control-Allow-Origin"]) == (200, None)

    def test_all_origins_or_none(self, folders: Any) -> None:
        for cors, allowed in ((["*"], "*"), ([], None)):
            with running(settings_for({"encoder": folders["encoder"]}, cors=cors)) as server:
                reply = server.ask("/healthz", headers={"Origin": PAGE})
                assert reply.headers["Access-Control-Allow-Origin"] == allowed


def test_the_docs_without_a_key(folders: Any) -> None:
    models = {"encoder": folders["encoder"]}
    with running(settings_for(models, public_docs=True), key="secret") as server:
        assert b"SwaggerUIBundle" in server.ask("/docs").content
        assert "/v1/embeddings" in server.ask("/openapi.json").json["paths"]
        assert server.ask("/v1/models").status == server.ask("/metrics").status == 401
