"""Tests of requests that a server rejects, of slow and too many clients, and of the OpenAPI description."""

import json
import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs the server's libraries: pip install 'albertkit[serve]'")

from serving_fixtures import auto_server_fixture, folders_fixture, server_fixture, watched_fixture  # noqa: F401
from serving_requests import CONTEXT, PAIRS, engine_of, settings_for
from serving_server import Running, running, wait_for

from albertkit.serving.models import ServedModel


class TestLimits:
    def test_bodies_items_characters_and_tokens(self, server: Running) -> None:
        most = server.service.settings
        text = "a" * 1_000_000
        for body, kind in [
            ({"input": "a" * (most.max_body_bytes + 1)}, "too_many_bytes"),
            ({"input": ["a"] * 9}, "too_many_items"),
            ({"input": text}, "too_many_characters"),
            ({"input": "ab " * 5_000, "model": "tagger"}, "too_many_tokens"),
            ({"input": ["ab " * 500] * 4}, "too_many_tokens"),
        ]:
            path = "/v1/tag" if "model" in body else "/v1/tokenize"
            began = time.monotonic()
            reply = server.ask(path, body)
            assert (reply.status, reply.kind) == (413, kind)
            assert kind == "too_many_tokens" or time.monotonic() - began < 5
            assert "Expected at most" in reply.json["error"]["message"]
        # What is repeated counts as often.
        choices = {"context": "a" * 50_000, "choices": ["a"] * 5}
        assert server.ask("/v1/choose", {"input": choices}).kind == "too_many_characters"
        gaps = {"context": "a", "question": "_" * 1000, "choices": ["a" * 1000, "b"]}
        assert server.ask("/v1/choose", {"input": gaps}).kind == "too_many_characters"
        ligatures = {"input": "\ufdfa" * 20_000}
        assert server.ask("/v1/tokenize", ligatures).kind == "too_many_characters"
        masks = {"input": "[MASK] " * 120, "top_k": 100}
        reply = server.ask("/v1/fill-mask", masks)
        assert (reply.status, reply.kind) == (413, "too_many_characters")
        message = reply.json["error"]["message"]
        assert "has 504,840 characters" not in message  # it has 840
        assert "counts as 504,840 characters" in message
        assert "[MASK]" in message
        for name, body in (
            ("zero-shot", {"input": "a" * 5000, "candidate_labels": ["b"] * 50}),
            ("choose", {"input": choices}),
        ):
            message = server.ask(f"/v1/{name}", body).json["error"]["message"]
            assert "the request counts as" in message
            assert ("label" if name == "zero-shot" else "choice") in message
        for texts, labels, kind in [
            (["a" * 5000], ["b"] * 50, "too_many_characters"),
            (["a"], ["b" * 1000] * 300, "too_many_characters"),
            ([""] * 8, ["b"] * 1000, "too_many_characters"),  # each row has special tokens
            (["a fox"], ["b"] * 500, "too_many_tokens"),
            (["a"] * 9, ["b"], "too_many_items"),
        ]:
            body = {"input": texts, "candidate_labels": labels}
            reply = server.ask("/v1/zero-shot", body)
            assert (reply.status, reply.kind) == (413, kind), (texts, labels[0])

    def test_clients_cannot_fill_the_log(
        self, server: Running, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
    ) -> None:
        head = b"GET /healthz HTTP/1.1\r\nHost: a\r\n"
        upgrade = head + b"Connection: Upgrade, close\r\nUpgrade: %s\r\n\r\n"
        for request in (
            b"\x16\x03\x01 no HTTP\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            head + b"Content-Length: -1\r\n\r\n",
            upgrade % b"websocket",
            upgrade % b"h2c",
        ):
            with server.connect() as connection:
                connection.sendall(request)
                assert connection.recv(1000).startswith(b"HTTP/1.1 ")
        for _ in range(10):  # clients that leave before they have their response
            with server.connect() as connection:
                connection.sendall(head + b"\r\n")
        assert server.ask("/healthz").status == 200
        assert capfd.readouterr().err == ""
        assert not caplog.records

    def test_a_body_in_chunks_is_counted_too(self, server: Running) -> None:
        with server.connect() as connection:
            connection.sendall(
                b"POST /v1/tag HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n"
            )
            for _ in range(33):
                connection.sendall(b"10000\r\n" + b"a" * 65536 + b"\r\n")
            assert connection.recv(1000).startswith(b"HTTP/1.1 413")

    @pytest.mark.parametrize(
        ("body", "status"),
        [
            (b"", 422),
            (b'{"input"', 400),
            (b"\xff\xfe", 400),
            (b"[" * 5_000, 400),
            (b'{"input": ' + b"9" * 5000 + b"}", 400),
            (b'{"input": "\\ud800"}', 422),
            (b'{"input": "a", "\\ud800": 1}', 422),
            (b'{"input": "a", "top_k": NaN}', 422),
            (b'{"input": "a", "top_k": "1"}', 422),
            (b'{"input": "a", "unknown": 1}', 422),
            (b'{"input": []}', 422),
            (b'{"input": null}', 422),
            (b"[]", 422),
        ],
        ids=range(13),
    )
    def test_malformed_bodies(self, server: Running, body: bytes, status: int) -> None:
        reply = server.ask("/v1/classify", body)
        assert reply.status == status, reply.content
        assert reply.kind == ("malformed" if status == 400 else "invalid")

    @pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded"])
    def test_another_content_type_is_named(self, server: Running, kind: str) -> None:
        reply = server.ask("/v1/classify", b'{"input": "a"}', headers={"Content-Type": kind})
        error = reply.json["error"]
        assert (reply.status, error["param"]) == (422, "Content-Type")
        assert f"is {kind!r}. Expected Content-Type: application/json." in error["message"]

    def test_other_methods_and_paths(self, server: Running) -> None:
        assert server.ask("/v1/classify").status == 405
        for path in ("/v1/nothing", "/v1/embeddings/"):
            assert server.ask(path, {"input": "a"}).kind == "unknown_path"


