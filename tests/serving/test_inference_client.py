"""Tests of `huggingface_hub.InferenceClient` with a running server: answers, options and errors."""

import asyncio
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="needs the server's libraries: pip install 'albertkit[serve]'")
pytest.importorskip("huggingface_hub", reason="needs the client: pip install huggingface_hub")

import huggingface_hub as hub
from huggingface_hub.errors import HfHubHTTPError
from serving_fixtures import folders_fixture  # noqa: F401  # a fixture
from serving_requests import CONTEXT, settings_for
from serving_server import Running, running

from albertkit.pipelines import pipeline

KEY = "secret"
MASKED = "the captain opened [MASK] in the morning"
TEXTS = ["the captain opened a silver key", "my sister followed the river", "a fox"]


@pytest.fixture(scope="module")
def server(folders: dict[str, str]) -> Iterator[Running]:
    """Run a server with a key and the playground."""
    settings = settings_for(folders, max_items=8, playground=True)
    with running(settings, key=KEY) as started:
        started.headers = {"Authorization": f"Bearer {KEY}"}
        yield started


@pytest.fixture(autouse=True)
def _loopback_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow requests: the suite sets HF_HUB_OFFLINE, with which the client sends none."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)


def client(server: Running, task: str, model: str | None = None, **given: Any) -> Any:
    options: dict[str, Any] = {"token": KEY} | given
    path = f"/models/{model}/pipeline/{task}" if model else f"/pipeline/{task}"
    return hub.InferenceClient(base_url=f"http://127.0.0.1:{server.port}{path}", **options)


def local(folders: dict[str, str], task: str, name: str) -> Any:
    found = pipeline(task, folders[name], device="cpu")
    found.tokenizer.parse_special_tokens = False
    return found


def numbers(found: Any, *names: str) -> list[Any]:
    return [tuple(round(v, 4) if isinstance(v, float) else v for v in map(one.get, names)) for one in found]


def test_fill_mask(server: Running, folders: Any) -> None:
    expected = pipeline("fill-mask", folders["pretrained"], device="cpu")
    names = ("score", "token", "token_str", "sequence")
    for model in (None, "pretrained"):
        found = client(server, "fill-mask", model).fill_mask(MASKED)
        assert numbers(found, *names) == numbers(expected(MASKED), *names)
    given = {"targets": ["harbour", "word"], "top_k": 1}
    found = client(server, "fill-mask").fill_mask(MASKED, **given)
    assert numbers(found, *names) == numbers(expected(MASKED, **given), *names)
    two = server.ask(
        "/pipeline/fill-mask", {"inputs": [MASKED, f"{MASKED} [MASK]"], "parameters": {"top_k": 2}}
    ).json
    assert numbers(two[0], *names) == numbers(expected(MASKED, top_k=2), *names)
    assert [len(one) for one in two[1]] == [2, 2]


def test_text_classification(server: Running, folders: Any) -> None:
    expected = local(folders, "text-classification", "classifier")
    ask = client(server, "text-classification", "classifier")
    for given in ({}, {"top_k": 2}, {"function_to_apply": "none", "top_k": 1}):
        found = ask.text_classification(TEXTS[0], **given)
        wanted = expected(TEXTS[0], **({"top_k": None} | given))
        assert numbers(found, "label", "score") == numbers(wanted, "label", "score"), given
    pair = {"text": TEXTS[0], "text_pair": TEXTS[1]}
    path = "/models/classifier/pipeline/text-classification"
    many = server.ask(path, {"inputs": [TEXTS[0], pair]}).json
    assert [numbers(one, "label", "score") for one in many] == [
        numbers(expected(one, top_k=None), "label", "score") for one in (TEXTS[0], pair)
    ]
    long = {"inputs": CONTEXT, "parameters": {"top_k": 1}}
    assert server.ask(path, long).status == 422
    long["parameters"]["truncate"] = True
    assert server.ask(path, long).json[0][0]["cut"] > 0


def test_zero_shot_classification(server: Running, folders: Any) -> None:
    expected = local(folders, "zero-shot-classification", "nli")
    labels = ["river", "sea", "silver, or a key"]
    for given in ({}, {"multi_label": True, "hypothesis_template": "the captain opened {}"}):
        wanted = expected(TEXTS[0], labels, **given)
        wanted = list(zip(wanted["labels"], np.round(wanted["scores"], 4).tolist(), strict=True))
        found = client(server, "zero-shot-classification").zero_shot_classification(TEXTS[0], labels, **given)
        assert numbers(found, "label", "score") == wanted, given


def test_token_classification(server: Running, folders: Any) -> None:
    expected = local(folders, "token-classification", "tagger")
    names = ("entity", "entity_group", "score", "word", "start", "end")
    for given in ({}, {"aggregation_strategy": "max", "ignore_labels": ["LABEL_1"]}, {"stride": 0}):
        found = client(server, "token-classification").token_classification(CONTEXT, **given)
        wanted = expected(CONTEXT, **({"aggregation_strategy": "simple"} | given))
        assert numbers(found, *names) == numbers(wanted, *names), given


