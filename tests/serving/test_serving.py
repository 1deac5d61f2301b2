"""The server, really started, over loopback: answers of the pipelines, limits, and clients of every kind."""

import base64
import gc
import json
import math
import os
import random
import shutil
import signal
import socket
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("fastapi", reason="needs the server's libraries: pip install 'albertkit[serve]'")

from serving_server import Running, WatchedEngine, running, save_random_models, wait_for

from albertkit.checkpoints.sentence_modules import Dense, SentenceModules, attach
from albertkit.engines.light_model import LightModel
from albertkit.engines.onnx_engine import OnnxNetwork
from albertkit.errors import CheckpointError, ConfigError
from albertkit.modeling.model import AlbertModel
from albertkit.modeling.pretraining_heads import AlbertForPreTraining
from albertkit.modeling.task_heads import (
    AlbertForMultipleChoice,
    AlbertForQuestionAnswering,
    AlbertForSequenceClassification,
    AlbertForTokenClassification,
)
from albertkit.pipelines import pipeline
from albertkit.serving import service
from albertkit.serving.models import ServedModel, load_model
from albertkit.serving.server import listen, serve
from albertkit.serving.settings import ServingSettings
from albertkit.tokenization.tokenizer import AlbertTokenizer

HEADS = {
    "pretrained": AlbertForPreTraining,
    "classifier": AlbertForSequenceClassification,
    "tagger": AlbertForTokenClassification,
    "reader": AlbertForQuestionAnswering,
    "chooser": AlbertForMultipleChoice,
    "encoder": AlbertModel,
    "nli": AlbertForSequenceClassification,
}
CONTEXT = "The captain opened a silver key in the morning. My sister followed the river before dinner. " * 3


@pytest.fixture(scope="module")
def folders(tiny_vocabulary: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A random model for every head."""
    return save_random_models(HEADS, tiny_vocabulary, tmp_path_factory.mktemp("served"), seed=0)


def settings_for(folders: dict[str, str], **changes: Any) -> ServingSettings:
    return ServingSettings(**({"models": folders, "port": 0, "device": "cpu"} | changes))


LIMITS = {"client_seconds": 1.0, "max_items": 8, "max_tokens": 2000}


@pytest.fixture(scope="module")
def server(folders: dict[str, str]) -> Iterator[Running]:
    with running(settings_for(folders, playground=True, **LIMITS)) as started:
        yield started


@pytest.fixture(scope="module")
def torch_server(folders: dict[str, str]) -> Iterator[Running]:
    with running(settings_for(folders, playground=True, engine="torch", **LIMITS)) as started:
        yield started


@pytest.fixture
def watched(folders: dict[str, str]) -> ServedModel:
    """The pretrained model, with an engine that stops when told."""
    model = load_model("pretrained", folders["pretrained"], device="cpu")
    word = model.any_pipeline.tokenizer.convert_tokens_to_ids
    engine = WatchedEngine(model.engine, poison=word("▁harbour"), bomb=word("▁morning"))
    for one in model.pipelines.values():
        one.engine = engine
    return model


def engine_of(model: ServedModel) -> WatchedEngine:
    assert isinstance(model.engine, WatchedEngine)
    return model.engine


MASKED = ["the captain opened [MASK] in the [MASK]", "[MASK] followed the river", CONTEXT + "[MASK]"]
PAIRS = [
    {"text": "my sister", "text_pair": "lost a well-kept secret"},
    {"text": "a fox", "text_pair": "sold"},
]
QUESTIONS = [{"question": "who followed?", "context": CONTEXT}, {"question": "what?", "context": "the river"}]
CHOICES = [{"context": "the child", "question": "a _ key", "choices": ["silver", "gold", "empty house"]}]
NEWS = {"candidate_labels": ["news", "sea"], "hypothesis_template": "the {{captain}} painted {}"}
# Route, request, model, task of the pipeline, its arguments.
CASES: list[tuple[str, dict[str, Any], str, str, dict[str, Any]]] = [
    ("fill-mask", {"input": MASKED, "top_k": 3}, "pretrained", "fill-mask", {"top_k": 3}),
    (
        *("fill-mask", {"input": MASKED[1:2], "targets": ["harbour", "word"]}, "pretrained"),
        *("fill-mask", {"targets": ["harbour", "word"]}),
    ),
    ("order", {"input": PAIRS}, "pretrained", "sentence-order", {}),
    ("classify", {"input": ["a fox", PAIRS[0]]}, "classifier", "text-classification", {"top_k": 1}),
    (
        *("classify", {"input": ["a fox", CONTEXT], "top_k": None, "truncate": True}, "classifier"),
        *("text-classification", {"top_k": None, "truncation": True}),
    ),
    (
        *("zero-shot", {"input": ["a fox", "my sister"], "candidate_labels": ["key", "sea", "river"]}, "nli"),
        *("zero-shot-classification", {"candidate_labels": ["key", "sea", "river"]}),
    ),
    (
        *("zero-shot", {"input": ["a fox", CONTEXT], **NEWS, "truncate": True, "multi_label": True}, "nli"),
        *("zero-shot-classification", {**NEWS, "truncation": True, "multi_label": True}),
    ),
    ("tag", {"input": ["Queen Anne painted (again)", CONTEXT]}, "tagger", "token-classification", {}),
    (
        *("tag", {"input": [CONTEXT], "aggregation_strategy": "first"}, "tagger"),
        *("token-classification", {"aggregation_strategy": "first"}),
    ),
    ("answer", {"input": QUESTIONS, "top_k": 2}, "reader", "question-answering", {"top_k": 2}),
    ("choose", {"input": CHOICES}, "chooser", "multiple-choice", {}),
]


def close_to(found: Any, expected: Any) -> bool:
    """Compare answers; batches are of other rows, so numbers may differ in their last digits."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(
            close_to(found[key], expected[key]) for key in expected
        )
    if isinstance(expected, list | tuple):
        return len(found) == len(expected) and all(map(close_to, found, expected))
    if isinstance(expected, float):
        return math.isclose(found, expected, rel_tol=1e-4, abs_tol=1e-6)
    return found == expected


