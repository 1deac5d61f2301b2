"""Tests that a running server has the answers of pipelines, for one client and for many clients."""

import base64
import json
import random
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="needs the server's libraries: pip install 'albertkit[serve]'")

from serving_fixtures import (  # noqa: F401
    auto_server_fixture,
    folders_fixture,
    server_fixture,
    torch_server_fixture,
    watched_fixture,
)
from serving_requests import CHOICES, CONTEXT, HEADS, MASKED, PAIRS, close_to, engine_of, settings_for
from serving_server import Running, running, wait_for

from albertkit.config import SETTINGS_KEY
from albertkit.engines.light_model import LightModel
from albertkit.pipelines import pipeline
from albertkit.serving.models import ServedModel
from albertkit.tokenization.tokenizer import AlbertTokenizer

QUESTIONS = [{"question": "who followed?", "context": CONTEXT}, {"question": "what?", "context": "the river"}]
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
        *("classify", {"input": ["a fox", CONTEXT], "top_k": None, "truncation": True}, "classifier"),
        *("text-classification", {"top_k": None, "truncation": True}),
    ),
    (
        *("zero-shot", {"input": ["a fox", "my sister"], "candidate_labels": ["key", "sea", "river"]}, "nli"),
        *("zero-shot-classification", {"candidate_labels": ["key", "sea", "river"]}),
    ),
    (
        *("zero-shot", {"input": ["a fox", CONTEXT], **NEWS, "truncation": True, "multi_label": True}, "nli"),
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


class TestAnswers:
    @pytest.fixture(params=["auto", "torch"])
    def server(self, request: pytest.FixtureRequest) -> Running:
        # The module's fixture of this name would get the parameter too, and start a server for each test.
        return request.getfixturevalue(f"{request.param}_server")

    def test_the_chosen_engine_computes_the_answers(self, server: Running) -> None:
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

    def test_thresholds(self, server: Running, folders: dict[str, str]) -> None:
        own = pipeline("text-classification", folders["classifier"], device="cpu")
        (label,) = own("a fox")
        name = label["label"]
        for threshold in (0.999, {name: 0.999}):
            (result,) = server.results("/v1/classify", {"input": "a fox", "threshold": threshold})
            assert result == [{"label": None, "score": pytest.approx(label["score"], abs=1e-5)}]
            body = {"input": "a fox", "threshold": threshold, "top_k": None}
            (every,) = server.results("/v1/classify", body)
            assert [one["predicted"] for one in every] == [False] * len(every)
        (result,) = server.results("/v1/classify", {"input": "a fox", "threshold": 0.0})
        assert result[0]["label"] == name
        for threshold in (2, {"nothing": 0.5}, {name: -1}, "0.5", [0.5]):
            wrong = server.ask("/v1/classify", {"input": "a fox", "threshold": threshold})
            assert wrong.status == 422, threshold

    def test_answers_are_as_long_as_in_the_fine_tuning(
        self, server: Running, folders: dict[str, str]
    ) -> None:
        body = {"model": "reader", "input": QUESTIONS[0], "top_k": 5}
        pipeline_of_reader: Any = server.service.models["reader"].pipelines["question-answering"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(pipeline_of_reader.model.config.extra, SETTINGS_KEY, {"max_answer_length": 1})
            short = server.results("/v1/answer", body)
        assert short == server.results("/v1/answer", body | {"max_answer_len": 1})
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

    def test_embeddings_without_a_model_name_are_those_of_a_model_for_embeddings(
        self, server: Running, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        models = server.service.models
        body = {"input": "a silver key"}
        for names, chosen in (
            (("classifier", "pretrained", "encoder"), "encoder"),
            (("classifier", "pretrained"), "pretrained"),
            (("classifier",), "classifier"),
        ):
            monkeypatch.setattr(server.service, "models", {name: models[name] for name in names})
            assert server.ask("/v1/embeddings", body).json["model"] == chosen
        monkeypatch.setattr(server.service, "models", {name: models[name] for name in ("reader", "tagger")})
        reply = server.ask("/v1/embeddings", body)
        assert (reply.status, reply.kind) == (404, "wrong_task")
        assert reply.json["error"]["message"] == (
            "no model of this server is for feature-extraction. Every model computes vectors: name one of "
            "reader, tagger."
        )
        assert server.ask("/v1/embeddings", body | {"model": "tagger"}).status == 200

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
    """Send requests one after the other, then together. The answers must be equal."""
    keep = ("results", "data", "error")

    def ask(request: tuple[str, Any, int]) -> Any:
        path, body, status = request
        while (reply := server.ask(path, body, headers={"X-Request-ID": "same"})).status == 429:
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

    def test_rows_of_similar_length_share_batches(self, folders: Any, watched: ServedModel) -> None:
        engine = engine_of(watched)
        short, long = "the fox", "an old fox lost a child before dinner, and sold the captain again"
        tokenizer = watched.any_pipeline.tokenizer
        sizes = [len(tokenizer(text)["input_ids"]) for text in (short, long)]
        settings = settings_for({"pretrained": folders["pretrained"]}, batch_tokens=2 * sizes[1])
        with running(settings, {"pretrained": watched}) as server:
            engine.may_go.clear()
            with ThreadPoolExecutor(8) as pool:
                asked = [pool.submit(server.ask, "/v1/embeddings", {"input": short})]
                wait_for(engine.entered.is_set)
                for count, text in enumerate((long, short, short, short, long), start=1):
                    asked.append(pool.submit(server.ask, "/v1/embeddings", {"input": text}))
                    wait_for(lambda expected=count: server.figure("albertkit_queue_rows") == expected)
                engine.may_go.set()
                assert {one.result().status for one in asked} == {200}
        assert engine.batches_seen == [[sizes[0]], [sizes[1]] * 2, [sizes[0]] * 3]

    def test_one_large_request_does_not_keep_small_ones_waiting(
        self, folders: Any, watched: ServedModel
    ) -> None:
        engine = engine_of(watched)
        settings = settings_for({"pretrained": folders["pretrained"]}, max_seconds=1000, batch_tokens=8)
        with running(settings, {"pretrained": watched}) as server:
            server.ask("/v1/embeddings", {"input": "fox"})
            engine.batches_seen.clear()
            engine.may_go.clear()
            server.service.queue.seconds_per_token = 1.0
            with ThreadPoolExecutor(2) as pool:
                large = pool.submit(server.ask, "/v1/embeddings", {"input": ["the fox the fox"] * 20})
                wait_for(engine.entered.is_set)
                wait_for(lambda: server.figure("albertkit_queue_rows") > 10)
                little = pool.submit(server.ask, "/v1/embeddings", {"input": "fox"})
                wait_for(lambda: len(server.service.queue.requests) == 2)
                time.sleep(0.1)
                engine.may_go.set()
                assert little.result().status == large.result().status == 200
        length = len(engine.batches_seen)
        where = next(number for number, batch in enumerate(engine.batches_seen) if batch[0] < 6)
        assert length >= 20
        assert where <= 2
