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


def client(server: Running, path: str = "", **given: Any) -> Any:
    options: dict[str, Any] = {"token": KEY} | given
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
    for path in ("", "/models/pretrained", "/pipeline/fill-mask", "/models/pretrained/pipeline/fill-mask"):
        found = client(server, path).fill_mask(MASKED)
        assert numbers(found, *names) == numbers(expected(MASKED), *names)
    found = client(server).fill_mask(MASKED, targets=["harbour", "word"], top_k=1)
    assert numbers(found, *names) == numbers(expected(MASKED, targets=["harbour", "word"], top_k=1), *names)
    two = server.ask("/", {"inputs": [MASKED, f"{MASKED} [MASK]"], "parameters": {"top_k": 2}}).json
    assert numbers(two[0], *names) == numbers(expected(MASKED, top_k=2), *names)
    assert [len(one) for one in two[1]] == [2, 2]


def test_text_classification(server: Running, folders: Any) -> None:
    expected = local(folders, "text-classification", "classifier")
    ask = client(server, "/models/classifier")
    for given in (
        {},
        {"top_k": 2},
        {"function_to_apply": "sigmoid"},
        {"function_to_apply": "none", "top_k": 1},
    ):
        found = ask.text_classification(TEXTS[0], **given)
        wanted = expected(TEXTS[0], **({"top_k": None} | given))
        assert numbers(found, "label", "score") == numbers(wanted, "label", "score"), given
    pair = {"text": TEXTS[0], "text_pair": TEXTS[1]}
    many = server.ask("/models/classifier", {"inputs": [TEXTS[0], pair]}).json
    assert [numbers(one, "label", "score") for one in many] == [
        numbers(expected(one, top_k=None), "label", "score") for one in (TEXTS[0], pair)
    ]
    long = {"inputs": CONTEXT, "parameters": {"top_k": 1}}
    assert server.ask("/models/classifier", long).status == 422
    long["parameters"]["truncate"] = True
    assert server.ask("/models/classifier", long).json[0][0]["cut"] > 0


def test_options_of_one_task_choose_the_model(server: Running) -> None:
    """The options choose the model if the path names none."""
    ask = client(server)
    assert len(ask.text_classification(TEXTS[0], function_to_apply="softmax")) == 3
    assert ask.token_classification(TEXTS[0], aggregation_strategy="none")[0].entity.startswith("LABEL")
    with pytest.raises(
        HfHubHTTPError,
        match=r"no .MASK. in .*no model and no task, so fill-mask was chosen, the task of the model 'pretr",
    ):
        ask.text_classification(TEXTS[0])
    with pytest.raises(HfHubHTTPError) as caught:
        client(server, "/pipeline/fill-mask").fill_mask(TEXTS[0])
    assert "answered" not in str(caught.value)


def test_zero_shot_classification(server: Running, folders: Any) -> None:
    expected = local(folders, "zero-shot-classification", "nli")
    labels = ["river", "sea", "silver, or a key"]
    answers = []
    for given in (
        {},
        {"multi_label": True},
        {"hypothesis_template": "the captain opened {}"},
        {"hypothesis_template": "the captain opened {}", "multi_label": True},
    ):
        wanted = expected(TEXTS[0], labels, **given)
        wanted = list(zip(wanted["labels"], np.round(wanted["scores"], 4).tolist(), strict=True))
        for path in ("", "/models/nli", "/pipeline/zero-shot-classification"):
            found = client(server, path).zero_shot_classification(TEXTS[0], labels, **given)
            assert numbers(found, "label", "score") == wanted, given
        answers.append(str(wanted))
    assert len(set(answers)) == 4
    # A body with labels goes to the head of this model for them, one without to its own labels.
    own = client(server, "/models/nli").text_classification(TEXTS[0])
    assert {one.label for one in own} == {"contradiction", "neutral", "Entailment"}
    body = {"inputs": [*TEXTS[:2], CONTEXT], "parameters": {"candidate_labels": labels, "truncate": True}}
    several = server.ask("/models/nli", body).json
    assert [one[0]["label"] for one in several] == [
        one["labels"][0] for one in expected(body["inputs"], labels, truncation=True)
    ]
    assert [one[0].get("cut", 0) > 0 for one in several] == [False, False, True]


