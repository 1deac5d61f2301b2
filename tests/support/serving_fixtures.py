"""Fixtures of the tests of the server: random models, and running servers.

A test module imports a fixture as `server_fixture`, and its tests request it as `server`.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from serving_requests import HEADS, settings_for
from serving_server import Running, WatchedEngine, running, save_random_models

from albertkit.serving.models import ServedModel, load_model

LIMITS = {"client_seconds": 1.0, "max_items": 8, "max_tokens": 2000}


@pytest.fixture(name="folders", scope="module")
def folders_fixture(tiny_vocabulary: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the folders of random models, one for each head."""
    return save_random_models(HEADS, tiny_vocabulary, tmp_path_factory.mktemp("served"), seed=0)


@pytest.fixture(name="auto_server", scope="module")
def auto_server_fixture(folders: dict[str, str]) -> Iterator[Running]:
    with running(settings_for(folders, playground=True, **LIMITS)) as started:
        yield started


@pytest.fixture(name="server", scope="module")
def server_fixture(auto_server: Running) -> Running:
    return auto_server


@pytest.fixture(name="torch_server", scope="module")
def torch_server_fixture(folders: dict[str, str]) -> Iterator[Running]:
    with running(settings_for(folders, playground=True, engine="torch", **LIMITS)) as started:
        yield started


@pytest.fixture(name="watched")
def watched_fixture(folders: dict[str, str]) -> ServedModel:
    """Return the pretrained model with an engine that tests can stop."""
    model = load_model("pretrained", settings_for(folders))
    word = model.any_pipeline.tokenizer.convert_tokens_to_ids
    engine = WatchedEngine(model.engine, poison=word("▁harbour"), bomb=word("▁morning"))
    for pipeline in model.pipelines.values():
        pipeline.engine = engine
    return model