class TestAnswers:
    @pytest.fixture(params=["auto", "torch"])
    def server(self, request: pytest.FixtureRequest, server: Running) -> Running:
        return server if request.param == "auto" else request.getfixturevalue("torch_server")

    def test_are_computed_by_the_engine_that_was_asked_for(self, server: Running) -> None:
        light = server.service.settings.engine == "auto"
        for served in server.service.models.values():
            assert {isinstance(one.model, LightModel) for one in served.pipelines.values()} == {light}

    @pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{len(case[4])}")
    def test_are_those_of_the_pipeline(self, server: Running, folders: dict[str, str], case: Any) -> None:
        route, request, model, task, options = case
        own = pipeline(task, folders[model], device="cpu", engine="plain")
        expected = own(request["input"], **options)
        if route == "fill-mask":  # always a list for each mask
            expected = [one if isinstance(one[0], list) else [one] for one in expected]
        if route == "zero-shot":  # as classify
            cuts = [{"cut": one["cut"]} if "cut" in one else {} for one in expected]
            expected = [
                [
                    {"label": label, "score": score} | cut
                    for label, score in zip(one["labels"], one["scores"], strict=True)
                ]
                for one, cut in zip(expected, cuts, strict=True)
            ]
        expected = json.loads(json.dumps(expected))
        reply = server.ask(f"/v1/{route}", request)
        assert reply.status == 200, reply.content
        assert reply.json["model"] == model
        assert close_to(reply.json["results"], expected)
        # One input alone has the answer that it has among others.
        assert close_to(
            server.results(f"/v1/{route}", request | {"input": request["input"][0]}), expected[:1]
        )

    def test_of_several_labels_those_that_apply(
        self, server: Running, folders: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        own = pipeline("text-classification", folders["classifier"], device="cpu")
        served = server.service.models["classifier"].any_pipeline
        for one in (own, served):
            monkeypatch.setattr(one.model.config, "problem_type", "multi_label_classification")
        texts = ["a fox", "a silver key", "my sister followed the river", CONTEXT[:40]]
        expected = own(texts)
        assert {len(labels) for labels in expected} != {1}
        assert close_to(server.results("/v1/classify", {"input": texts}), expected)
        best = server.results("/v1/classify", {"input": texts, "top_k": 1})
        assert [len(labels) for labels in best] == [1] * len(texts)

    def test_answers_are_as_long_as_in_the_fine_tuning(
        self, server: Running, folders: dict[str, str]
    ) -> None:
        body = {"model": "reader", "input": QUESTIONS[0], "top_k": 5}
        pipeline_of_reader: Any = server.service.models["reader"].pipelines["question-answering"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pipeline_of_reader, "max_answer_len", 1)
            short = server.results("/v1/answer", body)
        assert short == server.results("/v1/answer", body | {"max_answer_tokens": 1})
        assert short != server.results("/v1/answer", body)

    def test_embeddings_are_openai_s_and_the_pipeline_s(
        self, server: Running, folders: dict[str, str]
    ) -> None:
        texts = ["a silver key", "my sister followed the river"]
        expected = pipeline("feature-extraction", folders["encoder"], device="cpu", pooling="mean")(
            texts, normalize=True
        )
        body = {"model": "encoder", "input": texts}
        found = server.ask("/v1/embeddings", body).json
        assert (found["object"], found["model"]) == ("list", "encoder")
        tokens = sum(map(len, AlbertTokenizer.from_pretrained(folders["encoder"])(texts)["input_ids"]))
        assert found["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
        assert [(one["object"], one["index"]) for one in found["data"]] == [
            ("embedding", 0),
            ("embedding", 1),
        ]
        assert close_to([one["embedding"] for one in found["data"]], expected)
        coded = server.ask("/v1/embeddings", body | {"encoding_format": "base64"}).json["data"]
        vectors = [np.frombuffer(base64.b64decode(one["embedding"]), "<f4") for one in coded]
        np.testing.assert_allclose(vectors, expected, atol=1e-6)
        assert server.ask("/v1/embeddings", body | {"dimensions": 16}).status == 422
        assert server.ask("/v1/embeddings", body | {"dimensions": 32}).status == 200
        # Ids of another vocabulary would be other words.
        assert server.ask("/v1/embeddings", body | {"input": [[5, 6, 7]]}).kind == "invalid"

    def test_tokenize(self, server: Running, folders: dict[str, str]) -> None:
        tokenizer = AlbertTokenizer.from_pretrained(folders["pretrained"], parse_special_tokens=False)
        text = "The café [SEP] in 1847, [MASK]"
        (found,) = server.results("/v1/tokenize", {"input": text})
        expected = tokenizer(text, return_offsets_mapping=True)
        assert found["input_ids"] == expected["input_ids"]
        assert found["tokens"] == tokenizer.convert_ids_to_tokens(expected["input_ids"])
        assert found["offsets"] == [list(place) for place in expected["offset_mapping"]]
        (pair,) = server.results("/v1/tokenize", {"input": {"text": "a", "text_pair": "b"}})
        assert pair["token_type_ids"] == tokenizer("a", "b")["token_type_ids"]

    def test_special_tokens_are_text_except_masks_to_be_filled(
        self, server: Running, folders: dict[str, str]
    ) -> None:
        plain = AlbertTokenizer.from_pretrained(folders["pretrained"], parse_special_tokens=False)
        ids = server.results("/v1/tokenize", {"input": "a [SEP] <pad> [MASK]"})[0]["input_ids"]
        assert (ids.count(plain.sep_token_id), ids.count(plain.mask_token_id)) == (1, 0)
        body = {"input": "a [SEP] [MASK]", "top_k": 1}
        reply = server.ask("/v1/fill-mask", body).json
        assert reply["usage"]["total_tokens"] == len(plain("a [SEP] [MASK]", parse_special_tokens="mask")[0])
        assert reply["usage"]["total_tokens"] > 5
        before = server.results("/v1/classify", {"input": "a fox"})
        assert server.results("/v1/classify", {"input": "a fox [SEP]"}) != before

    def test_models_are_listed_and_found_by_name_or_task(self, server: Running) -> None:
        listed = {one["id"]: one["tasks"] for one in server.ask("/v1/models").json["data"]}
        assert listed.keys() == HEADS.keys()
        assert listed["pretrained"] == ["sentence-order", "fill-mask", "feature-extraction"]
        for one in server.ask("/v1/models").json["data"]:
            assert server.ask(f"/v1/models/{one['id']}").json == one
        assert server.ask("/v1/models/nobody").kind == "unknown_model"
        assert listed["nli"] == ["text-classification", "zero-shot-classification", "feature-extraction"]
        assert listed["classifier"] == ["text-classification", "feature-extraction"]
        assert listed["reader"] == ["question-answering", "feature-extraction"]
        assert server.ask("/v1/classify", {"input": "a"}).json["model"] == "classifier"
        assert server.ask("/v1/classify", {"input": "a", "model": "nobody"}).kind == "unknown_model"
        wrong = server.ask("/v1/classify", {"input": "a", "model": "reader"})
        assert (wrong.status, wrong.kind) == (404, "wrong_task")
        assert "classifier" in wrong.json["error"]["message"]

    def test_health_and_figures(self, server: Running) -> None:
        assert server.ask("/healthz").json == {"status": "alive"}
        for path in ("/healthz", "/readyz"):
            head = server.ask(path, method="HEAD")
            assert (head.status, head.content) == (200, b"")
            assert head.headers["Content-Length"] == server.ask(path).headers["Content-Length"]
        assert server.ask("/v1/order", method="HEAD").status == 405
        ready = server.ask("/readyz")
        assert (ready.status, ready.json["models"]) == (200, dict.fromkeys(HEADS, True))
        before = server.figure('albertkit_requests_total{route="/v1/order",status="200"}')
        server.results("/v1/order", {"input": PAIRS})
        wait_for(
            lambda: server.figure('albertkit_requests_total{route="/v1/order",status="200"}') == before + 1
        )
        for stage in ("tokenize", "queue", "compute", "total"):
            assert (
                server.figure(
                    f'albertkit_stage_seconds_sum{{model="pretrained",route="/v1/order",stage="{stage}"'
                )
                > 0
            )
        assert server.figure("albertkit_batch_tokens_sum") > server.figure("albertkit_batch_rows_sum") > 0
        wait_for(lambda: server.figure("albertkit_requests_in_progress ") == 0)


def mixed_requests(count: int, seed: int) -> list[tuple[str, Any, int]]:
    """Right and wrong requests, each with the status that it must have."""
    rng = random.Random(seed)
    words = CONTEXT.split()
    found = []
    for _ in range(count):
        text = " ".join(rng.choices(words, k=rng.randint(1, 7)))
        other = " ".join(rng.choices(words, k=rng.randint(1, 7)))
        found.append(
            rng.choice(
                [
                    ("/v1/fill-mask", {"input": f"{text} [MASK] {other}", "top_k": rng.randint(1, 5)}, 200),
                    ("/v1/order", {"input": {"text": text, "text_pair": other}}, 200),
                    ("/v1/classify", {"input": [text, other], "top_k": None}, 200),
                    ("/v1/tag", {"input": text + other}, 200),
                    ("/v1/answer", {"input": {"question": text, "context": other + CONTEXT}}, 200),
                    (
                        "/v1/choose",
                        {"input": {"context": text, "choices": [other, f"not {other}", "b b"]}},
                        200,
                    ),
                    ("/v1/embeddings", {"input": [text, other], "model": "encoder"}, 200),
                    ("/v1/tokenize", {"input": text}, 200),
                    ("/v1/fill-mask", {"input": text}, 422),
                    ("/v1/classify", {"input": [text] * 9}, 413),
                    ("/v1/classify", {"input": CONTEXT * 2}, 422),
                    ("/v1/order", b'{"input": ', 400),
                ]
            )
        )
    return found


def check_mixed(server: Running, requests: list[tuple[str, Any, int]]) -> None:
    """Ask one after the other, then together: every answer must be the same."""
    keep = ("results", "data", "error")

    def ask(request: tuple[str, Any, int]) -> Any:
        path, body, status = request
        while (reply := server.ask(path, body)).status == 429:
            time.sleep(0.05)
        assert reply.status == status, reply.content
        return {key: value for key, value in reply.json.items() if key in keep}

    alone = list(map(ask, requests))
    with ThreadPoolExecutor(16) as pool:
        for request, found, expected in zip(requests, pool.map(ask, requests), alone, strict=True):
            assert close_to(found, expected), request


class TestManyClients:
    def test_mixed_requests_have_the_answers_they_have_alone(self, server: Running) -> None:
        batches = server.figure("albertkit_batch_rows_count")
        rows = server.figure("albertkit_batch_rows_sum")
        check_mixed(server, mixed_requests(120, seed=0))
        # Rows of several requests were computed together.
        assert server.figure("albertkit_batch_rows_count") - batches < (
            server.figure("albertkit_batch_rows_sum") - rows
        )

    @pytest.mark.slow
    def test_ten_thousand_mixed_requests(self, server: Running) -> None:
        check_mixed(server, mixed_requests(5_000, seed=1))

    def test_rows_of_requests_share_batches_of_about_one_length(
        self, folders: Any, watched: ServedModel
    ) -> None:
        engine = engine_of(watched)
        short, long = "the fox", "an old fox lost a child before dinner, and sold the captain again"
        tokenizer = watched.any_pipeline.tokenizer
        sizes = [len(tokenizer(text)["input_ids"]) for text in (short, long)]
        watched = replace(watched, budget=2 * sizes[1])
        with running(settings_for({"pretrained": folders["pretrained"]}), {"pretrained": watched}) as server:
            engine.may_go.clear()
            with ThreadPoolExecutor(8) as pool:
                asked = [pool.submit(server.ask, "/v1/embeddings", {"input": short})]
                wait_for(engine.entered.is_set)
                waiting = 0
                for text in (long, short, short, short, long):
                    asked.append(pool.submit(server.ask, "/v1/embeddings", {"input": text}))
                    waiting += sizes[text == long]
                    wait_for(lambda expected=waiting: server.service.queue.tokens_waiting() == expected)
                engine.may_go.set()
                assert {one.result().status for one in asked} == {200}
        assert engine.batches_seen == [[sizes[0]], [sizes[1]] * 2, [sizes[0]] * 3]

    def test_one_large_request_does_not_keep_small_ones_waiting(
        self, folders: Any, watched: ServedModel
    ) -> None:
        engine = engine_of(watched)
        small = replace(watched, budget=8)
        with running(
            settings_for({"pretrained": folders["pretrained"]}, max_seconds=1000), {"pretrained": small}
        ) as server:
            server.ask("/v1/embeddings", {"input": "fox"})
            engine.batches_seen.clear()
            engine.may_go.clear()
            server.service.queue.seconds_per_token = 1.0
            with ThreadPoolExecutor(2) as pool:
                large = pool.submit(server.ask, "/v1/embeddings", {"input": ["the fox the fox"] * 20})
                wait_for(engine.entered.is_set)
                wait_for(lambda: server.service.queue.tokens_waiting() > 50)
                little = pool.submit(server.ask, "/v1/embeddings", {"input": "fox"})
                wait_for(lambda: len(server.service.gate) == 2)
                time.sleep(0.1)
                engine.may_go.set()
                assert little.result().status == large.result().status == 200
        length = len(engine.batches_seen)
        where = next(number for number, batch in enumerate(engine.batches_seen) if batch[0] < 6)
        assert length >= 20
        assert where <= 2


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
        masks = {"input": "[MASK]" * 500, "top_k": 100}
        assert server.ask("/v1/fill-mask", masks).kind == "too_many_characters"
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
            (b'{"input": "a", "input": "b"}', 422),
            (b'{"input": {"text": "a", "text": "b"}}', 422),
        ],
        ids=range(15),
    )
    def test_malformed_bodies(self, server: Running, body: bytes, status: int) -> None:
        reply = server.ask("/v1/classify", body)
        assert reply.status == status, reply.content
        assert reply.kind == ("malformed" if status == 400 else "invalid")

    def test_other_methods_and_paths(self, server: Running) -> None:
        assert server.ask("/v1/classify").status == 405
        assert server.ask("/v1/nothing", {"input": "a"}).status == 404
        form = server.ask(
            "/v1/classify", b'{"input": "a"}', headers={"Content-Type": "application/x-www-form-urlencoded"}
        )
        assert form.status == 422
        assert (
            "is 'application/x-www-form-urlencoded'. Expected application/json"
            in form.json["error"]["message"]
        )