def test_token_classification(server: Running, folders: Any) -> None:
    expected = local(folders, "token-classification", "tagger")
    ask = client(server, "/models/tagger")
    names = ("entity", "entity_group", "score", "word", "start", "end")
    for given in (
        {},
        {"aggregation_strategy": "none"},
        {"aggregation_strategy": "max", "ignore_labels": ["LABEL_1"]},
        {"stride": 0},
    ):
        found = ask.token_classification(CONTEXT, **given)
        wanted = expected(CONTEXT, **({"aggregation_strategy": "simple"} | given))
        assert numbers(found, *names) == numbers(wanted, *names), given
    windows = [ask.token_classification(CONTEXT, stride=stride) for stride in (0, 30)]
    assert windows[0] != windows[1]


def test_question_answering(server: Running, folders: Any) -> None:
    expected = local(folders, "question-answering", "reader")
    question = {"question": "who followed the river?", "context": CONTEXT}
    names = ("answer", "start", "end", "score")
    answers = []
    for given in (
        {},
        {"top_k": 3},
        {"max_answer_len": 1},
        {"handle_impossible_answer": True, "top_k": 2},
        {"doc_stride": 0, "top_k": 2},
        {"max_seq_len": 32, "top_k": 2},
        {"max_question_len": 20, "align_to_words": False},
    ):
        for path in ("", "/models/reader"):
            found = client(server, path).question_answering(**question, **given)
            wanted = expected(question, **{n: v for n, v in given.items() if n != "align_to_words"})
            found, wanted = (one if isinstance(one, list) else [one] for one in (found, wanted))
            assert numbers(found, *names) == numbers(wanted, *names), given
        answers.append(str(found))
    assert len(set(answers)) == 6  # the options of the last one change nothing here
    with pytest.raises(HfHubHTTPError, match=r"has 12 tokens. Expected at most 1,"):
        client(server).question_answering(**question, max_question_len=1)


def test_feature_extraction_and_sentence_similarity(server: Running, folders: Any) -> None:
    expected = local(folders, "feature-extraction", "encoder")
    ask = client(server, "/models/encoder")
    vectors = np.array(expected(TEXTS, pooling="mean", normalize=True))
    np.testing.assert_allclose(ask.feature_extraction(TEXTS), vectors, atol=1e-5)
    assert ask.feature_extraction(TEXTS[0]).shape == (1, 32)
    raw = ask.feature_extraction(TEXTS, normalize=False, dimensions=32, encoding_format="float")
    np.testing.assert_allclose(raw, np.array(expected(TEXTS, pooling="mean")), atol=1e-4)
    with pytest.raises(HfHubHTTPError, match="truncate"):
        ask.feature_extraction(CONTEXT)
    cut = ask.feature_extraction(CONTEXT, truncate=True, truncation_direction="right")
    wanted = expected([CONTEXT], pooling="mean", normalize=True, truncation=True)
    np.testing.assert_allclose(cut, wanted, atol=1e-5)
    for path in ("/models/encoder", "/models/encoder/pipeline/sentence-similarity"):
        found = client(server, path).sentence_similarity(TEXTS[0], TEXTS[1:])
        np.testing.assert_allclose(found, vectors[1:] @ vectors[0], atol=1e-5)
    # A model with another head makes vectors where the path, the method or an option asks for them.
    other = client(server, "/models/classifier/pipeline/feature-extraction").feature_extraction(TEXTS)
    same = client(server, "/models/classifier").feature_extraction(TEXTS, normalize=True)
    np.testing.assert_array_equal(other, same)
    for path in ("/models/classifier", "/models/pretrained", ""):
        vectors = client(server, path).feature_extraction(TEXTS)
        assert vectors.shape == (3, 32)
        name = path.rpartition("/")[2] or "encoder"
        wanted = local(folders, "feature-extraction", name)(TEXTS, pooling="mean", normalize=True)
        np.testing.assert_allclose(vectors, wanted, atol=1e-5)


@pytest.mark.parametrize(
    "agent", ["curl/8.5", "unknown/None; hf_hub/0.23.0; python/3.9", "@huggingface/inference/4"]
)
def test_other_clients_send_no_parameters_for_any_task(server: Running, agent: str) -> None:
    headers = server.headers | {"User-Agent": agent}
    reply = server.ask("/models/classifier", {"inputs": TEXTS[0]}, headers=headers)
    assert len(reply.json[0]) == 3
    assert {"label", "score"} <= set(reply.json[0][0])