class TestRefusals:
    """They speak of the fields and headers that the client wrote."""

    @pytest.mark.parametrize(
        ("path", "body", "param", "message"),
        [
            ("classify", {"input": ["a", {"text": 1}]}, "input", "input.list"),
            ("classify", {}, "input", "input: Field required"),
            ("classify", {"input": "a", "topk": 1}, "topk", "topk: Extra inputs are not permitted"),
            ("classify", {"input": CONTEXT}, "input", 'or set "truncation" to true.'),
            ("tag", {"input": "a", "aggregation_strategy": "x"}, "aggregation_strategy", "'none', "),
            ("answer", {"input": {"question": CONTEXT, "context": "a"}}, "input", "Expected at most 32"),
            (
                "order",
                {"input": [PAIRS[0], {"text": CONTEXT, "text_pair": "a"}]},
                "input",
                "input[1]: the pair",
            ),
            ("fill-mask", {"input": "[MASK]", "targets": ["a [MASK]"]}, "targets", "the target 'a [MASK]'"),
            ("fill-mask", {"input": "a"}, "input", "there is no [MASK] in the text 'a'"),
            ("embeddings", {"input": "a", "dimensions": 16}, "dimensions", "dimensions is 16. Expected 32"),
        ],
    )
    def test_a_wrong_body(
        self, server: Running, path: str, body: Any, param: str | None, message: str
    ) -> None:
        reply = server.ask(f"/v1/{path}", body)
        assert (reply.status, reply.kind) == (422, "invalid"), reply.content
        assert reply.json["error"]["param"] == param
        assert message in reply.json["error"]["message"]
        assert "truncation=True" not in reply.json["error"]["message"]