class TestRefusals:
    """They speak of the fields and headers that the client wrote."""

    @pytest.mark.parametrize(
        ("path", "body", "param", "message"),
        [
            (
                "classify",
                {"input": 1},
                "input",
                "input is 1. Expected a text, or an object with text and text",
            ),
            ("classify", {"input": ["a", {"text": 1}]}, "input", "input[1].text is 1. Expected a text."),
            (
                "classify",
                {"input": ["a", {"txt": "a"}]},
                "input",
                "input[1].text is missing. input[1].txt is",
            ),
            ("classify", {"input": []}, "input", "input is a list of length 0. Expected at least 1 item"),
            ("classify", {}, "input", "input is missing"),
            ("classify", [1], None, "the body is a list of length 1. Expected an object"),
            (
                "classify",
                {"input": "a", "top_k": 0},
                "top_k",
                "top_k is 0. Expected a number greater than or equal to",
            ),
            (
                "classify",
                {"input": "a", "topk": 1},
                "topk",
                "topk is not a field of this request. The fields",
            ),
            ("classify", {"input": "a", "a.b[0]": 1}, '"a.b[0]"', '"a.b[0]" is not a field of this request'),
            ("classify", {"input": ["a", {"a b": 1}]}, "input", 'input[1]."a b" is not a field'),
            ("classify", {"input": "\ud800"}, None, "a lone surrogate"),
            ("classify", {"input": CONTEXT}, "input", 'allow truncation ("truncate": true)'),
            ("tag", {"input": "a", "aggregation_strategy": "x"}, "aggregation_strategy", "Expected 'none', "),
            ("choose", {"input": [CHOICES[0], {"choices": []}]}, "input", "input[1].context is missing"),
            ("answer", {"input": {"question": CONTEXT, "context": "a"}}, "input", "Shorten it"),
            (
                "order",
                {"input": [PAIRS[0], {"text": CONTEXT, "text_pair": "a"}]},
                "input",
                "input[1]: the pair",
            ),
            ("order", {"input": {"text": CONTEXT, "text_pair": "a"}}, "input", "input: the pair"),
            ("answer", {"input": "a"}, "input", "Expected an object with question and context, or a list"),
            ("fill-mask", {"input": "[MASK]", "targets": ["a [MASK]"]}, "targets", "the target 'a [MASK]'"),
            ("fill-mask", {"input": "[MASK]", "targets": "a"}, "targets", 'targets is "a". Expected a list'),
            ("fill-mask", {"input": "a"}, "input", "there is no [MASK] in the text 'a'"),
            ("embeddings", {"input": "a", "dimensions": 16}, "dimensions", "dimensions is 16. Expected 32"),
            (
                "embeddings",
                {"input": [7, 8]},
                "input",
                "Expected a text. Token ids are not supported, because",
            ),
            ("embeddings", {"input": [[7, 8]]}, "input", "vocabulary. Send texts. See /openapi.json"),
            ("embeddings", {"input": "a", "user": "a" * 1001}, "user", "Expected at most 1000 characters"),
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

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("X-Request-Timeout", "soon"),
            ("X-Request-Timeout", "0"),
            ("Content-Type", "text/plain"),
            ("Content-Type", "application/jsonl"),
            ("Content-Type", "application/json; charset=latin-1"),
            ("Content-Type", 'application/json; charset="utf-16"'),
            ("Content-Encoding", "gzip"),
        ],
    )
    def test_a_wrong_header(self, server: Running, name: str, value: str) -> None:
        reply = server.ask("/v1/order", {"input": PAIRS[0]}, headers={name: value})
        assert (reply.status, reply.kind) == (422, "invalid")
        assert reply.json["error"]["param"] == name
        assert reply.json["error"]["message"].startswith(f"the header {name} is {value!r}. Expected ")

    def test_types_of_content_that_are_json(self, server: Running) -> None:
        for kind in (
            "application/json; charset=utf-8",
            "Application/JSON",
            "application/vnd.a+json",
            'application/json;charset="UTF8"',
        ):
            reply = server.ask("/v1/order", {"input": PAIRS[0]}, headers={"Content-Type": kind})
            assert reply.status == 200

    def test_refusals_are_counted_for_the_route_that_was_asked(self, folders: Any) -> None:
        with running(settings_for({"encoder": folders["encoder"]}), key="secret") as server:
            assert server.ask("/v1/embeddings", {"input": "a"}).status == 401
            server.headers = {"Authorization": "Bearer secret"}
            assert server.figure('albertkit_requests_total{route="/v1/embeddings",status="401"}') == 1
            assert server.figure('albertkit_errors_total{type="unauthorized"}') == 1