def test_question_answering(server: Running, folders: Any) -> None:
    expected = local(folders, "question-answering", "reader")
    question = {"question": "who followed the river?", "context": CONTEXT}
    for given in ({}, {"top_k": 3, "max_seq_len": 32}, {"doc_stride": 0, "align_to_words": False}):
        found = client(server, "question-answering").question_answering(**question, **given)
        wanted = expected(question, **{n: v for n, v in given.items() if n != "align_to_words"})
        found, wanted = (one if isinstance(one, list) else [one] for one in (found, wanted))
        names = ("answer", "start", "end", "score")
        assert numbers(found, *names) == numbers(wanted, *names), given


def test_feature_extraction_and_sentence_similarity(server: Running, folders: Any) -> None:
    expected = local(folders, "feature-extraction", "encoder")
    ask = client(server, "feature-extraction", "encoder")
    vectors = np.array(expected(TEXTS, pooling="mean", normalize=True))
    np.testing.assert_allclose(ask.feature_extraction(TEXTS), vectors, atol=1e-5)
    assert ask.feature_extraction(TEXTS[0]).shape == (1, 32)
    raw = ask.feature_extraction(TEXTS, normalize=False, dimensions=32, encoding_format="float")
    np.testing.assert_allclose(raw, np.array(expected(TEXTS, pooling="mean")), atol=1e-4)
    cut = ask.feature_extraction(CONTEXT, truncate=True, truncation_direction="right")
    wanted = expected([CONTEXT], pooling="mean", normalize=True, truncation=True)
    np.testing.assert_allclose(cut, wanted, atol=1e-5)
    found = client(server, "sentence-similarity", "encoder").sentence_similarity(TEXTS[0], TEXTS[1:])
    np.testing.assert_allclose(found, vectors[1:] @ vectors[0], atol=1e-5)


def test_the_async_client(server: Running) -> None:
    url = f"http://127.0.0.1:{server.port}/models/classifier/pipeline/text-classification"
    one = hub.AsyncInferenceClient(base_url=url, token=KEY)
    labels = asyncio.run(one.text_classification(TEXTS[0]))
    ask = client(server, "text-classification", "classifier")
    assert labels == ask.text_classification(TEXTS[0])


@pytest.mark.parametrize(
    ("task", "model", "method", "given", "status", "message"),
    [
        ("fill-mask", "none", "fill_mask", {"text": MASKED}, 404, "there is no model 'none'"),
        ("nothing", None, "fill_mask", {"text": MASKED}, 404, "there is no task 'nothing'"),
        ("fill-mask", "chooser", "fill_mask", {"text": MASKED}, 404, "'chooser' is not for fill-mask"),
        ("fill-mask", None, "fill_mask", {"text": "no mask"}, 422, r"no \[MASK\]"),
        ("fill-mask", None, "fill_mask", {"text": MASKED, "top_k": 101}, 422, "top_k"),
        (
            *("feature-extraction", "encoder", "feature_extraction"),
            *({"text": "a", "truncation_direction": "left"}, 422, "truncation_direction is 'left'"),
        ),
        (
            *("feature-extraction", "encoder", "feature_extraction"),
            *({"text": ["a"] * 9}, 413, "9 inputs. Expected at most 8"),
        ),
    ],
)
def test_errors(
    server: Running,
    task: str,
    model: str | None,
    method: str,
    given: Any,
    status: int,
    message: str,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(HfHubHTTPError, match=message) as caught:
        getattr(client(server, task, model), method)(**given)
    assert caught.value.response.status_code == status
    assert set(caught.value.response.json()) == {"error", "error_type", "param", "request_id"}
    assert "Traceback" not in capfd.readouterr().err + caplog.text


def test_key_deadline_and_metrics(server: Running) -> None:
    for token in ("wrong", None):
        with pytest.raises(HfHubHTTPError, match="Authorization: Bearer KEY") as caught:
            client(server, "fill-mask", token=token).fill_mask(MASKED)
        assert caught.value.response.status_code == 401
    assert server.ask("/", headers={}).headers["Location"] == "playground"  # the page needs no key
    with pytest.raises(HfHubHTTPError, match="X-Request-Timeout") as late:
        client(server, "fill-mask", headers={"X-Request-Timeout": "0.0000001"}).fill_mask(MASKED)
    assert late.value.response.status_code == 504
    route = "/models/{model}/pipeline/{task}"
    name = f'albertkit_requests_total{{route="{route}",status="200"}}'
    before = server.figure(name)
    client(server, "text-classification", "classifier").text_classification("a")
    assert server.figure(name) == before + 1
    paths = server.ask("/openapi.json").json["paths"]
    for path in ("/pipeline/{task}", route):
        assert paths[path]["post"]["security"] == [{"HTTPBearer": []}]