def test_an_error_of_a_model_path_names_the_path_of_a_task(server: Running) -> None:
    hint = (
        "The path names no task, so fill-mask was chosen, the task of the model 'pretrained'. To choose "
        "another, use the path /models/NAME/pipeline/TASK."
    )
    for parameters in ({}, {"normalize": True}):
        reply = server.ask("/models/pretrained", {"inputs": "a fox", "parameters": parameters})
        assert reply.status == 422
        assert reply.json["error"].endswith(f". {hint}")
    reply = server.ask("/models/pretrained/pipeline/fill-mask", {"inputs": "a fox"})
    assert "The path names" not in reply.json["error"]


def test_the_async_client(server: Running) -> None:
    async def ask() -> Any:
        url = f"http://127.0.0.1:{server.port}/models"
        one = hub.AsyncInferenceClient(base_url=f"{url}/classifier", token=KEY)
        two = hub.AsyncInferenceClient(base_url=f"{url}/encoder", token=KEY)
        return await asyncio.gather(
            one.text_classification(TEXTS[0]), two.sentence_similarity(TEXTS[0], TEXTS)
        )

    labels, cosines = asyncio.run(ask())
    assert labels == client(server, "/models/classifier").text_classification(TEXTS[0])
    assert cosines[0] == pytest.approx(1, abs=1e-5)
    assert len(cosines) == 3


@pytest.mark.parametrize(
    ("path", "method", "given", "status", "message"),
    [
        ("/models/none", "fill_mask", {"text": MASKED}, 404, "there is no model 'none'. The models are pre"),
        (
            "/pipeline/nothing",
            "fill_mask",
            {"text": MASKED},
            404,
            "there is no task 'nothing'. The tasks are fill",
        ),
        ("/models/tagger", "question_answering", {"question": "a?", "context": "a"}, 404, "not for question"),
        ("/models/chooser", "fill_mask", {"text": MASKED}, 404, "'chooser' is for multiple-choice"),
        *(
            (
                *(f"/models/{name}", "fill_mask", {"text": MASKED}, 422),
                rf"inputs has \[MASK\], but {task} fills no masks. The path names no task.*/pipeline/TASK",
            )
            for name, task in (("classifier", "text-classification"), ("tagger", "token-classification"))
        ),
        (
            *("/models/classifier", "token_classification"),
            *({"text": "a", "stride": 3}, 422, "stride is not an option of text-classification"),
        ),
        (
            *("/models/tagger", "text_classification"),
            *({"text": "a", "function_to_apply": "none"}, 422, "is not an option of token-classification"),
        ),
        (
            "/models/reader",
            "fill_mask",
            {"text": MASKED},
            422,
            "inputs is .* Expected an object with question",
        ),
        ("", "fill_mask", {"text": "no mask"}, 422, r"inputs: .*\[MASK\]"),
        ("", "fill_mask", {"text": MASKED, "top_k": 101}, 422, "parameters.top_k is 101. Expected"),
        ("", "fill_mask", {"text": MASKED, "targets": ["not one piece"]}, 422, "not a single piece"),
        ("/models/encoder", "feature_extraction", {"text": "a", "prompt_name": "q"}, 422, "prompt_name is "),
        (
            *("/models/encoder", "feature_extraction"),
            *({"text": "a", "prompt_name": "q" * 1001}, 422, "prompt_name is .*at most 1000 characters"),
        ),
        ("/models/encoder", "feature_extraction", {"text": "a", "dimensions": 3}, 422, "Expected 32"),
        (
            *("/models/encoder", "feature_extraction"),
            *({"text": "a", "truncation_direction": "left"}, 422, "truncation_direction is "),
        ),
        (
            *("/models/encoder", "feature_extraction"),
            *({"text": "a", "encoding_format": "base64"}, 422, "encoding_format is "),
        ),
        (
            *("/models/reader", "question_answering"),
            *({"question": "a?", "context": "a", "align_to_words": True}, 422, "align_to_words is true"),
        ),
        (
            *("/models/classifier", "zero_shot_classification", {"text": "a", "candidate_labels": ["b"]}),
            *(404, "'classifier' is not for zero-shot-classification. Use one of nli"),
        ),
        (
            *("", "zero_shot_classification", {"text": "a", "candidate_labels": []}),
            *(422, "parameters.candidate_labels is a list of length 0. Expected .*at least 1"),
        ),
        (
            *("", "zero_shot_classification", {"text": "a", "candidate_labels": "b, c"}),
            *(422, 'parameters.candidate_labels is "b, c". Expected a list'),
        ),
        (
            *("", "zero_shot_classification", {"text": "a", "candidate_labels": ["b"] * 1001}),
            *(422, "parameters.candidate_labels is a list of length 1001. Expected at most 1000"),
        ),
        (
            *("", "zero_shot_classification"),
            *({"text": "a", "candidate_labels": ["b"], "hypothesis_template": "{:>9}"}, 422),
            r"parameters.hypothesis_template is '{:>9}'. Expected .*one {} for",
        ),
        (
            *("", "zero_shot_classification"),
            *({"text": CONTEXT, "candidate_labels": ["b"]}, 422, 'inputs: .*"truncate": true'),
        ),
        ("/models/encoder", "feature_extraction", {"text": ["a"] * 9}, 413, "9 inputs. Expected at most 8"),
        (
            *("/models/encoder", "sentence_similarity"),
            *(
                {"sentence": "a", "other_sentences": ["a", CONTEXT]},
                422,
                r"inputs.sentences\[1\]: .*truncate",
            ),
        ),
        (
            *("/models/encoder", "sentence_similarity"),
            *({"sentence": "a", "other_sentences": [CONTEXT] * 2}, 422),
            r"inputs 1, 2 \(0 is the source sentence\)",
        ),
    ],
)
def test_errors(server: Running, path: str, method: str, given: Any, status: int, message: str) -> None:
    with pytest.raises(HfHubHTTPError, match=message) as caught:
        getattr(client(server, path), method)(**given)
    assert caught.value.response.status_code == status
    answer = caught.value.response.json()
    assert set(answer) == {"error", "error_type", "param"}
    if message.startswith("parameters."):  # the option is named in the message and for programs
        assert answer["param"] == message.partition(" ")[0]
    assert caught.value.server_message == caught.value.response.json()["error"]