class TestClients:
    def test_that_are_slow_with_a_head(self, server: Running) -> None:
        with server.connect() as connection:
            began = time.monotonic()
            connection.sendall(b"POST /v1/tag HTTP/1.1\r\n")
            with pytest.raises(OSError):  # noqa: PT012 - it is closed at any of these
                while time.monotonic() - began < 30:
                    connection.sendall(b"a: b\r\n")
                    time.sleep(0.2)
            assert time.monotonic() - began < 15
        assert server.ask("/healthz").status == 200

    def test_with_a_head_without_end(self, server: Running) -> None:
        with server.connect() as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\n" + b"a: b\r\n" * 11_000)
            assert connection.recv(1000).startswith(b"HTTP/1.1 431")

    def test_that_send_requests_ahead_of_the_answers(self, server: Running) -> None:
        request = b"GET /healthz HTTP/1.1\r\nHost: a\r\n"
        for count, answered in ((10, 10), (100, 0)):
            with server.connect() as connection:
                last = request + b"Connection: close\r\n\r\n"
                connection.sendall((request + b"\r\n") * (count - 1) + last)
                answer = b"".join(iter(lambda: connection.recv(10_000), b""))
            assert answer.count(b"HTTP/1.1 200") == answered
            assert answer.count(b"HTTP/1.1 400") == (answered == 0)

    def test_with_headers_without_end(self, server: Running) -> None:
        with server.connect() as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\n" + b"a: b\r\n" * 300 + b"\r\n")
            assert connection.recv(1000).startswith(b"HTTP/1.1 431")

    def test_that_are_slow_with_a_body(self, server: Running) -> None:
        with server.connect() as connection:
            connection.sendall(b"POST /v1/tag HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{")
            answer = connection.recv(2000)
        assert answer.startswith(b"HTTP/1.1 408")
        assert server.figure('albertkit_errors_total{type="slow_client"}') >= 1

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
            wait_for(lambda: len(server.service.gate) == 3)
            for connection in connections:
                connection.shutdown(socket.SHUT_RDWR)
                connection.close()
            wait_for(lambda: len(server.service.gate) == 0)
            engine.may_go.set()
            assert server.ask("/v1/order", {"input": PAIRS[1]}).status == 200
            assert server.figure('albertkit_errors_total{type="client_gone"}') == 3
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
            wait_for(lambda: len(server.service.gate) == 0)
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
                wait_for(lambda: len(server.service.gate) == 2)
                began = time.monotonic()
                refused = server.ask("/v1/order", {"input": PAIRS[0]})
                assert (refused.status, refused.kind) == (429, "overloaded")
                assert int(refused.headers["Retry-After"]) >= 1
                assert time.monotonic() - began < 5
                assert server.ask("/healthz").status == 200
                engine.may_go.set()
                assert [one.result().status for one in inside] == [200, 200]
            wait_for(lambda: len(server.service.gate) == 0)
            assert server.ask("/v1/order", {"input": PAIRS[0]}).status == 200

    def test_small_requests_do_not_tell_how_long_large_ones_take(
        self, folders: Any, watched: ServedModel
    ) -> None:
        with running(settings_for({"pretrained": folders["pretrained"]}), {"pretrained": watched}) as server:
            queue = server.service.queue
            for _ in range(3):
                assert server.ask("/v1/embeddings", {"input": "fox"}).status == 200
            assert queue.seconds_per_token == 0
            many = ["my sister followed an old fox"] * 40
            assert server.ask("/v1/embeddings", {"input": many}).status == 200
            wait_for(lambda: queue.seconds_per_token > 0)

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
                # Its time is over before it is admitted.
                late = server.ask("/v1/order", {"input": PAIRS[1]}, headers={"X-Request-Timeout": "1e-9"})
                assert (late.status, late.kind) == (504, "deadline")
                assert late.json["error"]["message"] == (
                    "the response took more than 1e-09 seconds. Send less text, or allow more time "
                    "(X-Request-Timeout)."
                )
                engine.may_go.set()
                assert inside.result().status == 200