class TestClients:
    @pytest.mark.parametrize("end", ["aborted", "slow", "too long"])
    def test_whose_bodies_never_end_leave_no_bytes(self, folders: Any, end: str) -> None:
        settings = settings_for(
            {"pretrained": folders["pretrained"]},
            max_body_bytes=20_000,
            client_seconds=0.3 if end == "slow" else 10,
        )
        head = b"POST /v1/tokenize HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        status, kind, part = {
            "aborted": (b"", "client_gone", b" " * 18_000),
            "slow": (b"HTTP/1.1 408", "slow_client", b" " * 18_000),
            "too long": (b"HTTP/1.1 413", "too_many_bytes", b" " * 20_001),
        }[end]
        with running(settings) as server:
            for number in range(1, 11):  # together more than 8 bodies of maximum size
                with server.connect() as connection:
                    # In chunks, because a declared length that is too long is rejected at once.
                    chunk = b"%x\r\n%b\r\n" % (len(part), part)
                    connection.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk)
                    if status:
                        assert connection.recv(2000).startswith(status)
                wait_for(lambda count=number: server.errors(kind) == count, seconds=10)
            reply = server.ask("/v1/tokenize", {"input": "an old fox" + " " * 17_000})
            assert reply.status == 200, reply.content

    def test_whose_bodies_are_incomplete_share_the_memory_for_eight(self, folders: Any) -> None:
        limits = {"max_body_bytes": 100_000, "client_seconds": 30.0}
        head = b"POST /v1/tokenize HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        incomplete = head + b'Content-Length: 99500\r\n\r\n{"input": "' + b" " * 98_989  # 99,000 bytes
        large, small = {"input": "a" + " " * 17_000}, {"input": "a" + " " * 15_000}
        with running(settings_for({"encoder": folders["encoder"]}, **limits)) as server:

            def is_full() -> bool:
                reply = server.ask("/v1/tokenize", large)
                if reply.status == 200:
                    return False
                assert (reply.status, reply.kind, reply.headers["Retry-After"]) == (429, "overloaded", "30")
                # The 8 bodies have 792,000 bytes. This one was rejected after 16,384 to 17,013 bytes.
                expected = r"the server is receiving 80[89],\d{3} bytes of request bodies\. Try again later\."
                assert re.fullmatch(expected, reply.json["error"]["message"])
                return True

            for _ in range(20):  # complete bodies do not count: together, these have 1.8 MB
                assert server.ask("/v1/tokenize", {"input": "a" + " " * 90_000}).status == 200
            connections = [server.connect() for _ in range(10)]
            for connection in connections[:8]:
                connection.sendall(incomplete)
            wait_for(is_full, seconds=20)
            assert is_full()  # rejected bodies do not count either
            assert server.ask("/v1/tokenize", small).status == 200
            connections[0].close()
            wait_for(lambda: not is_full(), seconds=20)
            connections[8].sendall(incomplete)
            wait_for(is_full, seconds=20)
            connections[1].sendall(b'a"}'.rjust(500))  # the rest of its body
            assert connections[1].recv(100).startswith(b"HTTP/1.1 200")
            assert not is_full()
            connections[9].sendall(incomplete)
            wait_for(is_full, seconds=20)
            for connection in connections[1:]:
                connection.close()
            wait_for(lambda: not is_full(), seconds=20)

    def test_that_disconnect_leave_the_queue(self, folders: Any, watched: ServedModel) -> None:
        engine = engine_of(watched)
        with running(settings_for({"pretrained": folders["pretrained"]}), {"pretrained": watched}) as server:
            engine.may_go.clear()
            head = b"POST /v1/order HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
            body = json.dumps({"input": PAIRS[0]}).encode()
            connections = [server.connect() for _ in range(3)]
            for connection in connections:
                connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
                wait_for(engine.entered.is_set)  # the first alone is computed
            wait_for(lambda: len(server.service.queue.requests) == 3)
            for connection in connections:
                connection.shutdown(socket.SHUT_RDWR)
                connection.close()
            wait_for(lambda: len(server.service.queue.requests) == 0)
            engine.may_go.set()
            assert server.ask("/v1/order", {"input": PAIRS[1]}).status == 200
            assert server.errors("client_gone") == 3
        assert list(map(len, engine.batches_seen)) == [1, 1]

    def test_that_set_a_deadline(self, folders: Any, watched: ServedModel) -> None:
        engine = engine_of(watched)
        with running(settings_for({"pretrained": folders["pretrained"]}), {"pretrained": watched}) as server:
            engine.may_go.clear()
            with ThreadPoolExecutor(1) as pool:
                blocking = pool.submit(server.ask, "/v1/order", {"input": PAIRS[0]})
                wait_for(engine.entered.is_set)
                late = server.ask("/v1/order", {"input": PAIRS[1]}, headers={"X-Request-Timeout": "0.2"})
                assert (late.status, late.kind) == (504, "deadline")
                assert late.json["error"]["param"] == "X-Request-Timeout"
                engine.may_go.set()
                assert blocking.result().status == 200
            wait_for(lambda: len(server.service.queue.requests) == 0)
            wait_for(lambda: server.figure("albertkit_queue_rows") == 0, seconds=10)
            assert len(engine.batches_seen) == 1  # the late one never was computed
            for wrong in ("soon", "0", "-1", "nan", "inf"):
                reply = server.ask("/v1/order", {"input": PAIRS[1]}, headers={"X-Request-Timeout": wrong})
                assert (reply.status, reply.kind) == (422, "invalid")

    def test_that_are_too_many(self, folders: Any, watched: ServedModel) -> None:
        engine = engine_of(watched)
        settings = settings_for({"pretrained": folders["pretrained"]}, max_requests=2)
        with running(settings, {"pretrained": watched}) as server:
            engine.may_go.clear()
            with ThreadPoolExecutor(2) as pool:
                inside = [pool.submit(server.ask, "/v1/order", {"input": PAIRS[0]}) for _ in range(2)]
                wait_for(lambda: len(server.service.queue.requests) == 2)
                began = time.monotonic()
                refused = server.ask("/v1/order", {"input": PAIRS[0]})
                assert (refused.status, refused.kind) == (429, "overloaded")
                assert int(refused.headers["Retry-After"]) >= 1
                assert time.monotonic() - began < 5
                assert server.ask("/healthz").status == 200
                engine.may_go.set()
                assert [one.result().status for one in inside] == [200, 200]
            wait_for(lambda: len(server.service.queue.requests) == 0)
            assert server.ask("/v1/order", {"input": PAIRS[0]}).status == 200

    def test_that_could_not_be_answered_in_time(self, folders: Any, watched: ServedModel) -> None:
        engine = engine_of(watched)
        with running(settings_for({"pretrained": folders["pretrained"]}), {"pretrained": watched}) as server:
            engine.may_go.clear()
            server.service.queue.seconds_per_token = 1.0
            with ThreadPoolExecutor(1) as pool:
                inside = pool.submit(server.ask, "/v1/order", {"input": PAIRS[0]})
                wait_for(engine.entered.is_set)
                refused = server.ask("/v1/order", {"input": PAIRS[1]}, headers={"X-Request-Timeout": "2"})
                assert (refused.status, refused.kind) == (429, "overloaded")
                assert int(refused.headers["Retry-After"]) > 2
                assert refused.json["error"]["param"] == "X-Request-Timeout"
                wanted = "at most 2 seconds. Try again later, or allow more time (X-Request-Timeout)."
                assert refused.json["error"]["message"].endswith(wanted)
                # It needs no model.
                assert server.ask("/v1/tokenize", {"input": CONTEXT}).status == 200
                # Its time is over before it is admitted.
                late = server.ask("/v1/order", {"input": PAIRS[1]}, headers={"X-Request-Timeout": "1e-9"})
                assert (late.status, late.kind) == (504, "deadline")
                assert late.json["error"]["message"] == (
                    "the response took more than 1e-09 seconds. Send less text, or allow more time "
                    "(X-Request-Timeout)."
                )
                engine.may_go.set()
                assert inside.result().status == 200


def test_schemathesis_finds_nothing_undescribed(server: Running) -> None:
    """Schemathesis sends requests that the OpenAPI description allows or forbids."""
    schemathesis = pytest.importorskip("schemathesis")
    from hypothesis import HealthCheck, Phase, given, settings
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    wanted = [
        not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
        checks.negative_data_rejection,
    ]  # not that all that is allowed is accepted: a text without [MASK] is not
    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{server.port}/openapi.json")
    statuses = []
    for operation in (result.ok() for result in schema.get_all_operations()):
        for mode in schemathesis.GenerationMode:

            @settings(
                max_examples=5,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy(generation_mode=mode))
            def ask(case: Any) -> None:
                response = case.call()
                # An X-Request-Timeout of 1e-287 seconds ends in a 504, as described.
                late = response.status_code == 504 and "X-Request-Timeout" in (case.headers or {})
                excluded = [not_a_server_error] if late else []
                case.validate_response(response, checks=wanted, excluded_checks=excluded)
                statuses.append(response.status_code)

            if operation.body or mode.is_positive:  # nothing to forbid without a body
                ask()
    assert len(statuses) > 60
    assert {200, 422} <= set(statuses)
