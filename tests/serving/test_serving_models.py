"""Models that a server loads, checks and reloads, and models whose engine or files fail."""

import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("fastapi", reason="needs the server's libraries: pip install 'albertkit[serve]'")

from serving_fixtures import folders_fixture, watched_fixture  # noqa: F401
from serving_requests import HEADS, MASKED, PAIRS, close_to, engine_of, settings_for
from serving_server import running, wait_for

from albertkit import devices
from albertkit.checkpoints.sentence_modules import Dense, SentenceModules, attach
from albertkit.engines.onnx import OnnxNetwork
from albertkit.errors import CheckpointError, ConfigError
from albertkit.modeling.heads import AlbertForPreTraining
from albertkit.modeling.model import AlbertModel
from albertkit.pipelines import pipeline
from albertkit.serving import app
from albertkit.serving.models import ServedModel, load_model
from albertkit.tokenization.tokenizer import AlbertTokenizer


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
                wait_for(lambda: server.figure("albertkit_queue_rows") == 3)
                engine.may_go.set()
                assert (bad.result().status, bad.result().kind) == (500, "not_finite")
                assert (raising.result().status, raising.result().kind) == (500, "internal")
                assert good.result().status == first.result().status == 200
            assert server.errors("not_finite") == 1
            assert server.ask("/v1/embeddings", {"input": "the fox"}).json == good.result().json

    def test_hidden_states_that_are_all_zero_do_not_leave(self, folders: Any, watched: ServedModel) -> None:
        with running(settings_for({"pretrained": folders["pretrained"]}), {"pretrained": watched}) as server:
            engine_of(watched).factor = 0.0
            reply = server.ask("/v1/embeddings", {"input": "the fox"})
            assert (reply.status, reply.kind) == (500, "not_finite")

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
        monkeypatch.setattr(app, "_PROBE_SECONDS", 0.3)
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

    def test_an_engine_that_raises_is_not_ready(
        self,
        folders: Any,
        watched: ServedModel,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """As after a failure of a GPU."""
        settings = settings_for({name: folders[name] for name in ("pretrained", "encoder")})
        models = {"pretrained": watched, "encoder": load_model("encoder", settings)}
        with running(settings, models) as server:
            monkeypatch.setattr(engine_of(watched), "bomb", 2)  # [CLS], which the probe has too
            reply = server.ask("/readyz")
            assert (reply.status, reply.json["models"]) == (503, {"pretrained": False, "encoder": True})
        assert "the probe of the model pretrained failed" in caplog.text

    @pytest.mark.parametrize("engine", ["auto", "torch"])
    def test_a_model_with_broken_weights_is_not_loaded(
        self, engine: str, folders: Any, tmp_path: Path
    ) -> None:
        model = AlbertForPreTraining.from_pretrained(folders["pretrained"])
        with torch.no_grad():
            model.base_model.embeddings.word_embeddings.weight.fill_(torch.nan)
        model.save_pretrained(tmp_path)
        AlbertTokenizer.from_pretrained(folders["pretrained"]).save_pretrained(tmp_path)
        with pytest.raises(CheckpointError, match="NaN or infinite"):
            load_model("broken", settings_for({"broken": str(tmp_path)}, engine=engine))


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
                server.service.reload()
            after = server.results("/v1/fill-mask", body)
            ending.set()
            seen = set().union(*(one.result() for one in asking))
        others = [record for record in caplog.records if not hasattr(record, "fields")]
        assert [record.getMessage() for record in others] == ["reloaded mine"]
        assert after != before
        assert seen <= {before[0][0][0]["token"], after[0][0][0]["token"]}
        (tmp_path / "model.safetensors").write_bytes(b"damaged")
        server.service.reload()
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
        (cut,) = server.ask("/v1/embeddings", long | {"truncation": True}).json["data"]
        expected = ours(long["input"], normalize=True, truncation=True)
        np.testing.assert_allclose(cut["embedding"], expected, atol=1e-5)
        wrong = server.ask("/v1/embeddings", {"input": "a", "prompt_name": "other"})
        assert (wrong.status, wrong.json["error"]["param"]) == (422, "prompt_name")
        (described,) = server.ask("/v1/models").json["data"]
        assert (described["embedding_size"], described["max_tokens"]) == (7, 20)


@pytest.mark.parametrize("head", HEADS)
def test_an_engine_with_other_scores_is_an_error(
    head: str, folders: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server compares a light model with the NumPy reference."""
    computed = OnnxNetwork.__call__
    monkeypatch.setattr(OnnxNetwork, "__call__", lambda *given: computed(*given) + np.float32(0.05))
    with pytest.raises(CheckpointError, match="differ from the reference"):
        load_model(head, settings_for(folders))


def test_an_engine_of_the_cpu_loads_the_model_there_by_default(
    folders: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "best_device", lambda: torch.device("meta"))  # in place of a GPU
    settings = settings_for(folders, engine="onnx", device=None)
    assert str(load_model("classifier", settings).any_pipeline.device) == "cpu"
    with pytest.raises(ConfigError, match="no device 'meta'"):
        load_model("classifier", settings_for(folders, device=None))


@pytest.mark.parametrize("engine", ["auto", "torch"])
def test_a_model_without_a_pooler(engine: str, folders: Any, tmp_path: Path) -> None:
    config = AlbertModel.from_pretrained(folders["encoder"]).config
    bare = AlbertModel(config, add_pooling_layer=False).eval()
    bare.save_pretrained(tmp_path)
    AlbertTokenizer.from_pretrained(folders["encoder"]).save_pretrained(tmp_path)
    model = load_model("bare", settings_for({"bare": str(tmp_path)}, engine=engine))
    assert {output: scores.shape for output, scores in model.expected.items()} == {"hidden_states": (1, 32)}
    row = model.any_pipeline.tokenizer("The captain.", return_tensors="pt")
    with torch.no_grad():
        states = bare(**row).last_hidden_state[0].numpy()
    (found,) = model.any_pipeline(["The captain."])
    np.testing.assert_allclose(found[0], states, atol=1e-4)


def test_a_reload_that_changes_the_tasks_of_a_model_is_warned_of(
    folders: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = shutil.copytree(folders["classifier"], tmp_path / "model")
    with running(settings_for({"mine": str(folder)})) as server:
        shutil.copytree(folders["tagger"], folder, dirs_exist_ok=True)
        server.service.reload()
    assert [one.getMessage() for one in caplog.records if one.levelname == "WARNING"] == [
        "mine: the tasks changed from text-classification, feature-extraction to token-classification, "
        "feature-extraction"
    ]
