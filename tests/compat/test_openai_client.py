"""Tests of the OpenAI client with a running server: embeddings, options, models and errors.

    pip install openai
    pytest tests/compat/test_openai_client.py

pytest skips the tests if the client is not installed.
"""

import asyncio
import base64
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from places import ROOT

pytest.importorskip("openai", reason="needs the OpenAI client: pip install openai")

import openai
from serving_server import Running, running

from albertkit.pipelines import pipeline
from albertkit.serving.settings import ServingSettings

KEY = "secret"
TEXTS = ["She opened the door.", "The ship sank."]


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    settings = ServingSettings(models={"bundled": "bundled"}, port=0, device="cpu", max_items=8)
    with running(settings, key=KEY) as started:
        yield started


def options(server: Running) -> dict[str, Any]:
    return {"base_url": f"http://127.0.0.1:{server.port}/v1", "api_key": KEY, "max_retries": 0}


@pytest.fixture
def client(server: Running) -> Any:
    return openai.OpenAI(**options(server))


def test_embeddings(server: Running, client: Any) -> None:
    expected = np.array(pipeline("feature-extraction", device="cpu")(TEXTS, pooling="mean", normalize=True))
    for given in ({}, {"encoding_format": "float"}, {"dimensions": 256, "user": "somebody"}):
        answer = client.embeddings.create(model="bundled", input=TEXTS, **given)
        np.testing.assert_allclose([item.embedding for item in answer.data], expected, atol=1e-5)
        assert [item.index for item in answer.data] == [0, 1]
        assert (answer.model, answer.usage.prompt_tokens) == ("bundled", 13)
    answer = client.embeddings.create(model="bundled", input=TEXTS[0], encoding_format="base64")
    encoded = answer.data[0].embedding
    np.testing.assert_allclose(np.frombuffer(base64.b64decode(encoded), "<f4"), expected[0], atol=1e-5)
    long = client.embeddings.create(model="bundled", input="word " * 500, extra_body={"truncation": True})
    assert len(long.data) == 1

    async def ask() -> Any:
        client = openai.AsyncOpenAI(**options(server))
        return await asyncio.gather(
            *(client.embeddings.create(model="bundled", input=text) for text in TEXTS)
        )

    vectors = [answer.data[0].embedding for answer in asyncio.run(ask())]
    np.testing.assert_allclose(vectors, expected, atol=1e-5)


def test_models(client: Any) -> None:
    assert [model.id for model in client.models.list()] == ["bundled"]
    assert client.models.retrieve("bundled").owned_by == "albertkit"
    with pytest.raises(openai.NotFoundError, match=r"there is no model 'gpt'\. The models are bundled"):
        client.models.retrieve("gpt")


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"input": []}, openai.UnprocessableEntityError, "input is a list of length 0. Expected at least 1"),
        (
            {"input": [[1, 2]]},
            openai.UnprocessableEntityError,
            r"input\[0\] is a list of length 2. Expected a text",
        ),
        ({"dimensions": 8}, openai.UnprocessableEntityError, "dimensions is 8. Expected 256"),
        ({"encoding_format": "hex"}, openai.UnprocessableEntityError, 'encoding_format is "hex". Expected'),
        (
            {"extra_body": {"other": 1}},
            openai.UnprocessableEntityError,
            "other is not a field of this request",
        ),
        (
            {"input": "word " * 500},
            openai.UnprocessableEntityError,
            r"502 tokens with \[CLS\] and \[SEP\], but the maximum is 128\. Split it into shorter "
            r"texts, or allow truncation \(\"truncate\": true\)",
        ),
        (
            {"model": "text-embedding-3-small"},
            openai.NotFoundError,
            r"there is no model 'text-embedding-3-small'\. The models are bundled\.",
        ),
        ({"extra_headers": {"X-Request-Timeout": "0.0000001"}}, openai.InternalServerError, "took more than"),
        ({"input": ["a"] * 9}, openai.APIStatusError, "9 inputs. Expected at most 8"),
    ],
)
def test_errors(client: Any, given: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        client.embeddings.create(**({"model": "bundled", "input": "a"} | given))


def test_wrong_key(server: Running) -> None:
    client = openai.OpenAI(**(options(server) | {"api_key": "wrong"}))
    with pytest.raises(openai.AuthenticationError, match="Authorization: Bearer KEY"):
        client.embeddings.create(model="bundled", input="a")


def test_page(server: Running, capsys: pytest.CaptureFixture[str]) -> None:
    """Run the block of the page, and compare its output with the page."""
    page = (ROOT / "docs" / "how-to" / "clients.md").read_text(encoding="utf-8")
    block = re.search(r"```python\n(from openai.*?)```\n\n```text\n(.*?)```", page, re.DOTALL)
    assert block
    code = block[1].replace("localhost:8080", f"127.0.0.1:{server.port}")
    exec(code.replace("the-key-of-the-server", KEY))
    assert capsys.readouterr().out == block[2]
