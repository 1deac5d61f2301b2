"""The playground's pages and its route /v1/inspect, and the command that opens the playground."""

import base64
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="needs the server's libraries: pip install 'albertkit[serve]'")

from playground_fixtures import (  # noqa: F401
    KEY,
    folders_fixture,
    models_fixture,
    server_fixture,
    settings_fixture,
)
from playground_pages import MASKED
from serving_server import Running, WatchedEngine, running, wait_for

from albertkit.inspection.attention import compute_attention
from albertkit.pipelines import pipeline
from albertkit.serving.models import ServedModel
from albertkit.serving.settings import ServingSettings


class TestServer:
    def test_the_page_may_load_nothing_from_elsewhere(self, server: Running) -> None:
        page = server.ask("/playground")
        assert page.status == 200
        assert page.headers["Content-Type"] == "text/html; charset=utf-8"
        policy = page.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        named = set(re.findall(r'(?:src|href)="([^"]+)"', page.content.decode()))
        assert {f"playground/{name}" for name in ("shared.css", "playground.js", "icon.svg")} <= named
        for name in named:
            reply = server.ask(f"/{name}")
            assert (reply.status, reply.headers["X-Content-Type-Options"]) == (200, "nosniff")
            # Asked for again every time, and sent again only if it is another.
            again = server.ask(f"/{name}", headers={"If-None-Match": reply.headers["ETag"]})
            assert (again.status, again.content) == (304, b"")
            assert server.ask(f"/{name}", headers={"If-None-Match": '"other"'}).content == reply.content
            assert server.ask(f"/{name}", method="HEAD").status == 200
        assert server.ask("/").headers["Location"] == "playground"
        assert server.ask("/playground/../settings.py").status == 404
        assert 'route="/playground"' in server.ask("/metrics").content.decode()

    def test_inspect_has_the_values_of_inspection(
        self, server: Running, models: dict[str, ServedModel]
    ) -> None:
        one = models["pretrained"].any_pipeline
        expected = compute_attention(one.model, one.tokenizer, MASKED, "a fox", parse_special_tokens="mask")
        body = {"input": {"text": MASKED, "text_pair": "a fox"}, "masks": True}
        reply = server.ask("/v1/inspect", body).json
        (found,) = reply["results"]
        assert reply["usage"]["total_tokens"] == len(expected.tokens)
        assert found["tokens"] == expected.tokens
        assert "[MASK]" in found["tokens"]
        assert (found["special"], found["segments"]) == (expected.special, expected.segments)
        for layer, own in zip(found["layers"], expected.layers, strict=True):
            packed = np.frombuffer(base64.b64decode(layer["attention"]), "<u2") / found["scale"]
            np.testing.assert_allclose(packed, own.probabilities.ravel(), atol=1e-5)
            assert (layer["stored"], layer["heads"]) == (own.stored, own.heads)
        np.testing.assert_allclose(found["cosine_to_last"], expected.cosine_to_last, atol=1e-5)
        np.testing.assert_allclose(found["cosine_to_previous"], expected.cosine_to_previous, atol=1e-5)
        # Without being asked for, a mask is text, as everywhere.
        assert "[MASK]" not in server.results("/v1/inspect", {"input": MASKED})[0]["tokens"]
        for route in ("inspect", "tokenize"):
            (masked,) = server.results(f"/v1/{route}", {"input": MASKED, "masks": True})
            assert masked["tokens"].count("[MASK]") == 1

    def test_inspect_has_the_limits_of_all_routes(self, server: Running) -> None:
        long = "the river " * 50
        reply = server.ask("/v1/inspect", {"input": long})
        assert (reply.status, reply.kind) == (422, "invalid")
        assert server.results("/v1/inspect", {"input": long, "truncation": True})[0]["cut"] > 0
        for body, status in [
            ({"input": " "}, 422),
            ({"input": ["a", "b"]}, 422),
            ({"input": "a", "layers": 1}, 422),
            ({"input": "a" * 4000}, 413),
            ({"input": "a", "model": "nobody"}, 404),
        ]:
            assert server.ask("/v1/inspect", body).status == status
        described = server.ask("/openapi.json").json
        assert set(described["paths"]["/v1/inspect"]["post"]["responses"]) >= {"200", "413", "422", "429"}
        assert "/playground" not in described["paths"]

    def test_inspect_is_computed_in_turn_and_in_its_time(
        self, settings: ServingSettings, models: dict[str, ServedModel]
    ) -> None:
        engine = WatchedEngine(models["pretrained"].engine)
        one = replace(models["pretrained"], pipelines=dict(models["pretrained"].pipelines))
        for name, own in one.pipelines.items():
            one.pipelines[name] = pipeline(name, model=own.model, tokenizer=own.tokenizer, engine=engine)
        with running(replace(settings, models={"pretrained": "-"}), {"pretrained": one}) as server:
            engine.may_go.clear()
            connection = server.connect()
            content = json.dumps({"input": "a fox"}).encode()
            connection.sendall(
                b"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n" % len(content) + content
            )
            assert engine.entered.wait(60)
            late = server.ask(
                "/v1/inspect",
                {"input": "a fox"},
                headers={"Content-Type": "application/json", "X-Request-Timeout": "0.3"},
            )
            assert (late.status, late.kind) == (504, "deadline")
            engine.may_go.set()
            connection.close()
            assert server.ask("/v1/inspect", {"input": "a fox"}).status == 200

    def test_not_there_unless_wanted(self, settings: ServingSettings, models: dict[str, ServedModel]) -> None:
        with running(replace(settings, playground=False), models) as server:
            for path in ("/playground", "/playground/playground.js"):
                assert server.ask(path).status == 404
            assert server.ask("/").status == 404
            assert server.ask("/v1/inspect", {"input": "a"}).status == 404
            assert "/v1/inspect" not in server.ask("/openapi.json").json["paths"]

    def test_pages_are_open_and_the_rest_is_not(
        self, settings: ServingSettings, models: dict[str, ServedModel]
    ) -> None:
        with running(settings, models, key=KEY) as server:
            assert server.ask("/playground").status == 200
            assert server.ask("/playground/server.js").status == 200
            assert server.ask("/v1/inspect", {"input": "a"}).status == 401
            assert server.ask("/v1/models").status == 401
            assert server.ask("/playground/nothing.js").status == 401


class TestCommand:
    def test_playground_opens_a_browser(self, folders: dict[str, str], tmp_path: Path) -> None:
        browser, opened = tmp_path / "browser", tmp_path / "opened"
        browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
        browser.chmod(0o755)
        call = ["playground", "--model", f"tiny={folders['pretrained']}", "--device", "cpu"]
        process = subprocess.Popen(
            [sys.executable, "-m", "albertkit", *call],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"ALBERTKIT_THREADS": "1", "BROWSER": f"{browser} %s"},
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            expected = r"tiny \(.*\) in the playground at (http://127\.0\.0\.1:(\d+)/playground)\n"
            found = re.fullmatch(expected, line)
            assert found, line
            wait_for(lambda: opened.exists() and opened.read_text() == f"{found[1]}\n")
            server = Running(None, int(found[2]))  # type: ignore[arg-type]
            assert server.ask("/playground").status == 200
            assert server.results("/v1/inspect", {"input": "a fox"})[0]["tokens"][-1] == "[SEP]"
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.communicate()