@pytest.mark.parametrize(
    ("path", "body", "param", "message"),
    [
        *(
            (
                path,
                {"inputs": "a", "parameters": {"normalize": True}},
                "parameters",
                'next to inputs, as in {"inputs": ..., "normalize": true}. Its options are dimensions, ',
            )
            for path in ("/", "/models/encoder", "/pipeline/feature-extraction")
        ),
        (
            "/models/classifier",
            {"inputs": "a", "parameters": {"a.b": 1}},
            'parameters."a.b"',
            'parameters."a.b" is not an option of text-classification',
        ),
        (
            "/models/classifier",
            {"inputs": "a", "parameters": 1},
            "parameters",
            "parameters is 1. Expected an",
        ),
    ],
)
def test_errors_name_the_place_of_an_option(
    server: Running, path: str, body: dict[str, Any], param: str, message: str
) -> None:
    reply = server.ask(path, body)
    assert reply.status == 422
    assert reply.json["param"] == param
    assert message in reply.json["error"]


def test_key_deadline_and_metrics(server: Running) -> None:
    for token in ("wrong", None):
        with pytest.raises(HfHubHTTPError, match="Authorization: Bearer KEY") as caught:
            client(server, token=token).fill_mask(MASKED)
        assert caught.value.response.status_code == 401
    assert server.ask("/", headers={}).headers["Location"] == "playground"  # the page needs no key
    with pytest.raises(HfHubHTTPError, match="X-Request-Timeout") as late:
        client(server, headers={"X-Request-Timeout": "0.0000001"}).fill_mask(MASKED)
    assert late.value.response.status_code == 504
    for wrong in ("soon", "0", "inf"):
        with pytest.raises(HfHubHTTPError, match=f"is '{wrong}'. Expected a number of seconds above 0"):
            client(server, headers={"X-Request-Timeout": wrong}).fill_mask(MASKED)
    name = 'albertkit_requests_total{route="/models/{model}",status="200"}'
    before = server.figure(name)
    client(server, "/models/classifier").text_classification("a")
    assert server.figure(name) == before + 1
    assert server.figure('albertkit_stage_seconds_count{model="classifier",route="/models/{model}"') > 0
    paths = server.ask("/openapi.json").json["paths"]
    for path in ("/", "/models/{model}", "/pipeline/{task}", "/models/{model}/pipeline/{task}"):
        assert paths[path]["post"]["security"] == [{"HTTPBearer": []}]