class TestFaults:
    def test_scores_that_are_no_numbers_do_not_leave(self, folders: Any, watched: ServedModel) -> None:
        engine = engine_of(watched)
        with running(settings_for({"pretrained": folders["pretrained"]}), {"pretrained": watched}) as server:
            engine.may_go.clear()
            with ThreadPoolExecutor(4) as pool:
                first = pool.submit(server.ask, "/v1/embeddings", {"input": "a fox"})
                wait_for(engine.entered.is_set)
                bad = pool.submit(server.ask, "/v1/embeddings", {"input": "the harbour"})
                raising = pool.submit(server.ask, "/v1/embeddings", {"input": "a morning"})
                good = pool.submit(server.ask, "/v1/embeddings", {"input": "the fox"})
                wait_for(lambda: server.service.queue.tokens_waiting() > 9)
                engine.may_go.set()
                assert (bad.result().status, bad.result().kind) == (500, "not_finite")
                assert (raising.result().status, raising.result().kind) == (500, "internal")
                assert good.result().status == first.result().status == 200
            assert server.figure('albertkit_errors_total{type="not_finite"}') == 1
            assert server.ask("/v1/embeddings", {"input": "the fox"}).json == good.result().json

    def test_a_model_that_answers_wrongly_is_not_ready(self, folders: Any, watched: ServedModel) -> None:
        with running(settings_for({"pretrained": folders["pretrained"]}), {"pretrained": watched}) as server:
            assert server.ask("/readyz").status == 200
            engine_of(watched).factor = 3.0
            time.sleep(1.1)
            reply = server.ask("/readyz")
            assert (reply.status, reply.json["models"]) == (503, {"pretrained": False})

    def test_an_engine_that_does_not_answer_is_not_ready(
        self, folders: Any, watched: ServedModel, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(service, "_PROBE_SECONDS", 0.3)
        engine = engine_of(watched)
        with running(settings_for({"pretrained": folders["pretrained"]}), {"pretrained": watched}) as server:
            engine.may_go.clear()
            began = time.monotonic()
            with ThreadPoolExecutor(40) as pool:  # more than there are threads for blocking calls
                replies = list(pool.map(server.ask, ["/readyz"] * 40))
            assert {reply.status for reply in replies} == {503}
            assert replies[0].json["models"] == {"pretrained": False}
            assert time.monotonic() - began < 10
            engine.may_go.set()
            wait_for(lambda: server.ask("/readyz").status == 200, seconds=10)

    @pytest.mark.parametrize("engine", ["auto", "torch"])
    def test_a_model_with_broken_weights_is_not_loaded(
        self, engine: str, folders: Any, tmp_path: Path
    ) -> None:
        model = AlbertForPreTraining.from_pretrained(folders["pretrained"])
        with torch.no_grad():
            model.base_model.embeddings.word_embeddings.weight.fill_(torch.nan)
        model.save_pretrained(tmp_path)
        AlbertTokenizer.from_pretrained(folders["pretrained"]).save_pretrained(tmp_path)
        with pytest.raises(CheckpointError, match="are not finite"):
            load_model("broken", str(tmp_path), device="cpu", engine=engine)


@pytest.mark.parametrize("engine", ["auto", "torch"])
def test_reload_takes_new_weights_and_drops_no_request(
    engine: str, folders: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer = AlbertTokenizer.from_pretrained(folders["pretrained"])
    tokenizer.save_pretrained(tmp_path)
    model = AlbertForPreTraining.from_pretrained(folders["pretrained"])
    model.save_pretrained(tmp_path)
    with running(settings_for({"mine": str(tmp_path)}, engine=engine)) as server:
        body = {"input": "the captain [MASK]", "top_k": 1}
        before = server.results("/v1/fill-mask", body)
        with torch.no_grad():
            model.base_model.embeddings.word_embeddings.weight.mul_(-1)
        model.save_pretrained(tmp_path)
        ending = threading.Event()

        def ask() -> set[int]:
            seen = set()
            while not ending.is_set():
                seen.add(server.results("/v1/fill-mask", body)[0][0][0]["token"])
            return seen

        with ThreadPoolExecutor(3) as pool:
            asking = [pool.submit(ask) for _ in range(3)]
            with caplog.at_level("INFO", logger="albertkit"):
                assert server.service.reload() == {"mine": "done"}
            assert [one.getMessage() for one in caplog.records] == ["reloaded mine"]
            after = server.results("/v1/fill-mask", body)
            ending.set()
            seen = set().union(*(one.result() for one in asking))
        assert after != before
        assert seen <= {before[0][0][0]["token"], after[0][0][0]["token"]}
        (tmp_path / "model.safetensors").write_bytes(b"damaged")
        assert server.service.reload()["mine"] != "done"
        assert close_to(server.results("/v1/fill-mask", body), after)
        assert server.figure('albertkit_reloads_total{model="mine",outcome="failed"}') == 1


@pytest.mark.parametrize("engine", ["auto", "onnx-int8", "torch"])
def test_files_that_are_overwritten_change_nothing(engine: str, folders: Any, tmp_path: Path) -> None:
    folder = shutil.copytree(folders["pretrained"], tmp_path / "model")
    requests = {
        "fill-mask": {"input": MASKED[:2]},
        "order": {"input": PAIRS},
        "embeddings": {"input": "a fox"},
        "inspect": {"input": "a fox"},
    }
    with running(settings_for({"mine": str(folder)}, engine=engine, playground=True)) as server:

        def ask() -> list[Any]:
            return [server.ask(f"/v1/{route}", body).json for route, body in requests.items()]

        before = ask()
        weights = folder / "model.safetensors"
        size = weights.stat().st_size
        for content in (bytes(size), b""):  # zeros in place of the numbers, and a file that ends early
            with weights.open("r+b") as file:
                file.write(content)
                file.truncate(len(content))
            assert close_to(ask(), before)


@pytest.mark.parametrize("engine", ["auto", "torch"])
def test_a_folder_of_sentence_transformers(engine: str, folders: dict[str, str], tmp_path: Path) -> None:
    """Its pooling, Dense layer, prompts and maximum length, as the pipeline and plain NumPy compute them."""
    weight, bias = (np.random.default_rng(1).normal(0, 0.5, shape).astype("f4") for shape in ((7, 32), 7))
    modules = SentenceModules(
        steps=(Dense(weight, bias, "tanh"),),
        max_length=20,
        prompts={"query": "the river: ", "document": "my sister "},
        default_prompt_name="document",
    )
    model, tokenizer = (one.from_pretrained(folders["encoder"]) for one in (AlbertModel, AlbertTokenizer))
    attach(model.config, modules)
    model.eval().save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert (tmp_path / "2_Dense" / "model.safetensors").is_file()
    texts = ["a silver key", "the captain followed a fox"]
    ours = pipeline("feature-extraction", tmp_path, device="cpu")
    options: list[tuple[dict[str, Any], str]] = [
        ({}, "my sister "),
        ({"prompt_name": "query"}, "the river: "),
        ({"prompt_name": "query", "normalize": False}, "the river: "),
    ]
    with running(settings_for({"mine": str(tmp_path)}, engine=engine)) as server:
        for given, prompt in options:
            found = [
                one["embedding"]
                for one in server.ask("/v1/embeddings", {"input": texts} | given).json["data"]
            ]
            expected = []
            for text in texts:
                with torch.no_grad():
                    states = model(**tokenizer(prompt + text, return_tensors="pt"))["last_hidden_state"][0]
                vector = np.tanh(weight @ states.mean(0).numpy() + bias)
                expected.append(vector / (np.linalg.norm(vector) if given.get("normalize", True) else 1))
            np.testing.assert_allclose(found, expected, atol=1e-5)
            np.testing.assert_allclose(found, ours(texts, **{"normalize": True} | given), atol=1e-5)
        long = {"input": "the captain followed a fox " * 3}
        assert server.ask("/v1/embeddings", long).status == 422
        (cut,) = server.ask("/v1/embeddings", long | {"truncate": True}).json["data"]
        expected = ours(long["input"], normalize=True, truncation=True)
        np.testing.assert_allclose(cut["embedding"], expected, atol=1e-5)
        wrong = server.ask("/v1/embeddings", {"input": "a", "prompt_name": "other"})
        assert (wrong.status, wrong.json["error"]["param"]) == (422, "prompt_name")
        (described,) = server.ask("/v1/models").json["data"]
        assert (described["embedding_size"], described["max_tokens"]) == (7, 20)


@pytest.mark.parametrize("head", HEADS)
def test_an_engine_that_says_something_else_is_not_served(
    head: str, folders: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A light model is compared with its definition in NumPy."""
    computed = OnnxNetwork.__call__
    monkeypatch.setattr(OnnxNetwork, "__call__", lambda *given: computed(*given) + np.float32(0.05))
    with pytest.raises(CheckpointError, match="differ from the reference"):
        load_model("mine", folders[head], device="cpu")


@pytest.mark.parametrize("engine", ["auto", "torch"])
def test_a_model_without_a_pooler(engine: str, folders: Any, tmp_path: Path) -> None:
    config = AlbertModel.from_pretrained(folders["encoder"]).config
    bare = AlbertModel(config, add_pooling_layer=False).eval()
    bare.save_pretrained(tmp_path)
    AlbertTokenizer.from_pretrained(folders["encoder"]).save_pretrained(tmp_path)
    model = load_model("bare", str(tmp_path), device="cpu", engine=engine)
    assert {output: scores.shape for output, scores in model.expected.items()} == {"hidden_states": (1, 32)}
    row = model.any_pipeline.tokenizer("The captain.", return_tensors="pt")
    with torch.no_grad():
        states = bare(**row).last_hidden_state[0].numpy()
    (found,) = model.any_pipeline(["The captain."])
    np.testing.assert_allclose(found[0], states, atol=1e-4)


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
        described = server.ask("/openapi.json").json
        assert described["paths"]["/v1/classify"]["post"]["security"] == [{"HTTPBearer": []}]


def test_the_process_is_as_before_when_the_server_has_ended(
    folders: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its garbage collector, and what it does on a signal or a warning, which the server logs as a line."""
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
        assert not gc.isenabled()
        for count in range(1, 4):  # of a script that the vocabulary does not cover
            assert server.ask("/v1/embeddings", {"input": ["😀😀"] * count}).status == 200
        assert server.ask("/v1/classify", {"input": "the captain"}).status == 200
        described = {one["id"]: one["text_pairs"] for one in server.ask("/v1/models").json["data"]}
        assert described == {"encoder": None, "pairs": True}
        os.kill(os.getpid(), signal.SIGTERM)

    with ThreadPoolExecutor(1) as pool, warnings.catch_warnings():
        warnings.simplefilter("always")
        shown = warnings.showwarning
        ending: list[Any] = []
        serve(settings, listening, ready=lambda names: ending.append(pool.submit(end)))
        ending[0].result()
        assert warnings.showwarning is shown
    logged = [one.getMessage() for one in caplog.records]
    assert [one for one in logged if one.startswith("the model was")] == [
        "the model was fine-tuned on pairs, but this is a single text"
    ]
    assert not [one for one in logged if "unknown tokens" in one]
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
    assert [signal.getsignal(one) for one in signals] == before


def test_settings_that_make_no_sense() -> None:
    for changes, message in [
        ({"models": {}}, "no model"),
        ({"tasks": {"b": "fill-mask"}}, "a task is set for b"),
        ({"port": 70_000}, "port is 70000"),
        ({"max_requests": 0}, "max_requests is 0"),
        ({"max_seconds": float("nan")}, "max_seconds is nan"),
        ({"batch_wait": -1.0}, "batch_wait"),
        ({"batch_tokens": 0}, "batch_tokens is 0"),
    ]:
        with pytest.raises(ConfigError, match=message):
            ServingSettings(**({"models": {"a": "bundled"}} | changes))


def test_schemathesis_finds_nothing_undescribed(server: Running) -> None:
    """It asks what the OpenAPI description allows, and what it forbids."""
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
                max_examples=8,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy(generation_mode=mode))
            def ask(case: Any) -> None:
                response = case.call()
                case.validate_response(response, checks=wanted)
                statuses.append(response.status_code)

            if operation.body or mode.is_positive:  # nothing to forbid without a body
                ask()
    assert len(statuses) > 100
    assert {200, 422} <= set(statuses)
